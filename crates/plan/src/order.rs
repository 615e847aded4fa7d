//! The order of execution. Several orders are tried and the one with the lowest peak of live bytes is kept: the order of
//! the graph, one that runs at once whatever frees memory (so a parameter is updated as soon as its gradient exists), a
//! memory-greedy one, reverse post-order, and a local search on the best of them.
//!
//! Orders never change a result, and all of them respect [`Flow::before`].

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::flow::Flow;
use crate::lifetime::peak;

/// How hard to look for a good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The order of the graph.
    None,
    /// The order that is nearly always best; for judging many candidates.
    Quick,
    /// All of them, and the local search.
    Full,
}

/// Trials of the local search: a count, not a time, so that planning is reproducible.
const TRIALS: usize = 96;

/// The best order found, as positions of groups. None if the states allow no order at all.
pub fn order(flow: &Flow, effort: Effort) -> Option<Vec<u32>> {
    if effort == Effort::None {
        return list_schedule(flow, Preference::Graph);
    }
    let eager = list_schedule(flow, Preference::Freeing)?;
    if effort == Effort::Quick {
        return Some(eager);
    }
    let mut best = (peak(flow, &eager), eager);
    let others =
        [list_schedule(flow, Preference::Graph), list_schedule(flow, Preference::Smallest), reverse_post_order(flow)];
    for found in others.into_iter().flatten() {
        let bytes = peak(flow, &found);
        if bytes < best.0 {
            best = (bytes, found);
        }
    }
    Some(improve(flow, best.1))
}

/// Which of the groups that could run is run next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preference {
    /// The first by the graph.
    Graph,
    /// One that frees more than it takes, if there is one; else the first by the graph.
    Freeing,
    /// The one that adds least, of the next few by the graph.
    Smallest,
}

/// How far ahead of the graph the memory-greedy order looks. Clones could otherwise run long before they are wanted.
const WINDOW: usize = 24;

fn list_schedule(flow: &Flow, prefer: Preference) -> Option<Vec<u32>> {
    let n = flow.groups.len();
    let mut state = ListScheduler::new(flow);
    let mut order = Vec::with_capacity(n);
    while let Some(g) = state.next(prefer) {
        order.push(g);
        state.run(g);
    }
    (order.len() == n).then_some(order)
}

/// Groups that are ready, and how many readers each value still has.
struct ListScheduler<'a> {
    flow: &'a Flow,
    after: Vec<Vec<u32>>,
    waits: Vec<u32>,
    readers: Vec<u32>,
    ready: BTreeSet<u32>,
    /// Those of the ready ones that free more than they take.
    freeing: BTreeSet<(Reverse<u64>, u32)>,
    readers_of: Vec<Vec<u32>>,
}

impl<'a> ListScheduler<'a> {
    fn new(flow: &'a Flow) -> ListScheduler<'a> {
        let n = flow.groups.len();
        let mut after = vec![Vec::new(); n];
        for (i, before) in flow.before.iter().enumerate() {
            for &b in before {
                after[b as usize].push(i as u32);
            }
        }
        let waits: Vec<u32> = flow.before.iter().map(|b| b.len() as u32).collect();
        let mut readers_of = vec![Vec::new(); flow.size.len()];
        for (i, g) in flow.groups.iter().enumerate() {
            for v in &g.reads {
                readers_of[v.index()].push(i as u32);
            }
        }
        let readers = readers_of.iter().map(|r: &Vec<u32>| r.len() as u32).collect();
        let mut scheduler =
            ListScheduler { flow, after, waits, readers, ready: BTreeSet::new(), freeing: BTreeSet::new(), readers_of };
        for g in (0..n as u32).filter(|&g| flow.before[g as usize].is_empty()) {
            scheduler.make_ready(g);
        }
        scheduler
    }

    /// Bytes taken less bytes freed by running a group now.
    fn change(&self, g: u32) -> i64 {
        let access = &self.flow.groups[g as usize];
        let size = |v: &memfit_ir::ValueId| self.flow.size[v.index()] as i64;
        let dies = |v: &&memfit_ir::ValueId| self.readers[v.index()] == 1 && !self.flow.at_end[v.index()];
        let taken: i64 = access.writes.iter().map(size).sum();
        taken - access.reads.iter().filter(dies).map(size).sum::<i64>()
    }

    fn note_freeing(&mut self, g: u32) {
        let change = self.change(g);
        if change < 0 {
            self.freeing.insert((Reverse(change.unsigned_abs()), g));
        }
    }

    fn make_ready(&mut self, g: u32) {
        self.ready.insert(g);
        self.note_freeing(g);
    }

    fn next(&self, prefer: Preference) -> Option<u32> {
        let first = *self.ready.first()?;
        Some(match prefer {
            Preference::Graph => first,
            Preference::Freeing => self.freeing.first().map_or(first, |&(_, g)| g),
            Preference::Smallest => {
                let near = self.ready.iter().take_while(|&&g| (g - first) < WINDOW as u32);
                *near.min_by_key(|&&g| (self.change(g), g))?
            }
        })
    }

    fn run(&mut self, g: u32) {
        self.ready.remove(&g);
        self.freeing.retain(|&(_, f)| f != g);
        for v in &self.flow.groups[g as usize].reads {
            self.readers[v.index()] -= 1;
            if self.readers[v.index()] == 1 {
                // Whoever reads it last now frees it.
                for i in 0..self.readers_of[v.index()].len() {
                    let reader = self.readers_of[v.index()][i];
                    if self.ready.contains(&reader) {
                        self.freeing.retain(|&(_, f)| f != reader);
                        self.note_freeing(reader);
                    }
                }
            }
        }
        for i in 0..self.after[g as usize].len() {
            let next = self.after[g as usize][i];
            self.waits[next as usize] -= 1;
            if self.waits[next as usize] == 0 {
                self.make_ready(next);
            }
        }
    }
}

/// Each group just before the first that wants it, starting from those that nobody waits for.
fn reverse_post_order(flow: &Flow) -> Option<Vec<u32>> {
    let n = flow.groups.len();
    let mut wanted = vec![false; n];
    for b in flow.before.iter().flatten() {
        wanted[*b as usize] = true;
    }
    let mut order = Vec::with_capacity(n);
    // 0: not seen, 1: open, 2: done.
    let mut mark = vec![0u8; n];
    for root in (0..n as u32).filter(|&g| !wanted[g as usize]) {
        let mut stack = vec![(root, 0usize)];
        while let Some((g, i)) = stack.pop() {
            if mark[g as usize] == 2 {
                continue;
            }
            mark[g as usize] = 1;
            let Some(&next) = flow.before[g as usize].get(i) else {
                mark[g as usize] = 2;
                order.push(g);
                continue;
            };
            stack.push((g, i + 1));
            match mark[next as usize] {
                0 => stack.push((next, 0)),
                1 => return None,
                _ => {}
            }
        }
    }
    (order.len() == n).then_some(order)
}

/// Moves single groups away from the peak, as long as that lowers it: what takes memory goes behind it, what frees memory
/// before it.
fn improve(flow: &Flow, mut order: Vec<u32>) -> Vec<u32> {
    let mut live = crate::lifetime::live(flow, &order);
    for _ in 0..TRIALS {
        let Some(&top) = live.iter().max() else { break };
        let at = live.iter().position(|&l| l == top).unwrap_or(0);
        let Some((better, found)) = moves(flow, &order, at).find(|(l, _)| l.iter().max() < Some(&top)) else { break };
        (live, order) = (better, found);
    }
    order
}

/// Orders with one group moved across the position `at`, and their live bytes.
fn moves<'a>(flow: &'a Flow, order: &'a [u32], at: usize) -> impl Iterator<Item = (Vec<u64>, Vec<u32>)> + 'a {
    let reach = 16usize;
    let later = (at.saturating_sub(reach)..=at).rev().filter_map(move |from| {
        let g = order[from];
        let waits = |h: &u32| flow.before[*h as usize].contains(&g);
        let limit = order[from + 1..].iter().position(waits).map_or(order.len(), |i| from + 1 + i);
        (limit > at + 1).then(|| shifted(order, from, limit - 1))
    });
    let sooner = (at + 1..(at + 1 + reach).min(order.len())).filter_map(move |from| {
        let before = &flow.before[order[from] as usize];
        let limit = order[..from].iter().rposition(|h| before.contains(h)).map_or(0, |i| i + 1);
        (limit <= at).then(|| shifted(order, from, limit))
    });
    later.chain(sooner).map(|o| (crate::lifetime::live(flow, &o), o))
}

fn shifted(order: &[u32], from: usize, to: usize) -> Vec<u32> {
    let mut moved = order.to_vec();
    let g = moved.remove(from);
    moved.insert(to, g);
    moved
}
