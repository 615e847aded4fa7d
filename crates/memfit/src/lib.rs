//! memfit: deep-learning training in the memory you have.
//!
//! You give a model, a batch size and a budget in bytes. The whole training step (forward, loss, backward, optimizer,
//! input) becomes one graph, every byte of which is planned before the first step: what does not fit is refused at
//! once, with what would make it fit. Saving or recomputing activations, micro-batches and the order of execution are
//! the planner's job, and change no bit of the weights.
//!
//! # Plan, train, evaluate, resume
//!
//! ```
//! use memfit::data::{BytePool, Dataset, LoadOptions, Remainder, Tensors};
//! use memfit::exec::Executor;
//! use memfit::ir::TensorType;
//! use memfit::nn::Optimizer;
//! use memfit::train::{Datasets, Event, FitOptions, Flow, Metric, Period, RunDir, CheckpointKind, evaluate, fit};
//! use memfit::{CpuExecutor, Model, Request, Session, Training, ZooModel, plan_model};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Plan: a model, how it is trained, on what, and in how much. 2 MiB hold weights, Adam's slots, activations, all.
//! let model = ZooModel::from_name("digits")?;
//! let training = Training::new(Optimizer::adam().update);
//! let request = Request { budget: Some(2 << 20), ..Request::new(16) };
//! let cpu = CpuExecutor::new(2)?;
//! let plan = plan_model(&model, &training, cpu.target(), &request)?;
//! assert!(plan.arena_bytes() <= 2 << 20);
//!
//! // Data: the verbs of tf.data, drawn from a pool of so many bytes. Fields have the names of the model's inputs.
//! let images = TensorType::f32([64, 8, 8, 1]);
//! let pixels: Vec<f32> = (0..64 * 64).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
//! let labels: Vec<i32> = (0..64).map(|i| i % 10).collect();
//! let samples = Tensors::new().with("x", images, pixels)?.with("y", TensorType::i32([64]), labels)?;
//! let samples = Dataset::from_tensors(samples)?;
//! let data = Datasets {
//!     train: samples.clone().shuffle(64).batch(16, Remainder::Drop),
//!     test: Some(samples.clone().batch(32, Remainder::Keep)),
//! };
//!
//! // Train: the run's folder has its checkpoints; the observer is the callback, and may stop it.
//! # let folder = std::env::temp_dir().join(format!("memfit-front-page-{}", std::process::id()));
//! let pool = BytePool::new(1 << 20);
//! let options = |run, progress| -> Result<FitOptions, memfit::nn::Error> {
//!     let base = FitOptions::new(model.heads()?, Period::Epochs(3), 1e-3, pool.clone());
//!     Ok(FitOptions { monitor: Metric::Accuracy.into(), run: Some(run), progress, ..base })
//! };
//! let run = RunDir::create(&folder, &plan, &Default::default())?;
//! let mut session = Session::new(cpu, plan, 1)?;
//! fit(&mut session, &data, &options(run, Default::default())?, &mut |event| match event {
//!     Event::Step { step: 5, .. } => Flow::Stop,
//!     _ => Flow::Continue,
//! })?;
//! assert_eq!(session.steps(), 6);
//!
//! // Resume: the same plan, the next sample, and in the end the same bits as if nothing had been.
//! let (run, saved) = RunDir::resume(&folder, CheckpointKind::Last)?;
//! let mut session = Session::resume(CpuExecutor::new(2)?, &saved)?;
//! let outcome = fit(&mut session, &data, &options(run, saved.checkpoint.progress)?, &mut |_| Flow::Continue)?;
//! assert_eq!(outcome.steps, 12);
//!
//! // Evaluate: the loss and the metrics of each of the model's heads, on any number of rows.
//! let test = samples.batch(10, Remainder::Keep);
//! let scores = evaluate(&mut session, &test, &model.heads()?, LoadOptions::new(pool.clone()))?.scores;
//! assert_eq!(scores.count, 64);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where things are
//!
//! | to do this | look here |
//! |---|---|
//! | name a model of the zoo, set its classes and input | [`ZooModel`], [`nn::zoo`] |
//! | write a model of one's own, with several inputs and outputs | [`Model`], [`nn::Forward`], [`nn::Head`], [`nn::layers`] |
//! | choose an optimizer, clip gradients, freeze layers, mix precisions | [`nn::Optimizer`], [`Training`] |
//! | plan, see what is possible, find the largest batch | [`plan_model`], [`survey_model`], [`search`] |
//! | learn what would make a refused run fit | [`fixes`] |
//! | read, shuffle, batch, augment and cache data | [`data`] |
//! | train to the end, with schedules, checkpoints and early stopping | [`train::fit`] |
//! | write the loop oneself | [`Session::step`] |
//! | see what a step does with memory and time | [`profile`], [`exec::Recorder`] |
//! | let several models share a device | [`plan::plan_together`], [`train::Ticket`] |
//!
//! Examples that run are in the repository's `examples/`.

#![warn(missing_docs)]

mod any_executor;
pub mod calibrate;
pub mod fixes;
pub mod instead;
pub mod replicas;
pub mod search;
pub mod simulate;
mod subject;
pub mod synthetic;

pub use memfit_data as data;
pub use memfit_exec as exec;
pub use memfit_exec_cpu as cpu;
#[cfg(feature = "gpu")]
pub use memfit_exec_gpu as gpu;
pub use memfit_ir as ir;
pub use memfit_nn as nn;
pub use memfit_plan as plan;
pub use memfit_profile as profile;
pub use memfit_train as train;
pub use memfit_transform as transform;

pub use any_executor::{AnyCaptured, AnyExecutor, AnyKernel, AnyMemory};
pub use memfit_exec::{Clock, Engine, ExecError, Options, TensorView};
pub use memfit_exec_cpu::CpuExecutor;
pub use memfit_nn::{Model, ZooModel};
pub use memfit_plan::{Phase, Plan, PlanError, Request};
pub use memfit_train::{Session, SourceError, programs};
pub use memfit_transform::{Clip, Half, Precision, Training};
pub use subject::{Subject, source_hash};

/// Looks for plans of every size and speed of a model on a device: what [`plan::Survey::plan`] then chooses from, for any
/// budget.
pub fn survey_model<'a>(
    model: &'a dyn Model,
    training: &'a Training,
    target: &'a dyn plan::Target,
    request: &'a Request,
) -> Result<plan::Survey<'a>, PlanError> {
    Subject { model, training, target, request }.survey()
}

/// Plans a model for a device: the fastest plan within the request's budget, or a refusal that says by how much it does
/// not fit. [`fixes::plan_or_fixes`] also says what would.
///
/// ```
/// use memfit::exec::Executor;
/// use memfit::nn::{Optimizer, zoo::Resnet};
/// use memfit::{CpuExecutor, PlanError, Request, Training, plan_model};
///
/// let cpu = CpuExecutor::new(1)?;
/// let model = Resnet::resnet18().cifar();
/// let training = Training::new(Optimizer::momentum().update);
/// let free = plan_model(&model, &training, cpu.target(), &Request::new(8))?;
/// let tight = Request { budget: Some(free.arena_bytes() - 1), ..Request::new(8) };
/// let smaller = plan_model(&model, &training, cpu.target(), &tight)?;
/// assert!(smaller.arena_bytes() < free.arena_bytes());
/// let none = Request { budget: Some(1 << 20), ..Request::new(8) };
/// assert!(matches!(plan_model(&model, &training, cpu.target(), &none), Err(PlanError::Refused(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
