//! How many elements each verb gives, from what it gets: exact, or known to be endless, or not known.

use crate::dataset::{Dataset, Remainder, Verb};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Exact(u64),
    /// Only running a generator tells.
    Unknown,
    Endless,
}

use Count::{Endless, Exact, Unknown};

impl Dataset {
    pub(crate) fn count(&self) -> Count {
        match &*self.verb {
            Verb::Rows(source) => Exact(source.len() as u64),
            Verb::Generator(_) => Unknown,
            Verb::Map { input, .. }
            | Verb::Shuffle { input, .. }
            | Verb::Cache { input, .. }
            | Verb::Prefetch { input, .. } => input.count(),
            Verb::Batch { input, size, remainder } => input.count().batches(*size as u64, *remainder),
            Verb::Repeat { input, times } => input.count().times(times.map(|n| n as u64)),
            Verb::Take { input, count } => input.count().min(Exact(*count as u64)),
            Verb::Skip { input, count } => input.count().map(|n| n.saturating_sub(*count as u64)),
            Verb::Zip { inputs: [a, b] } => a.count().min(b.count()),
            Verb::Interleave { inputs, .. } => inputs.iter().map(Dataset::count).fold(Exact(0), Count::plus),
        }
    }
}

impl Count {
    fn map(self, f: impl Fn(u64) -> u64) -> Count {
        match self {
            Exact(n) => Exact(f(n)),
            Unknown | Endless => self,
        }
    }

    fn batches(self, size: u64, remainder: Remainder) -> Count {
        self.map(|n| match remainder {
            Remainder::Keep => n.div_ceil(size.max(1)),
            Remainder::Drop => n / size.max(1),
        })
    }

    fn times(self, times: Option<u64>) -> Count {
        match (self, times) {
            (Exact(0), _) | (_, Some(0)) => Exact(0),
            (Exact(n), Some(times)) => Exact(n.saturating_mul(times)),
            (Exact(_), None) => Endless,
            (Unknown | Endless, _) => self,
        }
    }

    fn min(self, other: Count) -> Count {
        match (self, other) {
            (Exact(0), _) | (_, Exact(0)) => Exact(0),
            (Exact(a), Exact(b)) => Exact(a.min(b)),
            (Unknown, _) | (_, Unknown) => Unknown,
            (Endless, n) | (n, Endless) => n,
        }
    }

    fn plus(self, other: Count) -> Count {
        match (self, other) {
            (Endless, _) | (_, Endless) => Endless,
            (Unknown, _) | (_, Unknown) => Unknown,
            (Exact(a), Exact(b)) => Exact(a.saturating_add(b)),
        }
    }
}
