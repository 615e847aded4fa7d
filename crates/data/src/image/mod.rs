//! Decoding of JPEG and PNG within a [`BytePool`]: what a header claims is drawn from the pool before anything of that
//! size exists. Nothing here is lenient: a file that is cut off or damaged is an error, never half a picture. So is one
//! whose header claims more than its bytes can hold, or than the whole pool has room for.
//!
//! Errors begin with a `location`, which the caller gives: the path of the file.

mod exif;
mod jpeg;
mod mask;
mod orient;
mod png;
mod resize;
mod write;

use std::fmt::Display;

use memfit_ir::{DType, TensorType};

use crate::error::{BadSample, DataError, Result, SampleProblem};
use crate::memory::{BytePool, NoRoom};
use crate::tensor::Tensor;

pub(crate) use mask::RawMask;
pub use resize::Region;
pub(crate) use resize::{ImageView, Interpolation, PixelValue, resize};
pub use write::{Pixels, write_png};

/// The channels of a decoded pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Channels {
    /// Colours become grey by 0.299 R + 0.587 G + 0.114 B.
    Grey,
    /// Grey becomes three equal channels.
    #[default]
    Rgb,
}

impl Channels {
    /// How many there are.
    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::Rgb => 3,
        }
    }
}

/// Height and width in pixels of a JPEG or PNG as it is to be looked at, from its header alone.
///
/// # Errors
/// [`DataError::Bad`] where the header is damaged, or is that of another format.
///
/// ```
/// use memfit_data::image::dimensions;
///
/// let file = std::fs::read("tests/fixtures/rgb.png").expect("it is there");
/// assert_eq!(dimensions(&file, &"rgb.png")?, [38, 45]);
/// # Ok::<(), memfit_data::DataError>(())
/// ```
pub fn dimensions(bytes: &[u8], location: &dyn Display) -> Result<[usize; 2]> {
    let size = match Format::detect(bytes) {
        Some(Format::Jpeg) => jpeg::size(bytes),
        Some(Format::Png) => png::size(bytes),
        None => Err(unknown_format(bytes)),
    };
    size.map_err(|error| error.at_location(location))
}

/// Decodes a JPEG or PNG to u8 `[height, width, channels]`. A JPEG is turned as its EXIF orientation says. A transparent
/// PNG lies on white; 16 bits a channel become the upper 8.
///
/// # Errors
/// [`DataError::Bad`] where the file is damaged, cut off, or larger than the whole pool; [`DataError::NoRoom`] where the
/// pool has no room now.
///
/// ```
/// use memfit_data::BytePool;
/// use memfit_data::image::{Channels, decode};
///
/// let file = std::fs::read("tests/fixtures/baseline_420.jpg").expect("it is there");
/// let image = decode(&file, Channels::Rgb, &"baseline_420.jpg", &BytePool::new(1 << 20))?;
/// assert_eq!(image.ty().to_string(), "u8[38,45,3]");
/// # Ok::<(), memfit_data::DataError>(())
/// ```
pub fn decode(bytes: &[u8], channels: Channels, location: &dyn Display, pool: &BytePool) -> Result<Tensor> {
    let attempt = DecodeAttempt::new(bytes, pool);
    let image = match Format::detect(bytes) {
        Some(Format::Jpeg) => jpeg::decode(bytes, channels, pool),
        Some(Format::Png) => png::decode(bytes, channels, pool),
        None => Err(unknown_format(bytes)),
    };
    image.map_err(|error| attempt.error_at(error, location))
}

/// Decodes a region of a JPEG or PNG, as [`decode`] does, and no more of the image than the format allows. What comes
/// back is the region alone, or the whole image, and where the region lies in it.
///
/// # Errors
/// As [`decode`]; [`DataError::Pipeline`] where the region does not lie in the image.
///
/// ```
/// use memfit_data::BytePool;
/// use memfit_data::image::{Channels, Region, decode_region};
///
/// let file = std::fs::read("tests/fixtures/baseline_420.jpg").expect("it is there");
/// let region = Region { top: 8, left: 4, height: 16, width: 20 };
/// let (image, within) = decode_region(&file, region, Channels::Rgb, &"a.jpg", &BytePool::new(1 << 20))?;
/// assert_eq!((image.ty().to_string().as_str(), within.top, within.left), ("u8[16,20,3]", 0, 0));
/// # Ok::<(), memfit_data::DataError>(())
/// ```
pub fn decode_region(
    bytes: &[u8],
    region: Region,
    channels: Channels,
    location: &dyn Display,
    pool: &BytePool,
) -> Result<(Tensor, Region)> {
    let size = dimensions(bytes, location)?;
    if !region.lies_in(size) {
        let [height, width] = size;
        return Err(DataError::Pipeline(format!("{region:?} is not a part of {location}, which is {height}×{width}")));
    }
    if let Some(Format::Jpeg) = Format::detect(bytes) {
        let attempt = DecodeAttempt::new(bytes, pool);
        let part =
            jpeg::decode_region(bytes, region, channels, pool).map_err(|error| attempt.error_at(error, location))?;
        if let Some(part) = part {
            return Ok((part, Region { top: 0, left: 0, ..region }));
        }
    }
    Ok((decode(bytes, channels, location, pool)?, region))
}

/// Decodes a PNG whose pixels are class numbers, such as a mask for segmentation, to u8 `[height, width, 1]`: the indices
/// of a palette, or grey values as they are stored.
///
/// # Errors
/// As [`decode`]; [`DataError::Bad`] also for formats that cannot hold class numbers.
///
/// ```
/// use memfit_data::BytePool;
/// use memfit_data::image::decode_classes;
///
/// let file = std::fs::read("tests/fixtures/palette.png").expect("it is there");
/// let mask = decode_classes(&file, &"palette.png", &BytePool::new(1 << 20))?;
/// assert_eq!(mask.ty().shape[2], 1);
/// # Ok::<(), memfit_data::DataError>(())
/// ```
pub fn decode_classes(bytes: &[u8], location: &dyn Display, pool: &BytePool) -> Result<Tensor> {
    let attempt = DecodeAttempt::new(bytes, pool);
    let image = match Format::detect(bytes) {
        Some(Format::Png) => png::decode_classes(bytes, pool),
        Some(Format::Jpeg) => {
            Err("a JPEG cannot hold class numbers, since its values are not exact; save it as PNG".into())
        }
        None => Err(unknown_format(bytes)),
    };
    image.map_err(|error| attempt.error_at(error, location))
}

/// Scales an image of numbers, `[height, width, channels]`, as pictures are scaled for a model.
///
/// # Errors
/// Where the pool has no room.
///
/// ```
/// use memfit_data::BytePool;
/// use memfit_data::image::scale;
///
/// let wide = scale(&[0.0, 1.0], [1, 2], 1, [1, 4], &BytePool::new(1 << 10))?;
/// assert_eq!(wide.f32s(), [0.0, 0.25, 0.75, 1.0]);
/// # Ok::<(), memfit_data::DataError>(())
/// ```
pub fn scale(pixels: &[f32], size: [usize; 2], channels: usize, to: [usize; 2], pool: &BytePool) -> Result<Tensor> {
    if pixels.len() != size[0] * size[1] * channels || [size, to].as_flattened().contains(&0) {
        let problem = format!("{} numbers are no image of {size:?} with {channels} channels", pixels.len());
        return Err(DataError::Pipeline(problem));
    }
    let mut scaled = Tensor::zeros(TensorType::f32([to[0], to[1], channels]), pool)?;
    let image = ImageView { pixels, size, channels };
    resize(image, Region::whole(size), Interpolation::Bilinear, false, scaled.f32s_mut(), to, pool)?;
    Ok(scaled)
}

/// Decodes a mask with its pixels as they are stored: grey values, indices of a palette, or colours. See [`RawMask`].
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_mask(bytes: &[u8], location: &dyn Display, pool: &BytePool) -> Result<RawMask> {
    let attempt = DecodeAttempt::new(bytes, pool);
    let mask = match Format::detect(bytes) {
        Some(Format::Png) => png::decode_mask(bytes, pool),
        Some(Format::Jpeg) => jpeg::decode(bytes, Channels::Grey, pool).map(|pixels| RawMask {
            pixels,
            palette: None,
            bits: 8,
            is_jpeg: true,
        }),
        None => Err(unknown_format(bytes)),
    };
    mask.map_err(|error| attempt.error_at(error, location))
}

/// An image that is to be decoded, and what was held before: to tell want of room that passes from an image that has no
/// room with nothing beside it, which is bad.
struct DecodeAttempt<'a> {
    bytes: &'a [u8],
    pool: &'a BytePool,
    before: u64,
}

impl<'a> DecodeAttempt<'a> {
    fn new(bytes: &'a [u8], pool: &'a BytePool) -> DecodeAttempt<'a> {
        DecodeAttempt { bytes, pool, before: pool.own() }
    }

    fn error_at(&self, error: DecodeError, location: &dyn Display) -> DataError {
        let DecodeError::NoRoom(e) = error else { return error.at_location(location) };
        let working = e.own.saturating_sub(self.before).saturating_add(e.wanted);
        let needed = working.saturating_add(self.bytes.len() as u64);
        let limit = self.pool.limit();
        let Some(size) = dimensions(self.bytes, location).ok().filter(|_| needed > limit) else {
            return error.at_location(location);
        };
        let problem = SampleProblem::ImageTooLarge { size, needed, limit };
        DataError::Bad(BadSample { location: location.to_string(), problem })
    }
}

/// Refuses a size that so few bytes cannot hold: who made the header up, or damaged it, decides nothing.
fn check_claimed_size([height, width]: [usize; 2], fits: bool, bytes: &[u8]) -> Result<(), DecodeError> {
    if fits {
        Ok(())
    } else {
        Err(format!(
            "its header says {height}×{width} pixels, which its {} bytes cannot hold: it is damaged; copy it again",
            bytes.len()
        )
        .into())
    }
}

#[derive(Clone, Copy)]
enum Format {
    Jpeg,
    Png,
}

impl Format {
    fn detect(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', ..] => Some(Format::Png),
            _ => None,
        }
    }
}

fn unknown_format(bytes: &[u8]) -> DecodeError {
    match bytes {
        [] => "the file is empty".into(),
        _ => "this is neither a JPEG nor a PNG, whatever its name says; convert it to one of them".into(),
    }
}

/// What goes wrong where the location is not known.
#[derive(Debug)]
pub(crate) enum DecodeError {
    NoRoom(NoRoom),
    Bad(String),
}

impl DecodeError {
    pub(crate) fn at_location(self, location: &dyn Display) -> DataError {
        match self {
            DecodeError::NoRoom(e) => DataError::NoRoom(e),
            DecodeError::Bad(problem) => DataError::bad(location, problem),
        }
    }
}

impl From<NoRoom> for DecodeError {
    fn from(e: NoRoom) -> DecodeError {
        DecodeError::NoRoom(e)
    }
}

impl From<String> for DecodeError {
    fn from(problem: String) -> DecodeError {
        DecodeError::Bad(problem)
    }
}

impl From<&str> for DecodeError {
    fn from(problem: &str) -> DecodeError {
        DecodeError::Bad(problem.to_string())
    }
}

/// Whole numbers of 32 bits are classes, which cannot be mixed.
pub(crate) fn interpolation_for(dtype: DType) -> Interpolation {
    if dtype == DType::I32 { Interpolation::Nearest } else { Interpolation::Bilinear }
}

/// An image of zeroes.
fn zeroed_image(height: usize, width: usize, channels: usize, pool: &BytePool) -> Result<Tensor, DecodeError> {
    Ok(Tensor::zeros(TensorType::new(DType::U8, [height, width, channels]), pool)?)
}

/// RGB → one grey value.
pub(crate) fn grey([r, g, b]: [u8; 3]) -> u8 {
    luma(r, g, b)
}

/// RGB → one grey value: the weights of ITU-R 601 in 16 bits, as PIL has them.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((r as u32 * 19595 + g as u32 * 38470 + b as u32 * 7471 + 0x8000) >> 16) as u8
}
