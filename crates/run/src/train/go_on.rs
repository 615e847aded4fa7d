//! What the replicas of a run go on from, or begin with: read by the first of them alone, and given to all others. Small things at
//! once, states piece by piece.

use memfit::exec::WireError;
use memfit::plan::save::SavedPlan;
use memfit::train::Checkpoint;
use memfit::train::run_dir::{CheckpointKind, RunDir, SavedStates, set_states};
use memfit::{AnyExecutor, Session};
use serde::{Deserialize, Serialize};

use super::{RunEvent, Training};
use crate::config::RunFolder;
use crate::error::Result;
use crate::from_first::from_first;
use crate::history;
use crate::planning::MadeFor;
use crate::replicas::Peers;
use crate::resources::RunResources;
use crate::run_dir;
use crate::train::prepare::check_length;
use crate::weights;

/// A run that goes on.
pub(super) struct Resumed {
    pub known: Known,
    /// Of the first replica.
    pub own: Option<Own>,
}

/// What each of its replicas has to know, states aside.
#[derive(Serialize, Deserialize)]
pub(super) struct Known {
    pub checkpoint: Checkpoint,
    pub made: MadeFor,
}

/// What the first replica alone has: the folder.
pub(super) struct Own {
    pub run_dir: Option<RunDir>,
    /// Until somebody has it.
    pub plan: Option<SavedPlan>,
    states: SavedStates,
}

/// Opens the folder of a run that goes on. All processes have to call it.
pub(super) fn open(run: &RunResources, peers: Option<&dyn Peers>) -> Result<Option<Resumed>> {
    let Some(RunFolder { path, checkpoint, .. }) = run.config.run_folder() else { return Ok(None) };
    let mut own = None;
    let known = from_first(peers, || {
        let (run_dir, saved) = RunDir::resume(path, checkpoint.unwrap_or(CheckpointKind::Last))?;
        let (states, plan) = saved.into_parts();
        let known = Known { checkpoint: states.checkpoint.clone(), made: MadeFor::of(&plan) };
        own = Some(Own { run_dir: Some(run_dir), plan: Some(plan), states });
        Ok(known)
    })?;
    Ok(Some(Resumed { known, own }))
}

/// Finds weights to start from that are no good, before anything is made of the run. All processes have to call it: whether they were
/// told of the same weights is not known yet.
pub(crate) fn check_weights(run: &RunResources, peers: Option<&dyn Peers>) -> Result<()> {
    let file = run.config.model.weights.as_ref().filter(|_| run.config.run_folder().is_none());
    from_first(peers, || file.map_or(Ok(()), |file| weights::check(file, run)))
}

/// Sets the states of all replicas of a run that this process has. All processes have to call it.
pub(super) fn set_all(
    training: &mut Training,
    from: Option<&Resumed>,
    peers: Option<&dyn Peers>,
    on_event: &mut dyn FnMut(RunEvent),
) -> Result<()> {
    let hand_out: &mut dyn FnMut(&mut [u8]) -> Result<(), WireError> =
        &mut |bytes| peers.map_or(Ok(()), |peers| peers.hand_out(bytes));
    let Training { run, session, others, folder, .. } = training;
    let others = others.iter_mut().map(|other| &mut other.session);
    let mut sessions: Vec<&mut Session<AnyExecutor>> = std::iter::once(session).chain(others).collect();
    let Some(Resumed { known: Known { checkpoint, .. }, own }) = from else {
        let Some(file) = &run.config.model.weights else { return Ok(()) };
        if let Some(loaded) = weights::load_into(&mut sessions, file, run, hand_out)? {
            on_event(RunEvent::Weights { run, file, loaded: &loaded });
        }
        return Ok(());
    };
    set_states(&mut sessions, checkpoint, own.as_ref().map(|own| &own.states), hand_out)?;
    if run.crew.is_first() {
        run_dir::describe_again(folder, &run.config)?;
        let (step, epoch, is_over) = (checkpoint.step, checkpoint.progress.epoch, check_length(run, checkpoint)?);
        let history_ends = history::lost_after(folder, step)?;
        on_event(RunEvent::Resumed { run, step, epoch, is_over, history_ends });
    }
    Ok(())
}
