//! Every op and its gradient on the GPU against the f64 reference, on random examples with odd sizes and edges: fused and
//! alone, poisoned, twice, in the memory of the fastest plan and of the smallest. All ways give the same bits.
#![cfg(feature = "gpu")]

mod common;

use common::{gpu, runner};
use memfit_exec_tests::families::{Way, check_examples, check_ways, config};
use memfit_exec_tests::generate::Example;
use memfit_exec_tests::{Expected, Result, Settings};
use memfit_transform::Grouping;
use proptest::test_runner::Config;

/// What gives the same bits as the fastest plan in groups.
const WAYS: [Settings; 3] = [
    Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 },
    Settings { grouping: Grouping::Fused, poison: true, squeeze: 100 },
    Settings { grouping: Grouping::Single, poison: true, squeeze: 100 },
];

fn check_everywhere(example: &Example) -> Result<()> {
    let expected = Expected::new(&example.graph, &example.inputs, &example.states)?;
    let others = WAYS.iter().map(|&settings| -> Way { (format!("{settings:?}"), Box::new(runner(settings))) });
    check_ways(example, &expected, runner(Settings::default()), others)
}

/// A third of the examples, because each has shaders of its own.
fn check(name: &str, cases: u32) {
    if gpu().is_some() {
        let config = Config { max_shrink_iters: 60, ..config(cases.div_ceil(3)) };
        check_examples(name, config, check_everywhere);
    }
}

memfit_exec_tests::each_family!(check);
