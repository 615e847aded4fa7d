//! What holds of wires over MPI, checked under a launcher: `mpirun -n 3 wire_check well`. Every process prints a line when all it
//! looked at was right; exit code 1 says that something was not.

mod bench;
mod failures;
mod steps;
mod well;

use std::process::{ExitCode, exit};
use std::time::Duration;

use memfit_exec::WireError;
use memfit_test_allocator::Counting;
use memfit_wire_mpi::{Launched, Mpi, launched};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HELP: &str = "\
Usage: mpirun -n N wire_check well | steps | failures | stopped | bench [OPTION N]...

  well      exchanges of many sizes, on two wires at once, without an allocation; ends in order
  steps     training steps of replicas, of which none after the first allocates; ends in order
  failures  replicas that leave, are dropped, sleep or do something else; ends without ending MPI
  stopped   a replica that is stopped is named, and the others end with exit code 6
  bench     an ordered sum beside MPI_Allreduce, as JSON; of --floats so many numbers, in so many --rounds, in pieces of
            --piece bytes, of which a wire moves --chunk at once: several sizes, if none is given
";

/// What went wrong.
type Problem = String;

/// As a front end has it: a replica was lost or does not come.
const LOST: i32 = 6;

/// How long an exchange may take that ends.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["well"] => begin().and_then(well::check),
        ["steps"] => begin().and_then(steps::check),
        ["failures"] => begin().and_then(failures::check),
        ["stopped"] => begin().and_then(failures::check_stopped),
        ["bench", ref options @ ..] => begin().and_then(|mpi| bench::run(mpi, options)),
        _ => Err(HELP.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("wire_check: {problem}");
            exit(1);
        }
    }
}

fn begin() -> Result<Mpi, Problem> {
    let found = launched();
    let mpi = Mpi::init(PATIENCE).map_err(|e| said(e.why))?;
    let (size, rank) = (mpi.size(), mpi.rank());
    let expected = Launched { size: Some(size), rank, local_rank: Some(rank), are_all_here: true };
    // Without a launcher MPI begins alone.
    if mpi.size() > 1 {
        same("what the launcher said", found, Some(expected))?;
    }
    Ok(mpi)
}

fn said(error: WireError) -> Problem {
    error.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Problem> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
