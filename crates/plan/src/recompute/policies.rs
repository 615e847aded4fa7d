//! From a choice for each block to the policy of each forward value.

use memfit_transform::Policy;

use super::forward::Forward;

/// What is done in a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How many blocks. Of more than one only what crosses out of the last is kept.
    pub blocks: usize,
    /// Values are recomputed where that takes at most so many seconds for each byte that is saved.
    pub price: f64,
    pub recompute: Recompute,
}

/// How values are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recompute {
    /// Once, and then held until their last reader.
    Once,
    /// Light ones anew for every reader.
    PerUse,
    /// A run of blocks is first run through for what crosses between its blocks, then each block again for its own
    /// backward pass: twice the time, but no more than one block is there at once.
    Nested,
}

impl Choice {
    pub const KEEP: Choice = Choice { blocks: 1, price: -1.0, recompute: Recompute::Once };
}

/// The policy of each value, for choices that cover all blocks one after the other.
pub fn policies(forward: &Forward, choices: &[Choice]) -> Vec<Policy> {
    let mut maker =
        Maker { forward, policy: vec![Policy::Once; forward.size.len()], crosses: vec![false; forward.size.len()] };
    let mut ends = Vec::new();
    let mut block = 0;
    for choice in choices {
        block = (block + choice.blocks).min(forward.blocks.len());
        ends.push(block);
        for v in forward.crossing.get(block - 1).into_iter().flatten() {
            maker.crosses[v.index()] = true;
        }
    }
    let mut first = 0;
    for (choice, end) in choices.iter().zip(ends) {
        for u in forward.blocks[first..end].iter().cloned().flatten() {
            maker.decide(u, choice);
        }
        first = end;
    }
    let mut policy = maker.policy;
    for v in 0..policy.len() {
        policy[v] = policy[forward.storage[v].index()];
    }
    policy
}

struct Maker<'a> {
    forward: &'a Forward,
    policy: Vec<Policy>,
    /// By value: whether it crosses out of a choice's blocks.
    crosses: Vec<bool>,
}

impl Maker<'_> {
    /// Decides for what a unit makes; those before it are decided.
    fn decide(&mut self, u: usize, choice: &Choice) {
        let forward = self.forward;
        let unit = &forward.units[u];
        for &v in &unit.makes {
            let cheap = forward.price(v) <= choice.price;
            let kept = if self.crosses[v.index()] {
                // What crosses is where chains of clones end; unless it is but a step from what is kept anyway.
                let from_kept = unit.reads.iter().all(|r| self.policy[r.index()] == Policy::Save);
                !(cheap && unit.is_light && from_kept)
            } else {
                forward.is_saved[v.index()] && !cheap
            };
            self.policy[v.index()] = match choice.recompute {
                _ if kept => Policy::Save,
                // Its readers lie far apart.
                _ if forward.crosses[v.index()] > 2 => Policy::PerUse,
                Recompute::Once => Policy::Once,
                Recompute::PerUse if unit.is_light => Policy::PerUse,
                Recompute::PerUse => Policy::Once,
                Recompute::Nested if forward.crosses[v.index()] > 0 => Policy::Once,
                Recompute::Nested if unit.is_light => Policy::PerUse,
                Recompute::Nested => Policy::Nested,
            };
        }
    }
}
