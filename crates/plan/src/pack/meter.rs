//! Limits of a search, and what was used of them.

use std::time::Instant;

/// How long to search. Counts give the same answer every time; a deadline does not, and is for people who wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Nodes to visit at most.
    pub nodes: Option<u64>,
    pub deadline: Option<Instant>,
}

/// Counts nodes against the limits.
#[derive(Debug, Default)]
pub struct Meter {
    limits: Limits,
    nodes: u64,
    late: bool,
}

/// Nodes between two looks at the clock.
const LOOK: u64 = 64;

impl Meter {
    pub fn new(limits: Limits) -> Meter {
        Meter { limits, nodes: 0, late: false }
    }

    /// Nodes visited.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Allows so many nodes more.
    pub fn extend(&mut self, nodes: u64) {
        self.limits.nodes = self.limits.nodes.map(|limit| limit.saturating_add(nodes));
    }

    /// Runs something that may use so many of the nodes that are left; what it used counts here too.
    pub fn lend<T>(&mut self, nodes: u64, run: impl FnOnce(&mut Meter) -> T) -> T {
        let left = self.limits.nodes.map_or(u64::MAX, |limit| limit - self.nodes);
        let limits = Limits { nodes: Some(nodes.min(left)), ..self.limits };
        let mut lent = Meter::new(limits);
        let result = run(&mut lent);
        self.nodes += lent.nodes;
        self.late |= lent.late;
        result
    }

    /// Counts a node. False where the limits do not allow it.
    pub fn tick(&mut self) -> bool {
        if self.nodes.is_multiple_of(LOOK) {
            self.is_late();
        }
        if self.is_empty() {
            return false;
        }
        self.nodes += 1;
        true
    }

    /// Whether a limit was reached when it was last looked.
    pub fn is_empty(&self) -> bool {
        self.late || self.limits.nodes.is_some_and(|n| self.nodes >= n)
    }

    /// Looks at the clock, where there is a deadline.
    pub fn is_late(&mut self) -> bool {
        self.late |= self.limits.deadline.is_some_and(|d| Instant::now() >= d);
        self.late
    }
}
