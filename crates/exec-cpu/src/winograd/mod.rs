//! Convolutions with a filter of 3×3 taps by Winograd's F(2×2, 3×3): a tile of 2×2 results takes 16 multiplications a pair
//! of channels instead of 36. Images and filters are transformed into 16 matrices each, whose products the GEMM's
//! micro-kernels make.
//!
//! Which convolutions take it depends on their geometry and channels alone, and so does every sum: batch, threads, plan and
//! prologues change no bit.

mod filter;
mod gradient;
mod lines;
mod pass;
mod tiles;
mod transform;

#[cfg(test)]
mod tests;

use memfit_ir::op::Conv;

use crate::conv::{ConvShape, Product};
use crate::gemm::Patches;

pub(crate) use filter::{filter_scratch_len, filter_times_read, run_filter};
pub(crate) use pass::{fits_rows, run, scratch_len, times_read};

/// Height and width of a tile of results.
const TILE: usize = 2;
/// Products that stand for a tile.
const PRODUCTS: usize = 16;
/// Fewer channels leave the products too little to do beside the transforms: with 16 it takes 0.6 to 0.7 of the time of a plain
/// product.
const LEAST_CHANNELS: usize = 16;
/// With less, the transforms take what the products save.
const LEAST_GAIN: f64 = 1.5;

/// What is read and what is made, as tiles of both: a pass makes `to` from `from` and a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) batch: usize,
    /// Height and width of the image that is read.
    pub(crate) from: [usize; 2],
    pub(crate) channels: usize,
    /// Height and width of the image that is made.
    pub(crate) to: [usize; 2],
    pub(crate) columns: usize,
    /// Where the first tile starts in the image that is read.
    pub(crate) origin: [isize; 2],
    /// Whether the filter's taps go backwards, with its channels the other way round.
    pub(crate) turned: bool,
}

impl Geometry {
    /// Of a product of a convolution that is made this way; none where that is impossible, or another way is quicker.
    pub(crate) fn new(shape: &ConvShape, product: Product) -> Option<Geometry> {
        let Conv { stride, dilation, groups, .. } = shape.conv;
        let possible = shape.filter == [3, 3] && stride == [1, 1] && dilation == [1, 1] && groups == 1;
        let g = Geometry::of(shape, product);
        (possible && g.pays()).then_some(g)
    }

    fn of(shape: &ConvShape, product: Product) -> Geometry {
        let (top, left) = (shape.conv.pad.top as isize, shape.conv.pad.left as isize);
        match product {
            Product::Forward | Product::Filter => Geometry {
                batch: shape.batch,
                from: shape.image,
                channels: shape.channels_in,
                to: shape.out,
                columns: shape.channels_out,
                origin: [-top, -left],
                turned: false,
            },
            Product::Transposed => Geometry {
                batch: shape.batch,
                from: shape.out,
                channels: shape.channels_out,
                to: shape.image,
                columns: shape.channels_in,
                origin: [top - 2, left - 2],
                turned: true,
            },
        }
    }

    /// Whether there are channels enough, and multiplications are saved: tiles at the edges of odd images are made for nothing.
    fn pays(&self) -> bool {
        self.gain() >= LEAST_GAIN && self.channels.min(self.columns) >= LEAST_CHANNELS
    }

    /// How many times fewer multiplications it takes.
    pub(crate) fn gain(&self) -> f64 {
        let ([h, w], [down, across]) = (self.to, self.tiles());
        (9 * h * w) as f64 / (PRODUCTS * down * across).max(1) as f64
    }

    /// Tiles of an image, down and across.
    fn tiles(&self) -> [usize; 2] {
        self.to.map(|n| n.div_ceil(TILE))
    }

    /// Rows of tiles, of all images one after the other.
    fn tile_rows(&self) -> usize {
        self.batch * self.tiles()[0]
    }

    fn all_tiles(&self) -> usize {
        self.tile_rows() * self.tiles()[1]
    }

    /// The first pixel of a row of tiles.
    fn first_pixel(&self, row: usize) -> usize {
        let down = self.tiles()[0].max(1);
        (row / down * self.to[0] + (row % down * TILE).min(self.to[0])) * self.to[1]
    }

    /// The tiles of what is read: 4×4 pixels each.
    fn reading(&self) -> Patches {
        self.patches(self.from, self.channels, TILE + 2, self.origin)
    }

    /// The tiles of what is made.
    fn making(&self) -> Patches {
        self.patches(self.to, self.columns, TILE, [0, 0])
    }

    fn patches(&self, size: [usize; 2], channels: usize, side: usize, origin: [isize; 2]) -> Patches {
        Patches {
            size,
            channels,
            used_channels: channels,
            grid: self.tiles(),
            taps: [side; 2],
            stride: [TILE; 2],
            origin,
            dilation: [1, 1],
        }
    }
}
