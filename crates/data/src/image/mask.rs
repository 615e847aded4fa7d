//! A mask with its pixels as they are stored.

use memfit_ir::{DType, TensorType};

use super::luma;
use crate::memory::{BytePool, NoRoom};
use crate::tensor::Tensor;

/// What a mask has for each pixel: a number, which is a grey value or the index of a palette, or a colour.
#[derive(Debug)]
pub(crate) struct RawMask {
    /// u8 `[height, width, 1]`, or `[height, width, 3]` where there are colours that are not grey.
    pub pixels: Tensor,
    /// The colours of indices.
    pub palette: Option<Vec<[u8; 3]>>,
    /// Of a number.
    pub bits: u8,
    pub is_jpeg: bool,
}

impl RawMask {
    /// Pixels.
    pub fn len(&self) -> usize {
        self.pixels.bytes().len() / self.channels().max(1)
    }

    pub fn channels(&self) -> usize {
        self.pixels.ty().shape[2]
    }

    /// Whether a pixel is one bit, black or white.
    pub fn is_bits(&self) -> bool {
        self.bits == 1 && self.palette.is_none()
    }

    /// The colour of a pixel.
    pub fn colour(&self, at: usize) -> [u8; 3] {
        match self.pixels.bytes().get(3 * at..3 * at + 3) {
            Some(&[r, g, b]) if self.channels() == 3 => [r, g, b],
            _ => self.colour_of(self.pixels.bytes()[at]),
        }
    }

    /// The colour that a number means; one beyond the palette is black.
    pub fn colour_of(&self, value: u8) -> [u8; 3] {
        match &self.palette {
            Some(palette) => palette.get(usize::from(value)).copied().unwrap_or_default(),
            None => {
                let most = (1u16 << self.bits.min(8)) - 1;
                [(u16::from(value) * 255 / most) as u8; 3]
            }
        }
    }

    /// The grey value of a pixel: as it is stored, but that one bit is black or white, and colours are as bright as they are.
    pub fn grey(&self, at: usize) -> u8 {
        if self.channels() == 3 || self.palette.is_some() || self.is_bits() {
            let [r, g, b] = self.colour(at);
            return luma(r, g, b);
        }
        self.pixels.bytes()[at]
    }

    /// All of them, u8 `[height, width, 1]`.
    pub fn greys(&self, pool: &BytePool) -> Result<Tensor, NoRoom> {
        let shape = &self.pixels.ty().shape;
        let mut greys = Tensor::zeros(TensorType::new(DType::U8, [shape[0], shape[1], 1]), pool)?;
        greys.bytes_mut().iter_mut().enumerate().for_each(|(at, grey)| *grey = self.grey(at));
        Ok(greys)
    }
}
