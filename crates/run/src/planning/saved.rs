//! Saved plans: what they are made for, and whether one of them is a plan of this run.

use std::path::Path;

use memfit::exec::Executor;
use memfit::ir::Replica;
use memfit::ir::op::Op;
use memfit::nn::zoo::Task;
use memfit::plan::bytes::typed;
use memfit::plan::save::{self, Labels, SavedPlan};
use memfit::plan::{MicroBatch, Plan, check_source};
use memfit::transform::{BatchNorm, Exchange, Shard, StepGraph};
use memfit::{AnyExecutor, Phase, Request, Subject};
use serde::{Deserialize, Serialize};

use super::{Planned, plan_again};
use crate::config::find;
use crate::error::{Difference, Result, RunError};
use crate::file;
use crate::from_first::from_first;
use crate::replicas::Peers;
use crate::resources::RunResources;

/// What a plan is made for, each with the key that sets it; what has none is of the device.
const MADE_FOR: [(&str, Option<(&str, &str)>); 11] = [
    ("model", Some(("model", "name"))),
    ("input", Some(("model", "input"))),
    ("classes", Some(("model", "classes"))),
    (HIDDEN, Some(("model", "hidden"))),
    ("batch", Some(("train", "batch"))),
    ("precision", Some(("train", "precision"))),
    ("optimizer", Some(("train", "optimizer"))),
    (LANES, Some(("replicas", "lanes"))),
    (BATCH_NORM, Some(("replicas", "batch_norm"))),
    (THREADS, Some(("memory", "threads"))),
    (INSTRUCTIONS, None),
];

/// Keys that change what is computed, besides. What a plan has no label for is of an older version.
const COMPUTED: [(&str, &str); 14] = [
    ("model", "activation"),
    ("model", "kernel"),
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

/// The label of the units of hidden layers, which follow from the input where nobody says them.
const HIDDEN: &str = "hidden";

/// What a plan of an mlp has that is of the version before there was a choice.
const FORMER_HIDDEN: &str = "[2048, 2048]";

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
    let hidden = run.model.choices().into_iter().find(|choice| choice.name == HIDDEN);
    labels.extend(hidden.map(|choice| (HIDDEN.to_string(), choice.value)));
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
    parse(path, &read_text(path)?)
}

fn read_text(path: &Path) -> Result<String> {
    memfit_files::read_text(path, LARGEST_PLAN).map_err(|e| bad(path, e.to_string()))
}

fn parse(path: &Path, text: &str) -> Result<SavedPlan> {
    save::load(text).map_err(|e| bad(path, e.to_string()))
}

fn bad(path: &Path, problem: String) -> RunError {
    RunError::BadFile { path: path.into(), problem }
}

/// Exactly the plan of a file, if it is one of this run on this device; a replica that it is not of plans for itself. The first
/// process reads it, and all have to call this.
pub fn load(run: &mut RunResources, executor: &AnyExecutor, path: &Path, peers: Option<&dyn Peers>) -> Result<Planned> {
    let saved = parse(path, &from_first(peers, || read_text(path))?)?;
    let file = path.display().to_string();
    let (theirs, ours) = (saved.plan.batch, run.request.batch);
    if theirs != ours {
        let differences = vec![difference("batch", theirs, ours, ("train", "batch"))];
        return Err(RunError::OtherPlan { file, differences });
    }
    let of_crew = crew_differences(exchange_of(run, &saved.plan), run.request.exchange);
    if !of_crew.is_empty() {
        return Err(RunError::OtherPlan { file, differences: of_crew });
    }
    if saved.plan.replica.rank != run.rank() {
        // What is the same for all replicas; the rest is this one's.
        check_but(run, executor, &MadeFor::of(&saved), &file, |what| what == THREADS)?;
        check_programs(run, executor, &saved.plan, &file)?;
        return plan_again(run, executor, saved.plan.micro_batch, None);
    }
    check(run, executor, &saved, &file)?;
    let plan = saved.for_target(executor.target()).map_err(|e| bad(path, e.to_string()))?;
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
fn check(run: &RunResources, executor: &AnyExecutor, saved: &SavedPlan, file: &str) -> Result<()> {
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

fn difference(what: &str, theirs: impl ToString, ours: impl ToString, (section, name): (&str, &str)) -> Difference {
    Difference { what: what.into(), theirs: theirs.to_string(), ours: ours.to_string(), key: find(section, name) }
}

/// In what a plan is for other replicas than those of the run, and not only for another one of them.
fn crew_differences(theirs: Exchange, ours: Exchange) -> Vec<Difference> {
    let (count, own) = (theirs.replica.count, ours.replica.count);
    if count != own {
        return vec![difference("number of replicas", count, own, ("replicas", "count"))];
    }
    let mut found = Vec::new();
    if theirs.replica.lanes != ours.replica.lanes {
        found.push(difference(LANES, theirs.replica.lanes, ours.replica.lanes, ("replicas", "lanes")));
    }
    if theirs.piece != ours.piece {
        let [theirs, ours] = [theirs.piece, ours.piece].map(|bytes| typed(bytes as u64));
        found.push(difference("piece", theirs, ours, ("replicas", "piece")));
    }
    if theirs.shard != ours.shard {
        found.push(difference("shard", theirs.shard.name(), ours.shard.name(), ("replicas", "shard")));
    }
    found
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
            HIDDEN if made.labels.get("model").is_some_and(|name| name == "mlp") => FORMER_HIDDEN,
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
