//! What moves elements, and reductions.

use memfit_ir::Op;
use memfit_ir::op::{Binary, Reduce, ReduceKind, Slice};

use super::maker::{Made, Maker, Numbers};

/// A constant that is given out, and one that another op reads.
pub fn fill(m: &mut Maker) -> Made {
    let (dtype, shape) = (m.float(), m.shape(0..=3));
    let value = m.draws.pick(&[1.5, 0.0, -0.0, -3.25]);
    let c = m.constant(dtype, &shape, value)?;
    let x = m.input(dtype, &shape, Numbers::Normal)?;
    let y = m.b.binary(Binary::Mul, x, c)?;
    m.done(if m.for_kernels() { vec![y, c] } else { vec![y] })
}

pub fn reduce(m: &mut Maker) -> Made {
    let shape = m.shape(0..=4);
    let axes = (0..shape.len()).filter(|_| m.draws.flip()).collect();
    let kind = m.draws.pick(&ReduceKind::ALL);
    let ties = m.for_kernels() && kind == ReduceKind::Max && m.draws.flip();
    let x = m.f32(&shape, if ties { Numbers::Few } else { Numbers::Normal })?;
    let keep = m.draws.flip();
    m.one(Op::Reduce(Reduce { kind, axes, keep }), &[x])
}

pub fn reshape(m: &mut Maker) -> Made {
    let (dtype, shape) = (m.any_type(), m.shape(1..=4));
    let x = m.input(dtype, &shape, Numbers::Normal)?;
    let to = match m.draws.draw(3) {
        0 => vec![shape.iter().product()],
        1 => [&shape[1..], &[1, shape[0]]].concat(),
        _ => [&[1], &shape[..]].concat(),
    };
    m.one(Op::Reshape(to.into()), &[x])
}

pub fn transpose(m: &mut Maker) -> Made {
    let (dtype, shape) = (m.any_type(), m.shape(0..=4));
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    for i in (1..perm.len()).rev() {
        perm.swap(i, m.draws.draw(i + 1));
    }
    let x = m.input(dtype, &shape, Numbers::Normal)?;
    m.one(Op::Transpose(perm), &[x])
}

pub fn slice(m: &mut Maker) -> Made {
    let (dtype, shape) = (m.any_type(), m.shape(1..=4));
    let start: Vec<usize> = shape.iter().map(|&d| m.draws.draw(d)).collect();
    let stop = start.iter().zip(&shape).map(|(&from, &d)| from + 1 + m.draws.draw(d - from)).collect();
    let x = m.input(dtype, &shape, Numbers::Normal)?;
    m.one(Op::Slice(Slice { start, stop }), &[x])
}

pub fn concat(m: &mut Maker) -> Made {
    let (dtype, mut shape) = (m.any_type(), m.shape(1..=4));
    let axis = m.draws.draw(shape.len());
    let mut parts = Vec::new();
    for _ in 0..1 + m.draws.draw(3) {
        parts.push(m.input(dtype, &shape, Numbers::Normal)?);
        shape[axis] = m.extent(&[1, 2, 3, 17]);
    }
    // The same part may stand twice.
    if m.draws.one_in(4) {
        parts.push(parts[0]);
    }
    m.one(Op::Concat(axis), &parts)
}

pub fn pad(m: &mut Maker) -> Made {
    let (dtype, shape) = (m.any_type(), m.shape(0..=4));
    let pads = shape.iter().map(|_| (m.draws.draw(3), m.draws.draw(3))).collect();
    let x = m.input(dtype, &shape, Numbers::Normal)?;
    m.one(Op::Pad(pads), &[x])
}

pub fn broadcast(m: &mut Maker) -> Made {
    let (dtype, whole) = (m.any_type(), m.shape(0..=4));
    let missing = m.draws.draw(whole.len() + 1);
    let part: Vec<usize> = whole[missing..].iter().map(|&d| if m.draws.flip() { 1 } else { d }).collect();
    let x = m.input(dtype, &part, Numbers::Normal)?;
    m.one(Op::Broadcast(whole.into()), &[x])
}
