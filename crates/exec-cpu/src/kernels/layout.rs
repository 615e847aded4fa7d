//! Moves elements without looking at them: slice, concat, pad, broadcast, fill. [`super::transpose`] is the neighbour.
//! Elements are any plain type of the right size; floats pass through as u16 or u32, bit for bit.

use super::strided::{Strided, copy_rows};
use crate::Cpu;
use crate::pool::Parts;

/// Elements that are worth a thread of their own.
pub(super) const GRAIN: usize = 8192;

/// y ← value everywhere.
pub(crate) fn fill<T: Copy + Send + Sync>(cpu: &Cpu, value: T, y: &mut [T]) {
    let n = y.len();
    let y = Parts::new(y);
    // SAFETY: split gives disjoint ranges.
    cpu.pool.split(n, GRAIN, |r| unsafe { y.range(r) }.fill(value));
}

/// y ← x, flat.
pub(crate) fn copy<T: Copy + Send + Sync>(cpu: &Cpu, x: &[T], y: &mut [T]) {
    let n = y.len();
    let y = Parts::new(y);
    // SAFETY: split gives disjoint ranges.
    cpu.pool.split(n, GRAIN, |r| unsafe { y.range(r.clone()) }.copy_from_slice(&x[r]));
}

/// y ← the elements of x from `start` up to `stop` on each axis.
pub(crate) fn slice<T: Copy + Send + Sync>(
    cpu: &Cpu,
    shape: &[usize],
    (start, stop): (&[usize], &[usize]),
    x: &[T],
    y: &mut [T],
) {
    let mut view = Strided::default();
    let mut stride = 1;
    for i in (0..shape.len()).rev() {
        view.base += start[i] * stride;
        view.push_outer(stop[i] - start[i], stride);
        stride *= shape[i];
    }
    copy_rows(cpu, &view, x, y);
}

/// y ← x stretched to `to` as numpy does: aligned at the last axis, extent 1 repeats.
pub(crate) fn broadcast<T: Copy + Send + Sync>(cpu: &Cpu, shape: &[usize], to: &[usize], x: &[T], y: &mut [T]) {
    let mut view = Strided::default();
    let mut stride = 1;
    let missing = to.len() - shape.len();
    for i in (0..to.len()).rev() {
        let extent = if i < missing { 1 } else { shape[i - missing] };
        view.push_outer(to[i], if extent == 1 { 0 } else { stride });
        stride *= extent;
    }
    copy_rows(cpu, &view, x, y);
}

/// One of the inputs that stand side by side in y along an axis with `outer` elements in front of it (the product of the earlier
/// extents): its rows go to `offset` in each of the `outer` rows of y. The other inputs' places are not written.
pub(crate) fn concat_part<T: Copy + Send + Sync>(cpu: &Cpu, outer: usize, offset: usize, x: &[T], y: &mut [T]) {
    if x.is_empty() {
        return;
    }
    let (from, to) = (x.len() / outer, y.len() / outer);
    let y = Parts::new(y);
    if outer == 1 {
        return cpu.pool.split(from, GRAIN, |r| {
            // SAFETY: split gives disjoint ranges.
            unsafe { y.range(offset + r.start..offset + r.end) }.copy_from_slice(&x[r]);
        });
    }
    cpu.pool.split(outer, GRAIN.div_ceil(from), |rows| {
        for row in rows {
            let at = row * to + offset;
            // SAFETY: each row belongs to one thread.
            unsafe { y.range(at..at + from) }.copy_from_slice(&x[row * from..(row + 1) * from]);
        }
    });
}

/// y ← x with zeros around: `pads` gives how many before and after, an axis each.
pub(crate) fn pad<T: Copy + Default + Send + Sync>(
    cpu: &Cpu,
    shape: &[usize],
    pads: &[(usize, usize)],
    x: &[T],
    y: &mut [T],
) {
    if y.is_empty() {
        return;
    }
    // Trailing axes without padding are part of the rows, and so is the innermost axis that has some.
    let inner = (0..shape.len()).rev().find(|&i| pads[i] != (0, 0)).unwrap_or(0);
    let unit: usize = shape.iter().skip(inner + 1).product();
    let from = unit * shape.get(inner).copied().unwrap_or(1);
    let (before, after) = pads.get(inner).copied().unwrap_or((0, 0));
    let to = from + (before + after) * unit;
    let rows = y.len() / to;
    let y = Parts::new(y);
    cpu.pool.split(rows, GRAIN.div_ceil(to), |rows| {
        for row in rows {
            // SAFETY: each row belongs to one thread.
            let y = unsafe { y.range(row * to..(row + 1) * to) };
            match source_row(&shape[..inner.min(shape.len())], pads, row) {
                None => y.fill(T::default()),
                Some(source) => {
                    let (left, right) = (before * unit, before * unit + from);
                    y[..left].fill(T::default());
                    y[left..right].copy_from_slice(&x[source * from..(source + 1) * from]);
                    y[right..].fill(T::default());
                }
            }
        }
    });
}

/// The row of x that stands in a row of the padded tensor, or none where it is padding.
fn source_row(outer: &[usize], pads: &[(usize, usize)], row: usize) -> Option<usize> {
    let (mut rest, mut source, mut stride) = (row, 0, 1);
    for (&extent, &(before, after)) in outer.iter().zip(pads).rev() {
        let padded = extent + before + after;
        let i = (rest % padded).checked_sub(before).filter(|&i| i < extent)?;
        source += i * stride;
        stride *= extent;
        rest /= padded;
    }
    Some(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::cpu;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Runs a kernel on 1, 2 and 3 threads into garbage and compares.
    fn check_moves<T: Copy + PartialEq + std::fmt::Debug>(want: &[T], garbage: T, kernel: impl Fn(&Cpu, &mut [T])) {
        for threads in [1, 2, 3] {
            let mut y = std::vec![garbage; want.len()];
            kernel(&cpu(Isa::best(), threads), &mut y);
            assert!(y == want, "{threads} threads: {y:?}, want {want:?}");
        }
    }

    /// The index of an element on each axis.
    fn unravel(shape: &[usize], mut i: usize) -> Vec<usize> {
        let mut index = std::vec![0; shape.len()];
        for a in (0..shape.len()).rev() {
            index[a] = i % shape[a];
            i /= shape[a];
        }
        index
    }

    fn ravel(shape: &[usize], index: &[usize]) -> usize {
        shape.iter().zip(index).fold(0, |at, (&d, &i)| at * d + i)
    }

    fn numbers(n: usize) -> Vec<u16> {
        (0..n).map(|i| i as u16 + 1).collect()
    }

    fn build(shape: &[usize], value: impl Fn(&[usize]) -> u16) -> Vec<u16> {
        (0..shape.iter().product()).map(|i| value(&unravel(shape, i))).collect()
    }

    fn check_slice(shape: &[usize], start: &[usize], stop: &[usize]) {
        let x = numbers(shape.iter().product());
        let out: Vec<usize> = start.iter().zip(stop).map(|(a, b)| b - a).collect();
        let want = build(&out, |index| {
            let source: Vec<usize> = index.iter().zip(start).map(|(i, s)| i + s).collect();
            x[ravel(shape, &source)]
        });
        check_moves(&want, 0xffff, |cpu, y| slice(cpu, shape, (start, stop), &x, y));
    }

    fn check_pad(shape: &[usize], pads: &[(usize, usize)]) {
        let x = numbers(shape.iter().product());
        let out: Vec<usize> = shape.iter().zip(pads).map(|(d, p)| d + p.0 + p.1).collect();
        let want = build(&out, |index| {
            let inside = (0..shape.len()).all(|a| index[a] >= pads[a].0 && index[a] < pads[a].0 + shape[a]);
            let source: Vec<usize> = index.iter().zip(pads).map(|(i, p)| i.wrapping_sub(p.0)).collect();
            if inside { x[ravel(shape, &source)] } else { 0 }
        });
        check_moves(&want, 0xffff, |cpu, y| pad(cpu, shape, pads, &x, y));
    }

    fn check_broadcast(shape: &[usize], to: &[usize]) {
        let x = numbers(shape.iter().product());
        let want = build(to, |index| {
            let source: Vec<usize> =
                shape.iter().zip(&index[to.len() - shape.len()..]).map(|(&d, &i)| if d == 1 { 0 } else { i }).collect();
            x[ravel(shape, &source)]
        });
        check_moves(&want, 0xffff, |cpu, y| broadcast(cpu, shape, to, &x, y));
    }

    fn concat<T: Copy + Send + Sync>(cpu: &Cpu, outer: usize, inputs: &[&[T]], y: &mut [T]) {
        let mut offset = 0;
        for x in inputs {
            concat_part(cpu, outer, offset, x, y);
            offset += x.len() / outer.max(1);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn slices(axes in vec((1usize..8, 0usize..8, 0usize..8), 0..5)) {
            let shape: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let start: Vec<usize> = axes.iter().map(|a| a.1.min(a.0)).collect();
            let stop: Vec<usize> = axes.iter().zip(&start).map(|(a, &s)| (s + a.2).min(a.0)).collect();
            check_slice(&shape, &start, &stop);
        }

        #[test]
        fn pads(axes in vec((1usize..6, 0usize..3, 0usize..3), 0..5)) {
            let shape: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let pads: Vec<(usize, usize)> = axes.iter().map(|a| (a.1, a.2)).collect();
            check_pad(&shape, &pads);
        }

        #[test]
        fn broadcasts(axes in vec((1usize..6, any::<bool>()), 0..5), drop in 0usize..5) {
            let to: Vec<usize> = axes.iter().map(|a| a.0).collect();
            let shape: Vec<usize> = axes.iter().map(|a| if a.1 { 1 } else { a.0 }).skip(drop).collect();
            check_broadcast(&shape, &to);
        }

        #[test]
        fn concats(outer in 1usize..40, inner in vec(0usize..30, 1..4)) {
            let inputs: Vec<Vec<u8>> =
                inner.iter().enumerate().map(|(k, &n)| (0..outer * n).map(|i| (i * 7 + k) as u8).collect()).collect();
            let mut want = Vec::new();
            for row in 0..outer {
                for (x, n) in inputs.iter().zip(&inner) {
                    want.extend_from_slice(&x[row * n..(row + 1) * n]);
                }
            }
            let inputs: Vec<&[u8]> = inputs.iter().map(|x| &x[..]).collect();
            check_moves(&want, 0xff, |cpu, y| concat(cpu, outer, &inputs, y));
        }
    }

    #[test]
    fn large_ones_use_every_thread() {
        check_slice(&[50, 20, 60], &[3, 1, 0], &[49, 20, 60]);
        check_slice(&[60_000], &[1], &[59_000]);
        check_pad(&[3, 50, 50, 8], &[(0, 0), (1, 1), (2, 1), (0, 0)]);
        check_broadcast(&[1, 60], &[900, 60]);
        check_broadcast(&[900, 1], &[900, 60]);
        check_broadcast(&[], &[60_000]);
        let x: Vec<u32> = (0..70_000).collect();
        check_moves(&x, 0, |cpu, y| concat(cpu, 1, &[&x[..30_000], &x[30_000..]], y));
        check_moves(&x, 1, |cpu, y| copy(cpu, &x, y));
        check_moves(&[7u8; 50_000], 0, |cpu, y| fill(cpu, 7, y));
    }
}
