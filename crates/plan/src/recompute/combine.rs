//! The fastest mixture of choices whose live bytes stay below a limit in the backward pass of every block: a walk over
//! the blocks that remembers, for what is kept so far, the least time.

use super::policies::Choice;

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
    let mut at: Vec<Cells> = vec![Cells::new(limit); blocks + 1];
    at[0].add(Partial { kept: 0, seconds: 0.0, last: None });
    let mut done: Vec<Vec<Partial>> = Vec::with_capacity(blocks + 1);
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); blocks];
    for (i, m) in measures.iter().enumerate() {
        from[m.first].push(i);
    }
    for block in 0..blocks {
        done.push(at[block].best());
        for (p, partial) in done[block].iter().enumerate() {
            for &i in &from[block] {
                let m = &measures[i];
                if partial.kept + m.work <= limit {
                    let (kept, seconds) = (partial.kept + m.kept, partial.seconds + m.seconds);
                    at[block + m.choice.blocks].add(Partial { kept, seconds, last: Some((i, p)) });
                }
            }
        }
    }
    let best = *at[blocks].best().last()?;
    let mut choices = Vec::new();
    let mut last = best.last;
    while let Some((measure, partial)) = last {
        let m = &measures[measure];
        choices.push(m.choice);
        last = done[m.first][partial].last;
    }
    choices.reverse();
    Some(choices)
}

/// Of partials that hold about the same bytes, the fastest.
#[derive(Clone)]
struct Cells {
    /// Bytes of one cell.
    width: u64,
    cells: Vec<Option<Partial>>,
}

impl Cells {
    fn new(limit: u64) -> Cells {
        // What is kept may be more than the limit where nothing is worked with any more.
        Cells { width: (limit / RESOLUTION).max(1), cells: vec![None; 2 * RESOLUTION as usize] }
    }

    fn add(&mut self, partial: Partial) {
        let at = (partial.kept / self.width).min(self.cells.len() as u64 - 1);
        let cell = &mut self.cells[at as usize];
        let is_better = |old: &Partial| (partial.seconds, partial.kept) < (old.seconds, old.kept);
        if cell.as_ref().is_none_or(is_better) {
            *cell = Some(partial);
        }
    }

    /// Those that are faster than all that hold less, by what they hold.
    fn best(&self) -> Vec<Partial> {
        let mut least = f64::INFINITY;
        let faster = |p: &&Partial| {
            let better = p.seconds < least;
            least = least.min(p.seconds);
            better
        };
        self.cells.iter().flatten().filter(faster).copied().collect()
    }
}
