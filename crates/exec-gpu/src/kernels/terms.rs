//! The terms of a fold, and how they become one.

use cubecl::prelude::*;
use memfit_ir::DType;

use crate::kernels::math::{maximum, rstd};
use crate::kernels::word::{Buffers, load, load_bits};
use crate::lower::fold::{At, Kind, Statistics, Terms, number};
use crate::tape::Buffer;

/// Which term of which cell, and the element it belongs to.
#[derive(CubeType)]
pub struct Term {
    pub element: usize,
    pub index: usize,
    pub cell: usize,
}

#[derive(CubeType)]
pub struct Values {
    pub a: f32,
    pub b: f32,
}

/// What stands for the terms that were folded, as [`Kind`] says.
#[derive(CubeType)]
pub struct Accumulator {
    pub a: f32,
    pub b: f32,
    pub c: f32,
    pub d: f32,
}

/// One of a single number.
#[cube]
pub fn only(a: f32) -> Accumulator {
    Accumulator { a, b: 0.0f32.runtime(), c: 0.0f32.runtime(), d: 0.0f32.runtime() }
}

#[cube]
pub fn term_of(buffers: &mut Buffers, numbers: &Sequence<u32>, term: &Term, #[comptime] terms: Terms) -> Values {
    match terms {
        Terms::Element(x) => one(load(buffers, term.element, x)),
        Terms::Square(x) => {
            let x = load(buffers, term.element, x);
            one(x * x)
        }
        Terms::Product(x, y) => one(load(buffers, term.element, x) * load(buffers, term.element, y)),
        Terms::Channel { x, dy, norm, at } => {
            let cell = match at {
                At::Channel => term.cell,
                At::Group => {
                    let sample = term.index / (numbers[comptime!(number::SAMPLE_ROWS)] as usize);
                    let group = term.cell / (numbers[comptime!(number::GROUP_CHANNELS)] as usize);
                    sample * (numbers[comptime!(number::GROUPS)] as usize) + group
                }
            };
            let normal = normalised(buffers, numbers, term.element, cell, x, norm);
            let dy = load(buffers, term.element, dy);
            Values { a: dy * normal, b: dy }
        }
        Terms::Norm { x, dy, scale, norm } => {
            let normal = normalised(buffers, numbers, term.element, term.cell, x, norm);
            let channel = term.element % (numbers[comptime!(number::CHANNELS)] as usize);
            let dnormal = load(buffers, term.element, dy) * load(buffers, channel, scale);
            Values { a: dnormal * normal, b: dnormal }
        }
        Terms::CrossEntropy { logits, labels, lse } => {
            let below = load(buffers, term.cell, lse) - load(buffers, term.element, logits);
            one(target(buffers, numbers, term, labels) * below)
        }
    }
}

#[cube]
fn one(a: f32) -> Values {
    Values { a, b: 0.0f32.runtime() }
}

/// x̂ by the statistics of a cell.
#[cube]
pub fn normalised(
    buffers: &mut Buffers,
    numbers: &Sequence<u32>,
    element: usize,
    cell: usize,
    #[comptime] x: Buffer,
    #[comptime] norm: Statistics,
) -> f32 {
    let mut value = load(buffers, element, x);
    if comptime!(norm.mean.is_some()) {
        value -= load(buffers, cell, comptime!(norm.mean.unwrap()));
    }
    let mut factor = load(buffers, cell, comptime!(norm.rstd));
    if comptime!(norm.is_variance) {
        factor = rstd(factor, parameter(numbers));
    }
    value * factor
}

/// What the probability of a class should be: the label, some of which is spread over all classes.
#[cube]
pub fn target(buffers: &mut Buffers, numbers: &Sequence<u32>, term: &Term, #[comptime] labels: Buffer) -> f32 {
    let smoothing = parameter(numbers);
    let label = if comptime!(labels.dtype == DType::I32) {
        select(load_bits(buffers, term.cell, labels) as usize == term.index, 1.0f32, 0.0f32)
    } else {
        load(buffers, term.element, labels)
    };
    (1.0 - smoothing) * label + smoothing / f32::cast_from(numbers[comptime!(number::CHANNELS)])
}

#[cube]
pub fn parameter(numbers: &Sequence<u32>) -> f32 {
    f32::reinterpret(numbers[comptime!(number::PARAMETER)])
}

#[cube]
pub fn start(#[comptime] kind: Kind) -> Accumulator {
    let a = match kind {
        Kind::Sum | Kind::TwoSums | Kind::Moments => 0.0f32.runtime(),
        Kind::Max => f32::reinterpret(0xff80_0000u32.runtime()),
        // The lowest that is finite: what differs from it is a number.
        Kind::LogSumExp => f32::reinterpret(0xff7f_ffffu32.runtime()),
    };
    only(a)
}

/// From what terms are measured while their moments are summed up: one of them, so that nothing is lost where they lie far from
/// 0 and close together.
#[cube]
pub fn origin(x: f32) -> f32 {
    let is_finite = u32::reinterpret(x) & 0x7f80_0000 != 0x7f80_0000;
    select(is_finite, x, 0.0f32)
}

/// Adds a term. Moments are (own origin, Σ d, Σ d²) for now, where d is what a term differs from it.
#[cube]
pub fn accumulate(folded: &mut Accumulator, term: &Values, #[comptime] kind: Kind) {
    match kind {
        Kind::Sum => folded.a += term.a,
        Kind::TwoSums => {
            folded.a += term.a;
            folded.b += term.b;
        }
        Kind::Max => folded.a = maximum(folded.a, term.a),
        Kind::Moments => {
            let d = term.a - folded.a;
            folded.b += d;
            folded.c += d * d;
        }
        Kind::LogSumExp => {
            let d = term.a - folded.a;
            let shrunk = (-d.abs()).exp();
            folded.b = select(d > 0.0, folded.b * shrunk + 1.0, folded.b + shrunk);
            folded.a = select(d > 0.0, term.a, folded.a);
        }
    }
}

/// What a unit has when it has seen its terms.
#[cube]
pub fn settle(folded: &mut Accumulator, count: usize, #[comptime] kind: Kind) {
    match kind {
        Kind::Moments => {
            let n = f32::cast_from(count as u32);
            let mean = folded.b / select(count == 0, 1.0f32, n);
            let squares = folded.c - folded.b * mean;
            folded.b = select(count == 0, 0.0f32, folded.a - folded.d + mean);
            folded.c = select(squares < 0.0, 0.0f32, squares);
            folded.a = n;
        }
        Kind::Sum | Kind::TwoSums | Kind::Max | Kind::LogSumExp => {}
    }
}

/// Joins two folds.
#[cube]
pub fn join(folded: &mut Accumulator, other: &Accumulator, #[comptime] kind: Kind) {
    match kind {
        Kind::Sum => folded.a += other.a,
        Kind::TwoSums => {
            folded.a += other.a;
            folded.b += other.b;
        }
        Kind::Max => folded.a = maximum(folded.a, other.a),
        Kind::Moments => {
            let count = folded.a + other.a;
            let share = other.a / select(count == 0.0, 1.0f32, count);
            let d = other.b - folded.b;
            // Not mean + d·share: what is infinite stays so.
            folded.b = folded.b * (1.0 - share) + other.b * share;
            folded.c += other.c + d * d * folded.a * share;
            folded.d = select(other.a == 0.0, folded.d, other.d);
            folded.a = count;
        }
        Kind::LogSumExp => {
            let d = other.a - folded.a;
            let shrunk = (-d.abs()).exp();
            folded.b = select(d > 0.0, folded.b * shrunk + other.b, folded.b + other.b * shrunk);
            folded.a = select(d > 0.0, other.a, folded.a);
        }
    }
}
