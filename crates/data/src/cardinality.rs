//! How many elements each verb gives, from what it gets: exact, or known to be endless, or not known.

use crate::dataset::{Dataset, Remainder, Verb};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cardinality {
    Exact(u64),
    /// Only running a generator tells.
    Unknown,
    Infinite,
}

use Cardinality::{Exact, Infinite, Unknown};

impl Dataset {
    pub(crate) fn cardinality(&self) -> Cardinality {
        match &*self.verb {
            Verb::Rows(source) => Exact(source.len() as u64),
            Verb::Generator(_) => Unknown,
            Verb::Map { input, .. }
            | Verb::Shuffle { input, .. }
            | Verb::Cache { input, .. }
            | Verb::Prefetch { input, .. } => input.cardinality(),
            Verb::Batch { input, size, remainder, .. } => input.cardinality().batches(*size as u64, *remainder),
            Verb::Repeat { input, times } => input.cardinality().times(times.map(|n| n as u64)),
            Verb::Take { input, count } => input.cardinality().min(Exact(*count as u64)),
            Verb::Skip { input, count } => input.cardinality().map(|n| n.saturating_sub(*count as u64)),
            Verb::Shard { input, count, index } => {
                let (count, index) = ((*count).max(1) as u64, *index as u64);
                input.cardinality().map(|n| n.saturating_sub(index).div_ceil(count))
            }
            Verb::Zip { inputs: [a, b] } => a.cardinality().min(b.cardinality()),
            Verb::Interleave { inputs, .. } => {
                inputs.iter().map(Dataset::cardinality).fold(Exact(0), Cardinality::plus)
            }
        }
    }
}

impl Cardinality {
    fn map(self, f: impl Fn(u64) -> u64) -> Cardinality {
        match self {
            Exact(n) => Exact(f(n)),
            Unknown | Infinite => self,
        }
    }

    fn batches(self, size: u64, remainder: Remainder) -> Cardinality {
        self.map(|n| match remainder {
            Remainder::Keep => n.div_ceil(size.max(1)),
            Remainder::Drop => n / size.max(1),
        })
    }

    fn times(self, times: Option<u64>) -> Cardinality {
        match (self, times) {
            (Exact(0), _) | (_, Some(0)) => Exact(0),
            (Exact(n), Some(times)) => Exact(n.saturating_mul(times)),
            (Exact(_), None) => Infinite,
            (Unknown | Infinite, _) => self,
        }
    }

    fn min(self, other: Cardinality) -> Cardinality {
        match (self, other) {
            (Exact(0), _) | (_, Exact(0)) => Exact(0),
            (Exact(a), Exact(b)) => Exact(a.min(b)),
            (Unknown, _) | (_, Unknown) => Unknown,
            (Infinite, n) | (n, Infinite) => n,
        }
    }

    fn plus(self, other: Cardinality) -> Cardinality {
        match (self, other) {
            (Infinite, _) | (_, Infinite) => Infinite,
            (Unknown, _) | (_, Unknown) => Unknown,
            (Exact(a), Exact(b)) => Exact(a.saturating_add(b)),
        }
    }
}
