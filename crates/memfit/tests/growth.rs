//! Memory that comes when it is used and goes when it is not: one test, because it looks at the whole process.

#![cfg(target_os = "linux")]

#[path = "it/common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use common::{Batch, resident};
use memfit::exec::weights::Match;
use memfit::exec::{Executor, Growth};
use memfit::ir::op::StateClass;
use memfit::nn::optim::Optimizer;
use memfit::plan::{MicroBatch, StateSlot};
use memfit::{CpuExecutor, Options, Plan, Request, Session, Training, ZooModel, plan_model};

const MIB: u64 = 1 << 20;

/// Segments are mappings of their own, so what a model held is given back when it goes, whatever the allocator keeps.
#[test]
fn pages_come_with_use_and_go_with_the_model() {
    let cpu = CpuExecutor::new(2).expect("threads");
    // Past the captured output.
    let Some(_) = resident() else {
        return writeln!(std::io::stderr(), "skipped: the system does not tell").expect("a screen");
    };
    // Some systems give huge pages unasked, of which a touch takes all.
    rustix::thread::disable_transparent_huge_pages(true).expect("it can be asked for");
    for (name, batch) in [("mlp", 64), ("resnet18", 4), ("gpt", 1)] {
        let model = ZooModel::from_name(name).expect("in the zoo");
        let training = Training::new(Optimizer::adam().update);
        let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
        let plan = plan_model(&model, &training, cpu.target(), &request).expect("a plan");
        let inputs = Batch::of(&plan, &model, 1);
        let arena = plan.arena_bytes();
        let before = resident().expect("it told before");
        let lazy = Options { growth: Growth::Lazy, ..Options::default() };
        let mut session = Session::with_options(cpu.clone(), plan.clone(), 1, lazy).expect("memory");
        // A checkpoint of the first moment needs no memory either.
        let files = [1, 2, 3].map(|n| std::env::temp_dir().join(format!("memfit-growth-{n}-{}", std::process::id())));
        session.save_weights(&files[0]).expect("a file");
        let started = resident().expect("it told before").saturating_sub(before);
        assert!(started < arena / 10, "{name}: {started} of {arena} before the first step");
        session.step(&inputs.views(), 0.01).expect("a step");
        let used = resident().expect("it told before").saturating_sub(before);
        assert!(used > arena / 2, "{name}: {used} of {arena} after a step");
        drop(session);
        let other = Session::new(cpu.clone(), plan.clone(), 1).expect("memory");
        other.save_weights(&files[1]).expect("a file");
        drop(other);
        assert!(are_same(&files[0], &files[1]), "{name}: first weights");
        loaded_weights_come_alone(name, &cpu, &plan, &inputs, &files);
        files.iter().for_each(|f| std::fs::remove_file(f).expect("it was there"));
        let left = resident().expect("it told before").saturating_sub(before);
        assert!(left < 8 * MIB, "{name}: {left} stay of {arena}");
    }
    let model = ZooModel::from_name("digits").expect("in the zoo");
    let training = Training::new(Optimizer::adam().update);
    let cycle = |seed: u64| {
        let plan = plan_model(&model, &training, cpu.target(), &Request::new(32)).expect("a plan");
        let inputs = Batch::of(&plan, &model, seed);
        let mut session = Session::new(cpu.clone(), plan, seed).expect("memory");
        session.step(&inputs.views(), 0.01).expect("a step");
    };
    (0..20).for_each(cycle);
    let before = resident().expect("it told before");
    (0..100).for_each(cycle);
    let grown = resident().expect("it told before").saturating_sub(before);
    assert!(grown < MIB, "a hundred models leave {grown} bytes behind");
    assert_eq!(cpu.device().used(), 0);
}

/// Weights of a file take their own memory before the first step, and neither that of the optimizer nor that of activations.
fn loaded_weights_come_alone(name: &str, cpu: &CpuExecutor, plan: &Plan, inputs: &Batch, files: &[PathBuf; 3]) {
    let bytes =
        |of: &dyn Fn(&StateSlot) -> bool| plan.states.iter().filter(|s| of(s)).map(|s| s.place.size).sum::<u64>();
    let (weights, slots) = (bytes(&|s| s.class != StateClass::Slot), bytes(&|s| s.class == StateClass::Slot));
    assert!(slots > weights, "{name}: adam keeps two numbers for each");
    let trained = |growth: Growth, to: &Path| {
        let before = resident().expect("it told before");
        // Another seed, so that only what is loaded can give the same weights.
        let options = Options { growth, ..Options::default() };
        let mut session = Session::with_options(cpu.clone(), plan.clone(), 2, options).expect("memory");
        session.load_weights(&files[0], Match::Exact).expect("its own file");
        let loaded = resident().expect("it told before").saturating_sub(before);
        session.step(&inputs.views(), 0.01).expect("a step");
        session.save_weights(to).expect("a file");
        loaded
    };
    let committed = trained(Growth::Commit, &files[1]);
    assert!(committed > weights + slots, "{name}: {committed} of {}", plan.arena_bytes());
    let loaded = trained(Growth::Lazy, &files[2]);
    assert!(loaded > weights / 2 && loaded < weights + slots / 4, "{name}: {loaded}, of which weights are {weights}");
    assert!(are_same(&files[1], &files[2]), "{name}: after a step");
    assert!(!are_same(&files[0], &files[1]), "{name}: a step changes weights");
}

/// Byte by byte: a file that is read whole takes memory of which the allocator keeps some, and the process is watched.
fn are_same(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|f| BufReader::new(File::open(f).expect("a file")).bytes().map(|b| b.expect("a byte")));
    a.eq(b)
}
