//! A validated run: every name known, every number in range.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::exec::Device;
use memfit::ir::op::StateClass;
use memfit::nn::Mode;
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::{Labels, Setting, Stem, Task};
use memfit::plan::bytes;
use memfit::plan::{CostModel, MicroBatch, Target};
use memfit::transform::scope::matches;
use memfit::{Clip, CpuExecutor, Model, Precision, Request, Subject, Training, ZooModel};

use crate::config::{ModelSpec, Said, Spec, TrainSpec};
use crate::cost_model;
use crate::device::Room;
use crate::error::usage;

#[derive(Clone)]
pub struct Run {
    pub name: String,
    /// What it is called among others, where there are several.
    pub label: Option<String>,
    pub model: ZooModel,
    pub training: Training,
    pub request: Request,
    /// What others have left of its device, where that is a limit.
    pub room: Option<Room>,
    /// Where the cost model is from; none for the device's own.
    pub cost_model_file: Option<PathBuf>,
    pub optimizer: String,
    pub learning_rate: f32,
    pub threads: usize,
    pub seed: u64,
    pub json: bool,
}

/// The model where nothing was said.
pub const DIGITS: &str = "digits";

/// What the data says about the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The shape of a sample, where all have one.
    pub sample: Option<Vec<usize>>,
    pub classes: Option<usize>,
}

impl Run {
    pub fn new(spec: &Spec, facts: &Facts, json: bool) -> Result<Run> {
        let name = spec.model.name.clone().unwrap_or_else(|| DIGITS.into());
        let model = model(&name, &spec.model, facts)?;
        let t = &spec.train;
        let optimizer_name = t.optimizer.clone().unwrap_or_else(|| "adam".into());
        let optimizer = Optimizer::from_name(&optimizer_name).map_err(usage)?;
        let update = match t.weight_decay {
            Some(decay) => optimizer.update.with_weight_decay(decay).ok_or_else(|| {
                usage(format!("{optimizer_name} has no weight decay; sgd, momentum, nesterov, adam and adamw have"))
            })?,
            None => optimizer.update,
        };
        let learning_rate = t.lr.unwrap_or(optimizer.learning_rate);
        let precision = t.precision.as_deref().unwrap_or(Precision::F32.name());
        let Some(precision) = Precision::from_name(precision) else {
            let known = Precision::ALL.map(Precision::name).join(", ");
            return Err(usage(format!("--precision \"{precision}\" is not known; there are {known}")));
        };
        let clip = match (t.clip_norm, t.clip_value) {
            (None, None) => Clip::None,
            (Some(norm), None) => Clip::GlobalNorm(norm),
            (None, Some(value)) => Clip::Value(value),
            (Some(_), Some(_)) => return Err(usage("give clip_norm or clip_value, not both")),
        };
        if t.epochs.is_some() && t.steps.is_some() {
            return Err(usage("train.epochs and train.steps both say how long to train; leave one of them out"));
        }
        no_idle_decay(t)?;
        let labels = Labels { soft: spec.data.mixup.is_some(), smoothing: t.label_smoothing.unwrap_or(0.0) };
        let frozen = frozen(&model, &spec.model)?;
        let mut request = Request::new(t.batch.unwrap_or(32));
        request.micro_batch = t.micro_batch.as_deref().map_or(Ok(MicroBatch::Auto), parse_micro_batch)?;
        request.budget = spec.memory.budget;
        let (cost_model, cost_model_file) = cost_model::in_use(spec.memory.cost_model.as_deref())?.unzip();
        request.cost_model = cost_model;
        Ok(Run {
            name,
            label: None,
            model: model.with_labels(labels),
            training: Training { clip, frozen, precision, ..Training::new(update) },
            request,
            room: None,
            cost_model_file,
            optimizer: optimizer_name,
            learning_rate,
            threads: threads(spec.memory.threads)?,
            seed: t.seed.unwrap_or(1),
            json,
        })
    }
}

/// A key that does nothing is a mistake, or a wish that is not heard.
fn no_idle_decay(spec: &TrainSpec) -> Result<()> {
    let schedule = spec.schedule.as_deref().unwrap_or("constant");
    let keys = [
        ("decay", spec.decay.is_some(), &["step", "cosine"][..]),
        ("decay_every", spec.decay_every.is_some(), &["step"]),
    ];
    match keys.iter().find(|(_, said, schedules)| *said && !schedules.contains(&schedule)) {
        None => Ok(()),
        Some((key, _, schedules)) => Err(usage(format!(
            "train.{key} is for train.schedule = \"{}\", and the schedule is {schedule}; leave it out, or give that \
             schedule",
            schedules.join("\" or \"")
        ))),
    }
}

/// The model with its options: what was said, else what the data says.
fn model(name: &str, spec: &ModelSpec, facts: &Facts) -> Result<ZooModel> {
    let mut model = ZooModel::from_name(name).map_err(usage)?;
    if let Some(stem) = &spec.stem {
        model = model.with_stem(if stem == "cifar" { Stem::Cifar } else { Stem::Imagenet }).map_err(usage)?;
    }
    let sequence = spec.sequence.map(|n| vec![n]);
    if let Some(input) = spec.input.as_ref().or(sequence.as_ref()).or(facts.sample.as_ref()) {
        model = model.with_input(input).map_err(usage)?;
    }
    let of_gpt =
        [("layers", spec.layers), ("width", spec.width), ("heads", spec.heads), ("vocabulary", spec.vocabulary)];
    if model.task() == Task::Tokens {
        if let Some(rate) = spec.dropout {
            return Err(usage(format!("model.dropout is {rate}, but gpt has none")));
        }
        let vocabulary = spec.vocabulary.or(facts.classes);
        let settings = [
            spec.layers.map(Setting::Layers),
            spec.width.map(Setting::Width),
            spec.heads.map(Setting::Heads),
            vocabulary.map(Setting::Vocabulary),
        ];
        for setting in settings.into_iter().flatten() {
            model = model.with(setting).map_err(usage)?;
        }
    } else {
        if let Some((key, _)) = of_gpt.iter().find(|(_, given)| given.is_some()) {
            return Err(usage(format!("model.{key} is of a gpt; {name} has none")));
        }
        if let Some(rate) = spec.dropout {
            model = model.with_dropout(rate).map_err(usage)?;
        }
    }
    match spec.classes.or(facts.classes.filter(|_| model.task() != Task::Tokens)) {
        Some(classes) => model.with_classes(classes).map_err(usage),
        None => Ok(model),
    }
}

/// The names of the parameters that the patterns mean.
fn frozen(model: &ZooModel, spec: &ModelSpec) -> Result<HashSet<String>> {
    if spec.freeze.is_empty() && spec.trainable.is_empty() {
        return Ok(HashSet::new());
    }
    if !spec.freeze.is_empty() && !spec.trainable.is_empty() {
        return Err(usage("give model.freeze or model.trainable, not both"));
    }
    let graph = model.build(1, Mode::Train).map_err(usage)?.graph;
    let names: Vec<&String> =
        graph.states().filter(|(s, _)| s.class == StateClass::Param).map(|(s, _)| &s.name).collect();
    let patterns = if spec.freeze.is_empty() { &spec.trainable } else { &spec.freeze };
    if let Some(idle) = patterns.iter().find(|p| !names.iter().any(|n| matches(p, n))) {
        let mut layers: Vec<&str> = names.iter().filter_map(|n| n.split('/').next()).collect();
        layers.dedup();
        return Err(usage(format!("no parameter is meant by \"{idle}\"; the layers are {}", layers.join(", "))));
    }
    let meant = |n: &str| patterns.iter().any(|p| matches(p, n));
    let frozen: HashSet<String> =
        names.iter().filter(|n| meant(n) != spec.freeze.is_empty()).map(|n| n.to_string()).collect();
    if frozen.len() == names.len() {
        return Err(usage("every parameter is frozen; leave something to train"));
    }
    Ok(frozen)
}

pub fn read_file(path: &Path) -> Result<Said> {
    read_file_with(path, |said| said)
}

/// Reads a run file and changes what it says before it is checked.
pub(crate) fn read_file_with(path: &Path, change: fn(Said) -> Said) -> Result<Said> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| usage(format!("{}: {e}; `memfit init` writes a run file", path.display())))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let said =
        Said::read(&text, folder).map(change).map_err(|problem| usage(format!("{}: {problem}", path.display())))?;
    // What is wrong in the file is told with its name.
    said.spec().map_err(|problem| usage(format!("{}: {problem}", path.display())))?;
    Ok(said)
}

impl Run {
    /// What times are predicted from.
    pub fn cost_model(&self) -> CostModel {
        self.request.cost_model.clone().unwrap_or_else(CpuExecutor::default_cost_model)
    }

    /// A logical device has a limit, and so has what is planned for it: what others have left there.
    pub fn keep_to(&mut self, spec: &Spec, device: &Device) {
        self.room = Room::of_part(device, &spec.memory);
        if let Some(room) = &self.room {
            self.request.budget = Some(self.request.budget.map_or(room.bytes, |b| b.min(room.bytes)));
        }
    }

    /// The room, if it is what its own budget comes to.
    pub fn tight_room(&self) -> Option<&Room> {
        self.room.as_ref().filter(|room| self.request.budget == Some(room.bytes))
    }

    /// What the planner is asked about.
    pub fn subject<'a>(&'a self, target: &'a dyn Target) -> Subject<'a> {
        Subject { model: &self.model, training: &self.training, target, request: &self.request }
    }
}

/// As many as asked for, or one a core.
pub fn threads(asked: Option<usize>) -> Result<usize> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    match asked.unwrap_or(cores) {
        n @ 1..=1024 => Ok(n),
        n => Err(usage(format!("--threads must be between 1 and 1024, but is {n}"))),
    }
}

/// Bytes as people write them; whole numbers exactly.
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.trim().parse().or_else(|_| bytes::parse(text).map(|b| b.0))
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
