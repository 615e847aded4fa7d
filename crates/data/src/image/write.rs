//! Pictures that are made here, as PNG.

use std::io::{self, Write};

use png::{BitDepth, ColorType, Encoder};

/// What the bytes of a picture are, row after row.
#[derive(Clone, Copy, Debug)]
pub enum Pixels<'a> {
    /// A byte a pixel, from black to white.
    Grey(&'a [u8]),
    /// Three bytes a pixel.
    Rgb(&'a [u8]),
    /// A byte a pixel, which is a number of a colour; at most 256 colours.
    Numbers {
        /// The number of each pixel.
        numbers: &'a [u8],
        /// What each of them looks like.
        colours: &'a [[u8; 3]],
    },
}

/// Writes a picture of this height and width as PNG.
///
/// # Errors
/// Where it cannot be written, or the pixels are not as many as the size says.
///
/// ```
/// use memfit_data::BytePool;
/// use memfit_data::image::{Channels, Pixels, decode, write_png};
///
/// let mut file = Vec::new();
/// write_png(&mut file, [1, 2], Pixels::Rgb(&[255, 0, 0, 0, 0, 255]))?;
/// let picture = decode(&file, Channels::Rgb, &"made", &BytePool::new(1 << 20)).expect("it is a PNG");
/// assert_eq!(picture.bytes(), [255, 0, 0, 0, 0, 255]);
/// # std::io::Result::Ok(())
/// ```
pub fn write_png(out: impl Write, [height, width]: [usize; 2], pixels: Pixels) -> io::Result<()> {
    let extent = |n: usize| u32::try_from(n).map_err(|_| io::Error::other("no picture is that large"));
    let mut encoder = Encoder::new(out, extent(width)?, extent(height)?);
    encoder.set_depth(BitDepth::Eight);
    let bytes = match pixels {
        Pixels::Grey(bytes) => {
            encoder.set_color(ColorType::Grayscale);
            bytes
        }
        Pixels::Rgb(bytes) => {
            encoder.set_color(ColorType::Rgb);
            bytes
        }
        Pixels::Numbers { numbers, colours } => {
            encoder.set_color(ColorType::Indexed);
            encoder.set_palette(colours.as_flattened().to_vec());
            numbers
        }
    };
    let mut writer = encoder.write_header()?;
    writer.write_image_data(bytes)?;
    Ok(writer.finish()?)
}
