//! What the tests share: small models, planned for the CPU.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::path::PathBuf;

use memfit_exec::Executor;
use memfit_exec_cpu::CpuExecutor;
use memfit_nn::optim::Optimizer;
use memfit_nn::{Forward, Mode, Model};
use memfit_plan::{MicroBatch, Plan, Request};
use memfit_train::{Session, SourceError, programs};
use memfit_transform::{Clip, Precision, Training};

pub type Build<'a> = &'a dyn Fn(usize, Mode) -> Result<Forward, SourceError>;

pub fn cpu() -> CpuExecutor {
    CpuExecutor::new(1).unwrap()
}

pub fn training() -> Training {
    Training {
        update: Optimizer::adam().update,
        clip: Clip::None,
        frozen: Default::default(),
        precision: Precision::F32,
    }
}

/// The convnet of the zoo for images of 8×8: dropout, batch norm.
pub fn digits() -> Build<'static> {
    &|batch, mode| Ok(Model::from_name("digits")?.build(batch, mode)?)
}

pub fn plan(build: Build, training: &Training, batch: usize, micro_batch: Option<usize>) -> Plan {
    let micro_batch = micro_batch.map_or(MicroBatch::Exactly(batch), MicroBatch::Exactly);
    let request = Request { micro_batch, ..Request::new(batch) };
    let source = |rows: usize| programs(build, training, batch, rows);
    memfit_plan::plan(&source, cpu().target(), &request).unwrap()
}

pub fn session(build: Build, batch: usize, micro_batch: Option<usize>, seed: u64) -> Session<CpuExecutor> {
    Session::new(cpu(), plan(build, &training(), batch, micro_batch), seed).unwrap()
}

/// Every state that outlives a step.
pub fn bits(session: &Session<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    session.weights().map(|s| (s.name.clone(), session.weight(&s.name).unwrap())).collect()
}

/// A path of its own for each test.
pub fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memfit-train-{}-{name}", std::process::id()))
}
