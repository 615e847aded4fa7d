//! JPEG. The headers are read here and decide what the decoder may use; the pixels are zune-jpeg's work. A file whose end
//! is missing is refused before it is decoded, since decoders like to paint the rest grey.

mod header;
mod library;

use self::header::Header;
use super::exif::Orientation;
use super::{Channels, Fault, orient};
use crate::memory::BytePool;
use crate::tensor::Tensor;

/// Height and width after turning.
pub(super) fn size(bytes: &[u8]) -> Result<[usize; 2], Fault> {
    let header = Header::read(bytes)?;
    Ok(turned(&header, header.orientation))
}

pub(super) fn decode(bytes: &[u8], channels: Channels, pool: &BytePool) -> Result<Tensor, Fault> {
    let header = Header::read(bytes)?;
    header.check_end(bytes)?;
    let image = library::decode(bytes, &header, channels, pool)?;
    orient::orient(image, header.orientation, pool)
}

fn turned(header: &Header, orientation: Orientation) -> [usize; 2] {
    let (height, width) = (header.height, header.width);
    if orientation.transpose { [width, height] } else { [height, width] }
}
