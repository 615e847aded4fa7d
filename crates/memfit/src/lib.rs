//! memfit: deep-learning training in the memory you have.
//!
//! A model, a batch and a budget in bytes become one graph for the whole training step, every byte of which is planned
//! before the first step. This crate is the front door: it names the parts and joins a model to the planner.

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

pub use memfit_exec::{Clock, Engine, ExecError, Options, TensorView};
pub use memfit_exec_cpu::CpuExecutor;
pub use memfit_nn::{Model, ZooModel};
pub use memfit_plan::{Phase, Plan, PlanError, Request};
pub use memfit_train::{Session, SourceError, programs};
pub use memfit_transform::{Clip, Half, Precision, Training};
pub use subject::{Subject, source_hash};

/// Looks for plans of every size and speed of a model on a device.
pub fn survey_model<'a>(
    model: &'a dyn Model,
    training: &'a Training,
    target: &'a dyn plan::Target,
    request: &'a Request,
) -> Result<plan::Survey<'a>, PlanError> {
    Subject { model, training, target, request }.survey()
}

/// Plans a model for a device.
pub fn plan_model(
    model: &dyn Model,
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
