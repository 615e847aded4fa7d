//! Planes → pixels: chroma planes of half the size are upsampled with weights of 3/4 and 1/4 ("fancy upsampling", as
//! libjpeg does by default), and YCbCr becomes RGB.

use std::ops::Range;

use crate::memory::{Buffer, BytePool, NoRoom};
use crate::simd::multiversion;

/// Which way the chroma planes have half the samples of the luma plane: both is 4:2:0, horizontal alone 4:2:2.
#[derive(Clone, Copy)]
pub(super) struct Subsampling {
    pub horizontal: bool,
    pub vertical: bool,
}

/// The plane of one component, of which a part was decoded.
pub(super) struct Plane<'a> {
    pub samples: &'a [u8],
    pub stride: usize,
    /// Where the first sample that was decoded stands in the whole plane.
    pub top: usize,
    pub left: usize,
    /// Of the whole plane, without padding.
    pub height: usize,
    pub width: usize,
}

impl Plane<'_> {
    /// A row by its number in the whole plane, at the borders the last one there is; from the first decoded sample on.
    #[inline(always)]
    fn row(&self, y: isize) -> &[u8] {
        let y = y.clamp(0, self.height as isize - 1) as usize - self.top;
        let width = self.stride.min(self.width - self.left);
        &self.samples[y * self.stride..][..width]
    }
}

/// Rows of chroma at full width, and the vertical sums that they are made of.
pub(super) struct UpsampledRows {
    cb: Buffer,
    cr: Buffer,
    sums: Buffer,
}

impl UpsampledRows {
    /// For rows of this many pixels.
    pub fn new(width: usize, pool: &BytePool) -> Result<UpsampledRows, NoRoom> {
        Ok(UpsampledRows {
            cb: pool.buffer(width + 8)?,
            cr: pool.buffer(width + 8)?,
            sums: pool.buffer((width / 2 + 8) * 2)?,
        })
    }
}

multiversion! {
    /// One row of RGB, of the pixels from `left` on. `subsampling` says whether colours are halved across and down.
    pub fn rgb_row(
        planes: &[Plane; 3],
        subsampling: Subsampling,
        y: usize,
        left: usize,
        rows: &mut UpsampledRows,
        out: &mut [u8],
    ) {
        let width = out.len() / 3;
        let luma = planes[0].row(y as isize);
        let luma = &luma[left - planes[0].left..][..width];
        let sums: &mut [u16] = bytemuck::cast_slice_mut(rows.sums.bytes_mut());
        let (cb, cr) = (rows.cb.bytes_mut(), rows.cr.bytes_mut());
        let cb = upsample_row(&planes[1], subsampling, y, left..left + width, sums, cb);
        let cr = upsample_row(&planes[2], subsampling, y, left..left + width, sums, cr);
        convert_row(luma, cb, cr, out);
    }
}

/// These pixels of a row of chroma at full width.
#[inline(always)]
fn upsample_row<'a>(
    plane: &Plane,
    subsampling: Subsampling,
    y: usize,
    pixels: Range<usize>,
    sums: &mut [u16],
    out: &'a mut [u8],
) -> &'a [u8] {
    let (nearer, farther) = if subsampling.vertical {
        // The row that the pixel lies in, and the one that it is nearest to.
        (y as isize / 2, y as isize / 2 + if y.is_multiple_of(2) { -1 } else { 1 })
    } else {
        (y as isize, y as isize)
    };
    let (nearer, farther) = (plane.row(nearer), plane.row(farther));
    if !subsampling.horizontal {
        let from = pixels.start - plane.left;
        for ((out, a), b) in out.iter_mut().zip(&nearer[from..]).zip(&farther[from..]).take(pixels.len()) {
            *out = ((3 * *a as u16 + *b as u16 + 2) >> 2) as u8;
        }
        return &out[..pixels.len()];
    }
    // The samples that are upsampled, with one more to each side, or the same once more at a border.
    let (first, count) = (pixels.start / 2, pixels.end.div_ceil(2) - pixels.start / 2);
    let from = first - plane.left;
    let sum = |x: usize| 3 * nearer[x] as u16 + farther[x] as u16;
    sums[0] = sum(from.saturating_sub(1));
    for (slot, (a, b)) in sums[1..=count].iter_mut().zip(nearer[from..].iter().zip(&farther[from..])) {
        *slot = 3 * *a as u16 + *b as u16;
    }
    sums[count + 1] = sum((from + count).min(nearer.len() - 1));
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (i, pair) in pairs[..count].iter_mut().enumerate() {
        let (before, this, after) = (sums[i], sums[i + 1], sums[i + 2]);
        *pair = [((3 * this + before + 8) >> 4) as u8, ((3 * this + after + 7) >> 4) as u8];
    }
    &out[pixels.start % 2..][..pixels.len()]
}

/// By the fixed-point weights of JFIF, rounded to the nearest. In steps, first the colours, then their places: so the
/// compiler vectorises the first, which is all the arithmetic.
#[inline(always)]
fn convert_row(luma: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    const STEP: usize = 64;
    let planes = luma.chunks(STEP).zip(cb.chunks(STEP)).zip(cr.chunks(STEP));
    for (((y, b), r), out) in planes.zip(out.chunks_mut(STEP * 3)) {
        let mut pixels = [0u32; STEP];
        for (((pixel, y), b), r) in pixels.iter_mut().zip(y).zip(b).zip(r) {
            *pixel = ycbcr_to_rgb(*y, *b, *r);
        }
        // Four bytes a pixel, of which the next pixel overwrites the last.
        for (i, pixel) in pixels[..y.len()].iter().enumerate() {
            match out.get_mut(i * 3..i * 3 + 4) {
                Some(four) => four.copy_from_slice(&pixel.to_le_bytes()),
                None => out[i * 3..].copy_from_slice(&pixel.to_le_bytes()[..3]),
            }
        }
    }
}

/// Red in the lowest byte, then green and blue.
#[inline(always)]
fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> u32 {
    let (y, b, r) = (((y as i32) << 16) + 32_768, cb as i32 - 128, cr as i32 - 128);
    let byte = |v: i32| (v >> 16).clamp(0, 255) as u32;
    byte(y + 91_881 * r) | byte(y - 22_554 * b - 46_802 * r) << 8 | byte(y + 116_130 * b) << 16
}
