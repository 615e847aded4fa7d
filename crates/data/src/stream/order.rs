//! Streams that choose among recipes: shuffle, repeat, take and shard. (Skip is done when a stream is opened.)

use super::{Stream, open_stream};
use crate::cardinality::Cardinality;
use crate::context::ShuffleDraws;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::recipe::{NodeId, Recipe};

pub(super) struct Shuffle {
    /// None when it has ended.
    input: Option<Box<dyn Stream>>,
    size: usize,
    buffer: Vec<Recipe>,
    draws: ShuffleDraws,
}

impl Shuffle {
    pub(super) fn new(input: Box<dyn Stream>, size: usize, seed: u64, verb: u32, epoch: u64) -> Shuffle {
        Shuffle { input: Some(input), size, buffer: Vec::new(), draws: ShuffleDraws::new(seed, verb, epoch) }
    }
}

impl Stream for Shuffle {
    /// Fills the buffer, then draws: a place that was drawn from is filled by the last one, before the next draw
    /// another comes in at the end.
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        while let (true, Some(input)) = (self.buffer.len() < self.size, &mut self.input) {
            match input.next(pipeline)? {
                Some(recipe) => self.buffer.push(recipe),
                None => self.input = None,
            }
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let drawn = self.draws.below(self.buffer.len());
        Ok(Some(self.buffer.swap_remove(drawn)))
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        for skipped in 0..n {
            if self.next(pipeline)?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(n)
    }
}

pub(super) struct Repeat {
    node: NodeId,
    times: Option<u64>,
    /// Of one repetition.
    count: Cardinality,
    epoch: u64,
    /// The repetition under way, and whether it gave anything.
    round: u64,
    input: Option<Box<dyn Stream>>,
    gave: bool,
}

impl Repeat {
    pub(super) fn new(node: NodeId, times: Option<u64>, count: Cardinality, epoch: u64) -> Repeat {
        Repeat { node, times, count, epoch, round: 0, input: None, gave: false }
    }

    /// The epoch that a repetition is for what stands before it: another one for each, in every epoch of the whole.
    fn inner_epoch(&self) -> u64 {
        match self.times {
            Some(times) => self.epoch.wrapping_mul(times).wrapping_add(self.round),
            None => (self.epoch << 32).wrapping_add(self.round),
        }
    }

    fn begin_next(&mut self) {
        (self.input, self.gave, self.round) = (None, false, self.round + 1);
    }

    fn ended(&self) -> bool {
        self.times.is_some_and(|times| self.round >= times)
    }

    fn input(&mut self, pipeline: &Pipeline) -> Result<&mut Box<dyn Stream>> {
        let input = match self.input.take() {
            Some(input) => input,
            None => open_stream(pipeline, self.node, self.inner_epoch())?,
        };
        Ok(self.input.insert(input))
    }
}

impl Stream for Repeat {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        while !self.ended() {
            if let Some(recipe) = self.input(pipeline)?.next(pipeline)? {
                self.gave = true;
                return Ok(Some(recipe));
            }
            // What gave nothing once is not asked for ever.
            if !self.gave {
                return Ok(None);
            }
            self.begin_next();
        }
        Ok(None)
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let mut skipped = 0;
        // Whole repetitions of a known length are passed over without a look.
        if let (Cardinality::Exact(len @ 1..), None) = (self.count, &self.input) {
            let rounds = (n / len).min(self.times.map_or(u64::MAX, |times| times - self.round));
            (skipped, self.round) = (rounds * len, self.round + rounds);
        }
        while skipped < n && !self.ended() {
            let got = self.input(pipeline)?.skip(pipeline, n - skipped)?;
            (skipped, self.gave) = (skipped + got, self.gave || got > 0);
            if skipped < n {
                if !self.gave {
                    break;
                }
                self.begin_next();
            }
        }
        Ok(skipped)
    }
}

pub(super) struct Take {
    pub left: u64,
    pub input: Box<dyn Stream>,
}

impl Stream for Take {
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        if self.left == 0 {
            return Ok(None);
        }
        let recipe = self.input.next(pipeline)?;
        self.left -= recipe.is_some() as u64;
        Ok(recipe)
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        let skipped = self.input.skip(pipeline, n.min(self.left))?;
        self.left -= skipped;
        Ok(skipped)
    }
}

pub(super) struct Shard {
    count: u64,
    /// Of others, before the next of its own.
    before: u64,
    input: Box<dyn Stream>,
}

impl Shard {
    pub(super) fn new(count: u64, index: u64, input: Box<dyn Stream>) -> Shard {
        Shard { count, before: index, input }
    }
}

impl Stream for Shard {
    /// One by one, so that nothing is lost where a generator finds no room.
    fn next(&mut self, pipeline: &Pipeline) -> Result<Option<Recipe>> {
        while self.before > 0 {
            if self.input.next(pipeline)?.is_none() {
                return Ok(None);
            }
            self.before -= 1;
        }
        let own = self.input.next(pipeline)?;
        self.before = self.count - 1;
        Ok(own)
    }

    fn skip(&mut self, pipeline: &Pipeline, n: u64) -> Result<u64> {
        if n == 0 {
            return Ok(0);
        }
        let others = (n - 1).saturating_mul(self.count).saturating_add(self.before);
        let skipped = self.input.skip(pipeline, others.saturating_add(1))?;
        let own = skipped.saturating_sub(self.before).div_ceil(self.count);
        self.before = self.count - 1;
        Ok(own)
    }
}
