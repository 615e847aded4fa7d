//! Training steps of random models on the CPU: through gradients, clip, optimizer, plan, validator and engine, against
//! the reference.

mod common;

use common::{check_everywhere, config};
use memfit_exec_tests::generate::{Recipe, Samples};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

fn recipes(samples: Samples) -> impl Strategy<Value = Recipe> {
    prop::collection::vec(any::<u32>(), 1..120).prop_map(move |draws| Recipe { draws, samples })
}

#[test]
fn a_step_of_any_model_is_that_of_the_reference() {
    let strategy = (recipes(Samples::Together), 1usize..5);
    let outcome = TestRunner::new(config(60)).run(&strategy, |(recipe, batch)| {
        let example = recipe.example(batch).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let failed = |e| TestCaseError::fail(format!("{e}\n{}", memfit_ir::text::print(&example.graph)));
        check_everywhere(&example).map_err(failed)
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
}
