//! Checks a packing: every item by itself, then every pair that lives together. It shares no code with what packs.

use super::Item;

/// Whether all items lie within the capacity at multiples of the alignment, and none overlaps another that lives at the
/// same time; else which does.
pub fn validate(items: &[Item], offsets: &[u64], alignment: u64, capacity: u64) -> Result<(), String> {
    if items.len() != offsets.len() {
        return Err(format!("{} items have {} offsets", items.len(), offsets.len()));
    }
    let describe = |i: usize| {
        let Item { lower, upper, size } = items[i];
        format!("item {i} ({size} bytes at {}, living {lower}..{upper})", offsets[i])
    };
    // (lower, upper, offset, end, item) of what takes up room.
    let mut rows = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate().filter(|(_, i)| i.lower < i.upper && i.size > 0) {
        match offsets[i].checked_add(item.size) {
            Some(end) if end <= capacity => rows.push((item.lower, item.upper, offsets[i], end, i)),
            Some(_) | None => return Err(format!("{} does not end within {capacity}", describe(i))),
        }
        if !offsets[i].is_multiple_of(alignment) {
            return Err(format!("{} is not at a multiple of {alignment}", describe(i)));
        }
    }
    // By birth: whoever is born later, but before a death, lives together with the one who dies.
    rows.sort_unstable();
    for (at, &(_, upper, offset, end, i)) in rows.iter().enumerate() {
        for &(_, _, other_offset, other_end, j) in rows[at + 1..].iter().take_while(|r| r.0 < upper) {
            if offset < other_end && other_offset < end {
                return Err(format!("{} overlaps {}", describe(i), describe(j)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(lower: usize, upper: usize, size: u64) -> Item {
        Item { lower, upper, size }
    }

    fn check(offsets: &[u64], alignment: u64, capacity: u64) -> Result<(), String> {
        let items = [item(2, 4, 10), item(0, 2, 10), item(1, 3, 10)];
        validate(&items, offsets, alignment, capacity)
    }

    #[test]
    fn what_touches_is_no_overlap() {
        assert_eq!(check(&[0, 0, 10], 1, 20), Ok(()));
        assert_eq!(check(&[10, 10, 0], 10, 20), Ok(()));
    }

    #[test]
    fn what_overlaps_is_named() {
        for (offsets, pair) in [([0, 9, 10], ["item 1", "item 2"]), ([1, 0, 10], ["item 0", "item 2"])] {
            let problem = check(&offsets, 1, 30).expect_err("they overlap");
            assert!(pair.iter().all(|name| problem.contains(name)), "{problem}");
        }
    }

    #[test]
    fn what_lies_outside_or_unaligned_is_named() {
        assert!(check(&[0, 0, 10], 1, 19).is_err_and(|e| e.contains("item 2") && e.contains("19")));
        assert!(check(&[0, 0, u64::MAX], 1, u64::MAX).is_err(), "an end past the last number is outside");
        assert!(check(&[0, 0, 10], 4, 20).is_err_and(|e| e.contains("item 2") && e.contains("multiple of 4")));
        assert!(check(&[0, 10], 1, 20).is_err());
    }

    #[test]
    fn what_never_lives_or_has_no_bytes_lies_anywhere() {
        let items = [item(1, 1, 9), item(0, 2, 4), item(2, 0, 9), item(0, 2, 0)];
        assert_eq!(validate(&items, &[0, 0, 0, 99], 1, 4), Ok(()));
    }
}
