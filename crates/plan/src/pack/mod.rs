//! Packing: buffers with lifetimes and sizes get offsets, so that no two that live together overlap, in least capacity.
//!
//! Rules (`greedy`, with `occupied` where there are many buffers) come first, then exact search where they leave something
//! above the most live bytes. `sections` splits an instance into parts and times into sections; `state` is a partial placement
//! with what follows from it, `search` goes through the decisions, `orders` says what is tried first, `solve` runs one search
//! after the other. [`mod@validate`] checks every result and shares no code with the rest.
//!
//! Nothing here looks at a clock, but for the deadline that a caller may give.

mod cover;
mod greedy;
mod meter;
mod occupied;
mod orders;
mod search;
mod sections;
mod solve;
mod state;
pub mod validate;

use std::fmt;

pub use meter::Limits;
use meter::Meter;
use search::Verdict;
use validate::validate;

/// What is to be packed. Times are steps, half-open; sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub lower: usize,
    pub upper: usize,
    pub size: u64,
}

/// Offsets for the items, in their order, and the bytes that they take together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Multiples of the alignment. Of no meaning for items that never live or have no bytes.
    pub offsets: Vec<u64>,
    /// Where the last item ends. `u64::MAX` where all sizes together are more than can be counted; then the offsets mean
    /// nothing.
    pub capacity: u64,
    /// No packing takes fewer bytes, in whole multiples of the alignment: this is the most that lives at once, or it was
    /// searched and proved that less is not enough.
    pub optimal: bool,
    pub method: Method,
}

/// What found a packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Placing each item in turn into a gap, by this rule.
    Greedy(&'static str),
    Search,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Greedy(rule) => write!(f, "greedy, {rule}"),
            Method::Search => f.write_str("exact search"),
        }
    }
}

/// What became of fitting items into a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Packed(Packing),
    /// It is proved that there is no packing.
    Infeasible,
    /// The limits were reached before either was known.
    GaveUp,
}

/// Packs items at multiples of the alignment. The same items give the same packing.
pub fn pack(items: &[Item], alignment: u64) -> Packing {
    pack_until(items, alignment, 0)
}

/// The same, until it takes no more than is `enough`.
pub(crate) fn pack_until(items: &[Item], alignment: u64, enough: u64) -> Packing {
    let nodes = default_nodes(items.len() as u64);
    let Some(task) = Task::new(items, alignment, enough) else { return uncountable(items) };
    let mut meter = Meter::new(Limits { nodes: Some(nodes), deadline: None });
    task.refine(task.rules(&mut meter), &mut meter, EXTENSION * nodes)
}

/// Packs one of many: searches too, but not for long.
pub(crate) fn pack_briefly(items: &[Item], alignment: u64, enough: u64) -> Packing {
    let nodes = default_nodes(items.len() as u64) / BRIEF;
    let Some(task) = Task::new(items, alignment, enough) else { return uncountable(items) };
    let mut meter = Meter::new(Limits { nodes: Some(nodes), deadline: None });
    task.refine(task.rules(&mut meter), &mut meter, 0)
}

/// Nodes that [`pack`] searches at most. A run without a mistake takes one for each item, so there are some such passes,
/// and more for few items. A node takes the longer the more items there are: on a 2.3 GHz core 1 µs with a hundred, 5 µs
/// with a thousand, 27 µs with two thousand; so all of it takes tens of milliseconds, and not much more for any number.
pub fn default_nodes(items: u64) -> u64 {
    let items = items.max(1);
    (6 * items).min(16_000_000 / items) + 2_000_000 / items
}

/// The share of that which is searched for one of many.
const BRIEF: u64 = 4;

/// How many times more [`pack`] searches where what it has is not [near](Incumbent::is_near) yet.
const EXTENSION: u64 = 3;

/// Packs by the few rules that are quickest and no search: for the many candidates of a planner that looks for the best.
pub fn pack_quick(items: &[Item], alignment: u64) -> Packing {
    let Some(task) = Task::new(items, alignment, 0) else { return uncountable(items) };
    let bound = task.max_live();
    let greedy = greedy::pack(&task.items, greedy::QUICK, bound, &mut Meter::default());
    task.finish(greedy.offsets, bound, Method::Greedy(greedy.rule))
}

/// The best packing that is found within the limits. At least one rule is followed to its end, whatever they are; what the
/// rules found is told before the search begins.
pub fn pack_within(items: &[Item], alignment: u64, limits: Limits, on_rules: &mut dyn FnMut(&Packing)) -> Packing {
    let Some(task) = Task::new(items, alignment, 0) else { return uncountable(items) };
    let mut meter = Meter::new(limits);
    let greedy = task.rules(&mut meter);
    on_rules(&task.finish(greedy.offsets.clone(), task.max_live(), Method::Greedy(greedy.rule)));
    task.refine(greedy, &mut meter, 0)
}

/// Fits the items into a capacity, of which only whole multiples of the alignment count; or proves that they do not fit;
/// or gives up at the limits.
pub fn solve(items: &[Item], alignment: u64, capacity: u64, limits: Limits) -> Outcome {
    if max_live(items).is_none_or(|live| live > capacity) {
        return Outcome::Infeasible;
    }
    let Some(task) = Task::new(items, alignment, 0) else { return Outcome::GaveUp };
    let capacity = capacity / task.alignment * task.alignment;
    let bound = task.max_live();
    if bound > capacity {
        return Outcome::Infeasible;
    }
    let mut meter = Meter::new(limits);
    let greedy = greedy::pack(&task.items, greedy::ALL, capacity, &mut meter);
    if greedy.capacity <= capacity {
        return Outcome::Packed(task.finish(greedy.offsets, bound, Method::Greedy(greedy.rule)));
    }
    match solve::search(&task.items, capacity, &mut 0, &mut meter) {
        (Verdict::Solved, offsets) => Outcome::Packed(task.finish(offsets, bound, Method::Search)),
        (Verdict::Infeasible, _) => Outcome::Infeasible,
        (Verdict::GaveUp, _) => Outcome::GaveUp,
    }
}

/// The most bytes that live at once. None where they are more than can be counted.
pub fn max_live(items: &[Item]) -> Option<u64> {
    let mut events: Vec<(usize, bool, u64)> = Vec::with_capacity(2 * items.len());
    for i in items.iter().filter(|i| i.lower < i.upper) {
        events.push((i.lower, true, i.size));
        events.push((i.upper, false, i.size));
    }
    // Lives are half-open: at an instant, what ends goes before what begins.
    events.sort_unstable_by_key(|&(time, begins, _)| (time, begins));
    let (mut live, mut most) = (0u64, 0);
    for (_, begins, size) in events {
        live = if begins { live.checked_add(size)? } else { live - size };
        most = most.max(live);
    }
    Some(most)
}

/// Items with their sizes in whole multiples of the alignment, so that nothing else has to think of it.
struct Task<'a> {
    real: &'a [Item],
    items: Vec<Item>,
    alignment: u64,
    /// What all sizes are multiples of; so can be all offsets, and there is nothing between two capacities.
    unit: u64,
    /// A capacity below which there is nothing to gain.
    enough: u64,
}

impl<'a> Task<'a> {
    /// None where sizes and offsets could add up to more than can be counted.
    fn new(items: &'a [Item], alignment: u64, enough: u64) -> Option<Task<'a>> {
        let alignment = alignment.max(1);
        let mut rounded = Vec::with_capacity(items.len());
        let (mut total, mut unit) = (0u64, 0);
        for i in items {
            let size = i.size.checked_next_multiple_of(alignment)?;
            total = total.checked_add(size).filter(|&t| t < 1 << 62)?;
            unit = gcd(unit, size);
            rounded.push(Item { size, ..*i });
        }
        Some(Task { real: items, items: rounded, alignment, unit: unit.max(1), enough })
    }

    fn max_live(&self) -> u64 {
        // The sum of all sizes can be counted, see `new`.
        max_live(&self.items).unwrap_or(u64::MAX)
    }

    fn rules(&self, meter: &mut Meter) -> greedy::Greedy {
        greedy::pack(&self.items, greedy::ALL, self.max_live().max(self.enough), meter)
    }

    /// Searches below what the rules found, until that is enough, or is proved to be the best, or the meter is empty; then
    /// there are so many `more` nodes where it is not near the most live bytes.
    fn refine(&self, greedy: greedy::Greedy, meter: &mut Meter, mut more: u64) -> Packing {
        let mut best = Incumbent {
            bound: self.max_live(),
            capacity: greedy.capacity,
            offsets: greedy.offsets,
            method: Method::Greedy(greedy.rule),
        };
        let mut nodes = self.items.len() as u64;
        let mut runs = 0;
        while best.capacity > best.bound.max(self.enough) {
            if meter.is_empty() && !best.is_near() {
                meter.extend(std::mem::take(&mut more));
            }
            if meter.is_empty() {
                break;
            }
            let before = meter.nodes();
            self.attempt(best.bound, &mut runs, 2 * nodes, meter, &mut best);
            // Most of what is a little above the least that can be is easy, so not all is staked on that.
            let lower = [1, 4, 6, 7].into_iter().any(|eighths| {
                let units = u128::from((best.capacity - best.bound) / self.unit) * eighths / 8;
                let room = units as u64 * self.unit;
                room > 0 && self.attempt(best.bound + room, &mut 0, 3 * nodes, meter, &mut best)
            });
            if meter.nodes() == before {
                // It is too large to be searched.
                break;
            }
            if !lower {
                nodes = nodes.saturating_mul(2);
            }
        }
        self.finish(best.offsets, best.bound, best.method)
    }

    /// Tries a capacity below the best. True where it fits.
    fn attempt(&self, capacity: u64, runs: &mut usize, nodes: u64, meter: &mut Meter, best: &mut Incumbent) -> bool {
        let (verdict, offsets) = meter.lend(nodes, |meter| solve::search(&self.items, capacity, runs, meter));
        match verdict {
            Verdict::Solved => {
                best.capacity = packed_end(&self.items, &offsets);
                (best.offsets, best.method) = (offsets, Method::Search);
            }
            Verdict::Infeasible => {
                best.bound = capacity + self.unit;
                *runs = 0;
            }
            Verdict::GaveUp => {}
        }
        verdict == Verdict::Solved
    }

    /// Checks what was found. `bound` is a capacity that no packing is below.
    fn finish(&self, offsets: Vec<u64>, bound: u64, method: Method) -> Packing {
        let (capacity, rounded) = (packed_end(self.real, &offsets), packed_end(&self.items, &offsets));
        let problem = validate(&self.items, &offsets, self.alignment, rounded).err();
        assert!(problem.is_none(), "a packing by {method} does not hold: {}", problem.unwrap_or_default());
        Packing { offsets, capacity, optimal: rounded <= bound, method }
    }
}

/// The best packing that is known, and what no packing is below.
struct Incumbent {
    bound: u64,
    capacity: u64,
    offsets: Vec<u64>,
    method: Method,
}

impl Incumbent {
    /// A quarter of a percent above what is needed is little enough.
    fn is_near(&self) -> bool {
        self.capacity - self.bound <= self.bound / 400
    }
}

/// Where the last item ends.
fn packed_end(items: &[Item], offsets: &[u64]) -> u64 {
    let living = items.iter().zip(offsets).filter(|(i, _)| i.lower < i.upper && i.size > 0);
    living.map(|(i, o)| i.size + o).max().unwrap_or(0)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn uncountable(items: &[Item]) -> Packing {
    let method = Method::Greedy("none");
    Packing { offsets: vec![0; items.len()], capacity: u64::MAX, optimal: false, method }
}
