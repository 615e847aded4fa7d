//! Exchanges of a program: where replicas meet between two kernels. A wire moves and adds up what these name, and reads and writes
//! it where it is in memory.

use std::ops::Range;
use std::sync::Arc;

use memfit_ir::op::Replicate;
use memfit_ir::{Op, ValueId};
use memfit_plan::exchange::Pieces;
use memfit_plan::{Launch, Place, Plan, Program, Segment};

use crate::arena::Arena;
use crate::error::ExecError;
use crate::executor::Executor;
use crate::wire::{Numbers, Sum, Wire, WireError};

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
    /// Shared with wires that have a thread of their own.
    sum: Arc<Sum>,
    /// Bytes that it is planned to need.
    room: u64,
    /// By sum of a tensor, the places of all tensors in order.
    sums: Vec<Vec<Place>>,
    totals: Vec<Place>,
    /// In host memory; else the engine has room for it.
    scratch: Option<Place>,
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
            let sum = Arc::new(Sum::new(pieces.total as usize, pieces.piece as usize, join.replica));
            Kind::Join(JoinPlaces { sum, room: pieces.room(), sums, totals, scratch: launch.scratch })
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
                let room = memory.room(join.scratch, staging);
                let mut numbers = JoinNumbers { places: join, memory, failure: None };
                let ended = wire.sum(&join.sum, &mut numbers, room);
                numbers.failure.map_or(ended.map_err(failed), Err)
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
            Kind::Join(join) => join.room,
            Kind::Replicate { state, .. } => state.size.min(STATE_PIECE as u64),
        };
        Exchange::all(p).into_iter().map(room).max().unwrap_or(0)
    };
    plan.programs.iter().map(of_program).max().unwrap_or(0)
}

/// The numbers of a join, in the memory of a device.
struct JoinNumbers<'p, 'a, 'b, E: Executor> {
    places: &'p JoinPlaces,
    memory: DeviceBytes<'a, 'b, E>,
    /// Of the device: what a wire is told is less.
    failure: Option<ExecError>,
}

impl<E: Executor> Numbers for JoinNumbers<'_, '_, '_, E> {
    fn load(&mut self, round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
        let loaded = self.memory.load(&self.places.sums[round], range, into);
        loaded.map_err(|failure| {
            let told = WireError::Failed(failure.to_string());
            self.failure = Some(failure);
            told
        })
    }

    fn store(&mut self, range: Range<usize>, from: &[u8]) {
        self.memory.store(&self.places.totals, range, from);
    }
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
