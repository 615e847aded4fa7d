//! memfit: deep-learning training in the memory you have.
//!
//! A model, a batch and a budget in bytes become one graph for the whole training step, every byte of which is planned
//! before the first step. This crate is the front door: it names the parts and joins a model to the planner.

mod any_executor;
pub mod calibrate;
pub mod fixes;
pub mod search;
mod subject;

pub use memfit_data as data;
pub use memfit_exec as exec;
pub use memfit_exec_cpu as cpu;
#[cfg(feature = "gpu")]
pub use memfit_exec_gpu as gpu;
pub use memfit_ir as ir;
pub use memfit_nn as nn;
pub use memfit_plan as plan;
pub use memfit_train as train;
pub use memfit_transform as transform;

pub use any_executor::{AnyExecutor, AnyKernel, AnyMemory};
pub use memfit_exec::{Clock, Engine, ExecError, Options, TensorView};
pub use memfit_exec_cpu::CpuExecutor;
pub use memfit_nn::zoo::Model;
pub use memfit_plan::{Phase, Plan, PlanError, Request};
pub use memfit_train::{Session, SourceError};
pub use memfit_transform::{Clip, Half, Precision, Training};
pub use subject::{Subject, source_hash};

use memfit_ir::Graph;

/// The programs of a zoo model for one micro-batch: see [`train::programs`].
pub fn programs(
    model: &Model,
    training: &Training,
    batch: usize,
    micro_batch: usize,
) -> Result<Vec<(Phase, Graph)>, SourceError> {
    train::programs(&|rows, mode| Ok(model.build(rows, mode)?), training, batch, micro_batch)
}

/// Looks for plans of every size and speed of a zoo model on a device.
pub fn survey_model<'a>(
    model: &'a Model,
    training: &'a Training,
    target: &'a dyn plan::Target,
    request: &'a Request,
) -> Result<plan::Survey<'a>, PlanError> {
    Subject { name: "", model, labels: Default::default(), training, target, request }.survey()
}

/// Plans a zoo model for a device.
pub fn plan_model(
    model: &Model,
    training: &Training,
    target: &dyn plan::Target,
    request: &Request,
) -> Result<Plan, PlanError> {
    survey_model(model, training, target, request)?.plan(request.budget)
}

/// The example of the README, kept true by the compiler.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
