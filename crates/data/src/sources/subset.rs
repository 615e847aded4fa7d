//! Parts of a source: a share of its rows held out, spread evenly over it, and the rest.

use std::sync::Arc;

use crate::error::{DataError, Result, counted};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::Example;

/// Some rows of another source, in its order; see [`hold_out`].
pub struct Subset {
    source: Arc<dyn Source>,
    share: f64,
    held_out: bool,
}

/// Splits a source into the rows that are kept, for training, and a share that is held out, for evaluation. The split is
/// always the same and evenly spread, so that a source sorted by class gives up as much of each; nothing is random.
///
/// # Errors
/// [`DataError::Pipeline`] where one of the two would have no rows.
///
/// ```
#[doc = include_str!("../doc/files.txt")]
/// let folder = TempDir::new("hold-out");
/// let path = folder.write("t.csv", "x,y\n1,0\n2,0\n3,0\n4,1\n5,1\n6,1\n");
/// let csv = Csv::open(path, CsvLayout::default(), &pool)?;
/// let (train, test) = hold_out(std::sync::Arc::new(csv), 0.33)?;
/// assert_eq!((train.len(), test.len()), (4, 2));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "train_test_split")]
pub fn hold_out(source: Arc<dyn Source>, share: f64) -> Result<(Subset, Subset)> {
    let parts = [false, true].map(|held_out| Subset { source: Arc::clone(&source), share, held_out });
    if !(share > 0.0 && share < 1.0) || parts.iter().any(Source::is_empty) {
        // A share that was said in fewer digits is told in them.
        let (rows, share) = (counted(source.len(), "row"), share as f32);
        let problem = format!("a share of {share} cannot be held out of {rows}; give more rows or another share");
        return Err(DataError::Pipeline(problem));
    }
    let [kept, held] = parts;
    Ok((kept, held))
}

impl Subset {
    /// How many of the first rows are held out.
    fn held_before(&self, rows: usize) -> usize {
        (rows as f64 * self.share + 0.5).floor() as usize
    }

    fn before(&self, rows: usize) -> usize {
        let held = self.held_before(rows);
        if self.held_out { held } else { rows - held }
    }

    /// The row of the source that is row `index` here: the first one up to which there are more than `index`.
    fn row(&self, index: usize) -> usize {
        let (mut low, mut high) = (index, self.source.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.before(middle + 1) > index {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

impl Source for Subset {
    fn len(&self) -> usize {
        self.before(self.source.len())
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        self.source.read_row(self.row(index), pool)
    }

    fn location(&self, index: usize) -> String {
        self.source.location(self.row(index))
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        self.source.check_classes(classes, pool)
    }

    fn fingerprint(&self) -> u64 {
        let part = self.share.to_bits() ^ u64::from(self.held_out);
        self.source.fingerprint().rotate_left(1) ^ part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(usize);

    impl Source for Count {
        fn len(&self) -> usize {
            self.0
        }

        fn read_row(&self, index: usize, _: &BytePool) -> Result<Example> {
            Err(DataError::bad(index, "has no fields"))
        }
    }

    #[test]
    fn the_parts_are_the_whole_in_order_and_evenly_spread() {
        for rows in [2, 3, 7, 10, 100, 1797] {
            for share in [0.1, 0.2, 0.3, 0.5, 0.75, 1.0 / 3.0] {
                let Ok((kept, held)) = hold_out(Arc::new(Count(rows)), share) else {
                    assert!((rows as f64 * share) < 0.5 || rows as f64 * (1.0 - share) < 0.5 + 1e-9, "{rows} {share}");
                    continue;
                };
                let of = |part: &Subset| -> Vec<usize> { (0..part.len()).map(|i| part.row(i)).collect() };
                let (kept_rows, held_rows) = (of(&kept), of(&held));
                assert!(kept_rows.is_sorted() && held_rows.is_sorted());
                let mut all = [kept_rows, held_rows.clone()].concat();
                all.sort_unstable();
                assert_eq!(all, (0..rows).collect::<Vec<_>>(), "{rows} {share}");
                assert!((held_rows.len() as f64 - rows as f64 * share).abs() <= 0.5);
                let gap = held_rows.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
                assert!(gap as f64 <= (1.0 / share).ceil(), "{rows} {share}: {gap}");
                assert_ne!(kept.fingerprint(), held.fingerprint());
            }
        }
        for share in [0.0, 1.0, -0.1, f64::NAN, 0.001] {
            assert!(hold_out(Arc::new(Count(10)), share).is_err(), "{share}");
        }
    }
}
