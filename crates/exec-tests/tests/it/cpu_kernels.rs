//! Every op and its gradient on the CPU against the reference, on random examples with odd sizes and edges.

use crate::common;

use common::{check_everywhere, config};
use memfit_exec_tests::generate::{FAMILIES, Family, Purpose};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

fn check(name: &str, cases: u32) {
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
            assert_eq!(FAMILIES.map(|f| f.name), [$(stringify!($name)),*]);
        }
    };
}

// How many examples of each; with full effort ten times as many.
families! {
    unary: 20,
    mask: 26,
    binary: 20,
    compare: 13,
    select: 10,
    cast: 13,
    dropout: 6,
    chain: 20,
    fill: 6,
    reduce: 13,
    reshape: 6,
    transpose: 13,
    slice: 10,
    concat: 10,
    pad: 10,
    broadcast: 10,
    matmul: 20,
    conv: 20,
    depthwise: 13,
    conv_transpose: 13,
    conv_filter: 13,
    conv_3x3: 20,
    prologue: 40,
    attention: 13,
    max_pool: 10,
    avg_pool: 10,
    upsample: 10,
    batch_norm: 10,
    batch_stats: 6,
    batch_apply: 6,
    batch_update: 6,
    layer_norm: 10,
    rms_norm: 10,
    group_norm: 10,
    softmax: 10,
    cross_entropy: 10,
    gather: 10,
    update: 26,
}
