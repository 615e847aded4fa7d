//! A validated run: every name known, every number in range.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use memfit::nn::optim::Optimizer;
use memfit::plan::MicroBatch;
use memfit::plan::Target;
use memfit::plan::bytes;
use memfit::{Model, Precision, Request, Subject, Training};

use crate::args::{Overrides, Pack, PlanArgs, TrainArgs};
use crate::failure::usage;
use crate::profile;

#[derive(Clone)]
pub struct Run {
    pub name: String,
    pub model: Model,
    pub training: Training,
    pub request: Request,
    /// Where the profile is from; none for the one that ships with memfit.
    pub profile_file: Option<PathBuf>,
    pub optimizer: String,
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
    /// Of a plan that was made before.
    pub plan: Option<PathBuf>,
}

impl TrainRun {
    pub fn new(args: TrainArgs, json: bool) -> Result<TrainRun> {
        Ok(TrainRun {
            run: Run::new(args.overrides, json)?,
            epochs: args.epochs.unwrap_or(20),
            steps: args.steps,
            out: args.out,
            weights: args.weights,
            plan: args.plan,
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
        let optimizer_name = o.optimizer.unwrap_or_else(|| "adam".into());
        let optimizer = Optimizer::from_name(&optimizer_name).map_err(usage)?;
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
            request.budget = Some(parse_size(budget).map_err(usage).context("--budget")?);
        }
        let (profile, profile_file) = profile::in_use(o.profile.as_deref())?;
        request.profile = profile;
        let threads = threads(o.threads)?;
        Ok(Run {
            name,
            model,
            training: Training { precision, ..Training::new(optimizer.update) },
            request,
            profile_file,
            optimizer: optimizer_name,
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

/// What `memfit plan` is asked.
pub enum PlanRun {
    Model { run: Box<Run>, wanted: Wanted },
    Diff { files: [PathBuf; 2], json: bool },
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
        let mut run = Run::new(args.overrides, json)?;
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
