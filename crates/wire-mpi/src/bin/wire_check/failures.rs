//! Exchanges that do not come to their end: that all are told why, and nobody waits for ever. Each has a wire of its own, since a
//! wire is of no use after it.

use std::ops::Range;
use std::process::exit;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use memfit_exec::{Farewell, Numbers, Sum, Wire, WireError};
use memfit_ir::Replica;
use memfit_wire_mpi::{Mpi, MpiWire};
use rustix::process::{Signal, getpid, kill_process};

use crate::{LOST, PATIENCE, Problem, said, same};

/// For replicas that do not come.
const STALL: Duration = Duration::from_secs(1);

/// For replicas that are stopped: their stall may be told late.
const AT_MOST: Duration = Duration::from_secs(5);

pub fn check(mpi: Mpi) -> Result<(), Problem> {
    let last = mpi.size() - 1;
    let mut end = mpi.wire(PATIENCE).map_err(said)?;
    check_left(mpi.wire(PATIENCE).map_err(said)?, last)?;
    check_dropped(mpi.wire(PATIENCE).map_err(said)?, last)?;
    check_sizes(mpi.wire(PATIENCE).map_err(said)?, last)?;
    check_order(mpi.wire(PATIENCE).map_err(said)?, last)?;
    check_sleeper(mpi.wire(STALL).map_err(said)?, last)?;
    println!("rank {} of {}: passed", mpi.rank(), mpi.size());
    // Whoever ends first has the launcher end the others: not before all have said so. Whoever has come knows that they have, and
    // may be gone before this one knows it.
    drop(meet(&mut end));
    mpi.abandon();
    exit(LOST)
}

/// Stops the last replica for good.
pub fn check_stopped(mpi: Mpi) -> Result<(), Problem> {
    let last = mpi.size() - 1;
    let mut wire = mpi.wire(STALL).map_err(said)?;
    meet(&mut wire).map_err(said)?;
    if mpi.rank() == last {
        kill_process(getpid(), Signal::STOP).map_err(|e| e.to_string())?;
    }
    let since = Instant::now();
    let end = meet(&mut wire);
    check_stalled(end, last, since.elapsed())?;
    println!("rank {} of {}: passed", mpi.rank(), mpi.size());
    drop(wire);
    mpi.abandon();
    exit(LOST)
}

fn meet(wire: &mut MpiWire) -> Result<(), WireError> {
    let size = wire.size();
    wire.all_gather(&[1; 100_000], &mut vec![0; size * 100_000])
}

/// One leaves with a word while the others wait, or before they do: they hear it, now and later.
fn check_left(mut wire: MpiWire, last: usize) -> Result<(), Problem> {
    let why = Farewell { kind: 4, message: "cat.jpg is no image".into() };
    meet(&mut wire).map_err(said)?;
    if wire.rank() == last {
        sleep(Duration::from_millis(50));
        wire.leave(why);
        return Ok(());
    }
    let left = Err(WireError::Left { rank: last, why });
    same("the farewell", meet(&mut wire), left.clone())?;
    same("the farewell, again", meet(&mut wire), left)
}

fn check_dropped(mut wire: MpiWire, last: usize) -> Result<(), Problem> {
    meet(&mut wire).map_err(said)?;
    if wire.rank() == last {
        return Ok(());
    }
    same("the end of a wire", meet(&mut wire), Err(WireError::Lost { rank: last }))
}

/// One has other sizes: all fail, and none waits.
fn check_sizes(mut wire: MpiWire, last: usize) -> Result<(), Problem> {
    let (rank, size) = (wire.rank(), wire.size());
    let share = if rank == last { 800 } else { 400 };
    let since = Instant::now();
    let end = wire.all_gather(&vec![0; share], &mut vec![0; share * size]);
    // Whose bytes were too few for what came says what MPI says.
    match end {
        Err(WireError::Differs { .. } | WireError::Failed(_)) => in_time(since.elapsed()),
        end => Err(format!("sizes that differ: {end:?}")),
    }
}

struct Zeros;

impl Numbers for Zeros {
    fn load(&mut self, _round: usize, _range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
        into.fill(0);
        Ok(())
    }

    fn store(&mut self, _range: Range<usize>, _from: &[u8]) {}
}

/// One does something else.
fn check_order(mut wire: MpiWire, last: usize) -> Result<(), Problem> {
    let (rank, size) = (wire.rank(), wire.size());
    let sum = Arc::new(Sum::new(400 * size, 400 * size, Replica { lanes: size, count: size, rank }));
    let since = Instant::now();
    let end = match rank == last {
        true => wire.sum(&sum, &mut Zeros, &mut []),
        false => wire.all_gather(&[0; 400], &mut vec![0; 400 * size]),
    };
    match end {
        Err(WireError::Differs { .. } | WireError::Failed(_)) => in_time(since.elapsed()),
        end => Err(format!("operations that differ: {end:?}")),
    }
}

/// One sleeps, and is named to the others; when it wakes it hears that it was.
fn check_sleeper(mut wire: MpiWire, last: usize) -> Result<(), Problem> {
    meet(&mut wire).map_err(said)?;
    if wire.rank() == last {
        // Long enough for the others to have begun to wait, however busy the machine is.
        sleep(STALL * 3);
    }
    let since = Instant::now();
    let mut end = meet(&mut wire);
    if wire.rank() == last && end.is_ok() {
        // What the others sent before they went may be all that it takes; of the next exchange nothing comes.
        end = meet(&mut wire);
    }
    check_stalled(end, last, since.elapsed())
}

fn check_stalled(end: Result<(), WireError>, last: usize, after: Duration) -> Result<(), Problem> {
    let Err(WireError::Stalled { missing, waited }) = end else { return Err(format!("who is missing: {end:?}")) };
    same("who is missing", missing, vec![last])?;
    if waited < STALL {
        return Err(format!("a stall was told after {waited:?}"));
    }
    in_time(after)
}

fn in_time(took: Duration) -> Result<(), Problem> {
    if took > STALL + AT_MOST { Err(format!("a failure was told after {took:?}")) } else { Ok(()) }
}
