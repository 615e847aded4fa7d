//! Every op and its gradient on the GPU against the f64 reference, on random examples with odd sizes and edges: fused and
//! alone, poisoned, twice, in the memory of the fastest plan and of the smallest. All ways give the same bits.
#![cfg(feature = "gpu")]

mod common;

use common::gpu;
use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::generate::{Example, FAMILIES, Family, Purpose};
use memfit_exec_tests::{Expected, Planned, Result, RunResult, Runner, Settings, check_same};
use memfit_transform::{Grouping, StepGraph};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// Reproducible, as the CPU's tests are; `MEMFIT_TEST_EFFORT`, `PROPTEST_RNG_SEED` and `PROPTEST_CASES` look further.
fn config(cases: u32) -> Config {
    let usual = Config::default();
    let seed = if usual.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { usual.rng_seed };
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { memfit_test_effort::cases(cases) };
    Config { rng_seed: seed, cases, failure_persistence: None, max_shrink_iters: 60, ..usual }
}

/// What gives the same bits as the fastest plan in groups.
const WAYS: [Settings; 3] = [
    Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 },
    Settings { grouping: Grouping::Fused, poison: true, squeeze: 100 },
    Settings { grouping: Grouping::Single, poison: true, squeeze: 100 },
];

fn check_everywhere(example: &Example) -> Result<()> {
    let Example { graph, forward_end, inputs, states, .. } = example;
    let step = &StepGraph { graph: graph.clone(), forward_end: *forward_end };
    let expected = Expected::new(graph, inputs, states)?;
    let runner = |settings| Planned::new(|| GpuExecutor::new(0), settings);
    let mut plain = runner(Settings::default());
    let first = plain.run_step(step, inputs, states)?;
    expected.check(&first)?;
    same("the second run", &first, &plain.run_step(step, inputs, states)?)?;
    for settings in WAYS {
        same(&format!("{settings:?}"), &first, &runner(settings).run_step(step, inputs, states)?)?;
    }
    Ok(())
}

fn same(way: &str, expected: &RunResult, given: &RunResult) -> Result<()> {
    for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
        assert_eq!(a.len(), b.len(), "{way}");
        a.iter().try_for_each(|(name, t)| check_same(&format!("{name} ({way})"), t, &b[name]))?;
    }
    Ok(())
}

fn check(name: &str, cases: u32) {
    if gpu().is_none() {
        return;
    }
    let family = Family::named(name).unwrap();
    let outcome = TestRunner::new(config(cases)).run(&prop::collection::vec(any::<u32>(), 1..60), |draws| {
        let example = family.example(Purpose::Kernels, &draws).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let failed = |e| TestCaseError::fail(format!("{e}\n{}", memfit_ir::text::print(&example.graph)));
        check_everywhere(&example).map_err(failed)
    });
    outcome.unwrap_or_else(|e| panic!("{name}: {e}"));
}

macro_rules! families {
    ($($name:ident: $cases:literal,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), $cases);
        })*

        #[test]
        fn no_family_is_forgotten() {
            let mut named = [$(stringify!($name)),*];
            let mut all = FAMILIES.map(|f| f.name);
            named.sort_unstable();
            all.sort_unstable();
            assert_eq!(named, all);
        }
    };
}

// How many examples of each; with full effort ten times as many.
families! {
    unary: 6,
    mask: 6,
    binary: 6,
    compare: 4,
    select: 4,
    cast: 4,
    dropout: 3,
    chain: 8,
    reduce: 8,
    fill: 4,
    reshape: 3,
    transpose: 5,
    slice: 5,
    concat: 6,
    pad: 6,
    broadcast: 4,
    max_pool: 6,
    avg_pool: 5,
    upsample: 5,
    gather: 4,
    update: 8,
    attention: 6,
    matmul: 6,
    conv: 5,
    depthwise: 5,
    conv_transpose: 5,
    conv_filter: 5,
    conv_3x3: 5,
    prologue: 6,
    batch_norm: 6,
    batch_stats: 6,
    batch_apply: 4,
    batch_update: 4,
    layer_norm: 6,
    rms_norm: 6,
    group_norm: 6,
    softmax: 6,
    cross_entropy: 8,
}
