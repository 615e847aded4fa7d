//! From what was folded to results: two numbers a cell, and what is done with them to each element.

use cubecl::prelude::*;
use memfit_ir::DType;

use crate::kernels::math::{nan, rstd};
use crate::kernels::terms::{Accumulator, Term, normalised, parameter, target};
use crate::kernels::word::{Buffers, load, load_bits, store};
use crate::lower::fold::{Apply, Class, Finish, number};
use crate::tape::Buffer;

#[derive(CubeType)]
pub struct Results {
    pub a: f32,
    pub b: f32,
}

#[cube]
pub fn finish(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    folded: &Accumulator,
    cell: usize,
    #[comptime] how: Finish,
) -> Results {
    let divisor = f32::cast_from(numbers[comptime!(number::DIVISOR)]);
    match how {
        Finish::Divide => Results { a: folded.a / divisor, b: folded.b / divisor },
        Finish::Variance => Results { a: folded.d + folded.b, b: folded.c / folded.a },
        Finish::Rstd => Results { a: folded.d + folded.b, b: rstd(folded.c / folded.a, parameter(numbers)) },
        Finish::RootMeanSquare => Results { a: 0.0f32.runtime(), b: rstd(folded.a / divisor, parameter(numbers)) },
        Finish::LargestAndSum => Results { a: folded.a, b: exponentials(folded) },
        Finish::LogSumExp { class } => {
            let lse = folded.a + exponentials(folded).ln();
            let mut loss = 0.0f32.runtime();
            if comptime!(class.is_some()) {
                loss = lse - logit(buffers, numbers, cell, comptime!(class.unwrap()));
            }
            Results { a: loss, b: lse }
        }
        Finish::CrossEntropy { labels } => {
            let mut loss = folded.a;
            if comptime!(labels.dtype == DType::I32) {
                loss = select(is_class(buffers, numbers, cell, labels), loss, nan());
            }
            Results { a: loss, b: 0.0f32.runtime() }
        }
    }
}

/// Σ exp(x − largest), but NaN where all are −∞ or one is ∞.
#[cube]
fn exponentials(folded: &Accumulator) -> f32 {
    let exists = folded.b > 0.0 && folded.a < f32::reinterpret(0x7f80_0000u32.runtime());
    select(exists, folded.b, nan())
}

#[cube]
fn is_class(buffers: &mut Buffers, numbers: &Sequence<u32>, row: usize, #[comptime] labels: Buffer) -> bool {
    // As bits, so that what is negative is too large.
    load_bits(buffers, row, labels) < numbers[comptime!(number::CHANNELS)]
}

/// That of the true class of a row, or NaN.
#[cube]
fn logit(buffers: &mut Buffers, numbers: &Sequence<u32>, row: usize, #[comptime] class: Class) -> f32 {
    let known = is_class(buffers, numbers, row, comptime!(class.labels));
    let label = load_bits(buffers, row, comptime!(class.labels)) as usize;
    let first = row * (numbers[comptime!(number::CHANNELS)] as usize);
    let value = load(buffers, first + select(known, label, 0), comptime!(class.logits));
    select(known, value, nan())
}

#[cube]
pub fn apply(buffers: &mut Buffers, numbers: &Sequence<u32>, term: &Term, results: &Results, #[comptime] how: Apply) {
    match how {
        Apply::Norm { x, scale, bias, y } => {
            let channel = term.element % (numbers[comptime!(number::CHANNELS)] as usize);
            let normal = (load(buffers, term.element, x) - results.a) * results.b;
            let mut value = normal * load(buffers, channel, scale);
            if comptime!(bias.is_some()) {
                value += load(buffers, channel, comptime!(bias.unwrap()));
            }
            store(buffers, term.element, value, y);
        }
        Apply::NormGrad { x, dy, scale, norm, dx } => {
            let channel = term.element % (numbers[comptime!(number::CHANNELS)] as usize);
            let normal = normalised(buffers, numbers, term.element, term.cell, x, norm);
            let dnormal = load(buffers, term.element, dy) * load(buffers, channel, scale);
            let factor = load(buffers, term.cell, comptime!(norm.rstd));
            store(buffers, term.element, factor * (dnormal - results.b - normal * results.a), dx);
        }
        Apply::Softmax { x, y, log } => {
            let below = load(buffers, term.element, x) - results.a;
            let value = if comptime!(log) { below - results.b.ln() } else { below.exp() / results.b };
            store(buffers, term.element, value, y);
        }
        Apply::SoftmaxGrad { y, dy, dx, log } => {
            let (y, dy) = (load(buffers, term.element, y), load(buffers, term.element, dy));
            let value = if comptime!(log) { dy - y.exp() * results.a } else { y * (dy - results.a) };
            store(buffers, term.element, value, dx);
        }
        Apply::CrossEntropyGrad { logits, labels, lse, dloss, dlogits } => {
            let wanted = target(buffers, numbers, term, labels);
            let smoothing = parameter(numbers);
            let probability = (load(buffers, term.element, logits) - load(buffers, term.cell, lse)).exp();
            let mut slope = probability - wanted;
            if comptime!(labels.dtype == DType::I32) {
                slope = select(is_class(buffers, numbers, term.cell, labels), slope, nan());
            } else {
                // 1 for a distribution; labels are not forced to be one.
                slope = probability * ((1.0 - smoothing) * results.a + smoothing) - wanted;
            }
            let value = load(buffers, term.cell, dloss) * slope;
            store(buffers, term.element, value, dlogits);
        }
    }
}
