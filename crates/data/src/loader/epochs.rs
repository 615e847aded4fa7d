//! The recipes of a pipeline, epoch after epoch, from any position.

use crate::cardinality::Cardinality;
use crate::error::{DataError, Result};
use crate::panics::catch_panic;
use crate::pipeline::Pipeline;
use crate::recipe::Recipe;
use crate::stream::{Stream, open_stream};

/// A position in a pipeline: all that a checkpoint has to keep of it. Streams look at no data, so that going to a
/// position produces nothing; only a generator has to be run up to it.
///
/// ```
#[doc = include_str!("../doc/dataset.txt")]
/// let dataset = numbers(0..10)?.shuffle(10).batch(2, Remainder::Drop);
/// let options = LoadOptions { seed: 7, ..LoadOptions::new(BytePool::new(1 << 16)) };
/// let mut loader = Loader::new(&dataset, options.clone())?;
/// for _step in 0..3 {
///     loader.next()?;
/// }
/// let position = loader.position();
/// assert_eq!(position, Position { epoch: 0, element: 3 });
///
/// let mut resumed = Loader::new(&dataset, LoadOptions { start: position, ..options })?;
/// let (one, other) = (loader.next()?.expect("a batch"), resumed.next()?.expect("a batch"));
/// assert_eq!(one.get("x")?.f32s(), other.get("x")?.f32s());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The index of the element in its epoch, from 0. Behind a batch, elements are batches.
    pub element: u64,
}

impl Position {
    pub(crate) fn next(self) -> Position {
        Position { element: self.element + 1, ..self }
    }

    pub(crate) fn next_epoch(self) -> Position {
        Position { epoch: self.epoch + 1, element: 0 }
    }
}

pub(crate) struct Epochs {
    /// Of what comes next.
    pub position: Position,
    /// None where it has to be opened at the position.
    stream: Option<Box<dyn Stream>>,
}

impl Epochs {
    pub(crate) fn new(pipeline: &Pipeline, start: Position) -> Result<Epochs> {
        match pipeline.cardinality {
            Cardinality::Exact(n) if start.element > n => return Err(position_beyond_end(start, n)),
            Cardinality::Exact(_) | Cardinality::Unknown | Cardinality::Infinite => {}
        }
        Ok(Epochs { position: start, stream: None })
    }

    /// Begins anew at a position, and lets go of everything.
    pub(crate) fn rewind(&mut self, position: Position) {
        (self.position, self.stream) = (position, None);
    }

    /// The next recipe, or None at the end of an epoch. The position is then behind it. After an error for want of room
    /// the same call may be made again; after another one the epoch is over.
    pub(crate) fn next_recipe(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        let pulled = catch_panic(|| "the pipeline".to_string(), || self.next_in_epoch(pipeline));
        match &pulled {
            Ok(Some(_)) => self.position = self.position.next(),
            Err(DataError::NoRoom(_)) => {}
            Ok(None) | Err(_) => self.rewind(self.position.next_epoch()),
        }
        pulled
    }

    fn next_in_epoch(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open_epoch(pipeline)?,
        };
        self.stream.insert(stream).next(pipeline)
    }

    fn open_epoch(&self, pipeline: &Pipeline) -> Result<Box<dyn Stream>> {
        let mut stream = open_stream(pipeline, pipeline.root(), self.position.epoch)?;
        let skipped = stream.skip(pipeline, self.position.element)?;
        if skipped < self.position.element { Err(position_beyond_end(self.position, skipped)) } else { Ok(stream) }
    }
}

fn position_beyond_end(start: Position, len: u64) -> DataError {
    let Position { epoch, element } = start;
    DataError::Pipeline(format!(
        "cannot go on with element {} of epoch {}: the epoch has {len}; the position is from another dataset or \
         another pipeline",
        element + 1,
        epoch + 1
    ))
}
