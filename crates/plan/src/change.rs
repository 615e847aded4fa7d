//! What would make a refused request fit, as facts: what is changed, what follows from it, and the plan that came out.

use std::fmt;

use memfit_transform::{BatchDependence, Half, Precision, Shard};

use crate::bytes::Bytes;
use crate::request::MicroBatch;
use crate::types::Plan;

/// One thing that is asked for differently.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Bytes for all that is taken of the device.
    Budget(u64),
    /// Samples of a step.
    Batch(usize),
    MicroBatch(MicroBatch),
    Precision(Precision),
    /// What each replica has a part of.
    Shard(Shard),
    /// Another model, by its name.
    Model(String),
    /// What a convnet's channels are multiplied by, or the channels of a transformer.
    Width(f32),
    /// Units of the hidden layers.
    Hidden(Vec<usize>),
    /// Height and width of the convolutions.
    Kernel(usize),
    /// The shape of a sample.
    Input(Vec<usize>),
    /// Height and width that pictures are resized to.
    ImageSize([usize; 2]),
    /// Tokens in a sample.
    Sequence(usize),
    /// Other limits, in bytes, for the logical devices that the device is split into.
    Split(Vec<u64>),
    /// Bytes for the whole process, where it was said how many.
    Total(u64),
    /// The same where the system says it.
    ProcessLimit(u64),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Budget(bytes) => write!(f, "a budget of {}", Bytes(*bytes)),
            Change::Batch(samples) => write!(f, "a batch of {samples}"),
            Change::MicroBatch(MicroBatch::Auto) => f.write_str("micro-batches where they change only rounding"),
            Change::MicroBatch(MicroBatch::Off) => f.write_str("no micro-batches"),
            Change::MicroBatch(MicroBatch::Exactly(samples)) => write!(f, "micro-batches of {samples}"),
            Change::MicroBatch(MicroBatch::Allow) => f.write_str("micro-batches of any size"),
            Change::Precision(precision) => write!(f, "{} precision", precision.name()),
            Change::Shard(Shard::None) => f.write_str("all states on every replica"),
            Change::Shard(Shard::Optimizer) => f.write_str("the optimizer's states shared out among the replicas"),
            Change::Model(name) => write!(f, "the model {name}"),
            Change::Width(width) => write!(f, "a width of {width}"),
            Change::Hidden(units) => write!(f, "hidden layers of {units:?}"),
            Change::Kernel(size) => write!(f, "kernels of {size}x{size}"),
            Change::Input(shape) => {
                let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
                write!(f, "an input of {}", shape.join("x"))
            }
            Change::ImageSize([height, width]) => write!(f, "pictures of {height}x{width}"),
            Change::Sequence(tokens) => write!(f, "samples of {tokens} tokens"),
            Change::Split(limits) => {
                let limits: Vec<String> = limits.iter().map(|&limit| Bytes(limit).to_string()).collect();
                write!(f, "logical devices of {}", limits.join(", "))
            }
            Change::Total(bytes) => write!(f, "a total of {}", Bytes(*bytes)),
            Change::ProcessLimit(bytes) => write!(f, "a limit of {} for the process", Bytes(*bytes)),
        }
    }
}

/// What a change does to the result of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Batch statistics then come from so many samples.
    BatchStatistics {
        samples: usize,
    },
    /// Sums over the batch round in another order.
    OnlyRounding,
    /// The sums of a lane are then cut into leaves of so many samples, by every replica of the run; with batch statistics, these
    /// come from a leaf too.
    Leaves {
        samples: usize,
        has_statistics: bool,
    },
    /// Activations are stored in 16 bits.
    StoredIn(Half),
    SmallerModel,
    /// The same layers with fewer channels or units.
    NarrowerModel,
    /// The same layers with smaller kernels.
    SmallerKernels,
    /// A model of another family.
    OtherModel,
    /// Samples have less detail, or less context.
    SmallerInput,
    /// Something in the model looks at several samples of a batch at once: what, in words.
    MayChange(String),
}

impl Effect {
    /// Of computing in micro-batches of so many samples, where a sample's result depends on the rest of its batch by
    /// `dependence`.
    pub fn of_micro_batches(samples: usize, dependence: Option<&BatchDependence>) -> Effect {
        match dependence {
            None => Effect::OnlyRounding,
            Some(BatchDependence::BatchStatistics { .. }) => Effect::BatchStatistics { samples },
            Some(other @ (BatchDependence::Mixed { .. } | BatchDependence::NoBatchAxis { .. })) => {
                Effect::MayChange(other.to_string())
            }
        }
    }

    /// The same where sums are cut into lanes: what was the same bits for every number of replicas is so again, and others.
    pub fn of_leaves(samples: usize, dependence: Option<&BatchDependence>) -> Effect {
        match Effect::of_micro_batches(samples, dependence) {
            Effect::MayChange(why) => Effect::MayChange(why),
            effect => Effect::Leaves { samples, has_statistics: matches!(effect, Effect::BatchStatistics { .. }) },
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::BatchStatistics { samples } => {
                let plural = if *samples == 1 { "" } else { "s" };
                write!(f, "batch statistics then come from {samples} sample{plural}")
            }
            Effect::Leaves { samples, has_statistics } => {
                let statistics = if *has_statistics { ", and so do batch statistics" } else { "" };
                let plural = if *samples == 1 { "" } else { "s" };
                write!(f, "sums of all replicas then come from leaves of {samples} sample{plural}{statistics}")
            }
            Effect::OnlyRounding => f.write_str("only the rounding of the sum differs"),
            Effect::StoredIn(Half::Bf16) => f.write_str("activations are stored in bf16"),
            Effect::StoredIn(Half::F16) => f.write_str("activations are stored in f16"),
            Effect::SmallerModel => f.write_str("a smaller model"),
            Effect::NarrowerModel => f.write_str("a narrower model: other weights"),
            Effect::SmallerKernels => f.write_str("a model with smaller kernels: other weights"),
            Effect::OtherModel => f.write_str("another family of models: other layers, other weights"),
            Effect::SmallerInput => f.write_str("smaller samples: less detail, or less context"),
            Effect::MayChange(why) => write!(f, "may change the result: {why}"),
        }
    }
}

/// Something that would make it fit; each was planned, none is guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// All of them together.
    pub changes: Vec<Change>,
    /// What else changes by it.
    pub effect: Option<Effect>,
    pub arena_bytes: u64,
    /// Beside the arena.
    pub staging_bytes: u64,
    /// Predicted, of one step.
    pub seconds: f64,
    /// Predicted, of one sample: what fixes are ranked by.
    pub seconds_per_sample: f64,
}

impl Fix {
    /// Of a plan that fits.
    pub fn new(changes: Vec<Change>, effect: Option<Effect>, plan: &Plan) -> Fix {
        Fix {
            changes,
            effect,
            arena_bytes: plan.arena_bytes(),
            staging_bytes: plan.staging_bytes,
            seconds: plan.predicted_step_seconds,
            seconds_per_sample: plan.predicted_step_seconds / plan.batch as f64,
        }
    }

    /// Whether it trains another model than was asked for.
    pub fn is_other_model(&self) -> bool {
        let of_model = |effect: &Effect| match effect {
            Effect::SmallerModel | Effect::NarrowerModel | Effect::SmallerKernels | Effect::OtherModel => true,
            Effect::BatchStatistics { .. }
            | Effect::OnlyRounding
            | Effect::Leaves { .. }
            | Effect::StoredIn(_)
            | Effect::SmallerInput
            | Effect::MayChange(_) => false,
        };
        self.effect.as_ref().is_some_and(of_model)
    }

    /// All that it takes of the device.
    pub fn device_bytes(&self) -> u64 {
        self.arena_bytes + self.staging_bytes
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(Change::to_string).collect();
        let (bytes, ms) = (Bytes(self.device_bytes()), self.seconds * 1e3);
        write!(f, "{}: {bytes}, {ms:.1} ms a step", changes.join(" and "))?;
        self.effect.iter().try_for_each(|effect| write!(f, " ({effect})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_reads_without_a_command_line() {
        let statistics = BatchDependence::BatchStatistics { op: "batch_stats", scope: "a".into() };
        let fix = |changes: &[Change], effect: Option<Effect>| Fix {
            changes: changes.to_vec(),
            effect,
            arena_bytes: 3 << 29,
            staging_bytes: 0,
            seconds: 0.0123,
            seconds_per_sample: 0.001,
        };
        for (fix, expected) in [
            (
                fix(&[Change::Batch(48), Change::MicroBatch(MicroBatch::Off)], None),
                "a batch of 48 and no micro-batches: 1.50 GiB, 12.3 ms a step",
            ),
            (
                fix(
                    &[Change::MicroBatch(MicroBatch::Exactly(1))],
                    Some(Effect::of_micro_batches(1, Some(&statistics))),
                ),
                "micro-batches of 1: 1.50 GiB, 12.3 ms a step (batch statistics then come from 1 sample)",
            ),
            (
                fix(&[Change::Precision(Precision::Mixed(Half::Bf16))], Some(Effect::StoredIn(Half::Bf16))),
                "mixed precision: 1.50 GiB, 12.3 ms a step (activations are stored in bf16)",
            ),
            (
                fix(&[Change::Shard(Shard::Optimizer)], None),
                "the optimizer's states shared out among the replicas: 1.50 GiB, 12.3 ms a step",
            ),
            (
                fix(&[Change::MicroBatch(MicroBatch::Exactly(2))], Some(Effect::of_leaves(2, None))),
                "micro-batches of 2: 1.50 GiB, 12.3 ms a step (sums of all replicas then come from leaves of 2 samples)",
            ),
            (
                fix(&[Change::MicroBatch(MicroBatch::Exactly(1))], Some(Effect::of_leaves(1, Some(&statistics)))),
                "micro-batches of 1: 1.50 GiB, 12.3 ms a step (sums of all replicas then come from leaves of 1 sample, and so do \
                 batch statistics)",
            ),
            (
                fix(&[Change::Split(vec![1 << 30, 2 << 30])], None),
                "logical devices of 1.00 GiB, 2.00 GiB: 1.50 GiB, 12.3 ms a step",
            ),
        ] {
            assert_eq!(fix.to_string(), expected);
        }
    }
}
