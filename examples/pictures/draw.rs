//! Shapes of random size, place and colour on a noisy ground.

use std::fs::File;
use std::path::Path;

use memfit::ir::philox;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Disc,
    Square,
    Cross,
    Ring,
    Bar,
}

impl Shape {
    pub const ALL: [Shape; 5] = [Shape::Disc, Shape::Square, Shape::Cross, Shape::Ring, Shape::Bar];

    pub fn from_name(name: &str) -> Option<Shape> {
        let names = ["disc", "square", "cross", "ring", "bar"];
        names.iter().position(|n| *n == name).map(|i| Shape::ALL[i])
    }

    /// Whether a point belongs to it; its middle is 0, its half size 1.
    fn has(self, x: f32, y: f32) -> bool {
        let distance = x.hypot(y);
        match self {
            Shape::Disc => distance < 1.0,
            Shape::Square => x.abs().max(y.abs()) < 0.85,
            Shape::Cross => x.abs().min(y.abs()) < 0.3 && x.abs().max(y.abs()) < 1.0,
            Shape::Ring => (0.6..1.0).contains(&distance),
            Shape::Bar => x.abs() < 0.35 && y.abs() < 1.0,
        }
    }
}

/// An image of RGB and its mask. The name is the seed.
pub fn picture(shape: Shape, side: usize, name: &str) -> (Vec<u8>, Vec<u8>) {
    let numbers: Vec<f32> = philox::uniform(7, name, 9).map(|u| (u + 1.0) / 2.0).collect();
    let size = side as f32 * (0.22 + 0.18 * numbers[0]);
    let middle = |u: f32| size + u * (side as f32 - 2.0 * size);
    let (cx, cy) = (middle(numbers[1]), middle(numbers[2]));
    let ground: Vec<f32> = numbers[3..6].iter().map(|u| 110.0 * u).collect();
    let colour: Vec<f32> = numbers[6..9].iter().map(|u| 145.0 + 110.0 * u).collect();
    let mut noise = philox::normal(8, name, side * side * 3);
    let (mut image, mut mask) = (Vec::with_capacity(side * side * 3), Vec::with_capacity(side * side));
    for y in 0..side {
        for x in 0..side {
            let inside = shape.has((x as f32 + 0.5 - cx) / size, (y as f32 + 0.5 - cy) / size);
            mask.push(if inside { 255 } else { 0 });
            for c in 0..3 {
                let plain = if inside { colour[c] } else { ground[c] };
                image.push((plain + 12.0 * noise.next().unwrap_or(0.0)).clamp(0.0, 255.0) as u8);
            }
        }
    }
    (image, mask)
}

pub fn write_png(path: &Path, pixels: &[u8], side: usize, channels: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut encoder = png::Encoder::new(File::create(path)?, side as u32, side as u32);
    encoder.set_color(if channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}
