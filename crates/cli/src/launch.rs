//! The processes that a launcher (mpirun, srun, an MPIJob) started to train together. The first of them prints; what one cannot do
//! is told to all, so that they end alike.

use anyhow::Result;
use memfit_run::replicas::Peers;
use memfit_wire_mpi::{Launched, launched};

#[cfg(feature = "mpi")]
use crate::failure;
#[cfg(not(feature = "mpi"))]
use crate::failure::usage;

/// Runs a command among the processes that were started with this one, where there are some.
pub fn among_peers(command: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
    match launched() {
        Some(launched) if !launched.is_alone() => join(launched, command),
        _ => command(None),
    }
}

/// Each would train by itself, and write into the same folder.
#[cfg(not(feature = "mpi"))]
fn join(launched: Launched, _: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
    let among = launched.size.map_or("one of several".to_string(), |size| format!("one of {size}"));
    Err(usage(format!(
        "this process is {among} that a launcher of MPI programs started, and this memfit was built without MPI: each would train \
         by itself; build it with --features mpi, or start it once, with --replicas N"
    )))
}

#[cfg(feature = "mpi")]
pub use with_mpi::join;

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use memfit::exec::{ExecError, Wire, WireError, gather_words};
    use memfit_run::RunError;
    use memfit_wire_mpi::{Mpi, MpiWire};

    use super::*;
    use crate::failure::Interrupted;
    use crate::output;

    /// How long the others are waited for before a run says it.
    const STALL: Duration = Duration::from_secs(300);

    struct World {
        mpi: Mpi,
        /// For what is said before there are runs.
        control: Mutex<MpiWire>,
        local_rank: usize,
    }

    pub fn join(launched: Launched, command: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
        let failed = |source| RunError::Exec(ExecError::Wire { layer: String::new(), source });
        let mpi = Mpi::init(STALL).map_err(failed)?;
        if mpi.rank() > 0 {
            output::silence();
        }
        let control = Mutex::new(mpi.wire(STALL).map_err(failed)?);
        let world = World { local_rank: launched.local_rank.unwrap_or(0), mpi, control };
        let ended = command(Some(&world));
        world.end(ended)
    }

    impl World {
        fn control(&self) -> MutexGuard<'_, MpiWire> {
            self.control.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Ends MPI where all is well, and else leaves it as it is: nobody waits for whoever may not come any more.
        fn end(self, ended: Result<()>) -> Result<()> {
            let rank = self.mpi.rank();
            match ended {
                Err(error) if !error.is::<Interrupted>() => {
                    if tells(&error, rank) {
                        output::speak()
                    } else {
                        output::silence()
                    }
                    let error = named(error, rank);
                    self.control().leave(failure::farewell_of(&error));
                    drop(self.control);
                    self.mpi.abandon();
                    Err(error)
                }
                ended => {
                    drop(self.control);
                    // What was trained is saved: how the library ends changes nothing of it.
                    let _ = self.mpi.finish();
                    ended
                }
            }
        }
    }

    /// Whether this process says what is wrong: whoever met it does, also where the others are ended before they hear of it. Of what
    /// all of them see, one tells.
    fn tells(error: &anyhow::Error, rank: usize) -> bool {
        let of_run = error.downcast_ref::<RunError>();
        let missing = match of_run.and_then(RunError::wire_error) {
            Some(WireError::Left { .. }) => return false,
            Some(WireError::Stalled { missing, .. }) => missing.clone(),
            Some(WireError::Lost { rank }) => vec![*rank],
            Some(WireError::Differs { .. } | WireError::Failed(_)) => return true,
            None if matches!(of_run.map(RunError::innermost), Some(RunError::PeerDiffers { .. })) => Vec::new(),
            None => return true,
        };
        (0..rank).all(|before| missing.contains(&before))
    }

    /// With whose it is, where that is not the first one's.
    fn named(error: anyhow::Error, rank: usize) -> anyhow::Error {
        match error.downcast::<RunError>() {
            Ok(source) if rank > 0 && !source.is_of_wire() => {
                RunError::OfReplica { rank, source: Box::new(source) }.into()
            }
            Ok(source) => source.into(),
            Err(error) => error,
        }
    }

    impl Peers for World {
        fn rank(&self) -> usize {
            self.mpi.rank()
        }

        fn size(&self) -> usize {
            self.mpi.size()
        }

        fn local_rank(&self) -> usize {
            self.local_rank
        }

        fn gather(&self, words: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
            gather_words(&mut *self.control(), words)
        }

        fn wire(&self, stall: Duration) -> Result<Box<dyn Wire>, WireError> {
            Ok(Box::new(self.mpi.wire(stall)?))
        }
    }
}
