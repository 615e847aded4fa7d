//! memfit: deep-learning training in the memory you have.
//!
//! A model, a batch and a budget in bytes become one graph for the whole training step, every byte of which is planned
//! before the first step. This crate is the front door: it names the parts and joins a model to the planner.

pub mod calibrate;
pub mod fixes;
pub mod search;
mod subject;

pub use memfit_exec as exec;
pub use memfit_exec_cpu as cpu;
#[cfg(feature = "gpu")]
pub use memfit_exec_gpu as gpu;
pub use memfit_ir as ir;
pub use memfit_nn as nn;
pub use memfit_plan as plan;
pub use memfit_transform as transform;

pub use memfit_exec::{Clock, Engine, ExecError, Options, TensorView};
pub use memfit_exec_cpu::CpuExecutor;
pub use memfit_nn::zoo::Model;
pub use memfit_plan::{Phase, Plan, PlanError, Request};
pub use memfit_transform::{Clip, Half, Precision, Training};
pub use subject::{Subject, source_hash};

use memfit_ir::Graph;
use memfit_nn::Mode;

/// An error of building or transforming a model, as the planner passes it on.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// The programs of a zoo model for one micro-batch: a whole step where it is the batch, else accumulate and apply; and
/// evaluation of a micro-batch, so that it never needs more memory than training. Training gives the loss alone, so that
/// nothing else has to be kept until its end; evaluation gives the logits too. Both round their activations alike. Last
/// comes the checkpoint, which hands out the states.
pub fn programs(
    model: &Model,
    training: &Training,
    batch: usize,
    micro_batch: usize,
) -> Result<Vec<(Phase, Graph)>, SourceError> {
    let mut forward = model.build(micro_batch, Mode::Train)?;
    forward.graph.outputs.retain(|(_, v)| *v == forward.loss);
    let eval = model.build(micro_batch, Mode::Eval)?;
    let mut programs = if micro_batch == batch {
        vec![(Phase::Step, transform::step(&forward.graph, forward.loss, training)?)]
    } else {
        let share = micro_batch as f32 / batch as f32;
        let split = transform::split_step(&forward.graph, forward.loss, training, share)?;
        vec![(Phase::Accumulate, split.accumulate), (Phase::Apply, split.apply)]
    };
    programs.push((Phase::Eval, transform::forward_in(&eval.graph, training.precision)?));
    let checkpoint = transform::checkpoint(programs.iter().map(|(_, graph)| graph))?;
    programs.push((Phase::Checkpoint, checkpoint));
    Ok(programs)
}

/// Looks for plans of every size and speed of a zoo model on a device.
pub fn survey_model<'a>(
    model: &Model,
    training: &Training,
    target: &'a dyn plan::Target,
    request: &Request,
) -> Result<plan::Survey<'a>, PlanError> {
    plan::survey(&|micro_batch| programs(model, training, request.batch, micro_batch), target, request)
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
