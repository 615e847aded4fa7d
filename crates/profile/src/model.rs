//! The profile as plain data: `profile.json` is this, field by field, and so is what the report shows.
//!
//! Sizes are bytes, and times are in the unit that a field's name ends with. A launch is one kernel of a program; launches are
//! counted from 0 within their program, and programs by their place in [`Profile::programs`]. What a step runs, and in which
//! order, follows from [`Program::repeats`]: the programs in order, each so often.

pub use memfit_plan::report::Class;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::ProfileError;

/// The value of [`Profile::format`].
pub const FORMAT: &str = "memfit profile";
/// The version of the schema. It grows when a field is renamed, removed or changes its meaning, not when one is added.
pub const VERSION: u32 = 1;

/// A training step: what is planned, and what was measured where something ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// What was planned for what.
    pub run: Run,
    /// The plan in numbers.
    pub memory: Memory,
    /// All that lives as long as the model, by offset; and accumulators, which lie in the transient segment.
    pub states: Vec<State>,
    /// What is run: `step`, or `accumulate` and `apply`; then `eval` and whatever else was planned.
    pub programs: Vec<Program>,
    /// The fullest instant.
    pub peak: Peak,
    /// What the planner did, in the order in which it did it.
    pub tools: Vec<ToolUse>,
    /// Step time against memory: the fastest plan first. Empty where nobody looked.
    #[serde(default)]
    pub frontier: Vec<FrontierPoint>,
    /// What the machine can do at most.
    #[serde(default)]
    pub limits: Option<MachineLimits>,
    /// What ran.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// The data pipeline, where there was one.
    #[serde(default)]
    pub pipeline: Option<Pipeline>,
    /// How training went: a point for each step or epoch that was kept.
    #[serde(default)]
    pub curves: Vec<Curve>,
}

/// What was planned for what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the model.
    pub model: String,
    /// Of one sample, such as `224x224x3`; empty where nobody says.
    #[serde(default)]
    pub input: String,
    /// Samples of a step.
    pub batch: usize,
    /// Samples that are computed at once.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// `f32`, `mixed`, `mixed-f16`.
    #[serde(default)]
    pub precision: String,
    /// By name.
    #[serde(default)]
    pub optimizer: String,
    /// Such as `cpu (avx512) with 2 threads`.
    #[serde(default)]
    pub device: String,
    /// Of the cost model that times were predicted with, in hexadecimal.
    pub cost_model: String,
    /// The version of memfit.
    pub memfit: String,
    /// Where the run lies; only where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The plan in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// What the plan had to fit into.
    pub budget_bytes: Option<u64>,
    /// Both segments.
    pub arena_bytes: u64,
    /// What is taken of the device beside them, of the same budget; only where it is something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub staging_bytes: u64,
    /// The most that is live at once, states included.
    pub peak_bytes: u64,
    /// Parameters, optimizer, statistics.
    pub state_bytes: u64,
    /// Everything of a step.
    pub transient_bytes: u64,
    /// The staged batch, or micro-batch.
    pub input_bytes: u64,
    /// What a plain eager framework would hold.
    pub keep_all_bytes: u64,
    /// What no plan goes below.
    pub lower_bound_bytes: u64,
    /// Predicted, of this plan.
    pub predicted_step_ms: f64,
    /// Predicted, of the fastest plan without a budget.
    pub fastest_step_ms: f64,
    /// Ops that run a second time.
    pub recomputed_ops: usize,
    /// Launches of a step.
    pub kernels: usize,
}

/// Something that lives as long as the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The path of its layer and its own name.
    pub name: String,
    /// What it is for.
    pub class: Class,
    /// Element type and shape, such as `f32[3,3,64,64]`.
    #[serde(rename = "type")]
    pub ty: String,
    /// In its segment: the state segment, or for accumulators the transient one.
    pub offset: u64,
    /// Its size. What it takes ends where the next one begins, which is aligned.
    pub bytes: u64,
}

/// A program with its launches and buffers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// `step`, `accumulate`, `apply`, `eval` or `checkpoint`.
    pub phase: String,
    /// How often it runs in a training step; 0 for what is no part of one.
    pub repeats: usize,
    /// Bytes of accumulators, which are live in all of its launches.
    pub accumulator_bytes: u64,
    /// In the order in which they run.
    pub launches: Vec<Launch>,
    /// Of the transient segment, by the number of their value.
    pub buffers: Vec<Buffer>,
}

/// What a launch is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// From the input to the loss.
    Forward,
    /// Runs a kernel of the forward pass a second time. What is recomputed while another kernel reads it is a part of that one.
    Recompute,
    /// From the loss to the gradients.
    Backward,
    /// Changes states.
    Update,
}

impl Part {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Part::Forward => "forward",
            Part::Recompute => "recompute",
            Part::Backward => "backward",
            Part::Update => "update",
        }
    }
}

/// One kernel of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The op that it is named after.
    pub op: String,
    /// All ops that it runs, in order, joined by `+`.
    pub ops: String,
    /// The path of its layer.
    pub layer: String,
    /// What it is a part of.
    pub part: Part,
    /// Bytes of the transient segment that are live while it runs, scratch and accumulators included.
    pub live_bytes: u64,
    /// Its temporary memory.
    pub scratch_bytes: u64,
    /// Where that lies in the transient segment; 0 where there is none.
    pub scratch_offset: u64,
    /// Its arithmetic; a multiply-add counts 2.
    pub flops: u64,
    /// What it must read and write at least.
    pub traffic_bytes: u64,
    /// Predicted.
    pub predicted_us: f64,
}

/// A value that has a place in the transient segment. It is live in the launches `first ≤ n < end`; where another takes over its
/// place, that one counts from its first launch on, so that the buffers of a launch add up to its live bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// Its number in the program's graph.
    pub value: u32,
    /// The op that makes it; `input` for what is staged.
    pub op: String,
    /// The path of its layer; for an input its name.
    pub layer: String,
    /// Element type and shape.
    #[serde(rename = "type")]
    pub ty: String,
    /// What it is for.
    pub class: Class,
    /// In the transient segment.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// The launch that makes it, or 0 for what is staged.
    pub first: usize,
    /// The first launch during which it is no longer there.
    pub end: usize,
    /// The last launch that reads it: what it is kept for. None for an output of the program that nothing else reads.
    pub last_read: Option<usize>,
    /// Whether it is made a second time, by a clone of the op that made it first.
    pub recomputed: bool,
    /// Whether it took over the place of an operand of its launch.
    pub in_place: bool,
}

/// The fullest instant of all programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Its program.
    pub program: usize,
    /// Its launch.
    pub launch: usize,
    /// All that is live there, largest first. They add up to the peak.
    pub live: Vec<PeakEntry>,
}

/// Something that is live at the peak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakEntry {
    /// Of [`Program::buffers`]; none for states, accumulators and scratch.
    pub buffer: Option<usize>,
    /// The path of its layer, with the name of a state.
    pub layer: String,
    /// The op that makes it; `state` or `scratch`.
    pub op: String,
    /// Element type and shape.
    #[serde(rename = "type")]
    pub ty: String,
    /// What it is for.
    pub class: Class,
    /// What it takes; of a state, with what is left free behind it because the next one is aligned.
    pub bytes: u64,
    /// What it would cost to compute it a second time out of what else is live then, instead of keeping it: predicted, or as
    /// measured where something ran. None for what cannot be recomputed.
    pub recompute_ms: Option<f64>,
}

/// What a tool of the planner brought and cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// `groups`, `in place`, `masks`, `order`, `micro-batches`, `recompute`.
    pub tool: String,
    /// Of the peak; negative where it cost some.
    pub saved_bytes: i64,
    /// Predicted, of a step; 0 for tools that cost no time.
    pub paid_ms: f64,
}

/// A plan that could have been chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// What it takes.
    pub arena_bytes: u64,
    /// Predicted.
    pub step_ms: f64,
    /// Samples that it computes at once.
    pub micro_batch: usize,
    /// Ops that it runs a second time.
    pub recomputed_ops: usize,
}

/// What a machine reaches at most, measured by a large matrix product and a long sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineLimits {
    /// 10⁹ operations a second.
    pub gflops: f64,
    /// 10⁹ bytes a second.
    pub gbytes: f64,
}

/// What ran, as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Every step that was recorded.
    pub steps: Vec<StepSample>,
    /// For each program, for each of its launches: the times of all that ran, over steps and micro-batches.
    pub kernels: Vec<Vec<KernelTimes>>,
    /// One step in full, the one with the median time: every slice, in the order of their begin.
    pub slices: Vec<Slice>,
    /// Threads, or queues of a device, by their number in [`Slice::thread`].
    pub threads: Vec<String>,
    /// What was not recorded because there was no room for it.
    pub dropped: u64,
    /// How the times of kernels were taken.
    #[serde(default)]
    pub clock: Clock,
}

/// How the times of kernels were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// By the threads that ran them.
    #[default]
    Threads,
    /// By the device, which stamped the begin and the end of each while it worked.
    Device,
    /// By the host, which waited for each before it started the next: a step took longer than it would have.
    Waiting,
}

impl Clock {
    /// In words; none where there is nothing to say.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Clock::Threads => None,
            Clock::Device => Some("kernels by the device's own timestamps"),
            Clock::Waiting => {
                Some("kernels by the host, which waited for each: the device has no timestamps, and steps took longer")
            }
        }
    }
}

/// A step that ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSample {
    /// Its number, from 0.
    pub step: u32,
    /// What it took.
    pub ms: f64,
    /// The wait for its batch before.
    pub waited_ms: f64,
    /// Its loss; what is not finite is `null` in JSON, which has no such numbers.
    #[serde(deserialize_with = "number_or_nan")]
    pub loss: f32,
    /// Bytes of the arena in pages that the system holds, after it; none where that cannot be asked.
    pub arena_resident_bytes: Option<u64>,
    /// Of the whole process, after it.
    pub process_resident_bytes: Option<u64>,
    /// Bytes in the pool of the data pipeline, after it.
    pub pipeline_bytes: Option<u64>,
}

/// Times of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelTimes {
    /// How often it ran.
    pub count: u64,
    /// On average, with what disturbed it.
    pub mean_us: f64,
    /// In the middle: what is shown. Of all kernels, it adds up to a step that nothing disturbed.
    pub median_us: f64,
    /// At best.
    pub min_us: f64,
    /// At worst.
    pub max_us: f64,
}

/// A kernel on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Of [`Profile::programs`].
    pub program: usize,
    /// Of its launches.
    pub launch: usize,
    /// Which repetition of the program in the step, from 0.
    pub micro_batch: usize,
    /// Of [`Measured::threads`].
    pub thread: usize,
    /// Since the step began.
    pub begin_us: f64,
    /// Since the step began.
    pub end_us: f64,
}

/// The data pipeline of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What it may hold.
    pub limit_bytes: u64,
    /// The most that it held.
    pub peak_bytes: u64,
    /// Time in which training waited for a batch.
    pub step_waited_ms: f64,
    /// Time in which threads that make batches waited for training, or for room: on average of them.
    pub data_waited_ms: f64,
    /// Threads that make batches.
    pub threads: usize,
}

/// One quantity over the steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Such as `loss`, `test loss`, `test accuracy`, `learning rate`, `samples/s`.
    pub name: String,
    /// After how many steps, and the value there.
    pub points: Vec<(u64, f64)>,
}

impl Profile {
    /// Reads `profile.json`, and holds what it says of itself against what it has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(text: &str) -> Result<Profile, ProfileError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let Head { version } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(ProfileError::Version { found: version, known: VERSION });
        }
        let profile: Profile = serde_json::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// The text of `profile.json`.
    pub fn to_json(&self) -> String {
        // A struct of strings and numbers is always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The programs of a training step in the order in which they run: the number of each, and which repetition it is.
    pub fn step_runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.programs.iter().enumerate().flat_map(|(i, p)| (0..p.repeats).map(move |n| (i, n)))
    }

    /// The time of a launch: as measured, where that is asked for and it ran, else as predicted.
    pub fn launch_us(&self, program: usize, launch: usize, is_measured: bool) -> f64 {
        let measured = self.measured.as_ref().filter(|_| is_measured).map(|m| m.kernels[program][launch]);
        match measured {
            Some(KernelTimes { count: 1.., median_us, .. }) => median_us,
            Some(KernelTimes { count: 0, .. }) | None => self.programs[program].launches[launch].predicted_us,
        }
    }

    /// What a step took, the one in the middle; none where nothing ran.
    pub fn median_step_ms(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.measured.as_ref()?.steps.iter().map(|s| s.ms).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// Bytes by class that are live while a launch runs, in the order of [`Class::ALL`]; they add up to the state segment and the
    /// launch's live bytes.
    pub fn live_by_class(&self, program: usize, launch: usize) -> [u64; Class::ALL.len()] {
        let mut sums = self.state_bytes_by_class();
        let program = &self.programs[program];
        for b in program.buffers.iter().filter(|b| b.first <= launch && launch < b.end) {
            sums[b.class as usize] += b.bytes;
        }
        let rest = [
            (Class::Accumulators, program.accumulator_bytes),
            (Class::Scratch, program.launches[launch].scratch_bytes),
        ];
        for (class, bytes) in rest {
            sums[class as usize] = sums[class as usize].saturating_add(bytes);
        }
        sums
    }

    /// What the state segment has for each class, with what is left free between states.
    pub fn state_bytes_by_class(&self) -> [u64; Class::ALL.len()] {
        let mut sums = [0u64; Class::ALL.len()];
        for (state, bytes) in self.padded_states() {
            sums[state.class as usize] += bytes;
        }
        sums
    }

    /// States of the state segment, each with the bytes up to the next one.
    pub(crate) fn padded_states(&self) -> impl Iterator<Item = (&State, u64)> {
        let states: Vec<&State> = self.states.iter().filter(|s| s.class != Class::Accumulators).collect();
        let ends: Vec<u64> = states.iter().skip(1).map(|s| s.offset).chain([self.memory.state_bytes]).collect();
        states.into_iter().zip(ends).map(|(state, end)| (state, end.saturating_sub(state.offset)))
    }
}

/// JSON has no number for what is not finite.
fn number_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f32::NAN))
}
