//! Turns a decoded image as its EXIF orientation says.

use super::exif::Orientation;
use super::{DecodeError, zeroed_image};
use crate::memory::BytePool;
use crate::tensor::Tensor;

/// The image itself where it stands upright already.
pub(super) fn orient(image: Tensor, to: Orientation, pool: &BytePool) -> Result<Tensor, DecodeError> {
    if to == Orientation::UPRIGHT {
        return Ok(image);
    }
    let shape = image.ty().shape.clone();
    let (height, width, channels) = (shape[0], shape[1], shape[2]);
    let (out_height, out_width) = if to.transpose { (width, height) } else { (height, width) };
    let mut out = zeroed_image(out_height, out_width, channels, pool)?;
    let source = image.bytes();
    for (i, pixel) in out.bytes_mut().chunks_exact_mut(channels).enumerate() {
        let (y, x) = (i / out_width, i % out_width);
        let y = if to.mirror_y { out_height - 1 - y } else { y };
        let x = if to.mirror_x { out_width - 1 - x } else { x };
        let from = if to.transpose { x * width + y } else { y * width + x };
        pixel.copy_from_slice(&source[from * channels..][..channels]);
    }
    Ok(out)
}
