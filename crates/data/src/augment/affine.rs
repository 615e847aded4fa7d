//! Moving pixels by a matrix about the centre: rotation, shear, scale and translation in one go.

use super::field::{PixelOp, channels, dispatch};
use crate::error::Result;
use crate::image::{ImageView, Interpolation, PixelValue, interpolation_for};
use crate::memory::BytePool;
use crate::tensor::Tensor;

/// Rotation, shear, scale and translation about the centre of an image, in this order, as torchvision's `affine`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Clockwise.
    pub degrees: f32,
    /// Pixels to the right, and down.
    pub translate: [f32; 2],
    /// Above 1, what is seen becomes larger.
    pub scale: f32,
    /// Degrees along the rows, and along the columns.
    pub shear: [f32; 2],
}

impl Affine {
    /// The one that moves nothing.
    pub const NONE: Affine = Affine { degrees: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2] };

    /// From where in the image a pixel of the result comes.
    fn back(&self) -> Back {
        let Affine { degrees, translate, scale, shear } = *self;
        let [rotation, across, down] = [degrees, shear[0], shear[1]].map(f32::to_radians);
        let (sin, cos) = (rotation - down).sin_cos();
        let (slope, stretch) = (across.tan(), down.cos());
        let a = cos / stretch;
        let b = -cos * slope / stretch - rotation.sin();
        let c = sin / stretch;
        let d = -sin * slope / stretch + rotation.cos();
        // Its determinant is 1.
        Back { x: [d / scale, -b / scale], y: [-c / scale, a / scale], translate }
    }
}

/// A matrix from the place of a pixel in the result, as seen from the middle, to that in the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    /// Of the column: by how far to the right, and by how far down.
    pub x: [f32; 2],
    /// Of the row: by how far to the right, and by how far down.
    pub y: [f32; 2],
    /// Taken off before: to the right, and down.
    pub translate: [f32; 2],
}

/// What comes in from outside is zero.
pub(super) fn move_pixels(image: &Tensor, affine: Affine, pool: &BytePool) -> Result<Tensor> {
    let mut out = Tensor::zeros(image.ty().clone(), pool)?;
    dispatch(image, &mut out, Move { back: affine.back() })?;
    Ok(out)
}

pub(super) struct Move {
    pub back: Back,
}

impl PixelOp for Move {
    type Output = ();

    fn run<S: PixelValue + bytemuck::Pod>(self, from: &Tensor, to: &mut Tensor) {
        let shape = &from.ty().shape;
        let pixels = bytemuck::cast_slice::<u8, S>(from.bytes());
        let view = ImageView { pixels, size: [shape[0], shape[1]], channels: channels(from.ty()) };
        let interpolation = interpolation_for(from.ty().dtype);
        resample(view, self.back, interpolation, bytemuck::cast_slice_mut(to.bytes_mut()));
    }
}

/// Every pixel from where it comes, with zeroes outside.
pub(super) fn resample<S: PixelValue>(image: ImageView<S>, back: Back, interpolation: Interpolation, out: &mut [S]) {
    let [height, width] = image.size;
    let (middle_y, middle_x) = ((height as f32 - 1.0) / 2.0, (width as f32 - 1.0) / 2.0);
    for (y, row) in out.chunks_exact_mut(width * image.channels).enumerate() {
        let dy = y as f32 - middle_y - back.translate[1];
        for (x, pixel) in row.chunks_exact_mut(image.channels).enumerate() {
            let dx = x as f32 - middle_x - back.translate[0];
            let from_y = middle_y + back.y[1] * dy + back.y[0] * dx;
            let from_x = middle_x + back.x[0] * dx + back.x[1] * dy;
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
