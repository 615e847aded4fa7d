//! Chains of elementwise operations. A [`Tape`] is known when the kernel is compiled and unrolled into straight code;
//! sizes and strides are given at launch, so that one shader serves every shape of a chain.
//!
//! Every unit reads all that its element needs before it writes: a result may lie where an operand of its shape lay.

use cubecl::prelude::*;
use memfit_ir::DType;
use memfit_ir::op::{Binary, Compare};

use crate::kernels::math::*;
use crate::kernels::philox::dropout_keeps;
use crate::kernels::probe::answer;
use crate::kernels::word::{Buffers, encode, is_nan_bits, load, load_bits, round, store_word};
use crate::tape::{Read, Tape, Unary, Value, per_word};

/// The first number is how many elements there are.
#[cube(launch_unchecked)]
pub fn chain(buffers: &mut Buffers, numbers: &Sequence<u32>, probe: u32, #[comptime] tape: Tape) {
    if probe != 0 {
        answer(buffers, probe, comptime!(tape.stores[0].buffer.index));
        terminate!();
    }
    let elements = numbers[0] as usize;
    let lanes = comptime!(tape.lanes());
    let first = ABSOLUTE_POS * lanes;
    if first >= elements {
        terminate!();
    }
    if comptime!(lanes == 1) {
        let registers = run(buffers, numbers, first, 0u32, comptime!(tape.clone()));
        #[unroll]
        for i in 0..comptime!(tape.stores.len()) {
            let store = comptime!(tape.stores[i]);
            store_word(buffers, first, registers[comptime!(store.register)], comptime!(store.buffer.index));
        }
    } else {
        let mut words = Array::<u32>::new(comptime!(tape.stores.len()));
        for lane in 0..min(lanes, elements - first) {
            let element = first + lane;
            let registers = run(buffers, numbers, element, 0u32, comptime!(tape.clone()));
            store_all(buffers, &registers, &mut words, element, element == elements - 1, comptime!(tape.clone()));
        }
    }
}

/// Stores what a tape stores of an element. Elements of fewer bits come together in `words`, one for each store, and go to
/// memory with the last element of a word, or with the `last` of all: a unit owns whole words and takes its elements in order.
#[cube]
pub fn store_all(
    buffers: &mut Buffers,
    registers: &Sequence<u32>,
    words: &mut Array<u32>,
    element: usize,
    last: bool,
    #[comptime] tape: Tape,
) {
    #[unroll]
    for i in 0..comptime!(tape.stores.len()) {
        let store = comptime!(tape.stores[i]);
        let register = registers[comptime!(store.register)];
        let in_word = comptime!(per_word(store.buffer.dtype));
        if comptime!(in_word == 1) {
            store_word(buffers, element, register, comptime!(store.buffer.index));
        } else {
            let part = element % in_word;
            let bits = comptime!(store.buffer.dtype.bits() as u32);
            let field = encode(register, comptime!(store.buffer.dtype)) << (part as u32 * bits);
            let word = select(part == 0, field, words[i] | field);
            words[i] = word;
            if part == in_word - 1 || last {
                store_word(buffers, element / in_word, word, comptime!(store.buffer.index));
            }
        }
    }
}

/// All registers of a tape for one element; `given` is what the kernel computed before it.
#[cube]
pub fn run(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    given: u32,
    #[comptime] tape: Tape,
) -> Sequence<u32> {
    let mut registers = Sequence::<u32>::new();
    #[unroll]
    for i in 0..comptime!(tape.values.len()) {
        let value = evaluate(buffers, numbers, &registers, element, given, comptime!(tape.values[i]));
        registers.push(value);
    }
    registers
}

#[cube]
fn evaluate(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    registers: &Sequence<u32>,
    element: usize,
    given: u32,
    #[comptime] value: Value,
) -> u32 {
    match value {
        Value::Load { buffer, read } => load_bits(buffers, position(element, numbers, read), buffer),
        Value::Given => given,
        Value::Sum { buffer, first } => {
            let distance = numbers[comptime!(first + 1)] as usize;
            let mut sum = 0.0f32;
            for part in 0..numbers[first] as usize {
                sum += load(buffers, part * distance + element, buffer);
            }
            u32::reinterpret(sum)
        }
        Value::Constant(bits) => u32::new(comptime!(i64::from(bits))),
        Value::Number(index) => numbers[index],
        Value::Unary { op, x } => u32::reinterpret(unary(f32::reinterpret(registers[x]), op)),
        Value::UnaryGrad { op, saved, dy } => {
            u32::reinterpret(unary_grad(f32::reinterpret(registers[saved]), f32::reinterpret(registers[dy]), op))
        }
        Value::Mask { op, y } => u32::cast_from(inside(f32::reinterpret(registers[y]), op)),
        Value::MaskGrad { op, bit, dy } => {
            // The slope at any output inside of the interval, or at any outside of it.
            let y = select(registers[bit] != 0, 0.5f32, 0.0f32);
            u32::reinterpret(unary_grad(y, f32::reinterpret(registers[dy]), op))
        }
        Value::Binary { op, a, b } => {
            u32::reinterpret(binary(f32::reinterpret(registers[a]), f32::reinterpret(registers[b]), op))
        }
        Value::Compare { op, a, b } => {
            u32::cast_from(compare(f32::reinterpret(registers[a]), f32::reinterpret(registers[b]), op))
        }
        Value::UnaryInt { negate, x } => {
            let x = i32::reinterpret(registers[x]);
            if comptime!(negate) { u32::reinterpret(0 - x) } else { u32::reinterpret(select(x < 0, 0 - x, x)) }
        }
        Value::BinaryInt { op, a, b } => {
            u32::reinterpret(binary_int(i32::reinterpret(registers[a]), i32::reinterpret(registers[b]), op))
        }
        Value::CompareInt { op, a, b } => {
            u32::cast_from(compare_int(i32::reinterpret(registers[a]), i32::reinterpret(registers[b]), op))
        }
        Value::Select { condition, a, b } => select(registers[condition] != 0, registers[a], registers[b]),
        Value::Cast { from_float, to, x } => cast(registers[x], from_float, to),
        Value::Round { to, x } => round(registers[x], to),
        Value::Dropout { x, clock, rate, stream, per_sample } => {
            let per_sample = numbers[per_sample] as usize;
            let rate = comptime!(f32::from_bits(rate));
            let keeps = dropout_keeps(buffers, element / per_sample, element % per_sample, rate, stream, clock);
            let kept = f32::reinterpret(registers[x]) * f32::new(comptime!(1.0 / (1.0 - rate)));
            u32::reinterpret(select(keeps, kept, 0.0))
        }
    }
}

#[cube]
pub fn position(element: usize, numbers: &Sequence<u32>, #[comptime] read: Read) -> usize {
    match read {
        Read::Same => element,
        Read::Scalar => 0usize.runtime(),
        Read::Strided { first, rank } => {
            let mut rest = element;
            let mut offset = 0usize.runtime();
            #[unroll]
            for i in 0..rank {
                // From the last axis to the first.
                let axis = comptime!(first + 2 * (rank - 1 - i));
                let extent = numbers[axis] as usize;
                offset += (rest % extent) * (numbers[comptime!(axis + 1)] as usize);
                rest /= extent;
            }
            offset
        }
    }
}

#[cube]
fn unary(x: f32, #[comptime] op: Unary) -> f32 {
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Tanh => tanh(x),
        Unary::Sigmoid => sigmoid(x),
        // A NaN stays one: what hides it hides a fault.
        Unary::Relu => select(x < 0.0, 0.0, x),
        Unary::Relu6 => between(x, 6.0),
        Unary::LeakyRelu(slope) => select(x > 0.0, x, x * f32::new(comptime!(f32::from_bits(slope)))),
        Unary::Elu(alpha) => select(x > 0.0, x, expm1(x) * f32::new(comptime!(f32::from_bits(alpha)))),
        Unary::Softplus => select(x < 0.0, 0.0, x) + log1p_exp(-x.abs()),
        Unary::HardSigmoid => between(x / 6.0 + 0.5, 1.0),
        Unary::HardSwish => x * between(x + 3.0, 6.0) / 6.0,
        Unary::Silu => x * sigmoid(x),
        Unary::GeluTanh => 0.5 * x * (1.0 + tanh(gelu_inner(x))),
        Unary::GeluErf => 0.5 * x * (1.0 + Erf::erf(x * 0.707_106_77)),
    }
}

/// From x or y, as the op's gradient reads it.
#[cube]
fn unary_grad(saved: f32, dy: f32, #[comptime] op: Unary) -> f32 {
    match op {
        Unary::Neg => -dy,
        Unary::Abs => select(saved > 0.0, dy, select(saved < 0.0, -dy, 0.0f32)),
        Unary::Exp => dy * saved,
        Unary::Log => dy / saved,
        Unary::Sqrt => 0.5 * dy / saved,
        Unary::Rsqrt => -0.5f32 * dy * saved * saved * saved,
        Unary::Tanh => dy * (1.0 - saved * saved),
        Unary::Sigmoid => dy * saved * (1.0 - saved),
        Unary::Relu => select(saved > 0.0, dy, 0.0f32),
        Unary::Relu6 => select(saved > 0.0 && saved < 6.0, dy, 0.0f32),
        Unary::LeakyRelu(slope) => dy * select(saved > 0.0, 1.0f32, f32::new(comptime!(f32::from_bits(slope)))),
        Unary::Elu(alpha) => dy * select(saved > 0.0, 1.0f32, saved + f32::new(comptime!(f32::from_bits(alpha)))),
        Unary::Softplus => dy * sigmoid(saved),
        Unary::HardSigmoid => select(saved > 0.0 && saved < 1.0, dy / 6.0, 0.0f32),
        Unary::HardSwish => {
            let inner = select(saved >= 3.0, 1.0f32, saved / 3.0 + 0.5);
            select(saved <= -3.0f32, 0.0f32, dy * inner)
        }
        Unary::Silu => {
            let q = sigmoid(saved);
            dy * q * (1.0 + saved * (1.0 - q))
        }
        Unary::GeluTanh => {
            let t = tanh(gelu_inner(saved));
            let inner = 0.797_884_6 * (1.0 + 0.134_145 * saved * saved);
            dy * 0.5 * (1.0 + t + saved * inner * (1.0 - t * t))
        }
        Unary::GeluErf => {
            let below = 0.5 * (1.0 + Erf::erf(saved * 0.707_106_77));
            dy * (below + saved * 0.398_942_3 * (-0.5f32 * saved * saved).exp())
        }
    }
}

/// Whether an output is where the slope is that of the middle piece.
#[cube]
fn inside(y: f32, #[comptime] op: Unary) -> bool {
    let is_relu6 = comptime!(matches!(op, Unary::Relu6));
    if comptime!(is_relu6 || matches!(op, Unary::HardSigmoid)) {
        y > 0.0 && y < f32::new(comptime!(if is_relu6 { 6.0 } else { 1.0 }))
    } else {
        y > 0.0
    }
}

#[cube]
fn binary(a: f32, b: f32, #[comptime] op: Binary) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        // A NaN on either side stays one.
        Binary::Min => select(b < a || is_nan_bits(u32::reinterpret(b)), b, a),
        Binary::Max => maximum(a, b),
        Binary::Pow => power(a, b),
        Binary::SigmoidCrossEntropy => select(a < 0.0, 0.0, a) - a * b + log1p_exp(-a.abs()),
    }
}

#[cube]
fn compare(a: f32, b: f32, #[comptime] op: Compare) -> bool {
    match op {
        Compare::Eq => a == b,
        // Devices say that a NaN does not differ from anything.
        Compare::Ne => !(a == b),
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}

#[cube]
fn binary_int(a: i32, b: i32, #[comptime] op: Binary) -> i32 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Min => min(a, b),
        Binary::Max => max(a, b),
        Binary::Div | Binary::Pow | Binary::SigmoidCrossEntropy => a,
    }
}

#[cube]
fn compare_int(a: i32, b: i32, #[comptime] op: Compare) -> bool {
    match op {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}

/// Truncated towards zero and saturated; a NaN is 0.
#[cube]
fn cast(bits: u32, #[comptime] from_float: bool, #[comptime] to: DType) -> u32 {
    match to {
        DType::F32 | DType::F16 | DType::BF16 => {
            if comptime!(from_float) {
                bits
            } else {
                u32::reinterpret(f32::cast_from(i32::reinterpret(bits)))
            }
        }
        DType::I32 => {
            if comptime!(from_float) {
                let x = f32::reinterpret(bits);
                let known = select(is_nan_bits(bits), 0.0, x);
                let low = select(known < -2_147_483_648.0f32, -2_147_483_648.0f32, known);
                let high = select(low > 2_147_483_520.0, 2_147_483_520.0, low);
                let whole = i32::cast_from(high);
                u32::reinterpret(select(known >= 2_147_483_648.0, 2_147_483_647, whole))
            } else {
                bits
            }
        }
        DType::U8 => {
            if comptime!(from_float) {
                let x = f32::reinterpret(bits);
                let known = select(is_nan_bits(bits), 0.0, x);
                u32::cast_from(between(known, 255.0))
            } else {
                u32::reinterpret(min(max(i32::reinterpret(bits), 0), 255))
            }
        }
        DType::Bit => bits,
    }
}
