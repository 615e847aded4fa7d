//! Memory that comes when it is used and goes when it is not: one test, because it looks at the whole process.

#![cfg(target_os = "linux")]

mod common;

use common::{Batch, resident};
use memfit::exec::{Executor, Growth};
use memfit::nn::optim::Optimizer;
use memfit::plan::MicroBatch;
use memfit::{CpuExecutor, Model, Options, Request, Session, Training, plan_model};

const MIB: u64 = 1 << 20;

/// With the allocator's threshold pinned, as the command does: what is freed is given back.
#[test]
fn pages_come_with_use_and_go_with_the_model() {
    let cpu = CpuExecutor::new(2).expect("threads");
    let Some(_) = resident() else { return println!("skipped: the system does not tell") };
    for (name, batch) in [("mlp", 64), ("resnet18", 4), ("gpt", 1)] {
        let model = Model::from_name(name).expect("in the zoo");
        let training = Training::new(Optimizer::adam().update);
        let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
        let plan = plan_model(&model, &training, cpu.target(), &request).expect("a plan");
        let inputs = Batch::of(&plan, &model, 1);
        let arena = plan.arena_bytes();
        let before = resident().expect("it told before");
        let lazy = Options { growth: Growth::Lazy, ..Options::default() };
        let mut session = Session::with_options(cpu.clone(), plan.clone(), 1, lazy).expect("memory");
        // A checkpoint of the first moment needs no memory either.
        let files = [1, 2].map(|n| std::env::temp_dir().join(format!("memfit-growth-{n}-{}", std::process::id())));
        session.save_weights(&files[0]).expect("a file");
        let started = resident().expect("it told before").saturating_sub(before);
        assert!(started < arena / 10, "{name}: {started} of {arena} before the first step");
        session.step(&inputs.views(), 0.01).expect("a step");
        let used = resident().expect("it told before").saturating_sub(before);
        assert!(used > arena / 2, "{name}: {used} of {arena} after a step");
        drop(session);
        Session::new(cpu.clone(), plan, 1).expect("memory").save_weights(&files[1]).expect("a file");
        let [lazy, committed] = files.map(|f| std::fs::read(&f).and_then(|b| std::fs::remove_file(&f).map(|()| b)));
        assert!(lazy.expect("a file") == committed.expect("a file"), "{name}: first weights");
        let left = resident().expect("it told before").saturating_sub(before);
        assert!(left < 8 * MIB, "{name}: {left} stay of {arena}");
    }
    let model = Model::from_name("digits").expect("in the zoo");
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
