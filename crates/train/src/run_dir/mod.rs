//! The folder of a run: its plan, and checkpoints that are there whole or not at all.
//!
//! `last.json`, `best.json` and those of steps that are kept (`step-00000400.json`) are the commit points: each names a file of
//! tensors and the plan, with their checksums.
//! New tensors get a name that no other content has, the JSON follows when they are durable, and only then goes what
//! no JSON names any more. So whoever looks at any instant finds a JSON whose files are there.
//!
//! `names.rs` has the names, `lock.rs` whose a folder is, `read.rs` the reading, `states.rs` the way of states back into
//! sessions; what is written and removed is here.

mod lock;
mod names;
mod read;
mod states;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use memfit_exec::Executor;
use memfit_exec::atomic_file::{AtomicFile, Faults, sync_folder};
use memfit_exec::weights::WeightsError;
use memfit_plan::Plan;
use memfit_plan::save::{Labels, save};

pub use names::{CLASSES, CheckpointKind, DATA, EVENTS, HISTORY, PLAN, RUN_FILE, WEIGHTS};
pub use read::{SavedRun, SavedStates, plan_for, read, read_best};
pub use states::{set_states, set_weights, set_weights_of};

use crate::checkpoint::{Checkpoint, FileSum, Progress};
use crate::error::{Result, TrainError};
use crate::session::Session;
use lock::Lock;
use names::{TENSORS, is_tensors, is_unfinished};
use read::{CheckpointProblem, is_there, read_json};

/// The folder of a run that this process, and no other, writes to.
///
/// ```
/// # use memfit_exec::{Executor, TensorView};
/// # use memfit_exec_cpu::CpuExecutor;
/// # use memfit_nn::{Model, Optimizer, zoo::Mlp};
/// # use memfit_plan::{Request, plan};
/// # use memfit_train::{Session, programs};
/// # use memfit_transform::Training;
/// #
/// # let cpu = CpuExecutor::new(1)?;
/// # let model = Mlp::new(4, &[8], 3);
/// # let training = Training::new(Optimizer::adam().update);
/// # let plan = plan(&|rows| programs(&model, &training, 8, rows), cpu.target(), &Request::new(8))?;
/// # let mut session = Session::new(cpu, plan, 1)?;
/// use memfit_train::{Progress, RunDir, CheckpointKind};
///
/// let folder = std::env::temp_dir().join(format!("memfit-run-dir-{}", std::process::id()));
/// let run = RunDir::create(&folder, session.plan(), &Default::default())?;
/// run.save(&session, &Progress::default(), &[CheckpointKind::Last])?;
/// drop(run);
///
/// let (run, saved) = RunDir::resume(&folder, CheckpointKind::Last)?;
/// let resumed = Session::resume(CpuExecutor::new(1)?, &saved)?;
/// assert_eq!(resumed.weight("fc1/weight")?, session.weight("fc1/weight")?);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RunDir {
    folder: PathBuf,
    plan: FileSum,
    faults: Faults,
    lock: Lock,
    /// How many checkpoints of steps stay.
    kept: usize,
}

impl RunDir {
    /// The folder of a new run, made if it is not there. One that holds a run already is left as it is, and so is one
    /// with a file that is no run's but would be taken for one's.
    pub fn create(folder: &Path, plan: &Plan, labels: &Labels) -> Result<RunDir> {
        RunDir::create_with(folder, plan, labels, Faults::default())
    }

    /// The same where the folder may hold a run that never made a step: that one is begun again.
    pub fn create_again(folder: &Path, plan: &Plan, labels: &Labels) -> Result<RunDir> {
        let lock = RunDir::lock_to_begin(folder)?;
        if !folder.join(CheckpointKind::Best.file_name()).exists()
            && let Ok(Checkpoint { step: 0, .. }) = read_json(folder, CheckpointKind::Last)
        {
            let path = folder.join(CheckpointKind::Last.file_name());
            std::fs::remove_file(&path).map_err(|e| at_start(failed(&path, e)))?;
        }
        RunDir::begin(folder, lock, plan, labels, Faults::default())
    }

    fn create_with(folder: &Path, plan: &Plan, labels: &Labels, faults: Faults) -> Result<RunDir> {
        let lock = RunDir::lock_to_begin(folder)?;
        RunDir::begin(folder, lock, plan, labels, faults)
    }

    fn lock_to_begin(folder: &Path) -> Result<Lock> {
        match std::fs::create_dir_all(folder).and_then(|()| sync_folder(folder)) {
            Ok(()) => Lock::to_begin(folder).map_err(at_start),
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
                Err(TrainError::NoFolder { path: folder.into() })
            }
            Err(e) => Err(at_start(failed(folder, e))),
        }
    }

    fn begin(folder: &Path, lock: Lock, plan: &Plan, labels: &Labels, faults: Faults) -> Result<RunDir> {
        if CheckpointKind::SINGLE.iter().any(|w| folder.join(w.file_name()).exists()) {
            return Err(TrainError::RunExists { folder: folder.into() });
        }
        let plan = write(folder, PLAN, save(plan, labels).as_bytes(), &faults).map_err(at_start)?;
        let run = RunDir { folder: folder.into(), plan, faults, lock, kept: 0 };
        run.clean().map_err(at_start)?;
        Ok(run)
    }

    /// The folder of a run, to go on from one of its checkpoints, which is checked.
    pub fn resume(folder: &Path, which: CheckpointKind) -> Result<(RunDir, SavedRun)> {
        RunDir::resume_with(folder, which, Faults::default())
    }

    fn resume_with(folder: &Path, which: CheckpointKind, faults: Faults) -> Result<(RunDir, SavedRun)> {
        if !folder.is_dir() {
            return Err(TrainError::NoRun { folder: folder.into() });
        }
        let lock = Lock::to_go_on(folder, || read(folder, which).map(drop))?;
        let mut saved = read(folder, which)?;
        // Found out now: at the end of the run it would be needed.
        if which == CheckpointKind::Last && !is_there(folder, CheckpointKind::Best)? {
            // Somebody took the best one away: the next one is the best.
            saved.checkpoint.progress.best = None;
        }
        let run = RunDir { folder: folder.into(), plan: saved.checkpoint.plan.clone(), faults, lock, kept: 0 };
        run.clean()?;
        Ok((run, saved))
    }

    /// The same, where so many checkpoints of steps stay beside the last and the best: [`CheckpointKind::Step`].
    pub fn keeping(self, kept: usize) -> RunDir {
        RunDir { kept, ..self }
    }

    /// How many checkpoints of steps stay.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a checkpoint, whether it is there or not.
    pub fn path(&self, which: CheckpointKind) -> PathBuf {
        self.folder.join(which.file_name())
    }

    /// Saves a session, whose plan must be the one of this folder, as one checkpoint or as several. What was saved before
    /// stays until this is durable.
    pub fn save<E: Executor>(&self, session: &Session<E>, progress: &Progress, which: &[CheckpointKind]) -> Result<()> {
        // Removed, moved away, or another one in its place: that one is not ours.
        let is_gone = || !self.lock.is_in(&self.folder);
        let gone = || TrainError::FolderGone { folder: self.folder.clone() };
        if is_gone() {
            return Err(gone());
        }
        let is_first = !self.path(CheckpointKind::Last).exists();
        self.save_over(session, progress, which).map_err(|e| match e {
            _ if is_gone() => gone(),
            e if is_first => at_start(e),
            e => e,
        })
    }

    fn save_over<E: Executor>(
        &self,
        session: &Session<E>,
        progress: &Progress,
        which: &[CheckpointKind],
    ) -> Result<()> {
        let (step, seed) = (session.steps(), session.seed());
        let tensors = self.save_tensors(session)?;
        let checkpoint = Checkpoint { step, seed, progress: progress.clone(), tensors, plan: self.plan.clone() };
        let text = checkpoint.to_text();
        for which in which {
            write(&self.folder, &which.file_name(), text.as_bytes(), &self.faults)?;
        }
        if which.iter().any(|which| matches!(which, CheckpointKind::Step(_))) {
            self.forget_steps(step)?;
        }
        self.clean()
    }

    fn save_tensors<E: Executor>(&self, session: &Session<E>) -> Result<FileSum> {
        let stem = format!("{}{:08}", TENSORS.0, session.steps());
        let path = self.folder.join(format!("{stem}{}", TENSORS.1));
        let mut file = AtomicFile::create(&path, &self.faults).map_err(|e| failed(&path, e))?;
        let written = if session.has_part_of_states() {
            session.engine.write_whole_states(Some(&mut file), &path)
        } else {
            session.engine.write_states(&mut file, &path, |_| true)
        };
        written.map_err(|e| match e {
            WeightsError::Io { path, source } => failed(&path, source),
            other => other.into(),
        })?;
        // By its content: a file that another checkpoint names is never replaced by a different one.
        let name = format!("{stem}-{:016x}{}", file.checksum().finish(), TENSORS.1);
        let sum = FileSum::new(name, file.checksum());
        let path = self.folder.join(&sum.name);
        file.commit(&path).map_err(|e| failed(&path, e))?;
        Ok(sum)
    }

    /// Removes the checkpoints of steps that are too many, the oldest first; and those of steps to come, which were made before
    /// the run went on from an earlier one.
    fn forget_steps(&self, now: u32) -> Result<()> {
        let mut steps = Vec::new();
        for name in self.names()? {
            if let Some(CheckpointKind::Step(step)) = CheckpointKind::of_file(&name) {
                steps.push(step);
            }
        }
        steps.sort_unstable_by_key(|step| (*step <= now, *step));
        let ahead = steps.partition_point(|step| *step > now);
        let many = ahead + (steps.len() - ahead).saturating_sub(self.kept);
        steps[..many].iter().try_for_each(|step| self.remove(CheckpointKind::Step(*step).file_name().as_ref()))
    }

    /// Removes what killed processes left, and tensors that no checkpoint names.
    fn clean(&self) -> Result<()> {
        let (names, mut named) = (self.names()?, Vec::new());
        for which in names.iter().filter_map(|name| CheckpointKind::of_file(name)) {
            match read_json(&self.folder, which) {
                Ok(checkpoint) => named.push(checkpoint.tensors.name),
                Err(CheckpointProblem::Absent) => {}
                // It may name any of them.
                Err(CheckpointProblem::Damaged(_)) => return Ok(()),
            }
        }
        for name in names {
            let unnamed = is_tensors(&name) && !named.iter().any(|n| OsStr::new(n) == name);
            if unnamed || is_unfinished(&name) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Of all that lies there.
    fn names(&self) -> Result<Vec<OsString>> {
        let here = |e| failed(&self.folder, e);
        let entries = std::fs::read_dir(&self.folder).map_err(here)?;
        entries.map(|entry| Ok(entry.map_err(here)?.file_name())).collect()
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        let path = self.folder.join(name);
        self.faults.pass().and_then(|()| std::fs::remove_file(&path)).map_err(|e| failed(&path, e))
    }
}

/// Writes a small file, whole or not at all.
fn write(folder: &Path, name: &str, bytes: &[u8], faults: &Faults) -> Result<FileSum> {
    let path = folder.join(name);
    let written = AtomicFile::create(&path, faults).and_then(|mut file| {
        file.write_all(bytes)?;
        let sum = FileSum::new(name, file.checksum());
        file.commit(&path)?;
        Ok(sum)
    });
    written.map_err(|e| failed(&path, e))
}

/// There is nothing to go on with yet.
fn at_start(error: TrainError) -> TrainError {
    match error {
        TrainError::Save { path, source } => TrainError::Begin { path, source },
        other => other,
    }
}

fn failed(path: &Path, source: std::io::Error) -> TrainError {
    TrainError::Save { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use memfit_exec::TensorView;
    use memfit_exec_cpu::CpuExecutor;
    use memfit_nn::Optimizer;
    use memfit_nn::zoo::Mlp;
    use memfit_plan::Request;
    use memfit_transform::Training;

    use super::*;

    /// A model whose states take several pieces to write.
    fn session() -> Session<CpuExecutor> {
        let model = Mlp::new(40, &[600], 5);
        let training = Training::new(Optimizer::adam().update);
        let cpu = CpuExecutor::new(1).unwrap();
        let programs = |rows| crate::programs(&model, &training, 2, rows);
        let plan = memfit_plan::plan(&programs, cpu.target(), &Request::new(2)).unwrap();
        Session::new(cpu, plan, 1).unwrap()
    }

    fn step(session: &mut Session<CpuExecutor>) {
        let x: Vec<f32> = (0..80).map(|i| i as f32 / 80.0).collect();
        let batch = [("x", TensorView::f32(&[2, 40], &x)), ("y", TensorView::i32(&[2], &[3, 1]))];
        session.step(&batch, 1e-2).unwrap();
    }

    fn bits(session: &Session<CpuExecutor>) -> Vec<Vec<u8>> {
        session.weights().map(|s| session.weight(&s.name).unwrap()).collect()
    }

    /// An empty folder that is removed again.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("memfit-run-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Everything in the folder is the plan, the lock, a checkpoint, or tensors that a checkpoint names.
    fn assert_clean(folder: &Path, checkpoints: &[CheckpointKind]) {
        let mut expected = vec![PLAN.to_string(), names::LOCK.to_string()];
        for which in checkpoints {
            expected.push(which.file_name());
            expected.push(read(folder, *which).unwrap().checkpoint.tensors.name);
        }
        let mut here: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        here.sort();
        expected.sort();
        expected.dedup();
        assert_eq!(here, expected);
    }

    #[test]
    fn a_save_that_ends_anywhere_leaves_a_checkpoint_to_go_on_from() {
        let folder = Folder::new("anywhere");
        let mut session = session();
        let before = bits(&session);
        let labels = Labels::new();
        let (mut old, mut new) = (0, 0);
        for operations in 0.. {
            let _ = std::fs::remove_dir_all(&folder.0);
            let run = RunDir::create(&folder.0, session.plan(), &labels).unwrap();
            let mut first = self::session();
            run.save(&first, &Progress::default(), &[CheckpointKind::Last, CheckpointKind::Best]).unwrap();
            drop(run);
            step(&mut first);
            session = first;
            let (run, _) = RunDir::resume_with(&folder.0, CheckpointKind::Last, Faults::after(operations)).unwrap();
            let progress = Progress { element: 1, ..Progress::default() };
            let done = run.save(&session, &progress, &[CheckpointKind::Last]);
            drop(run);
            let (_run, saved) = RunDir::resume(&folder.0, CheckpointKind::Last).unwrap();
            let resumed = Session::resume(CpuExecutor::new(1).unwrap(), &saved).unwrap();
            let is_new = saved.checkpoint.step == 1;
            assert_eq!(saved.checkpoint.progress.element, u64::from(is_new), "after {operations} operations");
            let expected = if is_new { bits(&session) } else { before.clone() };
            assert_eq!(bits(&resumed), expected, "after {operations} operations");
            assert_clean(&folder.0, &CheckpointKind::SINGLE);
            if is_new {
                new += 1
            } else {
                old += 1
            }
            if done.is_ok() {
                break;
            }
        }
        assert!(old > 8 && new > 1, "stopped {old} times before the new checkpoint and {new} times behind it");
    }

    #[test]
    fn a_start_that_ends_anywhere_can_be_started_again() {
        let folder = Folder::new("start");
        let session = session();
        for operations in 0..100 {
            let run = RunDir::create_with(&folder.0, session.plan(), &Labels::new(), Faults::after(operations));
            match run.and_then(|run| run.save(&session, &Progress::default(), &[CheckpointKind::Last])) {
                Err(TrainError::Begin { .. }) => {}
                // The one before got as far as its checkpoint.
                Err(TrainError::RunExists { .. }) if operations > 10 => break,
                other => panic!("{other:?} after {operations} operations"),
            }
        }
        drop(RunDir::resume(&folder.0, CheckpointKind::Last).unwrap());
        assert_clean(&folder.0, &[CheckpointKind::Last]);
    }

    #[test]
    fn a_folder_has_one_run_and_one_writer() {
        let folder = Folder::new("one");
        let session = session();
        assert!(matches!(RunDir::resume(&folder.0, CheckpointKind::Last), Err(TrainError::NoRun { .. })));
        let run = RunDir::create(&folder.0, session.plan(), &Labels::new()).unwrap();
        assert!(matches!(RunDir::create(&folder.0, session.plan(), &Labels::new()), Err(TrainError::Busy { .. })));
        run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap();
        assert!(matches!(RunDir::resume(&folder.0, CheckpointKind::Last), Err(TrainError::Busy { .. })));
        assert_eq!(read(&folder.0, CheckpointKind::Last).unwrap().checkpoint.step, 0, "to look is always possible");
        drop(run);
        assert!(matches!(RunDir::create(&folder.0, session.plan(), &Labels::new()), Err(TrainError::RunExists { .. })));
        assert!(RunDir::resume(&folder.0, CheckpointKind::Last).is_ok());
    }

    #[test]
    fn only_a_run_without_a_step_is_begun_again() {
        let folder = Folder::new("again");
        let mut session = session();
        for _ in 0..2 {
            let run = RunDir::create_again(&folder.0, session.plan(), &Labels::new()).unwrap();
            run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap();
        }
        step(&mut session);
        let (run, _) = RunDir::resume(&folder.0, CheckpointKind::Last).unwrap();
        run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap();
        drop(run);
        let again = RunDir::create_again(&folder.0, session.plan(), &Labels::new());
        assert!(matches!(again, Err(TrainError::RunExists { .. })));
        assert_eq!(read(&folder.0, CheckpointKind::Last).unwrap().checkpoint.step, 1);
    }
}
