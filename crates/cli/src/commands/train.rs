//! `memfit train`: trains on the built-in digits under the plan.

use std::time::Instant;

use anyhow::Result;
use memfit::exec::weights::Match;
use memfit::ir::op::StateClass;
use memfit::ir::philox;
use memfit::plan::bytes::Bytes;
use memfit::{Clock, CpuExecutor, Engine, Model, Options, Phase, TensorView};
use serde_json::json;

use crate::digits::{self, Digits};
use crate::failure::{diverged, usage};
use crate::planning;
use crate::run::{Run, TrainRun, check_writable};
use crate::say::say;

const SHAPE: [usize; 3] = [8, 8, 1];

pub fn train(training: &TrainRun) -> Result<()> {
    let run = &training.run;
    if run.name != "digits" {
        return Err(usage(format!(
            "there is no data to train {} on yet: training uses the built-in digits; `memfit plan --model {}` plans it",
            run.name, run.name
        )));
    }
    let (train_set, test_set) = digits::load();
    check(training, &train_set)?;
    let executor = CpuExecutor::new(run.threads)?;
    let planned = match &training.plan {
        Some(path) => planning::load(run, &executor, path)?,
        None => planning::plan(run, &executor)?,
    };
    super::plan::print(run, &planned);
    let mut engine = Engine::new(executor, planned.plan, Options::default())?;
    engine.init(run.seed)?;
    if let Some(path) = &training.weights {
        engine.load(path, Match::Exact, |s| s.class != StateClass::Slot)?;
    }
    let mut trainer = Trainer::new(training, engine);
    for epoch in 0..training.epochs {
        if !trainer.epoch(&train_set, epoch)? {
            break;
        }
        trainer.report(epoch, &test_set)?;
    }
    let accuracy = trainer.accuracy(&test_set)?;
    let arena = trainer.engine.plan().arena_bytes();
    if let Some(path) = &training.out {
        trainer.engine.save(path, |s| s.class != StateClass::Slot)?;
    }
    if run.json {
        say!("{}", json!({ "event": "done", "test_accuracy": accuracy, "arena_bytes": arena, "steps": trainer.step }));
    } else {
        say!(
            "{} steps in {:.1} s: {:.2} % of {} held-out digits right, in {}",
            trainer.step,
            trainer.started.elapsed().as_secs_f64(),
            accuracy * 100.0,
            test_set.len(),
            Bytes(arena)
        );
        if let Some(path) = &training.out {
            say!("weights: {}", path.display());
        }
    }
    Ok(())
}

/// What would only come out after the memory is taken, or after the training.
fn check(training: &TrainRun, data: &Digits) -> Result<()> {
    let run = &training.run;
    if run.request.batch > data.len() {
        return Err(usage(format!("--batch {} is larger than the {} digits", run.request.batch, data.len())));
    }
    if run.model != Model::from_name("digits")? {
        return Err(usage("the built-in digits are 8x8x1 with 10 classes; leave out --input and --classes"));
    }
    if let Some(path) = &training.out {
        check_writable("--out", path)?;
    }
    Ok(())
}

struct Trainer<'a> {
    run: &'a Run,
    /// Stop after so many.
    steps: Option<usize>,
    engine: Engine<CpuExecutor>,
    images: Vec<f32>,
    labels: Vec<i32>,
    logits: Vec<f32>,
    step: u32,
    /// Sum of losses and number of steps of this epoch.
    losses: (f64, usize),
    started: Instant,
}

impl<'a> Trainer<'a> {
    fn new(training: &'a TrainRun, engine: Engine<CpuExecutor>) -> Self {
        let run = &training.run;
        let batch = run.request.batch;
        Trainer {
            run,
            steps: training.steps,
            images: vec![0.0; batch * 64],
            labels: vec![0; batch],
            logits: vec![0.0; engine.plan().micro_batch * 10],
            engine,
            step: 0,
            losses: (0.0, 0),
            started: Instant::now(),
        }
    }

    /// One pass over the data in a fresh order; whether there is more to do.
    fn epoch(&mut self, data: &Digits, epoch: usize) -> Result<bool> {
        let mut order: Vec<usize> = (0..data.len()).collect();
        let keys: Vec<f32> = philox::uniform(self.run.seed, &format!("shuffle/{epoch}"), data.len()).collect();
        order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]).then(a.cmp(&b)));
        self.losses = (0.0, 0);
        for picked in order.chunks_exact(self.run.request.batch) {
            if self.steps.is_some_and(|limit| self.step as usize >= limit) {
                return Ok(false);
            }
            data.batch(picked, &mut self.images, &mut self.labels);
            let (x, y) = shapes(picked.len());
            let inputs = [("x", TensorView::f32(&x, &self.images)), ("y", TensorView::i32(&y, &self.labels))];
            let start = Instant::now();
            let clock = Clock { step: self.step, seed: self.run.seed };
            self.engine.step(&inputs, self.run.learning_rate, clock)?;
            let loss = self.engine.loss()?;
            if !loss.is_finite() {
                let step = self.step;
                return Err(diverged(format!(
                    "the loss is {loss} at step {step}; try a smaller --lr than {}",
                    self.run.learning_rate
                )));
            }
            if self.run.json {
                let ms = start.elapsed().as_secs_f64() * 1e3;
                let live = self.engine.plan().peak_bytes;
                say!(
                    "{}",
                    json!({ "event": "step", "step": self.step, "loss": loss, "ms": ms, "live_peak_bytes": live })
                );
            }
            self.losses = (self.losses.0 + loss as f64, self.losses.1 + 1);
            self.step += 1;
        }
        Ok(true)
    }

    fn report(&mut self, epoch: usize, test: &Digits) -> Result<()> {
        let accuracy = self.accuracy(test)?;
        let loss = self.losses.0 / self.losses.1.max(1) as f64;
        if self.run.json {
            say!("{}", json!({ "event": "epoch", "epoch": epoch, "loss": loss, "test_accuracy": accuracy }));
        } else {
            say!("epoch {:>3}  loss {loss:.4}  test accuracy {:.2} %", epoch + 1, accuracy * 100.0);
        }
        Ok(())
    }

    /// The share of a set that the model gets right. A last batch that is not full is filled up with its first sample.
    fn accuracy(&mut self, data: &Digits) -> Result<f64> {
        // Evaluation runs a micro-batch at a time.
        let batch = self.engine.plan().micro_batch;
        let mut right = 0;
        let all: Vec<usize> = (0..data.len()).collect();
        for picked in all.chunks(batch) {
            let mut filled = picked.to_vec();
            filled.resize(batch, picked[0]);
            data.batch(&filled, &mut self.images, &mut self.labels);
            let (x, y) = shapes(batch);
            let (images, labels) = (&self.images[..batch * 64], &self.labels[..batch]);
            let inputs = [("x", TensorView::f32(&x, images)), ("y", TensorView::i32(&y, labels))];
            self.engine.run(Phase::Eval, &inputs, 0.0, Clock::default())?;
            self.engine.read_output(Phase::Eval, "logits", bytemuck::cast_slice_mut(&mut self.logits))?;
            let rows = self.logits.chunks_exact(10).zip(&self.labels).take(picked.len());
            right += rows.filter(|(row, label)| best(row) == **label as usize).count();
        }
        Ok(right as f64 / data.len() as f64)
    }
}

/// The shapes of a batch of images and labels.
fn shapes(batch: usize) -> ([usize; 4], [usize; 1]) {
    ([batch, SHAPE[0], SHAPE[1], SHAPE[2]], [batch])
}

fn best(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
}
