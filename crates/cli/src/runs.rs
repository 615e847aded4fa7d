//! The runs that a command is asked for, one or several: what is said about each, where each computes, and under which name.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use memfit::exec::Device;
use memfit::plan::MicroBatch;
use memfit::train::Which;

use crate::args::{Overrides, PlanArgs, TrainArgs};
use crate::failure::usage;
use crate::run::{check_writable, said, said_besides};
use memfit_run::config::{Said, Spec};
use memfit_run::data::{self, Opened};
use memfit_run::device::{self, Devices};
use memfit_run::run_dir;
use memfit_run::together::{Neighbour, groups};
use memfit_run::{DIGITS, Facts, Place, Run, parse_size};

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
        let (each, budget) = split_args(args)?;
        let placed = places(&each, budget.is_some(), Place::new)?;
        let mut runs = Vec::new();
        for (args, (said, place)) in each.iter().zip(placed) {
            let label = (each.len() > 1).then(|| place.label.clone());
            runs.push(named(&label, TrainRun::new(args, said, place, label.clone(), json))?);
        }
        let folders = runs.iter().filter_map(|r| r.resume.as_ref().map(|r| &r.folder).or(r.spec.train.out.as_ref()));
        let folders: Vec<PathBuf> = folders
            .map(|f| f.canonicalize().or_else(|_| std::path::absolute(f)).unwrap_or_else(|_| f.clone()))
            .collect();
        if let Some((_, folder)) = folders.iter().enumerate().find(|(i, f)| folders[..*i].contains(f)) {
            let folder = folder.display();
            return Err(usage(format!("two of the runs have the folder {folder}; give each its own train.out")));
        }
        let all = TrainRuns { runs, budget };
        all.check_growth()?;
        Ok(all)
    }

    /// Runs in one memory take its pages in one way.
    fn check_growth(&self) -> Result<()> {
        let growth = |i: &usize| device::growth(&self.runs[*i].spec.memory);
        let differ = |group: &Vec<usize>| group.iter().any(|i| growth(i) != growth(&group[0]));
        match groups(&self.neighbours()).iter().any(differ) {
            true => Err(usage("runs in one memory grow alike; say the same memory.growth in each, or --growth")),
            false => Ok(()),
        }
    }

    pub fn neighbours(&self) -> Vec<Neighbour<'_>> {
        self.runs.iter().map(|r| r.place.neighbour(&r.run)).collect()
    }
}

/// What went wrong, told with the name of the run where there are several.
pub fn named<T>(label: &Option<String>, result: Result<T>) -> Result<T> {
    match label {
        Some(label) => result.with_context(|| label.clone()),
        None => result,
    }
}

/// The arguments of each run, and the budget of all where there are several.
fn split_args(args: TrainArgs) -> Result<(Vec<TrainArgs>, Option<u64>)> {
    let Overrides { files, .. } = &args.overrides;
    let count = files.len().max(args.resume.len());
    if count < 2 {
        return Ok((vec![args], None));
    }
    if !args.resume.is_empty() && args.overrides.budget.is_some() {
        return Err(usage("--resume goes on with the plans that the runs have; leave out --budget"));
    }
    // What is said of all, and not of one.
    let Overrides { budget, host_budget, logical, growth, threads, cost_model, profile, .. } = args.overrides.clone();
    let of_all = Overrides { host_budget, logical, growth, threads, cost_model, profile, ..Overrides::default() };
    let allowed = Overrides { files: files.clone(), budget: budget.clone(), ..of_all.clone() };
    if args.overrides != allowed || args.out.is_some() || args.weights.is_some() || args.plan.is_some() {
        return Err(usage(
            "for several runs there are --budget, --host-budget, --logical, --growth, --threads, --cost-model, \
             --epochs, --steps and --skip-bad; what is said of one belongs into its run file",
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

/// How a place is made, of a label, what is said, a device and how many runs are on it.
type MakePlace = fn(String, &Spec, Device, usize) -> Result<Place>;

/// What is said about each run, and its place. A budget for all holds instead of what a file says of one.
fn places(each: &[TrainArgs], has_budget: bool, make: MakePlace) -> Result<Vec<(SaidRun, Place)>> {
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
        let place = make(label, &said.spec, device.clone(), neighbours)?;
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
                // None of these changes a bit of what it would have been but the learning rate, which is asked for.
                let may_not = Overrides {
                    lr: None,
                    host_budget: None,
                    threads: None,
                    logical: Vec::new(),
                    device: None,
                    growth: None,
                    ..args.overrides.clone()
                };
                if may_not != Overrides::default() {
                    return Err(usage(
                        "--resume goes on with the run as it was; --epochs, --steps, --lr, --host-budget, --logical, \
                         --device, --growth and --skip-bad may change",
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
    fn new(args: &TrainArgs, said: SaidRun, place: Place, label: Option<String>, json: bool) -> Result<TrainRun> {
        let SaidRun { resume, mut said, spec } = said;
        if !spec.memory.logical.is_empty() {
            // So that the run finds it again when it goes on alone.
            said.set("memory", "device", place.device.name());
        }
        let opened = data::open(&spec, &place.pool)?;
        // A run's folder says what the data said when it began.
        let facts = if resume.is_some() { &Facts::default() } else { &opened.facts };
        let run = Run { label, ..Run::new(&spec, facts, json)? };
        let untold = args.overrides.files.is_empty() && spec.memory.budget.is_none() && args.plan.is_none();
        let budget_untold = untold && resume.is_none() && spec.data.train.is_none() && spec.memory.logical.is_empty();
        let plan = args.plan.clone();
        Ok(TrainRun { run, spec, said, place, opened, plan, resume, budget_untold })
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
        let (each, budget) = split_args(train)?;
        let mut runs = Vec::new();
        for (said, place) in places(&each, budget.is_some(), Place::to_plan)? {
            let label = (each.len() > 1).then(|| place.label.clone());
            let facts = named(&label, data::facts(&said.spec, &place.pool))?;
            let run = named(&label, Run::new(&said.spec, &facts, json))?;
            runs.push((said.spec, Run { label, ..run }, place));
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
