//! The tables of a baseline JPEG: quantisers and Huffman codes, and which component uses which.

use super::super::super::Fault;
use super::super::header::{Header, Segment};
use super::huffman::Table;

/// What the segments before the scan and the scan's own header say.
pub(super) struct Tables {
    /// By component: the quantiser in the order of the coefficients in the file.
    pub quantisers: Vec<[f32; 64]>,
    /// By component: the numbers of its tables.
    pub uses: Vec<(usize, usize)>,
    pub first: [Option<Box<Table>>; 4],
    pub others: [Option<Box<Table>>; 4],
    /// Units between restart markers; 0 is none.
    pub restart: usize,
    /// Where the data starts.
    pub data: usize,
}

/// What tables take at most, for the pool.
pub(super) const BYTES: u64 = 8 * size_of::<Table>() as u64 + 4096;

impl Tables {
    /// None where the scan is not one of all components, in their order.
    pub fn read(bytes: &[u8], header: &Header) -> Result<Option<Tables>, Fault> {
        let mut stored = [None; 4];
        let (mut first, mut others) = ([const { None }; 4], [const { None }; 4]);
        let (mut at, mut restart) = (2, 0);
        while at < header.scan {
            let segment = Segment::next(bytes, at)?;
            match (segment.marker, segment.payload) {
                (0xdb, payload) => read_quantisers(payload, &mut stored)?,
                (0xc4, payload) => read_codes(payload, &mut first, &mut others)?,
                (0xdd, [a, b]) => restart = u16::from_be_bytes([*a, *b]) as usize,
                _ => {}
            }
            at = segment.end;
        }
        let scan = Segment::next(bytes, header.scan)?;
        let Some(uses) = read_scan(scan.payload, header) else { return Ok(None) };
        if uses.iter().any(|(a, b)| first[*a].is_none() || others[*b].is_none()) {
            return Err("a component uses a Huffman table that is not there; the file is damaged".into());
        }
        let quantisers = header.components.iter().map(|c| stored[c.quantiser]);
        let quantisers: Option<Vec<_>> = quantisers.collect();
        let quantisers = quantisers.ok_or("a component uses a quantiser that is not there; the file is damaged")?;
        Ok(Some(Tables { quantisers, uses, first, others, restart, data: scan.end }))
    }
}

fn read_quantisers(mut payload: &[u8], stored: &mut [Option<[f32; 64]>; 4]) -> Result<(), Fault> {
    while let [head, rest @ ..] = payload {
        let bytes = if head >> 4 == 0 { 1 } else { 2 };
        let (values, rest) = rest.split_at_checked(64 * bytes).ok_or("a quantiser is cut off; the file is damaged")?;
        let place = stored.get_mut((head & 15) as usize).ok_or("there is a fifth quantiser; the file is damaged")?;
        let value = |i: usize| values[i * bytes..][..bytes].iter().fold(0u16, |sum, byte| sum << 8 | *byte as u16);
        *place = Some(std::array::from_fn(|i| value(i) as f32));
        payload = rest;
    }
    Ok(())
}

type Codes = [Option<Box<Table>>; 4];

fn read_codes(mut payload: &[u8], first: &mut Codes, others: &mut Codes) -> Result<(), Fault> {
    while let [head, rest @ ..] = payload {
        let (counts, rest) = rest.split_first_chunk::<16>().ok_or("a Huffman table is cut off; the file is damaged")?;
        let total: usize = counts.iter().map(|n| *n as usize).sum();
        let (symbols, rest) = rest.split_at_checked(total).ok_or("a Huffman table is cut off; the file is damaged")?;
        let place = match (head >> 4, head & 15) {
            (0, number @ 0..=3) => &mut first[number as usize],
            (1, number @ 0..=3) => &mut others[number as usize],
            _ => return Err("a Huffman table has no place; the file is damaged".into()),
        };
        *place = Some(Box::new(Table::new(counts, symbols)?));
        payload = rest;
    }
    Ok(())
}

/// The tables of each component, if all of them are in the scan and in the order of the frame.
fn read_scan(payload: &[u8], header: &Header) -> Option<Vec<(usize, usize)>> {
    let [count, rest @ ..] = payload else { return None };
    let count = *count as usize;
    if count != header.components.len() || rest.len() != count * 2 + 3 {
        return None;
    }
    let uses = rest.chunks_exact(2).zip(&header.components).map(|(pair, component)| {
        let (first, others) = ((pair[1] >> 4) as usize, (pair[1] & 15) as usize);
        (pair[0] == component.id && first < 4 && others < 4).then_some((first, others))
    });
    uses.collect()
}
