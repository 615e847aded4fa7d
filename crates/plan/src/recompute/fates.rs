//! From a choice for each block to the fate of each forward value.

use memfit_transform::Fate;

use super::forward::Forward;

/// What is done in a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// How many blocks. Of more than one only what crosses out of the last is kept.
    pub blocks: usize,
    /// Values are made again where that takes at most so many seconds for each byte that is saved.
    pub price: f64,
    /// Whether light values are made again each time rather than held.
    pub fleeting: bool,
}

impl Choice {
    pub const KEEP: Choice = Choice { blocks: 1, price: -1.0, fleeting: false };
}

/// The fate of each value, for choices that cover all blocks one after the other.
pub fn fates(forward: &Forward, choices: &[Choice]) -> Vec<Fate> {
    let mut fate = vec![Fate::Again; forward.size.len()];
    let mut crosses = vec![false; forward.size.len()];
    let mut block = 0;
    for choice in choices {
        block += choice.blocks;
        for v in forward.crossing.get(block - 1).into_iter().flatten() {
            crosses[v.index()] = true;
        }
    }
    let mut block = 0;
    for choice in choices {
        let end = (block + choice.blocks).min(forward.blocks.len());
        for units in &forward.blocks[block..end] {
            for u in units.clone() {
                decide(forward, u, choice, &crosses, &mut fate);
            }
        }
        block = end;
    }
    for v in 0..fate.len() {
        fate[v] = fate[forward.storage[v].index()];
    }
    fate
}

fn decide(forward: &Forward, u: usize, choice: &Choice, crosses: &[bool], fate: &mut [Fate]) {
    let unit = &forward.units[u];
    for &v in &unit.makes {
        let kept = crosses[v.index()] || forward.is_saved[v.index()] && forward.price(v) > choice.price;
        fate[v.index()] = match (kept, unit.is_light && choice.fleeting) {
            (true, _) => Fate::Keep,
            (false, true) => Fate::Fleeting,
            (false, false) => Fate::Again,
        };
    }
}
