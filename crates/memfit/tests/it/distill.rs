//! The worked example of a loop in Rust, as its page states it.

#[path = "../../../../examples/distill/main.rs"]
#[allow(dead_code)] // Its main is the example's.
mod example;

#[test]
fn the_student_learns_from_its_teacher() {
    let (loss, right) = example::run().expect("it trains");
    assert!(loss < 1.6 && right > 0.9, "loss {loss}, {right} right");
}
