//! Where elements come from: rows that can be read in any order, by several threads at once.

use std::sync::Arc;

use crate::error::Result;
use crate::memory::BytePool;
use crate::tensor::Example;

/// Rows that can be read in any order, by several threads at once: what [`Dataset::from_source`](crate::Dataset::from_source)
/// takes. [`sources`](crate::sources) has those of files.
///
/// ```
/// use memfit_data::{BytePool, Dataset, Example, Result, Source, Tensor};
/// use memfit_ir::TensorType;
///
/// struct Squares;
///
/// impl Source for Squares {
///     fn len(&self) -> usize {
///         10
///     }
///
///     fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
///         let mut x = Tensor::zeros(TensorType::f32([]), pool)?;
///         x.f32s_mut().fill((index * index) as f32);
///         Ok(Example::default().with("x", x))
///     }
/// }
///
/// assert_eq!(Dataset::from_source(Squares).len(), Some(10));
/// ```
pub trait Source: Send + Sync {
    /// How many rows there are.
    fn len(&self) -> usize;

    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row `index`, with everything that it holds drawn from the pool, working memory included. It is the same at every
    /// call.
    ///
    /// # Errors
    /// [`DataError::NoRoom`](crate::DataError::NoRoom) where the pool has no room now: the row is read again later.
    /// [`DataError::Bad`](crate::DataError::Bad) and [`DataError::Io`](crate::DataError::Io) where this row cannot be
    /// used, which [`OnBad::Skip`](crate::OnBad::Skip) leaves out.
    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example>;

    /// Where a row comes from, as a person would say it in an error: a file, a line.
    fn location(&self, index: usize) -> String {
        format!("row {index}")
    }

    /// Checks that every label, field `y`, is one of so many classes, before anything else is read, where a quick pass
    /// over the labels alone can tell. Sources that would have to read their rows for it check nothing.
    ///
    /// # Errors
    /// [`DataError::Bad`](crate::DataError::Bad) for the first label that is not.
    fn check_classes(&self, _classes: usize, _pool: &BytePool) -> Result<()> {
        Ok(())
    }

    /// A number that changes when the rows do, as far as that can be told without reading them: from names, sizes and
    /// times of files. A cache on disk is made anew when it has changed.
    fn fingerprint(&self) -> u64 {
        self.len() as u64
    }
}

/// One that several have.
impl<S: Source + ?Sized> Source for Arc<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        (**self).read_row(index, pool)
    }

    fn location(&self, index: usize) -> String {
        (**self).location(index)
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        (**self).check_classes(classes, pool)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
