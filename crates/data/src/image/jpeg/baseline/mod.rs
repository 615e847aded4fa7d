//! Our own decoder for what most JPEGs are: baseline, one scan, YCbCr or grey. It decodes a region of an image: Huffman
//! codes are read from the start to the region's last row, but only the blocks of MCUs in the region are transformed and
//! become pixels. Everything else is zune-jpeg's.

mod bits;
mod colour;
mod huffman;
mod idct;
mod tables;

use self::bits::BitReader;
use self::colour::{Plane, Subsampling, UpsampledRows};
use self::huffman::HuffmanTable;
use self::tables::Tables;
use super::super::{Channels, DecodeError, Region, zeroed_image};
use super::header::{Coding, Component, Header, cut_off};
use crate::memory::{Buffer, BytePool};
use crate::simd::multiversion;
use crate::tensor::Tensor;

/// A region of the image as it is stored; none where this decoder is not made for the file.
pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    region: Region,
    channels: Channels,
    pool: &BytePool,
) -> Result<Option<Tensor>, DecodeError> {
    let Some(subsampling) = subsampling(header) else { return Ok(None) };
    let _tables = pool.reserve(tables::BYTES)?;
    let Some(tables) = Tables::read(bytes, header)? else { return Ok(None) };
    let mcus = Mcus::around(header, region);
    let wanted = if channels == Channels::Grey { 1 } else { header.components.len() };
    let mut decoded = Vec::new();
    for component in &header.components[..wanted] {
        decoded.push(DecodedComponent::new(header, *component, mcus, pool)?);
    }
    decode_mcus(bytes, header, &tables, mcus, &mut decoded)?;
    let mut image = zeroed_image(region.height, region.width, channels.count(), pool)?;
    let planes: Vec<Plane> = decoded.iter().map(DecodedComponent::plane).collect();
    let row_bytes = region.width * channels.count();
    let rows = image.bytes_mut().chunks_exact_mut(row_bytes).zip(region.top..);
    match <[Plane; 3]>::try_from(planes) {
        Ok(planes) => {
            let mut upsampled = UpsampledRows::new(region.width, pool)?;
            rows.for_each(|(out, y)| colour::rgb_row(&planes, subsampling, y, region.left, &mut upsampled, out));
        }
        Err(grey) => rows.for_each(|(out, y)| grey_row(&grey[0], y, region.left, channels, out)),
    }
    Ok(Some(image))
}

/// How chroma is subsampled, where the frame is one that this decoder knows.
fn subsampling(header: &Header) -> Option<Subsampling> {
    let subsampling = match header.components[..] {
        // A single component is a plane of blocks, whatever its sampling factors say.
        [_] => Subsampling { horizontal: false, vertical: false },
        [y, cb, cr]
            if (cb.horizontal, cb.vertical, cr.horizontal, cr.vertical) == (1, 1, 1, 1)
                && y.horizontal <= 2
                && y.vertical <= 2 =>
        {
            Subsampling { horizontal: y.horizontal == 2, vertical: y.vertical == 2 }
        }
        _ => return None,
    };
    (header.coding == Coding::Baseline && header.is_ycbcr()).then_some(subsampling)
}

/// Which MCUs (minimum coded units) of a scan lie in a region, and how many blocks an MCU has.
#[derive(Clone, Copy)]
struct Mcus {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
    /// Blocks of the largest component, across and down.
    across: usize,
    down: usize,
}

impl Mcus {
    /// Those of a region with two pixels around it, which upsampling looks at.
    fn around(header: &Header, region: Region) -> Mcus {
        let (across, down) = if header.components.len() == 1 { (1, 1) } else { header.max_sampling() };
        let (width, height) = (8 * across, 8 * down);
        Mcus {
            top: region.top.saturating_sub(2) / height,
            left: region.left.saturating_sub(2) / width,
            bottom: (region.top + region.height + 2).min(header.height).div_ceil(height),
            right: (region.left + region.width + 2).min(header.width).div_ceil(width),
            across,
            down,
        }
    }
}

/// The samples of one component in the decoded MCUs.
struct DecodedComponent {
    samples: Buffer,
    stride: usize,
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

impl DecodedComponent {
    fn new(
        header: &Header,
        component: Component,
        mcus: Mcus,
        pool: &BytePool,
    ) -> Result<DecodedComponent, DecodeError> {
        let (across, down) = blocks_per_mcu(header, component);
        let stride = (mcus.right - mcus.left) * across * 8;
        let rows = (mcus.bottom - mcus.top) * down * 8;
        Ok(DecodedComponent {
            samples: pool.buffer(stride * rows)?,
            stride,
            top: mcus.top * down * 8,
            left: mcus.left * across * 8,
            height: (header.height * down).div_ceil(mcus.down),
            width: (header.width * across).div_ceil(mcus.across),
        })
    }

    fn plane(&self) -> Plane<'_> {
        let DecodedComponent { stride, top, left, height, width, .. } = *self;
        Plane { samples: self.samples.bytes(), stride, top, left, height, width }
    }
}

/// The blocks of a component in an MCU, across and down: of a single component always one.
fn blocks_per_mcu(header: &Header, component: Component) -> (usize, usize) {
    if header.components.len() == 1 { (1, 1) } else { (component.horizontal, component.vertical) }
}

/// One component as the scan codes it.
struct ScanComponent<'a> {
    /// Blocks in an MCU.
    across: usize,
    down: usize,
    dc: &'a HuffmanTable,
    ac: &'a HuffmanTable,
    /// In zigzag order.
    quantization: &'a [f32; 64],
    /// The DC coefficient of the block before, to which that of the next one is coded as a difference.
    dc_predictor: i32,
}

multiversion! {
    fn decode_mcus(
        bytes: &[u8],
        header: &Header,
        tables: &Tables,
        mcus: Mcus,
        decoded: &mut [DecodedComponent],
    ) -> Result<(), DecodeError> {
        let mut components = scan_components(header, tables)?;
        let across = header.width.div_ceil(8 * mcus.across);
        let mut bits = BitReader::new(bytes, tables.data);
        let mut left_to_restart = tables.restart_interval;
        for y in 0..mcus.bottom {
            for x in 0..across {
                if tables.restart_interval > 0 {
                    if left_to_restart == 0 {
                        let restarted = bits.after_restart_marker();
                        bits = restarted.ok_or("a restart marker is missing; the file is damaged")?;
                        components.iter_mut().for_each(|c| c.dc_predictor = 0);
                        left_to_restart = tables.restart_interval;
                    }
                    left_to_restart -= 1;
                }
                let inside = y >= mcus.top && x >= mcus.left && x < mcus.right;
                let mcu = if inside {
                    decode_mcu(&mut bits, &mut components, y - mcus.top, x - mcus.left, decoded)
                } else {
                    skip_mcu(&mut bits, &mut components)
                };
                mcu.ok_or_else(|| damaged(bits.overrun(), bytes))?;
            }
            if bits.overrun() {
                return Err(cut_off(bytes));
            }
        }
        Ok(())
    }
}

fn scan_components<'a>(header: &Header, tables: &'a Tables) -> Result<Vec<ScanComponent<'a>>, DecodeError> {
    let components = header.components.iter().zip(&tables.selectors).zip(&tables.quantization);
    let components = components.map(|((component, (dc, ac)), quantization)| {
        let (across, down) = blocks_per_mcu(header, *component);
        let (dc, ac) = (tables.dc[*dc].as_deref()?, tables.ac[*ac].as_deref()?);
        Some(ScanComponent { across, down, dc, ac, quantization, dc_predictor: 0 })
    });
    components.collect::<Option<_>>().ok_or_else(|| "a Huffman table is missing; the file is damaged".into())
}

fn damaged(overrun: bool, bytes: &[u8]) -> DecodeError {
    if overrun { cut_off(bytes) } else { "the JPEG is damaged: its codes make no sense; copy the file again".into() }
}

/// Reads the blocks of an MCU and writes the samples of those components that are wanted.
#[inline(always)]
fn decode_mcu(
    bits: &mut BitReader,
    components: &mut [ScanComponent],
    y: usize,
    x: usize,
    decoded: &mut [DecodedComponent],
) -> Option<()> {
    for (i, component) in components.iter_mut().enumerate() {
        for j in 0..component.across * component.down {
            let (down, across) = (j / component.across, j % component.across);
            match decoded.get_mut(i) {
                Some(plane) => {
                    let mut block = [0f32; 64];
                    let dc_only = decode_block(bits, component, &mut block)?;
                    let (row, column) = ((y * component.down + down) * 8, (x * component.across + across) * 8);
                    let out = &mut plane.samples.bytes_mut()[row * plane.stride + column..];
                    if dc_only {
                        idct::idct_dc_only(block[0], out, plane.stride);
                    } else {
                        idct::idct(&block, out, plane.stride);
                    }
                }
                None => skip_block(bits, component)?,
            }
        }
    }
    Some(())
}

#[inline(always)]
fn skip_mcu(bits: &mut BitReader, components: &mut [ScanComponent]) -> Option<()> {
    for component in components {
        for _ in 0..component.across * component.down {
            skip_block(bits, component)?;
        }
    }
    Some(())
}

/// Dequantizes the coefficients of a block, and says whether there is nothing but the DC coefficient.
#[inline(always)]
fn decode_block(bits: &mut BitReader, component: &mut ScanComponent, block: &mut [f32; 64]) -> Option<bool> {
    let dc = decode_dc(bits, component)?;
    block[0] = dc as f32 * component.quantization[0];
    let mut k = 1;
    while k < 64 {
        bits.refill();
        let entry = component.ac.decode(bits)?;
        let coefficient = if entry.has_coefficient() {
            entry.coefficient()
        } else if entry.size() > 0 {
            bits.receive_extend(entry.size())
        } else if entry.run() == 15 {
            // ZRL: sixteen zeroes.
            k += 16;
            continue;
        } else {
            // EOB: zeroes to the end.
            break;
        };
        k += entry.run();
        let index = *ZIGZAG.get(k)? as usize & 63;
        block[index] = coefficient as f32 * component.quantization[k & 63];
        k += 1;
    }
    Some(k == 1)
}

#[inline(always)]
fn skip_block(bits: &mut BitReader, component: &mut ScanComponent) -> Option<()> {
    decode_dc(bits, component)?;
    let mut k = 1;
    while k < 64 {
        bits.refill();
        let entry = component.ac.decode(bits)?;
        if !entry.has_coefficient() {
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
fn decode_dc(bits: &mut BitReader, component: &mut ScanComponent) -> Option<i32> {
    bits.refill();
    let entry = component.dc.decode(bits)?;
    let difference = if entry.has_coefficient() {
        entry.coefficient()
    } else if entry.size() > 0 {
        bits.receive_extend(entry.size())
    } else {
        0
    };
    component.dc_predictor = component.dc_predictor.wrapping_add(difference);
    Some(component.dc_predictor)
}

/// Where coefficient k of the zigzag order stands in a block, whose columns lie one after another.
static ZIGZAG: [u8; 64] = [
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
