//! From a recipe to an element: reads, maps, stacks, with everything drawn from a pool. It keeps nothing: what finds no
//! room returns, and is called again.

use crate::context::{At, Context};
use crate::error::{BadSample, DataError, Result};
use crate::guard::guarded;
use crate::memory::BytePool;
use crate::program::{Node, Program};
use crate::recipe::{Batch, Cached, Mapped, Recipe};
use crate::stack::{Like, Misfit, Stack, difference, like, stackable};
use crate::tensor::Example;

/// What becomes of a bad sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBad {
    /// It is an error, at its place.
    #[default]
    Fail,
    /// It is left out and listed.
    Skip,
}

pub(crate) struct Maker<'a> {
    pub program: &'a Program,
    /// Where elements are drawn from.
    pub pool: &'a BytePool,
    pub bad: OnBad,
    /// What was left out of batches on the way.
    pub skipped: Vec<BadSample>,
    /// Batches that were made before, in the order in which the recipe meets them.
    pub ready: std::vec::IntoIter<Example>,
}

impl Maker<'_> {
    pub(crate) fn make(&mut self, recipe: &Recipe) -> Result<Example> {
        match recipe {
            Recipe::Row { rows, index } => {
                let Node::Rows { source } = self.program.node(*rows) else { unreachable!("a row comes from rows") };
                let read = guarded(|| source.place(*index as usize), || source.read(*index as usize, self.pool));
                read.map_err(unreadable)
            }
            Recipe::Held(held) => match &held.item {
                Ok(tensors) => tensors.to_example(self.pool),
                Err(e) => Err(e.duplicate()),
            },
            Recipe::Map(map) => self.map(map),
            Recipe::Batch(batch) => match self.ready.next() {
                Some(ready) => Ok(ready),
                None => self.batch(batch),
            },
            Recipe::Zip(both) => self.zip(both),
            Recipe::Cached(cached) => self.cached(cached),
        }
    }

    fn map(&mut self, map: &Mapped) -> Result<Example> {
        let input = self.make(&map.input)?;
        let Node::Map { f, number, drew, .. } = self.program.node(map.map) else { unreachable!("a map made it") };
        let place = || self.program.place(&map.input);
        let at =
            At { seed: self.program.seed, verb: *number, epoch: map.epoch, element: map.element, place: &place, drew };
        let context = Context::of_verb(self.pool, at);
        guarded(place, || f(input, &context))
    }

    /// One sample after the other, so that the first thing wrong is the first in the order.
    fn batch(&mut self, batch: &Batch) -> Result<Example> {
        let mut stack = Stack::new(batch.items.len());
        let mut first: Option<Like> = None;
        let skipped = self.skipped.len();
        for (row, item) in batch.items.iter().enumerate() {
            let sample = match self.make(item) {
                Err(DataError::Bad(bad)) if self.bad == OnBad::Skip => {
                    self.skipped.push(bad);
                    continue;
                }
                sample => sample?,
            };
            let place = || self.program.place(item);
            stackable(place, &sample)?;
            match (stack.put(row, &sample, self.pool), &first) {
                (Err(Misfit::NoRoom(e)), _) => return Err(e.into()),
                (Err(Misfit::Differs), Some(first)) => return Err(difference(first, &place(), &sample)),
                (Err(Misfit::Differs), None) => unreachable!("the first sample is like itself"),
                (Ok(()), Some(_)) => {}
                (Ok(()), None) => first = Some(like(place(), &sample)),
            }
        }
        stack.finish(self.program.remainder(batch)).ok_or_else(|| none_good(self.skipped.get(skipped)))
    }

    fn zip(&mut self, [a, b]: &[Recipe; 2]) -> Result<Example> {
        let mut left = self.make(a)?;
        let right = self.make(b)?;
        for (name, tensor) in right.fields {
            if left.fields.iter().any(|(n, _)| *n == name) {
                let problem = format!("zip: both sides have a field \"{name}\"; rename one in a map before");
                return Err(DataError::Pipeline(problem));
            }
            left.fields.push((name, tensor));
        }
        Ok(left)
    }

    fn cached(&mut self, cached: &Cached) -> Result<Example> {
        let Node::Cache { store, .. } = self.program.node(cached.cache) else { unreachable!("a cache made it") };
        if cached.missing {
            let made = self.make(&cached.input);
            store.put(cached.index, &made, self.program);
            return made;
        }
        if let Some(example) = store.get(cached.index, self.pool)? {
            return Ok(example);
        }
        // Nobody made the batches of what seemed to be there: those that are ready belong to others.
        let ready = std::mem::take(&mut self.ready);
        let made = self.make(&cached.input);
        self.ready = ready;
        store.put(cached.index, &made, self.program);
        made
    }
}

/// A batch without a good sample is bad as its first one is, under the same name: so it is left out like a sample, and
/// each of its samples is counted once.
fn none_good(first: Option<&BadSample>) -> DataError {
    let Some(first) = first else { unreachable!("a batch has samples, and what is missing is bad") };
    DataError::Bad(first.clone())
}

/// A file that is gone, or may not be read, spoils the samples in it and no others.
fn unreadable(error: DataError) -> DataError {
    match error {
        DataError::Io { path, source } => {
            let problem = format!("it cannot be read ({source}); bring it back");
            DataError::bad(path.display(), problem)
        }
        other => other,
    }
}
