//! From a recipe to an element: reads, maps, collates, with everything drawn from a pool. It keeps nothing: what finds no
//! room returns, and is called again.

use crate::collate::{CollateError, Collator, ElementSpec, Gaps, check_collatable, spec_mismatch};
use crate::context::{Context, MapCall};
use crate::error::{BadSample, DataError, Result};
use crate::memory::BytePool;
use crate::panics::catch_panic;
use crate::pipeline::{Node, Pipeline};
use crate::recipe::{BatchRecipe, CacheRecipe, MapRecipe, Recipe};
use crate::tensor::Example;

/// What becomes of a bad sample: one that a source or a map function refuses with [`DataError::Bad`], such as a damaged
/// image or a cell of a table that is no number.
///
/// ```
#[doc = include_str!("doc/dataset.txt")]
/// let fussy = numbers(0..4)?.map(|example, context| {
///     if example.get("x")?.f32s() == [2.0] {
///         return Err(DataError::bad(context.location(), "it is two"));
///     }
///     Ok(example)
/// });
/// let fussy = fussy.batch(4, Remainder::Keep);
/// assert_eq!(epoch(&fussy).unwrap_err().to_string(), "row 2: it is two; or leave bad samples out: OnBad::Skip");
///
/// let options = LoadOptions { bad: OnBad::Skip, ..LoadOptions::new(BytePool::new(1 << 16)) };
/// let mut loader = Loader::new(&fussy, options)?;
/// let batch = loader.next()?.expect("three are good");
/// assert_eq!(batch.get("x")?.f32s(), [0.0, 1.0, 3.0]);
/// assert_eq!((loader.skipped().count, loader.skipped().first[0].location.as_str()), (1, "row 2"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBad {
    /// It is an error, when its turn comes.
    #[default]
    Fail,
    /// It is left out, counted and listed: see [`Loader::skipped`](crate::Loader::skipped).
    Skip,
}

/// What follows recipes, and what it needs for that.
pub(crate) struct Producer<'a> {
    pub pipeline: &'a Pipeline,
    /// Where elements are drawn from.
    pub pool: &'a BytePool,
    pub on_bad: OnBad,
    /// What was left out of batches on the way.
    pub skipped: Vec<BadSample>,
    /// Batches that were collated before, in the order in which the recipe meets them.
    pub finished_batches: std::vec::IntoIter<Example>,
}

impl Producer<'_> {
    pub(crate) fn produce(&mut self, recipe: &Recipe) -> Result<Example> {
        match recipe {
            Recipe::Row { rows, index } => {
                let Node::Rows { source } = self.pipeline.node(*rows) else { unreachable!("a row comes from rows") };
                let read =
                    catch_panic(|| source.location(*index as usize), || source.read_row(*index as usize, self.pool));
                read.map_err(bad_if_unreadable)
            }
            Recipe::Generated(generated) => match &generated.item {
                Ok(tensors) => tensors.to_example(self.pool),
                Err(e) => Err(e.duplicate()),
            },
            Recipe::Map(map) => self.produce_map(map),
            Recipe::Batch(batch) => match self.finished_batches.next() {
                Some(batch) => Ok(batch),
                None => self.produce_batch(batch),
            },
            Recipe::Zip(both) => self.produce_zip(both),
            Recipe::Cached(cached) => self.produce_cached(cached),
        }
    }

    fn produce_map(&mut self, map: &MapRecipe) -> Result<Example> {
        let input = self.produce(&map.input)?;
        let Node::Map { f, number, drew_random, .. } = self.pipeline.node(map.map) else {
            unreachable!("a map made it")
        };
        let location = || self.pipeline.location(&map.input);
        let call = MapCall {
            seed: self.pipeline.seed,
            verb: *number,
            epoch: map.epoch,
            element: map.element,
            location: &location,
            drew_random,
        };
        let context = Context::for_map(self.pool, call);
        catch_panic(location, || f(input, &context))
    }

    /// One sample after the other, so that the first thing wrong is the first in the order.
    fn produce_batch(&mut self, batch: &BatchRecipe) -> Result<Example> {
        let mut collator = Collator::new(batch.items.len());
        let mut first: Option<ElementSpec> = None;
        let mut bad_rows = Vec::new();
        for (row, item) in batch.items.iter().enumerate() {
            let sample = match self.produce(item) {
                Err(DataError::Bad(bad)) if self.on_bad == OnBad::Skip => {
                    self.skipped.push(bad.clone());
                    bad_rows.push((row, bad));
                    continue;
                }
                sample => sample?,
            };
            let location = || self.pipeline.location(item);
            check_collatable(location, &sample)?;
            match (collator.insert(row, &sample, self.pool), &first) {
                (Err(CollateError::NoRoom(e)), _) => return Err(e.into()),
                (Err(CollateError::Mismatch), Some(first)) => {
                    return Err(spec_mismatch(first, &ElementSpec::new(location(), &sample)));
                }
                (Err(CollateError::Mismatch), None) => unreachable!("the first sample is like itself"),
                (Ok(()), Some(_)) => {}
                (Ok(()), None) => first = Some(ElementSpec::new(location(), &sample)),
            }
        }
        let gaps = self.pipeline.gaps(batch);
        collator.finish(gaps).map_err(|row| no_good_sample(&bad_rows, row, gaps))
    }

    fn produce_zip(&mut self, [a, b]: &[Recipe; 2]) -> Result<Example> {
        let mut left = self.produce(a)?;
        let right = self.produce(b)?;
        for (name, tensor) in right.fields {
            if left.fields.iter().any(|(n, _)| *n == name) {
                let problem = format!("zip: both sides have a field \"{name}\"; rename one in a map before");
                return Err(DataError::Pipeline(problem));
            }
            left.fields.push((name, tensor));
        }
        Ok(left)
    }

    fn produce_cached(&mut self, cached: &CacheRecipe) -> Result<Example> {
        let Node::Cache { store, .. } = self.pipeline.node(cached.cache) else { unreachable!("a cache made it") };
        if cached.missing {
            let made = self.produce(&cached.input);
            store.put(cached.index, &made, self.pipeline);
            return made;
        }
        if let Some(example) = store.get(cached.index, self.pool)? {
            return Ok(example);
        }
        // Nobody collated the batches of what seemed to be there: those that are finished belong to others.
        let finished_batches = std::mem::take(&mut self.finished_batches);
        let made = self.produce(&cached.input);
        self.finished_batches = finished_batches;
        store.put(cached.index, &made, self.pipeline);
        made
    }
}

/// A batch without a good sample is bad as its first one is, under the same name: so it is left out like a sample, and
/// each of its samples is counted once. A lane is not left out: others have the rest of its batch.
fn no_good_sample(bad_rows: &[(usize, BadSample)], row: usize, gaps: Gaps) -> DataError {
    let found = bad_rows.iter().find(|(bad_row, _)| *bad_row == row);
    let Some((_, first)) = found else { unreachable!("a batch has samples, and what is missing is bad") };
    match gaps {
        Gaps::Close | Gaps::Fill => DataError::Bad(first.clone()),
        Gaps::FillLanes(rows) => DataError::BadLane { first: first.clone(), rows },
    }
}
/// A file that is gone, or may not be read, spoils the samples in it and no others.
fn bad_if_unreadable(error: DataError) -> DataError {
    match error {
        DataError::Io { path, source } => {
            let problem = format!("it cannot be read ({source}); bring it back");
            DataError::bad(path.display(), problem)
        }
        other => other,
    }
}
