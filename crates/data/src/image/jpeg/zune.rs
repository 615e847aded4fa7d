//! zune-jpeg, held to the pool: what it will allocate follows from the frame header and is taken before it starts.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::super::{Channels, DecodeError, luma, zeroed_image};
use super::header::Header;
use crate::memory::BytePool;
use crate::tensor::Tensor;

pub(super) fn decode(
    bytes: &[u8],
    header: &Header,
    channels: Channels,
    pool: &BytePool,
) -> Result<Tensor, DecodeError> {
    let _working = pool.reserve(working_bytes(header, bytes.len()))?;
    let native_space = channels == Channels::Rgb || header.components.len() < 4;
    let space = if channels == Channels::Grey && native_space { ColorSpace::Luma } else { ColorSpace::RGB };
    let mut image = zeroed_image(header.height, header.width, space.num_components(), pool)?;
    let options = DecoderOptions::new_fast()
        .set_strict_mode(true)
        .set_max_width(header.width)
        .set_max_height(header.height)
        .jpeg_set_out_colorspace(space);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    // zune may change its mind about the colours; then the image would not have the size that was taken.
    if decoder.output_buffer_size() != Some(image.bytes().len()) {
        return Err("its colours cannot be read as they are stored; save it as RGB".into());
    }
    decoder.decode_into(image.bytes_mut()).map_err(damaged)?;
    if native_space { Ok(image) } else { to_grey(&image, pool) }
}

/// More than zune-jpeg 0.5 takes: the coefficients of the whole image where a scan does not hold all of it, a few rows
/// of MCUs of each component, and copies of what the segments before the scan hold.
fn working_bytes(header: &Header, file: usize) -> u64 {
    let (across, down) = header.max_sampling();
    let mcus_x = header.width.div_ceil(8 * across) as u64;
    let mcus_y = header.height.div_ceil(8 * down) as u64;
    let blocks: u64 = header.components.iter().map(|c| (c.horizontal * c.vertical) as u64).sum();
    let coefficients = mcus_x * mcus_y * blocks * 64 * 2;
    let planes = header.components.len() as u64;
    let rows = mcus_x * (8 * across * 8 * down) as u64 * 2 * planes * 8;
    coefficients + rows + 2 * file as u64 + 128 * 1024
}

fn damaged(error: zune_jpeg::errors::DecodeErrors) -> DecodeError {
    format!("the JPEG is damaged: {error:?}").into()
}

fn to_grey(image: &Tensor, pool: &BytePool) -> Result<Tensor, DecodeError> {
    let shape = &image.ty().shape;
    let mut grey = zeroed_image(shape[0], shape[1], 1, pool)?;
    for (out, rgb) in grey.bytes_mut().iter_mut().zip(image.bytes().chunks_exact(3)) {
        *out = luma(rgb[0], rgb[1], rgb[2]);
    }
    Ok(grey)
}
