//! Rotation by any angle.

use super::field::{PixelOp, channels, dispatch, geometric_fields};
use super::{Map, stream};
use crate::context::Context;
use crate::image::{ImageView, Interpolation, PixelValue, interpolation_for};
use crate::tensor::{Example, Tensor};

/// Rotates about the centre by a random angle from −`degrees` to `degrees`. What comes in from outside is zero.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = rotate(0.0)(grey([2, 2], &[1, 2, 3, 4], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomRotation")]
pub fn rotate(degrees: f32) -> impl Map {
    move |mut example: Example, context: &Context| {
        let (_, names) = geometric_fields(&example)?;
        let angle = context.random(stream::ROTATE).range(-degrees, degrees).to_radians();
        for name in names {
            let image = example.get_mut(name)?;
            let mut out = Tensor::zeros(image.ty().clone(), context.pool)?;
            dispatch(image, &mut out, Rotate { angle })?;
            *image = out;
        }
        Ok(example)
    }
}

struct Rotate {
    angle: f32,
}

impl PixelOp for Rotate {
    type Output = ();

    fn run<S: PixelValue + bytemuck::Pod>(self, from: &Tensor, to: &mut Tensor) {
        let shape = &from.ty().shape;
        let pixels = bytemuck::cast_slice::<u8, S>(from.bytes());
        let view = ImageView { pixels, size: [shape[0], shape[1]], channels: channels(from.ty()) };
        rotate_about_centre(
            view,
            self.angle,
            interpolation_for(from.ty().dtype),
            bytemuck::cast_slice_mut(to.bytes_mut()),
        );
    }
}

/// Rotates an image about its centre, counter-clockwise for a positive angle in radians, with zeroes outside.
pub(super) fn rotate_about_centre<S: PixelValue>(
    image: ImageView<S>,
    angle: f32,
    interpolation: Interpolation,
    out: &mut [S],
) {
    let ([height, width], (sin, cos)) = (image.size, angle.sin_cos());
    let (middle_y, middle_x) = ((height as f32 - 1.0) / 2.0, (width as f32 - 1.0) / 2.0);
    for (y, row) in out.chunks_exact_mut(width * image.channels).enumerate() {
        let dy = y as f32 - middle_y;
        for (x, pixel) in row.chunks_exact_mut(image.channels).enumerate() {
            let dx = x as f32 - middle_x;
            let from_y = middle_y + cos * dy + sin * dx;
            let from_x = middle_x + cos * dx - sin * dy;
            match interpolation {
                Interpolation::Bilinear => bilinear_pixel(image, from_y, from_x, pixel),
                Interpolation::Nearest => nearest_pixel(image, from_y.round(), from_x.round(), pixel),
            }
        }
    }
}

fn bilinear_pixel<S: PixelValue>(image: ImageView<S>, y: f32, x: f32, out: &mut [S]) {
    let (top, left) = (y.floor(), x.floor());
    let (down, across) = (y - top, x - left);
    for (channel, out) in out.iter_mut().enumerate() {
        let value = |y: f32, x: f32| pixel_at(image, y, x).map_or(0.0, |pixel| pixel[channel].to_f32());
        let upper = value(top, left) * (1.0 - across) + value(top, left + 1.0) * across;
        let lower = value(top + 1.0, left) * (1.0 - across) + value(top + 1.0, left + 1.0) * across;
        *out = S::from_f32(upper * (1.0 - down) + lower * down);
    }
}

fn nearest_pixel<S: PixelValue>(image: ImageView<S>, y: f32, x: f32, out: &mut [S]) {
    match pixel_at(image, y, x) {
        Some(pixel) => out.copy_from_slice(pixel),
        None => out.fill(S::from_f32(0.0)),
    }
}

/// A pixel, if it lies inside.
fn pixel_at<'a, S>(image: ImageView<'a, S>, y: f32, x: f32) -> Option<&'a [S]> {
    let [height, width] = image.size;
    if y < 0.0 || x < 0.0 || y >= height as f32 || x >= width as f32 {
        return None;
    }
    image.pixels.get((y as usize * width + x as usize) * image.channels..)?.get(..image.channels)
}
