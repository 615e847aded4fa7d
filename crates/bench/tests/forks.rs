//! The count of forks is the process's: one test, alone in its process.

use memfit::cpu::pool::{Pool, forked};
use memfit_bench::{Workload, step_forks};

#[test]
fn forks_are_counted_and_are_those_of_the_step() {
    let pool = Pool::new(2).unwrap();
    (0..5).for_each(|_| pool.run(&|_| {}));
    assert_eq!(forked(), 0);
    drop(pool);
    assert_eq!(forked(), 5);
    let mlp = Workload::from_name("mlp").unwrap();
    let once = step_forks(mlp, 2, 1).unwrap().forks;
    // A dense layer has three products in a step, but the first layer's input needs no gradient.
    assert!(once >= 8, "{once}");
    assert_eq!(step_forks(mlp, 2, 2).unwrap().forks, once);
    assert_eq!(step_forks(mlp, 1, 1).unwrap().forks, 0);
}
