//! Packing: buffers with lifetimes and sizes get offsets, so that no two that live together overlap.

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
    pub offsets: Vec<u64>,
    pub capacity: u64,
}

/// What is placed first: the item with the largest key.
type Rule = fn(&Item) -> (u64, u64);

/// The rules tried; the best result is kept.
const RULES: [Rule; 3] = [
    // Largest first.
    |i| (i.size, (i.upper - i.lower) as u64),
    // Longest first.
    |i| ((i.upper - i.lower) as u64, i.size),
    // Largest area first.
    |i| (i.size.saturating_mul((i.upper - i.lower) as u64), i.size),
];

/// Packs by several greedy rules: in the order of the rule, each item goes to the lowest gap that is free all its life.
pub fn pack(items: &[Item], alignment: u64) -> Packing {
    let mut best: Option<Packing> = None;
    for rule in RULES {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(rule(&items[i])), i));
        let packing = place_in_order(items, &order, alignment);
        if best.as_ref().is_none_or(|b| packing.capacity < b.capacity) {
            best = Some(packing);
        }
    }
    best.unwrap_or(Packing { offsets: Vec::new(), capacity: 0 })
}

fn place_in_order(items: &[Item], order: &[usize], alignment: u64) -> Packing {
    let mut offsets = vec![0; items.len()];
    // Placed items by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    let mut capacity = 0;
    for &i in order {
        let item = &items[i];
        let mut offset = 0u64;
        for &j in &placed {
            let other = &items[j];
            let together = other.lower < item.upper && item.lower < other.upper;
            if !together {
                continue;
            }
            if offsets[j] >= offset + item.size {
                break;
            }
            offset = offset.max((offsets[j] + other.size).next_multiple_of(alignment));
        }
        offsets[i] = offset;
        capacity = capacity.max(offset + item.size);
        let at = placed.partition_point(|&j| offsets[j] <= offset);
        placed.insert(at, i);
    }
    Packing { offsets, capacity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_that_live_together_never_overlap(
            raw in prop::collection::vec((0usize..20, 1usize..10, 1u64..1000), 0..60)
        ) {
            let items: Vec<Item> =
                raw.iter().map(|&(lower, len, size)| Item { lower, upper: lower + len, size }).collect();
            let p = pack(&items, 64);
            for (i, a) in items.iter().enumerate() {
                prop_assert_eq!(p.offsets[i] % 64, 0);
                prop_assert!(p.offsets[i] + a.size <= p.capacity);
                for (j, b) in items.iter().enumerate().skip(i + 1) {
                    let together = a.lower < b.upper && b.lower < a.upper;
                    let overlap = p.offsets[i] < p.offsets[j] + b.size && p.offsets[j] < p.offsets[i] + a.size;
                    prop_assert!(!(together && overlap), "{:?} at {} and {:?} at {}", a, p.offsets[i], b, p.offsets[j]);
                }
            }
        }
    }
}
