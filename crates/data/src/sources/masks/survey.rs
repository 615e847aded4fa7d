//! What a set of masks is: some of them are looked at, evenly spread, and what their pixels have is counted. From the
//! counts follows what they can only be; or that they can be several things, which is an error with the facts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Colour, Masks};
use crate::error::{DataError, Result};
use crate::image::{self, RawMask};
use crate::memory::{BytePool, Lease};
use crate::produce::OnBad;
use crate::sources::{no_room_is_final, read_file};

/// Masks that are looked at, at most.
const MASKS: usize = 64;
/// And their pixels: after so many no further mask is looked at.
const PIXELS: u64 = 1 << 26;
/// Different colours that are counted.
const COLOURS: usize = 1024;
/// And listed.
const LISTED: usize = 64;
/// Class numbers are small; a set whose largest value is more than this may be anything.
const SMALL: usize = 64;
/// How near to black or white the pixels of soft edges mostly are, and how many of them.
const NEAR: usize = 16;
const MOSTLY: f64 = 0.9;
/// So many different values are no soft edges.
const FEW_LEVELS: usize = 8;

/// How a mask is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaskFormat {
    /// One number for each pixel.
    Grey,
    /// Indices of a palette.
    Palette,
    /// Colours.
    Colour,
    /// A JPEG, whose values are not exact.
    Jpeg,
}

/// What was said about a set of masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskClasses {
    /// Nothing.
    Unknown,
    /// Grey, from background to foreground.
    Grey,
    /// Foreground or not.
    Binary,
    /// Values are class numbers.
    Numbers,
    /// Indices of a palette are class numbers.
    Palette,
    /// Colours with their classes.
    Colours(Vec<(Colour, usize)>),
}

/// Why masks cannot be read, or can be read in several ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskProblem {
    /// Grey values that may be class numbers, or not.
    Values {
        /// The different values.
        values: Vec<u8>,
    },
    /// Class numbers, and 255, which often means that a pixel is to be ignored.
    Void {
        /// The different values.
        values: Vec<u8>,
        /// Their colours.
        colours: Vec<Colour>,
    },
    /// Masks of several formats.
    Mixed {
        /// A mask with its format, and one with another.
        masks: [(MaskFormat, PathBuf); 2],
    },
    /// Colours, which need a table.
    Coloured {
        /// The most frequent ones, of which each may be a class.
        colours: Vec<Colour>,
        /// How many there are; at least, where it is the most that are counted.
        count: usize,
    },
    /// Palettes that give an index different colours.
    Palettes {
        /// A mask whose palette differs from those before it.
        mask: PathBuf,
        /// The index.
        index: u8,
        /// The colour before, and there.
        colours: [Colour; 2],
    },
    /// A format that does not have what was said.
    Format {
        /// A mask with its format.
        mask: (MaskFormat, PathBuf),
    },
    /// A colour that the table lacks.
    UnknownColour {
        /// The colour.
        colour: Colour,
    },
    /// More classes than were said.
    TooManyClasses {
        /// In the masks.
        found: usize,
        /// Said.
        said: usize,
    },
}

/// What the masks that were looked at have.
#[derive(Debug)]
pub struct MaskSurvey {
    looked_at: usize,
    of: usize,
    pixels: u64,
    /// Whether all of them have one bit for each pixel.
    are_bits: bool,
    /// The first mask of each format.
    formats: BTreeMap<MaskFormat, PathBuf>,
    /// Pixels by what is stored: grey values, or indices of a palette.
    values: [u64; 256],
    /// Pixels by colour, of all.
    colours: BTreeMap<Colour, u64>,
    has_more_colours: bool,
    /// The colours of the indices that are used.
    palette: Vec<Option<Colour>>,
    other_palette: Option<MaskProblem>,
    smallest: [usize; 2],
    largest: [usize; 2],
    _lease: Lease,
}

impl MaskSurvey {
    /// Looks at some masks of a set. What cannot be read is an error, or passed over.
    pub(crate) fn new(
        count: usize,
        path: impl Fn(usize) -> PathBuf,
        bad: OnBad,
        pool: &BytePool,
    ) -> Result<MaskSurvey> {
        let mut survey = MaskSurvey {
            looked_at: 0,
            of: count,
            pixels: 0,
            are_bits: true,
            formats: BTreeMap::new(),
            values: [0; 256],
            colours: BTreeMap::new(),
            has_more_colours: false,
            palette: vec![None; 256],
            other_palette: None,
            smallest: [usize::MAX; 2],
            largest: [0; 2],
            // Nodes of the tree may be half empty.
            _lease: pool.reserve((COLOURS * 4 * size_of::<(Colour, u64)>()) as u64)?,
        };
        let looked = count.min(MASKS);
        for i in 0..looked {
            let mask = path(i * count / looked);
            let what = format!("the mask {}", mask.display());
            match no_room_is_final(what, pool, survey.look_at(&mask, pool)) {
                Err(DataError::Bad(_) | DataError::Io { .. }) if bad == OnBad::Skip => {}
                result => result?,
            }
            if survey.pixels >= PIXELS {
                break;
            }
        }
        Ok(survey)
    }

    fn look_at(&mut self, path: &Path, pool: &BytePool) -> Result<()> {
        let file = read_file(path, pool)?;
        let mask = image::decode_mask(file.bytes(), &path.display(), pool)?;
        self.looked_at += 1;
        self.pixels += mask.len() as u64;
        self.are_bits &= mask.is_bits();
        self.formats.entry(format(&mask)).or_insert_with(|| path.to_path_buf());
        let shape = &mask.pixels.ty().shape;
        for axis in 0..2 {
            self.smallest[axis] = self.smallest[axis].min(shape[axis]);
            self.largest[axis] = self.largest[axis].max(shape[axis]);
        }
        if mask.channels() > 1 {
            (0..mask.len()).for_each(|at| self.add_colour(mask.colour(at), 1));
            return Ok(());
        }
        let mut values = [0u64; 256];
        mask.pixels.bytes().iter().for_each(|value| values[usize::from(*value)] += 1);
        for (value, &pixels) in (0u8..=255).zip(&values).filter(|(_, pixels)| **pixels > 0) {
            let colour = mask.colour_of(value);
            self.add_colour(colour, pixels);
            // One bit is black or white, and no class number unless that is said.
            let stored = if mask.is_bits() { value.saturating_mul(255) } else { value };
            self.values[usize::from(stored)] += pixels;
            if mask.palette.is_some() {
                self.add_palette(value, colour, path);
            }
        }
        Ok(())
    }

    fn add_colour(&mut self, colour: Colour, pixels: u64) {
        if self.colours.len() >= COLOURS && !self.colours.contains_key(&colour) {
            self.has_more_colours = true;
            return;
        }
        *self.colours.entry(colour).or_default() += pixels;
    }

    fn add_palette(&mut self, index: u8, colour: Colour, path: &Path) {
        let known = *self.palette[usize::from(index)].get_or_insert(colour);
        if known != colour && self.other_palette.is_none() {
            let (mask, colours) = (path.to_path_buf(), [known, colour]);
            self.other_palette = Some(MaskProblem::Palettes { mask, index, colours });
        }
    }

    /// How many masks were looked at, and how many there are.
    pub fn looked_at(&self) -> (usize, usize) {
        (self.looked_at, self.of)
    }

    /// Height and width of the smallest and of the largest; each axis by itself.
    pub fn sizes(&self) -> Option<[[usize; 2]; 2]> {
        (self.looked_at > 0).then_some([self.smallest, self.largest])
    }

    /// What the masks are, as far as that is said, and otherwise if they can only be one thing. `classes` is how many
    /// the model is to have, where that is said.
    ///
    /// # Errors
    /// What else they may be.
    pub fn masks(&self, said: &MaskClasses, classes: Option<usize>) -> Result<Masks, MaskProblem> {
        match said {
            MaskClasses::Grey => Ok(Masks::Grey),
            MaskClasses::Binary => Ok(self.binary()),
            MaskClasses::Numbers => self.numbers(classes),
            MaskClasses::Palette => self.palette(classes),
            MaskClasses::Colours(table) => self.by_table(table),
            MaskClasses::Unknown => self.detect(classes),
        }
    }

    /// How many pixels of those that were looked at are of each class; of a binary mask, background and foreground.
    pub fn counts(&self, masks: &Masks) -> Vec<u64> {
        let mut counts = vec![0; masks.classes().max(2)];
        let mut add = |class: usize, pixels: u64| {
            if let Some(count) = counts.get_mut(class) {
                *count += pixels;
            }
        };
        match masks {
            Masks::Grey => self.colours.iter().for_each(|(c, n)| add(usize::from(image::grey(*c) > 127), *n)),
            Masks::Binary { above, .. } if self.formats.contains_key(&MaskFormat::Palette) => {
                self.colours.iter().for_each(|(c, n)| add(usize::from(image::grey(*c) > *above), *n));
            }
            Masks::Binary { above, .. } => {
                (0u8..=255).zip(self.values).for_each(|(v, n)| add(usize::from(v > *above), n));
            }
            Masks::Classes { .. } | Masks::Palette { .. } => {
                self.values.iter().enumerate().for_each(|(class, n)| add(self.number(class), *n));
            }
            Masks::Colours { table } => {
                table.iter().for_each(|(colour, class)| add(*class, self.colours.get(colour).copied().unwrap_or(0)));
            }
        }
        counts
    }

    /// A set of nothing but bits: white is class 1.
    fn number(&self, value: usize) -> usize {
        if self.are_bits && value == 255 { 1 } else { value }
    }

    /// The different values.
    fn distinct(&self) -> Vec<u8> {
        (0u8..=255).zip(&self.values).filter(|(_, pixels)| **pixels > 0).map(|(value, _)| value).collect()
    }

    fn of_format(&self, format: MaskFormat) -> Option<(MaskFormat, PathBuf)> {
        self.formats.get(&format).map(|path| (format, path.clone()))
    }

    fn detect(&self, classes: Option<usize>) -> Result<Masks, MaskProblem> {
        let formats: Vec<(MaskFormat, &PathBuf)> = self.formats.iter().map(|(f, p)| (*f, p)).collect();
        if self.colours.keys().all(|c| [[0; 3], [255; 3]].contains(c)) && classes.is_none_or(|n| n == 1) {
            // Black and white are background and foreground however they are stored.
            return Ok(Masks::Binary { above: 127, levels: Some([0, 255]) });
        }
        if self.formats.contains_key(&MaskFormat::Colour) {
            // A mask of one colour may be grey.
            return Err(self.coloured());
        }
        match formats[..] {
            [(a, first), (b, other), ..] => Err(MaskProblem::Mixed { masks: [(a, first.clone()), (b, other.clone())] }),
            [(MaskFormat::Palette, _)] => self.palette(classes),
            [(MaskFormat::Jpeg, _)] if self.has_soft_edges() => Ok(Masks::Grey),
            [(MaskFormat::Jpeg, path)] => Err(MaskProblem::Format { mask: (MaskFormat::Jpeg, path.clone()) }),
            [(MaskFormat::Grey | MaskFormat::Colour, _)] | [] => self.detect_grey(classes),
        }
    }

    /// Of one number for each pixel.
    fn detect_grey(&self, classes: Option<usize>) -> Result<Masks, MaskProblem> {
        let values = self.distinct();
        let most = values.last().copied().map_or(0, usize::from);
        if classes.is_some_and(|n| n > 1 && most < n) {
            return self.numbers(classes);
        }
        match values[..] {
            [0, 1] | [1] => Ok(Masks::Binary { above: 0, levels: Some([0, 1]) }),
            [0, foreground @ 128..=255] => Ok(Masks::Binary { above: 127, levels: Some([0, foreground]) }),
            [_, _] => Err(MaskProblem::Values { values }),
            [.., second, 255] if usize::from(second) < SMALL => Err(self.void(values)),
            // Soft edges have many values in between; a few may be as many classes.
            _ if values.len() > FEW_LEVELS && self.has_soft_edges() => Ok(Masks::Grey),
            // Most of the numbers up to the largest are there.
            [_, _, _, ..] if most < SMALL && values.len() * 2 > most => self.numbers(classes),
            _ => Err(MaskProblem::Values { values }),
        }
    }

    /// Nearly all pixels are nearly black or nearly white, and there are both.
    fn has_soft_edges(&self) -> bool {
        let count = |near: fn(usize) -> bool| -> u64 {
            self.values.iter().enumerate().filter(|(v, _)| near(*v)).map(|(_, n)| *n).sum()
        };
        let (dark, bright) = (count(|v| v <= NEAR), count(|v| v >= 255 - NEAR));
        let all = self.values.iter().sum::<u64>();
        dark > 0 && bright > 0 && (dark + bright) as f64 >= MOSTLY * all as f64
    }

    /// Two values are told apart; of more, the upper half is foreground, or of small ones what is not 0.
    fn binary(&self) -> Masks {
        let greys: Vec<u8> = if self.formats.contains_key(&MaskFormat::Palette) {
            self.colours.keys().map(|c| image::grey(*c)).collect()
        } else {
            self.distinct()
        };
        let most = greys.iter().max().copied().unwrap_or(255);
        Masks::Binary { above: if most > 127 { 127 } else { 0 }, levels: None }
    }

    fn numbers(&self, classes: Option<usize>) -> Result<Masks, MaskProblem> {
        let unfit = self.of_format(MaskFormat::Jpeg).or_else(|| self.of_format(MaskFormat::Colour));
        if let Some(mask) = unfit {
            return Err(MaskProblem::Format { mask });
        }
        Ok(Masks::Classes { count: self.count(classes)? })
    }

    fn palette(&self, classes: Option<usize>) -> Result<Masks, MaskProblem> {
        let others = [MaskFormat::Grey, MaskFormat::Colour, MaskFormat::Jpeg];
        if let Some(mask) = others.into_iter().find_map(|format| self.of_format(format)) {
            return Err(MaskProblem::Format { mask });
        }
        if let Some(problem) = &self.other_palette {
            return Err(problem.clone());
        }
        Ok(Masks::Palette { count: self.count(classes)?, colours: self.palette.clone() })
    }

    /// As many classes as were said, or as the largest number makes.
    fn count(&self, said: Option<usize>) -> Result<usize, MaskProblem> {
        let values = self.distinct();
        let most = values.iter().map(|v| self.number(usize::from(*v))).max().unwrap_or(0);
        let void = values.len() > 1 && most == 255 && values.iter().rev().nth(1).is_some_and(|v| *v < 254);
        match said {
            Some(said) if most >= said && !void => Err(MaskProblem::TooManyClasses { found: most + 1, said }),
            Some(said) if most < said => Ok(said),
            _ if void => Err(self.void(values)),
            Some(_) | None => Ok((most + 1).max(2)),
        }
    }

    fn by_table(&self, table: &[(Colour, usize)]) -> Result<Masks, MaskProblem> {
        if let Some(mask) = self.of_format(MaskFormat::Jpeg) {
            return Err(MaskProblem::Format { mask });
        }
        if table.is_empty() {
            return Err(self.coloured());
        }
        match self.colours.keys().find(|colour| !table.iter().any(|(known, _)| known == *colour)) {
            Some(colour) => Err(MaskProblem::UnknownColour { colour: *colour }),
            None => Ok(Masks::Colours { table: table.to_vec() }),
        }
    }

    fn void(&self, values: Vec<u8>) -> MaskProblem {
        let is_palette = self.formats.contains_key(&MaskFormat::Palette);
        let colour = |value: &u8| {
            let indexed = self.palette[usize::from(*value)].filter(|_| is_palette);
            indexed.unwrap_or([*value; 3])
        };
        MaskProblem::Void { colours: values.iter().map(colour).collect(), values }
    }

    fn coloured(&self) -> MaskProblem {
        let mut colours: Vec<(Colour, u64)> = self.colours.iter().map(|(c, n)| (*c, *n)).collect();
        colours.sort_by_key(|(colour, pixels)| (u64::MAX - pixels, *colour));
        let count = colours.len();
        MaskProblem::Coloured { colours: colours.into_iter().take(LISTED).map(|(c, _)| c).collect(), count }
    }
}

fn format(mask: &RawMask) -> MaskFormat {
    match () {
        () if mask.is_jpeg => MaskFormat::Jpeg,
        () if mask.channels() > 1 => MaskFormat::Colour,
        () if mask.palette.is_some() => MaskFormat::Palette,
        () => MaskFormat::Grey,
    }
}
