//! Softmax cross-entropy over the last axis, from logits, with label smoothing: loss and log-sum-exp a row, and the
//! gradient by the logits. Probabilities are never stored.

use super::softmax::{GRAIN, exp_sum};
use super::{BadIndex, check_indices, lanes};
use crate::Cpu;
use crate::isa::{fma, simd};
use crate::math;
use crate::pool::Parts;
use std::ops::Range;

/// What is true of each row.
#[derive(Clone, Copy)]
pub(crate) enum Labels<'a> {
    /// A class.
    Classes(&'a [i32]),
    /// A weight for each class.
    Distributions(&'a [f32]),
}

impl<'a> Labels<'a> {
    /// A class outside of its range is an error before anything is written.
    fn check(self, classes: usize) -> Result<(), BadIndex> {
        match self {
            Labels::Classes(labels) => check_indices(labels, classes),
            Labels::Distributions(_) => Ok(()),
        }
    }

    fn rows(self, rows: Range<usize>, classes: usize) -> Labels<'a> {
        match self {
            Labels::Classes(labels) => Labels::Classes(&labels[rows]),
            Labels::Distributions(p) => Labels::Distributions(&p[rows.start * classes..rows.end * classes]),
        }
    }
}

/// loss ← −Σ q·log softmax(logits) of each row, where q is the label with `smoothing` of it spread over all classes; lse ←
/// the row's log-sum-exp.
pub(crate) fn cross_entropy(
    cpu: &Cpu,
    smoothing: f32,
    logits: &[f32],
    labels: Labels,
    loss: &mut [f32],
    lse: &mut [f32],
) -> Result<(), BadIndex> {
    let rows = loss.len();
    let classes = logits.len() / rows.max(1);
    labels.check(classes)?;
    let (loss, lse) = (Parts::new(loss), Parts::new(lse));
    cpu.pool.split(rows, GRAIN.div_ceil(classes.max(1)), |r| {
        // SAFETY: each row belongs to one thread.
        let (loss, lse) = unsafe { (loss.range(r.clone()), lse.range(r.clone())) };
        let logits = &logits[r.start * classes..r.end * classes];
        loss_rows(cpu.isa, smoothing, logits, labels.rows(r, classes), loss, lse);
    });
    Ok(())
}

/// dlogits ← dloss·(softmax·Σq − q) of each row. Without `logits`, they are what lies in `dlogits`.
pub(crate) fn cross_entropy_grad(
    cpu: &Cpu,
    smoothing: f32,
    logits: Option<&[f32]>,
    labels: Labels,
    (lse, dloss): (&[f32], &[f32]),
    dlogits: &mut [f32],
) -> Result<(), BadIndex> {
    let rows = lse.len();
    let classes = dlogits.len() / rows.max(1);
    labels.check(classes)?;
    let dlogits = Parts::new(dlogits);
    cpu.pool.split(rows, GRAIN.div_ceil(classes.max(1)), |r| {
        let flat = r.start * classes..r.end * classes;
        // SAFETY: each row belongs to one thread.
        let dlogits = unsafe { dlogits.range(flat.clone()) };
        let (lse, dloss) = (&lse[r.clone()], &dloss[r.clone()]);
        let logits = logits.map(|l| &l[flat]);
        grad_rows(cpu.isa, smoothing, logits, labels.rows(r, classes), lse, dloss, dlogits);
    });
    Ok(())
}

simd! {
    fn loss_rows<FMA>(isa, smoothing: f32, logits: &[f32], labels: Labels, loss: &mut [f32], lse: &mut [f32]) {
        let classes = logits.len() / loss.len();
        for (row, x) in logits.chunks_exact(classes).enumerate() {
            let max = lanes::max_number(x);
            let log = max + math::log::<FMA>(exp_sum::<FMA>(x, max));
            // −log softmax is lse − x, which is never negative: no digits are lost in the sums.
            let true_part = match labels {
                Labels::Classes(labels) => log - x[labels[row] as usize],
                Labels::Distributions(p) => {
                    let p = &p[row * classes..(row + 1) * classes];
                    lanes::sum2(x, p, |a, x, p| fma::<FMA>(p, log - x, a))
                }
            };
            loss[row] = if smoothing == 0.0 {
                true_part
            } else {
                let spread = lanes::sum1(x, |a, x| a + (log - x)) / classes as f32;
                fma::<FMA>(1.0 - smoothing, true_part, smoothing * spread)
            };
            lse[row] = log;
        }
    }
}

simd! {
    fn grad_rows<FMA>(
        isa, smoothing: f32, logits: Option<&[f32]>, labels: Labels, lse: &[f32], dloss: &[f32], dlogits: &mut [f32],
    ) {
        let classes = dlogits.len() / lse.len();
        let spread = smoothing / classes as f32;
        let rows = dlogits.chunks_exact_mut(classes).zip(lse.iter().zip(dloss));
        for (row, (dx, (&lse, &dloss))) in rows.enumerate() {
            if let Some(logits) = logits {
                dx.copy_from_slice(&logits[row * classes..(row + 1) * classes]);
            }
            match labels {
                Labels::Classes(labels) => {
                    for dx in dx.iter_mut() {
                        *dx = dloss * (math::exp::<FMA>(*dx - lse) - spread);
                    }
                    dx[labels[row] as usize] -= dloss * (1.0 - smoothing);
                }
                Labels::Distributions(p) => {
                    let p = &p[row * classes..(row + 1) * classes];
                    let total = fma::<FMA>(1.0 - smoothing, lanes::sum1(p, |a, p| a + p), smoothing);
                    for (dx, &p) in dx.iter_mut().zip(p) {
                        let q = fma::<FMA>(1.0 - smoothing, p, spread);
                        *dx = dloss * fma::<FMA>(math::exp::<FMA>(*dx - lse), total, -q);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::check::{check, cpu, nans, random, random_ids};

    /// loss, lse and dlogits in f64, from a weight a class.
    fn naive(smoothing: f32, logits: &[f32], weights: &[f32], dloss: &[f32]) -> [Vec<f64>; 3] {
        let classes = logits.len() / dloss.len();
        let mut out: [Vec<f64>; 3] = Default::default();
        for ((x, p), &dloss) in logits.chunks(classes).zip(weights.chunks(classes)).zip(dloss) {
            let s = smoothing as f64;
            let q: Vec<f64> = p.iter().map(|&p| (1.0 - s) * p as f64 + s / classes as f64).collect();
            let lse = x.iter().map(|&x| (x as f64).exp()).sum::<f64>().ln();
            let total: f64 = q.iter().sum();
            out[0].push(x.iter().zip(&q).map(|(&x, q)| q * (lse - x as f64)).sum());
            out[1].push(lse);
            out[2].extend(x.iter().zip(&q).map(|(&x, q)| dloss as f64 * ((x as f64 - lse).exp() * total - q)));
        }
        out
    }

    fn run(cpu: &Cpu, smoothing: f32, logits: &[f32], labels: Labels, dloss: &[f32]) -> Vec<Vec<f32>> {
        let (mut loss, mut lse, mut dlogits) = (nans(dloss.len()), nans(dloss.len()), nans(logits.len()));
        cross_entropy(cpu, smoothing, logits, labels, &mut loss, &mut lse).unwrap();
        cross_entropy_grad(cpu, smoothing, Some(logits), labels, (&lse, dloss), &mut dlogits).unwrap();
        let mut over = logits.to_vec();
        cross_entropy_grad(cpu, smoothing, None, labels, (&lse, dloss), &mut over).unwrap();
        assert_eq!(over, dlogits, "in place");
        vec![loss, lse, dlogits]
    }

    #[test]
    fn classes_and_distributions() {
        for (rows, classes) in [(1, 1), (1, 2), (7, 10), (300, 17), (5, 33), (3, 1000), (2, 5003)] {
            let mut logits = random(rows * classes, 1);
            logits.iter_mut().for_each(|v| *v *= 8.0);
            let (labels, dloss) = (random_ids(rows, classes, 2), random(rows, 3));
            let mut hot = vec![0.0; logits.len()];
            labels.iter().enumerate().for_each(|(row, &l)| hot[row * classes + l as usize] = 1.0);
            let soft: Vec<f32> = random(logits.len(), 4).iter().map(|v| v.abs() / classes as f32).collect();
            for smoothing in [0.0, 0.1, 1.0] {
                let name = format!("cross entropy {rows} x {classes}, smoothing {smoothing}");
                check(&name, 3e-6, &naive(smoothing, &logits, &hot, &dloss), |cpu| {
                    run(cpu, smoothing, &logits, Labels::Classes(&labels), &dloss)
                });
                check(&name, 5e-6, &naive(smoothing, &logits, &soft, &dloss), |cpu| {
                    run(cpu, smoothing, &logits, Labels::Distributions(&soft), &dloss)
                });
            }
        }
    }

    #[test]
    fn large_logits() {
        let logits = [1e4, -1e4, 0.0];
        check("large", 0.0, &[vec![2e4], vec![1e4], vec![1.0, -1.0, 0.0]], |cpu| {
            run(cpu, 0.0, &logits, Labels::Classes(&[1]), &[1.0])
        });
    }

    #[test]
    fn a_label_out_of_range_is_an_error_and_nothing_is_written() {
        for (label, labels) in [(-1, [0, -1]), (3, [1, 3])] {
            let (mut loss, mut lse) = ([7.0; 2], [7.0; 2]);
            let labels = Labels::Classes(&labels);
            let result = cross_entropy(&cpu(Isa::best(), 2), 0.0, &[0.0; 6], labels, &mut loss, &mut lse);
            assert_eq!(result, Err(BadIndex { index: label, limit: 3, position: 1 }));
            assert_eq!((loss, lse), ([7.0; 2], [7.0; 2]));
        }
    }
}
