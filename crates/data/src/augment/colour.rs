//! What changes values and moves nothing.

use memfit_ir::{DType, TensorType};

use super::Map;
use super::field::image_shape;
use crate::context::Context;
use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::simd::wide;
use crate::tensor::{Example, Tensor};

/// (value ÷ 255 − mean) ÷ deviation for each channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Normalise {
    /// A mean and a deviation for each channel.
    pub fn new(mean: &[f32], deviation: &[f32]) -> Result<Normalise> {
        if mean.is_empty() || mean.len() != deviation.len() || deviation.iter().any(|d| *d <= 0.0 || !d.is_finite()) {
            return Err(DataError::Pipeline(format!(
                "normalise needs a mean and a positive deviation for each channel; there are {mean:?} and {deviation:?}"
            )));
        }
        let scale: Vec<f32> = deviation.iter().map(|d| 1.0 / (255.0 * d)).collect();
        let shift = mean.iter().zip(deviation).map(|(m, d)| -m / d).collect();
        Ok(Normalise { scale, shift })
    }

    /// The usual means and deviations of natural images.
    pub fn imagenet() -> Normalise {
        Normalise::new(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]).expect("they are three and three, and positive")
    }

    pub fn channels(&self) -> usize {
        self.scale.len()
    }

    /// Pixels of [`Normalise::channels`] values.
    pub fn run(&self, pixels: &[u8], out: &mut [f32]) {
        // A whole number of pixels that fills whole registers.
        let period = self.channels() * 8;
        let repeat = |v: &[f32]| v.iter().copied().cycle().take(period).collect::<Vec<f32>>();
        scale_and_shift(pixels, &repeat(&self.scale), &repeat(&self.shift), out);
    }

    pub(super) fn tensor(&self, x: &Tensor, pool: &BytePool) -> Result<Tensor> {
        let (_, channels) = image_shape(x)?;
        if x.ty().dtype != DType::U8 || channels != self.channels() {
            return Err(DataError::Pipeline(format!(
                "normalise expects u8 with {} channels, and field \"x\" is {}",
                self.channels(),
                x.ty()
            )));
        }
        let mut out = Tensor::zeros(TensorType::new(DType::F32, x.ty().shape.clone()), pool)?;
        self.run(x.bytes(), out.f32s_mut());
        Ok(out)
    }
}

/// u8 → f32 by mean and deviation of each channel.
pub fn normalise(how: Normalise) -> impl Map {
    move |mut example: Example, context: &Context| {
        let x = example.get_mut("x")?;
        *x = how.tensor(x, context.pool)?;
        Ok(example)
    }
}

wide! {
    fn scale_and_shift(pixels: &[u8], scale: &[f32], shift: &[f32], out: &mut [f32]) {
        for (pixels, out) in pixels.chunks(scale.len()).zip(out.chunks_mut(scale.len())) {
            for (((out, pixel), scale), shift) in out.iter_mut().zip(pixels).zip(scale).zip(shift) {
                *out = *pixel as f32 * scale + shift;
            }
        }
    }
}
