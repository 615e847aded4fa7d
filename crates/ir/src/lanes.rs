//! How a sum over a batch is cut, so that one replica or many give the same bits.
//!
//! A batch is leaves of one size, in order, and the leaves are dealt to lanes, so many to each. A lane adds up its leaves one
//! after the other; lanes are joined by a tree that depends on their number alone: neighbours are added pair by pair, then
//! pairs of pairs, and what finds no partner waits for the next level. A replica has some lanes that stand side by side. It
//! adds up what of the tree lies inside of them, and exchanges what is left.

use std::ops::Range;

/// One of the replicas that train a model together: which lanes of a batch are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    /// That the sum over a batch is cut into.
    pub lanes: usize,
    /// At most as many as there are lanes.
    pub count: usize,
    /// Which of them, counted from 0.
    pub rank: usize,
}

/// What a replica does with the sum of a lane. It keeps sums one upon the other, and numbers them from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fold {
    /// Keeps it as the sum of this number, while the next lane is added up.
    Keep(u8),
    /// Adds it to the sum that is kept under this number, which stood before it.
    Add(u8),
}

impl Default for Replica {
    fn default() -> Replica {
        Replica::ALONE
    }
}

impl Replica {
    /// More lanes are for nobody: the tree over them is walked wherever a plan is made or read.
    pub const MOST_LANES: usize = 1 << Replica::MOST_KEPT;
    /// The most sums that are kept beside that of a lane.
    pub const MOST_KEPT: usize = 14;

    /// The only one, which adds up everything in order.
    pub const ALONE: Replica = Replica { lanes: 1, count: 1, rank: 0 };

    /// Whether there can be such a one.
    pub fn exists(self) -> bool {
        (1..=Replica::MOST_LANES).contains(&self.lanes)
            && (1..=self.lanes).contains(&self.count)
            && self.rank < self.count
    }

    /// Whether there are others to exchange something with.
    pub fn has_others(self) -> bool {
        self.count > 1
    }

    /// Its lanes. All of them together are those of the batch, and no replica has two more than another.
    pub fn own_lanes(self) -> Range<usize> {
        let Replica { lanes, count, rank } = self;
        rank * lanes / count..(rank + 1) * lanes / count
    }

    /// Another one of the same batch.
    pub fn with_rank(self, rank: usize) -> Replica {
        Replica { rank, ..self }
    }

    /// The parts of the tree that lie inside of its lanes, in order, each as large as can be.
    pub fn subtrees(self) -> Vec<Range<usize>> {
        self.each_subtree().collect()
    }

    /// The same without a list: a few steps for each, however many lanes there are.
    fn each_subtree(self) -> impl Iterator<Item = Range<usize>> {
        let own = self.own_lanes();
        let mut start = own.start;
        std::iter::from_fn(move || {
            let end = |size: usize| (start + size).min(self.lanes);
            let fits = |size: &usize| start.is_multiple_of(*size) && end(*size) <= own.end;
            let sizes = (0..=Replica::MOST_KEPT).map(|level| 1 << level);
            let subtree = start..end(sizes.take_while(fits).last().filter(|_| start < own.end)?);
            start = subtree.end;
            Some(subtree)
        })
    }

    /// How many subtrees each replica has; one where all have as much of the tree.
    fn subtree_counts(self) -> impl Iterator<Item = usize> {
        let Replica { lanes, count, .. } = self;
        let is_even = lanes.is_multiple_of(count) && (lanes / count).is_power_of_two();
        (0..count).map(move |rank| if is_even { 1 } else { self.with_rank(rank).each_subtree().count() })
    }

    /// The most subtrees that one of the replicas has.
    pub fn most_subtrees(self) -> usize {
        self.subtree_counts().max().unwrap_or(1)
    }

    /// How many subtrees all replicas have together.
    pub fn subtrees_in_all(self) -> usize {
        self.subtree_counts().sum()
    }

    /// For each of its lanes, how many of the sums that were kept last are added to it, the youngest first, so that all of
    /// the tree that is there is added up.
    fn folds(self) -> Vec<(usize, usize)> {
        let (own, mut kept) = (self.own_lanes(), Vec::<Range<usize>>::new());
        let mut found = Vec::with_capacity(own.len());
        for lane in own {
            let (mut subtree, mut folds) = (lane..lane + 1, 0);
            while let Some(left) = kept.pop_if(|left| is_pair(left, &subtree, self.lanes)) {
                (subtree, folds) = (left.start..subtree.end, folds + 1);
            }
            kept.push(subtree);
            found.push((lane, folds));
        }
        found
    }

    /// For each of its lanes, what is done when its leaves are added up. What is kept in the end, and the sum of the last lane
    /// after that, are the sums of its subtrees.
    pub fn schedule(self) -> Vec<Vec<Fold>> {
        let lanes = self.own_lanes();
        let mut kept: u8 = 0;
        let of_lane = |(lane, folds): (usize, usize)| {
            let mut done = Vec::with_capacity(folds + 1);
            for _ in 0..folds {
                kept -= 1;
                done.push(Fold::Add(kept));
            }
            if lane + 1 < lanes.end {
                done.push(Fold::Keep(kept));
                kept += 1;
            }
            done
        };
        self.folds().into_iter().map(of_lane).collect()
    }

    /// The most sums that are kept at a time while another lane is added up.
    pub fn most_kept(self) -> usize {
        let (mut kept, mut most) = (0, 0);
        for (_, folds) in self.folds() {
            most = most.max(kept);
            kept = kept + 1 - folds;
        }
        most
    }

    /// The subtrees of all replicas, in order, each with its rank and which of that one's it is.
    pub fn all_subtrees(self) -> Vec<(Range<usize>, usize, usize)> {
        let of = |rank| self.with_rank(rank).subtrees().into_iter().enumerate().map(move |(i, s)| (s, rank, i));
        (0..self.count).flat_map(of).collect()
    }

    /// How the sums of all subtrees become one: each pair names two of them, by their place in [`Replica::all_subtrees`], and
    /// the first takes the sum of both.
    pub fn joins(self) -> Vec<(usize, usize)> {
        let all = self.all_subtrees();
        let mut kept: Vec<(Range<usize>, usize)> = Vec::new();
        let mut found = Vec::new();
        for (i, (subtree, ..)) in all.into_iter().enumerate() {
            let mut subtree = (subtree, i);
            while let Some(left) = kept.pop_if(|left| is_pair(&left.0, &subtree.0, self.lanes)) {
                found.push((left.1, subtree.1));
                subtree = (left.0.start..subtree.0.end, left.1);
            }
            kept.push(subtree);
        }
        found
    }
}

/// Whether two neighbouring subtrees of a tree over so many lanes are added to each other: the left one is whole, and the right
/// one is as large, or all that there is.
fn is_pair(left: &Range<usize>, right: &Range<usize>, lanes: usize) -> bool {
    let size = left.len();
    let whole = size.is_power_of_two() && left.start.is_multiple_of(2 * size);
    whole && left.end == right.start && (right.len() == size || (right.len() < size && right.end == lanes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree by its definition, as a text with brackets.
    fn tree(lanes: usize) -> String {
        let mut level: Vec<String> = (0..lanes).map(|lane| lane.to_string()).collect();
        while level.len() > 1 {
            let pair = |pair: &[String]| match pair {
                [left, right] => format!("({left}+{right})"),
                rest => rest.concat(),
            };
            level = level.chunks(2).map(pair).collect();
        }
        level.concat()
    }

    /// The sum as replicas make it: each folds its lanes, then what they have is joined.
    fn by_replicas(lanes: usize, count: usize) -> String {
        let replica = Replica { lanes, count, rank: 0 };
        let mut sums = Vec::new();
        for rank in 0..count {
            let own = replica.with_rank(rank);
            let mut kept: Vec<String> = Vec::new();
            let mut sum = String::new();
            for (lane, folds) in own.own_lanes().zip(own.schedule()) {
                sum = lane.to_string();
                for fold in folds {
                    match fold {
                        Fold::Add(number) => {
                            assert_eq!(kept.len(), number as usize + 1);
                            sum = format!("({}+{sum})", kept.pop().expect("a sum that was kept"));
                        }
                        Fold::Keep(number) => {
                            assert_eq!(kept.len(), number as usize);
                            assert!(kept.len() < own.most_kept());
                            kept.push(std::mem::take(&mut sum));
                        }
                    }
                }
            }
            kept.push(sum);
            assert_eq!(kept.len(), own.subtrees().len());
            sums.extend(kept);
        }
        for (left, right) in replica.joins() {
            sums[left] = format!("({}+{})", sums[left], sums[right]);
        }
        sums.swap_remove(0)
    }

    #[test]
    fn every_number_of_replicas_adds_up_in_the_same_tree() {
        assert_eq!(tree(7), "(((0+1)+(2+3))+((4+5)+6))");
        for lanes in 1..=40 {
            for count in 1..=lanes {
                assert_eq!(by_replicas(lanes, count), tree(lanes), "{count} replicas of {lanes} lanes");
            }
        }
    }

    #[test]
    fn subtrees_are_what_is_left_when_a_replica_has_added_up_its_lanes() {
        for lanes in 1..=70 {
            for count in 1..=lanes {
                let replica = Replica { lanes, count, rank: 0 };
                let mut counts = Vec::new();
                for rank in 0..count {
                    let mut kept: Vec<Range<usize>> = Vec::new();
                    for (lane, folds) in replica.with_rank(rank).folds() {
                        let start = kept.get(kept.len() - folds).map_or(lane, |subtree| subtree.start);
                        kept.truncate(kept.len() - folds);
                        kept.push(start..lane + 1);
                    }
                    counts.push(kept.len());
                    assert_eq!(replica.with_rank(rank).subtrees(), kept, "{rank} of {count} with {lanes} lanes");
                }
                assert_eq!(replica.most_subtrees(), *counts.iter().max().unwrap());
                assert_eq!(replica.subtrees_in_all(), counts.iter().sum::<usize>());
            }
        }
    }

    #[test]
    fn lanes_are_dealt_evenly_and_in_order() {
        for lanes in 1..=40 {
            for count in 1..=lanes {
                let own = |rank| Replica { lanes, count, rank }.own_lanes();
                let dealt: Vec<usize> = (0..count).flat_map(own).collect();
                assert_eq!(dealt, (0..lanes).collect::<Vec<_>>());
                assert!((0..count).all(|rank| [lanes / count, lanes.div_ceil(count)].contains(&own(rank).len())));
            }
        }
        let three = |rank| Replica { lanes: 4, count: 3, rank }.own_lanes();
        assert_eq!([three(0), three(1), three(2)], [0..1, 1..2, 2..4]);
    }

    #[test]
    fn few_sums_are_kept_at_a_time() {
        let kept = |lanes| Replica { lanes, ..Replica::ALONE }.most_kept();
        assert_eq!([1, 2, 3, 4, 8, 9, 16, 512].map(kept), [0, 1, 1, 2, 3, 3, 4, 9]);
    }
}
