//! The tables of a baseline JPEG: quantization and Huffman tables, and which component uses which.

use super::super::super::DecodeError;
use super::super::header::{Header, Segment, marker};
use super::huffman::HuffmanTable;

/// What the segments before the scan and the scan's own header say.
pub(super) struct Tables {
    /// By component: the quantization table, in zigzag order.
    pub quantization: Vec<[f32; 64]>,
    /// By component: the numbers of its DC and AC tables.
    pub selectors: Vec<(usize, usize)>,
    pub dc: HuffmanTables,
    pub ac: HuffmanTables,
    /// MCUs between restart markers; 0 is none.
    pub restart_interval: usize,
    /// Where the entropy-coded segment starts.
    pub data: usize,
}

/// By their numbers.
type HuffmanTables = [Option<Box<HuffmanTable>>; 4];

/// What tables take at most, for the pool.
pub(super) const BYTES: u64 = 8 * size_of::<HuffmanTable>() as u64 + 4096;

impl Tables {
    /// None where the scan is not one of all components, in their order.
    pub fn read(bytes: &[u8], header: &Header) -> Result<Option<Tables>, DecodeError> {
        let mut stored = [None; 4];
        let (mut dc, mut ac) = ([const { None }; 4], [const { None }; 4]);
        let (mut at, mut restart_interval) = (2, 0);
        while at < header.sos {
            let segment = Segment::next(bytes, at)?;
            match (segment.marker, segment.payload) {
                (marker::DQT, payload) => read_quantization(payload, &mut stored)?,
                (marker::DHT, payload) => read_huffman(payload, &mut dc, &mut ac)?,
                (marker::DRI, [a, b]) => restart_interval = u16::from_be_bytes([*a, *b]) as usize,
                _ => {}
            }
            at = segment.end;
        }
        let scan = Segment::next(bytes, header.sos)?;
        let Some(selectors) = read_scan_header(scan.payload, header) else { return Ok(None) };
        if selectors.iter().any(|(d, a)| dc[*d].is_none() || ac[*a].is_none()) {
            return Err("a component uses a Huffman table that is not there; the file is damaged".into());
        }
        let quantization: Option<Vec<_>> = header.components.iter().map(|c| stored[c.quantization]).collect();
        let quantization =
            quantization.ok_or("a component uses a quantization table that is not there; the file is damaged")?;
        Ok(Some(Tables { quantization, selectors, dc, ac, restart_interval, data: scan.end }))
    }
}

fn read_quantization(mut payload: &[u8], tables: &mut [Option<[f32; 64]>; 4]) -> Result<(), DecodeError> {
    while let [head, rest @ ..] = payload {
        let bytes = if head >> 4 == 0 { 1 } else { 2 };
        let (values, rest) =
            rest.split_at_checked(64 * bytes).ok_or("a quantization table is cut off; the file is damaged")?;
        let table =
            tables.get_mut((head & 15) as usize).ok_or("there is a fifth quantization table; the file is damaged")?;
        let value = |i: usize| values[i * bytes..][..bytes].iter().fold(0u16, |sum, byte| sum << 8 | *byte as u16);
        *table = Some(std::array::from_fn(|i| value(i) as f32));
        payload = rest;
    }
    Ok(())
}

fn read_huffman(mut payload: &[u8], dc: &mut HuffmanTables, ac: &mut HuffmanTables) -> Result<(), DecodeError> {
    while let [head, rest @ ..] = payload {
        let (counts, rest) = rest.split_first_chunk::<16>().ok_or("a Huffman table is cut off; the file is damaged")?;
        let total: usize = counts.iter().map(|n| *n as usize).sum();
        let (symbols, rest) = rest.split_at_checked(total).ok_or("a Huffman table is cut off; the file is damaged")?;
        let table = match (head >> 4, head & 15) {
            (0, number @ 0..=3) => &mut dc[number as usize],
            (1, number @ 0..=3) => &mut ac[number as usize],
            _ => return Err("a Huffman table has no place; the file is damaged".into()),
        };
        *table = Some(Box::new(HuffmanTable::new(counts, symbols)?));
        payload = rest;
    }
    Ok(())
}

/// The DC and AC tables of each component, if all of them are in the scan and in the order of the frame.
fn read_scan_header(payload: &[u8], header: &Header) -> Option<Vec<(usize, usize)>> {
    let [count, rest @ ..] = payload else { return None };
    let count = *count as usize;
    if count != header.components.len() || rest.len() != count * 2 + 3 {
        return None;
    }
    let selectors = rest.chunks_exact(2).zip(&header.components).map(|(pair, component)| {
        let (dc, ac) = ((pair[1] >> 4) as usize, (pair[1] & 15) as usize);
        (pair[0] == component.id && dc < 4 && ac < 4).then_some((dc, ac))
    });
    selectors.collect()
}
