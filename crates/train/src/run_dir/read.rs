//! Reading checkpoints. Nothing in a run's folder is trusted: a checkpoint is there when every file that it names is as
//! it was written. Writes nothing and takes no lock.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use memfit_exec::Checksum;
use memfit_files::{open_own, read_own_text};
use memfit_plan::save::{SaveError, SavedPlan, load};
use memfit_plan::{Plan, Target};

use super::names::{CheckpointKind, PLAN, is_tensors};
use crate::checkpoint::{Checkpoint, FileSum};
use crate::error::{Recovery, Result, TrainError};

/// No checkpoint of ours has more bytes.
const LARGEST_JSON: u64 = 1 << 20;

/// A checkpoint that was found whole: see [`Session::resume`](crate::Session::resume).
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRun {
    /// Where the run stands.
    pub checkpoint: Checkpoint,
    /// With the labels it was made for.
    pub plan: SavedPlan,
    tensors: PathBuf,
}

impl SavedRun {
    /// The file of all its states.
    pub fn tensors(&self) -> &Path {
        &self.tensors
    }

    /// Its states and its plan, so that whoever goes on does not hold the plan twice.
    pub fn into_parts(self) -> (SavedStates, SavedPlan) {
        let SavedRun { checkpoint, plan, tensors } = self;
        (SavedStates { checkpoint, tensors }, plan)
    }
}

/// What a session goes on from, on a plan that it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedStates {
    /// Where the run stands.
    pub checkpoint: Checkpoint,
    tensors: PathBuf,
}

impl SavedStates {
    /// The file of all states.
    pub fn tensors(&self) -> &Path {
        &self.tensors
    }
}

/// The plan of a run, if this device runs it.
pub fn plan_for(saved: SavedPlan, target: &dyn Target) -> Result<Plan> {
    saved.for_target(target).map_err(|e: SaveError| TrainError::OtherDevice { problem: e.to_string() })
}

/// Reads a checkpoint and checks every file that it names; the error of one that is damaged says how to go on from the
/// other. Takes no lock: whoever only looks may do so while a run goes on.
pub fn read(folder: &Path, which: CheckpointKind) -> Result<SavedRun> {
    let resume =
        |other: CheckpointKind, step| Recovery::Resume { which: other, step, path: folder.join(other.file_name()) };
    read_or(folder, which, resume)
}

/// The best checkpoint, or the last where no best was found yet. A best one that is damaged is an error: the last is
/// another model.
pub fn read_best(folder: &Path) -> Result<SavedRun> {
    match read_json(folder, CheckpointKind::Best) {
        Err(CheckpointProblem::Absent) => read(folder, CheckpointKind::Last),
        Ok(_) | Err(CheckpointProblem::Damaged(_)) => {
            read_or(folder, CheckpointKind::Best, |_, step| Recovery::RemoveBest { step })
        }
    }
}

/// Whether a checkpoint is there; one that is damaged is an error, with how to do without it.
pub(super) fn is_there(folder: &Path, which: CheckpointKind) -> Result<bool> {
    match read_whole(folder, which) {
        Ok(_) => Ok(true),
        Err(CheckpointProblem::Absent) => Ok(false),
        Err(CheckpointProblem::Damaged(damage)) => Err(damage.error(Recovery::MoveAway(which))),
    }
}

/// `recovery` says how to use the other checkpoint, of which step it is, if that is intact.
fn read_or(
    folder: &Path,
    which: CheckpointKind,
    recovery: impl FnOnce(CheckpointKind, u32) -> Recovery,
) -> Result<SavedRun> {
    let unread = match read_whole(folder, which) {
        Ok(saved) => return Ok(saved),
        Err(unread) => unread,
    };
    let other = read_whole(folder, which.other());
    let intact = other.as_ref().ok().map(|saved| recovery(which.other(), saved.checkpoint.step));
    let intact = intact.or_else(|| last_kept(folder, which));
    match (unread, intact) {
        (CheckpointProblem::Absent, None) => match other {
            Err(CheckpointProblem::Damaged(damage)) => Err(damage.error(Recovery::StartAnew)),
            _ => Err(TrainError::NoRun { folder: folder.into() }),
        },
        (CheckpointProblem::Absent, Some(recovery)) => {
            let path = folder.join(which.file_name());
            Err(TrainError::Damaged { path, problem: "it is not there".into(), recovery })
        }
        (CheckpointProblem::Damaged(damage), intact) => Err(damage.error(intact.unwrap_or(Recovery::StartAnew))),
    }
}

/// The latest of the checkpoints of steps that is intact, but for one.
fn last_kept(folder: &Path, but: CheckpointKind) -> Option<Recovery> {
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let step = |name: OsString| match CheckpointKind::of_file(&name)? {
        CheckpointKind::Step(step) => Some(step),
        CheckpointKind::Last | CheckpointKind::Best => None,
    };
    let mut steps: Vec<u32> = names.filter_map(step).filter(|step| CheckpointKind::Step(*step) != but).collect();
    steps.sort_unstable();
    steps.into_iter().rev().find_map(|step| {
        let which = CheckpointKind::Step(step);
        read_whole(folder, which).ok()?;
        Some(Recovery::Resume { which, step, path: folder.join(which.file_name()) })
    })
}

/// Why there is no checkpoint to be had.
pub(super) enum CheckpointProblem {
    Absent,
    Damaged(Damage),
}

pub(super) struct Damage {
    path: PathBuf,
    problem: String,
}

impl Damage {
    fn error(self, recovery: Recovery) -> TrainError {
        TrainError::Damaged { path: self.path, problem: self.problem, recovery }
    }
}

fn damaged(path: PathBuf, problem: impl ToString) -> CheckpointProblem {
    CheckpointProblem::Damaged(Damage { path, problem: problem.to_string() })
}

pub(super) fn read_json(folder: &Path, which: CheckpointKind) -> Result<Checkpoint, CheckpointProblem> {
    let path = folder.join(which.file_name());
    match read_own_text(&path, LARGEST_JSON) {
        Err(e) if e.kind() == ErrorKind::NotFound => Err(CheckpointProblem::Absent),
        Err(e) => Err(damaged(path, e)),
        Ok(text) => Checkpoint::from_text(&text).map_err(|problem| damaged(path, problem)),
    }
}

/// So often a checkpoint is read anew while its run replaces it.
const TRIES: usize = 20;

fn read_whole(folder: &Path, which: CheckpointKind) -> Result<SavedRun, CheckpointProblem> {
    read_in(folder, which, TRIES)
}

fn read_in(folder: &Path, which: CheckpointKind, tries: usize) -> Result<SavedRun, CheckpointProblem> {
    let checkpoint = read_json(folder, which)?;
    let json = || folder.join(which.file_name());
    if !is_tensors(OsStr::new(&checkpoint.tensors.name)) || checkpoint.plan.name != PLAN {
        return Err(damaged(json(), "it names files that no run has"));
    }
    let tensors = folder.join(&checkpoint.tensors.name);
    if let Err(problem) = check(&tensors, &checkpoint.tensors) {
        // Its run may have replaced it since: then the JSON names other tensors.
        let replaced = !tensors.exists() && tries > 0 && read_json(folder, which).is_ok_and(|now| now != checkpoint);
        return if replaced { read_in(folder, which, tries - 1) } else { Err(damaged(tensors, problem)) };
    }
    let path = folder.join(PLAN);
    check(&path, &checkpoint.plan).map_err(|problem| damaged(path.clone(), problem))?;
    let text = read_own_text(&path, checkpoint.plan.bytes).map_err(|e| damaged(path.clone(), e))?;
    let plan = load(&text).map_err(|e| damaged(path, e))?;
    Ok(SavedRun { checkpoint, plan, tensors })
}

/// Whether a file is as it was written.
fn check(path: &Path, expected: &FileSum) -> Result<(), String> {
    let mut file = open_own(path).map_err(|e| e.to_string())?;
    let bytes = file.metadata().map_err(|e| e.to_string())?.len();
    if bytes != expected.bytes {
        return Err(format!("it has {bytes} bytes, but was written with {}", expected.bytes));
    }
    let mut sum = Checksum::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|e| e.to_string())? {
            0 => break,
            n => sum.update(&buffer[..n]),
        }
    }
    if FileSum::new(&*expected.name, &sum) != *expected {
        return Err("it was changed since it was written: its checksum is another".into());
    }
    Ok(())
}
