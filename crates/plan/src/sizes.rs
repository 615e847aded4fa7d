//! Which sizes of micro-batches are looked at.

use memfit_ir::Replica;
use memfit_transform::BatchNorm;

use crate::error::PlanError;

/// Whether a batch can be cut into micro-batches, as many for each lane.
pub fn check_cut(batch: usize, micro_batch: usize, replica: Replica) -> Result<(), PlanError> {
    let Replica { lanes, count, .. } = replica;
    // Before the micro-batch, which follows from the lanes where nobody asked for one.
    let lanes_fit = replica.exists() && batch.is_multiple_of(lanes);
    if lanes_fit && (batch == 0 || micro_batch == 0 || !batch.is_multiple_of(micro_batch)) {
        return Err(PlanError::MicroBatch { micro_batch, batch });
    }
    if !lanes_fit || !(batch / micro_batch).is_multiple_of(lanes) {
        return Err(PlanError::Lanes { lanes, replicas: count, batch, micro_batch });
    }
    Ok(())
}

/// Whether batch norms can take the statistics that are asked for: of a whole batch, only where it is there at once.
pub fn check_batch_norm(
    batch_norm: BatchNorm,
    batch: usize,
    micro_batch: usize,
    replica: Replica,
) -> Result<(), PlanError> {
    let Replica { lanes, count, .. } = replica;
    if batch_norm == BatchNorm::Synchronised && (lanes != count || micro_batch != batch / lanes) {
        return Err(PlanError::Synchronised { lanes, replicas: count, batch, micro_batch });
    }
    Ok(())
}

/// Most sizes, the whole batch included.
const MOST: usize = 8;

/// All divisors of a batch, largest first.
pub fn divisors(batch: usize) -> Vec<usize> {
    let small: Vec<usize> = (1..=batch.isqrt()).filter(|k| batch.is_multiple_of(*k)).collect();
    let mut found: Vec<usize> = small.iter().map(|k| batch / k).chain(small.iter().rev().copied()).collect();
    found.dedup();
    found
}

/// Sizes of micro-batches, largest first, from the batch to 1, whose bound is the lowest: without it a refusal could not
/// claim to speak for all sizes. Where there are many divisors, those are left out that lie closest between their
/// neighbours, so that the rest is spread evenly by ratio.
pub fn micro_batches(batch: usize) -> Vec<usize> {
    let mut sizes = divisors(batch);
    while sizes.len() > MOST {
        let ratio = |i: &usize| sizes[i - 1] as f64 / sizes[i + 1] as f64;
        let closest = (1..sizes.len() - 1).min_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        sizes.remove(closest.unwrap_or(1));
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_alike_for_every_lane_or_not_at_all() {
        let replica = |lanes, count, rank| Replica { lanes, count, rank };
        let cut = |batch, micro_batch, replica| check_cut(batch, micro_batch, replica).map_err(|e| e.to_string());
        assert_eq!(cut(12, 2, replica(3, 2, 1)), Ok(()));
        assert_eq!(cut(12, 12, Replica::ALONE), Ok(()));
        for (batch, micro_batch, replica, expected) in [
            (12, 5, replica(3, 2, 1), "a micro-batch of 5 does not divide"),
            (12, 4, replica(2, 2, 1), "2 replicas with 2 lanes cannot share a batch of 12 in micro-batches of 4"),
            (10, 3, replica(3, 3, 0), "3 replicas with 3 lanes cannot share a batch of 10"),
            (12, 2, replica(2, 3, 0), "as many lanes as replicas"),
            (12, 2, replica(2, 2, 2), "2 replicas with 2 lanes"),
            (12, 0, Replica::ALONE, "a micro-batch of 0"),
            (0, 1, Replica::ALONE, "the batch of 0"),
        ] {
            let problem = cut(batch, micro_batch, replica).expect_err("no such cut");
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn batch_norms_are_synchronised_where_all_of_a_batch_is_there_at_once() {
        let check = |micro_batch, lanes, count| {
            let replica = Replica { lanes, count, rank: 0 };
            check_batch_norm(BatchNorm::Synchronised, 12, micro_batch, replica).map_err(|e| e.to_string())
        };
        assert_eq!([check(12, 1, 1), check(4, 3, 3), check(1, 12, 12)], [Ok(()), Ok(()), Ok(())]);
        for (micro_batch, lanes, count) in [(6, 1, 1), (4, 3, 1), (2, 3, 3), (3, 4, 2)] {
            let problem = check(micro_batch, lanes, count).expect_err("it is not");
            assert!(problem.contains("cannot synchronise the batch norms of a batch of 12"), "{problem}");
            let replica = Replica { lanes, count, rank: 0 };
            assert!(check_batch_norm(BatchNorm::Leaf, 12, micro_batch, replica).is_ok());
        }
    }

    #[test]
    fn divisors_are_all_there_is() {
        for batch in 1..200usize {
            let all: Vec<usize> = (1..=batch).rev().filter(|n| batch.is_multiple_of(*n)).collect();
            assert_eq!(divisors(batch), all);
        }
    }

    #[test]
    fn sizes_are_spread_from_the_batch_to_one_sample() {
        assert_eq!(micro_batches(1), [1]);
        assert_eq!(micro_batches(13), [13, 1]);
        assert_eq!(micro_batches(12), [12, 6, 4, 3, 2, 1]);
        for batch in [48, 96, 240, 256, 1000, 1024, 5040, 16 * 1009] {
            let sizes = micro_batches(batch);
            assert_eq!((sizes[0], sizes[sizes.len() - 1], sizes.len()), (batch, 1, MOST), "{sizes:?}");
            assert!(sizes.is_sorted_by(|a, b| a > b) && sizes.iter().all(|n| batch.is_multiple_of(*n)), "{sizes:?}");
        }
        // No gap is wider than need be: 240 is 2.2 to the seventh.
        let widest = |batch| micro_batches(batch).windows(2).map(|w| w[0] as f64 / w[1] as f64).fold(0.0, f64::max);
        assert!(widest(240) <= 3.0, "{:?}", micro_batches(240));
        assert!(widest(1024) <= 4.0, "{:?}", micro_batches(1024));
    }
}
