//! Every op and its gradient on the CPU against the reference, on random examples with odd sizes and edges, and folds of all
//! shapes.

use crate::common::check_everywhere;
use memfit_exec_tests::families::{check_examples, config};
use memfit_exec_tests::folds::{self, Fold};

fn check(name: &str, cases: u32) {
    check_examples(name, config(cases), check_everywhere);
}

memfit_exec_tests::each_family!(check);

fn check_folds(folds: &[Fold]) {
    for (what, example) in folds {
        check_everywhere(example).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

#[test]
fn reductions_over_any_axes_of_any_extents() {
    check_folds(&folds::reductions().unwrap());
}

#[test]
fn norms_of_few_long_and_of_many_short_cells() {
    check_folds(&folds::norms().unwrap());
}

#[test]
fn softmax_and_loss_of_few_long_and_of_many_short_rows() {
    check_folds(&folds::losses().unwrap());
}
