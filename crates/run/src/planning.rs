//! From a run to its plan: made for a device, or read from a file.

use std::path::Path;
use std::time::Instant;

use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes;
use memfit::ir::Replica;
use memfit::ir::op::Op;
use memfit::nn::zoo::Task;
use memfit::plan::save::{self, Labels, SavedPlan};
use memfit::plan::{Change, MicroBatch, Point, Survey, Target, check_source};
use memfit::transform::{BatchDependence, BatchNorm, Exchange, Shard, StepGraph};
use memfit::{AnyExecutor, Phase, Plan, PlanError, Request, Subject, Training};
use serde::{Deserialize, Serialize};

use crate::config::find;
use crate::error::{Difference, Result, RunError};
use crate::file;
use crate::resources::RunResources;
use crate::room::Room;

/// A plan, and what is known with it.
pub struct Planned {
    pub plan: Plan,
    /// The rest is known only of a plan that was made just now.
    pub planning_ms: Option<f64>,
    /// What keeping everything takes with the tools that cost no time.
    pub free_tools_bytes: Option<u64>,
    /// What could have been chosen; nothing of a plan that was made before, for which nothing is surveyed again.
    pub frontier: Vec<Point>,
    /// What makes a sample's result depend on the rest of its batch.
    pub batch_dependence: Option<BatchDependence>,
    pub frozen: Option<Frozen>,
    /// Of a run that shares its device: the micro-batch that it would have alone.
    pub micro_batch_alone: Option<usize>,
    /// Of a run that goes on: the device that it was on before, where that is another one.
    pub moved_from: Option<String>,
    /// Where it is for a larger machine than this, or for a process with more than this one may have.
    pub too_large_here: Option<TooLargeHere>,
    pub file: Option<String>,
}

/// What training would do here with a plan that is for somewhere else.
#[derive(Clone, Debug)]
pub struct TooLargeHere {
    pub room: Room,
    /// Whether there is a slower plan that fits; else it would be refused.
    pub is_there_a_smaller_one: bool,
}

/// What it saves not to train some parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    pub parameters: usize,
    /// Of what the free tools need.
    pub saved_bytes: u64,
}

/// What planning is at.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Looks for plans of the run that is called so.
    Survey(&'a str),
    /// Plans what might fit where nothing else does.
    Trying(&'a Change),
}

pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// The fastest plan that fits, or a refusal that says what would.
pub fn plan(run: &mut RunResources, target: &dyn Target, progress: OnProgress) -> Result<Planned> {
    let start = Instant::now();
    let subject = run.subject(target);
    let survey = subject.survey()?;
    let budget = run.make_room(smallest(&survey));
    let plan = plan_or_fixes(&subject, &survey, budget, &mut |c| progress(Progress::Trying(c)));
    let plan = plan.map_err(|e| explain(e, run.tight_room().as_ref()))?;
    let mut planned = Planned::new(&subject, &survey, plan, start)?;
    planned.too_large_here = run.room_here().filter(|room| room.bytes < planned.plan.device_bytes()).map(|room| {
        let is_there_a_smaller_one = smallest(&survey) <= room.bytes.saturating_add(run.spare_for_arena());
        TooLargeHere { room, is_there_a_smaller_one }
    });
    drop(survey);
    run.look_at_room_again();
    Ok(planned)
}

/// What the smallest plan takes of its device.
pub(crate) fn smallest(survey: &Survey) -> u64 {
    survey.frontier().last().map_or_else(|| survey.free_tools_bytes(), Point::device_bytes)
}

/// A refusal says who has the rest of the device, and how it would leave more.
pub(crate) fn explain(error: PlanError, room: Option<&Room>) -> RunError {
    let Some(room) = room else { return error.into() };
    let source = match error {
        PlanError::Refused(mut refusal) => {
            // A larger budget is none where the device is what is too small.
            for fix in refusal.fixes.iter_mut().filter(|f| matches!(f.changes[..], [Change::Budget(_)])) {
                fix.changes = room.cure(fix.device_bytes()).into_iter().collect();
            }
            refusal.fixes.retain(|f| !f.changes.is_empty());
            PlanError::Refused(refusal)
        }
        PlanError::TogetherRefused(mut refusal) => {
            refusal.cure = room.cure(refusal.needed);
            PlanError::TogetherRefused(refusal)
        }
        other => return other.into(),
    };
    RunError::Plan { source, room: Some(Box::new(room.clone())) }
}

impl Planned {
    /// A plan of a survey that was made since `start`.
    pub(crate) fn new(subject: &Subject, survey: &Survey, plan: Plan, start: Instant) -> Result<Planned, PlanError> {
        Ok(Planned {
            plan,
            planning_ms: Some(start.elapsed().as_secs_f64() * 1e3),
            free_tools_bytes: Some(survey.free_tools_bytes()),
            frontier: survey.frontier(),
            batch_dependence: subject.batch_dependence()?,
            frozen: Frozen::new(subject, survey)?,
            micro_batch_alone: None,
            moved_from: None,
            too_large_here: None,
            file: None,
        })
    }

    /// A plan that was made before.
    pub(crate) fn from_file(plan: Plan, file: String) -> Planned {
        Planned {
            plan,
            planning_ms: None,
            free_tools_bytes: None,
            frontier: Vec::new(),
            batch_dependence: None,
            frozen: None,
            micro_batch_alone: None,
            moved_from: None,
            too_large_here: None,
            file: Some(file),
        }
    }
}

impl Frozen {
    /// Against the same run with everything trained.
    fn new(subject: &Subject, survey: &Survey) -> Result<Option<Frozen>, PlanError> {
        let parameters = subject.training.frozen.len();
        if parameters == 0 {
            return Ok(None);
        }
        let training = Training { frozen: Default::default(), ..subject.training.clone() };
        let needed = Subject { training: &training, ..*subject }.survey()?.free_tools_bytes();
        Ok(Some(Frozen { parameters, saved_bytes: needed.saturating_sub(survey.free_tools_bytes()) }))
    }
}

/// The next round figure above the smallest plan, as long as that is less than what is taken where nothing is recomputed: so
/// the planner has something to do.
pub(crate) fn budget_to_plan_for(run: &RunResources, target: &dyn Target) -> Result<u64, PlanError> {
    let survey = run.subject(target).survey()?;
    let beside = survey.frontier().first().map_or(0, |p| p.staging_bytes);
    let (smallest, free) = (smallest(&survey), survey.free_tools_bytes() + beside);
    let round = round_up(smallest);
    Ok(if round < free { round } else { smallest })
}

/// To a tenth of a MiB, or to whole ones where there are ten and more.
fn round_up(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match bytes {
        0..10_485_760 => (bytes * 10).div_ceil(MIB) * MIB / 10,
        _ => bytes.div_ceil(MIB) * MIB,
    }
}

/// What a plan is made for, each with the key that sets it; what has none is of the device.
const MADE_FOR: [(&str, Option<(&str, &str)>); 10] = [
    ("model", Some(("model", "name"))),
    ("input", Some(("model", "input"))),
    ("classes", Some(("model", "classes"))),
    ("batch", Some(("train", "batch"))),
    ("precision", Some(("train", "precision"))),
    ("optimizer", Some(("train", "optimizer"))),
    (LANES, Some(("replicas", "lanes"))),
    (BATCH_NORM, Some(("replicas", "batch_norm"))),
    (THREADS, Some(("memory", "threads"))),
    (INSTRUCTIONS, None),
];

/// Keys that change what is computed, besides. What a plan has no label for is of an older version.
const COMPUTED: [(&str, &str); 12] = [
    ("model", "stem"),
    ("model", "dropout"),
    ("model", "layers"),
    ("model", "width"),
    ("model", "heads"),
    ("model", "freeze"),
    ("model", "trainable"),
    ("data", "mixup"),
    ("train", "weight_decay"),
    ("train", "clip_norm"),
    ("train", "clip_value"),
    ("train", "label_smoothing"),
];

/// The label that says how many of these are set, each by a label of its own.
const KEYS_SET: &str = "keys";

/// The label of the number of lanes.
const LANES: &str = "lanes";

/// The label of whose statistics batch norms take.
const BATCH_NORM: &str = "batch norm";

/// The label of the number of threads.
pub(crate) const THREADS: &str = "threads";

/// Where a plan's device differs.
pub const DEVICE: &str = "device";

/// What computes, by the labels of a plan.
fn device_of(labels: &Labels) -> String {
    labels.get(AnyExecutor::ADAPTER).cloned().unwrap_or_else(|| "the CPU".into())
}

/// What a saved plan was made for: all that is to be known of it where another one takes its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MadeFor {
    pub labels: Labels,
    pub micro_batch: usize,
    /// Of the program that made it.
    version: String,
}

impl MadeFor {
    pub fn of(saved: &SavedPlan) -> MadeFor {
        MadeFor { labels: saved.labels.clone(), micro_batch: saved.plan.micro_batch, version: saved.version.clone() }
    }
}

/// The device that a saved plan was made for, where it is another one.
pub(crate) fn other_device(executor: &AnyExecutor, made: &MadeFor) -> Option<String> {
    let own = executor.identity().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Some(device_of(&made.labels)).filter(|theirs| *theirs != device_of(&own))
}

/// The label of the instruction set.
pub const INSTRUCTIONS: &str = "instructions";

/// What a plan with this micro-batch is made for.
pub fn labels(run: &RunResources, executor: &AnyExecutor, micro_batch: usize) -> Result<Labels> {
    let replica = Replica { lanes: run.crew.lanes, ..Replica::ALONE };
    let alone = Exchange { replica, ..Exchange::ALONE };
    Ok(labels_of(run, executor, &programs(run, executor, micro_batch, alone)?))
}

/// The programs of a replica. What a run computes is that of one alone with as many lanes.
fn programs(
    run: &RunResources,
    executor: &AnyExecutor,
    micro_batch: usize,
    exchange: Exchange,
) -> Result<Vec<(Phase, StepGraph)>> {
    let request = Request { exchange, ..run.request.clone() };
    Ok(Subject { request: &request, ..run.subject(executor.target()) }.programs(micro_batch)?)
}

/// What the replica of a plan exchanges with others.
fn exchange_of(run: &RunResources, plan: &Plan) -> Exchange {
    let ops = || plan.programs.iter().flat_map(|p| p.graph.nodes()).map(|node| &node.op);
    let piece = ops().find_map(|op| if let Op::Join(join) = op { Some(join.piece) } else { None });
    let is_sharded = ops().any(|op| matches!(op, Op::Replicate(_)));
    Exchange {
        replica: plan.replica,
        piece: piece.unwrap_or(Exchange::PIECE),
        shard: if is_sharded { Shard::Optimizer } else { Shard::None },
        batch_norm: run.crew.batch_norm,
    }
}

/// Whether a plan is that of another replica than this run's, or exchanges otherwise.
pub(crate) fn is_of_other_replica(run: &RunResources, plan: &Plan) -> bool {
    exchange_of(run, plan) != run.request.exchange
}

fn labels_of(run: &RunResources, executor: &AnyExecutor, programs: &[(Phase, StepGraph)]) -> Labels {
    let eval = programs.iter().find(|(phase, _)| *phase == Phase::Eval).map(|(_, step)| &step.graph);
    let shape = |v| eval.map(|g| g.shape(v).to_vec()).unwrap_or_default();
    let input = eval.and_then(|g| g.input("x")).map(shape).unwrap_or_default();
    let classes = eval.and_then(|g| g.output("logits")).map(shape).unwrap_or_default();
    let sizes: Vec<String> = input.iter().skip(1).map(usize::to_string).collect();
    let own = [
        ("model", run.name.clone()),
        ("input", sizes.join("x")),
        ("classes", classes.last().map_or(String::new(), usize::to_string)),
        ("batch", run.request.batch.to_string()),
        ("precision", run.training.precision.name().to_string()),
        ("optimizer", run.optimizer.clone()),
        (LANES, run.crew.lanes.to_string()),
        (BATCH_NORM, if run.crew.batch_norm == BatchNorm::Leaf { "leaf" } else { "synchronised" }.to_string()),
        ("source", format!("{:016x}", memfit::source_hash(programs))),
    ];
    let mut labels: Labels =
        own.into_iter().chain(executor.identity()).map(|(name, value)| (name.to_string(), value)).collect();
    let set = COMPUTED.map(|(section, name)| Some((format!("{section}.{name}"), run.config.value(section, name)?)));
    labels.insert(KEYS_SET.into(), set.iter().flatten().count().to_string());
    labels.extend(set.into_iter().flatten().map(|(path, value)| (path, value.to_string())));
    labels
}

/// Writes a plan of this run.
pub fn write(run: &RunResources, executor: &AnyExecutor, plan: &Plan, path: &Path) -> Result<()> {
    file::write(path, &save::save(plan, &labels(run, executor, plan.micro_batch)?))
}

/// No plan has more bytes: the largest of the zoo have some MiB.
const LARGEST_PLAN: u64 = 1 << 30;

/// A saved plan, sound but not yet known to be of any use here.
pub fn read(path: &Path) -> Result<SavedPlan> {
    let bad = |problem: String| RunError::BadFile { path: path.into(), problem };
    let text = memfit_files::read_text(path, LARGEST_PLAN).map_err(|e| bad(e.to_string()))?;
    save::load(&text).map_err(|e| bad(e.to_string()))
}

/// Exactly the plan of a file, if it is one of this run on this device.
pub fn load(run: &mut RunResources, executor: &AnyExecutor, path: &Path) -> Result<Planned> {
    let saved = read(path)?;
    let file = path.display().to_string();
    let (theirs, ours) = (saved.plan.batch, run.request.batch);
    if theirs != ours {
        let (theirs, ours) = (theirs.to_string(), ours.to_string());
        let differences = vec![Difference { what: "batch".into(), theirs, ours, key: find("train", "batch") }];
        return Err(RunError::OtherPlan { file, differences });
    }
    check(run, executor, &saved, &file)?;
    if is_of_other_replica(run, &saved.plan) {
        let words = |r: Replica| format!("{} of {} with {} lanes", r.rank, r.count, r.lanes);
        let (theirs, ours) = (words(saved.plan.replica), words(run.request.exchange.replica));
        let differences = vec![Difference { what: "replica".into(), theirs, ours, key: find("replicas", "count") }];
        return Err(RunError::OtherPlan { file, differences });
    }
    let plan = saved
        .for_target(executor.target())
        .map_err(|e| RunError::BadFile { path: path.into(), problem: e.to_string() })?;
    let needed = plan.device_bytes();
    if let Some(budget) = run.make_room(needed).filter(|b| *b < needed) {
        let room = run.tight_room().map(Box::new);
        return Err(RunError::PlanTooLarge { file, needed, budget, room });
    }
    run.look_at_room_again();
    let batch_dependence = run.subject(executor.target()).batch_dependence()?;
    Ok(Planned { batch_dependence, ..Planned::from_file(plan, file) })
}

/// Whether a saved plan is one of this run: made for it, and of the graphs that its model builds. Those in the file may have
/// been changed by hand.
pub(crate) fn check(run: &RunResources, executor: &AnyExecutor, saved: &SavedPlan, file: &str) -> Result<()> {
    check_but(run, executor, &MadeFor::of(saved), file, |_| false)?;
    check_programs(run, executor, &saved.plan, file)
}

/// The same of a run that goes on, for which it can be planned again for other threads or another device; without the plan where
/// that is not here.
pub(crate) fn check_resumed(
    run: &RunResources,
    executor: &AnyExecutor,
    made: &MadeFor,
    saved: Option<&SavedPlan>,
    file: &str,
) -> Result<()> {
    check_but(run, executor, made, file, |what| what == THREADS || what == DEVICE)?;
    saved.map_or(Ok(()), |saved| check_programs(run, executor, &saved.plan, file))
}

fn check_but(
    run: &RunResources,
    executor: &AnyExecutor,
    made: &MadeFor,
    file: &str,
    may_differ: fn(&str) -> bool,
) -> Result<()> {
    let own = labels(run, executor, usable(run, made.micro_batch))?;
    let mut differences = differences(run, made, &own);
    differences.retain(|difference| !may_differ(&difference.what));
    if !differences.is_empty() {
        return Err(RunError::OtherPlan { file: file.into(), differences });
    }
    if made.labels.get("source") != own.get("source") {
        return Err(RunError::OtherVersion { file: file.into(), version: made.version.clone() });
    }
    Ok(())
}

/// A larger micro-batch has no program here; then the batches differ, which is said.
fn usable(run: &RunResources, micro_batch: usize) -> usize {
    micro_batch.min(run.request.batch)
}

fn check_programs(run: &RunResources, executor: &AnyExecutor, plan: &Plan, file: &str) -> Result<()> {
    let programs = programs(run, executor, usable(run, plan.micro_batch), exchange_of(run, plan))?;
    check_source(plan, &programs).map_err(|departure| RunError::PlanDeparts { file: file.into(), departure })
}

/// In what the plan is not that of the run.
fn differences(run: &RunResources, made: &MadeFor, own: &Labels) -> Vec<Difference> {
    let mut found = Vec::new();
    let [theirs, ours] = [&made.labels, own].map(device_of);
    let is_elsewhere = theirs != ours;
    if is_elsewhere {
        found.push(Difference { what: DEVICE.into(), theirs, ours, key: None });
    }
    for (what, key) in MADE_FOR.into_iter().filter(|(what, _)| !is_elsewhere || ![THREADS, INSTRUCTIONS].contains(what))
    {
        // A plan of an older version has one lane.
        let unsaid = match what {
            LANES => "1",
            BATCH_NORM => "leaf",
            _ => "",
        };
        let [theirs, ours] = [&made.labels, own].map(|labels| labels.get(what).cloned().unwrap_or(unsaid.into()));
        if theirs != ours {
            // A model of tokens has a vocabulary where others have classes.
            let is_vocabulary = what == "classes" && run.model.task() == Task::Tokens;
            let key = if is_vocabulary { Some(("model", "vocabulary")) } else { key };
            let what = what.to_string();
            found.push(Difference { what, theirs, ours, key: key.and_then(|(section, name)| find(section, name)) });
        }
    }
    if made.labels.contains_key(KEYS_SET) {
        found.extend(COMPUTED.into_iter().filter_map(|(section, name)| key_difference(section, name, made, own)));
    }
    let micro_batch = made.micro_batch;
    let wanted = match run.request.micro_batch {
        MicroBatch::Exactly(n) => n,
        MicroBatch::Off => run.request.batch,
        MicroBatch::Auto | MicroBatch::Allow => micro_batch,
    };
    if found.is_empty() && wanted != micro_batch {
        let (theirs, ours) = (micro_batch.to_string(), wanted.to_string());
        found.push(Difference { what: "micro-batch".into(), theirs, ours, key: find("train", "micro_batch") });
    }
    found
}

/// Of a key that is set otherwise, or not at all.
fn key_difference(section: &str, name: &str, made: &MadeFor, own: &Labels) -> Option<Difference> {
    let what = format!("{section}.{name}");
    let [theirs, ours] =
        [&made.labels, own].map(|labels| labels.get(&what).cloned().unwrap_or_else(|| NOT_SET.to_string()));
    (theirs != ours).then(|| Difference { key: find(section, name), what, theirs, ours })
}

/// What stands for the value of a key that is not set.
pub const NOT_SET: &str = "not set";

/// A plan for the threads and replicas that there are, which computes what the saved one does, to the bit. `theirs` is the number of
/// threads that it was made for, where that is another one.
pub(crate) fn plan_again(
    run: &mut RunResources,
    executor: &AnyExecutor,
    micro_batch: usize,
    theirs: Option<&str>,
) -> Result<Planned> {
    let start = Instant::now();
    let request = Request { micro_batch: MicroBatch::Exactly(micro_batch), ..run.request.clone() };
    let subject = Subject { request: &request, ..run.subject(executor.target()) };
    let survey = subject.survey()?;
    let budget = run.make_room(smallest(&survey));
    let plan = survey.plan(budget).map_err(|e| match (e, theirs) {
        (PlanError::Refused(refusal), Some(theirs)) => RunError::PlanThreads {
            ours: run.threads,
            theirs: theirs.to_string(),
            needed: refusal.needed,
            budget: refusal.budget,
        },
        (other, _) => explain(other, run.tight_room().as_ref()),
    })?;
    let planned = Planned::new(&subject, &survey, plan, start)?;
    drop(survey);
    run.look_at_room_again();
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn budgets_are_round_and_no_smaller() {
        let mib = |tenths: u64| (tenths << 20) / 10;
        assert_eq!([round_up(1_892_736), round_up(mib(19)), round_up(1 << 20)], [mib(19), mib(19), 1 << 20]);
        assert_eq!([round_up((10 << 20) + 1), round_up(50 << 20)], [11 << 20, 50 << 20]);
    }
}
