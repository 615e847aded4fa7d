//! A tape whose values have places, and how it runs: tile by tile, each instruction a loop over the lanes of its registers.

use std::mem::MaybeUninit;
use std::ops::Range;

use memfit_ir::{DType, ValueId};
use memfit_plan::Place;

use super::TILE;
use super::bits;
use super::lanes::{self, DropoutMask, GradVectors};
use super::operand::{load_lanes, round_lanes, store_lanes};
use super::tape::{Code, MAX_REGISTERS, Register, Tape};
use crate::isa::Isa;
use crate::memory::Memory;
use crate::prefetch::prefetch_bytes;

impl Tape {
    /// The tape with its values in place.
    pub(crate) fn bind(&self, place: impl Fn(ValueId) -> Place) -> BoundTape {
        let last_reads = |p: Place, after: usize| {
            self.instructions[after + 1..].iter().flat_map(|i| &i.inputs).any(|&r| {
                matches!(self.registers[r], Register::Memory { value: v, .. } | Register::Narrow { value: v, .. } if overlap(place(v), p))
            })
        };
        let mut results = Vec::new();
        for (i, instruction) in self.instructions.iter().enumerate() {
            results.push(match (instruction.writes, instruction.dtype) {
                (false, _) => ResultStore::No,
                (true, DType::F32 | DType::I32 | DType::Bit) => {
                    let p = place(instruction.value);
                    // What a later instruction still reads must not be overwritten before.
                    if last_reads(p, i) { ResultStore::Late(p) } else { ResultStore::Directly(p) }
                }
                (true, DType::F16 | DType::BF16 | DType::U8) => ResultStore::Late(place(instruction.value)),
            });
        }
        let places = |v: ValueId| place(v);
        BoundTape {
            registers: self.registers.iter().map(|r| value_of(r).map(places)).collect(),
            setup: self.setup.iter().map(|p| p.values().map(|v| v.map(places))).collect(),
            clocks: self
                .instructions
                .iter()
                .map(|i| if let Code::Dropout { clock, .. } = i.code { Some(place(clock)) } else { None })
                .collect(),
            results,
            tape: self.clone(),
        }
    }
}

fn overlap(a: Place, b: Place) -> bool {
    a.segment == b.segment && a.offset < b.offset + b.size && b.offset < a.offset + a.size
}

fn value_of(r: &Register) -> Option<ValueId> {
    match r {
        Register::Memory { value, .. } | Register::Narrow { value, .. } | Register::Strided { value, .. } => {
            Some(*value)
        }
        Register::Constant { .. } | Register::Periodic { .. } | Register::Slot(_) => None,
    }
}

/// A tape whose values have places.
#[derive(Clone, Debug)]
pub(crate) struct BoundTape {
    tape: Tape,
    /// By register, where it is in memory.
    registers: Vec<Option<Place>>,
    /// By step of the setup, what it reads.
    setup: Vec<[Option<Place>; 4]>,
    /// By instruction, the clock of a dropout.
    clocks: Vec<Option<Place>>,
    results: Vec<ResultStore>,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
enum ResultStore {
    No,
    /// Computed straight into memory.
    Directly(Place),
    /// Computed into a slot and stored when the tile is done.
    Late(Place),
}

impl BoundTape {
    pub(crate) fn elements(&self) -> usize {
        self.tape.elements
    }

    /// Sets the shared part of the scratch. Before the first [`BoundTape::run`] of every launch.
    ///
    /// # Safety
    /// `scratch` has [`Tape::scratch_len`] elements that nobody else uses, and the places that the tape is bound to lie inside of
    /// `memory`.
    pub(crate) unsafe fn prepare(&self, memory: &Memory, scratch: *mut f32) {
        let tile = self.tape.tile();
        for (step, places) in self.tape.setup.iter().zip(&self.setup) {
            // SAFETY: places hold the whole values, and the tape's scratch begins with what its steps share.
            unsafe { step.run(places.map(|p| p.map_or(std::ptr::null_mut(), |p| memory.at(p))), tile, scratch) };
        }
    }

    /// Whether the chain reads or writes bits: then it must start at a multiple of eight elements, and end at one or at
    /// the end, so that no two runs share a byte.
    pub(crate) fn has_bits(&self) -> bool {
        let read = |r: &Register| matches!(r, Register::Memory { dtype: DType::Bit, .. });
        self.tape.registers.iter().any(read) || self.tape.instructions.iter().any(|i| i.dtype == DType::Bit)
    }

    /// [`BoundTape::run`] over many elements, whose results lie in no cache. The instructions of a chain read a page or write
    /// one, and none lasts long enough that a processor foresees the next page that is written: it is prefetched here.
    ///
    /// # Safety
    /// As for [`BoundTape::run`].
    pub(crate) unsafe fn run_long(
        &self,
        isa: Isa,
        memory: &Memory,
        scratch: *mut f32,
        thread: usize,
        range: Range<usize>,
    ) {
        if self.fresh().next().is_none() {
            // SAFETY: the caller's promise is that of `run`.
            return unsafe { self.run(isa, memory, scratch, thread, range) };
        }
        for e0 in range.clone().step_by(TILE) {
            let end = range.end.min(e0 + TILE);
            for (place, dtype) in self.fresh() {
                let at = |e: usize| memory.at(place).addr() + dtype.bytes(e);
                prefetch_bytes(at(end)..at(range.end.min(end + TILE)));
            }
            // SAFETY: the tile is a part of the caller's range, and starts at a multiple of eight elements of it.
            unsafe { self.run(isa, memory, scratch, thread, e0..end) };
        }
    }

    /// The results that do not lie where an operand lay.
    fn fresh(&self) -> impl Iterator<Item = (Place, DType)> {
        let results = self.tape.instructions.iter().zip(&self.results);
        results.filter_map(|(instruction, result)| match *result {
            ResultStore::Directly(place) | ResultStore::Late(place) if !self.registers.contains(&Some(place)) => {
                Some((place, instruction.dtype))
            }
            ResultStore::No | ResultStore::Directly(_) | ResultStore::Late(_) => None,
        })
    }

    /// Runs elements `range` of the chain on thread `thread`.
    ///
    /// # Safety
    /// As for [`BoundTape::prepare`], which has run with the same memory and scratch. The chain has these elements; no other thread
    /// has the same number or runs the same elements, and with [`BoundTape::has_bits`] none shares a byte of them. What the chain
    /// reads, nobody else writes; what it writes, nobody else touches.
    pub(crate) unsafe fn run(&self, isa: Isa, memory: &Memory, scratch: *mut f32, thread: usize, range: Range<usize>) {
        // SAFETY: the caller's promise; no result goes elsewhere.
        unsafe { self.run_to(isa, memory, scratch, thread, range, None) }
    }

    /// The same; the result of the last instruction goes to `last`, if that is given, and not into memory.
    ///
    /// # Safety
    /// As for [`BoundTape::run`]; at `last` there is room for the range, which nobody else uses.
    pub(crate) unsafe fn run_to(
        &self,
        isa: Isa,
        memory: &Memory,
        scratch: *mut f32,
        thread: usize,
        range: Range<usize>,
        last: Option<*mut f32>,
    ) {
        let tile = self.tape.tile();
        let mut room = Pointers::new();
        let pointers = room.first(self.tape.registers.len());
        for e0 in range.clone().step_by(tile) {
            let n = tile.min(range.end - e0);
            // SAFETY: slots of this thread follow the shared part, each a tile long; results have their places for all elements of the
            // chain, and `last` for those of the range.
            unsafe {
                let slots = scratch.add(self.tape.shared + thread * self.tape.slots * tile);
                self.locate(isa, memory, [scratch, slots], e0..e0 + n, pointers);
                if let (Some(to), Some(i)) = (last, self.tape.instructions.last()) {
                    pointers[i.output] = to.add(e0 - range.start);
                }
                for (i, instruction) in self.tape.instructions.iter().enumerate() {
                    if let ResultStore::Directly(p) = self.results[i] {
                        pointers[instruction.output] = memory.at(p).add(instruction.dtype.bytes(e0)).cast();
                    }
                    self.execute(isa, memory, i, e0, n, pointers);
                }
                for (instruction, result) in self.tape.instructions.iter().zip(&self.results) {
                    if let ResultStore::Late(p) = *result {
                        let to = memory.at(p).add(instruction.dtype.bytes(e0));
                        store_lanes(isa, pointers[instruction.output], instruction.dtype, n, to);
                    }
                }
            }
        }
    }

    /// Points every register to its lanes for a tile of elements.
    ///
    /// # Safety
    /// As for [`BoundTape::run`], with the slots of its thread.
    unsafe fn locate(
        &self,
        isa: Isa,
        memory: &Memory,
        [scratch, slots]: [*mut f32; 2],
        elements: Range<usize>,
        pointers: &mut [*mut f32],
    ) {
        let (e0, n) = (elements.start, elements.len());
        let tile = self.tape.tile();
        // Most vectors have the same period, and a division takes as long as some loops.
        let mut within = (0, 0);
        for (i, (register, place)) in self.tape.registers.iter().zip(&self.registers).enumerate() {
            let from = place.map_or(std::ptr::null_mut(), |p| memory.at(p));
            // SAFETY: the tensor has the elements of the tile, a slot is a tile long, and what repeats was set up for a period and a
            // tile, of which it starts within the period.
            unsafe {
                pointers[i] = match *register {
                    Register::Memory { dtype, .. } => from.add(dtype.bytes(e0)).cast(),
                    Register::Narrow { dtype, slot, .. } => {
                        load_lanes(isa, from.add(dtype.bytes(e0)), dtype, n, slots.add(slot * tile));
                        slots.add(slot * tile)
                    }
                    Register::Strided { dtype, ref strides, slot, .. } => {
                        strides.gather(isa, from, dtype, e0, n, slots.add(slot * tile));
                        slots.add(slot * tile)
                    }
                    Register::Constant { at } => scratch.add(at),
                    Register::Periodic { at, period } => {
                        if within.0 != period {
                            within = (period, e0 % period);
                        }
                        scratch.add(at + within.1)
                    }
                    Register::Slot(slot) => slots.add(slot * tile),
                };
            }
        }
    }

    /// Runs one instruction over a tile that starts with element `e0`.
    ///
    /// # Safety
    /// As for [`BoundTape::run`]; the pointers of the instruction's registers cover n lanes.
    unsafe fn execute(&self, isa: Isa, memory: &Memory, index: usize, e0: usize, n: usize, pointers: &[*mut f32]) {
        let instruction = &self.tape.instructions[index];
        let input = |i: usize| pointers[instruction.inputs[i]].cast_const();
        let int = |i: usize| input(i).cast::<i32>();
        let y = pointers[instruction.output];
        // SAFETY: registers cover n lanes, of i32 where the code is of integers; an output lies apart from the inputs, or the
        // planner put it where one of them lies.
        unsafe {
            match instruction.code {
                Code::Unary(u) => lanes::unary(isa, u, input(0), y, n),
                Code::UnaryInt { negate } => lanes::unary_int(isa, negate, int(0), y.cast(), n),
                Code::UnaryGrad(u) => lanes::unary_grad(isa, u, input(0), input(1), y, n),
                Code::Mask(u) => bits::mask(isa, u, input(0), y.cast(), n),
                Code::MaskGrad(u) => bits::mask_grad(isa, u, input(0).cast(), input(1), y, n),
                Code::Binary(b) => lanes::binary(isa, b, input(0), input(1), y, n),
                Code::BinaryInt(b) => lanes::binary_int(isa, b, int(0), int(1), y.cast(), n),
                Code::Compare(c) => lanes::compare(isa, c, input(0), input(1), y.cast(), n),
                Code::CompareInt(c) => lanes::compare_int(isa, c, int(0), int(1), y.cast(), n),
                Code::Select => lanes::select(isa, int(0), int(1), int(2), y.cast(), n),
                Code::Cast { from_float, to } => lanes::convert(isa, from_float, to, input(0), y, n),
                Code::BatchApply => lanes::batch_apply(isa, input(0), input(1), input(2), input(3), y, n),
                Code::BatchGradInput => {
                    let v = GradVectors { mean: input(2), a: input(3), b: input(4), c: input(5) };
                    lanes::batch_grad_input(isa, input(0), input(1), v, y, n);
                }
                Code::Dropout { rate, stream, per_sample, .. } => {
                    let Some(place) = self.clocks[index] else { unreachable!("a dropout without a clock") };
                    // The clock is i32[4].
                    let [step, first_sample, low, high] = memory.at(place).cast::<[u32; 4]>().read();
                    let mask = DropoutMask { seed: [low, high], step, first_sample, stream, rate, per_sample };
                    lanes::dropout(isa, &mask, e0, input(0), y, n);
                }
            }
            round_lanes(isa, y, instruction.dtype, n);
        }
    }
}

/// Room for the pointers of a tile, of which only as many are set as there are registers: a chain may run for a few hundred
/// elements, which take less time than clearing all of it.
struct Pointers([MaybeUninit<*mut f32>; MAX_REGISTERS]);

impl Pointers {
    fn new() -> Pointers {
        Pointers([const { MaybeUninit::uninit() }; MAX_REGISTERS])
    }

    /// The first n, all null.
    fn first(&mut self, n: usize) -> &mut [*mut f32] {
        self.0[..n].iter_mut().for_each(|p| {
            p.write(std::ptr::null_mut());
        });
        // SAFETY: the first n have just been written, and a `MaybeUninit` lies as what it holds.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), n) }
    }
}
