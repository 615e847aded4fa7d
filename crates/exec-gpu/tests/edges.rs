//! Infinities, NaN, numbers at the ends of their types and empty tensors go where they go on the CPU.
#![cfg(feature = "gpu")]

mod common;

use common::{POISONED, gpu, runner};
use memfit_exec_cpu::CpuExecutor;
use memfit_exec_tests::edges::{self, Edge};
use memfit_exec_tests::generate::Example;
use memfit_exec_tests::{Expected, Planned, Reference, Runner, Settings};

/// Says all that is wrong, not the first of it.
fn check(edges: &[Edge]) {
    if gpu().is_none() {
        return;
    }
    let errors = edges.iter().filter_map(|edge| edge.check(&mut runner(POISONED)).err());
    let wrong: Vec<String> = errors.map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_hold_from_one_end_of_the_numbers_to_the_other() {
    check(&edges::functions());
}

#[test]
fn a_nan_is_never_swallowed() {
    check(&edges::nans().unwrap());
}

#[test]
fn a_softmax_of_masked_and_of_huge_scores_is_a_distribution() {
    check(&edges::softmaxes().unwrap());
}

#[test]
fn attention_keeps_its_head_with_huge_scores_and_shows_a_nan() {
    check(&edges::attention().unwrap());
}

#[test]
fn casts_round_to_even_truncate_and_saturate() {
    check(&edges::casts());
}

#[test]
fn integers_are_exact_beyond_what_floats_hold() {
    check(&edges::integers());
}

#[test]
fn empty_tensors_are_no_special_case() {
    if gpu().is_none() {
        return;
    }
    for example in edges::empty().unwrap() {
        let text = memfit_ir::text::print(&example.graph);
        let expected = Expected::new(&example.graph, &example.inputs, &example.states).unwrap();
        let given = runner(POISONED).run(&example.graph, &example.inputs, &example.states);
        let given = given.unwrap_or_else(|e| panic!("{e}\n{text}"));
        expected.check(&given).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
}

#[test]
fn a_nan_or_an_infinity_in_any_input_of_any_op_goes_where_it_goes_on_the_cpu() {
    if gpu().is_none() {
        return;
    }
    for number in 0..memfit_test_effort::cases(1) {
        for (what, Example { graph, inputs, states, .. }) in edges::spoiled(number).unwrap() {
            let run = |runner: &mut dyn Runner| {
                let result = runner.run(&graph, &inputs, &states);
                result.unwrap_or_else(|e| panic!("{what}: {e}"))
            };
            let cpu = run(&mut Planned::new(|| CpuExecutor::new(1), Settings::default()));
            let given = run(&mut runner(POISONED));
            edges::check_nans(&what, &run(&mut Reference), &cpu, &given).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
