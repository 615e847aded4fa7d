//! The processes that a launcher (mpirun, srun, an MPIJob) started with this one. They train together, and whatever else is asked for
//! the first of them does alone. One of them prints; what one cannot do is told to all, so that they end alike.

use std::process::ExitCode;

use std::time::Duration;

use anyhow::Result;
use memfit_run::replicas::Peers;
use memfit_wire_mpi::{Launched, launched};

use crate::failure::{self, usage};

/// Runs a command among the processes that were started with this one, where there are some. For how long they are waited for is
/// asked only then.
pub fn among_peers(
    json: bool,
    stall: impl FnOnce() -> Option<Duration>,
    command: impl FnOnce(Option<&dyn Peers>) -> Result<()>,
) -> Result<()> {
    match others() {
        Some(launched) => join(launched, json, stall(), command),
        None => command(None),
    }
}

/// Has the first of several processes run a command; the others wait, and leave with its exit code.
#[cfg(feature = "mpi")]
pub fn by_first(json: bool, command: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    match others() {
        Some(launched) => join(launched, json, None, |peers| match peers {
            Some(peers) => memfit_run::by_first(peers, command)?.unwrap_or(Ok(())),
            None => command(),
        }),
        None => command(),
    }
}

/// Without MPI each runs it.
#[cfg(not(feature = "mpi"))]
pub fn by_first(_: bool, command: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    command()
}

/// What a launcher says, where it started other processes than this one, or may have.
fn others() -> Option<Launched> {
    launched().filter(|launched| !launched.is_alone())
}

/// What was typed cannot be read: the others, who may have been told something else, would wait for this process, unless it comes
/// to say so.
pub fn misspelt(error: clap::Error) -> ExitCode {
    let Some(launched) = others().filter(|_| cfg!(feature = "mpi")) else { return failure::misspelt(error) };
    if !error.use_stderr() {
        // Help, which is the same for all.
        return if launched.rank == 0 { failure::misspelt(error) } else { ExitCode::SUCCESS };
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let said = error.to_string();
    let problem = usage(said.trim().trim_start_matches("error: "));
    match join(launched, json, None, |_| Err(problem)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, json),
    }
}

/// Each would train by itself, and write into the same folder.
#[cfg(not(feature = "mpi"))]
fn join(
    launched: Launched,
    _: bool,
    _: Option<Duration>,
    _: impl FnOnce(Option<&dyn Peers>) -> Result<()>,
) -> Result<()> {
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
    use std::io::Write;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use anyhow::anyhow;
    use memfit::exec::{ExecError, Wire, WireError, gather_words, process};
    use memfit_run::RunError;
    use memfit_run::neighbours::{Neighbours, Seat};
    use memfit_wire_mpi::{Claim, End, Ending, Mpi, MpiWire};

    use super::*;
    use crate::failure::{EndsAs, Interrupted};
    use crate::output;
    use crate::signals;

    /// How long others are waited for where nobody says it; and in any case those that are there and work, before the runs have met.
    const STALL: Duration = Duration::from_secs(300);

    struct World {
        mpi: Mpi,
        /// For what is said before there are runs.
        control: Mutex<MpiWire>,
        neighbours: Neighbours,
    }

    pub fn join(
        launched: Launched,
        json: bool,
        stall: Option<Duration>,
        command: impl FnOnce(Option<&dyn Peers>) -> Result<()>,
    ) -> Result<()> {
        let stall = stall.unwrap_or(STALL);
        let mpi = match Mpi::init(stall) {
            Ok(mpi) => mpi,
            Err(not_begun) => {
                let error = failed(not_begun.why.clone()).into();
                if not_begun.tells {
                    failure::report(&error, json);
                }
                not_begun.leave();
                leave(failure::code(&error))
            }
        };
        if mpi.rank() > 0 {
            output::silence();
        }
        process::libraries_are_in_use();
        let ending = mpi.ending().map_err(failed)?;
        match World::meet(mpi, stall, launched.local_rank) {
            Ok(world) => {
                let ended = command(Some(&world)).and_then(|()| all_printed());
                if let Err(error) = &ended {
                    // Whoever waits for this process hears that it does not come.
                    world.leave(error);
                }
                let World { mpi, control, .. } = world;
                drop(control);
                end(mpi, ending, ended, stall, json)
            }
            Err(unmet) => {
                let (mpi, error) = *unmet;
                end(mpi, ending, Err(failed(error).into()), stall, json)
            }
        }
    }

    fn failed(source: WireError) -> RunError {
        RunError::Exec(ExecError::Wire { layer: String::new(), source })
    }

    /// What could not be printed the others hear of too.
    fn all_printed() -> Result<()> {
        if output::all_printed() { Ok(()) } else { Err(anyhow!(output::NOT_ALL)) }
    }

    /// Ends with all others: one tells what is wrong, and all leave alike.
    fn end(mpi: Mpi, ending: Ending, ended: Result<()>, stall: Duration, json: bool) -> Result<()> {
        signals::outlast_launcher();
        let rank = mpi.rank();
        let ended = ended.map_err(|error| named(error, rank));
        let (claim, absent) = ended.as_ref().map_or_else(|error| claim(error, rank), |()| (Claim::Well, Vec::new()));
        let own = End { claim, code: ended.as_ref().err().map_or(0, failure::code) };
        let settled = ending.settle(own, &absent, stall, || {
            if let Err(error) = &ended {
                output::speak();
                failure::report(error, json);
            }
        });
        if !settled.is_in_order {
            // All that are there have heard why, and leave now.
            leave(settled.code);
        }
        // What was trained is saved: how the library ends changes nothing of it.
        let _ = mpi.finish();
        if settled.code > 0 {
            output::silence();
        }
        match ended {
            ended if settled.code == own.code => ended,
            _ => Err(EndsAs { code: settled.code }.into()),
        }
    }

    /// Ends this process without what the library of MPI would do at its end, which it is not: whoever takes long is ended by a
    /// launcher, which knows of another code.
    fn leave(code: u8) -> ! {
        // Where nobody can read it, the exit code has to do.
        let _ = std::io::stdout().flush();
        signals::exit(code.into())
    }

    /// How much this process has to tell, and who does not come, as far as it knows.
    fn claim(error: &anyhow::Error, rank: usize) -> (Claim, Vec<usize>) {
        if error.is::<Interrupted>() {
            return (Claim::Asked, Vec::new());
        }
        let of_run = error.downcast_ref::<RunError>();
        match of_run.and_then(RunError::wire_error) {
            Some(WireError::Left { .. }) => (Claim::Heard, Vec::new()),
            // It was missed, and has come back.
            Some(WireError::Stalled { missing, .. }) if missing.contains(&rank) => (Claim::Heard, Vec::new()),
            Some(WireError::Stalled { missing, .. }) => (Claim::Seen, missing.clone()),
            Some(_) => (Claim::Seen, Vec::new()),
            None if matches!(of_run.map(RunError::innermost), Some(RunError::PeerDiffers { .. })) => {
                (Claim::Seen, Vec::new())
            }
            None => (Claim::Own, Vec::new()),
        }
    }

    impl World {
        fn meet(mpi: Mpi, stall: Duration, local_rank: Option<usize>) -> Result<World, Box<(Mpi, WireError)>> {
            let met = mpi.patient_wire(stall, STALL).and_then(|mut control| {
                let seats = gather_words(&mut control, &Seat::own().to_words())?;
                Ok((control, Neighbours::of(&seats, mpi.rank())))
            });
            match met {
                Ok((control, neighbours)) => {
                    let index = local_rank.unwrap_or(neighbours.index);
                    Ok(World { mpi, control: Mutex::new(control), neighbours: Neighbours { index, ..neighbours } })
                }
                Err(error) => Err(Box::new((mpi, error))),
            }
        }

        fn control(&self) -> MutexGuard<'_, MpiWire> {
            self.control.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn leave(&self, error: &anyhow::Error) {
            if !error.is::<Interrupted>() {
                self.control().leave(failure::farewell_of(error));
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

        fn neighbours(&self) -> Neighbours {
            self.neighbours
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
