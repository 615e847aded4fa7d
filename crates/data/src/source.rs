//! Where elements come from: rows that can be read in any order, by several threads at once.

use crate::error::Result;
use crate::memory::BytePool;
use crate::tensor::Example;

pub trait Source: Send + Sync {
    /// Rows.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row `index`, with everything that it holds drawn from the pool, working memory included. It is the same at every
    /// call.
    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example>;

    /// What a person calls the row in an error: a file, a line.
    fn location(&self, index: usize) -> String {
        format!("row {index}")
    }

    /// That every label, field `y`, is one of so many classes: told before anything is read, where a quick pass over
    /// the labels alone can find it. Sources that would have to read their rows for it say nothing.
    fn check_classes(&self, _classes: usize, _pool: &BytePool) -> Result<()> {
        Ok(())
    }

    /// A number that changes when the rows do, as far as that can be told without reading them: from names, sizes and
    /// times of files. A cache on disk is made anew when it has changed.
    fn fingerprint(&self) -> u64 {
        self.len() as u64
    }
}
