//! Files of data that tests write: pictures of any kind, arrays.

use std::path::Path;

use png::{BitDepth, ColorType, Encoder};

/// How a PNG stores its pixels.
pub enum Pixels<'a> {
    Grey(&'a [u8]),
    /// Two bytes each.
    Wide(&'a [u8]),
    Rgb(&'a [u8]),
    /// Indices, and the palette.
    Indexed(&'a [u8], &'a [u8]),
}

pub fn write_png(path: &str, [height, width]: [usize; 2], pixels: &Pixels) {
    let file = std::fs::File::create(Path::new(path)).expect("a temporary file");
    let mut encoder = Encoder::new(file, width as u32, height as u32);
    let (colour, depth, bytes) = match pixels {
        Pixels::Grey(bytes) => (ColorType::Grayscale, BitDepth::Eight, bytes),
        Pixels::Wide(bytes) => (ColorType::Grayscale, BitDepth::Sixteen, bytes),
        Pixels::Rgb(bytes) => (ColorType::Rgb, BitDepth::Eight, bytes),
        Pixels::Indexed(bytes, palette) => {
            encoder.set_palette(palette.to_vec());
            (ColorType::Indexed, BitDepth::Eight, bytes)
        }
    };
    encoder.set_color(colour);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().expect("it can be written");
    writer.write_image_data(bytes).expect("as many pixels as it says");
    writer.finish().expect("it can be written");
}

/// An NPY file.
pub fn npy(descr: &str, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

/// f32 numbers in rows of so many.
pub fn floats(rows: &[[f32; 2]]) -> Vec<u8> {
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    npy("<f4", &[rows.len(), 2], &bytes)
}

/// Class numbers, as numpy has them by itself.
pub fn labels(classes: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = classes.iter().flat_map(|c| c.to_le_bytes()).collect();
    npy("<i8", &[classes.len()], &bytes)
}

/// What np.savez writes of arrays: nothing is compressed.
pub fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in arrays {
        let name = format!("{name}.npy");
        let (offset, length) = (file.len() as u32, bytes.len() as u32);
        // Nobody looks at the checksum of what is read row by row.
        let sizes = [0, length, length].map(u32::to_le_bytes).concat();
        let names = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        file.extend([b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0", &sizes[..], &names, name.as_bytes(), bytes].concat());
        let place = [&[0; 10][..], &offset.to_le_bytes()].concat();
        directory
            .extend([b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0", &sizes[..], &names, &place, name.as_bytes()].concat());
    }
    let count = (arrays.len() as u16).to_le_bytes();
    let (size, start) = ((directory.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
    [&file, &directory, &b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size, &start, &[0; 2]].concat()
}
