//! JPEG. Baseline files are decoded here, and of them only what is asked for; the others are zune-jpeg's work. A file whose
//! end is missing is refused before it is decoded, since decoders like to paint the rest grey.

mod baseline;
mod header;
mod library;

use self::header::Header;
use super::exif::Orientation;
use super::{Channels, Fault, Region, orient};
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
    let whole = Region::whole([header.height, header.width]);
    let image = match baseline::decode(bytes, &header, whole, channels, pool)? {
        Some(image) => image,
        None => library::decode(bytes, &header, channels, pool)?,
    };
    orient::orient(image, header.orientation, pool)
}

/// Only a region; none where the file has to be decoded as a whole.
pub(super) fn decode_region(
    bytes: &[u8],
    region: Region,
    channels: Channels,
    pool: &BytePool,
) -> Result<Option<Tensor>, Fault> {
    let header = Header::read(bytes)?;
    if header.orientation != Orientation::UPRIGHT || !region.inside([header.height, header.width]) {
        return Ok(None);
    }
    header.check_end(bytes)?;
    baseline::decode(bytes, &header, region, channels, pool)
}

fn turned(header: &Header, orientation: Orientation) -> [usize; 2] {
    let (height, width) = (header.height, header.width);
    if orientation.transpose { [width, height] } else { [height, width] }
}
