//! JPEG (ITU-T T.81). Baseline files are decoded here, and of them only the region that is asked for; the others are
//! zune-jpeg's work. A file whose end is missing is refused before it is decoded, since decoders like to paint the rest
//! grey.

mod baseline;
mod header;
mod zune;

use self::header::Header;
use super::exif::Orientation;
use super::{Channels, DecodeError, Region, orient};
use crate::memory::BytePool;
use crate::tensor::Tensor;

/// Height and width of the image as it is to be looked at.
pub(super) fn size(bytes: &[u8]) -> Result<[usize; 2], DecodeError> {
    let header = Header::read(bytes)?;
    let (height, width) = (header.height, header.width);
    Ok(if header.orientation.transpose { [width, height] } else { [height, width] })
}

pub(super) fn decode(bytes: &[u8], channels: Channels, pool: &BytePool) -> Result<Tensor, DecodeError> {
    let header = Header::read(bytes)?;
    header.check_eoi(bytes)?;
    let whole = Region::whole([header.height, header.width]);
    let image = match baseline::decode(bytes, &header, whole, channels, pool)? {
        Some(image) => image,
        None => zune::decode(bytes, &header, channels, pool)?,
    };
    orient::orient(image, header.orientation, pool)
}

/// Only a region, which lies inside; none where the file has to be decoded as a whole.
pub(super) fn decode_region(
    bytes: &[u8],
    region: Region,
    channels: Channels,
    pool: &BytePool,
) -> Result<Option<Tensor>, DecodeError> {
    let header = Header::read(bytes)?;
    if header.orientation != Orientation::UPRIGHT {
        return Ok(None);
    }
    header.check_eoi(bytes)?;
    baseline::decode(bytes, &header, region, channels, pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
        std::fs::read(format!("{folder}/{name}.jpg")).expect("it is in the repository")
    }

    const BASELINE: [&str; 5] = ["baseline_420", "baseline_422", "baseline_444", "restart", "grey"];

    #[test]
    fn our_decoder_and_the_library_agree() {
        let pool = BytePool::new(16 << 20);
        for (name, channels) in BASELINE.into_iter().flat_map(|name| [(name, Channels::Rgb), (name, Channels::Grey)]) {
            let bytes = fixture(name);
            let header = Header::read(&bytes).expect("it is a JPEG");
            let whole = Region::whole([header.height, header.width]);
            let ours = baseline::decode(&bytes, &header, whole, channels, &pool)
                .expect("it is sound")
                .expect("it is baseline");
            let theirs = zune::decode(&bytes, &header, channels, &pool).expect("it is sound");
            let apart: Vec<u32> = ours.bytes().iter().zip(theirs.bytes()).map(|(a, b)| a.abs_diff(*b) as u32).collect();
            let (most, sum) = (apart.iter().max().copied().unwrap_or(0), apart.iter().sum::<u32>());
            assert!(most <= 4 && sum as usize <= apart.len() / 2, "{name} {channels:?}: at most {most}, {sum} in all");
        }
        let bytes = fixture("progressive");
        let header = Header::read(&bytes).expect("it is a JPEG");
        let ours = baseline::decode(&bytes, &header, Region::whole([38, 45]), Channels::Rgb, &pool);
        assert!(ours.expect("it is sound").is_none());
    }

    #[test]
    fn a_region_is_cut_out_of_the_whole() {
        let pool = BytePool::new(16 << 20);
        for (name, channels) in BASELINE.into_iter().flat_map(|name| [(name, Channels::Rgb), (name, Channels::Grey)]) {
            let (bytes, n) = (fixture(name), channels.count());
            let whole = decode(&bytes, channels, &pool).expect("it is a JPEG");
            for (top, left, height, width) in [
                (0, 0, 38, 45),
                (0, 0, 1, 1),
                (37, 44, 1, 1),
                (7, 5, 9, 17),
                (16, 16, 16, 16),
                (15, 31, 18, 2),
                (3, 0, 30, 45),
            ] {
                let region = Region { top, left, height, width };
                let part =
                    decode_region(&bytes, region, channels, &pool).expect("it is sound").expect("it is baseline");
                for (y, row) in part.bytes().chunks_exact(width * n).enumerate() {
                    let from = ((top + y) * 45 + left) * n;
                    assert_eq!(row, &whole.bytes()[from..][..width * n], "{name} {channels:?} {region:?} row {y}");
                }
            }
        }
    }
}
