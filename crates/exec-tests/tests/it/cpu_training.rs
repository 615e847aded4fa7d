//! Training steps of random models on the CPU: through gradients, clip, optimizer, plan, validator and engine, against
//! the reference. And longer ones of small models: nothing that a plan may choose changes a bit of them.

use crate::common;

use common::{check_everywhere, engine, sgd, state};
use memfit_exec::{Clock, Growth, Options};
use memfit_exec_tests::families::config;
use memfit_exec_tests::generate::{Recipe, Samples};
use memfit_exec_tests::{Batch, Result, check_same};
use memfit_nn::zoo::{Digits, Gpt};
use memfit_nn::{Mode, Model, ZooModel};
use memfit_plan::{Phase, Request};
use memfit_transform::{Grouping, Half, Precision, Training};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

fn recipes(samples: Samples) -> impl Strategy<Value = Recipe> {
    prop::collection::vec(any::<u32>(), 1..120).prop_map(move |draws| Recipe { draws, samples })
}

#[test]
fn a_step_of_any_model_is_that_of_the_reference() {
    check_steps(60, Precision::F32);
}

#[test]
fn a_step_in_mixed_precision_is_that_of_the_reference() {
    check_steps(20, Precision::Mixed(Half::Bf16));
    check_steps(20, Precision::Mixed(Half::F16));
}

fn check_steps(cases: u32, precision: Precision) {
    let strategy = (recipes(Samples::Together), 1usize..5);
    let outcome = TestRunner::new(config(cases)).run(&strategy, |(recipe, batch)| {
        let example = recipe.example_in(batch, precision).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let failed = |e| TestCaseError::fail(format!("{e}\n{}", memfit_ir::text::print(&example.graph)));
        check_everywhere(&example).map_err(failed)
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
}

/// Threads, grouping, poison and growth: none is visible in the weights.
const WAYS: [(usize, Grouping, bool, Growth); 5] = [
    (1, Grouping::Fused, false, Growth::Commit),
    (2, Grouping::Fused, true, Growth::Lazy),
    (3, Grouping::Fused, false, Growth::Lazy),
    (2, Grouping::Single, false, Growth::Commit),
    (3, Grouping::Single, true, Growth::Commit),
];

#[test]
fn nothing_that_a_plan_chooses_changes_a_bit_of_the_weights() {
    let gpt = Gpt { layers: 2, width: 48, heads: 3, sequence: 33, vocabulary: 60 };
    let models = [ZooModel::from(Digits::default()), ZooModel::from(gpt)];
    for (model, precision) in models.iter().flat_map(|m| Precision::ALL.map(|p| (m, p))) {
        let forward = |batch: usize| {
            let forward = model.build(batch, Mode::Train).unwrap();
            Ok((forward.graph, forward.loss))
        };
        let train = |(threads, grouping, poison, growth): (usize, Grouping, bool, Growth)| -> Result<_> {
            let request = Request { grouping, ..Request::new(6) };
            let training = Training { precision, ..sgd(0.9) };
            let mut engine =
                engine(threads, &forward, &training, &request, Options { growth, poison, ..Options::default() })?;
            for step in 0..5 {
                let batch = Batch::of_zoo(&engine.plan().program(Phase::Step).unwrap().graph, 6, u64::from(step));
                engine.step(&batch.views(), 0.05, Clock { step, seed: 3 })?;
            }
            let states = engine.plan().states.iter().map(|s| Ok((s.name.clone(), state(&engine, &s.name)?)));
            states.collect::<Result<Vec<_>>>()
        };
        let first = train(WAYS[0]).unwrap();
        for way in &WAYS[1..] {
            for ((name, expected), (_, given)) in first.iter().zip(train(*way).unwrap()) {
                check_same(&format!("{name} {way:?} {}", precision.name()), expected, &given)
                    .unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}
