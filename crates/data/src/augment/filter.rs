//! What becomes of a pixel by those around it: blurring and sharpening.

use std::mem::size_of;

use crate::error::Result;
use crate::memory::BytePool;
use crate::simd::multiversion;

/// Blurs by a Gauss bell of so many pixels to each side; beyond the border the image is mirrored, without its last pixel.
pub(super) fn blur(
    pixels: &mut [u8],
    [height, width]: [usize; 2],
    channels: usize,
    sigma: f32,
    radius: usize,
    pool: &BytePool,
) -> Result<()> {
    // A mirror shows no more than there is.
    let radius = radius.min(height - 1).min(width - 1);
    if radius == 0 || sigma.is_nan() || sigma <= 0.0 {
        return Ok(());
    }
    let mut kernel = pool.buffer((2 * radius + 1) * size_of::<f32>())?;
    let kernel = bytemuck::cast_slice_mut::<u8, f32>(kernel.bytes_mut());
    bell(sigma, kernel);
    let row = width * channels;
    let before = pool.copy(pixels)?;
    let (mut down, mut across) = (pool.buffer(row * size_of::<f32>())?, pool.buffer(row * size_of::<f32>())?);
    let [down, across] = [&mut down, &mut across].map(|line| bytemuck::cast_slice_mut::<u8, f32>(line.bytes_mut()));
    for (y, to) in pixels.chunks_exact_mut(row).enumerate() {
        down.fill(0.0);
        for (tap, weight) in kernel.iter().enumerate() {
            let from = mirrored(y + tap, radius, height);
            add_bytes(down, &before.bytes()[from * row..][..row], *weight);
        }
        across.fill(0.0);
        for (tap, weight) in kernel.iter().enumerate() {
            add_shifted(across, down, [width, channels], [tap, radius], *weight);
        }
        to.iter_mut().zip(&*across).for_each(|(to, sum)| *to = (sum + 0.5) as u8);
    }
    Ok(())
}

/// The bell, with a sum of 1.
fn bell(sigma: f32, kernel: &mut [f32]) {
    let radius = (kernel.len() / 2) as f32;
    kernel.iter_mut().enumerate().for_each(|(tap, weight)| {
        let x = (tap as f32 - radius) / sigma;
        *weight = (-0.5 * x * x).exp();
    });
    let sum: f32 = kernel.iter().sum();
    kernel.iter_mut().for_each(|weight| *weight /= sum);
}

/// Where place + tap − radius lies in a line of so many, mirrored at its ends.
fn mirrored(at: usize, radius: usize, length: usize) -> usize {
    let place = at as isize - radius as isize;
    let last = length as isize - 1;
    let place = if place < 0 { -place } else { place };
    (if place > last { 2 * last - place } else { place }) as usize
}

/// Adds the pixels that stand tap − radius to the right; inside of the borders they stand side by side.
fn add_shifted(to: &mut [f32], from: &[f32], [width, channels]: [usize; 2], [tap, radius]: [usize; 2], weight: f32) {
    let first = radius.saturating_sub(tap);
    let end = (width + radius - tap).min(width);
    let start = first + tap - radius;
    let inside = (end - first) * channels;
    add_floats(&mut to[first * channels..][..inside], &from[start * channels..][..inside], weight);
    for x in (0..first).chain(end..width) {
        let source = mirrored(x + tap, radius, width) * channels;
        add_floats(&mut to[x * channels..][..channels], &from[source..][..channels], weight);
    }
}

multiversion! {
    fn add_bytes(to: &mut [f32], from: &[u8], weight: f32) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += f32::from(*from) * weight);
    }
}

multiversion! {
    fn add_floats(to: &mut [f32], from: &[f32], weight: f32) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += *from * weight);
    }
}

/// Between a blurred image, at 0, and itself, at 1; beyond at more. Pixels at the border have not enough around them, and
/// stay.
pub(super) fn sharpen(
    pixels: &mut [u8],
    [height, width]: [usize; 2],
    channels: usize,
    factor: f32,
    pool: &BytePool,
) -> Result<()> {
    if height < 3 || width < 3 {
        return Ok(());
    }
    let row = width * channels;
    // The row above as it was, and the one that is changed.
    let mut before = pool.copy(&pixels[..2 * row])?;
    for y in 1..height - 1 {
        let (above, own) = before.bytes().split_at(row);
        let (changed, below) = pixels[y * row..].split_at_mut(row);
        let below = &below[..row];
        for at in channels..row - channels {
            let three =
                |line: &[u8]| u32::from(line[at - channels]) + u32::from(line[at]) + u32::from(line[at + channels]);
            // All nine once, and the middle four times more.
            let sum = three(above) + three(own) + three(below) + 4 * u32::from(own[at]);
            let blurred = ((2 * sum + 13) / 26) as f32;
            changed[at] = (blurred + (f32::from(own[at]) - blurred) * factor + 0.5) as u8;
        }
        let lines = before.bytes_mut();
        lines.copy_within(row.., 0);
        lines[row..].copy_from_slice(below);
    }
    Ok(())
}
