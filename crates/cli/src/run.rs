//! A validated run: every name known, every number in range.

use std::path::PathBuf;

use anyhow::{Context, Result};
use memfit::nn::optim::Optimizer;
use memfit::plan::MicroBatch;
use memfit::plan::Target;
use memfit::plan::bytes;
use memfit::{Clip, Model, Precision, Request, Subject, Training};

use crate::args::{Overrides, TrainArgs};
use crate::failure::usage;

pub struct Run {
    pub name: String,
    pub model: Model,
    pub training: Training,
    pub request: Request,
    pub learning_rate: f32,
    pub threads: usize,
    pub seed: u64,
    pub json: bool,
}

/// What a training needs besides.
pub struct TrainRun {
    pub run: Run,
    pub epochs: usize,
    pub steps: Option<usize>,
    pub out: Option<PathBuf>,
    pub weights: Option<PathBuf>,
}

impl TrainRun {
    pub fn new(args: TrainArgs, json: bool) -> Result<TrainRun> {
        Ok(TrainRun {
            run: Run::new(args.overrides, json)?,
            epochs: args.epochs.unwrap_or(20),
            steps: args.steps,
            out: args.out,
            weights: args.weights,
        })
    }
}

impl Run {
    pub fn new(o: Overrides, json: bool) -> Result<Run> {
        let name = o.model.unwrap_or_else(|| "digits".into());
        let mut model = Model::from_name(&name).map_err(usage)?;
        if let Some(input) = &o.input {
            model = model.with_input(&parse_input(input)?).map_err(usage)?;
        }
        if let Some(classes) = o.classes {
            model = model.with_classes(classes).map_err(usage)?;
        }
        let optimizer = Optimizer::from_name(o.optimizer.as_deref().unwrap_or("adam")).map_err(usage)?;
        let learning_rate = o.lr.unwrap_or(optimizer.learning_rate);
        if !(learning_rate.is_finite() && learning_rate > 0.0) {
            return Err(usage(format!("--lr must be a positive number, but is {learning_rate}")));
        }
        let precision = o.precision.as_deref().unwrap_or(Precision::F32.name());
        let Some(precision) = Precision::from_name(precision) else {
            let known = Precision::ALL.map(Precision::name).join(", ");
            return Err(usage(format!("--precision \"{precision}\" is not known; there are {known}")));
        };
        let mut request = Request::new(o.batch.unwrap_or(32));
        if request.batch == 0 {
            return Err(usage("--batch must be at least 1"));
        }
        request.micro_batch = o.micro_batch.as_deref().map_or(Ok(MicroBatch::Auto), parse_micro_batch)?;
        if let Some(budget) = &o.budget {
            request.budget = Some(bytes::parse(budget).map_err(usage).context("--budget")?.0);
        }
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = o.threads.unwrap_or(cores);
        if !(1..=1024).contains(&threads) {
            return Err(usage(format!("--threads must be between 1 and 1024, but is {threads}")));
        }
        Ok(Run {
            name,
            model,
            training: Training { update: optimizer.update, clip: Clip::None, frozen: Default::default(), precision },
            request,
            learning_rate,
            threads,
            seed: o.seed.unwrap_or(1),
            json,
        })
    }
}

impl Run {
    /// What the planner is asked about.
    pub fn subject<'a>(&'a self, target: &'a dyn Target) -> Subject<'a> {
        Subject { name: &self.name, model: &self.model, training: &self.training, target, request: &self.request }
    }
}

fn parse_input(text: &str) -> Result<Vec<usize>> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(|s| s.trim().parse::<usize>()).collect();
    sizes.map_err(|_| usage(format!("--input \"{text}\" is not a size; write it like 224x224x3")))
}

fn parse_micro_batch(text: &str) -> Result<MicroBatch> {
    Ok(match text {
        "auto" => MicroBatch::Auto,
        "off" => MicroBatch::Off,
        "allow" => MicroBatch::Allow,
        n => {
            MicroBatch::Exactly(n.parse().map_err(|_| {
                usage(format!("--micro-batch \"{n}\" is none of auto, off, allow, or a number such as 8"))
            })?)
        }
    })
}
