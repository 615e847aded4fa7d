//! The ordered sum of exchanges, in pieces of several sizes, beside MPI_Allreduce: medians of rounds in turns, as JSON.

use std::time::Instant;

use ferrompi::{Communicator, ReduceOp};
use memfit_exec::Wire;
use memfit_wire_mpi::{Mpi, MpiWire};

use crate::{PATIENCE, Problem, said};

const PIECES: [usize; 7] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];

/// What a wire moves at once.
const CHUNKS: [usize; 4] = [256 << 10, 1 << 20, 2 << 20, 4 << 20];

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
    let mut sum = Sum { own: numbers(mpi.rank(), floats), total: vec![0.0; floats] };
    let mut lines = Vec::new();
    for chunk in chunks {
        let mut wire = mpi.wire_of_chunks(PATIENCE, chunk).map_err(said)?;
        for &piece in &pieces {
            lines.push(compare(&mut sum, &mut wire, &communicator, chunk, piece, rounds)?);
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
    sum: &mut Sum,
    wire: &mut MpiWire,
    communicator: &Communicator,
    chunk: usize,
    piece: usize,
    rounds: usize,
) -> Result<String, Problem> {
    let size = Wire::size(wire);
    let piece = piece.next_multiple_of(4 * size);
    let (mut send, mut receive) = (vec![0; piece], vec![0; piece]);
    let mut took = [const { Vec::new() }; 3];
    for round in 0..=rounds {
        let ordered = timed(|| sum.ordered(wire, &mut send, &mut receive))?;
        sum.check(size)?;
        let direct = timed(|| sum.ordered(&mut &*communicator, &mut send, &mut receive))?;
        sum.check(size)?;
        let reduced =
            timed(|| communicator.allreduce(&sum.own, &mut sum.total, ReduceOp::Sum).map_err(|e| e.to_string()))?;
        // The first of each touches memory that was never touched.
        if round > 0 {
            took.iter_mut().zip([ordered, direct, reduced]).for_each(|(all, one)| all.push(one));
        }
    }
    let [ordered, direct, reduced] = took.each_ref().map(|all| median(all));
    let least = took.each_ref().map(|all| all.iter().copied().fold(f64::INFINITY, f64::min));
    Ok(format!(
        "{{\"chunk\": {chunk}, \"piece\": {piece}, \"ordered_ms\": {ordered:.1}, \"direct_ms\": {direct:.1}, \
         \"allreduce_ms\": {reduced:.1}, \"ratio\": {:.2}, \"least_ms\": [{:.1}, {:.1}, {:.1}]}}",
        ordered / reduced,
        least[0],
        least[1],
        least[2],
    ))
}

/// In ms.
fn timed(run: impl FnOnce() -> Result<(), Problem>) -> Result<f64, Problem> {
    let since = Instant::now();
    run()?;
    Ok(since.elapsed().as_secs_f64() * 1e3)
}

struct Sum {
    own: Vec<f32>,
    total: Vec<f32>,
}

impl Sum {
    /// As exchanges of a program do it: a share of each piece is added up here, and goes to all.
    fn ordered(&mut self, wire: &mut impl Exchange, send: &mut [u8], receive: &mut [u8]) -> Result<(), Problem> {
        let share = send.len() / wire.size();
        for (own, total) in self.own.chunks(send.len() / 4).zip(self.total.chunks_mut(send.len() / 4)) {
            let (filled, rest) = send.split_at_mut(4 * own.len());
            for (bytes, number) in filled.as_chunks_mut::<4>().0.iter_mut().zip(own) {
                *bytes = number.to_ne_bytes();
            }
            rest.fill(0);
            wire.all_to_all(send, receive)?;
            join(receive, share);
            send[..share].copy_from_slice(&receive[..share]);
            wire.all_gather(&send[..share], receive)?;
            for (number, bytes) in total.iter_mut().zip(receive.as_chunks::<4>().0) {
                *number = f32::from_ne_bytes(*bytes);
            }
        }
        Ok(())
    }

    fn check(&self, size: usize) -> Result<(), Problem> {
        let all = |i: usize| (0..size).map(|rank| number(rank, i)).sum::<f32>();
        let wrong = (0..self.total.len()).step_by(997).find(|&i| self.total[i] != all(i));
        wrong.map_or(Ok(()), |i| Err(format!("the sum of number {i} is {} and not {}", self.total[i], all(i))))
    }
}

/// A sum's two exchanges.
trait Exchange {
    fn size(&self) -> usize;
    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem>;
    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem>;
}

impl Exchange for MpiWire {
    fn size(&self) -> usize {
        Wire::size(self)
    }

    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem> {
        Wire::all_to_all(self, send, receive).map_err(said)
    }

    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem> {
        Wire::all_gather(self, send, receive).map_err(said)
    }
}

/// What waits inside of MPI for ever, and copies nothing: what a wire's thread and rooms cost is the difference.
impl Exchange for &Communicator {
    fn size(&self) -> usize {
        Communicator::size(self) as usize
    }

    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem> {
        self.alltoall(send, receive).map_err(|e| e.to_string())
    }

    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Problem> {
        self.allgather(send, receive).map_err(|e| e.to_string())
    }
}

/// Adds neighbours up, then neighbours of these, and so on; the first share has the sum.
fn join(receive: &mut [u8], share: usize) {
    let size = receive.len() / share;
    let mut apart = 1;
    while apart < size {
        for left in (0..size - apart).step_by(2 * apart) {
            let (before, after) = receive.split_at_mut((left + apart) * share);
            let left = before[left * share..][..share].as_chunks_mut::<4>().0;
            for (l, r) in left.iter_mut().zip(after[..share].as_chunks::<4>().0) {
                *l = (f32::from_ne_bytes(*l) + f32::from_ne_bytes(*r)).to_ne_bytes();
            }
        }
        apart *= 2;
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
