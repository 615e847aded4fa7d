//! Transposition by any order of axes. Where the last axis stays, rows are copied; else the two axes that are contiguous
//! in source and target are walked in tiles, so that both sides read and write whole cache lines.

use super::layout::GRAIN;
use super::strided::{Strided, copy_rows};
use crate::Cpu;
use crate::pool::Parts;

/// Elements of a tile's side: a cache line of f32.
const TILE: usize = 16;

/// y ← x with its axes in another order: axis i of y is axis `perm[i]` of x.
pub(crate) fn transpose<T: Copy + Default + Send + Sync>(
    cpu: &Cpu,
    shape: &[usize],
    perm: &[usize],
    x: &[T],
    y: &mut [T],
) {
    let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
    let mut view = Strided::default();
    for &axis in perm.iter().rev() {
        view.push_outer(shape[axis], stride(axis));
    }
    let contiguous = view.axes().iter().position(|&(_, stride)| stride == 1);
    match contiguous {
        Some(across) if across > 0 && !y.is_empty() => transpose_tiles(cpu, &view, across, x, y),
        _ => copy_rows(cpu, &view, x, y),
    }
}

/// Axis 0 of the view is contiguous in y, axis `across` in x.
fn transpose_tiles<T: Copy + Default + Send + Sync>(cpu: &Cpu, view: &Strided, across: usize, x: &[T], y: &mut [T]) {
    let axes = view.axes();
    let ((along, x_step), (height, _)) = (axes[0], axes[across]);
    let y_step: usize = axes[..across].iter().map(|a| a.0).product();
    let bands = height.div_ceil(TILE);
    let outer: usize = axes.iter().enumerate().filter(|&(a, _)| a != 0 && a != across).map(|(_, a)| a.0).product();
    let y = Parts::new(y);
    cpu.pool.split(outer * bands, GRAIN.div_ceil(along * TILE.min(height)), |range| {
        for i in range {
            let (x_at, y_at) = band_offsets(view, across, i / bands);
            let first = i % bands * TILE;
            let band = Band { height: TILE.min(height - first), along, x_step, y_step };
            transpose_band(band, &x[x_at + first..], y_at + first * y_step, &y);
        }
    });
}

/// Offsets in x and y of the `i`-th place on the axes other than the two that are walked in tiles.
fn band_offsets(view: &Strided, across: usize, mut i: usize) -> (usize, usize) {
    let (mut x_at, mut y_at, mut y_stride) = (view.base, 0, 1);
    for (a, &(extent, stride)) in view.axes().iter().enumerate() {
        if a != 0 && a != across {
            x_at += i % extent * stride;
            y_at += i % extent * y_stride;
            i /= extent;
        }
        y_stride *= extent;
    }
    (x_at, y_at)
}

/// Up to [`TILE`] rows of y, each `along` long: `x_step` apart in x, `y_step` apart in y.
#[derive(Clone, Copy)]
struct Band {
    height: usize,
    along: usize,
    x_step: usize,
    y_step: usize,
}

fn transpose_band<T: Copy + Default>(band: Band, x: &[T], y_at: usize, y: &Parts<T>) {
    let mut tile = [[T::default(); TILE]; TILE];
    let mut j = 0;
    while j < band.along {
        let width = TILE.min(band.along - j);
        for (c, column) in tile.iter_mut().enumerate().take(width) {
            let at = (j + c) * band.x_step;
            match x.get(at..at + TILE) {
                Some(full) => column.copy_from_slice(full),
                None => column[..band.height].copy_from_slice(&x[at..at + band.height]),
            }
        }
        for r in 0..band.height {
            let at = y_at + r * band.y_step + j;
            // SAFETY: the rows of a band belong to one thread, and no other band has them.
            let row = unsafe { y.range(at..at + width) };
            row.iter_mut().zip(&tile).for_each(|(y, column)| *y = column[r]);
        }
        j += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::cpu;
    use proptest::prelude::*;

    fn naive(shape: &[usize], perm: &[usize], x: &[u32]) -> Vec<u32> {
        let out: Vec<usize> = perm.iter().map(|&p| shape[p]).collect();
        (0..x.len())
            .map(|mut i| {
                let mut source = vec![0; shape.len()];
                for a in (0..out.len()).rev() {
                    source[perm[a]] = i % out[a];
                    i /= out[a];
                }
                x[shape.iter().zip(&source).fold(0, |at, (&d, &i)| at * d + i)]
            })
            .collect()
    }

    fn check_transpose(shape: &[usize], perm: &[usize]) {
        let x: Vec<u32> = (1..=shape.iter().product::<usize>() as u32).collect();
        let want = naive(shape, perm, &x);
        for threads in [1, 2, 3] {
            let mut y = vec![0; x.len()];
            transpose(&cpu(Isa::best(), threads), shape, perm, &x, &mut y);
            assert!(y == want, "{shape:?} by {perm:?} on {threads} threads");
        }
    }

    #[test]
    fn usual_ones() {
        let cases: [(&[usize], &[usize]); 10] = [
            (&[], &[]),
            (&[5], &[0]),
            (&[1, 1], &[1, 0]),
            (&[300, 200], &[1, 0]),
            (&[17, 33], &[1, 0]),
            (&[2, 40, 3, 64], &[0, 2, 1, 3]),
            (&[2, 40, 3, 17], &[0, 2, 3, 1]),
            (&[4, 50, 60, 3], &[0, 3, 1, 2]),
            (&[4, 3, 50, 60], &[0, 2, 3, 1]),
            (&[31, 17, 19], &[2, 1, 0]),
        ];
        for (shape, perm) in cases {
            check_transpose(shape, perm);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn any_order(
            (shape, perm) in proptest::collection::vec(1usize..20, 0..5).prop_flat_map(|shape| {
                let order: Vec<usize> = (0..shape.len()).collect();
                (Just(shape), Just(order).prop_shuffle())
            })
        ) {
            check_transpose(&shape, &perm);
        }
    }
}
