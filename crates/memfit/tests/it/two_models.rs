//! The worked example of two models in one memory, as its page states it.

#[path = "../../../../examples/together/main.rs"]
#[allow(dead_code)] // Its main is the example's.
mod example;

#[test]
fn two_models_learn_in_one_memory() {
    let losses = example::run().expect("they train");
    assert!(losses.len() == 2 && losses.iter().all(|loss| *loss < 0.5), "{losses:?}");
}
