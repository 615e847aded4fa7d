//! A validated run: every name known, every number in range.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use memfit::data::BytePool;
use memfit::exec::{Device, Held};
use memfit::ir::op::StateClass;
use memfit::nn::Mode;
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::{Labels, Stem, Task};
use memfit::plan::MicroBatch;
use memfit::plan::Target;
use memfit::plan::bytes;
use memfit::train::Which;
use memfit::transform::scope::matches;
use memfit::{Clip, Model, Precision, Request, Subject, Training};

use crate::args::{Overrides, Pack, PlanArgs, TrainArgs};
use crate::data::{self, Opened};
use crate::device::{Devices, Room};
use crate::failure::usage;
use crate::profile;
use crate::run_dir;
use crate::spec::{ModelSpec, Said, Spec, TrainSpec};
use crate::together::Neighbour;

#[derive(Clone)]
pub struct Run {
    pub name: String,
    pub model: Model,
    /// What the labels of a step are.
    pub labels: Labels,
    pub training: Training,
    pub request: Request,
    /// Where the budget is what a logical device has left.
    pub room: Option<Room>,
    /// Where the profile is from; none for the one that ships with memfit.
    pub profile_file: Option<PathBuf>,
    pub optimizer: String,
    pub learning_rate: f32,
    pub threads: usize,
    pub seed: u64,
    pub json: bool,
}

/// Trainings of one process, which share its devices.
pub struct TrainRuns {
    pub runs: Vec<TrainRun>,
    /// For all of them together, where there are several.
    pub budget: Option<u64>,
}

/// What a training needs besides.
pub struct TrainRun {
    pub run: Run,
    pub spec: Spec,
    pub said: Said,
    pub place: Place,
    pub opened: Opened,
    /// A plan that was made before.
    pub plan: Option<PathBuf>,
    /// The run to go on with.
    pub resume: Option<Resume>,
    /// Nothing was said about memory: a budget is taken with which there is something to plan.
    pub budget_untold: bool,
}

/// A run to go on with, and the checkpoint to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    pub folder: PathBuf,
    pub which: Which,
}

impl Resume {
    /// Of the folder of a run, or of one of the two checkpoints in it.
    fn new(path: &Path) -> Result<Resume> {
        let named = Which::ALL.into_iter().find(|w| path.file_name() == Some(w.file_name().as_ref()));
        match named {
            Some(which) if !path.is_dir() => {
                let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                Ok(Resume { folder: folder.into(), which })
            }
            _ if path.is_file() => Err(usage(format!(
                "--resume {} is no checkpoint; name the folder of a run, or last.json or best.json in it",
                path.display()
            ))),
            _ => Ok(Resume { folder: path.into(), which: Which::Last }),
        }
    }
}

impl TrainRuns {
    pub fn new(args: TrainArgs, json: bool) -> Result<TrainRuns> {
        let (each, budget) = one_by_one(args)?;
        let placed = places(&each, budget.is_some())?;
        let run = |(args, (said, place)): (&TrainArgs, (SaidRun, Place))| TrainRun::new(args, said, place, json);
        let runs = each.iter().zip(placed).map(run).collect::<Result<Vec<_>>>()?;
        let folders = runs.iter().filter_map(|r| r.resume.as_ref().map(|r| &r.folder).or(r.spec.train.out.as_ref()));
        let folders: Vec<PathBuf> = folders.map(|f| f.canonicalize().unwrap_or_else(|_| f.clone())).collect();
        match folders.iter().enumerate().find(|(i, f)| folders[..*i].contains(f)) {
            Some((_, folder)) => {
                Err(usage(format!("two of the runs have the folder {}; give each its own train.out", folder.display())))
            }
            None => Ok(TrainRuns { runs, budget }),
        }
    }

    /// What went wrong with a run, told with its name where there are several.
    pub fn of<T>(&self, run: &TrainRun, result: Result<T>) -> Result<T> {
        if self.runs.len() > 1 { result.with_context(|| run.place.label.clone()) } else { result }
    }

    pub fn neighbours(&self) -> Vec<Neighbour<'_>> {
        self.runs.iter().map(|r| r.place.neighbour(&r.run)).collect()
    }
}

/// The arguments of each run, and the budget of all where there are several.
fn one_by_one(args: TrainArgs) -> Result<(Vec<TrainArgs>, Option<u64>)> {
    let Overrides { files, .. } = &args.overrides;
    let count = files.len().max(args.resume.len());
    if count < 2 {
        return Ok((vec![args], None));
    }
    if !args.resume.is_empty() && args.overrides.budget.is_some() {
        return Err(usage("--resume goes on with the plans that the runs have; leave out --budget"));
    }
    // What is said of all, and not of one.
    let Overrides { budget, host_budget, logical, growth, threads, profile, .. } = args.overrides.clone();
    let of_all = Overrides { host_budget, logical, growth, threads, profile, ..Overrides::default() };
    let allowed = Overrides { files: files.clone(), budget: budget.clone(), ..of_all.clone() };
    if args.overrides != allowed || args.out.is_some() || args.weights.is_some() || args.plan.is_some() {
        return Err(usage(
            "for several runs there are --budget, --host-budget, --logical, --growth, --threads, --profile, --epochs, \
             --steps and --skip-bad; what is said of one belongs into its run file",
        ));
    }
    let size = |text: &String| parse_size(text).map_err(|problem| usage(format!("--budget must be a size: {problem}")));
    let budget = budget.as_ref().map(size).transpose()?;
    let run = |i: usize| TrainArgs {
        overrides: Overrides { files: files.get(i).cloned().into_iter().collect(), ..of_all.clone() },
        resume: args.resume.get(i).cloned().into_iter().collect(),
        ..args.clone()
    };
    Ok(((0..count).map(run).collect(), budget))
}

/// The limits of the logical devices: those of the first run that says any, and no other may say others.
fn limits(said: &[SaidRun]) -> Result<Vec<u64>> {
    let mut lists = said.iter().map(|s| &s.spec.memory.logical[..]).filter(|l| !l.is_empty());
    let first = lists.next().unwrap_or(&[]);
    match lists.find(|l| *l != first) {
        Some(_) => {
            Err(usage("the runs split the device in different ways; say memory.logical once, or the same in each"))
        }
        None => Ok(first.to_vec()),
    }
}

/// Where a run computes, and under which name.
pub struct Place {
    /// What it is called among others.
    pub label: String,
    pub device: Device,
    /// What the pipeline holds is drawn from here.
    pub pool: BytePool,
    /// And all that it may hold is taken of the device.
    _host: Held,
}

/// What is said about each run, and its place. A budget for all holds instead of what a file says of one.
fn places(each: &[TrainArgs], has_budget: bool) -> Result<Vec<(SaidRun, Place)>> {
    let mut said = each.iter().map(SaidRun::new).collect::<Result<Vec<_>>>()?;
    let limits = limits(&said)?;
    for said in &mut said {
        said.settle(&limits, has_budget);
    }
    let devices = Devices::new(&limits)?;
    let device = |(i, said): (usize, &SaidRun)| devices.of_run(said.spec.memory.device.as_deref(), i);
    let on = said.iter().enumerate().map(device).collect::<Result<Vec<_>>>()?;
    let labels = labels(each, &said);
    let mut placed = Vec::new();
    for ((said, device), label) in said.into_iter().zip(&on).zip(labels) {
        let neighbours = on.iter().filter(|d| d.name() == device.name()).count();
        let place = Place::new(label, &said.spec, device.clone(), neighbours)?;
        placed.push((said, place));
    }
    Ok(placed)
}

/// What each run is called: after its file or folder, or its model; with more of the path where that is not enough.
fn labels(each: &[TrainArgs], said: &[SaidRun]) -> Vec<String> {
    let name = |(args, said): (&TrainArgs, &SaidRun), parts: usize| {
        let file = args.overrides.files.first().map(|f| f.with_extension(""));
        match file.or(said.resume.as_ref().map(|r| r.folder.clone())) {
            Some(path) => {
                let names: Vec<_> =
                    path.components().rev().take(parts).map(|c| c.as_os_str().to_string_lossy()).collect();
                names.into_iter().rev().collect::<Vec<_>>().join("/")
            }
            None => said.spec.model.name.clone().unwrap_or_else(|| DIGITS.into()),
        }
    };
    let of = |parts: usize| each.iter().zip(said).map(|run| name(run, parts)).collect::<Vec<String>>();
    let is_clear = |labels: &[String]| labels.iter().collect::<HashSet<_>>().len() == labels.len();
    (1..=3)
        .map(of)
        .find(|labels| is_clear(labels))
        .unwrap_or_else(|| of(1).into_iter().enumerate().map(|(i, label)| format!("{label}-{}", i + 1)).collect())
}

impl Place {
    /// For one of so many runs on the device.
    pub fn new(label: String, spec: &Spec, device: Device, neighbours: usize) -> Result<Place> {
        let pool = data::pool(spec, &device, neighbours);
        let host = device.take(&format!("the data pipeline of {label}, at most"), pool.limit())?;
        Ok(Place { label, device, pool, _host: host })
    }

    /// The run at this place, as others see it.
    pub fn neighbour<'a>(&'a self, run: &'a Run) -> Neighbour<'a> {
        Neighbour { label: &self.label, run, device: &self.device }
    }
}

/// What is said about one run.
struct SaidRun {
    resume: Option<Resume>,
    said: Said,
    spec: Spec,
}

impl SaidRun {
    fn new(args: &TrainArgs) -> Result<SaidRun> {
        let resume = args.resume.first().map(|path| Resume::new(path)).transpose()?;
        let mut said = match &resume {
            Some(Resume { folder, .. }) => {
                let may_not = Overrides { lr: None, host_budget: None, threads: None, ..args.overrides.clone() };
                if may_not != Overrides::default() {
                    return Err(usage(
                        "--resume goes on with the run as it was; --epochs, --steps, --lr, --host-budget and \
                         --skip-bad may change",
                    ));
                }
                said_besides(run_dir::said(folder)?, &args.overrides)?
            }
            None => said(&args.overrides)?,
        };
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        if let Some(epochs) = args.epochs {
            said.forget("train", "steps");
            said.say("--epochs", "train", "epochs", count(epochs));
        }
        if let Some(steps) = args.steps {
            said.forget("train", "epochs");
            said.say("--steps", "train", "steps", count(steps));
        }
        if let Some(out) = &args.out {
            said.say("--out", "train", "out", out.to_string_lossy().into_owned());
        }
        if let Some(weights) = &args.weights {
            said.say("--weights", "model", "weights", weights.to_string_lossy().into_owned());
        }
        if args.skip_bad {
            said.say("--skip-bad", "data", "skip_bad", true);
        }
        let spec = said.spec().map_err(usage)?;
        Ok(SaidRun { resume, said, spec })
    }

    /// What holds for all runs: how the device is split, so that each finds its part again when it goes on alone; and a
    /// budget for all instead of its own.
    fn settle(&mut self, limits: &[u64], has_budget: bool) {
        if self.spec.memory.logical.is_empty() && !limits.is_empty() {
            let sizes: Vec<i64> = limits.iter().map(|&l| i64::try_from(l).unwrap_or(i64::MAX)).collect();
            self.said.set("memory", "logical", sizes);
            self.spec.memory.logical = limits.to_vec();
        }
        if has_budget {
            self.said.forget("memory", "budget");
            self.spec.memory.budget = None;
        }
    }
}

impl TrainRun {
    fn new(args: &TrainArgs, said: SaidRun, place: Place, json: bool) -> Result<TrainRun> {
        let SaidRun { resume, mut said, spec } = said;
        if !spec.memory.logical.is_empty() {
            // So that the run finds it again when it goes on alone.
            said.set("memory", "device", place.device.name());
        }
        let opened = data::open(&spec, &place.pool)?;
        // A run's folder says what the data said when it began.
        let facts = if resume.is_some() { &Facts::default() } else { &opened.facts };
        let run = Run::new(&spec, facts, json)?;
        let untold = args.overrides.files.is_empty() && spec.memory.budget.is_none() && args.plan.is_none();
        let budget_untold = untold && resume.is_none() && spec.data.train.is_none() && spec.memory.logical.is_empty();
        let plan = args.plan.clone();
        Ok(TrainRun { run, spec, said, place, opened, plan, resume, budget_untold })
    }
}

/// The model where nothing was said.
const DIGITS: &str = "digits";

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
        let (profile, profile_file) = profile::in_use(spec.memory.profile.as_deref())?;
        request.profile = profile;
        Ok(Run {
            name,
            model,
            labels,
            training: Training { clip, frozen, precision, ..Training::new(update) },
            request,
            room: None,
            profile_file,
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
fn model(name: &str, spec: &ModelSpec, facts: &Facts) -> Result<Model> {
    let mut model = Model::from_name(name).map_err(usage)?;
    if let Some(stem) = &spec.stem {
        model = model.with_stem(if stem == "cifar" { Stem::Cifar } else { Stem::Imagenet }).map_err(usage)?;
    }
    let sequence = spec.sequence.map(|n| vec![n]);
    if let Some(input) = spec.input.as_ref().or(sequence.as_ref()).or(facts.sample.as_ref()) {
        model = model.with_input(input).map_err(usage)?;
    }
    let of_gpt =
        [("layers", spec.layers), ("width", spec.width), ("heads", spec.heads), ("vocabulary", spec.vocabulary)];
    match &mut model {
        Model::Gpt(gpt) => {
            gpt.layers = spec.layers.unwrap_or(gpt.layers);
            gpt.width = spec.width.unwrap_or(gpt.width);
            gpt.heads = spec.heads.unwrap_or(gpt.heads);
            gpt.vocabulary = spec.vocabulary.or(facts.classes).unwrap_or(gpt.vocabulary);
            if let Some(rate) = spec.dropout {
                return Err(usage(format!("model.dropout is {rate}, but gpt has none")));
            }
        }
        other => {
            if let Some((key, _)) = of_gpt.iter().find(|(_, given)| given.is_some()) {
                return Err(usage(format!("model.{key} is of a gpt; {name} has none")));
            }
            if let Some(rate) = spec.dropout {
                *other = other.clone().with_dropout(rate).map_err(usage)?;
            }
        }
    }
    match spec.classes.or(facts.classes.filter(|_| model.task() != Task::Tokens)) {
        Some(classes) => model.with_classes(classes).map_err(usage),
        None => Ok(model),
    }
}

/// The names of the parameters that the patterns mean.
fn frozen(model: &Model, spec: &ModelSpec) -> Result<HashSet<String>> {
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

/// What a run file says, with what was typed besides it.
pub fn said(o: &Overrides) -> Result<Said> {
    let said = match &o.files[..] {
        [] => Said::default(),
        [path] => read_file(path)?,
        _ => return Err(usage("one run file at a time")),
    };
    said_besides(said, o)
}

fn said_besides(mut said: Said, o: &Overrides) -> Result<Said> {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let path = |p: &PathBuf| p.to_string_lossy().into_owned();
    if let Some(model) = &o.model {
        said.say("--model", "model", "name", model.as_str());
    }
    if let Some(input) = &o.input {
        said.say("--input", "model", "input", parse_input(input)?.into_iter().map(count).collect::<Vec<i64>>());
    }
    if let Some(classes) = o.classes {
        said.say("--classes", "model", "classes", count(classes));
    }
    if !o.freeze.is_empty() {
        said.say("--freeze", "model", "freeze", o.freeze.clone());
    }
    if let Some(data) = &o.data {
        said.say("--data", "data", "train", path(data));
        // The digits are no kind of file.
        said.unsay("data", "kind", "digits");
    }
    if let Some(batch) = o.batch {
        said.say("--batch", "train", "batch", count(batch));
    }
    if let Some(micro_batch) = &o.micro_batch {
        said.say("--micro-batch", "train", "micro_batch", micro_batch.as_str());
    }
    if let Some(optimizer) = &o.optimizer {
        said.say("--optimizer", "train", "optimizer", optimizer.as_str());
    }
    if let Some(lr) = o.lr {
        said.say("--lr", "train", "lr", lr);
    }
    if let Some(precision) = &o.precision {
        said.say("--precision", "train", "precision", precision.as_str());
    }
    if let Some(seed) = o.seed {
        said.say("--seed", "train", "seed", i64::try_from(seed).map_err(|_| usage("--seed must be below 2^63"))?);
    }
    if let Some(budget) = &o.budget {
        said.say("--budget", "memory", "budget", budget.as_str());
    }
    if let Some(budget) = &o.host_budget {
        said.say("--host-budget", "memory", "host_budget", budget.as_str());
    }
    if let Some(threads) = o.threads {
        said.say("--threads", "memory", "threads", count(threads));
    }
    if let Some(profile) = &o.profile {
        said.say("--profile", "memory", "profile", path(profile));
    }
    if let Some(device) = &o.device {
        said.say("--device", "memory", "device", device.as_str());
    }
    if !o.logical.is_empty() {
        said.say("--logical", "memory", "logical", o.logical.clone());
    }
    if let Some(growth) = &o.growth {
        said.say("--growth", "memory", "growth", growth.as_str());
    }
    Ok(said)
}

pub fn read_file(path: &Path) -> Result<Said> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| usage(format!("{}: {e}; `memfit init` writes a run file", path.display())))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let said = Said::read(&text, folder).map_err(|problem| usage(format!("{}: {problem}", path.display())))?;
    // What is wrong in the file is told with its name.
    said.spec().map_err(|problem| usage(format!("{}: {problem}", path.display())))?;
    Ok(said)
}

impl Run {
    /// A logical device has a limit, and so has what is planned for it: what others have left there.
    pub fn keep_to(&mut self, spec: &Spec, device: &Device) {
        let room = Room::of(device, &spec.memory);
        if let Some(room) = room.filter(|room| self.request.budget.is_none_or(|b| room.bytes < b)) {
            self.request.budget = Some(room.bytes);
            self.room = Some(room);
        }
    }

    /// What the planner is asked about.
    pub fn subject<'a>(&'a self, target: &'a dyn Target) -> Subject<'a> {
        Subject {
            name: &self.name,
            model: &self.model,
            labels: self.labels,
            training: &self.training,
            target,
            request: &self.request,
        }
    }
}

/// What `memfit plan` is asked.
pub enum PlanRun {
    Model {
        run: Box<Run>,
        wanted: Wanted,
    },
    /// Several, and what those of one device may take together.
    Together {
        runs: Vec<(Run, Place)>,
        budget: Option<u64>,
    },
    Diff {
        files: [PathBuf; 2],
        json: bool,
    },
}

pub enum Wanted {
    Plan { save: Option<PathBuf> },
    Frontier { svg: Option<PathBuf> },
    MaxBatch { budget: u64, save: Option<PathBuf> },
}

impl PlanRun {
    pub fn new(args: PlanArgs, json: bool) -> Result<PlanRun> {
        if let Some(files) = args.diff {
            let files = files.try_into().map_err(|_| usage("--diff takes two files: before and after"))?;
            return Ok(PlanRun::Diff { files, json });
        }
        for (option, path) in [("--save", &args.save), ("--svg", &args.svg)] {
            path.as_deref().map_or(Ok(()), |p| check_writable(option, p))?;
        }
        let train = TrainArgs { overrides: args.overrides, ..TrainArgs::default() };
        let (each, budget) = one_by_one(train)?;
        let mut runs = Vec::new();
        for (said, place) in places(&each, budget.is_some())? {
            let run = Run::new(&said.spec, &data::facts(&said.spec, &place.pool)?, json)?;
            runs.push((said.spec, run, place));
        }
        // What is left of a device is known when all pipelines have theirs.
        runs.iter_mut().for_each(|(spec, run, place)| run.keep_to(spec, &place.device));
        if runs.len() > 1 {
            if args.frontier || args.max_batch || args.save.is_some() {
                return Err(usage("--frontier, --max-batch and --save are of one run; give one run file"));
            }
            return Ok(PlanRun::Together {
                runs: runs.into_iter().map(|(_, run, place)| (run, place)).collect(),
                budget,
            });
        }
        let Some((_, mut run, _)) = runs.pop() else { return Err(usage("there is no run")) };
        let wanted = match (args.max_batch, args.frontier, run.request.budget) {
            (true, _, Some(budget)) => {
                if !matches!(run.request.micro_batch, MicroBatch::Auto | MicroBatch::Off) {
                    return Err(usage("--max-batch looks for a batch in one piece; leave out --micro-batch"));
                }
                run.request.micro_batch = MicroBatch::Off;
                Wanted::MaxBatch { budget, save: args.save }
            }
            (true, _, None) => return Err(usage("--max-batch needs a --budget")),
            (false, true, _) => Wanted::Frontier { svg: args.svg },
            (false, false, _) => Wanted::Plan { save: args.save },
        };
        Ok(PlanRun::Model { run: Box::new(run), wanted })
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

/// A validated packing.
pub struct PackRun {
    pub file: PathBuf,
    /// Bytes.
    pub capacity: Option<u64>,
    pub timeout: Duration,
    pub out: Option<PathBuf>,
    pub json: bool,
}

impl PackRun {
    pub fn new(args: Pack, json: bool) -> Result<PackRun> {
        let capacity = args.capacity.as_deref().map(parse_size).transpose();
        let timeout = Duration::try_from_secs_f64(args.timeout)
            .map_err(|_| usage(format!("--timeout must be a number of seconds, 0 or more, but is {}", args.timeout)))?;
        if let Some(path) = &args.out {
            check_writable("--out", path)?;
        }
        let capacity = capacity.map_err(usage).context("--capacity")?;
        Ok(PackRun { file: args.file, capacity, timeout, out: args.out, json })
    }
}

/// Bytes as people write them; whole numbers exactly.
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.trim().parse().or_else(|_| bytes::parse(text).map(|b| b.0))
}

/// Whether a file can be written there, as far as that can be known before it is.
pub fn check_writable(option: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !folder.is_dir() {
        let problem = format!("{option} {} cannot be written: name a file in a folder that exists", path.display());
        return Err(usage(problem));
    }
    Ok(())
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
