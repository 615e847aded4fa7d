//! Recipes in order: for each verb, a stream that takes recipes from those before it. Streams move recipes about and
//! look at no data, so running one is cheap, and so is passing over elements; only a generator has to be run for that.

mod gather;
mod order;
mod start;

use crate::error::Result;
use crate::program::{Node, Program};
use crate::recipe::{Id, Recipe};

pub(crate) trait Stream: Send {
    /// The next recipe. After an error for want of room the same call may be made again: nothing is lost. After None it
    /// is not called again.
    fn next(&mut self, program: &Program) -> Result<Option<Recipe>>;

    /// Passes over `n` recipes and says how many there were: fewer at the end. After an error the stream is of no use.
    fn skip(&mut self, program: &Program, n: u64) -> Result<u64>;
}

/// The recipes of one epoch of a node.
pub(crate) fn open(program: &Program, id: Id, epoch: u64) -> Result<Box<dyn Stream>> {
    Ok(match program.node(id) {
        Node::Rows { source } => Box::new(start::Rows { rows: id, next: 0, len: source.len() as u64 }),
        Node::Generator { make } => Box::new(start::Generator::new(make)?),
        Node::Map { input, .. } => {
            Box::new(start::Map { map: id, epoch, element: 0, input: open(program, *input, epoch)? })
        }
        // A cache gives in every epoch what the first one gave.
        Node::Cache { input, .. } => Box::new(start::Cached { cache: id, index: 0, input: open(program, *input, 0)? }),
        Node::Batch { input, size, remainder } => {
            Box::new(gather::Batches::new(id, *size, *remainder, open(program, *input, epoch)?))
        }
        Node::Zip { inputs: [a, b] } => {
            Box::new(gather::Zip::new(open(program, *a, epoch)?, open(program, *b, epoch)?))
        }
        Node::Interleave { inputs, block } => {
            let inputs = inputs.iter().map(|i| open(program, *i, epoch)).collect::<Result<_>>()?;
            Box::new(gather::Interleave::new(inputs, *block))
        }
        Node::Shuffle { input, buffer, number } => {
            Box::new(order::Shuffle::new(open(program, *input, epoch)?, *buffer, program.seed, *number, epoch))
        }
        Node::Repeat { input, times, count } => Box::new(order::Repeat::new(*input, *times, *count, epoch)),
        Node::Take { input, count } => Box::new(order::Take { left: *count, input: open(program, *input, epoch)? }),
        Node::Skip { input, count } => {
            let mut input = open(program, *input, epoch)?;
            input.skip(program, *count)?;
            input
        }
    })
}
