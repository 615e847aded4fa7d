//! What a run has when it can begin: every name known, every number in range, its device, its part of the host's memory, its
//! data sets open. Made from a [`RunConfig`]; runs of one process share its devices, and are made together.

mod common;
mod memory;

use std::collections::HashSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memfit::data::BytePool;
use memfit::exec::{Device, Reservation};
use memfit::nn::zoo::Stem;
use memfit::plan::Target;
use memfit::plan::bytes::rounded_up;
use memfit::{Request, Subject, ZooModel};

use crate::config::{Origin, RunConfig};
use crate::device::{Devices, Placement, part};
use crate::error::{Result, RunError, named};
use crate::host_budget;
use crate::process::ProcessMemory;
use crate::replicas::{Crew, Peers};
use crate::room::Room;
use crate::step_config::request;

pub use common::Common;
pub(crate) use common::model_of;
pub(crate) use memory::Pool;

/// The model of the data that are built in.
pub const DIGITS: &str = "digits";

/// A replica of a run in this process. What it has in common with the others is read as if it were its own.
pub struct RunResources {
    common: Arc<Common>,
    /// What it is called among the runs of the process.
    pub label: String,
    /// With what its device leaves of the budget.
    pub request: Request,
    /// What may be planned with, as it is said or chosen.
    budget: Option<u64>,
    pub threads: usize,
    /// Where it computes: its arena is taken there.
    pub device: Device,
    /// Where all else of it is: the same device on the CPU.
    pub host: Device,
    /// What the data pipeline holds is drawn from here, ...
    pub pool: BytePool,
    /// ... and all that it may hold is taken of the host, until the run is over.
    pool_memory: Reservation,
    /// Whether it may become smaller where the arena does not fit beside it, since nobody said its size.
    pool_gives_way: bool,
    /// The smallest that is enough, as far as that is tried.
    least_pool: OnceLock<u64>,
    /// What is kept of the process for the plan and its kernels.
    _plan_memory: Option<Reservation>,
    /// And for what is exchanged with other replicas, where the device has memory of its own.
    exchange_memory: Option<Reservation>,
    /// What others have left of its device, where that is a limit.
    pub room: Option<Room>,
    /// Which of the replicas in this process it is.
    pub index: usize,
    /// The others of this process, of the first one.
    pub others: Vec<RunResources>,
}

impl Deref for RunResources {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// What a run is called, and by whom it is trained.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub label: String,
    pub is_one_of_several: bool,
    pub crew: Crew,
}

/// What a run is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Train,
    /// A few steps here that leave nothing; on numbers that mean nothing, where no data are said.
    Profile,
    /// Maybe for a larger machine than this.
    Plan,
    /// Evaluation and prediction, maybe on a smaller machine than it was trained on.
    Answer,
}

/// Opens the runs of a process. Where there is a budget for all, it holds instead of what each says.
pub fn open(configs: Vec<RunConfig>, purpose: Purpose, has_budget_for_all: bool) -> Result<Vec<RunResources>> {
    open_among(configs, purpose, has_budget_for_all, None)
}

/// The same where other processes may train the same runs.
pub fn open_among(
    mut configs: Vec<RunConfig>,
    purpose: Purpose,
    has_budget_for_all: bool,
    peers: Option<&dyn Peers>,
) -> Result<Vec<RunResources>> {
    share_split(&mut configs)?;
    configs.iter_mut().try_for_each(RunConfig::settle_image_size)?;
    if has_budget_for_all {
        configs.iter_mut().for_each(|config| config.unset("memory", "budget"));
    }
    let crews = crews(&mut configs, purpose, peers)?;
    check_parts(&configs, &crews)?;
    let limits = configs.first().map_or(Vec::new(), |config| config.memory.logical.clone());
    let said: Vec<Option<&str>> = configs.iter().map(|config| config.memory.device.as_deref()).collect();
    Devices::load_drivers(&said)?;
    let (whole, process) = ProcessMemory::new(&configs, &crews)?;
    let devices = Devices::new(whole, &limits, &said)?;
    let on = placements(&devices, &said, &crews)?;
    let labels = labels(&configs);
    let mut pools = Vec::new();
    for (i, (config, places)) in configs.iter().zip(&on).enumerate() {
        for (index, place) in places.iter().enumerate() {
            let co_runs = on.iter().filter(|other| other[index].host.name() == place.host.name()).count();
            let config = &host_share(config, crews[i].here)?;
            pools.push(Pool::new(config, purpose, place, process.as_deref(), co_runs, &labels[i])?);
        }
    }
    let several = configs.len() > 1;
    let (mut runs, mut pools) = (Vec::new(), pools.into_iter());
    for (((config, places), label), crew) in configs.into_iter().zip(on).zip(labels).zip(crews) {
        let identity = Identity { label: label.clone(), is_one_of_several: several, crew };
        let mut own = places.into_iter().zip(pools.by_ref());
        let Some((place, pool)) = own.next() else { continue };
        let (asked, on) = (config.clone(), place.clone());
        let run = RunResources::new(config, purpose, place, pool, process.clone(), identity);
        let run = run.map_err(|error| host_budget::advise(error, &asked, purpose, &on, crew.here));
        let mut run = named(&label, several, run)?;
        let another = |(i, (place, pool))| run.another(i + 1, place, pool);
        run.others = own.take(crew.here - 1).enumerate().map(another).collect::<Result<_>>()?;
        runs.push(run);
    }
    // What is left of a device is known when all pipelines and plans have theirs.
    for run in &mut runs {
        let kept = run.for_each_replica(RunResources::keep_room_for_plan);
        run.named(kept)?;
    }
    for run in &mut runs {
        run.for_each_replica(|replica| {
            replica.limit_to_device();
            Ok(())
        })?;
    }
    check_folders(&runs)?;
    Ok(runs)
}

/// The replicas of each run. Runs of one process are trained by as many.
fn crews(configs: &mut [RunConfig], purpose: Purpose, peers: Option<&dyn Peers>) -> Result<Vec<Crew>> {
    let mut crews = Vec::new();
    for config in configs.iter_mut() {
        crews.push(Crew::new(config, purpose, peers)?);
    }
    match crews.iter().find(|crew| crew.size != crews[0].size) {
        Some(_) => Err(RunError::conflict(
            "runs of one process are trained over the same devices, by as many replicas; say replicas.count once, or the same in \
             each",
        )),
        None => Ok(crews),
    }
}

/// Replicas on the parts of a device have one each, by number: one that is named would be none of theirs. What a folder says is
/// where its run was, maybe alone.
fn check_parts(configs: &[RunConfig], crews: &[Crew]) -> Result<()> {
    for (config, _) in configs.iter().zip(crews).filter(|(c, crew)| crew.are_threads() && !c.memory.logical.is_empty())
    {
        let is_said = config.resumed_folder().is_none() || config.is_overridden("memory", "device");
        let named = config.memory.device.as_deref().filter(|name| is_said && part(name).is_some());
        if let Some(name) = named {
            return Err(RunError::PartForReplicas { name: name.into() });
        }
    }
    Ok(())
}

/// By run and replica, where its memory is.
fn placements(devices: &Devices, said: &[Option<&str>], crews: &[Crew]) -> Result<Vec<Vec<Placement>>> {
    // Replicas on one device share it out; runs of the same replica have the same share.
    let mut shares: Vec<(String, usize, Device)> = Vec::new();
    let mut all = Vec::new();
    for (i, (name, crew)) in said.iter().zip(crews).enumerate() {
        let mut own = Vec::new();
        for index in 0..crew.here {
            let mut place = devices.of_replica(*name, i, crew, index)?;
            if crew.are_threads() && !devices.is_split() && place.device.has_known_limit() {
                let (name, is_on_host) = (place.device.name().to_string(), place.is_on_host());
                let known = shares.iter().find(|(of, number, _)| *of == name && *number == index).map(|s| s.2.clone());
                let share = known.unwrap_or_else(|| {
                    let share = place.device.limited(place.device.free() / crew.here as u64);
                    shares.push((name, index, share.clone()));
                    share
                });
                place = Placement { host: if is_on_host { share.clone() } else { place.host }, device: share };
            }
            own.push(place);
        }
        all.push(own);
    }
    Ok(all)
}

/// By the number of the replica within the process, what each run has there: the first replicas first.
pub fn by_replica(runs: Vec<RunResources>) -> Vec<Vec<RunResources>> {
    let mut all: Vec<Vec<RunResources>> = Vec::new();
    for mut run in runs {
        let others = std::mem::take(&mut run.others);
        for (index, replica) in std::iter::once(run).chain(others).enumerate() {
            if all.len() <= index {
                all.push(Vec::new());
            }
            all[index].push(replica);
        }
    }
    all
}

/// What a run says for its data pipeline is for all of its replicas here.
fn host_share(config: &RunConfig, here: usize) -> Result<RunConfig> {
    let mut config = config.clone();
    if let Some(all) = config.memory.host_budget.filter(|_| here > 1) {
        config.set_count("memory", "host_budget", all / here as u64)?;
    }
    Ok(config)
}

/// Opens a run that only answers.
pub fn open_to_answer(mut config: RunConfig) -> Result<RunResources> {
    config.settle_image_size()?;
    Devices::load_drivers(&[config.memory.device.as_deref()])?;
    let (whole, process) = ProcessMemory::new(std::slice::from_ref(&config), &[Crew::ALONE])?;
    let place = Devices::of_one(whole, &config.memory)?;
    let label = label_of(&config);
    let pool = Pool::new(&config, Purpose::Answer, &place, process.as_deref(), 1, &label)?;
    let identity = Identity { label, is_one_of_several: false, crew: Crew::ALONE };
    let mut run = RunResources::new(config, Purpose::Answer, place, pool, process, identity)?;
    run.keep_room_for_plan()?;
    run.limit_to_device();
    Ok(run)
}

/// How the device is split is said once, or alike; each run has it, so that it finds its part again when it goes on alone.
fn share_split(configs: &mut [RunConfig]) -> Result<()> {
    let mut splits = configs.iter().map(|c| &c.memory.logical).filter(|split| !split.is_empty());
    let Some(split) = splits.next().cloned() else { return Ok(()) };
    if splits.any(|other| *other != split) {
        return Err(RunError::conflict(
            "the runs split the device in different ways; say memory.logical once, or the same in each",
        ));
    }
    let sizes: Vec<i64> = split.iter().map(|&l| i64::try_from(l).unwrap_or(i64::MAX)).collect();
    for config in configs.iter_mut().filter(|c| c.memory.logical.is_empty()) {
        config.set("memory", "logical", sizes.clone())?;
    }
    Ok(())
}

/// What each run is called: after its file or folder, or its model; with more of the path where that is not enough.
fn labels(configs: &[RunConfig]) -> Vec<String> {
    let name = |config: &RunConfig, parts: usize| {
        let path = match config.origin() {
            Origin::File(file) => file.with_extension(""),
            Origin::RunDir(folder) => folder.path.clone(),
            Origin::Defaults => return label_of(config),
        };
        let names: Vec<_> = path.components().rev().take(parts).map(|c| c.as_os_str().to_string_lossy()).collect();
        names.into_iter().rev().collect::<Vec<_>>().join("/")
    };
    let with_parts = |parts: usize| configs.iter().map(|config| name(config, parts)).collect::<Vec<String>>();
    let is_clear = |labels: &[String]| labels.iter().collect::<HashSet<_>>().len() == labels.len();
    let numbered = || with_parts(1).into_iter().enumerate().map(|(i, label)| format!("{label}-{}", i + 1)).collect();
    (1..=3).map(with_parts).find(|labels| is_clear(labels)).unwrap_or_else(numbered)
}

/// Of a run that is neither a file nor a folder: its model, else its data.
fn label_of(config: &RunConfig) -> String {
    let data = config.data.train.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    config.model.name.clone().or(data).unwrap_or_else(|| DIGITS.into())
}

/// Two runs cannot write into one folder.
fn check_folders(runs: &[RunResources]) -> Result<()> {
    let folders = runs.iter().filter_map(|r| r.config.resumed_folder().or(r.config.train.out.as_deref()));
    let mut seen: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| folder.into());
        if seen.contains(&whole) {
            return Err(RunError::SameFolder { folder: whole });
        }
        seen.push(whole);
    }
    Ok(())
}

impl RunResources {
    /// The first replica of a run in this process.
    pub(crate) fn new(
        mut config: RunConfig,
        purpose: Purpose,
        place: Placement,
        pool: Pool,
        process: Option<Arc<ProcessMemory>>,
        identity: Identity,
    ) -> Result<RunResources> {
        common::settle_device(&mut config, purpose, &place, &identity.crew)?;
        let label = identity.label.clone();
        let common = Common::new(config, purpose, place.device.name(), &pool.pool, process, identity)?;
        RunResources::of(Arc::new(common), label, 0, place, pool)
    }

    /// Another replica of the same run in this process.
    fn another(&self, index: usize, place: Placement, pool: Pool) -> Result<RunResources> {
        let label = format!("{}, replica {}", self.label, self.crew.first + index);
        RunResources::of(self.common.clone(), label, index, place, pool)
    }

    /// The replica of this number within the process.
    fn of(
        common: Arc<Common>,
        label: String,
        index: usize,
        Placement { device, host }: Placement,
        Pool { pool, memory, gives_way }: Pool,
    ) -> Result<RunResources> {
        let mut request = request(&common.config)?;
        request.exchange = common.crew.exchange(common.crew.first + index);
        request.do_lanes_follow = !common.crew.are_lanes_said;
        request.cost_model = Some(common.cost_model.clone());
        let process = common.process.as_ref().filter(|p| p.is_limited());
        request.planning_room = process.map(|p| p.planning_room(pool.used()));
        Ok(RunResources {
            label,
            budget: request.budget,
            request,
            threads: common.crew.threads(common.crew.all_threads(&common.config)?, index),
            device,
            host,
            pool,
            pool_memory: memory,
            pool_gives_way: gives_way,
            least_pool: OnceLock::new(),
            _plan_memory: None,
            exchange_memory: None,
            room: None,
            index,
            others: Vec::new(),
            common,
        })
    }

    /// Does something to this replica, and to the others of the process.
    pub(crate) fn for_each_replica(&mut self, mut each: impl FnMut(&mut RunResources) -> Result<()>) -> Result<()> {
        each(self)?;
        self.others.iter_mut().try_for_each(each)
    }

    /// Those of the process, which its replicas share.
    pub(crate) fn all_threads(&self) -> Result<usize> {
        self.crew.all_threads(&self.config)
    }

    /// What is wrong, with the number of the replica where the process has several.
    pub fn of_replica<T>(&self, result: Result<T>) -> Result<T> {
        let rank = self.rank();
        result.map_err(|source| match source {
            source if self.crew.are_threads() => RunError::OfReplica { rank, source: Box::new(source) },
            source => source,
        })
    }

    /// Its number among all replicas.
    pub fn rank(&self) -> usize {
        self.crew.first + self.index
    }

    /// Whether arena and data pipeline are taken of the same memory.
    pub fn is_on_host(&self) -> bool {
        self.device.name() == self.host.name()
    }

    /// Where its memory is.
    pub(crate) fn placement(&self) -> Placement {
        Placement { device: self.device.clone(), host: self.host.clone() }
    }

    /// What the planner is asked about.
    pub fn subject<'a>(&'a self, target: &'a dyn Target) -> Subject<'a> {
        Subject { model: &self.model, training: &self.training, target, request: &self.request }
    }

    /// Whether nothing is said about memory: then a budget is taken with which there is something to plan.
    pub(crate) fn may_choose_budget(&self) -> bool {
        *self.config.origin() == Origin::Defaults
            && self.config.memory.budget.is_none()
            && self.config.memory.logical.is_empty()
            && self.config.data.train.is_none()
            && self.name == DIGITS
    }

    /// Plans for another of the replicas from now on: where a run is only planned, the one that holds the most.
    pub fn plan_for_rank(&mut self, rank: usize) -> Result<()> {
        self.request.exchange = self.crew.exchange(rank);
        self.threads = self.crew.threads(self.all_threads()?, rank);
        Ok(())
    }

    /// What nobody said of model and memory: keys, and what holds for them.
    pub(crate) fn assumed(&self) -> Vec<(&'static str, String)> {
        let has_stem = ZooModel::from_name(&self.name).and_then(|model| model.with_stem(Stem::Imagenet)).is_ok();
        let stem = (has_stem && self.config.model.stem.is_none()).then(|| ("model.stem", "imagenet".to_string()));
        let chosen = self.budget.filter(|_| self.config.memory.budget.is_none());
        stem.into_iter().chain(chosen.map(|bytes| ("memory.budget", rounded_up(bytes)))).collect()
    }

    /// What is wrong, with the name of the run where there are several.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        named(&self.label, self.is_one_of_several, result)
    }
}

/// As many as asked for, or one a core.
pub fn threads(asked: Option<usize>) -> Result<usize> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    match asked.unwrap_or(cores) {
        n @ 1..=1024 => Ok(n),
        n => Err(RunError::of_key("memory", "threads", format!("must be between 1 and 1024, but is {n}"))),
    }
}
