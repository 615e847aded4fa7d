//! What the pixels of masks are, and a mask read as that. A mask that is something else than its set is bad: nothing is
//! guessed while it is read. [`survey`] looks at a set of masks and finds out what they are.

mod survey;

use std::path::Path;

use memfit_ir::TensorType;

use super::read_file;
use crate::error::{BadSample, DataError, Result, SampleProblem};
use crate::image::{self, RawMask};
use crate::memory::BytePool;
use crate::tensor::Tensor;

pub use survey::{MaskClasses, MaskFormat, MaskProblem, MaskSurvey};

/// A colour: red, green, blue.
pub type Colour = [u8; 3];

/// What the pixels of a mask are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Masks {
    /// Grey from 0 to 255 → f32 `[height, width, 1]` from 0 to 1.
    Grey,
    /// Background and foreground → f32 `[height, width, 1]`, 0 or 1.
    Binary {
        /// Larger grey values are foreground.
        above: u8,
        /// The only two values that there are, where that is known.
        levels: Option<[u8; 2]>,
    },
    /// Class numbers below `count`, in PNGs → i32 `[height, width]`.
    Classes {
        /// How many classes there are.
        count: usize,
    },
    /// Indices below `count` of one palette that all masks have, in PNGs → i32 `[height, width]`.
    Palette {
        /// How many classes there are.
        count: usize,
        /// The palette, as far as it is known.
        colours: Vec<Option<Colour>>,
    },
    /// Colours, each of a class, in PNGs → i32 `[height, width]`.
    Colours {
        /// Each colour with its class.
        table: Vec<(Colour, usize)>,
    },
}

impl Masks {
    /// How many classes a pixel may have; 1 where it is foreground or not.
    pub fn classes(&self) -> usize {
        match self {
            Masks::Grey | Masks::Binary { .. } => 1,
            Masks::Classes { count } | Masks::Palette { count, .. } => *count,
            Masks::Colours { table } => table.iter().map(|(_, class)| class + 1).max().unwrap_or(0),
        }
    }

    /// Reads a mask.
    pub(super) fn read(&self, path: &Path, pool: &BytePool) -> Result<Tensor> {
        let file = read_file(path, pool)?;
        if *self == Masks::Grey {
            let grey = image::decode(file.bytes(), image::Channels::Grey, &path.display(), pool)?;
            return fractions(&grey, |grey| grey as f32 / 255.0, pool);
        }
        let mask = image::decode_mask(file.bytes(), &path.display(), pool)?;
        let problem = match self {
            Masks::Grey => None,
            Masks::Binary { levels, .. } => levels.and_then(|levels| mask.unlike(levels)),
            Masks::Classes { count } => mask.beyond(*count),
            Masks::Palette { count, colours } => mask.beyond(*count).or_else(|| mask.off_palette(colours)),
            Masks::Colours { .. } => None,
        };
        if let Some((at, problem)) = problem {
            return Err(self.bad(path, &mask, at, problem));
        }
        match self {
            Masks::Binary { above, .. } => fractions(&mask.greys(pool)?, |grey| f32::from(grey > *above), pool),
            Masks::Colours { table } => self.colours(table, path, &mask, pool),
            Masks::Grey | Masks::Classes { .. } | Masks::Palette { .. } => {
                numbers(&mask, |at| Some(mask.pixels.bytes()[at].into()), pool).map_err(|e| e.unwrap_or_else(unknown))
            }
        }
    }

    fn colours(&self, table: &[(Colour, usize)], path: &Path, mask: &RawMask, pool: &BytePool) -> Result<Tensor> {
        let mut odd = None;
        let mut last = None;
        let class = |at: usize| {
            let colour = mask.colour(at);
            // Neighbours are mostly alike.
            match last.filter(|(known, _)| *known == colour) {
                Some((_, class)) => Some(class),
                None => {
                    let found = table.iter().find(|(known, _)| *known == colour);
                    let class = found.map(|(_, class)| *class as i32);
                    if class.is_none() {
                        odd = Some((at, colour));
                    }
                    last = class.map(|class| (colour, class));
                    class
                }
            }
        };
        numbers(mask, class, pool).map_err(|error| match (error, odd) {
            (Some(error), _) => error,
            (None, Some((at, colour))) => self.bad(path, mask, at, SampleProblem::MaskColour { colour }),
            (None, None) => unknown(),
        })
    }

    fn bad(&self, path: &Path, mask: &RawMask, at: usize, problem: SampleProblem) -> DataError {
        let width = mask.pixels.ty().shape[1].max(1);
        let location = format!("{}, row {}, column {}", path.display(), at / width, at % width);
        DataError::Bad(BadSample { location, problem })
    }
}

fn unknown() -> DataError {
    DataError::Pipeline("a pixel of a mask is of no class".into())
}

fn fractions(grey: &Tensor, f: impl Fn(u8) -> f32, pool: &BytePool) -> Result<Tensor> {
    let mut y = Tensor::zeros(TensorType::f32(grey.ty().shape.to_vec()), pool)?;
    y.f32s_mut().iter_mut().zip(grey.bytes()).for_each(|(y, grey)| *y = f(*grey));
    Ok(y)
}

/// The classes of all pixels; no error of its own where one has none.
fn numbers(
    mask: &RawMask,
    mut class: impl FnMut(usize) -> Option<i32>,
    pool: &BytePool,
) -> Result<Tensor, Option<DataError>> {
    let shape = &mask.pixels.ty().shape;
    let mut y = Tensor::zeros(TensorType::i32([shape[0], shape[1]]), pool).map_err(|e| Some(e.into()))?;
    for (at, y) in bytemuck::cast_slice_mut::<u8, i32>(y.bytes_mut()).iter_mut().enumerate() {
        *y = class(at).ok_or(None)?;
    }
    Ok(y)
}

impl RawMask {
    /// The first pixel that is none of two grey values. One bit has no other values.
    fn unlike(&self, levels: [u8; 2]) -> Option<(usize, SampleProblem)> {
        if self.is_bits() {
            return None;
        }
        let at = (0..self.len()).find(|at| !levels.contains(&self.grey(*at)))?;
        let [background, foreground] = levels;
        Some((at, SampleProblem::MaskLevel { value: self.grey(at), background, foreground }))
    }

    /// The first pixel that is no class number.
    fn beyond(&self, count: usize) -> Option<(usize, SampleProblem)> {
        if self.channels() > 1 {
            let at = (0..self.len()).find(|at| !is_grey(self.colour(*at)))?;
            return Some((at, SampleProblem::MaskColour { colour: self.colour(at) }));
        }
        let at = self.pixels.bytes().iter().position(|class| usize::from(*class) >= count)?;
        Some((at, SampleProblem::MaskClass { class: self.pixels.bytes()[at], classes: count }))
    }

    /// The first pixel whose index means another colour than in the palette of all, or that has no palette.
    fn off_palette(&self, colours: &[Option<Colour>]) -> Option<(usize, SampleProblem)> {
        let Some(palette) = &self.palette else { return Some((0, SampleProblem::NoPalette)) };
        let differs = |index: u8| {
            let known = colours.get(usize::from(index)).copied().flatten();
            known.zip(palette.get(usize::from(index)).copied()).filter(|(known, own)| known != own)
        };
        let at = self.pixels.bytes().iter().position(|index| differs(*index).is_some())?;
        let index = self.pixels.bytes()[at];
        let (known, colour) = differs(index)?;
        Some((at, SampleProblem::OtherPalette { index, colour, known }))
    }
}

/// As a run file and a message write it.
pub fn colour_name([r, g, b]: Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn is_grey([r, g, b]: Colour) -> bool {
    r == g && g == b
}
