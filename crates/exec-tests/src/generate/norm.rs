//! The norms.

use memfit_ir::op::{Eps, GroupNorm};
use memfit_ir::{Op, Result as Built, ValueId};

use super::maker::{Made, Maker, Numbers, Outputs, shrink};

/// An input with channels on its last axis, and the number of them.
fn image(m: &mut Maker, ranks: std::ops::RangeInclusive<usize>) -> Built<(ValueId, usize)> {
    let rank = ranks.start() + m.draws.draw(ranks.end() - ranks.start() + 1);
    let mut shape: Vec<usize> = (1..rank).map(|_| m.extent(&[1, 2, 3, 5, 9, 14, 40])).collect();
    let channels = m.channels();
    shrink(&mut shape, 20_000 / channels);
    shape.push(channels);
    Ok((m.f32(&shape, Numbers::Normal)?, channels))
}

fn eps(m: &mut Maker) -> f32 {
    // A function as steep as the smallest makes it has no difference that is its slope.
    if m.for_kernels() { m.draws.pick(&[1e-3, 1e-5, 0.1]) } else { m.draws.pick(&[1e-3, 0.1]) }
}

pub fn batch_norm(m: &mut Maker) -> Made {
    let (x, channels) = image(m, 2..=4)?;
    let (scale, bias) = (m.f32(&[channels], Numbers::Normal)?, m.f32(&[channels], Numbers::Normal)?);
    let eps = eps(m);
    let made = m.b.batch_norm(x, scale, bias, eps)?;
    Ok(Outputs { all: made.to_vec(), seeds: 1 })
}

/// Both statistics, each with a gradient of its own.
pub fn batch_stats(m: &mut Maker) -> Made {
    let (x, _) = image(m, 1..=4)?;
    let all = m.b.op_outputs(Op::BatchStats, &[x])?;
    Ok(Outputs { all, seeds: 2 })
}

/// By statistics that are given, as in evaluation.
pub fn batch_apply(m: &mut Maker) -> Made {
    let (x, channels) = image(m, 1..=4)?;
    let vector = |m: &mut Maker, numbers| m.fixed(memfit_ir::DType::F32, &[channels], numbers);
    let (mean, var) = (vector(m, Numbers::Normal)?, vector(m, Numbers::Positive)?);
    let (scale, bias) = (m.f32(&[channels], Numbers::Normal)?, m.f32(&[channels], Numbers::Normal)?);
    let eps = eps(m);
    m.one(Op::BatchApply(Eps(eps)), &[x, mean, var, scale, bias])
}

pub fn layer_norm(m: &mut Maker) -> Made {
    let (x, width) = image(m, 1..=4)?;
    let (scale, bias) = (m.f32(&[width], Numbers::Normal)?, m.f32(&[width], Numbers::Normal)?);
    let eps = eps(m);
    m.one(Op::LayerNorm(Eps(eps)), &[x, scale, bias])
}

pub fn rms_norm(m: &mut Maker) -> Made {
    let (x, width) = image(m, 1..=4)?;
    let scale = m.f32(&[width], Numbers::Normal)?;
    let eps = eps(m);
    m.one(Op::RmsNorm(Eps(eps)), &[x, scale])
}

pub fn group_norm(m: &mut Maker) -> Made {
    let (x, channels) = image(m, 2..=4)?;
    let divisors: Vec<usize> = (1..=channels).filter(|g| channels.is_multiple_of(*g)).collect();
    let groups = m.draws.pick(&divisors);
    let (scale, bias) = (m.f32(&[channels], Numbers::Normal)?, m.f32(&[channels], Numbers::Normal)?);
    let eps = eps(m);
    m.one(Op::GroupNorm(GroupNorm { groups, eps }), &[x, scale, bias])
}
