//! Which bytes are taken when: a tree over the sections of time, whose nodes know bytes as ranges. Buffers that lie one above the
//! other are one range, so that a node of thousands of them has a few, and finding a gap does not look at every buffer.

use super::greedy::Fit;
use super::sections::Buffer;

/// Ranges of bytes, from the lowest up; no two touch.
#[derive(Clone, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, (start, end): (u64, u64)) {
        let from = self.0.partition_point(|range| range.1 < start);
        let to = from + self.0[from..].partition_point(|range| range.0 <= end);
        if from == to {
            self.0.insert(from, (start, end));
        } else {
            self.0[from] = (start.min(self.0[from].0), end.max(self.0[to - 1].1));
            self.0.drain(from + 1..to);
        }
    }
}

pub struct Occupied {
    /// A power of two. Node 1 is the root, the children of `i` are `2 * i` and the next, and section 0 is node `leaves`.
    leaves: usize,
    /// By node: what is taken during all of its sections, and was added to it.
    through: Vec<Ranges>,
    /// By node: what is taken in any of its sections, and was added to it or below it.
    any: Vec<Ranges>,
    found: Vec<(u64, u64)>,
}

impl Occupied {
    pub fn new(sections: usize) -> Occupied {
        let leaves = sections.next_power_of_two();
        let nodes = || vec![Ranges::default(); 2 * leaves];
        Occupied { leaves, through: nodes(), any: nodes(), found: Vec::new() }
    }

    pub fn add(&mut self, b: &Buffer, offset: u64) {
        let range = (offset, offset + b.size);
        let (through, any) = (&mut self.through, &mut self.any);
        visit(self.leaves, b, |node, is_within| {
            any[node].add(range);
            if is_within {
                through[node].add(range);
            }
        });
    }

    /// Where a buffer goes.
    pub fn find_gap(&mut self, b: &Buffer, fit: Fit) -> u64 {
        let (through, any, found) = (&self.through, &self.any, &mut self.found);
        found.clear();
        visit(self.leaves, b, |node, is_within| {
            found.extend_from_slice(if is_within { &any[node].0 } else { &through[node].0 });
        });
        found.sort_unstable();
        let mut floor = 0;
        let mut best: Option<(u64, u64)> = None;
        for &(start, end) in found.iter() {
            if start >= floor + b.size {
                match fit {
                    Fit::Lowest => return floor,
                    Fit::Tightest if best.is_none_or(|(tightest, _)| start - floor < tightest) => {
                        best = Some((start - floor, floor));
                    }
                    Fit::Tightest => {}
                }
            }
            floor = floor.max(end);
        }
        best.map_or(floor, |(_, offset)| offset)
    }
}

/// The nodes that together are the sections of a buffer, each as one within them; and all that lie above those.
fn visit(leaves: usize, b: &Buffer, mut at: impl FnMut(usize, bool)) {
    let (mut low, mut high) = (b.first + leaves, b.end + leaves);
    while low < high {
        if low % 2 == 1 {
            at(low, true);
            low += 1;
        }
        if high % 2 == 1 {
            high -= 1;
            at(high, true);
        }
        (low, high) = (low / 2, high / 2);
    }
    // What lies above them reaches beyond the buffer on its first or on its last section.
    let (mut first, mut last, mut width) = (b.first + leaves, b.end - 1 + leaves, 1);
    while first > 1 {
        (first, last, width) = (first / 2, last / 2, 2 * width);
        let is_within = |node: usize| node * width - leaves >= b.first && (node + 1) * width - leaves <= b.end;
        if !is_within(first) {
            at(first, false);
        }
        if last != first && !is_within(last) {
            at(last, false);
        }
    }
}
