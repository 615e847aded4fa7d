//! Random examples of a family, for an executor to run in every way that must not matter: the numbers are close to the
//! reference's, and the same bits each time.

use memfit_transform::StepGraph;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::compare::check_same;
use crate::error::Result;
use crate::expected::Expected;
use crate::generate::{Example, Family, Purpose};
use crate::runner::{RunResult, Runner};

/// A test for each family, which gives its name and the number of its examples to a function. With full effort there are ten
/// times as many.
#[macro_export]
macro_rules! each_family {
    ($check:path) => {
        $crate::each_family! {
            $check; unary: 20, mask: 26, binary: 20, compare: 13, select: 10, cast: 13, dropout: 6, chain: 20, fill: 6,
            reduce: 13, reshape: 6, transpose: 13, slice: 10, concat: 10, pad: 10, broadcast: 10, matmul: 20, conv: 20,
            depthwise: 13, conv_transpose: 13, conv_filter: 13, conv_3x3: 20, prologue: 40, attention: 13, max_pool: 10,
            avg_pool: 10, upsample: 10, batch_norm: 10, batch_stats: 6, batch_apply: 6, batch_update: 6, layer_norm: 10,
            rms_norm: 10, group_norm: 10, softmax: 10, cross_entropy: 10, gather: 10, update: 26
        }
    };
    ($check:path; $($name:ident: $cases:literal),*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name), $cases);
        })*

        #[test]
        fn no_family_is_forgotten() {
            assert_eq!($crate::generate::FAMILIES.map(|f| f.name), [$(stringify!($name)),*]);
        }
    };
}

/// Reproducible, so that a change that breaks nothing fails nothing. `MEMFIT_TEST_EFFORT`, `PROPTEST_RNG_SEED` and
/// `PROPTEST_CASES` look further.
pub fn config(cases: u32) -> Config {
    let usual = Config::default();
    let seed = if usual.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { usual.rng_seed };
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { usual.cases } else { memfit_test_effort::cases(cases) };
    Config { rng_seed: seed, cases, failure_persistence: None, ..usual }
}

/// Gives random examples of a family to a check; panics with a small one that fails.
pub fn check_examples(name: &str, config: Config, check: impl Fn(&Example) -> Result<()>) {
    let family = Family::named(name).expect("a family of the suite");
    let outcome = TestRunner::new(config).run(&prop::collection::vec(any::<u32>(), 1..60), |draws| {
        let example = family.example(Purpose::Kernels, &draws).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let failed = |e| TestCaseError::fail(format!("{e}\n{}", memfit_ir::text::print(&example.graph)));
        check(&example).map_err(failed)
    });
    outcome.unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// A way to run an example, with its name.
pub type Way<'a> = (String, Box<dyn Runner + 'a>);

/// Holds the first way against what is expected of an example, and against itself when it runs again; and all others against
/// the first.
pub fn check_ways<'a>(
    example: &Example,
    expected: &Expected,
    mut first: impl Runner,
    others: impl IntoIterator<Item = Way<'a>>,
) -> Result<()> {
    let Example { graph, forward_end, inputs, states, .. } = example;
    let step = StepGraph { graph: graph.clone(), forward_end: *forward_end };
    let once = first.run_step(&step, inputs, states)?;
    expected.check(&once)?;
    same("the second run", &once, &first.run_step(&step, inputs, states)?)?;
    for (way, mut runner) in others {
        same(&way, &once, &runner.run_step(&step, inputs, states)?)?;
    }
    Ok(())
}

/// All that a run left is the same bits.
pub fn same(way: &str, expected: &RunResult, given: &RunResult) -> Result<()> {
    for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
        assert_eq!(a.len(), b.len(), "{way}");
        a.iter().try_for_each(|(name, t)| check_same(&format!("{name} ({way})"), t, &b[name]))?;
    }
    Ok(())
}
