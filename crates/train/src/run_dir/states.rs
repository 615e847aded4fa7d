//! From files to sessions: the states of a checkpoint, or weights alone, into all replicas that a process has, and over to those of
//! other processes, which need no file.

use std::io::{Read, Seek};
use std::path::Path;

use memfit_exec::weights::{Match, WeightsError};
use memfit_exec::{Engine, ExecError, Executor, Options, StatesFile, WireError};
use memfit_files::open_own;
use memfit_ir::op::StateClass;

use super::read::{SavedRun, SavedStates, plan_for};
use crate::checkpoint::{Checkpoint, FileSum};
use crate::error::{Recovery, Result, TrainError};
use crate::session::Session;

impl<E: Executor> Session<E> {
    /// A session as it was saved, on the plan that it was saved with.
    pub fn resume(executor: E, saved: &SavedRun) -> Result<Self> {
        let (states, plan) = saved.clone().into_parts();
        let plan = plan_for(plan, executor.target())?;
        let mut session = Session::at_checkpoint(Engine::new(executor, plan, Options::default()), &states.checkpoint)?;
        set_states(&mut [&mut session], &states.checkpoint, Some(&states), &mut |_| Ok(()))?;
        Ok(session)
    }

    /// With the memory that an engine of the same plan was given; see [`plan_for`]. Its states are to be set: see [`set_states`].
    pub fn at_checkpoint(engine: Result<Engine<E>, ExecError>, checkpoint: &Checkpoint) -> Result<Self> {
        let engine = engine.map_err(|e| match e {
            ExecError::Unsupported { .. } | ExecError::Plan { .. } => {
                TrainError::OtherDevice { problem: e.to_string() }
            }
            other => other.into(),
        })?;
        Ok(Session::at(engine, checkpoint.step, checkpoint.seed))
    }

    /// Sends the first replica what of the states it needs for a checkpoint, which it writes meanwhile.
    pub(crate) fn send_states(&self, path: &Path) -> Result<()> {
        Ok(self.engine.write_whole_states(None, path)?)
    }
}

/// Sets the states of replicas to those of a checkpoint: of all in this process at once, so that the file is read once. Where there
/// are others, the one process that has the file gives it here, and `hand_out` brings what it reads to all, piece by piece. A file
/// that is not as it was written is an error there, when it is read to its end.
pub fn set_states<E: Executor>(
    sessions: &mut [&mut Session<E>],
    checkpoint: &Checkpoint,
    file: Option<&SavedStates>,
    hand_out: &mut dyn FnMut(&mut [u8]) -> Result<(), WireError>,
) -> Result<()> {
    // Others have what a replica does not.
    let has_part = sessions.iter().any(|session| session.has_part_of_states());
    let matching = if has_part { Match::Own } else { Match::Exact };
    let path = file.map_or(Path::new(&checkpoint.tensors.name), SavedStates::tensors);
    let opened = file.map(|_| open_own(path)).transpose();
    let opened = opened.map_err(|source| WeightsError::Io { path: path.into(), source })?;
    let file = StatesFile::new(opened, path, hand_out).summed_up();
    let mut engines: Vec<&mut Engine<E>> = sessions.iter_mut().map(|session| &mut session.engine).collect();
    match file.read_into(&mut engines, matching, |_| true)?.1 {
        Some(sum) if FileSum::new(&*checkpoint.tensors.name, &sum) != checkpoint.tensors => {
            let problem = "it was changed while it was read: its checksum is another".into();
            Err(TrainError::Damaged { path: path.into(), problem, recovery: Recovery::ResumeAgain })
        }
        _ => Ok(()),
    }
}

/// Sets what weights of a model some replicas have in common with a file, likewise: see [`Session::load_weights`].
pub fn set_weights<E: Executor>(
    sessions: &mut [&mut Session<E>],
    path: &Path,
    has_file: bool,
    matching: Match,
    hand_out: &mut dyn FnMut(&mut [u8]) -> Result<(), WireError>,
) -> Result<usize> {
    let opened = has_file.then(|| memfit_files::open(path)).transpose();
    let opened = opened.map_err(|source| WeightsError::Io { path: path.into(), source })?;
    set_weights_of(sessions, path, opened, matching, hand_out)
}

/// The same of anything that reads as a safetensors file; `path` is what errors name.
pub fn set_weights_of<E: Executor>(
    sessions: &mut [&mut Session<E>],
    path: &Path,
    file: Option<impl Read + Seek>,
    matching: Match,
    hand_out: &mut dyn FnMut(&mut [u8]) -> Result<(), WireError>,
) -> Result<usize> {
    let mut engines: Vec<&mut Engine<E>> = sessions.iter_mut().map(|session| &mut session.engine).collect();
    Ok(StatesFile::new(file, path, hand_out).read_into(&mut engines, matching, |s| s.class != StateClass::Slot)?.0)
}
