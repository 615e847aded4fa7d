//! Cures in the words of the command line: the planner says what to change so that a run fits, training what went wrong;
//! this says what to type.

use std::path::{Path, PathBuf};

use memfit::ExecError;
use memfit::plan::bytes::{Bytes, rounded_up, typed};
use memfit::plan::{Change, Fix, MicroBatch, PlanError, Refusal, TogetherRefusal, divisors};
use memfit::train::{CheckpointKind, Recovery, TrainError};
use memfit_run::config::{Key, find, scope};
use memfit_run::planning::Progress;
use toml::Value;

use crate::settings::{advised, advised_value, in_file, is_command, option_name};

/// The key that a change sets, and to what: as it is typed, and as a run file has it. None where only the system can.
fn setting(change: &Change) -> Option<(&'static Key, String, Value)> {
    let text = |section: &str, name: &str, text: String| Some((find(section, name)?, text.clone(), Value::from(text)));
    let count = |name: &str, n: usize| {
        Some((find("train", name)?, n.to_string(), Value::from(i64::try_from(n).unwrap_or(i64::MAX))))
    };
    let number = |name: &str, n: usize| Some((find("model", name)?, n.to_string(), Value::from(n as i64)));
    let numbers = |section: &str, name: &str, sizes: &[usize], between: &str| {
        let texts: Vec<String> = sizes.iter().map(usize::to_string).collect();
        let value: Vec<i64> = sizes.iter().map(|n| *n as i64).collect();
        Some((find(section, name)?, texts.join(between), Value::from(value)))
    };
    match change {
        Change::Budget(bytes) => text("memory", "budget", typed(*bytes)),
        Change::Batch(samples) => count("batch", *samples),
        Change::MicroBatch(MicroBatch::Auto) => text("train", "micro_batch", "auto".into()),
        Change::MicroBatch(MicroBatch::Off) => text("train", "micro_batch", "off".into()),
        Change::MicroBatch(MicroBatch::Exactly(samples)) => count("micro_batch", *samples),
        Change::MicroBatch(MicroBatch::Allow) => text("train", "micro_batch", "allow".into()),
        Change::Precision(precision) => text("train", "precision", precision.name().into()),
        Change::Shard(shard) => text("replicas", "shard", shard.name().into()),
        Change::Model(name) => text("model", "name", name.clone()),
        Change::Width(width) => Some((find("model", "width")?, width.to_string(), Value::from(f64::from(*width)))),
        Change::Hidden(units) => numbers("model", "hidden", units, ","),
        Change::Kernel(size) => number("kernel", *size),
        Change::Input(shape) => numbers("model", "input", shape, "x"),
        Change::ImageSize([height, width]) if height == width => {
            Some((find("data", "image_size")?, height.to_string(), Value::from(*height as i64)))
        }
        Change::ImageSize(size) => numbers("data", "image_size", size, "x"),
        Change::Sequence(tokens) => number("sequence", *tokens),
        Change::Split(limits) => {
            let sizes: Vec<String> = limits.iter().map(|&limit| rounded_up(limit)).collect();
            Some((find("memory", "logical")?, sizes.join(","), Value::from(sizes)))
        }
        Change::Total(bytes) => text("memory", "total", rounded_up(*bytes)),
        Change::ProcessLimit(_) => None,
    }
}

/// The option that makes a change; the key where it is none of this command.
pub fn option(change: &Change) -> String {
    let Some((key, text, value)) = setting(change) else { return of_system(change) };
    // Of an evaluation it is no key of the run.
    let is_own = matches!(change, Change::Batch(_)) && is_command(scope::EVAL);
    match option_name(key).or(is_own.then(|| "--batch".into())) {
        Some(option) => format!("{option} {text}"),
        None => in_file(&format!("{} = {value}", key.path())),
    }
}

/// What to change in one of several runs is said in its run file; what is of all of them is typed.
fn of_several(change: &Change) -> String {
    if is_of_all(change) {
        return option(change);
    }
    setting(change).map_or_else(|| of_system(change), |(key, _, value)| format!("{} = {value}", key.path()))
}

/// Whether a change is one of the device or the process, which the runs share.
fn is_of_all(change: &Change) -> bool {
    matches!(change, Change::Split(_) | Change::Total(_) | Change::ProcessLimit(_))
}

/// What no option does.
fn of_system(change: &Change) -> String {
    match change {
        Change::ProcessLimit(bytes) => format!("(a limit of {} for the process)", rounded_up(*bytes)),
        other => format!("({other})"),
    }
}

/// What planning is at, in a few words.
pub fn progress(progress: Progress) -> String {
    match progress {
        Progress::Survey(run) => run.to_string(),
        Progress::Trying(change) => option(change),
    }
}

/// What makes all changes of a fix: options, or lines of its run file for one of several runs.
pub fn options(fix: &Fix) -> String {
    if is_command(scope::SEVERAL) {
        let place = if fix.changes.iter().all(is_of_all) { "" } else { " in its run file" };
        return fix.changes.iter().map(of_several).collect::<Vec<_>>().join(", ") + place;
    }
    fix.changes.iter().map(option).collect::<Vec<_>>().join(" ")
}

/// What else changes by a fix; empty if nothing.
pub fn note(fix: &Fix) -> String {
    fix.effect.as_ref().map_or(String::new(), ToString::to_string)
}

/// Why a budget is too small, and what to type instead.
pub fn refusal(refusal: &Refusal) -> String {
    let mut text = refusal.facts();
    if refusal.fixes.is_empty() {
        let (needed, bytes) = (Bytes(refusal.needed), refusal.needed);
        return if is_command(scope::EVAL) || is_command(scope::PREDICT) {
            text + &format!("\n  it runs where {needed} ({bytes} bytes) are free")
        } else {
            text + &format!("\n  a budget of {needed} ({bytes} bytes) fits")
        };
    }
    let are_timed = refusal.fixes.iter().any(|fix| fix.seconds > 0.0);
    let order = if are_timed { ", fastest for a sample first" } else { "" };
    text += &format!("\n  what would fit, each planned{order}:");
    text + &tables(&refusal.fixes, width(&refusal.fixes))
}

/// Why a budget is too small for several runs, and what to type instead.
pub fn refusal_together(refusal: &TogetherRefusal) -> String {
    let mut text = refusal.facts() + "\n  what would fit:";
    if let Some(cure) = &refusal.cure {
        text += &format!("\n    {}  together, as they are", option(cure));
    }
    text += &format!("\n    {}", refusal.in_sequence());
    let width = width(refusal.members.iter().flat_map(|m| &m.fixes));
    for (i, member) in refusal.to_be_changed().into_iter().enumerate() {
        let word = if i == 0 { "or" } else { "and" };
        text += &format!("\n  {word} one of these for {}, each planned:", member.name);
        text += &tables(&member.fixes, width);
    }
    text
}

/// Columns of the widest options.
fn width<'a>(fixes: impl IntoIterator<Item = &'a Fix>) -> usize {
    fixes.into_iter().map(|fix| options(fix).len()).max().unwrap_or(0)
}

/// What trains the same model, and behind it what trains another one.
fn tables(fixes: &[Fix], width: usize) -> String {
    let (others, same): (Vec<&Fix>, Vec<&Fix>) = fixes.iter().partition(|fix| fix.is_other_model());
    let head = if others.is_empty() {
        ""
    } else {
        "\n  or other models, whose training is another one and has other results:"
    };
    table(&same, width) + head + &table(&others, width)
}

/// A line for each fix: what to type, and what it comes to.
fn table(fixes: &[&Fix], width: usize) -> String {
    let line = |fix: &Fix| {
        let note = if fix.effect.is_none() { String::new() } else { format!("  ({})", note(fix)) };
        // Of evaluation no time is predicted.
        let times = if fix.seconds > 0.0 {
            let (step, sample) = (fix.seconds * 1e3, fix.seconds_per_sample * 1e3);
            format!("  {step:>8.1} ms a step  {sample:>7.2} ms a sample")
        } else {
            String::new()
        };
        format!("\n    {:<width$}  {:>8}{times}{note}", options(fix), Bytes(fix.device_bytes()).to_string())
    };
    fixes.iter().copied().map(line).collect()
}

/// What to give so that lanes and micro-batches fit the replicas; none for errors of anything else.
pub fn lanes(error: &PlanError) -> Option<String> {
    let set = |section: &str, name: &str, value: &str| find(section, name).map(|key| advised_value(key, value));
    match *error {
        // It has as many lanes as it had replicas.
        PlanError::Synchronised { lanes, .. } if is_command(scope::RESUME) => {
            Some(format!("; go on with {}", set("replicas", "count", &lanes.to_string())?))
        }
        PlanError::Synchronised { lanes, replicas, batch, micro_batch } => {
            let even = batch / replicas.max(1) * replicas;
            let changes = [
                (even != batch).then(|| set("train", "batch", &even.to_string())),
                (lanes != replicas).then(|| set("replicas", "lanes", &replicas.to_string())),
                (micro_batch != batch / lanes.max(1)).then(|| set("train", "micro_batch", "off")),
            ];
            let changes: Vec<String> = changes.into_iter().flatten().flatten().collect();
            Some(format!("; give {}, or {}", changes.join(" "), set("replicas", "batch_norm", "leaf")?))
        }
        PlanError::Lanes { lanes, batch, micro_batch, .. } if lanes > 0 && batch.is_multiple_of(lanes) => {
            let fits = divisors(batch / lanes).into_iter().find(|n| *n <= micro_batch)?;
            Some(format!("; give {}, or \"off\" for a lane at a time", set("train", "micro_batch", &fits.to_string())?))
        }
        _ => None,
    }
}

/// What to do about a test set that cannot be read, when the run was saved.
pub fn test_set(folder: &Path, step: u32) -> String {
    format!(
        "that is in the test set: mend it; `memfit train --resume {}` then goes on from step {step}",
        folder.display()
    )
}

/// What to do about a device that does not do what it was asked for; none where nothing helps.
pub fn device(error: &ExecError) -> Option<String> {
    match error {
        ExecError::OutOfMemory { .. } => {
            Some(format!("; plan for less with {}, or end what else holds memory there", advised("memory", "budget")))
        }
        ExecError::Threads { .. } => {
            let fewer = [advised("memory", "threads"), advised("replicas", "count")].join(" or ");
            Some(format!("; give fewer with {fewer}, or raise the system's limit of threads"))
        }
        ExecError::Device { device, .. } if device.starts_with("gpu") => {
            let processor = find("memory", "device").map_or_else(String::new, |key| advised_value(key, "cpu"));
            Some(format!("; `memfit devices` lists what there is, and {processor} computes on the processor"))
        }
        _ => None,
    }
}

/// Errors of training whose cure is an option or a command; none for those that say it themselves.
pub fn training(error: &TrainError) -> Option<String> {
    let last_good = |saved: &Option<PathBuf>| match saved {
        Some(path) => format!("{} is the last good checkpoint: resume it", path.display()),
        None => "no checkpoint was kept: start again".into(),
    };
    Some(match error {
        TrainError::Diverged { step, loss, lr, saved } => {
            let saved = last_good(saved);
            format!("the loss is {loss} at step {step} with a learning rate of {lr}; {saved} with a smaller --lr")
        }
        TrainError::TestDiverged { step, loss, lr, saved } => format!(
            "the loss on the test set is {loss} after step {step}, with a learning rate of {lr}; {} with a smaller --lr",
            last_good(saved)
        ),
        TrainError::Overflow { step, skips, lr, saved } => format!(
            "{skips} steps in a row, up to step {step}, overflowed in f16 and changed nothing, at every scale of the \
             loss; {} with a smaller --lr than {lr}, or begin another run in bf16 (--precision mixed)",
            last_good(saved)
        ),
        TrainError::Begin { .. } => format!("{error} with --out"),
        TrainError::RunExists { folder } => format!(
            "{0} holds a run already; `memfit train --resume {0}` goes on with it, or give another folder",
            folder.display()
        ),
        // Its folder is that of the run.
        TrainError::Foreign { path, kind } if is_command(scope::RESUME) => {
            format!("{} ({kind}) is not of a run, which would write over it; move it away", path.display())
        }
        TrainError::Foreign { .. } => format!("{error}: --out"),
        TrainError::NoFolder { .. } => format!("{error} with --out"),
        TrainError::Damaged { path: damaged, problem, recovery: Recovery::Resume { which, step, path } } => {
            // The folder is resumed from its last checkpoint.
            let from = if *which == CheckpointKind::Last { path.parent().unwrap_or(path) } else { path };
            format!(
                "{}: {problem}; {} (step {step}) is intact: `memfit train --resume {}` goes on from it",
                damaged.display(),
                which.file_name(),
                from.display()
            )
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit::plan::{Effect, Need};
    use memfit::{Half, Precision};

    fn fix(changes: &[Change], effect: Option<Effect>) -> Fix {
        Fix {
            changes: changes.to_vec(),
            effect,
            arena_bytes: 5 << 20,
            staging_bytes: 0,
            seconds: 0.0123,
            seconds_per_sample: 0.00041,
        }
    }

    #[test]
    fn every_change_has_its_option() {
        let (batch, off) = (Change::Batch(24), Change::MicroBatch(MicroBatch::Off));
        for (changes, expected) in [
            (vec![Change::Budget(3 << 29)], "--budget 1.50GiB"),
            (vec![batch, off], "--batch 24 --micro-batch off"),
            (vec![Change::MicroBatch(MicroBatch::Exactly(8))], "--micro-batch 8"),
            (vec![Change::Precision(Precision::Mixed(Half::Bf16))], "--precision mixed"),
            (vec![Change::Model("resnet18".into())], "--model resnet18"),
            (vec![Change::Split(vec![8 << 20, 11 << 19])], "--logical 8.00MiB,5.50MiB"),
            (vec![Change::Total(11 << 19)], "--total 5.50MiB"),
            (vec![Change::ProcessLimit(11 << 19)], "(a limit of 5.50MiB for the process)"),
        ] {
            assert_eq!(options(&fix(&changes, None)), expected);
        }
    }

    #[test]
    fn fixes_stand_in_columns_under_the_facts() {
        let fixes = vec![
            fix(&[Change::Budget(3 << 20)], None),
            fix(&[Change::MicroBatch(MicroBatch::Exactly(1))], Some(Effect::BatchStatistics { samples: 1 })),
        ];
        let expected = "
    --budget 3.00MiB  5.00 MiB      12.3 ms a step     0.41 ms a sample
    --micro-batch 1   5.00 MiB      12.3 ms a step     0.41 ms a sample  (batch statistics then come from 1 sample)";
        assert_eq!(tables(&fixes, width(&fixes)), expected);
        let need = |name: &str, transient_bytes, fixes: &[Fix]| Need {
            name: name.into(),
            state_bytes: 1 << 20,
            transient_bytes,
            staging_bytes: 0,
            transient_bound: 0,
            fixes: fixes.to_vec(),
        };
        let mut refused = TogetherRefusal {
            most_staging: 0,
            budget: 4 << 20,
            needed: 5 << 20,
            lower_bound: 2 << 20,
            members: vec![need("a", 3 << 20, &fixes), need("b", 1 << 20, &[])],
            cure: Some(Change::Budget(5 << 20)),
        };
        let offered = "
  what would fit:
    --budget 5.00MiB  together, as they are
    one after the other: each alone fits into 4.00 MiB
  or one of these for a, each planned:";
        assert_eq!(refusal_together(&refused), refused.facts() + offered + expected);
        // One that stays too large keeps all of them out.
        refused.members[0].fixes.clear();
        refused.cure = None;
        let offered = "\n  what would fit:\n    one after the other: each alone fits into 4.00 MiB";
        assert_eq!(refusal_together(&refused), refused.facts() + offered);
    }
}
