//! Contractions whose operands are made by elementwise chains that nobody else reads, so that they are computed while the
//! contraction reads them.

use memfit_ir::op::{Binary, ConvFilter, ConvTranspose, Eps, MatMul, Unary};
use memfit_ir::{DType, Op, Result as Built, ValueId};

use super::contract::{convolution, convolved_shape, finished};
use super::maker::{Made, Maker, Numbers, shrink};

pub fn prologue(m: &mut Maker) -> Made {
    let y = match m.draws.draw(4) {
        0 => matmul(m)?,
        kind => {
            let (conv, image, filter) = convolution(m);
            let result = match convolved_shape(conv, image, filter) {
                Ok(shape) => shape,
                Err(e) => return m.b.fail(format!("{e:?}")),
            };
            match kind {
                1 => {
                    let (x, w) = (operand(m, &image)?, operand(m, &filter)?);
                    m.b.conv(x, w, conv)?
                }
                2 => {
                    let (dy, w) = (operand(m, &result)?, operand(m, &filter)?);
                    m.b.conv_transpose(dy, w, ConvTranspose { conv, size: [image[1], image[2]] })?
                }
                _ => {
                    let (x, dy) = (operand(m, &image)?, operand(m, &result)?);
                    m.b.op(Op::ConvFilter(ConvFilter { conv, size: [filter[0], filter[1]] }), &[x, dy])?
                }
            }
        }
    };
    finished(m, y)
}

fn matmul(m: &mut Maker) -> Built<ValueId> {
    let sizes = [1, 3, 8, 17, 33, 65, 130, 260];
    let mut extents = [m.extent(&sizes), m.extent(&sizes), m.extent(&sizes)];
    shrink(&mut extents, 400_000);
    let [rows, inner, cols] = extents;
    let batch: Vec<usize> = (0..m.draws.draw(2)).map(|_| m.batch()).collect();
    let op = MatMul { transpose_a: m.draws.flip(), transpose_b: m.draws.flip() };
    let turned = |turn: bool, [r, c]: [usize; 2]| if turn { [c, r] } else { [r, c] };
    let a = operand(m, &[&batch[..], &turned(op.transpose_a, [rows, inner])].concat())?;
    let b = operand(m, &[&batch[..], &turned(op.transpose_b, [inner, cols])].concat())?;
    m.b.matmul_with(a, b, op)
}

/// A value that a chain makes of inputs; sometimes an input itself. What is computed from nothing differentiated has no
/// gradient, whose readers would keep the value in memory.
fn operand(m: &mut Maker, shape: &[usize]) -> Built<ValueId> {
    let stored = m.draws.pick(&[DType::F32, DType::F32, DType::BF16, DType::F16]);
    let mut v = m.fixed(stored, shape, Numbers::Normal)?;
    if stored != DType::F32 {
        v = m.b.cast(v, DType::F32)?;
    }
    for _ in 0..m.draws.draw(4) {
        v = link(m, shape, v)?;
    }
    Ok(v)
}

/// One more node, after which 0 is seldom 0: padding must come after it.
fn link(m: &mut Maker, shape: &[usize], v: ValueId) -> Built<ValueId> {
    let channels = &shape[shape.len() - 1..];
    match m.draws.draw(5) {
        0 => {
            let (mean, scale) =
                (m.fixed(DType::F32, channels, Numbers::Normal)?, m.fixed(DType::F32, channels, Numbers::Normal)?);
            let (var, bias) =
                (m.fixed(DType::F32, channels, Numbers::Positive)?, m.fixed(DType::F32, channels, Numbers::Normal)?);
            m.b.op(Op::BatchApply(Eps(0.1)), &[v, mean, var, scale, bias])
        }
        1 => m.b.unary(m.draws.pick(&[Unary::Relu, Unary::Sigmoid, Unary::HardSwish, Unary::GeluTanh]), v),
        2 => {
            let other = m.fixed(DType::F32, shape, Numbers::Normal)?;
            m.b.binary(m.draws.pick(&[Binary::Add, Binary::Max]), other, v)
        }
        3 => {
            // A gate for each sample and channel, or a vector.
            let gate: Vec<usize> = match shape {
                [n, _, _, c] => vec![*n, 1, 1, *c],
                _ => channels.to_vec(),
            };
            let other = m.fixed(DType::F32, &gate, Numbers::Normal)?;
            m.b.binary(Binary::Add, v, other)
        }
        _ => {
            let half = m.constant(DType::F32, &[], 0.5)?;
            m.b.binary(Binary::Add, v, half)
        }
    }
}
