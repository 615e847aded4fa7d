//! An instance as the search sees it: time cut into sections, and the parts that have nothing to do with each other apart.
//! Nothing is decided here that could cost a byte.

use super::Item;

/// A buffer of a core. Sections are half-open: `first .. end`.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Which of the items it is.
    pub item: usize,
    pub first: usize,
    pub end: usize,
    /// Bytes.
    pub size: u64,
    /// Steps that it lives.
    pub length: u64,
}

/// A part of the instance that is packed by itself.
#[derive(Clone, Debug)]
pub struct Core {
    /// Bytes below it that are taken by buffers which live through all of it.
    pub base: u64,
    pub sections: usize,
    pub buffers: Vec<Buffer>,
}

/// Buffers to look at while splitting; what is left then is a core as it is. Nested lives of many thousands need this.
const MOST_LOOKS: usize = 1 << 26;

/// Splits an instance into cores, the smallest first. A buffer that meets everything in its part may lie below all of it,
/// so it gets its offset at once; taking it away often lets the part fall apart.
pub fn split(items: &[Item], offsets: &mut [u64]) -> Vec<Core> {
    let mut buffers = buffers(items);
    let sections = compress(&mut buffers);
    let mut cores = Vec::new();
    let mut todo = vec![Core { base: 0, sections, buffers }];
    let mut looked_at = 0;
    while let Some(part) = todo.pop() {
        looked_at += part.buffers.len();
        for mut part in connected(part) {
            let (first, end) = (part.buffers[0].first, last_end(&part.buffers));
            let before = part.buffers.len();
            part.buffers.retain(|b| {
                let through = (b.first, b.end) == (first, end);
                if through {
                    offsets[b.item] = part.base;
                    part.base += b.size;
                }
                !through
            });
            if part.buffers.len() < before && looked_at < MOST_LOOKS {
                todo.push(part);
            } else if !part.buffers.is_empty() {
                part.sections = compress(&mut part.buffers);
                cores.push(part);
            }
        }
    }
    cores.sort_by_key(|c| c.buffers.len());
    cores
}

/// The items that take up room, with sections still to be numbered.
pub fn buffers(items: &[Item]) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::with_capacity(items.len());
    for (item, i) in items.iter().enumerate() {
        if i.size > 0 && i.lower < i.upper {
            let length = (i.upper - i.lower) as u64;
            buffers.push(Buffer { item, first: i.lower, end: i.upper, size: i.size, length });
        }
    }
    buffers
}

fn last_end(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|b| b.end).max().unwrap_or(0)
}

/// Cuts a part where nothing lives across.
fn connected(part: Core) -> Vec<Core> {
    let Core { base, sections, mut buffers } = part;
    buffers.sort_by_key(|b| b.first);
    let mut parts: Vec<Core> = Vec::new();
    let mut end = 0;
    for b in buffers {
        match parts.last_mut() {
            Some(p) if b.first < end => p.buffers.push(b),
            _ => parts.push(Core { base, sections, buffers: vec![b] }),
        }
        end = end.max(b.end);
    }
    parts
}

/// By buffer: the most bytes that live at once during its life.
pub fn contention(buffers: &[Buffer], sections: usize) -> Vec<u64> {
    let (mut begins, mut ends) = (vec![0; sections + 1], vec![0; sections + 1]);
    for b in buffers {
        begins[b.first] += b.size;
        ends[b.end] += b.size;
    }
    let mut live = 0;
    let live_bytes = (0..sections).map(|s| {
        live = live + begins[s] - ends[s];
        live
    });
    // The maximum of 2ᵏ sections from each section on, for each k.
    let mut most: Vec<Vec<u64>> = vec![live_bytes.collect()];
    while let Some(last) = most.last()
        && let width = 1 << (most.len() - 1)
        && last.len() > width
    {
        let wider = last.iter().zip(&last[width..]).map(|(a, b)| *a.max(b)).collect();
        most.push(wider);
    }
    let of = |b: &Buffer| {
        let k = (b.end - b.first).ilog2() as usize;
        most[k][b.first].max(most[k][b.end - (1 << k)])
    };
    buffers.iter().map(of).collect()
}

/// Renumbers time by its sections: the instants at which a set of buffers lives that is part of no other instant's set.
/// Only they can be full. Returns how many there are.
pub fn compress(buffers: &mut [Buffer]) -> usize {
    let mut starts: Vec<usize> = buffers.iter().map(|b| b.first).collect();
    let mut ends: Vec<usize> = buffers.iter().map(|b| b.end).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    // A section is the latest start before an end, once for all ends that follow it.
    let mut instants: Vec<usize> = Vec::new();
    for &end in &ends {
        let latest = starts[..starts.partition_point(|&s| s < end)].last();
        if let Some(&latest) = latest
            && instants.last() != Some(&latest)
        {
            instants.push(latest);
        }
    }
    for b in buffers {
        b.first = instants.partition_point(|&t| t < b.first);
        b.end = instants.partition_point(|&t| t < b.end);
    }
    instants.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(lower: usize, upper: usize, size: u64) -> Item {
        Item { lower, upper, size }
    }

    #[test]
    fn sections_are_the_fullest_instants() {
        let mut offsets = [0; 4];
        // 10..30 meets 0..20 and 25..40, which meets 35..50.
        let items = [item(0, 20, 1), item(10, 30, 1), item(25, 40, 1), item(35, 50, 1)];
        let cores = split(&items, &mut offsets);
        assert_eq!(cores.len(), 1);
        assert_eq!(cores[0].sections, 3);
        let ranges: Vec<_> = cores[0].buffers.iter().map(|b| (b.first, b.end)).collect();
        assert_eq!(ranges, [(0, 1), (0, 2), (1, 3), (2, 3)]);
    }

    #[test]
    fn nested_lives_need_no_search() {
        let items = [item(0, 10, 4), item(1, 9, 3), item(2, 5, 2), item(5, 8, 2), item(20, 30, 7)];
        let mut offsets = [0; 5];
        assert!(split(&items, &mut offsets).is_empty());
        assert_eq!(offsets, [0, 4, 7, 7, 0]);
    }

    #[test]
    fn empty_lives_and_sizes_lie_anywhere() {
        let mut offsets = [0; 3];
        assert!(split(&[item(3, 3, 5), item(9, 2, 5), item(0, 9, 0)], &mut offsets).is_empty());
    }
}
