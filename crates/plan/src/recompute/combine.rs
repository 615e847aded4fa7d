//! The fastest mixture of choices whose live bytes stay below a limit in the backward pass of every block: a walk over
//! the blocks that remembers, for what is kept so far, the least time.

use super::fates::Choice;

/// What a choice takes for the blocks from `first` on.
#[derive(Clone, Debug)]
pub struct Measure {
    pub first: usize,
    pub choice: Choice,
    /// Bytes that stay after the forward pass.
    pub kept: u64,
    /// Most live bytes during the backward pass of these blocks, without what blocks before them keep.
    pub work: u64,
    /// Added by clones.
    pub seconds: f64,
}

/// A way to treat all blocks up to one.
#[derive(Clone, Copy, Debug)]
struct Partial {
    kept: u64,
    seconds: f64,
    /// The measure taken last, and the partial of the block where it began.
    last: Option<(usize, usize)>,
}

/// Partials kept for one block; the rest is rounded away.
const RESOLUTION: u64 = 256;

/// Choices for all blocks with the least time, so that everywhere what is kept before and the work together stay within
/// `limit`. None if there are none.
pub fn combine(measures: &[Measure], blocks: usize, limit: u64) -> Option<Vec<Choice>> {
    let mut at: Vec<Vec<Partial>> = vec![Vec::new(); blocks + 1];
    at[0].push(Partial { kept: 0, seconds: 0.0, last: None });
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); blocks];
    for (i, m) in measures.iter().enumerate() {
        from[m.first].push(i);
    }
    for block in 0..blocks {
        thin_out(&mut at[block], limit);
        for p in 0..at[block].len() {
            let partial = at[block][p];
            for &i in &from[block] {
                let m = &measures[i];
                if partial.kept + m.work <= limit {
                    let (kept, seconds) = (partial.kept + m.kept, partial.seconds + m.seconds);
                    at[block + m.choice.blocks].push(Partial { kept, seconds, last: Some((i, p)) });
                }
            }
        }
    }
    let best = at[blocks].iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.kept.cmp(&b.kept)))?;
    let mut choices = Vec::new();
    let mut last = best.last;
    while let Some((measure, partial)) = last {
        let m = &measures[measure];
        choices.push(m.choice);
        last = at[m.first][partial].last;
    }
    choices.reverse();
    Some(choices)
}

/// Keeps, of partials that hold about the same bytes, the fastest; and only those that are faster than all that hold less.
fn thin_out(partials: &mut Vec<Partial>, limit: u64) {
    let cell = (limit / RESOLUTION).max(1);
    partials.sort_by(|a, b| (a.kept / cell).cmp(&(b.kept / cell)).then(a.seconds.total_cmp(&b.seconds)));
    let mut best = f64::INFINITY;
    partials.retain(|p| {
        let better = p.seconds < best;
        best = best.min(p.seconds);
        better
    });
}
