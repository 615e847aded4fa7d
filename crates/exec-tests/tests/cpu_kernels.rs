//! Every op and its gradient on the CPU against the reference, on random examples with odd sizes and edges.

mod common;

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

// How many examples of each.
families! {
    unary: 60,
    mask: 80,
    binary: 60,
    compare: 40,
    select: 30,
    cast: 40,
    dropout: 20,
    chain: 60,
    fill: 10,
    reduce: 40,
    reshape: 10,
    transpose: 40,
    slice: 30,
    concat: 30,
    pad: 30,
    broadcast: 30,
    matmul: 60,
    conv: 60,
    depthwise: 40,
    conv_transpose: 40,
    conv_filter: 40,
    conv_3x3: 60,
    prologue: 120,
    attention: 40,
    max_pool: 30,
    avg_pool: 30,
    upsample: 30,
    batch_norm: 30,
    batch_stats: 20,
    batch_apply: 20,
    batch_update: 10,
    layer_norm: 30,
    rms_norm: 30,
    group_norm: 30,
    softmax: 30,
    cross_entropy: 30,
    gather: 30,
    update: 80,
}
