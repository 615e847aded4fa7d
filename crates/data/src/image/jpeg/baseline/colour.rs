//! Planes → pixels: colour planes of half the size are drawn out with weights of 3/4 and 1/4, as libjpeg does by
//! default, and YCbCr becomes RGB.

use std::ops::Range;

use crate::memory::{Buffer, BytePool, NoRoom};
use crate::simd::wide;

/// A plane of samples, of which a part was decoded.
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

/// Rows of colour at full width, and what they are made of.
pub(super) struct Scratch {
    blue: Buffer,
    red: Buffer,
    sums: Buffer,
}

impl Scratch {
    /// For rows of this many pixels.
    pub fn new(width: usize, pool: &BytePool) -> Result<Scratch, NoRoom> {
        Ok(Scratch {
            blue: pool.buffer(width + 8)?,
            red: pool.buffer(width + 8)?,
            sums: pool.buffer((width / 2 + 8) * 2)?,
        })
    }
}

wide! {
    /// One row of RGB, of the pixels from `left` on. `half` says whether colours are halved across and down.
    pub fn rgb_row(
        planes: &[Plane; 3],
        half: (bool, bool),
        y: usize,
        left: usize,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) {
        let width = out.len() / 3;
        let luma = planes[0].row(y as isize);
        let luma = &luma[left - planes[0].left..][..width];
        let sums: &mut [u16] = bytemuck::cast_slice_mut(scratch.sums.bytes_mut());
        let (blue, red) = (scratch.blue.bytes_mut(), scratch.red.bytes_mut());
        let blue = full_row(&planes[1], half, y, left..left + width, sums, blue);
        let red = full_row(&planes[2], half, y, left..left + width, sums, red);
        convert(luma, blue, red, out);
    }
}

/// These pixels of a row of colour at full width.
#[inline(always)]
fn full_row<'a>(
    plane: &Plane,
    (across, down): (bool, bool),
    y: usize,
    pixels: Range<usize>,
    sums: &mut [u16],
    out: &'a mut [u8],
) -> &'a [u8] {
    let (near, far) = match down {
        false => (y as isize, y as isize),
        // The row that the pixel lies in, and the one that it is nearest to.
        true => (y as isize / 2, y as isize / 2 + if y.is_multiple_of(2) { -1 } else { 1 }),
    };
    let (near, far) = (plane.row(near), plane.row(far));
    if !across {
        let from = pixels.start - plane.left;
        for ((out, a), b) in out.iter_mut().zip(&near[from..]).zip(&far[from..]).take(pixels.len()) {
            *out = ((3 * *a as u16 + *b as u16 + 2) >> 2) as u8;
        }
        return &out[..pixels.len()];
    }
    // The samples that are drawn out, with one more to each side, or the same once more at a border.
    let (first, count) = (pixels.start / 2, pixels.end.div_ceil(2) - pixels.start / 2);
    let from = first - plane.left;
    let sum = |x: usize| 3 * near[x] as u16 + far[x] as u16;
    sums[0] = sum(from.saturating_sub(1));
    for (place, (a, b)) in sums[1..=count].iter_mut().zip(near[from..].iter().zip(&far[from..])) {
        *place = 3 * *a as u16 + *b as u16;
    }
    sums[count + 1] = sum((from + count).min(near.len() - 1));
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
fn convert(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    const STEP: usize = 64;
    let planes = luma.chunks(STEP).zip(blue.chunks(STEP)).zip(red.chunks(STEP));
    for (((y, b), r), out) in planes.zip(out.chunks_mut(STEP * 3)) {
        let mut pixels = [0u32; STEP];
        for (((pixel, y), b), r) in pixels.iter_mut().zip(y).zip(b).zip(r) {
            *pixel = rgb(*y, *b, *r);
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
fn rgb(y: u8, blue: u8, red: u8) -> u32 {
    let (y, b, r) = (((y as i32) << 16) + 32_768, blue as i32 - 128, red as i32 - 128);
    let byte = |v: i32| (v >> 16).clamp(0, 255) as u32;
    byte(y + 91_881 * r) | byte(y - 22_554 * b - 46_802 * r) << 8 | byte(y + 116_130 * b) << 16
}
