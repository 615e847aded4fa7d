//! Forks are those of the step.

use memfit_bench::{Workload, step_forks};

#[test]
fn forks_of_a_step_are_counted() {
    let mlp = Workload::from_name("mlp").unwrap();
    let once = step_forks(mlp, 2, 1).unwrap().forks;
    // A dense layer has three products in a step, but the first layer's input needs no gradient.
    assert!(once >= 8, "{once}");
    assert_eq!(step_forks(mlp, 2, 2).unwrap().forks, once);
    assert_eq!(step_forks(mlp, 1, 1).unwrap().forks, 0);
}
