//! The packer: on public instances, against brute force, and on what was cut from a full rectangle.

use std::collections::BTreeSet;
use std::time::Instant;

use memfit_plan::pack::validate::validate;
use memfit_plan::pack::{Item, Limits, Method, Outcome, Packing, max_live, pack, pack_quick, pack_within, solve};
use proptest::prelude::*;

fn instance(name: &str) -> Vec<Item> {
    let path = format!("{}/tests/pack/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the instances lie beside this test");
    let item = |line: &str| {
        let numbers: Vec<u64> = line.split(',').map(|n| n.parse().expect("a number")).collect();
        Item { lower: numbers[1] as usize, upper: numbers[2] as usize, size: numbers[3] }
    };
    text.lines().skip(1).map(item).collect()
}

fn item(lower: usize, upper: usize, size: u64) -> Item {
    Item { lower, upper, size }
}

fn nodes(count: u64) -> Limits {
    Limits { nodes: Some(count), deadline: None }
}

/// Solves within so many nodes: a count, so that the answer does not depend on the machine.
fn check_solved(items: &[Item], capacity: u64, limit: u64) -> Packing {
    match solve(items, 1, capacity, nodes(limit)) {
        Outcome::Packed(packing) => {
            validate(items, &packing.offsets, 1, capacity).expect("a solution holds");
            packing
        }
        other => panic!("{} items do not fit into {capacity}: {other:?}", items.len()),
    }
}

#[test]
fn the_public_instances_are_solved() {
    for name in ["A", "B", "C", "D", "E", "F"] {
        let packing = check_solved(&instance(&format!("{name}.1048576")), 1 << 20, 200_000);
        assert_eq!(packing.method, Method::Search, "no rule solves {name}");
    }
    let items = instance("resnet50.somas");
    let live = max_live(&items).expect("it can be counted");
    let packing = check_solved(&items, live, 5_000);
    assert!(packing.optimal && packing.capacity == live);
}

#[test]
fn a_training_step_is_packed_into_its_most_live_bytes() {
    let items = instance("resnet50.somas");
    let packing = pack(&items, 1);
    assert!(packing.optimal);
    assert_eq!(Some(packing.capacity), max_live(&items));
    assert_eq!(packing, pack(&items, 1), "the same items give the same packing");
    let mut told = None;
    let greedy = pack_within(&items, 1, nodes(0), &mut |greedy| told = Some(greedy.clone()));
    assert_eq!(told.as_ref(), Some(&greedy), "what the rules found is told");
    assert!(!greedy.optimal && greedy.capacity > packing.capacity, "here rules leave something");
    assert!(matches!(greedy.method, Method::Greedy(_)));
    assert!(pack_quick(&items, 1).capacity >= greedy.capacity);
}

#[test]
fn what_lives_together_and_does_not_fit_is_infeasible() {
    for name in ["A.1048576", "resnet50.somas"] {
        let items = instance(name);
        let live = max_live(&items).expect("it can be counted");
        assert_eq!(solve(&items, 1, live - 1, nodes(10)), Outcome::Infeasible);
    }
    // 40 bytes lie at multiples of 64 as 64.
    assert_eq!(solve(&[item(0, 1, 40), item(0, 1, 40)], 64, 127, nodes(10)), Outcome::Infeasible);
    assert!(matches!(solve(&[item(0, 1, 40), item(0, 1, 40)], 64, 128, nodes(10)), Outcome::Packed(_)));
}

/// As (lower, upper, size): of these 6 bytes live at once, but they fit only into 7. So few are rarely like that.
const TIGHT: [(usize, usize, u64); 7] = [(0, 2, 4), (0, 1, 2), (1, 4, 1), (1, 5, 1), (2, 5, 3), (4, 6, 2), (5, 6, 4)];

#[test]
fn the_most_live_bytes_are_not_always_enough() {
    let items = TIGHT.map(|(lower, upper, size)| item(lower, upper, size));
    assert_eq!(max_live(&items), Some(6));
    assert_eq!(solve(&items, 1, 6, Limits::default()), Outcome::Infeasible);
    check_solved(&items, 7, 1_000);
    let packing = pack(&items, 1);
    assert!(packing.capacity == 7 && packing.optimal, "that 6 is not enough was proved: {packing:?}");
}

#[test]
fn limits_end_the_search_without_a_verdict() {
    let items = instance("E.1048576");
    let past = Limits { nodes: None, deadline: Some(Instant::now()) };
    assert_eq!(solve(&items, 1, 1 << 20, past), Outcome::GaveUp);
    assert_eq!(solve(&items, 1, 1 << 20, nodes(10)), Outcome::GaveUp);
    let packing = pack_within(&items, 1, past, &mut |_| {});
    assert!(!packing.optimal, "without time there is still a packing");
    validate(&items, &packing.offsets, 1, packing.capacity).expect("a packing holds");
}

#[test]
fn the_last_item_is_not_rounded_up() {
    // Whichever of them is above.
    let packing = pack(&[item(0, 2, 65), item(1, 3, 1)], 64);
    assert_eq!((packing.capacity, packing.optimal), (129, true));
}

#[test]
fn odd_items_are_packed() {
    assert_eq!(pack(&[], 64).capacity, 0);
    // Nothing to place, never alive, alive backwards.
    let packing = pack(&[item(0, 5, 0), item(3, 3, 9), item(5, 2, 9), item(1, 2, 65)], 64);
    assert!(packing.optimal);
    assert_eq!((packing.capacity, packing.offsets[3]), (65, 0));
    // An alignment of 0 means none.
    assert_eq!(pack(&[item(0, 1, 3), item(0, 1, 4)], 0).capacity, 7);
}

#[test]
fn more_bytes_than_can_be_counted_do_not_fit() {
    let huge = [item(0, 2, u64::MAX), item(1, 3, u64::MAX), item(0, usize::MAX, 1)];
    assert_eq!(max_live(&huge), None);
    assert_eq!(solve(&huge, 1, u64::MAX, Limits::default()), Outcome::Infeasible);
    for packing in [pack(&huge, 64), pack_quick(&huge, 1)] {
        assert!(packing.capacity == u64::MAX && !packing.optimal);
    }
    // One after the other they would fit, but offsets could be wrong.
    let row = [item(0, 1, u64::MAX / 2), item(1, 2, u64::MAX / 2)];
    assert_eq!(solve(&row, 1, u64::MAX, Limits::default()), Outcome::GaveUp);
}

#[test]
fn thousands_of_items_are_packed() {
    // A pyramid with stairs on its flank: deep enough to overflow a stack, were there recursion.
    let nested = (0..3000).map(|i| item(i, 10_000 - i, 8));
    let stairs = (0..3000).map(|i| item(5_000 + i, 10_003 + i, 8));
    let items: Vec<Item> = nested.chain(stairs).collect();
    let packing = pack(&items, 8);
    validate(&items, &packing.offsets, 8, packing.capacity).expect("a packing holds");
    check_solved(&items, packing.capacity, 20_000);
}

/// Whether there is a packing, for items none of which is larger than the capacity: goes through time with every
/// arrangement of what is live, as (offset, size, upper).
fn fits(items: &[Item], capacity: u64) -> bool {
    type Arrangement = Vec<(u64, u64, usize)>;
    let end = items.iter().map(|i| i.upper).max().unwrap_or(0);
    let mut arrangements: BTreeSet<Arrangement> = BTreeSet::from([Vec::new()]);
    for now in 0..end {
        let alive = |a: Arrangement| a.into_iter().filter(|&(.., upper)| upper > now).collect();
        arrangements = arrangements.into_iter().map(alive).collect();
        for item in items.iter().filter(|i| i.lower == now) {
            let mut next = BTreeSet::new();
            for (arrangement, offset) in
                arrangements.iter().flat_map(|a| (0..=capacity - item.size).map(move |o| (a, o)))
            {
                if arrangement.iter().all(|&(o, size, _)| o + size <= offset || offset + item.size <= o) {
                    let mut arrangement = arrangement.clone();
                    arrangement.push((offset, item.size, item.upper));
                    arrangement.sort_unstable();
                    next.insert(arrangement);
                }
            }
            arrangements = next;
        }
    }
    !arrangements.is_empty()
}

/// Where new items go while time passes.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    /// Into gaps: what comes out is a packing, so it can be packed.
    Gaps,
    /// Anywhere, as long as the bytes suffice: what comes out may not fit.
    Bytes,
}

/// Items that keep `capacity` bytes full all the time, made from a row of random numbers.
fn full(capacity: u64, fill: Fill, numbers: &[u32]) -> Vec<Item> {
    let mut numbers = numbers.iter().copied();
    let mut draw = |below: u64| u64::from(numbers.next().unwrap_or(0)) % below;
    let mut done: Vec<Item> = Vec::new();
    // (offset, item); offsets mean nothing where only bytes count.
    let mut live: Vec<(u64, Item)> = Vec::new();
    for now in 0..4 + draw(8) as usize {
        let (kept, ended) = live.into_iter().partition(|_| draw(3) > 0);
        live = kept;
        done.extend(ended.into_iter().map(|(_, i): (u64, Item)| Item { upper: now, ..i }));
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        live.sort_unstable_by_key(|&(offset, _)| offset);
        let mut end = 0;
        for &(offset, item) in &live {
            gaps.push((end, offset - end));
            end = offset + item.size;
        }
        gaps.push((end, capacity - end));
        if fill == Fill::Bytes {
            // Only the sum of the gaps counts: close them all.
            let bytes = gaps.iter().map(|g| g.1).sum::<u64>();
            let mut at = 0;
            live.iter_mut().for_each(|(offset, item)| {
                *offset = at;
                at += item.size;
            });
            gaps = vec![(at, bytes)];
        }
        for (mut offset, mut bytes) in gaps {
            while bytes > 0 {
                let size = 1 + draw(bytes);
                live.push((offset, Item { lower: now, upper: 0, size }));
                (offset, bytes) = (offset + size, bytes - size);
            }
        }
    }
    let end = 1 + done.iter().chain(live.iter().map(|(_, i)| i)).map(|i| i.lower).max().unwrap_or(0);
    done.extend(live.into_iter().map(|(_, i)| Item { upper: end, ..i }));
    done
}

proptest! {
    #[test]
    fn items_that_live_together_never_overlap(
        raw in prop::collection::vec((0usize..20, 0usize..10, 0u64..1000), 0..60),
        alignment in prop::sample::select(vec![1u64, 16, 64]),
    ) {
        let items: Vec<Item> = raw.iter().map(|&(lower, len, size)| item(lower, lower + len, size)).collect();
        let rounded: Vec<Item> =
            items.iter().map(|i| Item { size: i.size.next_multiple_of(alignment), ..*i }).collect();
        let (packing, quick) = (pack(&items, alignment), pack_quick(&items, alignment));
        for p in [&packing, &quick] {
            let end = p.capacity.next_multiple_of(alignment);
            prop_assert_eq!(validate(&items, &p.offsets, alignment, p.capacity), Ok(()));
            prop_assert_eq!(validate(&rounded, &p.offsets, alignment, end), Ok(()));
            prop_assert!(p.optimal || Some(end) > max_live(&rounded));
        }
        prop_assert!(packing.capacity.next_multiple_of(alignment) <= quick.capacity.next_multiple_of(alignment));
    }

    #[test]
    fn what_was_cut_from_a_full_rectangle_fits_again(
        capacity in 8u64..64,
        numbers in prop::collection::vec(any::<u32>(), 150),
    ) {
        let items = full(capacity, Fill::Gaps, &numbers);
        prop_assert_eq!(max_live(&items), Some(capacity));
        prop_assert!(check_solved(&items, capacity, 300_000).optimal);
    }

    #[test]
    fn feasibility_agrees_with_brute_force(
        capacity in 4u64..7,
        numbers in prop::collection::vec(any::<u32>(), 120),
    ) {
        let items = full(capacity, Fill::Bytes, &numbers);
        match solve(&items, 1, capacity, Limits::default()) {
            Outcome::Packed(packing) => prop_assert_eq!(validate(&items, &packing.offsets, 1, capacity), Ok(())),
            Outcome::Infeasible => prop_assert!(!fits(&items, capacity)),
            Outcome::GaveUp => prop_assert!(false, "gave up without limits"),
        }
    }

    #[test]
    fn the_best_packing_is_that_of_brute_force(
        changes in prop::collection::vec((0usize..7, 0usize..3, any::<bool>()), 0..4),
        from_the_end in any::<bool>(),
    ) {
        // A little changed, about a third of them still needs more than what lives at once.
        let mut items = TIGHT.map(|(lower, upper, size)| item(lower, upper, size));
        for (which, field, more) in changes {
            let Item { lower, upper, size } = &mut items[which];
            match (field, more) {
                (0, true) => *lower = (*lower + 1).min(*upper - 1),
                (0, false) => *lower = lower.saturating_sub(1),
                (1, true) => *upper += 1,
                (1, false) => *upper = (*upper - 1).max(*lower + 1),
                (_, true) => *size += 1,
                (_, false) => *size = (*size - 1).max(1),
            }
        }
        if from_the_end {
            items = items.map(|i| item(20 - i.upper, 20 - i.lower, i.size));
        }
        let live = max_live(&items).expect("a few bytes");
        let least = (live..).find(|&capacity| fits(&items, capacity)).expect("a larger one fits");
        let packing = pack(&items, 1);
        prop_assert_eq!((packing.capacity, packing.optimal), (least, true));
        if least > live {
            prop_assert_eq!(solve(&items, 1, least - 1, Limits::default()), Outcome::Infeasible);
        }
    }
}
