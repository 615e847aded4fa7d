//! Recipes in order: for each verb, a stream that takes recipes from those before it. Streams move recipes about and
//! look at no data, so running one is cheap, and so is passing over elements; only a generator has to be run for that.

mod gather;
mod order;
mod start;

use crate::error::Result;
use crate::pipeline::{Node, Pipeline};
use crate::recipe::{NodeId, Recipe};

pub(crate) trait Stream: Send {
    /// The next recipe. After an error for want of room the same call may be made again: nothing is lost. After None it
    /// is not called again.
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>>;

    /// Passes over `n` recipes and says how many there were: fewer at the end. After an error the stream is of no use.
    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64>;
}

/// The recipes of one epoch of a node.
pub(crate) fn open_stream(pipeline: &Pipeline, id: NodeId, epoch: u64) -> Result<Box<dyn Stream>> {
    Ok(match pipeline.node(id) {
        Node::Rows { source } => Box::new(start::Rows { rows: id, next: 0, len: source.len() as u64 }),
        Node::Generator { make } => Box::new(start::Generator::new(make)?),
        Node::Map { input, .. } => {
            Box::new(start::Map { map: id, epoch, element: 0, input: open_stream(pipeline, *input, epoch)? })
        }
        // A cache gives in every epoch what the first one gave.
        Node::Cache { input, .. } => {
            Box::new(start::Cached { cache: id, index: 0, input: open_stream(pipeline, *input, 0)? })
        }
        Node::Batch { input, size, remainder, rows, .. } => {
            let input = open_stream(pipeline, *input, epoch)?;
            Box::new(gather::Batches::new(id, *size, *remainder, rows.clone(), input))
        }
        Node::Zip { inputs: [a, b] } => {
            Box::new(gather::Zip::new(open_stream(pipeline, *a, epoch)?, open_stream(pipeline, *b, epoch)?))
        }
        Node::Interleave { inputs, block } => {
            let inputs = inputs.iter().map(|i| open_stream(pipeline, *i, epoch)).collect::<Result<_>>()?;
            Box::new(gather::Interleave::new(inputs, *block))
        }
        Node::Shuffle { input, buffer, number } => {
            Box::new(order::Shuffle::new(open_stream(pipeline, *input, epoch)?, *buffer, pipeline.seed, *number, epoch))
        }
        Node::Repeat { input, times, count } => Box::new(order::Repeat::new(*input, *times, *count, epoch)),
        Node::Take { input, count } => {
            Box::new(order::Take { left: *count, input: open_stream(pipeline, *input, epoch)? })
        }
        Node::Shard { input, count, index } => {
            Box::new(order::Shard::new(*count, *index, open_stream(pipeline, *input, epoch)?))
        }
        Node::Skip { input, count } => {
            let mut input = open_stream(pipeline, *input, epoch)?;
            input.skip(pipeline, *count)?;
            input
        }
    })
}
