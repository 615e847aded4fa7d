//! Mixing the samples of a batch with each other.

use std::ops::Range;

use memfit_ir::{DType, TensorType};

use super::{Map, stream};
use crate::context::{Context, Random};
use crate::error::{DataError, Result};
use crate::tensor::{Example, Tensor};

/// Mixes sample i of a batch with sample n − 1 − i, by a share that is Beta(alpha, alpha) distributed and the same for
/// the whole batch ([Zhang et al. 2018](https://arxiv.org/abs/1710.09412)). `x` is f32 with the samples as its first axis;
/// `y` is i32 `[n]` and becomes f32 `[n, classes]`, a distribution for each sample.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let batch = Example::default()
///     .with("x", Tensor::zeros(TensorType::f32([2, 3]), &pool)?)
///     .with("y", Tensor::from_bytes(TensorType::i32([2]), &[0, 0, 0, 0, 1, 0, 0, 0], &pool)?);
/// let mixed = mixup(0.4, 2)(batch, &context)?;
/// let [a, b, c, d] = mixed.get("y")?.f32s().try_into().expect("two of two classes");
/// assert!((a + b - 1.0f32).abs() < 1e-6 && (a, b) == (d, c));
/// # Ok(())
/// # }
/// ```
pub fn mixup(alpha: f32, classes: usize) -> impl Map {
    move |example: Example, context: &Context| Mixup { alpha, classes, lane: None }.mix(example, context)
}

/// [`mixup`] of each lane of a batch by itself, with a share of its own: what replicas do that share a batch
/// ([`Dataset::batch_rows`](crate::Dataset::batch_rows)), so that a sample has the same partner and the same share for every
/// number of them. Lanes have `lane` rows, and `first_row` is which row of the whole batch the first one here is. Of a batch that
/// is one lane it is [`mixup`].
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let batch = Example::default()
///     .with("x", Tensor::zeros(TensorType::f32([4, 3]), &pool)?)
///     .with("y", Tensor::from_bytes(TensorType::i32([4]), bytemuck::cast_slice(&[0i32, 1, 2, 3]), &pool)?);
/// let mixed = mixup_lanes(0.4, 4, 2, 0)(batch, &context)?;
/// // The first sample is mixed with the second, and with no other.
/// assert_eq!(mixed.get("y")?.f32s()[2..4], [0.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub fn mixup_lanes(alpha: f32, classes: usize, lane: usize, first_row: usize) -> impl Map {
    let lane = Some(Lane { rows: lane, first_row });
    move |example: Example, context: &Context| Mixup { alpha, classes, lane }.mix(example, context)
}

struct Mixup {
    alpha: f32,
    classes: usize,
    /// None where the batch is one.
    lane: Option<Lane>,
}

#[derive(Clone, Copy)]
struct Lane {
    rows: usize,
    first_row: usize,
}

impl Mixup {
    fn mix(&self, mut example: Example, context: &Context) -> Result<Example> {
        let Mixup { alpha, classes, lane } = *self;
        if !(alpha > 0.0 && alpha.is_finite()) {
            return Err(DataError::Pipeline(format!("mixup needs an alpha above zero, and it is {alpha}")));
        }
        let mut labels = distributions(example.get("y")?, classes, context)?;
        let x = example.get_mut("x")?;
        let rows = labels.ty().shape[0];
        if x.ty().dtype != DType::F32 || x.ty().shape.first() != Some(&rows) {
            return Err(DataError::Pipeline(format!(
                "mixup needs field \"x\" to be f32 with {rows} samples, and it is {}; normalise and batch before",
                x.ty()
            )));
        }
        let lane = lane.unwrap_or(Lane { rows: rows.max(1), first_row: 0 });
        if lane.rows == 0 || !rows.is_multiple_of(lane.rows) || !lane.first_row.is_multiple_of(lane.rows) {
            let Lane { rows: of_lane, first_row } = lane;
            let problem = format!("mixup cannot cut {rows} samples from row {first_row} on into lanes of {of_lane}");
            return Err(DataError::Pipeline(problem));
        }
        for number in 0..rows / lane.rows {
            let first = (lane.first_row / lane.rows) as u32;
            let share = beta(alpha, &mut context.random_part(stream::MIXUP, first + number as u32));
            mix_part(x.f32s_mut(), rows, number * lane.rows..(number + 1) * lane.rows, share);
            mix_part(labels.f32s_mut(), rows, number * lane.rows..(number + 1) * lane.rows, share);
        }
        *example.get_mut("y")? = labels;
        Ok(example)
    }
}

/// Mixes some of so many rows with each other.
fn mix_part(all: &mut [f32], count: usize, rows: Range<usize>, share: f32) {
    let row = all.len() / count.max(1);
    mix_pairs(&mut all[rows.start * row..rows.end * row], rows.len(), share);
}

/// Row i and row n − 1 − i become share · own + (1 − share) · other, in place.
pub(super) fn mix_pairs(rows: &mut [f32], count: usize, share: f32) {
    let row = rows.len() / count.max(1);
    let (first, second) = rows.split_at_mut(count / 2 * row);
    if row > 0 {
        for (a, b) in first.chunks_exact_mut(row).zip(second.rchunks_exact_mut(row)) {
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (share * *a + (1.0 - share) * *b, share * *b + (1.0 - share) * *a);
            }
        }
    }
}

/// One for each label.
fn distributions(y: &Tensor, classes: usize, context: &Context) -> Result<Tensor> {
    let [rows] = y.ty().shape[..] else { return Err(not_labels(y)) };
    if y.ty().dtype != DType::I32 {
        return Err(not_labels(y));
    }
    let mut out = Tensor::zeros(TensorType::f32([rows, classes]), context.pool)?;
    let labels = bytemuck::cast_slice::<u8, i32>(y.bytes());
    for (row, label) in labels.iter().enumerate() {
        let Some(class) = usize::try_from(*label).ok().filter(|class| *class < classes) else {
            let problem = format!("class {label} is not one of 0 to {}; give more classes", classes as i64 - 1);
            return Err(DataError::bad(format!("sample {row} of the batch"), problem));
        };
        out.f32s_mut()[row * classes + class] = 1.0;
    }
    Ok(out)
}

fn not_labels(y: &Tensor) -> DataError {
    DataError::Pipeline(format!("mixup needs field \"y\" to be i32 [samples], and it is {}; batch before", y.ty()))
}

/// A share in 0..1 of the distribution Beta(alpha, alpha).
pub(super) fn beta(alpha: f32, random: &mut Random) -> f32 {
    let (a, b) = (gamma(alpha, random), gamma(alpha, random));
    if a + b > 0.0 { a / (a + b) } else { 0.5 }
}

/// Marsaglia and Tsang's method. Below one, a value of alpha + 1 is scaled down.
fn gamma(alpha: f32, random: &mut Random) -> f32 {
    if alpha < 1.0 {
        let larger = gamma(alpha + 1.0, random);
        return larger * (1.0 - random.uniform()).powf(1.0 / alpha);
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = random.normal();
        let v = (1.0 + c * x).powi(3);
        // One minus a number below one is above zero, so its logarithm is finite.
        if v > 0.0 && (1.0 - random.uniform()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}
