//! The worked example of a model of one's own, as its page states it.

#[path = "../../../../examples/two_inputs/main.rs"]
#[allow(dead_code)] // Its main is the example's.
mod example;

#[test]
fn a_model_of_two_inputs_and_two_outputs_learns_and_resumes_to_the_same_bits() {
    let run = example::run().expect("it trains");
    let (class, price) = (&run.scores.heads["class"], &run.scores.heads["price"]);
    assert!(run.scores.loss < 0.5 && class.accuracy > Some(0.9), "{:?}", run.scores);
    assert_eq!((class.count, price.count, run.scores.count), (200, 200, 200));
    assert!((run.scores.loss - (class.loss + 0.5 * price.loss)).abs() < 1e-12, "{:?}", run.scores);
    assert!(run.same_bits, "stopped and resumed it ends in other bits");
}
