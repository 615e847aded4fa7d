//! The ordered sum of exchanges, in pieces of several sizes, beside MPI_Allreduce: medians of rounds in turns, as JSON.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ferrompi::{Communicator, ReduceOp};
use memfit_exec::{Numbers, Sum, Wire, WireError};
use memfit_ir::Replica;
use memfit_wire_mpi::{Mpi, MpiWire};

use crate::{PATIENCE, Problem, said};

const PIECES: [usize; 7] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];

/// What a wire moves at once.
const CHUNKS: [usize; 4] = [256 << 10, 512 << 10, 1 << 20, 2 << 20];

pub fn run(mpi: Mpi, options: &[&str]) -> Result<(), Problem> {
    let (mut floats, mut rounds, mut pieces, mut chunks) = (25_000_000, 5, PIECES.to_vec(), CHUNKS.to_vec());
    for option in options.chunks(2) {
        let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
        match *option {
            ["--floats", n] => floats = number(n)?,
            ["--rounds", n] => rounds = number(n)?,
            ["--piece", n] => pieces = vec![number(n)?],
            ["--chunk", n] => chunks = vec![number(n)?],
            _ => return Err(format!("\"{}\" is not an option with its value", option[0])),
        }
    }
    let communicator = mpi.communicator().map_err(said)?;
    let mut held = Held { own: numbers(mpi.rank(), floats), total: vec![0.0; floats] };
    let mut lines = Vec::new();
    for chunk in chunks {
        let mut wire = mpi.wire_of_chunks(PATIENCE, chunk).map_err(said)?;
        for &piece in &pieces {
            lines.push(compare(&mut held, &mut wire, &communicator, chunk, piece, rounds)?);
        }
    }
    if mpi.rank() == 0 {
        let (library, ranks) = (mpi.library(), mpi.size());
        println!("{{\"library\": {library:?}, \"ranks\": {ranks}, \"floats\": {floats}, \"sums\": [");
        println!("  {}\n]}}", lines.join(",\n  "));
    }
    std::mem::forget(communicator);
    mpi.finish().map_err(said)
}

fn compare(
    held: &mut Held,
    wire: &mut MpiWire,
    communicator: &Communicator,
    chunk: usize,
    piece: usize,
    rounds: usize,
) -> Result<String, Problem> {
    let (rank, size) = (wire.rank(), wire.size());
    let sum = Arc::new(Sum::new(4 * held.own.len(), piece, Replica { lanes: size, count: size, rank }));
    let mut took = [const { Vec::new() }; 2];
    for round in 0..=rounds {
        // It has no need of room.
        let ordered = timed(|| wire.sum(&sum, held, &mut []).map_err(said))?;
        held.check(size)?;
        let reduced =
            timed(|| communicator.allreduce(&held.own, &mut held.total, ReduceOp::Sum).map_err(|e| e.to_string()))?;
        // The first of each touches memory that was never touched.
        if round > 0 {
            took.iter_mut().zip([ordered, reduced]).for_each(|(all, one)| all.push(one));
        }
    }
    let [ordered, reduced] = took.each_ref().map(|all| median(all));
    let least = took.each_ref().map(|all| all.iter().copied().fold(f64::INFINITY, f64::min));
    Ok(format!(
        "{{\"chunk\": {chunk}, \"piece\": {piece}, \"ordered_ms\": {ordered:.1}, \"allreduce_ms\": {reduced:.1}, \
         \"ratio\": {:.2}, \"least_ms\": [{:.1}, {:.1}]}}",
        ordered / reduced,
        least[0],
        least[1],
    ))
}

/// In ms.
fn timed(run: impl FnOnce() -> Result<(), Problem>) -> Result<f64, Problem> {
    let since = Instant::now();
    run()?;
    Ok(since.elapsed().as_secs_f64() * 1e3)
}

/// What is added up, and where the sum goes.
struct Held {
    own: Vec<f32>,
    total: Vec<f32>,
}

impl Numbers for Held {
    fn load(&mut self, _round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
        into.copy_from_slice(&bytemuck::cast_slice(&self.own)[range]);
        Ok(())
    }

    fn store(&mut self, range: Range<usize>, from: &[u8]) {
        bytemuck::cast_slice_mut(&mut self.total)[range].copy_from_slice(from);
    }
}

impl Held {
    fn check(&self, size: usize) -> Result<(), Problem> {
        let all = |i: usize| (0..size).map(|rank| number(rank, i)).sum::<f32>();
        let wrong = (0..self.total.len()).step_by(997).find(|&i| self.total[i] != all(i));
        wrong.map_or(Ok(()), |i| Err(format!("the sum of number {i} is {} and not {}", self.total[i], all(i))))
    }
}

fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| number(rank, i)).collect()
}

/// Whole, so that every order gives one sum.
fn number(rank: usize, i: usize) -> f32 {
    ((i * 7 + rank * 3) % 1000) as f32
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
