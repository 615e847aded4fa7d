//! How many rows are of each class, counted while labels are looked at for another reason. Counts are drawn from the
//! pool; where there is no room for them, or too many classes, they are left out and nothing else suffers.

use crate::memory::{BytePool, Lease};

/// No more classes are counted one by one.
const MOST: usize = 1 << 16;

/// How many rows are of each class.
#[derive(Debug)]
pub struct ClassCounts {
    classes: usize,
    rows: Vec<u64>,
    is_counted: bool,
    _lease: Option<Lease>,
}

impl ClassCounts {
    pub(super) fn new(pool: &BytePool) -> ClassCounts {
        let lease = pool.reserve(0).ok();
        ClassCounts { classes: 0, rows: Vec::new(), is_counted: lease.is_some(), _lease: lease }
    }

    /// Of so many rows for each class.
    pub(super) fn of(rows: impl Iterator<Item = u64>, pool: &BytePool) -> ClassCounts {
        let mut counts = ClassCounts::new(pool);
        rows.enumerate().for_each(|(class, rows)| counts.add(class, rows));
        counts
    }

    /// Counts rows of a class.
    pub(super) fn add(&mut self, class: usize, rows: u64) {
        self.classes = self.classes.max(class.saturating_add(1));
        if self.is_counted && class >= self.rows.len() && !self.grow(class) {
            (self.is_counted, self.rows, self._lease) = (false, Vec::new(), None);
        }
        if let Some(count) = self.rows.get_mut(class) {
            *count += rows;
        }
    }

    fn grow(&mut self, class: usize) -> bool {
        let wanted = (class + 1).next_power_of_two().max(16);
        let more = (wanted - self.rows.len()) * size_of::<u64>();
        let has_room = class < MOST && self._lease.as_mut().is_some_and(|lease| lease.grow(more as u64).is_ok());
        if has_room {
            self.rows.reserve_exact(wanted - self.rows.len());
            self.rows.resize(wanted, 0);
        }
        has_room
    }

    /// One more than the largest class.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Rows by class; none where they are too many to be counted one by one.
    pub fn rows(&self) -> Option<&[u64]> {
        self.is_counted.then(|| &self.rows[..self.classes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_class_or_not_at_all() {
        let pool = BytePool::new(4096);
        let mut counts = ClassCounts::new(&pool);
        [3, 0, 3, 17].iter().for_each(|class| counts.add(*class, 1));
        let rows = counts.rows().expect("there is room");
        assert_eq!((counts.classes(), rows.len(), rows[3], rows[0], rows[17], rows[5]), (18, 18, 2, 1, 1, 0));
        counts.add(100_000, 1);
        assert_eq!((counts.classes(), counts.rows(), pool.used()), (100_001, None, 0));
    }
}
