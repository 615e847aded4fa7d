//! Exchanges that come to their end: that everybody gets the right bytes, and that nothing is allocated for it.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use memfit_exec::{Numbers, Sum, Wire, WireError};
use memfit_ir::Replica;
use memfit_test_allocator::{Who, count};
use memfit_wire_mpi::{Mpi, MpiWire};

use crate::{PATIENCE, Problem, said, same};

/// Bytes of a share: none, few, about those of a chunk, and more.
const SHARES: [usize; 9] = [0, 1, 7, 64, 1000, 10_000, 262_143, 1 << 20, 3_000_001];

pub fn check(mpi: Mpi) -> Result<(), Problem> {
    let mut wires = [mpi.wire(PATIENCE).map_err(said)?, mpi.wire_of_chunks(PATIENCE, 4096).map_err(said)?];
    for wire in &mut wires {
        // Small chunks make many rounds of a large share.
        let largest = if wire.room_bytes() < 1 << 20 { 10_000 } else { usize::MAX };
        SHARES.iter().filter(|share| **share <= largest).try_for_each(|share| check_share(wire, *share))?;
    }
    let [first, second] = wires;
    let wires = check_two_threads(first, second)?;
    for mut wire in wires {
        check_memory(&mut wire)?;
    }
    println!("rank {} of {}: passed; MPI took {} KiB", mpi.rank(), mpi.size(), mpi.resident_bytes_taken() / 1024);
    mpi.finish().map_err(said)
}

/// All three operations with so many bytes for each.
fn check_share(wire: &mut MpiWire, share: usize) -> Result<(), Problem> {
    let (rank, size) = (wire.rank(), wire.size());
    [size, 2 * size + 1].into_iter().try_for_each(|lanes| check_sum(wire, share, lanes))?;
    let mut received = vec![0; size * share];
    wire.all_gather(&bytes(rank, size, share), &mut received).map_err(said)?;
    let expected: Vec<u8> = (0..size).flat_map(|from| bytes(from, size, share)).collect();
    is_same(&format!("all-gather of {share}"), &received, &expected)?;
    for owner in 0..size {
        let mut sent = bytes(rank, 100 + owner, share);
        wire.broadcast(owner, &mut sent).map_err(said)?;
        is_same(&format!("broadcast of {share}"), &sent, &bytes(owner, 100 + owner, share))?;
    }
    Ok(())
}

/// Of some lanes replicas have several sums, and not all as many.
fn check_sum(wire: &mut MpiWire, numbers: usize, lanes: usize) -> Result<(), Problem> {
    let (rank, size) = (wire.rank(), wire.size());
    let replica = Replica { lanes, count: size, rank };
    let sum = Arc::new(Sum::new(4 * numbers, 4 << 20, replica));
    let own = |round: usize| (0..numbers).map(|i| number(rank, round, i)).collect();
    let mut held = Held { own: (0..sum.count(rank)).map(own).collect(), total: vec![0.0; numbers] };
    wire.sum(&sum, &mut held, &mut []).map_err(said)?;
    let (parts, joins) = (replica.all_subtrees(), replica.joins());
    for (i, found) in held.total.into_iter().enumerate() {
        let mut sums: Vec<f32> = parts.iter().map(|(_, rank, round)| number(*rank, *round, i)).collect();
        joins.iter().for_each(|(left, right)| sums[*left] += sums[*right]);
        if found != sums[0] {
            return Err(format!("number {i} of {numbers} in {lanes} lanes is {found} and not {}", sums[0]));
        }
    }
    Ok(())
}

/// Such that the order in which they are added up shows.
fn number(rank: usize, round: usize, i: usize) -> f32 {
    (1 + i % 1000 + rank * 31 + round * 11) as f32 * 1.1
}

/// A replica's sums, and the sum of all.
struct Held {
    own: Vec<Vec<f32>>,
    total: Vec<f32>,
}

impl Numbers for Held {
    fn load(&mut self, round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
        into.copy_from_slice(&bytemuck::cast_slice(&self.own[round])[range]);
        Ok(())
    }

    fn store(&mut self, range: Range<usize>, from: &[u8]) {
        bytemuck::cast_slice_mut(&mut self.total)[range].copy_from_slice(from);
    }
}

/// What one replica sends to another.
fn bytes(from: usize, to: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256 + from * 7 + to * 13) as u8).collect()
}

fn is_same(what: &str, found: &[u8], expected: &[u8]) -> Result<(), Problem> {
    match found.iter().zip(expected).position(|(f, e)| f != e) {
        None => same(what, found.len(), expected.len()),
        Some(at) => Err(format!("{what}: byte {at} is {} and not {}", found[at], expected[at])),
    }
}

/// Two threads, each with its wire; one has far more to do.
fn check_two_threads(first: MpiWire, second: MpiWire) -> Result<[MpiWire; 2], Problem> {
    let many = |mut wire: MpiWire, times: usize, share: usize| {
        (0..times).try_for_each(|_| check_share(&mut wire, share)).map(|()| wire)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| many(second, 10, 2_000));
        let first = many(first, 4, 500_000)?;
        let second = other.join().map_err(|_| "a thread panicked".to_string())??;
        Ok([first, second])
    })
}

/// That exchanges allocate nothing after the first, and the process does not grow.
fn check_memory(wire: &mut MpiWire) -> Result<(), Problem> {
    let size = wire.size();
    // About two rounds.
    let share = wire.room_bytes() / 4 / size;
    let (send, mut received) = (vec![1; share], vec![0; size * share]);
    let replica = Replica { lanes: size, count: size, rank: wire.rank() };
    let sum = Arc::new(Sum::new(share / 4 * 4, 4 << 20, replica));
    let mut held = Held { own: vec![vec![1.0; share / 4]], total: vec![0.0; share / 4] };
    let mut exchange = |times: usize| {
        (0..times).try_for_each(|_| {
            wire.sum(&sum, &mut held, &mut [])?;
            wire.all_gather(&send, &mut received)?;
            wire.broadcast(size - 1, &mut received)
        })
    };
    exchange(20).map_err(said)?;
    let before = resident_kib()?;
    let (done, counts) = count(Who::Process, || exchange(100));
    done.map_err(said)?;
    same("allocations", counts.calls, 0)?;
    let grown = resident_kib()?.saturating_sub(before);
    if grown > 1024 {
        return Err(format!("the process grew by {grown} KiB in 100 exchanges"));
    }
    Ok(())
}

fn resident_kib() -> Result<u64, Problem> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("VmRSS:{line}"))
}
