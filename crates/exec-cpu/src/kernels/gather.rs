//! Rows of a table by their ids, and the gradient by the table: each thread owns some columns of it and adds rows in the
//! order of the ids.

use super::layout::fill;
use super::{BadIndex, check_indices};
use crate::Cpu;
use crate::isa::simd;
use crate::pool::Parts;

/// Elements that are worth a thread of their own.
const GRAIN: usize = 4096;

/// y ← the rows of the table, of `dim` elements, with these ids.
pub(crate) fn gather(cpu: &Cpu, dim: usize, table: &[f32], ids: &[i32], y: &mut [f32]) -> Result<(), BadIndex> {
    check_indices(ids, table.len() / dim.max(1))?;
    let y = Parts::new(y);
    cpu.pool.split(ids.len(), GRAIN.div_ceil(dim.max(1)), |r| {
        // SAFETY: each row belongs to one thread.
        let y = unsafe { y.range(r.start * dim..r.end * dim) };
        for (y, &id) in y.chunks_exact_mut(dim.max(1)).zip(&ids[r]) {
            y.copy_from_slice(&table[id as usize * dim..(id as usize + 1) * dim]);
        }
    });
    Ok(())
}

/// dtable ← the sum of the rows of dy with each id; zeros where an id does not occur.
pub(crate) fn gather_grad(cpu: &Cpu, dim: usize, ids: &[i32], dy: &[f32], dtable: &mut [f32]) -> Result<(), BadIndex> {
    let rows = dtable.len() / dim.max(1);
    check_indices(ids, rows)?;
    fill(cpu, 0.0, dtable);
    let dtable = Parts::new(dtable);
    let add = |id: i32, i: usize, cols: std::ops::Range<usize>| {
        let to = id as usize * dim;
        // SAFETY: a thread has its own columns or its own rows, and one part at a time.
        let row = unsafe { dtable.range(to + cols.start..to + cols.end) };
        add_to(cpu.isa, &dy[i * dim + cols.start..i * dim + cols.end], row);
    };
    // Either way an element sums its rows in the order of the ids, so that the choice may look at the threads.
    if dim >= 32 * cpu.pool.threads() {
        let grain = GRAIN.div_ceil(ids.len().max(1)).next_multiple_of(16);
        cpu.pool.split(dim, grain, |cols| ids.iter().enumerate().for_each(|(i, &id)| add(id, i, cols.clone())));
    } else {
        cpu.pool.split(rows, 1, |own| {
            for (i, &id) in ids.iter().enumerate() {
                if own.contains(&(id as usize)) {
                    add(id, i, 0..dim);
                }
            }
        });
    }
    Ok(())
}

simd! {
    fn add_to<FMA>(isa, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
 *y += x;
}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::{check, cpu, nans, random, random_ids};

    #[test]
    fn rows_and_their_gradient() {
        for (rows, dim, n) in [(1, 1, 1), (5, 3, 40), (13, 17, 7), (100, 64, 999), (50, 257, 300), (1000, 2, 5000)] {
            let (table, dy, ids) = (random(rows * dim, 1), random(n * dim, 2), random_ids(n, rows, 3));
            let (mut y, mut dtable) = (Vec::new(), vec![0.0; rows * dim]);
            for (i, &id) in ids.iter().enumerate() {
                for c in 0..dim {
                    y.push(table[id as usize * dim + c] as f64);
                    dtable[id as usize * dim + c] += dy[i * dim + c] as f64;
                }
            }
            check(&format!("gather {n} of {rows} x {dim}"), 1e-5, &[y, dtable], |cpu| {
                let (mut y, mut dtable) = (nans(n * dim), nans(rows * dim));
                gather(cpu, dim, &table, &ids, &mut y).unwrap();
                gather_grad(cpu, dim, &ids, &dy, &mut dtable).unwrap();
                vec![y, dtable]
            });
        }
    }

    #[test]
    fn an_id_out_of_range_is_an_error_and_nothing_is_written() {
        let cpu = cpu(Isa::best(), 2);
        for bad in [-1, 3] {
            let (mut y, mut dtable) = ([7.0; 4], [7.0; 6]);
            let error = Err(BadIndex { index: bad as i64, limit: 3, position: 1 });
            assert_eq!(gather(&cpu, 2, &[0.0; 6], &[0, bad], &mut y), error);
            assert_eq!(gather_grad(&cpu, 2, &[0, bad], &[0.0; 4], &mut dtable), error);
            assert!(y.iter().chain(&dtable).all(|&v| v == 7.0));
        }
    }
}
