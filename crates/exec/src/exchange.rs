//! Exchanges of a program: where replicas meet between two kernels. Sums are added up here, in the order of the tree over all
//! lanes and in no other, whatever wire brings them; so every number of replicas gives the same bits.

use std::ops::Range;

use memfit_ir::op::{Join, Replicate};
use memfit_ir::{Op, ValueId};
use memfit_plan::exchange::Pieces;
use memfit_plan::{Launch, Place, Plan, Program, Segment};

use crate::arena::Arena;
use crate::error::ExecError;
use crate::executor::Executor;
use crate::wire::{Wire, WireError};

/// An exchange, bound to its places.
pub(crate) struct Exchange {
    /// Which launch of its program it is.
    pub launch: usize,
    pub layer: String,
    kind: Kind,
}

enum Kind {
    Join(JoinPlaces),
    Replicate { state: Place, owner: usize },
}

struct JoinPlaces {
    pieces: Pieces,
    /// By sum of a tensor, the places of all tensors in order.
    sums: Vec<Vec<Place>>,
    totals: Vec<Place>,
    /// In host memory; else the engine has room for it.
    scratch: Option<Place>,
    /// Which of the subtrees takes the sum of which two, each by where its share of a piece is received.
    joins: Vec<[usize; 2]>,
}

impl Exchange {
    /// The exchanges of a program, in the order in which they happen.
    pub fn all(program: &Program) -> Vec<Exchange> {
        let exchange = |(number, launch): (usize, &Launch)| Exchange::new(program, number, launch);
        program.launches.iter().enumerate().filter_map(exchange).collect()
    }

    fn new(program: &Program, number: usize, launch: &Launch) -> Option<Exchange> {
        let root = launch.group.root();
        let node = program.graph.node(root);
        // The validator has seen that every value that is read or written has its place.
        let place = |v: &ValueId| program.place(*v);
        let kind = if let Op::Join(join) = node.op {
            let pieces = Pieces::new(&program.graph, root, join);
            let each = join.sums();
            let totals: Vec<Place> = node.outputs[..node.outputs.len() - 1].iter().map(place).collect::<Option<_>>()?;
            let of_sum = |i: usize| (0..totals.len()).map(|t| place(&node.inputs[t * each + i])).collect();
            let sums = (0..each).map(of_sum).collect::<Option<_>>()?;
            Kind::Join(JoinPlaces { pieces, sums, totals, scratch: launch.scratch, joins: join_order(join, &pieces) })
        } else if let Op::Replicate(Replicate { owner, .. }) = node.op {
            Kind::Replicate { state: place(&node.inputs[0])?, owner }
        } else {
            return None;
        };
        Some(Exchange { launch: number, layer: node.scope.clone(), kind })
    }

    /// Runs it, with `staging` as room where the device has memory of its own.
    pub fn run<E: Executor>(
        &self,
        executor: &E,
        arena: &mut Arena<E::Memory>,
        wire: &mut dyn Wire,
        staging: &mut [u8],
    ) -> Result<(), ExecError> {
        let failed = |source: WireError| ExecError::Wire { layer: self.layer.clone(), source };
        let mut memory = DeviceBytes::new(executor, arena);
        match &self.kind {
            Kind::Join(join) => {
                let (send, receive) = memory.room(join.scratch, staging).split_at_mut(join.pieces.piece as usize);
                join.run(&mut memory, wire, send, receive, failed)
            }
            Kind::Replicate { state, owner } => (0..state.size).step_by(STATE_PIECE).try_for_each(|start| {
                let piece = Place {
                    offset: state.offset + start,
                    size: (state.size - start).min(STATE_PIECE as u64),
                    ..*state
                };
                memory.broadcast(piece, *owner, wire, staging, failed)
            }),
        }
    }
}

/// Bytes of a state that are sent at a time, the same for every replica.
const STATE_PIECE: usize = 1 << 20;

/// Bytes of the host that the exchanges of a plan take where its device has memory of its own: taken when it is connected.
pub fn staging_bytes(plan: &Plan) -> u64 {
    let of_program = |p: &Program| {
        let room = |e: Exchange| match e.kind {
            Kind::Join(join) => join.pieces.room(),
            Kind::Replicate { state, .. } => state.size.min(STATE_PIECE as u64),
        };
        Exchange::all(p).into_iter().map(room).max().unwrap_or(0)
    };
    plan.programs.iter().map(of_program).max().unwrap_or(0)
}

/// The joins of a tree's subtrees, each by where the share that this replica adds up is received of it.
fn join_order(join: Join, pieces: &Pieces) -> Vec<[usize; 2]> {
    let received: Vec<usize> = join
        .replica
        .all_subtrees()
        .iter()
        .map(|(_, rank, i)| i * pieces.piece as usize + rank * pieces.share as usize)
        .collect();
    join.replica.joins().into_iter().map(|(left, right)| [received[left], received[right]]).collect()
}

impl JoinPlaces {
    fn run<E: Executor>(
        &self,
        memory: &mut DeviceBytes<E>,
        wire: &mut dyn Wire,
        send: &mut [u8],
        receive: &mut [u8],
        failed: impl Fn(WireError) -> ExecError,
    ) -> Result<(), ExecError> {
        let Pieces { total, piece, share, rounds } = self.pieces;
        let (piece, share) = (piece as usize, share as usize);
        for start in (0..total as usize).step_by(piece) {
            let range = start..(start + piece).min(total as usize);
            for round in 0..rounds as usize {
                let (filled, rest) = send.split_at_mut(range.len());
                if let Some(sums) = self.sums.get(round) {
                    memory.load(sums, range.clone(), filled)?;
                }
                // What is only there to make the shares equal is nobody's.
                rest.fill(0);
                wire.all_to_all(send, &mut receive[round * piece..][..piece]).map_err(&failed)?;
            }
            for &[left, right] in &self.joins {
                let [left, right] = two(receive, left, right, share);
                add(left, right);
            }
            send[..share].copy_from_slice(&receive[..share]);
            wire.all_gather(&send[..share], &mut receive[..piece]).map_err(&failed)?;
            memory.store(&self.totals, range.clone(), &receive[..range.len()]);
        }
        Ok(())
    }
}

/// Two parts of so many bytes, which lie apart; the first may be changed.
fn two(bytes: &mut [u8], first: usize, second: usize, len: usize) -> [&mut [u8]; 2] {
    if first < second {
        let (before, after) = bytes.split_at_mut(second);
        [&mut before[first..][..len], &mut after[..len]]
    } else {
        let (before, after) = bytes.split_at_mut(first);
        [&mut after[..len], &mut before[second..][..len]]
    }
}

/// Adds f32 numbers as kernels do: a sum that is too small to be a normal number is zero.
fn add(left: &mut [u8], right: &[u8]) {
    let (left, _) = left.as_chunks_mut::<4>();
    let (right, _) = right.as_chunks::<4>();
    for (l, r) in left.iter_mut().zip(right) {
        *l = flushed(flushed(f32::from_ne_bytes(*l)) + flushed(f32::from_ne_bytes(*r))).to_ne_bytes();
    }
}

/// The exponent of an f32.
const EXPONENT: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

fn flushed(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & EXPONENT == 0 { bits & SIGN } else { bits })
}

/// The memory of a device, as bytes of the host.
struct DeviceBytes<'a, 'b, E: Executor> {
    executor: &'a E,
    arena: &'a mut Arena<'b, E::Memory>,
    /// Where both segments start, in host memory.
    bases: Option<[*mut u8; 2]>,
}

impl<'a, 'b, E: Executor> DeviceBytes<'a, 'b, E> {
    fn new(executor: &'a E, arena: &'a mut Arena<'b, E::Memory>) -> Self {
        let bases = executor.host_base(arena.state).zip(executor.host_base(arena.transient));
        DeviceBytes { executor, arena, bases: bases.map(|(state, transient)| [state, transient]) }
    }

    /// The bytes of a place in host memory; none where the device has its own. Nothing else may look at them meanwhile.
    fn host_bytes(&mut self, place: Place) -> Option<&'static mut [u8]> {
        let [state, transient] = self.bases?;
        let base = match place.segment {
            Segment::State => state,
            Segment::Transient => transient,
        };
        // SAFETY: the segment has this place, the arena is borrowed as long as this exists, which no slice outlives, and the plan
        // keeps the places of an exchange apart but for totals over their sums, which are never looked at together.
        Some(unsafe { std::slice::from_raw_parts_mut(base.add(place.offset as usize), place.size as usize) })
    }

    /// Room for pieces: the planned scratch, or that of the engine.
    fn room<'c>(&mut self, scratch: Option<Place>, staging: &'c mut [u8]) -> &'c mut [u8] {
        match scratch.and_then(|place| self.host_bytes(place)) {
            Some(room) => room,
            None => staging,
        }
    }

    /// Sends a place, or receives it.
    fn broadcast(
        &mut self,
        place: Place,
        owner: usize,
        wire: &mut dyn Wire,
        staging: &mut [u8],
        failed: impl Fn(WireError) -> ExecError,
    ) -> Result<(), ExecError> {
        if let Some(bytes) = self.host_bytes(place) {
            return wire.broadcast(owner, bytes).map_err(failed);
        }
        let bytes = &mut staging[..place.size as usize];
        if wire.rank() == owner {
            self.executor.read(self.arena.segment(place), place, bytes)?;
        }
        wire.broadcast(owner, bytes).map_err(failed)?;
        if wire.rank() != owner {
            self.executor.write(self.arena.segment_mut(place), place, 0, bytes);
        }
        Ok(())
    }

    /// Copies some bytes of tensors that are thought to lie one behind the other.
    fn load(&mut self, places: &[Place], range: Range<usize>, into: &mut [u8]) -> Result<(), ExecError> {
        for (place, part) in cut(places, range) {
            let into = &mut into[part];
            match self.host_bytes(place) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => self.executor.read(self.arena.segment(place), place, into)?,
            }
        }
        Ok(())
    }

    fn store(&mut self, places: &[Place], range: Range<usize>, from: &[u8]) {
        for (place, part) in cut(places, range) {
            let from = &from[part];
            match self.host_bytes(place) {
                Some(bytes) => bytes.copy_from_slice(from),
                None => self.executor.write(self.arena.segment_mut(place), place, 0, from),
            }
        }
    }
}

/// The places that some bytes of tensors one behind the other have, each with where it stands among them.
fn cut(places: &[Place], range: Range<usize>) -> impl Iterator<Item = (Place, Range<usize>)> {
    let mut start = 0;
    places.iter().filter_map(move |place| {
        let here = start..start + place.size as usize;
        start = here.end;
        let (from, to) = (here.start.max(range.start), here.end.min(range.end));
        let part = Place {
            offset: place.offset + (from.saturating_sub(here.start)) as u64,
            size: to.saturating_sub(from) as u64,
            ..*place
        };
        (from < to).then(|| (part, from - range.start..to - range.start))
    })
}
