//! PNG, by the crate `png`, held to the pool. Checksums are checked.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits, Reader, Transformations};

use super::{Channels, DecodeError, RawMask, check_claimed_size, luma, zeroed_image};
use crate::memory::{BytePool, Lease};
use crate::tensor::Tensor;

pub(super) fn size(bytes: &[u8]) -> Result<[usize; 2], DecodeError> {
    match bytes {
        [_, _, _, _, _, _, _, _, _, _, _, _, b'I', b'H', b'D', b'R', w3, w2, w1, w0, h3, h2, h1, h0, ..] => {
            let width = u32::from_be_bytes([*w3, *w2, *w1, *w0]) as usize;
            let size = [u32::from_be_bytes([*h3, *h2, *h1, *h0]) as usize, width];
            check_claimed_size(size, least_bytes(size, bytes) <= bytes.len() as u128, bytes)?;
            Ok(size)
        }
        _ => Err("the PNG ends within its header; copy the file again".into()),
    }
}

/// No PNG of this size has fewer bytes: deflate makes at most 258 bytes of 2 bits.
fn least_bytes([height, width]: [usize; 2], bytes: &[u8]) -> u128 {
    let (depth, samples) = match bytes.get(24..26) {
        Some(&[depth, colour]) => (u128::from(depth), if colour == 2 { 3 } else { 1 }),
        _ => (1, 1),
    };
    (width as u128 * depth * samples).div_ceil(8) * height as u128 / (258 * 4)
}

pub(super) fn decode(bytes: &[u8], channels: Channels, pool: &BytePool) -> Result<Tensor, DecodeError> {
    let (mut reader, _working) = open(bytes, Transformations::EXPAND | Transformations::STRIP_16, pool)?;
    let [height, width] = size(bytes)?;
    let (colour, _) = reader.output_color_type();
    let mut image = zeroed_image(height, width, channels.count(), pool)?;
    if colour.samples() == channels.count() {
        read_pixels(&mut reader, image.bytes_mut())?;
        return Ok(image);
    }
    let mut stored = pool.buffer(reader.output_buffer_size().ok_or("its size overflows")?)?;
    read_pixels(&mut reader, stored.bytes_mut())?;
    let pixels = stored.bytes().chunks_exact(colour.samples());
    for (out, pixel) in image.bytes_mut().chunks_exact_mut(channels.count()).zip(pixels) {
        convert(pixel, out);
    }
    Ok(image)
}

pub(super) fn decode_classes(bytes: &[u8], pool: &BytePool) -> Result<Tensor, DecodeError> {
    let (mut reader, _working) = open(bytes, Transformations::IDENTITY, pool)?;
    let (colour, depth) = reader.output_color_type();
    if !is_number(colour) || depth == BitDepth::Sixteen {
        return Err(format!(
            "class numbers need one channel of at most 8 bits, and this PNG is {colour:?} with {depth:?}; save it as \
             grey or with a palette"
        )
        .into());
    }
    numbers(&mut reader, size(bytes)?, pool)
}

/// Whether a pixel is one number.
fn is_number(colour: ColorType) -> bool {
    matches!(colour, ColorType::Grayscale | ColorType::Indexed)
}

/// One number for each pixel, as it is stored. 16 bits hold a number below 256, or all bits are alike: black and white.
fn numbers(reader: &mut File, [height, width]: [usize; 2], pool: &BytePool) -> Result<Tensor, DecodeError> {
    let (_, depth) = reader.output_color_type();
    let mut image = zeroed_image(height, width, 1, pool)?;
    if depth == BitDepth::Eight {
        read_pixels(reader, image.bytes_mut())?;
        return Ok(image);
    }
    let mut stored = pool.buffer(reader.output_buffer_size().ok_or("its size overflows")?)?;
    read_pixels(reader, stored.bytes_mut())?;
    if depth == BitDepth::Sixteen {
        let wide = stored.bytes().as_chunks::<2>().0;
        let is_black_or_white = wide.iter().all(|number| [[0; 2], [u8::MAX; 2]].contains(number));
        if let Some(large) = wide.iter().find(|[upper, _]| *upper > 0).filter(|_| !is_black_or_white) {
            return Err(format!(
                "its 16 bits hold numbers above 255, such as {}; save it with 8 bits, or have it read as grey",
                u16::from_be_bytes(*large)
            )
            .into());
        }
        image.bytes_mut().iter_mut().zip(wide).for_each(|(out, [_, lower])| *out = *lower);
        return Ok(image);
    }
    let bits = depth as usize;
    let row_bytes = (width * bits).div_ceil(8);
    for (out, row) in image.bytes_mut().chunks_exact_mut(width).zip(stored.bytes().chunks_exact(row_bytes)) {
        for (x, class) in out.iter_mut().enumerate() {
            let shift = 8 - bits - (x * bits) % 8;
            *class = (row[x * bits / 8] >> shift) & ((1u16 << bits) - 1) as u8;
        }
    }
    Ok(image)
}

/// Numbers as they are stored, or colours; colours that are all grey are numbers.
pub(super) fn decode_mask(bytes: &[u8], pool: &BytePool) -> Result<RawMask, DecodeError> {
    let (mut reader, working) = open(bytes, Transformations::IDENTITY, pool)?;
    let (colour, depth) = reader.output_color_type();
    if is_number(colour) {
        let palette = reader.info().palette.as_ref().filter(|_| colour == ColorType::Indexed);
        let palette = palette.map(|colours| colours.as_chunks::<3>().0.to_vec());
        let pixels = numbers(&mut reader, size(bytes)?, pool)?;
        return Ok(RawMask { pixels, palette, bits: (depth as u8).min(8), is_jpeg: false });
    }
    drop((reader, working));
    let coloured = decode(bytes, Channels::Rgb, pool)?;
    let is_grey = coloured.bytes().as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b);
    let pixels = if is_grey {
        let [height, width] = size(bytes)?;
        let mut grey = zeroed_image(height, width, 1, pool)?;
        grey.bytes_mut().iter_mut().zip(coloured.bytes().as_chunks::<3>().0).for_each(|(to, from)| *to = from[0]);
        grey
    } else {
        coloured
    };
    Ok(RawMask { pixels, palette: None, bits: 8, is_jpeg: false })
}

type File<'a> = Reader<Cursor<&'a [u8]>>;

/// A reader, and the lease on what it allocates itself: some rows, and buffers of fixed size.
fn open<'a>(
    bytes: &'a [u8],
    transformations: Transformations,
    pool: &BytePool,
) -> Result<(File<'a>, Lease), DecodeError> {
    let [height, width] = size(bytes)?;
    // u16 of four channels is the most.
    if width.checked_mul(height).and_then(|n| n.checked_mul(8)).is_none_or(|n| n > isize::MAX as usize) {
        return Err(format!("{height} rows of {width} columns are more than any memory has").into());
    }
    let lease = pool.reserve(8 * 8 * width as u64 + FIXED_BYTES)?;
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: 16 * 8 * width + bytes.len() });
    decoder.set_transformations(transformations);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    Ok((decoder.read_info().map_err(damaged)?, lease))
}

/// What png 0.18 allocates whatever the size of the image: windows, tables and the buffer of a chunk.
const FIXED_BYTES: u64 = 512 * 1024;

fn read_pixels(reader: &mut File, out: &mut [u8]) -> Result<(), DecodeError> {
    if reader.output_buffer_size() != Some(out.len()) {
        return Err("its header contradicts itself; the file is damaged".into());
    }
    reader.next_frame(out).map_err(damaged)?;
    reader.finish().map_err(damaged)
}

fn damaged(error: png::DecodingError) -> DecodeError {
    match error {
        png::DecodingError::IoError(_) => "the PNG is cut off; copy the file again".into(),
        other => format!("the PNG is damaged: {other}").into(),
    }
}

/// One pixel of grey, grey with alpha, RGB or RGBA to one or three channels.
fn convert(pixel: &[u8], out: &mut [u8]) {
    let (rgb, alpha) = match *pixel {
        [v] => ([v; 3], 255),
        [v, a] => ([v; 3], a),
        [r, g, b] => ([r, g, b], 255),
        [r, g, b, a] => ([r, g, b], a),
        _ => ([0; 3], 255),
    };
    let [r, g, b] = rgb.map(|v| over_white(v, alpha));
    match out {
        [grey] => *grey = if pixel.len() < 3 { r } else { luma(r, g, b) },
        _ => out.copy_from_slice(&[r, g, b]),
    }
}

fn over_white(value: u8, alpha: u8) -> u8 {
    let (v, a) = (value as u32, alpha as u32);
    ((v * a + 255 * (255 - a) + 127) / 255) as u8
}
