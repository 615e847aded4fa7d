//! What a configuration says of the step that is planned: optimizer, precision, clipping, batch and micro-batch.

use memfit::nn::optim::Optimizer;
use memfit::plan::MicroBatch;
use memfit::{Clip, Precision, Request, Training, ZooModel};

use crate::config::{RunConfig, TrainConfig};
use crate::error::{Result, RunError};
use crate::model;

/// How the model is trained: name of the optimizer, learning rate, and the rest.
pub(crate) fn training(model: &ZooModel, config: &RunConfig) -> Result<(String, f32, Training)> {
    let t = &config.train;
    let name = t.optimizer.clone().unwrap_or_else(|| "adam".into());
    let optimizer = Optimizer::from_name(&name)?;
    let update = match t.weight_decay {
        Some(decay) => optimizer.update.with_weight_decay(decay).ok_or_else(|| {
            RunError::conflict(format!("{name} has no weight decay; sgd, momentum, nesterov, adam and adamw have"))
        })?,
        None => optimizer.update,
    };
    let precision = t.precision.as_deref().unwrap_or(Precision::F32.name());
    let precision = Precision::from_name(precision).ok_or_else(|| {
        let known = Precision::ALL.map(Precision::name).join(", ");
        RunError::of_key("train", "precision", format!("\"{precision}\" is not known; there are {known}"))
    })?;
    let clip = match (t.clip_norm, t.clip_value) {
        (None, None) => Clip::None,
        (Some(norm), None) => Clip::GlobalNorm(norm),
        (None, Some(value)) => Clip::Value(value),
        (Some(_), Some(_)) => return Err(RunError::conflict("give clip_norm or clip_value, not both")),
    };
    if t.epochs.is_some() && t.steps.is_some() {
        let problem = "train.epochs and train.steps both say how long to train; leave one of them out";
        return Err(RunError::conflict(problem));
    }
    reject_unused_decay(t)?;
    let frozen = model::frozen(model, &config.model)?;
    let learning_rate = t.lr.unwrap_or(optimizer.learning_rate);
    Ok((name, learning_rate, Training { clip, frozen, precision, ..Training::new(update) }))
}

/// Samples of a batch where nobody says it.
pub(crate) const BATCH: usize = 32;

/// What the planner is asked for.
pub(crate) fn request(config: &RunConfig) -> Result<Request> {
    let mut request = Request::new(config.train.batch.unwrap_or(BATCH));
    request.micro_batch = config.train.micro_batch.as_deref().map_or(Ok(MicroBatch::Auto), parse_micro_batch)?;
    request.budget = config.memory.budget;
    Ok(request)
}

/// A key that does nothing is a mistake, or a wish that is not heard.
fn reject_unused_decay(config: &TrainConfig) -> Result<()> {
    let schedule = config.schedule.as_deref().unwrap_or("constant");
    let keys = [
        ("decay", config.decay.is_some(), &["step", "cosine"][..]),
        ("decay_every", config.decay_every.is_some(), &["step"]),
    ];
    match keys.iter().find(|(_, said, schedules)| *said && !schedules.contains(&schedule)) {
        None => Ok(()),
        Some((key, _, schedules)) => Err(RunError::conflict(format!(
            "train.{key} is for train.schedule = \"{}\", and the schedule is {schedule}; leave it out, or give that \
             schedule",
            schedules.join("\" or \"")
        ))),
    }
}

fn parse_micro_batch(text: &str) -> Result<MicroBatch> {
    Ok(match text {
        "auto" => MicroBatch::Auto,
        "off" => MicroBatch::Off,
        "allow" => MicroBatch::Allow,
        n => MicroBatch::Exactly(n.parse().map_err(|_| {
            let problem = format!("\"{n}\" is none of auto, off, allow, or a number such as 8");
            RunError::of_key("train", "micro_batch", problem)
        })?),
    })
}
