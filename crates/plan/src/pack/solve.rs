//! Fits an instance into a capacity: split into cores, each searched again and again with other orders.
//!
//! With a good order a core is solved almost without a wrong decision, with a bad one not in a lifetime. So runs are short,
//! and become longer only slowly; a run that ends by itself decides.

use super::Item;
use super::meter::Meter;
use super::orders::Orders;
use super::search::{Search, Verdict};
use super::sections::{Core, split};
use super::state::State;

/// Searches for a packing of items of which no more than `capacity` live at once. Where it is solved, the offsets are the
/// items', in their order. Starts with the order of number `runs`, and counts on: called again, it goes on.
pub fn search(items: &[Item], capacity: u64, runs: &mut usize, meter: &mut Meter) -> (Verdict, Vec<u64>) {
    let mut offsets = vec![0; items.len()];
    let start = *runs;
    for core in split(items, &mut offsets) {
        let (verdict, end) = solve_core(&core, capacity - core.base, start, meter, &mut offsets);
        *runs = end.max(*runs);
        if verdict != Verdict::Solved {
            return (verdict, offsets);
        }
    }
    (Verdict::Solved, offsets)
}

/// Wrong decisions after which the shortest runs end. On the public instances the runs that succeed make fewer.
const MISTAKES: u64 = 50;

/// What became of a core, and the number of the first order that was not tried.
fn solve_core(core: &Core, capacity: u64, start: usize, meter: &mut Meter, offsets: &mut [u64]) -> (Verdict, usize) {
    let Some(mut state) = State::new(core, capacity) else { return (Verdict::GaveUp, start) };
    let orders = Orders::new(core);
    for run in start.. {
        state.restart();
        let verdict = Search::run(&mut state, &orders.order(run), MISTAKES * luby(run as u64 + 1), meter);
        if verdict == Verdict::Solved {
            for (i, b) in core.buffers.iter().enumerate() {
                offsets[b.item] = core.base + state.offset(i);
            }
        }
        if verdict != Verdict::GaveUp || meter.is_empty() {
            return (verdict, run + 1);
        }
    }
    (Verdict::GaveUp, start)
}

/// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …: lengths that lose at most a logarithm against the best length, whatever that is.
fn luby(run: u64) -> u64 {
    let length = run + 1;
    if length.is_power_of_two() {
        length / 2
    } else {
        let whole = (length.next_power_of_two() / 2) - 1;
        luby(run - whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_longer_slowly() {
        let lengths: Vec<u64> = (1..16).map(luby).collect();
        assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
