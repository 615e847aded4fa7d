//! Our own decoder for what most JPEGs are: Huffman-coded, one scan, YCbCr or grey. It decodes a part of an image:
//! codes are read from the start to the part's last row, but only what lies in the part becomes pixels. Everything else
//! is the library's.

mod bits;
mod colour;
mod huffman;
mod idct;
mod tables;

use self::bits::Bits;
use self::colour::{Plane, Scratch};
use self::huffman::Table;
use self::tables::Tables;
use super::super::{Channels, Fault, Region, blank};
use super::header::{Coding, Component, Header, cut_off};
use crate::memory::{Buffer, BytePool};
use crate::simd::wide;
use crate::tensor::Tensor;

/// A region of the image as it is stored; none where this decoder is not made for the file.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    region: Region,
    channels: Channels,
    pool: &BytePool,
) -> Result<Option<Tensor>, Fault> {
    let Some(half) = layout(header) else { return Ok(None) };
    let _tables = pool.take(tables::BYTES)?;
    let Some(tables) = Tables::read(bytes, header)? else { return Ok(None) };
    let units = Units::around(header, region);
    let kept = if channels == Channels::Grey { 1 } else { header.components.len() };
    let mut parts = Vec::new();
    for component in &header.components[..kept] {
        parts.push(Part::new(header, *component, units, pool)?);
    }
    read_units(bytes, header, &tables, units, &mut parts)?;
    let mut image = blank(region.height, region.width, channels.count(), pool)?;
    let planes: Vec<Plane> = parts.iter().map(Part::plane).collect();
    let row_bytes = region.width * channels.count();
    let rows = image.bytes_mut().chunks_exact_mut(row_bytes).zip(region.top..);
    match <[Plane; 3]>::try_from(planes) {
        Ok(planes) => {
            let mut scratch = Scratch::new(region.width, pool)?;
            rows.for_each(|(out, y)| colour::rgb_row(&planes, half, y, region.left, &mut scratch, out));
        }
        Err(grey) => rows.for_each(|(out, y)| grey_row(&grey[0], y, region.left, channels, out)),
    }
    Ok(Some(image))
}

/// Whether colours are halved across and down, where the frame is one that this decoder knows.
fn layout(header: &Header) -> Option<(bool, bool)> {
    let half = match header.components[..] {
        // A single component is a plane of blocks, whatever its sampling says.
        [_] => (false, false),
        [y, b, r] if (b.across, b.down, r.across, r.down) == (1, 1, 1, 1) && y.across <= 2 && y.down <= 2 => {
            (y.across == 2, y.down == 2)
        }
        _ => return None,
    };
    (header.coding == Coding::Baseline && header.is_ycc()).then_some(half)
}

/// Which units of a scan lie in a part, and how large a unit is.
#[derive(Clone, Copy)]
struct Units {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
    /// Blocks of the largest component, across and down.
    across: usize,
    down: usize,
}

impl Units {
    /// Those of a region with two pixels around it, which drawing out colours looks at.
    fn around(header: &Header, region: Region) -> Units {
        let (across, down) = if header.components.len() == 1 { (1, 1) } else { header.sampling() };
        let (width, height) = (8 * across, 8 * down);
        Units {
            top: region.top.saturating_sub(2) / height,
            left: region.left.saturating_sub(2) / width,
            bottom: (region.top + region.height + 2).min(header.height).div_ceil(height),
            right: (region.left + region.width + 2).min(header.width).div_ceil(width),
            across,
            down,
        }
    }
}

/// The decoded part of one component.
struct Part {
    samples: Buffer,
    stride: usize,
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

impl Part {
    fn new(header: &Header, component: Component, units: Units, pool: &BytePool) -> Result<Part, Fault> {
        let (across, down) = if header.components.len() == 1 { (1, 1) } else { (component.across, component.down) };
        let stride = (units.right - units.left) * across * 8;
        let rows = (units.bottom - units.top) * down * 8;
        Ok(Part {
            samples: pool.buffer(stride * rows)?,
            stride,
            top: units.top * down * 8,
            left: units.left * across * 8,
            height: (header.height * down).div_ceil(units.down),
            width: (header.width * across).div_ceil(units.across),
        })
    }

    fn plane(&self) -> Plane<'_> {
        let Part { stride, top, left, height, width, .. } = *self;
        Plane { samples: self.samples.bytes(), stride, top, left, height, width }
    }
}

/// One component as the scan has it.
struct Coded<'a> {
    across: usize,
    down: usize,
    first: &'a Table,
    others: &'a Table,
    quantiser: &'a [f32; 64],
    /// The last first coefficient, to which the next is a difference.
    before: i32,
}

wide! {
    fn read_units(
        bytes: &[u8],
        header: &Header,
        tables: &Tables,
        units: Units,
        parts: &mut [Part],
    ) -> Result<(), Fault> {
        let mut coded = coded(header, tables)?;
        let across = header.width.div_ceil(8 * units.across);
        let mut bits = Bits::new(bytes, tables.data);
        let mut left_to_restart = tables.restart;
        for y in 0..units.bottom {
            for x in 0..across {
                if tables.restart > 0 {
                    if left_to_restart == 0 {
                        bits = bits.restarted().ok_or("a restart marker is missing; the file is damaged")?;
                        coded.iter_mut().for_each(|c| c.before = 0);
                        left_to_restart = tables.restart;
                    }
                    left_to_restart -= 1;
                }
                let inside = y >= units.top && x >= units.left && x < units.right;
                let read = if inside {
                    read_unit(&mut bits, &mut coded, y - units.top, x - units.left, parts)
                } else {
                    skip_unit(&mut bits, &mut coded)
                };
                read.ok_or_else(|| damaged(bits.overrun(), bytes))?;
            }
            if bits.overrun() {
                return Err(cut_off(bytes));
            }
        }
        Ok(())
    }
}

fn coded<'a>(header: &Header, tables: &'a Tables) -> Result<Vec<Coded<'a>>, Fault> {
    let one = header.components.len() == 1;
    let coded =
        header.components.iter().zip(&tables.uses).zip(&tables.quantisers).map(|((c, (first, others)), quantiser)| {
            let (across, down) = if one { (1, 1) } else { (c.across, c.down) };
            let (first, others) = (tables.first[*first].as_deref()?, tables.others[*others].as_deref()?);
            Some(Coded { across, down, first, others, quantiser, before: 0 })
        });
    coded.collect::<Option<_>>().ok_or_else(|| "a Huffman table is missing; the file is damaged".into())
}

fn damaged(overrun: bool, bytes: &[u8]) -> Fault {
    if overrun { cut_off(bytes) } else { "the JPEG is damaged: its codes make no sense; copy the file again".into() }
}

/// Reads the blocks of a unit and writes their pixels, of those components that have a part.
#[inline(always)]
fn read_unit(bits: &mut Bits, coded: &mut [Coded], y: usize, x: usize, parts: &mut [Part]) -> Option<()> {
    for (i, component) in coded.iter_mut().enumerate() {
        for j in 0..component.across * component.down {
            let (down, across) = (j / component.across, j % component.across);
            match parts.get_mut(i) {
                Some(part) => {
                    let mut block = [0f32; 64];
                    let flat = read_block(bits, component, &mut block)?;
                    let (row, column) = ((y * component.down + down) * 8, (x * component.across + across) * 8);
                    let out = &mut part.samples.bytes_mut()[row * part.stride + column..];
                    match flat {
                        true => idct::flat(block[0], out, part.stride),
                        false => idct::inverse(&block, out, part.stride),
                    }
                }
                None => skip_block(bits, component)?,
            }
        }
    }
    Some(())
}

#[inline(always)]
fn skip_unit(bits: &mut Bits, coded: &mut [Coded]) -> Option<()> {
    for component in coded {
        for _ in 0..component.across * component.down {
            skip_block(bits, component)?;
        }
    }
    Some(())
}

/// Whether there is nothing but the first coefficient.
#[inline(always)]
fn read_block(bits: &mut Bits, component: &mut Coded, block: &mut [f32; 64]) -> Option<bool> {
    let first = read_first(bits, component)?;
    block[0] = first as f32 * component.quantiser[0];
    let mut k = 1;
    while k < 64 {
        bits.refill();
        let entry = component.others.next(bits)?;
        let value = if entry.is_whole() {
            entry.value()
        } else if entry.size() > 0 {
            bits.difference(entry.size())
        } else if entry.run() == 15 {
            k += 16;
            continue;
        } else {
            break;
        };
        k += entry.run();
        let place = *ORDER.get(k)? as usize & 63;
        block[place] = value as f32 * component.quantiser[k & 63];
        k += 1;
    }
    Some(k == 1)
}

#[inline(always)]
fn skip_block(bits: &mut Bits, component: &mut Coded) -> Option<()> {
    read_first(bits, component)?;
    let mut k = 1;
    while k < 64 {
        bits.refill();
        let entry = component.others.next(bits)?;
        if !entry.is_whole() {
            match (entry.size(), entry.run()) {
                (0, 15) => {}
                (0, _) => break,
                (size, _) => bits.skip(size),
            }
        }
        k += entry.run() + 1;
    }
    // Beyond the last coefficient is damage, but for zeroes that end there.
    (k <= 64).then_some(())
}

#[inline(always)]
fn read_first(bits: &mut Bits, component: &mut Coded) -> Option<i32> {
    bits.refill();
    let entry = component.first.next(bits)?;
    let difference = if entry.is_whole() {
        entry.value()
    } else if entry.size() > 0 {
        bits.difference(entry.size())
    } else {
        0
    };
    component.before = component.before.wrapping_add(difference);
    Some(component.before)
}

/// Where the coefficients of the file stand in a block, whose columns lie one after another.
static ORDER: [u8; 64] = [
    0, 8, 1, 2, 9, 16, 24, 17, 10, 3, 4, 11, 18, 25, 32, 40, 33, 26, 19, 12, 5, 6, 13, 20, 27, 34, 41, 48, 56, 49, 42,
    35, 28, 21, 14, 7, 15, 22, 29, 36, 43, 50, 57, 58, 51, 44, 37, 30, 23, 31, 38, 45, 52, 59, 60, 53, 46, 39, 47, 54,
    61, 62, 55, 63,
];

fn grey_row(plane: &Plane, y: usize, left: usize, channels: Channels, out: &mut [u8]) {
    let from = (y - plane.top) * plane.stride + left - plane.left;
    let samples = &plane.samples[from..][..out.len() / channels.count()];
    match channels {
        Channels::Grey => out.copy_from_slice(samples),
        Channels::Rgb => out.chunks_exact_mut(3).zip(samples).for_each(|(pixel, sample)| pixel.fill(*sample)),
    }
}
