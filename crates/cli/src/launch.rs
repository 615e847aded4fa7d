//! The processes that a launcher (mpirun, srun, an MPIJob) started to train together. The first of them prints; what one cannot do
//! is told to all, so that they end alike.

use std::process::ExitCode;

use anyhow::Result;
use memfit_run::replicas::Peers;
use memfit_wire_mpi::{Launched, launched};

use crate::failure::{self, usage};

/// Runs a command among the processes that were started with this one, where there are some.
pub fn among_peers(json: bool, command: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
    match launched() {
        Some(launched) if !launched.is_alone() => join(launched, json, command),
        _ => command(None),
    }
}

/// What was typed cannot be read: the others, who may have been told something else, would wait for this process, unless it comes
/// to say so.
pub fn misspelt(error: clap::Error) -> ExitCode {
    let is_joined = cfg!(feature = "mpi") && launched().is_some_and(|launched| !launched.is_alone());
    let trains = || std::env::args_os().any(|argument| argument == "train");
    if !(error.use_stderr() && is_joined && trains()) {
        return failure::misspelt(error);
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let said = error.to_string();
    let problem = usage(said.trim().trim_start_matches("error: "));
    match among_peers(json, |_| Err(problem)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, json),
    }
}

/// Each would train by itself, and write into the same folder.
#[cfg(not(feature = "mpi"))]
fn join(launched: Launched, _: bool, _: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
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

    /// How long whoever cannot go on waits to hear who else cannot: of what is wrong for all, one tells.
    const LAST_WORDS: Duration = Duration::from_secs(1);

    struct World {
        mpi: Mpi,
        /// For what is said before there are runs.
        control: Mutex<MpiWire>,
        /// For what is said at the end, when something is wrong.
        last_words: Mutex<MpiWire>,
        local_rank: usize,
        json: bool,
    }

    pub fn join(launched: Launched, json: bool, command: impl FnOnce(Option<&dyn Peers>) -> Result<()>) -> Result<()> {
        let failed = |source| RunError::Exec(ExecError::Wire { layer: String::new(), source });
        let mpi = Mpi::init(STALL).map_err(failed)?;
        if mpi.rank() > 0 {
            output::silence();
        }
        let control = Mutex::new(mpi.wire(STALL).map_err(failed)?);
        let last_words = Mutex::new(mpi.wire(LAST_WORDS).map_err(failed)?);
        let world = World { local_rank: launched.local_rank.unwrap_or(0), mpi, control, last_words, json };
        let ended = command(Some(&world));
        world.end(ended)
    }

    impl World {
        fn control(&self) -> MutexGuard<'_, MpiWire> {
            self.control.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Whether this process says what is wrong: of what several meet, the first of them does.
        fn tells(&self, error: &anyhow::Error) -> bool {
            let rank = self.mpi.rank();
            let of_run = error.downcast_ref::<RunError>();
            // Whoever was missing hears of it when it comes back.
            let is_first_but =
                |missing: &[usize]| !missing.contains(&rank) && (0..rank).all(|before| missing.contains(&before));
            let is_own = match of_run.and_then(RunError::wire_error) {
                Some(WireError::Left { .. }) => false,
                Some(WireError::Differs { .. } | WireError::Failed(_)) => true,
                // All of them see it.
                Some(WireError::Stalled { missing, .. }) => return is_first_but(missing),
                Some(WireError::Lost { rank }) => return is_first_but(&[*rank]),
                None if matches!(of_run.map(RunError::innermost), Some(RunError::PeerDiffers { .. })) => {
                    return is_first_but(&[]);
                }
                None => true,
            };
            let mut last_words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = vec![0; self.mpi.size()];
            match last_words.all_gather(&[u8::from(is_own)], &mut all) {
                Ok(()) => is_own && !all[..rank].contains(&1),
                // Some are well and do something else, or are gone. Better told twice than not at all.
                Err(_) => is_own,
            }
        }

        /// Ends MPI where all is well, and else leaves it as it is: nobody waits for whoever may not come any more.
        fn end(self, ended: Result<()>) -> Result<()> {
            let rank = self.mpi.rank();
            match ended {
                Err(error) if !error.is::<Interrupted>() => {
                    let error = named(error, rank);
                    // Before the others hear of it: they end, and a launcher then ends this process too.
                    if self.tells(&error) {
                        output::speak();
                        failure::report(&error, self.json);
                    }
                    output::silence();
                    self.control().leave(failure::farewell_of(&error));
                    drop(self.last_words);
                    drop(self.control);
                    self.mpi.abandon();
                    Err(error)
                }
                ended => {
                    if let Err(error) = &ended {
                        failure::report(error, self.json);
                        output::silence();
                    }
                    drop(self.last_words);
                    drop(self.control);
                    // What was trained is saved: how the library ends changes nothing of it.
                    let _ = self.mpi.finish();
                    ended
                }
            }
        }
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

        fn resident_bytes_taken(&self) -> u64 {
            self.mpi.resident_bytes_taken()
        }

        fn gather(&self, words: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
            gather_words(&mut *self.control(), words)
        }

        fn hand_out(&self, bytes: &mut [u8]) -> Result<(), WireError> {
            self.control().broadcast(0, bytes)
        }

        fn wire(&self, stall: Duration) -> Result<Box<dyn Wire>, WireError> {
            Ok(Box::new(self.mpi.wire(stall)?))
        }
    }
}
