//! Activations of which a mask is saved, with that mask: alone, behind a contraction, and with a contraction in the
//! gradient before the mask is read.

use memfit_ir::op::{Binary, Conv, Pad2, Unary};
use memfit_ir::{DType, Op, Result as Built, ValueId};

use super::maker::{Made, Maker, Numbers};

pub fn mask(m: &mut Maker) -> Made {
    m.masks = true;
    let u = m.draws.pick(&[Unary::Relu, Unary::Relu6, Unary::LeakyRelu(0.2), Unary::HardSigmoid]);
    let x = source(m)?;
    let y = m.b.unary(u, x)?;
    let bits = m.b.op(Op::Mask(u), &[y])?;
    let end = after(m, y)?;
    let both = m.draws.flip();
    m.done(if both { vec![end, bits] } else { vec![end] })
}

/// What the activation is applied to. Equal numbers and whole ones, so that zeros and bounds are met.
fn source(m: &mut Maker) -> Built<ValueId> {
    match m.draws.draw(3) {
        0 => {
            let shape = m.shape(0..=4);
            let dtype = m.float();
            let few = m.for_kernels() && m.draws.flip();
            m.input(dtype, &shape, if few { Numbers::Few } else { Numbers::Wide })
        }
        1 => {
            let (rows, inner, cols) = (m.channels(), m.channels(), m.channels());
            let (a, b) = (m.f32(&[rows, inner], Numbers::Normal)?, m.f32(&[inner, cols], Numbers::Normal)?);
            m.b.matmul(a, b)
        }
        _ => {
            let (n, h, w) = (m.batch(), m.side().min(5), m.side().min(5));
            let (from, to) = (m.channels().min(17), m.channels());
            let (x, filter) = (m.f32(&[n, h, w, from], Numbers::Normal)?, m.f32(&[2, 2, from, to], Numbers::Normal)?);
            let pad = Pad2 { top: 1, bottom: 0, left: 0, right: 1 };
            m.b.conv(x, filter, Conv { stride: [1, 1], pad, dilation: [1, 1], groups: 1 })
        }
    }
}

/// What follows reads the activation in its forward pass only: else it would be kept, and its mask would be of no use.
fn after(m: &mut Maker, y: ValueId) -> Built<ValueId> {
    let ty = m.b.ty(y).clone();
    if ty.dtype == DType::F32 && ty.shape.rank() == 2 && m.draws.flip() {
        let (inner, cols) = (ty.shape[1], m.channels());
        let fixed = m.fixed(DType::F32, &[inner, cols], Numbers::Normal)?;
        return m.b.matmul(y, fixed);
    }
    let half = m.constant(ty.dtype, &[], 0.5)?;
    m.b.binary(Binary::Mul, y, half)
}
