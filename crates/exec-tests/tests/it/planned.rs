//! The planned runner, on the reference as an executor: plans of golden cases give what the plain reference gives, and
//! neither grouping nor poison changes a bit.

use std::collections::HashMap;

use memfit_exec_tests::golden::{CaseKind, check, directory, load};
use memfit_exec_tests::reference::ReferenceExecutor;
use memfit_exec_tests::{Planned, RunResult, Runner, Settings, Tensor, check_same};
use memfit_ir::op::{Init, Unary};
use memfit_ir::{Builder, Graph, TensorType};
use memfit_transform::Grouping;

fn runner(grouping: Grouping, poison: bool) -> impl Runner {
    Planned::new(|| Ok(ReferenceExecutor::default()), Settings { grouping, poison, squeeze: 0 })
}

#[test]
fn golden_cases_pass_through_plan_and_engine() {
    for entry in load(&directory()).unwrap() {
        let case = entry.case.unwrap();
        // Long cases say no more about plans than short ones.
        if entry.name.contains("130") || entry.name.contains("wide") {
            continue;
        }
        check(&mut runner(Grouping::Fused, true), &case).unwrap_or_else(|e| panic!("{}: {e}", entry.name));
    }
}

#[test]
fn grouping_and_poison_change_no_bit_of_a_training() {
    let entries = load(&directory()).unwrap();
    let cases = entries.into_iter().filter_map(|e| e.case.ok());
    let runs: Vec<_> = cases.filter_map(|c| if let CaseKind::Run(run) = c.kind { Some(run) } else { None }).collect();
    assert!(!runs.is_empty());
    for run in runs {
        let step = run.step_graph().unwrap();
        let train = |mut runner: Box<dyn Runner>| {
            let first = runner.run_step(&step, &run.feeds(0), &run.states(&step.graph)).unwrap();
            runner.run_step(&step, &run.feeds(1), &first.states).unwrap()
        };
        let plain = train(Box::new(runner(Grouping::Fused, false)));
        same(&plain, &train(Box::new(runner(Grouping::Fused, true))));
        same(&plain, &train(Box::new(runner(Grouping::Single, false))));
    }
}

fn same(expected: &RunResult, given: &RunResult) {
    for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
        assert_eq!(a.len(), b.len());
        a.iter().for_each(|(name, t)| check_same(name, t, &b[name]).unwrap());
    }
}

fn doubling() -> Graph {
    let mut b = Builder::new();
    let x = b.input("x", TensorType::f32([3])).unwrap();
    let w = b.param("w", [3], Init::Constant(0.0)).unwrap();
    let sum = b.add(x, w).unwrap();
    let y = b.unary(Unary::Neg, sum).unwrap();
    b.output("y", y);
    b.donate(w, sum);
    b.finish()
}

#[test]
fn states_take_their_new_values_and_others_stay() {
    let vector = |x: f64| Tensor::f32([3], vec![x; 3]).unwrap();
    let named = |pairs: &[(&str, f64)]| -> HashMap<String, Tensor> {
        pairs.iter().map(|&(n, x)| (n.to_string(), vector(x))).collect()
    };
    let mut runner = runner(Grouping::Fused, true);
    let result = runner.run(&doubling(), &named(&[("x", 1.5), ("z", 0.0)]), &named(&[("w", 2.0), ("v", 7.0)])).unwrap();
    assert_eq!(result.outputs, named(&[("y", -3.5)]));
    assert_eq!(result.states, named(&[("w", 3.5), ("v", 7.0)]));
}

#[test]
fn what_is_not_given_or_has_another_type_is_named() {
    let mut runner = runner(Grouping::Fused, false);
    let mut message = |inputs, states| runner.run(&doubling(), &inputs, &states).unwrap_err().to_string();
    let w = HashMap::from([("w".to_string(), Tensor::f32([3], vec![0.0; 3]).unwrap())]);
    let none = HashMap::new;
    assert_eq!(message(none(), none()), "the graph needs the state \"w\" of f32[3], but it was not given");
    assert_eq!(message(none(), w.clone()), "the graph needs the input \"x\" of f32[3], but it was not given");
    let x = HashMap::from([("x".to_string(), Tensor::i32([3], &[0; 3]).unwrap())]);
    assert_eq!(message(x, w), "the input \"x\" must be f32[3], but i32[3] was given");
}
