//! Sum, mean, maximum and sum of squares over any axes. Axes are collapsed first: what is left is, for each output, runs
//! of contiguous matrices that are folded down their columns (one column where the last axis is reduced).

use super::columns::{self, Accumulator, Split, WIDEST, Walk};
use super::lanes;
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::pool::Parts;
use memfit_ir::op::ReduceKind;
use std::ops::Range;

/// Axes that are left after collapsing; a tensor needs more than twice as many to exceed it.
const MAX_AXES: usize = 16;
/// Elements of a row that are summed in f32 before the sums go on in f64.
const ROW_BLOCK: usize = 8192;

/// Elements of scratch that [`reduce`] needs.
pub(crate) fn reduce_scratch(shape: &[usize], axes: &[usize]) -> usize {
    let plan = Plan::new(shape, axes);
    if plan.split.chunks.count == 1 { 0 } else { plan.outs * plan.split.chunks.count * plan.split.cols }
}

/// y ← the reduction of x over the ascending `axes`, none of them empty.
pub(crate) fn reduce(
    cpu: &Cpu,
    kind: ReduceKind,
    shape: &[usize],
    axes: &[usize],
    x: &[f32],
    y: &mut [f32],
    scratch: &mut [f32],
) {
    let plan = Plan::new(shape, axes);
    if y.is_empty() {
        return;
    }
    let chunks = plan.split.chunks.count;
    let grain = grain(&plan, x.len());
    if chunks == 1 {
        fold(cpu, kind, &plan, grain, x, y);
        return finish(cpu, kind, &plan, y);
    }
    let partial = &mut scratch[..y.len() * chunks];
    fold(cpu, kind, &plan, grain, x, partial);
    join(cpu, kind, &plan, partial, y);
}

/// Units that are worth a thread of their own.
fn grain(plan: &Plan, elements: usize) -> usize {
    (4096 * plan.units() / elements.max(1)).max(1)
}

fn fold(cpu: &Cpu, kind: ReduceKind, plan: &Plan, grain: usize, x: &[f32], out: &mut [f32]) {
    let units = plan.units();
    let end =
        |u: usize| if u == units { plan.outs * plan.split.chunks.count * plan.split.cols } else { plan.split.start(u) };
    let out = Parts::new(out);
    cpu.pool.split(units, grain, |range| {
        // SAFETY: units in order write neighbouring ranges, and the ranges of units are disjoint.
        let out = unsafe { out.range(end(range.start)..end(range.end)) };
        fold_units(cpu.isa, kind, plan, x, range, out);
    });
}

/// A mean is a sum until here.
fn finish(cpu: &Cpu, kind: ReduceKind, plan: &Plan, y: &mut [f32]) {
    if kind == ReduceKind::Mean {
        let n = plan.count() as f32;
        let y = Parts::new(y);
        // SAFETY: split gives disjoint ranges.
        cpu.pool.split(plan.outs * plan.split.cols, 8192, |r| unsafe { y.range(r) }.iter_mut().for_each(|v| *v /= n));
    }
}

/// Joins the chunks of each output in order; in f64, which costs nothing here.
fn join(cpu: &Cpu, kind: ReduceKind, plan: &Plan, partial: &[f32], y: &mut [f32]) {
    let (cols, chunks) = (plan.split.cols, plan.split.chunks.count);
    let y = Parts::new(y);
    cpu.pool.split(plan.outs * cols, 1024, |range| {
        // SAFETY: split gives disjoint ranges.
        let y = unsafe { y.range(range.clone()) };
        for (y, i) in y.iter_mut().zip(range) {
            let first = i / cols * chunks * cols + i % cols;
            let parts = (0..chunks).map(|chunk| partial[first + chunk * cols]);
            *y = match kind {
                ReduceKind::Max => parts.fold(f32::NEG_INFINITY, lanes::larger),
                ReduceKind::Sum | ReduceKind::SumSquares => parts.map(f64::from).sum::<f64>() as f32,
                ReduceKind::Mean => (parts.map(f64::from).sum::<f64>() / plan.count() as f64) as f32,
            };
        }
    });
}

/// Axes as (extent, stride), the innermost first.
#[derive(Clone, Copy, Default)]
struct Axes {
    axes: [(usize, usize); MAX_AXES],
    n: usize,
}

impl Axes {
    fn push(&mut self, extent: usize, stride: usize) {
        assert!(self.n < MAX_AXES, "a reduction over more than {MAX_AXES} alternating axes");
        self.axes[self.n] = (extent, stride);
        self.n += 1;
    }

    /// The offset of the `i`-th element.
    #[inline(always)]
    fn offset(&self, mut i: usize) -> usize {
        let mut offset = 0;
        for (a, &(extent, stride)) in self.axes[..self.n].iter().enumerate() {
            if a + 1 == self.n {
                return offset + i * stride;
            }
            offset += i % extent * stride;
            i /= extent;
        }
        offset
    }

    fn count(&self) -> usize {
        self.axes[..self.n].iter().map(|a| a.0).product()
    }
}

/// For each of `outs` outputs (of `split.cols` columns): `runs` matrices of `rows` × `split.cols`.
struct Plan {
    kept: Axes,
    outs: usize,
    runs: Axes,
    rows: usize,
    split: Split,
}

impl Plan {
    fn new(shape: &[usize], axes: &[usize]) -> Plan {
        let mut plan =
            Plan { kept: Axes::default(), outs: 1, runs: Axes::default(), rows: 1, split: Split::new(1, 1, 1) };
        let mut cols = 1;
        let mut stride = 1;
        let mut end = shape.len();
        while end > 0 {
            // The longest stretch of neighbouring axes that are all kept or all reduced counts as one axis.
            let reduced = axes.contains(&(end - 1));
            let start = (0..end).rev().take_while(|&i| axes.contains(&i) == reduced || shape[i] == 1).last();
            let start = start.unwrap_or(end - 1);
            let extent: usize = shape[start..end].iter().product();
            if extent == 1 {
                // Nothing to walk over.
            } else if reduced {
                if stride == cols { plan.rows = extent } else { plan.runs.push(extent, stride) }
            } else if stride == 1 {
                cols = extent;
            } else {
                plan.kept.push(extent, stride);
            }
            stride *= extent;
            end = start;
        }
        plan.outs = plan.kept.count();
        plan.split = Split::new(plan.outs, plan.count(), cols);
        plan
    }

    fn units(&self) -> usize {
        self.split.units(self.outs)
    }

    /// Whether each output is the reduction of one short contiguous row, with the rows one after the other.
    fn is_rows(&self) -> bool {
        let one_run = self.split.cols == 1 && self.split.chunks.count == 1 && self.runs.n == 0 && self.kept.n <= 1;
        one_run && self.rows <= ROW_BLOCK
    }

    /// Elements that become one.
    fn count(&self) -> usize {
        self.runs.count() * self.rows
    }
}

simd! {
    /// Folds units of work; their results stand one after the other in `out`.
    fn fold_units<FMA>(isa, kind: ReduceKind, plan: &Plan, x: &[f32], units: Range<usize>, out: &mut [f32]) {
        match kind {
            ReduceKind::Sum | ReduceKind::Mean => {
                units_with(plan, x, units, out, (0.0, |a: f32, x: f32| a + x, |a: f32, b: f32| a + b), |a, b| a + b)
            }
            ReduceKind::SumSquares => {
                units_with(plan, x, units, out, (0.0, |a, x| fma::<FMA>(x, x, a), |a, b| a + b), |a, b| a + b)
            }
            ReduceKind::Max => {
                let larger64 = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
                units_with(plan, x, units, out, (f32::NEG_INFINITY, lanes::larger, lanes::larger), larger64)
            }
        }
    }
}

#[inline(always)]
fn units_with(
    plan: &Plan,
    x: &[f32],
    units: Range<usize>,
    mut out: &mut [f32],
    (init, step, join): (f32, impl Fn(f32, f32) -> f32 + Copy, impl Fn(f32, f32) -> f32 + Copy),
    join64: impl Fn(f64, f64) -> f64 + Copy,
) {
    if plan.is_rows() {
        let x = &x[units.start * plan.rows..units.end * plan.rows];
        for (x, out) in x.chunks_exact(plan.rows).zip(out) {
            *out = row(x, init, step);
        }
        return;
    }
    let (mut param, mut acc): (Accumulator, Accumulator) = ([0.0; WIDEST], [0.0; WIDEST]);
    for u in units {
        let (o, chunk, col) = plan.split.unit(u);
        let runs = Runs { plan, base: plan.kept.offset(o) + col, rows: plan.split.chunks.range(chunk) };
        if plan.split.cols == 1 {
            let mut total = init as f64;
            for (at, len) in runs {
                for block in x[at..at + len].chunks(ROW_BLOCK) {
                    total = join64(total, row(block, init, step) as f64);
                }
            }
            out[0] = total as f32;
            out = &mut out[1..];
            continue;
        }
        let walk = Walk { stride: plan.split.cols, width: plan.split.width(col) };
        let (here, rest) = out.split_at_mut(walk.width);
        here.fill(init);
        for (at, rows) in runs {
            let mut r = 0;
            while r < rows {
                let block = walk.block_rows().min(rows - r);
                let x = &x[at + r * walk.stride..];
                columns::fold1(walk, block, x, &mut param, &mut acc, (init, |a, x, _| step(a, x), join));
                for (h, &a) in here.iter_mut().zip(&acc) {
                    *h = join(*h, a);
                }
                r += block;
            }
        }
        out = rest;
    }
}

/// The contiguous stretches of x that some of the reduced rows lie in, as (offset, rows).
struct Runs<'a> {
    plan: &'a Plan,
    base: usize,
    rows: Range<usize>,
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let (run, first) = (self.rows.start / self.plan.rows, self.rows.start % self.plan.rows);
        let rows = (self.plan.rows - first).min(self.rows.len());
        self.rows.start += rows;
        (rows > 0).then(|| (self.base + self.plan.runs.offset(run) + first * self.plan.split.cols, rows))
    }
}

/// One row folded to a number.
#[inline(always)]
fn row(x: &[f32], init: f32, step: impl Fn(f32, f32) -> f32) -> f32 {
    // −∞ marks a maximum, which needs no lanes' sum.
    if init == f32::NEG_INFINITY { lanes::max(x) } else { lanes::sum1(x, step) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{check, nans, random};

    fn naive(kind: ReduceKind, shape: &[usize], axes: &[usize], x: &[f32]) -> Vec<f64> {
        let outs: usize = shape.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).product();
        let start = if kind == ReduceKind::Max { f64::NEG_INFINITY } else { 0.0 };
        let mut y = vec![start; outs];
        for (i, &v) in x.iter().enumerate() {
            let (mut rest, mut o, mut step) = (i, 0, 1);
            for a in (0..shape.len()).rev() {
                if !axes.contains(&a) {
                    o += rest % shape[a] * step;
                    step *= shape[a];
                }
                rest /= shape[a];
            }
            let v = v as f64;
            match kind {
                ReduceKind::Sum | ReduceKind::Mean => y[o] += v,
                ReduceKind::SumSquares => y[o] += v * v,
                ReduceKind::Max => y[o] = y[o].max(v),
            }
        }
        if kind == ReduceKind::Mean {
            y.iter_mut().for_each(|v| *v /= (x.len() / outs) as f64);
        }
        y
    }

    fn check_reduce(shape: &[usize], axes: &[usize]) {
        let x = random(shape.iter().product(), 1);
        for kind in ReduceKind::ALL {
            let want = naive(kind, shape, axes, &x);
            let name = format!("{} {shape:?} over {axes:?}", kind.name());
            // Each addition rounds: the error of a sum grows with the root of their number.
            let tolerance = 2e-6 + 2e-7 * (x.len() as f64 / want.len() as f64).sqrt();
            check(&name, tolerance, std::slice::from_ref(&want), |cpu| {
                let (mut y, mut scratch) = (nans(want.len()), nans(reduce_scratch(shape, axes)));
                reduce(cpu, kind, shape, axes, &x, &mut y, &mut scratch);
                vec![y]
            });
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(40))]
        #[test]
        fn any_shape_and_axes(shape in proptest::collection::vec(1usize..9, 0..6), mask in 0u32..64) {
            let axes: Vec<usize> = (0..shape.len()).filter(|i| mask >> i & 1 == 1).collect();
            check_reduce(&shape, &axes);
        }
    }

    #[test]
    fn a_maximum_shows_that_something_is_not_a_number() {
        for (shape, axes) in [(vec![3, 100], vec![1]), (vec![100, 3], vec![0])] {
            let mut x = random(300, 1);
            x[0] = f32::NAN;
            let mut y = vec![0.0; 3];
            let cpu = crate::kernels::check::cpu(crate::isa::Isa::best(), 1);
            reduce(&cpu, ReduceKind::Max, &shape, &axes, &x, &mut y, &mut []);
            assert!(y[0].is_nan() && !y[1].is_nan());
        }
    }
}
