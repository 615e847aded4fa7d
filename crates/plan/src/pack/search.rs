//! Exact search: depth first, from below. At each node the lowest section of a part is decided: one of the buffers that
//! can lie right on its floor does, or none does and the floor rises. Where the unplaced buffers fall into parts that do
//! not meet, each is searched by itself, and the failure of one is the failure of what made the parts.
//!
//! Every packing can be let down until each buffer lies on another or on the ground, and such a packing is reached by
//! these decisions in one way only: so when all of them are exhausted, there is none.

use super::meter::Meter;
use super::orders::Order;
use super::state::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The state holds the offsets.
    Solved,
    /// There is no packing.
    Infeasible,
    /// The limit was reached first.
    GaveUp,
}

/// A range of sections that is still to be searched.
#[derive(Clone, Copy)]
struct Task {
    range: (usize, usize),
    /// The node that is wrong if this task fails.
    parent: usize,
    /// The task to do after this one.
    next: usize,
}

/// A node on the path from the root to where the search stands.
struct Node {
    part: (usize, usize),
    section: usize,
    /// Its untried candidates: a range of `Search::candidates`, best last.
    first_candidate: usize,
    last_candidate: usize,
    /// All candidates were tried, and so was leaving the floor empty.
    exhausted: bool,
    parent: usize,
    /// The task to do when the part is done.
    next: usize,
    /// What there was before it: changes of the state, tasks.
    mark: usize,
    tasks: usize,
}

/// No such node or task.
const NONE: usize = usize::MAX;

pub struct Search<'s, 'a> {
    state: &'s mut State<'a>,
    order: &'s Order,
    nodes: Vec<Node>,
    candidates: Vec<u32>,
    tasks: Vec<Task>,
    /// Decisions that did not hold.
    mistakes: u64,
}

impl<'s, 'a> Search<'s, 'a> {
    /// Runs from an empty state until it is decided, or until more than `mistakes` were made or the meter is empty.
    pub fn run(state: &'s mut State<'a>, order: &'s Order, mistakes: u64, meter: &mut Meter) -> Verdict {
        let (nodes, candidates, tasks) = (Vec::new(), Vec::new(), Vec::new());
        let mut search = Search { state, order, nodes, candidates, tasks, mistakes: 0 };
        if !search.state.has_room() {
            return Verdict::Infeasible;
        }
        let mut task = Task { range: (0, search.state.core.sections), parent: NONE, next: NONE };
        loop {
            if search.open(task) {
                if search.mistakes > mistakes || !meter.tick() {
                    return Verdict::GaveUp;
                }
                match search.descend() {
                    Some(deeper) => task = deeper,
                    None => return Verdict::Infeasible,
                }
            } else {
                match search.tasks.get(task.next) {
                    Some(&next) => task = next,
                    None => return Verdict::Solved,
                }
            }
        }
    }

    /// Makes a node for the first part of a task and tasks for the others. False where everything is placed.
    fn open(&mut self, task: Task) -> bool {
        let tasks = self.tasks.len();
        let mut next = task.next;
        let mut part = None;
        for range in self.state.parts(task.range) {
            // The last part found is entered, those before it wait.
            if let Some(waiting) = part.replace(range) {
                self.tasks.push(Task { range: waiting, parent: task.parent, next });
                next = self.tasks.len() - 1;
            }
        }
        let Some(part) = part else { return false };
        let section = self.state.select(part, self.order.side);
        let first_candidate = self.candidates.len();
        self.candidates.extend(self.state.candidates(section));
        let ranks = &self.order.ranks;
        self.candidates[first_candidate..].sort_unstable_by_key(|&i| std::cmp::Reverse(ranks[i as usize]));
        let last_candidate = self.candidates.len();
        let (parent, mark) = (task.parent, self.state.mark());
        let exhausted = false;
        self.nodes.push(Node { part, section, first_candidate, last_candidate, exhausted, parent, next, mark, tasks });
        true
    }

    /// Takes the next decision that holds, at the deepest node that has one left. None where no node has.
    fn descend(&mut self) -> Option<Task> {
        let mut at = self.nodes.len() - 1;
        loop {
            self.close_above(at);
            let node = &mut self.nodes[at];
            let (part, section, next) = (node.part, node.section, node.next);
            self.state.take_back(node.mark);
            let holds = if node.last_candidate > node.first_candidate {
                node.last_candidate -= 1;
                let buffer = self.candidates[node.last_candidate];
                self.candidates.truncate(node.last_candidate);
                self.state.place_buffer(buffer as usize)
            } else if !node.exhausted {
                node.exhausted = true;
                let floor = self.state.next_floor(section, part);
                floor.is_some_and(|floor| self.state.raise(section, floor))
            } else {
                // A part that cannot be placed: what its siblings did does not matter, their parent was wrong.
                at = node.parent;
                if at == NONE {
                    return None;
                }
                continue;
            };
            if holds {
                return Some(Task { range: part, parent: at, next });
            }
            self.mistakes += 1;
        }
    }

    /// Forgets the nodes after this one, and what they left.
    fn close_above(&mut self, at: usize) {
        if let Some(node) = self.nodes.get(at + 1) {
            self.tasks.truncate(node.tasks);
            self.nodes.truncate(at + 1);
        }
        self.candidates.truncate(self.nodes[at].last_candidate);
    }
}
