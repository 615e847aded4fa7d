//! Chains of elementwise operations. A [`Tape`] is known when the kernel is compiled and unrolled into straight code;
//! sizes and strides are given at launch, so that one shader serves every shape of a chain.
//!
//! Every unit reads all that its element needs before it writes: a result may lie where an operand of its shape lay.

use cubecl::prelude::*;

use crate::tape::{Binary, Read, Tape, Unary, Value};

#[cube(launch_unchecked)]
pub fn chain(buffers: &mut Sequence<Box<[f32]>>, numbers: &Sequence<u32>, elements: usize, #[comptime] tape: Tape) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let mut registers = Sequence::<f32>::new();
    #[unroll]
    for i in 0..comptime!(tape.values.len()) {
        let value = evaluate(buffers, numbers, &registers, element, comptime!(tape.values[i]));
        registers.push(value);
    }
    #[unroll]
    for i in 0..comptime!(tape.stores.len()) {
        let store = comptime!(tape.stores[i]);
        let value = registers[comptime!(store.register)];
        let buffer = buffers.index_mut(comptime!(store.buffer));
        buffer[element] = value;
    }
}

#[cube]
fn evaluate(
    buffers: &mut Sequence<Box<[f32]>>,
    numbers: &Sequence<u32>,
    registers: &Sequence<f32>,
    element: usize,
    #[comptime] value: Value,
) -> f32 {
    match value {
        Value::Load { buffer, read } => {
            let buffer = buffers.index(buffer);
            buffer[position(element, numbers, read)]
        }
        Value::Constant(bits) => f32::new(comptime!(f32::from_bits(bits))),
        Value::Unary { op, x } => unary(registers[x], op),
        Value::Binary { op, a, b } => binary(registers[a], registers[b], op),
    }
}

#[cube]
fn position(element: usize, numbers: &Sequence<u32>, #[comptime] read: Read) -> usize {
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
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => sigmoid(x),
        // A NaN stays one: what hides it hides a fault.
        Unary::Relu => select(x < 0.0, 0.0, x),
        Unary::Relu6 => between(x, 6.0),
        Unary::LeakyRelu(slope) => select(x > 0.0, x, x * f32::new(comptime!(f32::from_bits(slope)))),
        Unary::Elu(alpha) => select(x > 0.0, x, (x.exp() - 1.0) * f32::new(comptime!(f32::from_bits(alpha)))),
        Unary::Softplus => max(x, 0.0) + (1.0 + (-x.abs()).exp()).ln(),
        Unary::HardSigmoid => between(x / 6.0 + 0.5, 1.0),
        Unary::HardSwish => x * between(x + 3.0, 6.0) / 6.0,
        Unary::Silu => x * sigmoid(x),
        Unary::GeluTanh => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
        Unary::GeluErf => 0.5 * x * (1.0 + Erf::erf(x * 0.707_106_77)),
    }
}

#[cube]
fn binary(a: f32, b: f32, #[comptime] op: Binary) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => min(a, b),
        Binary::Max => max(a, b),
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Between 0 and a limit; a NaN stays one.
#[cube]
fn between(x: f32, limit: f32) -> f32 {
    let positive = select(x < 0.0, 0.0, x);
    select(positive > limit, limit, positive)
}
