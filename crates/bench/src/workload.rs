//! The workloads of the benchmarks: zoo models with a batch and an optimizer, and steps of them on synthetic data. Prints
//! nothing and judges nothing.

use std::time::Duration;

use memfit::exec::Executor;
use memfit::ir::op::{CLOCK, LEARNING_RATE};
use memfit::ir::{DType, TensorType, philox};
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Stem;
use memfit::plan::{Launch, MicroBatch, Program};
use memfit::*;

use crate::Failure;

/// A model, its batch and its optimizer.
pub struct Workload {
    pub name: &'static str,
    pub batch: usize,
    pub optimizer: &'static str,
}

pub const WORKLOADS: [Workload; 9] = [
    Workload { name: "mlp", batch: 256, optimizer: "adam" },
    Workload { name: "resnet18_cifar", batch: 128, optimizer: "momentum" },
    Workload { name: "resnet18_64", batch: 32, optimizer: "momentum" },
    Workload { name: "resnet50", batch: 16, optimizer: "momentum" },
    Workload { name: "mobilenet_v3_large", batch: 16, optimizer: "adam" },
    Workload { name: "unet", batch: 4, optimizer: "adam" },
    Workload { name: "gpt", batch: 8, optimizer: "adamw" },
    Workload { name: "vit_b16", batch: 8, optimizer: "adamw" },
    Workload { name: "resnet101", batch: 8, optimizer: "momentum" },
];

impl Workload {
    pub fn from_name(name: &str) -> Result<&'static Workload, Failure> {
        let found = WORKLOADS.iter().find(|w| w.name == name);
        Ok(found.ok_or_else(|| format!("there is no workload \"{name}\""))?)
    }

    pub fn model(&self) -> Result<ZooModel, Failure> {
        Ok(match self.name {
            "resnet18_cifar" => {
                ZooModel::from_name("resnet18")?.with_stem(Stem::Cifar)?.with_input(&[32, 32, 3])?.with_classes(10)?
            }
            "resnet18_64" => ZooModel::from_name("resnet18")?.with_input(&[64, 64, 3])?,
            other => ZooModel::from_name(other)?,
        })
    }

    pub fn training(&self) -> Result<Training, Failure> {
        Ok(Training::new(Optimizer::from_name(self.optimizer)?.update))
    }
}

/// A planned workload with its memory and a batch.
pub struct Runner<E: Executor = CpuExecutor> {
    pub engine: Engine<E>,
    inputs: Vec<(String, TensorType, Vec<u8>)>,
    step: u32,
}

impl<E: Executor> Runner<E> {
    /// On the fastest plan.
    pub fn fastest(workload: &Workload, executor: E) -> Result<Runner<E>, Failure> {
        let model = workload.model()?;
        Runner::fastest_of(&model, model.classes(), &workload.training()?, workload.batch, executor)
    }

    /// The same of any model.
    pub fn fastest_of(
        model: &dyn Model,
        classes: usize,
        training: &Training,
        batch: usize,
        executor: E,
    ) -> Result<Runner<E>, Failure> {
        let request = Request { micro_batch: MicroBatch::Off, ..Request::new(batch) };
        let plan = plan_model(model, training, executor.target(), &request)?;
        Runner::new(executor, plan, classes)
    }

    /// In memory of its own. Ids and labels are drawn from 0 up to `classes`.
    pub fn new(executor: E, plan: Plan, classes: usize) -> Result<Runner<E>, Failure> {
        Runner::start(Engine::new(executor, plan, Options::default())?, classes)
    }

    /// In the memory that an engine has.
    pub fn start(mut engine: Engine<E>, classes: usize) -> Result<Runner<E>, Failure> {
        let graph = &engine.plan().programs[0].graph;
        let data = graph.inputs().filter(|(n, _)| *n != CLOCK && *n != LEARNING_RATE);
        let inputs =
            data.map(|(n, v)| (n.to_string(), graph.ty(v).clone(), synthetic(n, graph.ty(v), classes))).collect();
        engine.init(1)?;
        Ok(Runner { engine, inputs, step: 0 })
    }

    pub fn step(&mut self) -> Result<(), Failure> {
        self.observed_step(|_, _, _| {})
    }

    /// Tells the time of each group.
    pub fn observed_step(&mut self, observe: impl FnMut(&Program, &Launch, Duration)) -> Result<(), Failure> {
        let inputs: Vec<(&str, TensorView)> = self
            .inputs
            .iter()
            .map(|(n, t, b)| (n.as_str(), TensorView { dtype: t.dtype, shape: &t.shape, bytes: b }))
            .collect();
        self.engine.run_observed(Phase::Step, &inputs, 0.001, Clock { step: self.step, seed: 1 }, observe)?;
        self.step += 1;
        Ok(())
    }
}

fn synthetic(name: &str, ty: &TensorType, classes: usize) -> Vec<u8> {
    let n = ty.elements();
    match (ty.dtype, name) {
        // Masks.
        (DType::F32, "y") => philox::uniform(1, name, n).flat_map(|x| f32::from(x > 0.0).to_le_bytes()).collect(),
        (DType::F32, _) => philox::normal(1, name, n).flat_map(|x| x.to_le_bytes()).collect(),
        _ => {
            let id = |x: f32| ((x + 1.0) / 2.0 * classes as f32).min(classes as f32 - 1.0) as i32;
            philox::uniform(1, name, n).flat_map(|x| id(x).to_le_bytes()).collect()
        }
    }
}
