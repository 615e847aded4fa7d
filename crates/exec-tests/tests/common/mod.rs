//! One example on the CPU in every way that must not matter.

use memfit_exec_cpu::CpuExecutor;
use memfit_exec_cpu::isa::Isa;
use memfit_exec_tests::generate::Example;
use memfit_exec_tests::{Expected, Planned, Result, RunResult, Runner, Settings, check_same};
use memfit_transform::Grouping;

/// What is the same bits for the same instruction set.
const WAYS: [(usize, Grouping, bool); 4] = [
    (2, Grouping::Fused, false),
    (3, Grouping::Fused, true),
    (1, Grouping::Single, true),
    (2, Grouping::Single, false),
];

pub fn cpu(threads: usize, isa: Isa, grouping: Grouping, poison: bool) -> impl Runner {
    Planned::new(move || CpuExecutor::with_isa(threads, isa), Settings { grouping, poison })
}

/// Close to the reference with every instruction set; the same bits again, on any number of threads, in groups or
/// alone, and with poison.
pub fn check_everywhere(example: &Example) -> Result<()> {
    let Example { graph, inputs, states, .. } = example;
    let expected = Expected::new(graph, inputs, states)?;
    for isa in Isa::available() {
        let mut plain = cpu(1, isa, Grouping::Fused, false);
        let first = plain.run(graph, inputs, states)?;
        expected.check(&first)?;
        same("the second run", &first, &plain.run(graph, inputs, states)?)?;
        for (threads, grouping, poison) in WAYS {
            let way = format!("{} threads, {grouping:?}, poison {poison}, {}", threads, isa.name());
            same(&way, &first, &cpu(threads, isa, grouping, poison).run(graph, inputs, states)?)?;
        }
    }
    Ok(())
}

pub fn same(way: &str, expected: &RunResult, given: &RunResult) -> Result<()> {
    for (a, b) in [(&expected.outputs, &given.outputs), (&expected.states, &given.states)] {
        assert_eq!(a.len(), b.len(), "{way}");
        a.iter().try_for_each(|(name, t)| check_same(&format!("{name} ({way})"), t, &b[name]))?;
    }
    Ok(())
}
