//! A chain as a tape: registers and instructions, made once, run for every tile.

use std::mem::MaybeUninit;
use std::ops::Range;

use memfit_ir::op::{Op, Unary};
use memfit_ir::{DType, Graph, Node, NodeId, ValueId};
use memfit_plan::Place;
use memfit_transform::group::is_immediate;

use super::TILE;
use super::bits;
use super::lanes::{self, GradVectors, Mask};
use super::operand::{Strides, load_lanes, round_lanes, store_lanes};
use super::setup::Setup;
use crate::isa::Isa;
use crate::kernels::ahead::fetch_bytes;
use crate::memory::Memory;

/// The largest period that is repeated in scratch; longer operands are copied tile by tile.
const LONGEST_PERIOD: usize = 8192;

/// A chain before its values have places.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Elements of the chain's shape.
    elements: usize,
    registers: Vec<Register>,
    instructions: Vec<Instruction>,
    /// What is set before the first tile, in the shared part of the scratch.
    setup: Vec<Setup>,
    slots: usize,
    shared: usize,
}

/// Where the lanes of a register are for the tile at hand.
#[derive(Clone, Debug)]
enum Register {
    /// 32-bit lanes in memory, or bits.
    Memory {
        value: ValueId,
        dtype: DType,
    },
    /// Other elements of the chain's shape, converted into a slot.
    Narrow {
        value: ValueId,
        dtype: DType,
        slot: usize,
    },
    Strided {
        value: ValueId,
        dtype: DType,
        strides: Strides,
        slot: usize,
    },
    /// The same lane everywhere, at this offset of the shared part.
    Constant {
        at: usize,
    },
    /// Repeats after `period` lanes, from this offset of the shared part.
    Periodic {
        at: usize,
        period: usize,
    },
    /// A result inside the chain.
    Slot(usize),
}

#[derive(Clone, Debug)]
struct Instruction {
    code: Code,
    inputs: Vec<usize>,
    output: usize,
    value: ValueId,
    dtype: DType,
    /// The value leaves the chain.
    writes: bool,
}

#[derive(Clone, Debug)]
enum Code {
    Op { op: Op, float: bool },
    Dropout { clock: ValueId, rate: f32, stream: u32, per_sample: usize },
}

/// Most registers of a tape: what [`Bound::run`] keeps on the stack.
const MAX_REGISTERS: usize = 160;

impl Tape {
    /// A tape for elementwise nodes of one shape. Values of `writes` leave the chain.
    pub fn new(graph: &Graph, nodes: &[NodeId], writes: &[ValueId]) -> Tape {
        let shape = graph.shape(graph.node(nodes[0]).outputs[0]);
        let mut maker = Maker {
            graph,
            shape,
            tape: Tape {
                elements: shape.iter().product(),
                registers: Vec::new(),
                instructions: Vec::new(),
                setup: Vec::new(),
                slots: 0,
                shared: 0,
            },
            known: Vec::new(),
        };
        for &id in nodes {
            maker.push(graph.node(id), writes);
        }
        assert!(maker.tape.registers.len() <= MAX_REGISTERS, "a chain has too many registers");
        maker.tape
    }

    fn tile(&self) -> usize {
        TILE.min(self.elements.next_multiple_of(16)).max(16)
    }

    /// Elements of scratch: a part shared by all threads, and slots for each.
    pub fn scratch_len(&self, threads: usize) -> usize {
        self.shared + threads * self.slots * self.tile()
    }

    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The tape with its values in place.
    pub fn bind(&self, place: impl Fn(ValueId) -> Place) -> Bound {
        let last_reads = |p: Place, after: usize| {
            self.instructions[after + 1..].iter().flat_map(|i| &i.inputs).any(|&r| {
                matches!(self.registers[r], Register::Memory { value: v, .. } | Register::Narrow { value: v, .. } if overlap(place(v), p))
            })
        };
        let mut results = Vec::new();
        for (i, instruction) in self.instructions.iter().enumerate() {
            results.push(match (instruction.writes, instruction.dtype) {
                (false, _) => Written::No,
                (true, DType::F32 | DType::I32 | DType::Bit) => {
                    let p = place(instruction.value);
                    // What a later instruction still reads must not be overwritten before.
                    if last_reads(p, i) { Written::Late(p) } else { Written::Directly(p) }
                }
                (true, DType::F16 | DType::BF16 | DType::U8) => Written::Late(place(instruction.value)),
            });
        }
        let places = |v: ValueId| place(v);
        Bound {
            registers: self.registers.iter().map(|r| value_of(r).map(places)).collect(),
            setup: self.setup.iter().map(|p| p.values().map(|v| v.map(places))).collect(),
            clocks: self
                .instructions
                .iter()
                .map(|i| match i.code {
                    Code::Dropout { clock, .. } => Some(place(clock)),
                    Code::Op { .. } => None,
                })
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

struct Maker<'a> {
    graph: &'a Graph,
    shape: &'a [usize],
    tape: Tape,
    /// Registers of values already met.
    known: Vec<(ValueId, usize)>,
}

impl Maker<'_> {
    fn push(&mut self, node: &Node, writes: &[ValueId]) {
        let value = node.outputs[0];
        let float = |m: &Maker, i: usize| m.graph.ty(node.inputs[i]).dtype.is_float();
        let (code, inputs) = match &node.op {
            Op::Dropout(d) => {
                let per_sample = self.tape.elements / self.shape[0].max(1);
                let code = Code::Dropout { clock: node.inputs[1], rate: d.rate, stream: d.stream, per_sample };
                (code, vec![self.read(node, 0)])
            }
            Op::BatchApply(e) => {
                let period = self.shape[self.shape.len() - 1];
                let mean = self.vector(node.inputs[1], period);
                let at = self.share(period + TILE);
                let [var, scale] = [node.inputs[2], node.inputs[3]];
                self.tape.setup.push(Setup::Factor { var, scale, eps: e.0, period, at });
                let factor = self.register(Register::Periodic { at, period });
                let bias = self.vector(node.inputs[4], period);
                (Code::Op { op: node.op.clone(), float: true }, vec![self.read(node, 0), mean, factor, bias])
            }
            Op::BatchGradInput(b) => {
                let period = self.shape[self.shape.len() - 1];
                let rows = self.tape.elements / period;
                let mean = self.vector(node.inputs[1], period);
                let at = self.share(3 * (period + TILE));
                let inputs = [node.inputs[2], node.inputs[3], node.inputs[5], node.inputs[6]];
                let (eps, batch_stats) = (b.eps, b.batch_stats);
                self.tape.setup.push(Setup::GradFactors { inputs, eps, batch_stats, rows, period, at });
                let factors =
                    [0, 1, 2].map(|i| self.register(Register::Periodic { at: at + i * (period + TILE), period }));
                let [a, b, c] = factors;
                let code = Code::Op { op: node.op.clone(), float: true };
                (code, vec![self.read(node, 0), self.read(node, 4), mean, a, b, c])
            }
            op => {
                // The kind of lane that decides: of the data, not of a condition.
                let decides = if matches!(op, Op::Select | Op::MaskGrad(_)) { 1 } else { 0 };
                let code = Code::Op { op: op.clone(), float: float(self, decides) };
                (code, (0..node.inputs.len()).map(|i| self.read(node, i)).collect())
            }
        };
        let slot = self.slot();
        let output = self.register(Register::Slot(slot));
        self.known.push((value, output));
        let dtype = self.graph.ty(value).dtype;
        self.tape.instructions.push(Instruction {
            code,
            inputs,
            output,
            value,
            dtype,
            writes: writes.contains(&value),
        });
    }

    fn register(&mut self, r: Register) -> usize {
        self.tape.registers.push(r);
        self.tape.registers.len() - 1
    }

    fn slot(&mut self) -> usize {
        self.tape.slots += 1;
        self.tape.slots - 1
    }

    fn share(&mut self, lanes: usize) -> usize {
        let at = self.tape.shared;
        self.tape.shared += lanes.next_multiple_of(16);
        at
    }

    /// The register of an input.
    fn read(&mut self, node: &Node, input: usize) -> usize {
        let value = node.inputs[input];
        if let Some(&(_, r)) = self.known.iter().find(|(v, _)| *v == value) {
            return r;
        }
        let ty = self.graph.ty(value);
        let dtype = ty.dtype;
        let strides = Strides::new(&ty.shape, self.shape);
        let register = if is_immediate(self.graph, &node.op, value) {
            self.number(value)
        } else if ty.elements() == 1 && self.tape.elements != 1 {
            let at = self.share(TILE);
            self.tape.setup.push(Setup::Scalar { value, dtype, at });
            Register::Constant { at }
        } else if ty.elements() == self.tape.elements {
            match dtype {
                DType::F32 | DType::I32 | DType::Bit => Register::Memory { value, dtype },
                DType::F16 | DType::BF16 | DType::U8 => Register::Narrow { value, dtype, slot: self.slot() },
            }
        } else if let Some(period) = strides.period().filter(|&p| p <= LONGEST_PERIOD) {
            return self.vector_of(value, dtype, period);
        } else {
            Register::Strided { value, dtype, strides, slot: self.slot() }
        };
        let r = self.register(register);
        self.known.push((value, r));
        r
    }

    fn number(&mut self, value: ValueId) -> Register {
        let Op::Fill(fill) = self.graph.producer_op(value) else { unreachable!("an immediate that is no constant") };
        let bits = match fill.dtype {
            DType::F32 => fill.value.to_bits(),
            DType::F16 => half::f16::from_f32(fill.value).to_f32().to_bits(),
            DType::BF16 => half::bf16::from_f32(fill.value).to_f32().to_bits(),
            DType::I32 => fill.value as i32 as u32,
            DType::U8 => fill.value as u8 as u32,
            DType::Bit => unreachable!("the type rules refuse a constant of bits"),
        };
        let at = self.share(TILE);
        self.tape.setup.push(Setup::Number { bits, at });
        Register::Constant { at }
    }

    fn vector(&mut self, value: ValueId, period: usize) -> usize {
        self.vector_of(value, DType::F32, period)
    }

    fn vector_of(&mut self, value: ValueId, dtype: DType, period: usize) -> usize {
        let at = self.share(period + TILE);
        self.tape.setup.push(Setup::Vector { value, dtype, period, at });
        self.register(Register::Periodic { at, period })
    }
}

/// A tape whose values have places.
#[derive(Clone, Debug)]
pub struct Bound {
    tape: Tape,
    /// By register, where it is in memory.
    registers: Vec<Option<Place>>,
    /// By step of the setup, what it reads.
    setup: Vec<[Option<Place>; 4]>,
    /// By instruction, the clock of a dropout.
    clocks: Vec<Option<Place>>,
    results: Vec<Written>,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
enum Written {
    No,
    /// Computed straight into memory.
    Directly(Place),
    /// Computed into a slot and stored when the tile is done.
    Late(Place),
}

impl Bound {
    pub fn elements(&self) -> usize {
        self.tape.elements
    }

    /// Sets the shared part of the scratch. Before the first [`Bound::run`] of every launch.
    ///
    /// # Safety
    /// `scratch` has [`Tape::scratch_len`] elements, and the operands are in `memory`.
    pub unsafe fn prepare(&self, memory: &Memory, scratch: *mut f32) {
        let tile = self.tape.tile();
        for (step, places) in self.tape.setup.iter().zip(&self.setup) {
            // SAFETY: passed on.
            unsafe { step.run(places.map(|p| p.map_or(std::ptr::null_mut(), |p| memory.at(p))), tile, scratch) };
        }
    }

    /// Whether the chain reads or writes bits: then it must start at a multiple of eight elements, and end at one or at
    /// the end, so that no two runs share a byte.
    pub fn has_bits(&self) -> bool {
        let read = |r: &Register| matches!(r, Register::Memory { dtype: DType::Bit, .. });
        self.tape.registers.iter().any(read) || self.tape.instructions.iter().any(|i| i.dtype == DType::Bit)
    }

    /// [`Bound::run`] over many elements, whose results lie in no cache. The instructions of a chain read a page or write
    /// one, and none lasts long enough that a processor foresees the next page that is written: it is asked for here.
    ///
    /// # Safety
    /// As for [`Bound::run`].
    pub unsafe fn run_long(&self, isa: Isa, memory: &Memory, scratch: *mut f32, thread: usize, range: Range<usize>) {
        if self.fresh().next().is_none() {
            // SAFETY: passed on.
            return unsafe { self.run(isa, memory, scratch, thread, range) };
        }
        for e0 in range.clone().step_by(TILE) {
            let end = range.end.min(e0 + TILE);
            for (place, dtype) in self.fresh() {
                let at = |e: usize| memory.at(place).addr() + dtype.bytes(e);
                fetch_bytes(at(end)..at(range.end.min(end + TILE)));
            }
            // SAFETY: passed on.
            unsafe { self.run(isa, memory, scratch, thread, e0..end) };
        }
    }

    /// The results that do not lie where an operand lay.
    fn fresh(&self) -> impl Iterator<Item = (Place, DType)> {
        let results = self.tape.instructions.iter().zip(&self.results);
        results.filter_map(|(instruction, result)| match *result {
            Written::Directly(place) | Written::Late(place) if !self.registers.contains(&Some(place)) => {
                Some((place, instruction.dtype))
            }
            Written::No | Written::Directly(_) | Written::Late(_) => None,
        })
    }

    /// Runs elements `range` of the chain on thread `thread`.
    ///
    /// # Safety
    /// As for [`Bound::prepare`], which has run; no other thread runs the same elements, and with
    /// [`Bound::has_bits`] none shares a byte of them.
    pub unsafe fn run(&self, isa: Isa, memory: &Memory, scratch: *mut f32, thread: usize, range: Range<usize>) {
        // SAFETY: passed on.
        unsafe { self.run_to(isa, memory, scratch, thread, range, None) }
    }

    /// The same; the result of the last instruction goes to `last`, if that is given, and not into memory.
    ///
    /// # Safety
    /// As for [`Bound::run`]; there is room for the range.
    pub unsafe fn run_to(
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
            // SAFETY: slots of this thread follow the shared part.
            unsafe {
                let slots = scratch.add(self.tape.shared + thread * self.tape.slots * tile);
                self.locate(isa, memory, [scratch, slots], e0..e0 + n, pointers);
                if let (Some(to), Some(i)) = (last, self.tape.instructions.last()) {
                    pointers[i.output] = to.add(e0 - range.start);
                }
                for (i, instruction) in self.tape.instructions.iter().enumerate() {
                    if let Written::Directly(p) = self.results[i] {
                        pointers[instruction.output] = memory.at(p).add(instruction.dtype.bytes(e0)).cast();
                    }
                    self.execute(isa, memory, i, e0, n, pointers);
                }
                for (instruction, result) in self.tape.instructions.iter().zip(&self.results) {
                    if let Written::Late(p) = *result {
                        let to = memory.at(p).add(instruction.dtype.bytes(e0));
                        store_lanes(isa, pointers[instruction.output], instruction.dtype, n, to);
                    }
                }
            }
        }
    }

    /// Points every register to its lanes for a tile of elements.
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
            // SAFETY: passed on; every offset is inside its tensor or its part of the scratch.
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

    unsafe fn execute(&self, isa: Isa, memory: &Memory, index: usize, e0: usize, n: usize, pointers: &[*mut f32]) {
        let instruction = &self.tape.instructions[index];
        let input = |i: usize| pointers[instruction.inputs[i]].cast_const();
        let int = |i: usize| input(i).cast::<i32>();
        let y = pointers[instruction.output];
        match &instruction.code {
            Code::Dropout { rate, stream, per_sample, .. } => {
                let Some(place) = self.clocks[index] else { unreachable!("a dropout without a clock") };
                // SAFETY: the clock is i32[4].
                let clock = unsafe { memory.at(place).cast::<[u32; 4]>().read() };
                let mask = Mask {
                    seed: [clock[2], clock[3]],
                    step: clock[0],
                    first_sample: clock[1],
                    stream: *stream,
                    rate: *rate,
                    per_sample: *per_sample,
                };
                lanes::dropout(isa, &mask, e0, input(0), y, n);
            }
            Code::Op { op, float } => match (op, float) {
                (Op::Unary(u), true) => lanes::unary(isa, *u, input(0), y, n),
                (Op::Unary(u), false) => lanes::unary_int(isa, *u == Unary::Neg, int(0), y.cast(), n),
                (Op::UnaryGrad(u), _) => lanes::unary_grad(isa, *u, input(0), input(1), y, n),
                // SAFETY: both registers hold n elements.
                (Op::Mask(u), _) => unsafe { bits::mask(isa, *u, input(0), y.cast(), n) },
                (Op::MaskGrad(u), _) => bits::mask_grad(isa, *u, input(0).cast(), input(1), y, n),
                (Op::Binary(b), true) => lanes::binary(isa, *b, input(0), input(1), y, n),
                (Op::Binary(b), false) => lanes::binary_int(isa, *b, int(0), int(1), y.cast(), n),
                (Op::Compare(c), true) => lanes::compare(isa, *c, input(0), input(1), y.cast(), n),
                (Op::Compare(c), false) => lanes::compare_int(isa, *c, int(0), int(1), y.cast(), n),
                (Op::Select, _) => lanes::select(isa, int(0), int(1), int(2), y.cast(), n),
                (Op::Cast(to), float) => lanes::convert(isa, *float, *to, input(0), y, n),
                (Op::BatchApply(_), _) => lanes::batch_apply(isa, input(0), input(1), input(2), input(3), y, n),
                (Op::BatchGradInput(_), _) => {
                    let v = GradVectors { mean: input(2), a: input(3), b: input(4), c: input(5) };
                    lanes::batch_grad_input(isa, input(0), input(1), v, y, n);
                }
                (op, _) => unreachable!("{} in an elementwise chain", op.name()),
            },
        }
        // SAFETY: the output holds n lanes.
        unsafe { round_lanes(isa, y, instruction.dtype, n) };
    }
}

/// Room for the pointers of a tile, of which only as many are set as there are registers: a chain may run for a few hundred
/// elements, which take less time than clearing all of it.
struct Pointers([MaybeUninit<*mut f32>; MAX_REGISTERS]);

impl Pointers {
    fn new() -> Pointers {
        Pointers([const { MaybeUninit::uninit() }; MAX_REGISTERS])
    }

    fn first(&mut self, n: usize) -> &mut [*mut f32] {
        self.0[..n].iter_mut().for_each(|p| {
            p.write(std::ptr::null_mut());
        });
        // SAFETY: the first n have just been written.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), n) }
    }
}
