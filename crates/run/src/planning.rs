//! From a run to its plan: what `plan` and `train` share. A plan is made, or read from a file.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use memfit::exec::Executor;
use memfit::fixes::plan_or_fixes;
use memfit::plan::bytes::Bytes;
use memfit::plan::save::{self, Labels, Saved};
use memfit::plan::{Change, MicroBatch, Survey};
use memfit::{CpuExecutor, Phase, Plan, PlanError, Training};

use crate::device::Room;
use crate::error::{bad_data, no_room, usage};
use crate::file;
use crate::resources::Run;

/// A plan, and what is told with it.
pub struct Planned {
    pub plan: Plan,
    /// The rest is known only of a plan that was made just now.
    pub planning_ms: Option<f64>,
    /// What keeping everything takes with the tools that cost no time.
    pub free_tools_bytes: Option<u64>,
    /// What makes a sample's result depend on the rest of its batch, in words.
    pub mixer: Option<String>,
    pub frozen: Option<Frozen>,
    /// Of a run that shares its device: the micro-batch that it would have alone.
    pub micro_batch_alone: Option<usize>,
    pub file: Option<String>,
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

/// The fastest plan that fits, or a refusal that says what would.
pub fn plan(run: &Run, executor: &CpuExecutor, progress: &mut dyn FnMut(Progress)) -> Result<Planned> {
    let start = Instant::now();
    let survey = run.subject(executor.target()).survey()?;
    pick(run, executor, &survey, start, progress)
}

/// The same of a survey that was made since `start`.
pub fn pick(
    run: &Run,
    executor: &CpuExecutor,
    survey: &Survey,
    start: Instant,
    progress: &mut dyn FnMut(Progress),
) -> Result<Planned> {
    let subject = run.subject(executor.target());
    let plan = plan_or_fixes(&subject, survey, run.request.budget, &mut |c| progress(Progress::Trying(c)));
    Ok(told(run, executor, survey, plan.map_err(|e| explain(e, run.tight_room()))?, start)?)
}

/// A refusal says who has the rest of the device, and how it would leave more.
pub fn explain(error: PlanError, room: Option<&Room>) -> anyhow::Error {
    let Some(room) = room else { return error.into() };
    match error {
        PlanError::Refused(mut refusal) => {
            // A larger budget is none where the device is what is too small.
            for fix in refusal.fixes.iter_mut().filter(|f| matches!(f.changes[..], [Change::Budget(_)])) {
                fix.changes = room.cure(fix.arena_bytes).into_iter().collect();
            }
            refusal.fixes.retain(|f| !f.changes.is_empty());
            anyhow::Error::from(PlanError::Refused(refusal)).context(room.words())
        }
        PlanError::TogetherRefused(mut refusal) => {
            refusal.cure = room.cure(refusal.needed);
            anyhow::Error::from(PlanError::TogetherRefused(refusal)).context(room.words())
        }
        other => other.into(),
    }
}

/// A plan of a survey that was made since `start`, with what is told with it.
pub fn told(
    run: &Run,
    executor: &CpuExecutor,
    survey: &Survey,
    plan: Plan,
    start: Instant,
) -> Result<Planned, PlanError> {
    Ok(Planned {
        plan,
        planning_ms: Some(start.elapsed().as_secs_f64() * 1e3),
        free_tools_bytes: Some(survey.free_tools_bytes()),
        mixer: run.subject(executor.target()).batch_dependence()?,
        frozen: frozen(run, executor, survey)?,
        micro_batch_alone: None,
        file: None,
    })
}

/// Against the same run with everything trained.
fn frozen(run: &Run, executor: &CpuExecutor, survey: &Survey) -> Result<Option<Frozen>, PlanError> {
    let parameters = run.training.frozen.len();
    if parameters == 0 {
        return Ok(None);
    }
    let training = Training { frozen: Default::default(), ..run.training.clone() };
    let all = Run { training, ..run.clone() };
    let needed = all.subject(executor.target()).survey()?.free_tools_bytes();
    Ok(Some(Frozen { parameters, saved_bytes: needed.saturating_sub(survey.free_tools_bytes()) }))
}

impl Planned {
    /// A plan that was made before.
    pub fn of_file(plan: Plan, file: String) -> Planned {
        Planned {
            plan,
            planning_ms: None,
            free_tools_bytes: None,
            mixer: None,
            frozen: None,
            micro_batch_alone: None,
            file: Some(file),
        }
    }
}

/// The next round figure above the smallest plan, as long as that is less than what is taken where nothing is made again: so
/// the planner has something to do.
pub fn budget_to_plan_for(run: &Run, executor: &CpuExecutor) -> Result<u64, PlanError> {
    let survey = run.subject(executor.target()).survey()?;
    let frontier = survey.frontier();
    let free = survey.free_tools_bytes();
    let smallest = frontier.last().map_or(free, |p| p.arena_bytes);
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

/// What a plan is made for, each with the option that sets it.
const OPTIONS: [(&str, &str); 8] = [
    ("model", "--model "),
    ("input", "--input "),
    ("classes", "--classes "),
    ("batch", "--batch "),
    ("precision", "--precision "),
    ("optimizer", "--optimizer "),
    ("threads", "--threads "),
    ("instructions", ""),
];

/// What a plan with this micro-batch is made for.
pub fn labels(run: &Run, executor: &CpuExecutor, micro_batch: usize) -> Result<Labels> {
    let subject = run.subject(executor.target());
    let programs = subject.programs(micro_batch)?;
    let eval = programs.iter().find(|(phase, _)| *phase == Phase::Eval).map(|(_, graph)| graph);
    let shape = |v| eval.map(|g| g.shape(v).to_vec()).unwrap_or_default();
    let input = eval.and_then(|g| g.input("x")).map(shape).unwrap_or_default();
    let classes = eval.and_then(|g| g.output("logits")).map(shape).unwrap_or_default();
    let sizes: Vec<String> = input.iter().skip(1).map(usize::to_string).collect();
    let values = [
        run.name.clone(),
        sizes.join("x"),
        classes.last().map_or(String::new(), usize::to_string),
        run.request.batch.to_string(),
        run.training.precision.name().to_string(),
        run.optimizer.clone(),
        run.threads.to_string(),
        executor.isa().name().to_string(),
    ];
    let mut labels: Labels = OPTIONS.iter().map(|(key, _)| key.to_string()).zip(values).collect();
    labels.insert("source".into(), format!("{:016x}", memfit::source_hash(&programs)));
    Ok(labels)
}

pub fn write(run: &Run, executor: &CpuExecutor, plan: &Plan, path: &Path) -> Result<()> {
    file::write(path, &save::save(plan, &labels(run, executor, plan.micro_batch)?))
}

/// A saved plan, sound but not yet known to be of any use here.
pub fn read(path: &Path) -> Result<Saved> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(bad_data).with_context(name)?;
    save::load(&text).map_err(bad_data).with_context(name)
}

/// Exactly the plan of a file, if it is one of this run on this device.
pub fn load(run: &Run, executor: &CpuExecutor, path: &Path) -> Result<Planned> {
    let saved = read(path)?;
    let name = path.display().to_string();
    let (theirs, ours) = (saved.plan.batch, run.request.batch);
    if theirs != ours {
        let differs = format!("its batch is {theirs}, here it is {ours} (use --batch {theirs})");
        return Err(usage(format!("the plan {name} is of another run: {differs}")));
    }
    check_labels(run, &saved, &labels(run, executor, saved.plan.micro_batch)?, &name)?;
    let plan = saved.for_target(executor.target()).map_err(bad_data).with_context(|| name.clone())?;
    if let Some(budget) = run.request.budget.filter(|b| *b < plan.arena_bytes()) {
        let message =
            format!("the plan {name} takes {}, more than the budget of {}", Bytes(plan.arena_bytes()), Bytes(budget));
        let held = run.tight_room().map_or(String::new(), |room| format!("{}: ", room.words()));
        return Err(no_room(held + &message, budget, plan.arena_bytes()));
    }
    let mixer = run.subject(executor.target()).batch_dependence()?;
    Ok(Planned { mixer, ..Planned::of_file(plan, name) })
}

/// Whether a saved plan is one of this run.
pub fn check_labels(run: &Run, saved: &Saved, own: &Labels, name: &str) -> Result<()> {
    let differs = differences(run, saved, own);
    if !differs.is_empty() {
        return Err(usage(format!("the plan {name} is of another run: {}", differs.join("; "))));
    }
    if saved.labels.get("source") != own.get("source") {
        return Err(usage(format!(
            "the plan {name} is of another version of the model (it was made by memfit {}); plan anew",
            saved.version
        )));
    }
    Ok(())
}

/// In what the plan is not that of the run, each with its cure.
fn differences(run: &Run, saved: &Saved, own: &Labels) -> Vec<String> {
    let mut found = Vec::new();
    for (key, option) in OPTIONS {
        let (theirs, ours) = (saved.labels.get(key).map_or("", |v| v), own.get(key).map_or("", |v| v));
        if theirs != ours {
            let cure = if option.is_empty() { "plan for this device".into() } else { format!("use {option}{theirs}") };
            found.push(format!("its {key} is {theirs}, here it is {ours} ({cure})"));
        }
    }
    let micro = saved.plan.micro_batch;
    let wanted = match run.request.micro_batch {
        MicroBatch::Exactly(n) => n,
        MicroBatch::Off => run.request.batch,
        MicroBatch::Auto | MicroBatch::Allow => micro,
    };
    if found.is_empty() && wanted != micro {
        found.push(format!("its micro-batch is {micro}, here it is {wanted} (use --micro-batch {micro})"));
    }
    found
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
