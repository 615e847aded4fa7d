//! Unary, binary, comparison, choice, cast and dropout, alone and in chains, with every kind of broadcasting.

use memfit_ir::op::{Binary, CLOCK, Compare, Dropout, Unary};
use memfit_ir::{DType, Op, Result as Built, TensorType, ValueId};

use super::maker::{Made, Maker, Numbers};
use crate::tensor::Tensor;

pub fn unary(m: &mut Maker) -> Made {
    let u = some_unary(m);
    let integer = m.for_kernels() && matches!(u, Unary::Neg | Unary::Abs) && m.draws.one_in(3);
    let dtype = if integer { DType::I32 } else { m.float() };
    let shape = m.shape(0..=4);
    // A single number may lie where the function or its slope is next to 0, and say nothing about the error.
    let few = shape.iter().product::<usize>() < 8;
    let x = m.input(dtype, &shape, if few { Numbers::Positive } else { domain(u, dtype) })?;
    m.one(Op::Unary(u), &[x])
}

fn some_unary(m: &mut Maker) -> Unary {
    match m.draws.pick(&Unary::ALL) {
        Unary::LeakyRelu(_) => Unary::LeakyRelu(m.draws.pick(&[0.2, 0.0, 0.01, 1.0])),
        Unary::Elu(_) => Unary::Elu(m.draws.pick(&[1.0, 0.3])),
        other => other,
    }
}

fn domain(u: Unary, dtype: DType) -> Numbers {
    match u {
        Unary::Log | Unary::Sqrt | Unary::Rsqrt => Numbers::Positive,
        // The exponential of a wide number is more than 16 bits hold.
        _ if dtype == DType::F16 => Numbers::Normal,
        _ => Numbers::Wide,
    }
}

pub fn binary(m: &mut Maker) -> Made {
    let op = m.draws.pick(&Binary::ALL);
    let integer = matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max);
    let dtype = if integer && m.for_kernels() && m.draws.one_in(5) { DType::I32 } else { m.float() };
    let (a_numbers, b_numbers) = match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::SigmoidCrossEntropy => (Numbers::Normal, Numbers::Normal),
        Binary::Div => (Numbers::Normal, Numbers::NotSmall),
        Binary::Pow => (Numbers::Positive, Numbers::Normal),
        Binary::Min | Binary::Max => (ties(m), ties(m)),
    };
    let [a, b] = shapes(m);
    let a = m.input(dtype, &a, a_numbers)?;
    // A value may meet itself.
    let b = if m.draws.one_in(8) { a } else { m.input(dtype, &b, b_numbers)? };
    m.one(Op::Binary(op), &[a, b])
}

/// Equal numbers are where comparisons go wrong; slopes have none there.
fn ties(m: &mut Maker) -> Numbers {
    if m.for_kernels() && m.draws.flip() { Numbers::Few } else { Numbers::Normal }
}

/// Shapes that broadcast together, in every way: axes that are 1, and axes that are missing.
fn shapes<const N: usize>(m: &mut Maker) -> [Vec<usize>; N] {
    let whole = m.shape(0..=4);
    std::array::from_fn(|_| part_of(m, &whole))
}

/// A shape that broadcasts to the whole one.
fn part_of(m: &mut Maker, whole: &[usize]) -> Vec<usize> {
    if m.draws.flip() {
        return whole.to_vec();
    }
    let missing = m.draws.draw(whole.len() + 1);
    whole[missing..].iter().map(|&d| if m.draws.flip() { 1 } else { d }).collect()
}

pub fn compare(m: &mut Maker) -> Made {
    let (op, dtype) = (m.draws.pick(&Compare::ALL), m.any_type());
    let numbers = ties(m);
    let [a, b] = shapes(m);
    let (a, b) = (m.fixed(dtype, &a, numbers)?, m.fixed(dtype, &b, numbers)?);
    m.one(Op::Compare(op), &[a, b])
}

pub fn select(m: &mut Maker) -> Made {
    let dtype = m.any_type();
    let [condition, a, b] = shapes(m);
    let condition = m.fixed(DType::U8, &condition, Numbers::Below(2))?;
    let a = m.input(dtype, &a, Numbers::Normal)?;
    let b = m.input(dtype, &b, Numbers::Normal)?;
    m.one(Op::Select, &[condition, a, b])
}

pub fn cast(m: &mut Maker) -> Made {
    let (from, to) = (m.any_type(), m.any_type());
    let shape = m.shape(0..=4);
    let x = m.input(from, &shape, Numbers::Wide)?;
    m.one(Op::Cast(to), &[x])
}

pub fn dropout(m: &mut Maker) -> Made {
    let shape = m.shape(1..=4);
    let rate = m.draws.pick(&[0.5, 0.0, 0.1, 0.9]);
    let stream = m.draws.pick(&[0, 7, u32::MAX]);
    let words = [m.draws.draw(1000) as f64, m.draws.pick(&[0.0, 5.0, 1e9]), m.draws.pick(&[3.0, -7.0]), -1.0];
    let clock = m.given(CLOCK, Tensor { ty: TensorType::i32([4]), data: words.to_vec() })?;
    let x = m.f32(&shape, Numbers::Normal)?;
    m.one(Op::Dropout(Dropout { rate, stream }), &[x, clock])
}

/// Several ops of one shape, as they are fused: with vectors, scalars and constants broadcast into them, and with some
/// of the values in between given out.
pub fn chain(m: &mut Maker) -> Made {
    let whole = m.shape(1..=4);
    let dtype = m.float();
    let mut values = vec![m.input(dtype, &whole, Numbers::Normal)?];
    for _ in 0..1 + m.draws.draw(if m.for_kernels() { 24 } else { 5 }) {
        let x = m.draws.pick(&values);
        values.push(link(m, dtype, &whole, x, &values)?);
    }
    let last = values[values.len() - 1];
    let mut all = vec![last];
    if m.draws.flip() {
        all.push(m.draws.pick(&values));
    }
    m.done(all)
}

/// One more op of the chain; its result has the whole shape and stays of moderate size.
fn link(m: &mut Maker, dtype: DType, whole: &[usize], x: ValueId, values: &[ValueId]) -> Built<ValueId> {
    let part = part_of(m, whole);
    match m.draws.draw(7) {
        0 => m.b.unary(m.draws.pick(&[Unary::Tanh, Unary::Sigmoid, Unary::Silu, Unary::GeluTanh, Unary::Softplus]), x),
        1 => m.b.unary(m.draws.pick(&[Unary::Relu, Unary::LeakyRelu(0.2), Unary::Neg, Unary::Abs, Unary::Elu(1.0)]), x),
        2 => {
            let other = m.input(dtype, &part, Numbers::Normal)?;
            m.b.binary(m.draws.pick(&[Binary::Add, Binary::Sub, Binary::Max, Binary::Min]), x, other)
        }
        3 => {
            let other = m.draws.pick(values);
            let sum = m.b.binary(Binary::Add, x, other)?;
            let half = m.constant(dtype, &[], 0.5)?;
            m.b.binary(Binary::Mul, sum, half)
        }
        4 => {
            let factor = m.input(dtype, &part, Numbers::Normal)?;
            let bounded = m.b.unary(Unary::Tanh, x)?;
            m.b.binary(Binary::Mul, bounded, factor)
        }
        5 => {
            let (other, zero) = (m.draws.pick(values), m.constant(dtype, &[], 0.0)?);
            let positive = m.b.compare(Compare::Gt, x, zero)?;
            m.b.select(positive, x, other)
        }
        _ => {
            let there = m.draws.pick(&[DType::F32, DType::F16, DType::BF16]);
            let narrow = m.b.cast(x, if m.for_kernels() { there } else { DType::F32 })?;
            m.b.cast(narrow, dtype)
        }
    }
}
