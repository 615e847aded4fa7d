//! Greedy packing: in the order of a rule, each buffer goes into a gap that is free all its life. No rule is good
//! everywhere, so there are several; the first that reaches the most live bytes ends it, else the best is kept.

use super::Item;
use super::meter::Meter;
use super::occupied::Occupied;
use super::sections::{Buffer, buffers, compress, contention};

/// What a rule may look at. The buffer with the largest key is placed first.
struct Features {
    size: u64,
    length: u64,
    /// The earliest start has the largest.
    early: u64,
    /// The latest end has the largest.
    late: u64,
    /// The most bytes that live at once during its life: how full the fullest section is that it goes through.
    contention: u64,
    /// Bytes of everything that lives together with it.
    conflicts: u64,
}

/// Which gap a buffer takes.
#[derive(Clone, Copy, Debug)]
pub enum Fit {
    /// The lowest.
    Lowest,
    /// The one that it leaves least of; above everything where it fits into none.
    Tightest,
}

struct Rule {
    name: &'static str,
    key: fn(&Features) -> (u64, u64),
    fit: Fit,
}

/// The rules, the ones first that came lowest most often on the training steps of the zoo, and are done soonest.
const RULES: [Rule; 10] = [
    Rule { name: "most contended, then largest first", key: |f| (f.contention, f.size), fit: Fit::Lowest },
    Rule { name: "largest first", key: |f| (f.size, f.length), fit: Fit::Lowest },
    Rule { name: "most contended, then longest first", key: |f| (f.contention, f.length), fit: Fit::Tightest },
    Rule { name: "most conflicts first", key: |f| (f.conflicts, f.size), fit: Fit::Lowest },
    Rule { name: "earliest first", key: |f| (f.early, f.size), fit: Fit::Tightest },
    Rule { name: "largest area first", key: |f| (area(f), f.size), fit: Fit::Lowest },
    Rule { name: "most contended, then largest area first", key: |f| (f.contention, area(f)), fit: Fit::Lowest },
    Rule { name: "largest first, tightest gap", key: |f| (f.size, f.length), fit: Fit::Tightest },
    Rule { name: "latest end first", key: |f| (f.late, f.size), fit: Fit::Tightest },
    Rule { name: "longest first", key: |f| (f.length, f.size), fit: Fit::Tightest },
];

/// How many of the rules are the quick ones. On the training steps of the zoo they end at most 3.2 % above the most live
/// bytes, and mostly on them.
pub const QUICK: usize = 3;

pub const ALL: usize = RULES.len();

fn area(f: &Features) -> u64 {
    f.size.saturating_mul(f.length)
}

/// What the best rule gave.
pub struct Greedy {
    /// By item.
    pub offsets: Vec<u64>,
    pub capacity: u64,
    pub rule: &'static str,
}

/// Packs by the first so many rules, until one needs no more than `enough` or time is up; one is always followed to its
/// end.
pub fn pack(items: &[Item], rules: usize, enough: u64, meter: &mut Meter) -> Greedy {
    let mut best = Greedy { offsets: vec![0; items.len()], capacity: u64::MAX, rule: RULES[0].name };
    let mut buffers = buffers(items);
    let features = features(&mut buffers);
    for rule in &RULES[..rules] {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_cached_key(|&i| (std::cmp::Reverse((rule.key)(&features[i])), i));
        if let Some(placed) = place_in_order(&buffers, &order, rule.fit, best.capacity) {
            best.rule = rule.name;
            best.capacity = placed.iter().map(|p| p.top).max().unwrap_or(0);
            placed.iter().for_each(|p| best.offsets[buffers[p.buffer].item] = p.offset);
        }
        if best.capacity <= enough || meter.is_late() {
            break;
        }
    }
    best
}

/// A buffer in its place.
#[derive(Clone, Copy)]
struct PlacedBuffer {
    buffer: usize,
    offset: u64,
    top: u64,
    first: usize,
    end: usize,
}

/// With more buffers than this, gaps are found by the tree and not by a look at every buffer; both find the same. On a busy 2-core
/// machine the tree took 0.23 s and the look 3.3 s for one rule on a training trace of 72,000; on random lives of 8,000 all of it took
/// 0.54 s and 0.40 s. Where the two meet was not measured.
const FEW: usize = 16_384;

/// None as soon as it cannot end below the limit.
fn place_in_order(buffers: &[Buffer], order: &[usize], fit: Fit, limit: u64) -> Option<Vec<PlacedBuffer>> {
    if buffers.len() > FEW { place_many(buffers, order, fit, limit) } else { place_few(buffers, order, fit, limit) }
}

fn place_many(buffers: &[Buffer], order: &[usize], fit: Fit, limit: u64) -> Option<Vec<PlacedBuffer>> {
    let sections = buffers.iter().map(|b| b.end).max().unwrap_or(0);
    let mut occupied = Occupied::new(sections);
    let mut placed = Vec::with_capacity(buffers.len());
    for &i in order {
        let Buffer { first, end, size, .. } = buffers[i];
        let offset = occupied.find_gap(&buffers[i], fit);
        let top = offset + size;
        if top >= limit {
            return None;
        }
        occupied.add(&buffers[i], offset);
        placed.push(PlacedBuffer { buffer: i, offset, top, first, end });
    }
    Some(placed)
}

fn place_few(buffers: &[Buffer], order: &[usize], fit: Fit, limit: u64) -> Option<Vec<PlacedBuffer>> {
    // By offset.
    let mut placed: Vec<PlacedBuffer> = Vec::with_capacity(buffers.len());
    for &i in order {
        let Buffer { first, end, size, .. } = buffers[i];
        let offset = find_gap(&placed, &buffers[i], fit);
        let top = offset + size;
        if top >= limit {
            return None;
        }
        let at = placed.partition_point(|p| p.offset <= offset);
        placed.insert(at, PlacedBuffer { buffer: i, offset, top, first, end });
    }
    Some(placed)
}

fn find_gap(placed: &[PlacedBuffer], b: &Buffer, fit: Fit) -> u64 {
    let mut floor = 0u64;
    let mut best: Option<(u64, u64)> = None;
    // Whether two live together is as good as random: one branch that is often guessed wrong is better than two.
    for p in placed.iter().filter(|p| (p.first < b.end) & (b.first < p.end)) {
        if p.offset >= floor + b.size {
            let gap = p.offset - floor;
            match fit {
                Fit::Lowest => return floor,
                Fit::Tightest if best.is_none_or(|(tightest, _)| gap < tightest) => best = Some((gap, floor)),
                Fit::Tightest => {}
            }
        }
        floor = floor.max(p.top);
    }
    best.map_or(floor, |(_, offset)| offset)
}

/// By buffer; numbers their sections.
fn features(buffers: &mut [Buffer]) -> Vec<Features> {
    let times: Vec<(u64, u64)> = buffers.iter().map(|b| (u64::MAX - b.first as u64, b.end as u64)).collect();
    let conflicts = conflicts(buffers);
    let sections = compress(buffers);
    let contention = contention(buffers, sections);
    let feature = |(i, b): (usize, &Buffer)| Features {
        size: b.size,
        length: b.length,
        early: times[i].0,
        late: times[i].1,
        contention: contention[i],
        conflicts: conflicts[i],
    };
    buffers.iter().enumerate().map(feature).collect()
}

/// By buffer: bytes of what lives together with it: of all, less those that end before it and those that begin after.
fn conflicts(buffers: &[Buffer]) -> Vec<u64> {
    let running = |time: fn(&Buffer) -> usize| {
        let mut row: Vec<(usize, u64)> = buffers.iter().map(|b| (time(b), b.size)).collect();
        row.sort_unstable();
        let mut sum = 0u64;
        row.iter_mut().for_each(|(_, size)| {
            sum += *size;
            *size = sum;
        });
        row
    };
    let (ends, starts) = (running(|b| b.end), running(|b| b.first));
    // Bytes of what has its time before `limit`.
    let until = |row: &[(usize, u64)], limit: usize| match row.partition_point(|&(time, _)| time < limit) {
        0 => 0,
        at => row[at - 1].1,
    };
    let of = |b: &Buffer| until(&starts, b.end) - until(&ends, b.first + 1);
    buffers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(memfit_test_effort::cases(256)))]
        #[test]
        fn many_are_placed_where_few_are(
            lives in prop::collection::vec((0usize..40, 1usize..40, 1u64..50), 1..120),
            is_lowest: bool,
        ) {
            let items: Vec<Item> =
                lives.iter().map(|&(lower, length, size)| Item { lower, upper: lower + length, size }).collect();
            let mut buffers = buffers(&items);
            compress(&mut buffers);
            let order: Vec<usize> = (0..buffers.len()).collect();
            let fit = if is_lowest { Fit::Lowest } else { Fit::Tightest };
            let offsets = |placed: Option<Vec<PlacedBuffer>>| {
                let mut offsets: Vec<(usize, u64)> = placed.into_iter().flatten().map(|p| (p.buffer, p.offset)).collect();
                offsets.sort_unstable();
                offsets
            };
            let few = offsets(place_few(&buffers, &order, fit, u64::MAX));
            prop_assert_eq!(few.len(), buffers.len());
            prop_assert_eq!(offsets(place_many(&buffers, &order, fit, u64::MAX)), few);
        }
    }
}
