//! Augmentations by name, as run files say them: `flip`, `rotate:15`, `randaugment:2,9`. One table says what each is called,
//! which numbers it takes, and what it is.

use std::fmt;
use std::sync::Arc;

use memfit_ir::nearest;

use super::{
    ColourJitter, Crop, Erase, RandAugment, autocontrast, blur, brightness, colour_jitter, contrast, cutout, equalize,
    erase, flip_horizontal, flip_vertical, grayscale, hue, invert, posterize, rand_augment, random_crop_padded, rotate,
    saturation, scale, sharpness, shear, solarize, translate,
};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Example;

/// An augmentation with its numbers, as it was said.
///
/// ```
/// use memfit_data::augment::{Augmentation, NAMED};
///
/// let flip: Augmentation = "flip".parse()?;
/// let jitter: Augmentation = "colour-jitter:0.4,0.4,0.4,0.1".parse()?;
/// assert_eq!((flip.name(), jitter.name(), jitter.to_string().as_str()), ("flip", "colour-jitter", "colour-jitter:0.4,0.4,0.4,0.1"));
/// let wrong = "brightnes:0.2".parse::<Augmentation>().unwrap_err().to_string();
/// assert!(wrong.starts_with("there is no augmentation \"brightnes\" (did you mean \"brightness\"?)"));
/// assert!(NAMED.iter().any(|named| named.name == "crop"));
/// # Ok::<(), memfit_data::augment::AugmentProblem>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Augmentation {
    named: &'static Named,
    numbers: Vec<f32>,
}

/// A name, with the numbers that may stand behind it.
#[derive(Debug)]
pub struct Named {
    /// As it is written.
    pub name: &'static str,
    /// What else it is known by.
    pub aliases: &'static [&'static str],
    /// In their order; those that are left out, from the last on, are what is usual.
    pub numbers: &'static [Number],
    /// What it does, in a few words.
    pub meaning: &'static str,
    /// Whether it moves pixels, and with them those of a mask.
    pub moves: bool,
}

/// A number behind a name.
#[derive(Debug, PartialEq)]
pub struct Number {
    /// In a word or two.
    pub what: &'static str,
    /// The smallest that it may be.
    pub least: f32,
    /// The largest.
    pub most: f32,
    /// Where it is left out.
    pub usual: f32,
    /// Whether it has no fraction.
    pub is_whole: bool,
}

/// What is wrong with the text of an augmentation.
#[derive(Clone, Debug, PartialEq)]
pub enum AugmentProblem {
    /// There is no such name.
    Unknown {
        /// The name.
        name: String,
        /// One that is written nearly so.
        meant: Option<&'static str>,
    },
    /// Its numbers are not what it takes.
    Numbers {
        /// All of the text.
        said: String,
        /// What it takes.
        takes: &'static Named,
    },
    /// The same name stands there twice.
    Twice {
        /// The name.
        name: &'static str,
    },
    /// More pixels than the image has.
    TooLarge {
        /// All of the text.
        said: String,
        /// The most that the image has.
        most: usize,
    },
}

/// An augmentation as a function for a map.
pub type Step = Arc<dyn Fn(Example, &Context) -> Result<Example> + Send + Sync>;

const fn number(what: &'static str, least: f32, most: f32, usual: f32) -> Number {
    Number { what, least, most, usual, is_whole: false }
}

const fn whole(what: &'static str, least: f32, most: f32, usual: f32) -> Number {
    Number { what, least, most, usual, is_whole: true }
}

const fn probability(usual: f32) -> Number {
    number("probability", 0.0, 1.0, usual)
}

const fn factor(what: &'static str, usual: f32) -> Number {
    number(what, 0.0, 10.0, usual)
}

/// More pixels than any image has in a row; what an image has is known later.
const PIXELS: f32 = 65536.0;

macro_rules! named {
    ($($name:literal $(or [$($alias:literal),+])?, $moves:expr, [$($number:expr),*], $meaning:literal;)*) => {
        &[$(Named {
            name: $name,
            aliases: &[$($($alias),+)?],
            numbers: &[$($number),*],
            meaning: $meaning,
            moves: $moves,
        }),*]
    };
}

const MOVES: bool = true;
const COLOURS: bool = false;

/// All of them. What moves pixels moves a mask alike; what changes colours leaves it as it is.
pub static NAMED: &[Named] = named! {
    "crop", MOVES, [number("least share of the area", 0.001, 1.0, 0.08), number("most", 0.001, 1.0, 1.0)],
        "a random part of the picture, 3:4 to 4:3, resized to the input";
    "pad-crop", MOVES, [whole("pixels", 0.0, PIXELS, 4.0)],
        "a random part of the input's size, of the picture with so many black pixels around it";
    "flip", MOVES, [], "left to right, every second time";
    "flip-vertical", MOVES, [], "top to bottom, every second time";
    "rotate", MOVES, [number("degrees", 0.0, 360.0, 15.0)], "by at most so many degrees either way";
    "shear", MOVES, [number("degrees", 0.0, 80.0, 10.0), number("degrees along the columns", 0.0, 80.0, 0.0)],
        "along the rows, and along the columns";
    "translate", MOVES, [number("share", 0.0, 1.0, 0.1)], "by at most this share of width and height";
    "scale", MOVES, [number("least factor", 0.05, 20.0, 0.8), number("most", 0.05, 20.0, 1.25)],
        "larger or smaller about the centre";
    "brightness", COLOURS, [factor("by", 0.2)], "values times 1 − by to 1 + by";
    "contrast", COLOURS, [factor("by", 0.2)], "distance from the mean times 1 − by to 1 + by";
    "saturation", COLOURS, [factor("by", 0.2)], "distance from grey times 1 − by to 1 + by";
    "hue", COLOURS, [number("share of the circle", 0.0, 0.5, 0.05)], "turned by at most so much either way";
    "colour-jitter" or ["color-jitter", "jitter"], COLOURS,
        [factor("brightness", 0.4), factor("contrast", 0.4), factor("saturation", 0.4), number("hue", 0.0, 0.5, 0.1)],
        "these four in random order; of one number, the first three have it and hue a quarter of it";
    "grayscale" or ["greyscale", "grey"], COLOURS, [probability(0.1)], "all channels grey";
    "blur", COLOURS, [number("pixels", 0.0, 20.0, 2.0)], "by a Gauss bell with a deviation of 0.1 to so many pixels";
    "sharpness", COLOURS, [factor("by", 0.5)], "0 is blurred, 1 as it is: 1 − by to 1 + by";
    "autocontrast", COLOURS, [probability(0.5)], "each channel stretched to black and white";
    "equalize" or ["equalise"], COLOURS, [probability(0.5)], "the values of each channel equally frequent";
    "posterize" or ["posterise"], COLOURS, [whole("bits", 1.0, 8.0, 4.0), probability(0.5)], "so many bits a value";
    "solarize" or ["solarise"], COLOURS, [whole("from", 0.0, 255.0, 128.0), probability(0.5)],
        "values from this one on inverted";
    "invert", COLOURS, [probability(0.5)], "all values inverted";
    "cutout", COLOURS, [whole("pixels", 0.0, PIXELS, 16.0)], "a black square of so many pixels";
    "erase", COLOURS,
        [probability(0.25), number("least share of the area", 0.0, 1.0, 0.02), number("most", 0.0, 1.0, 0.33)],
        "a rectangle of the mean (data.mean) with this probability";
    "randaugment", MOVES, [whole("operations", 1.0, 14.0, 2.0), whole("magnitude", 0.0, 30.0, 9.0)],
        "operations out of a list, of a magnitude up to 30";
};

impl PartialEq for Named {
    fn eq(&self, other: &Named) -> bool {
        self.name == other.name
    }
}

impl Named {
    /// How it is written with all of its numbers: "rotate:15".
    pub fn example(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(|number| number.usual.to_string()).collect();
        written(self.name, &numbers)
    }

    /// What may stand behind it: "degrees from 0 to 360".
    fn takes(&self) -> String {
        let range = |n: &Number| {
            let most = if n.most == PIXELS { String::new() } else { format!(" to {}", n.most) };
            let whole = if n.is_whole { "a whole number, " } else { "" };
            format!("{} ({whole}from {}{most})", n.what, n.least)
        };
        self.numbers.iter().map(range).collect::<Vec<_>>().join(", then ")
    }
}

fn written(name: &str, numbers: &[String]) -> String {
    if numbers.is_empty() { name.to_string() } else { format!("{name}:{}", numbers.join(",")) }
}

impl std::str::FromStr for Augmentation {
    type Err = AugmentProblem;

    fn from_str(said: &str) -> Result<Augmentation, AugmentProblem> {
        let said = said.trim();
        let (name, numbers) = said.split_once(':').map_or((said, None), |(name, numbers)| (name, Some(numbers)));
        let Some(named) = NAMED.iter().find(|n| n.name == name || n.aliases.contains(&name)) else {
            let known: Vec<&str> =
                NAMED.iter().flat_map(|n| [n.name].into_iter().chain(n.aliases.iter().copied())).collect();
            let meant = nearest(&known, name)
                .and_then(|near| NAMED.iter().find(|n| n.name == near || n.aliases.contains(&near)));
            return Err(AugmentProblem::Unknown { name: name.into(), meant: meant.map(|n| n.name) });
        };
        let wrong = || AugmentProblem::Numbers { said: said.into(), takes: named };
        let numbers: Vec<&str> = numbers.map_or(Vec::new(), |numbers| numbers.split(',').collect());
        if numbers.len() > named.numbers.len() {
            return Err(wrong());
        }
        let read = |(text, number): (&&str, &Number)| {
            let fits = |x: &f32| (number.least..=number.most).contains(x) && (!number.is_whole || x.fract() == 0.0);
            text.trim().parse::<f32>().ok().filter(fits).ok_or_else(wrong)
        };
        let numbers = numbers.iter().zip(named.numbers).map(read).collect::<Result<Vec<f32>, _>>()?;
        let augmentation = Augmentation { named, numbers };
        // Two of a range stand in order.
        let is_range = |names: [&str; 2]| named.numbers.windows(2).position(|n| [n[0].what, n[1].what] == names);
        let range = is_range(["least share of the area", "most"]).or_else(|| is_range(["least factor", "most"]));
        match range.filter(|at| augmentation.at(*at) > augmentation.at(*at + 1)) {
            Some(_) => Err(wrong()),
            None => Ok(augmentation),
        }
    }
}

impl fmt::Display for Augmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(f32::to_string).collect();
        f.write_str(&written(self.named.name, &numbers))
    }
}

impl fmt::Display for AugmentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AugmentProblem::Unknown { name, meant } => {
                write!(f, "there is no augmentation \"{name}\"")?;
                if let Some(meant) = meant {
                    write!(f, " (did you mean \"{meant}\"?)")?;
                }
                let known: Vec<&str> = NAMED.iter().map(|named| named.name).collect();
                write!(f, "; there are {}", known.join(", "))
            }
            AugmentProblem::Numbers { said, takes } if takes.numbers.is_empty() => {
                write!(f, "\"{said}\": {0} takes no number; write \"{0}\"", takes.name)
            }
            AugmentProblem::Numbers { said, takes } => {
                write!(f, "\"{said}\": {} takes {}; such as \"{}\"", takes.name, takes.takes(), takes.example())
            }
            AugmentProblem::Twice { name } => write!(f, "\"{name}\" stands there twice; leave out one of them"),
            AugmentProblem::TooLarge { said, most } => {
                write!(f, "\"{said}\": the pixels are a whole number of at most {most}, which the input has")
            }
        }
    }
}

impl std::error::Error for AugmentProblem {}

impl Augmentation {
    /// A list of them. Several may stand in one text, between commas; no name is said twice.
    ///
    /// # Errors
    /// For the first that is none.
    pub fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Augmentation>, AugmentProblem> {
        let mut list: Vec<Augmentation> = Vec::new();
        for text in texts.into_iter().flat_map(split) {
            let augmentation: Augmentation = text.parse()?;
            if list.iter().any(|other| other.named == augmentation.named) {
                return Err(AugmentProblem::Twice { name: augmentation.name() });
            }
            list.push(augmentation);
        }
        Ok(list)
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.named.name
    }

    /// The number at a place, as it was said or as is usual.
    fn at(&self, place: usize) -> f32 {
        let usual = self.named.numbers.get(place).map_or(0.0, |number| number.usual);
        self.numbers.get(place).copied().unwrap_or(usual)
    }

    /// What it cuts out before anything is resized, where it does.
    pub fn crop(&self) -> Option<Crop> {
        let Crop::Random { ratio, .. } = Crop::RANDOM else { return None };
        (self.name() == "crop").then(|| Crop::Random { area: (self.at(0), self.at(1)), ratio })
    }

    /// As a function for images of this height and width. What is erased becomes `fill`. One that crops does nothing here:
    /// [`Augmentation::crop`] is for [`Prepare`](super::Prepare).
    ///
    /// # Errors
    /// Where it is about more pixels than there are.
    pub fn step(&self, size: [usize; 2], fill: [u8; 3]) -> Result<Step, AugmentProblem> {
        let most = size[0].max(size[1]);
        let pixels = || match self.at(0) as usize {
            // What is usual is no more than there is.
            pixels if self.numbers.is_empty() => Ok(pixels.min(most)),
            pixels if pixels <= most => Ok(pixels),
            _ => Err(AugmentProblem::TooLarge { said: self.to_string(), most }),
        };
        let (first, second) = (self.at(0), self.at(1));
        Ok(match self.name() {
            "pad-crop" => Arc::new(random_crop_padded(size, pixels()?)),
            "flip" => Arc::new(flip_horizontal()),
            "flip-vertical" => Arc::new(flip_vertical()),
            "rotate" => Arc::new(rotate(first)),
            "shear" => Arc::new(shear([first, second])),
            "translate" => Arc::new(translate(first)),
            "scale" => Arc::new(scale(first, second)),
            "brightness" => Arc::new(brightness(first)),
            "contrast" => Arc::new(contrast(first)),
            "saturation" => Arc::new(saturation(first)),
            "hue" => Arc::new(hue(first)),
            "colour-jitter" => Arc::new(colour_jitter(self.jitter())),
            "grayscale" => Arc::new(grayscale(first)),
            "blur" => Arc::new(blur(first)),
            "sharpness" => Arc::new(sharpness(first)),
            "autocontrast" => Arc::new(autocontrast(first)),
            "equalize" => Arc::new(equalize(first)),
            "posterize" => Arc::new(posterize(first as u32, second)),
            "solarize" => Arc::new(solarize(first as u16, second)),
            "invert" => Arc::new(invert(first)),
            "cutout" => Arc::new(cutout(pixels()?)),
            "erase" => {
                let area = (second, self.at(2));
                Arc::new(erase(Erase { probability: first, area, fill, ..Erase::USUAL }))
            }
            "randaugment" => {
                Arc::new(rand_augment(RandAugment { operations: first as usize, magnitude: second as usize }))
            }
            _ => Arc::new(|example, _: &Context| Ok(example)),
        })
    }

    fn jitter(&self) -> ColourJitter {
        match self.numbers[..] {
            [by] => ColourJitter::of(by),
            _ => ColourJitter { brightness: self.at(0), contrast: self.at(1), saturation: self.at(2), hue: self.at(3) },
        }
    }
}

/// The augmentations of one text: a comma before a number belongs to the numbers.
fn split(text: &str) -> Vec<&str> {
    let is_number =
        |rest: &str| rest.trim_start().starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
    let commas = text.match_indices(',').map(|(at, _)| at).filter(|at| !is_number(&text[at + 1..]));
    let mut parts = Vec::new();
    let mut start = 0;
    for at in commas {
        parts.push(&text[start..at]);
        start = at + 1;
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_its_own_example_and_makes_a_step() {
        for named in NAMED {
            for text in [named.name.to_string(), named.example()] {
                let augmentation: Augmentation = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!((augmentation.name(), augmentation.to_string()), (named.name, text));
                assert!(augmentation.step([32, 48], [0; 3]).is_ok());
            }
            for alias in named.aliases {
                assert_eq!(alias.parse::<Augmentation>().expect("an alias").name(), named.name);
            }
            assert!(named.numbers.iter().all(|n| (n.least..=n.most).contains(&n.usual)), "{}", named.name);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        for (said, expected) in [
            ("flop", "there is no augmentation \"flop\" (did you mean \"flip\"?); there are crop, pad-crop, flip, "),
            ("color_jiter:3", "(did you mean \"colour-jitter\"?)"),
            ("rotate:much", "\"rotate:much\": rotate takes degrees (from 0 to 360); such as \"rotate:15\""),
            ("rotate:-3", "degrees (from 0 to 360)"),
            ("rotate:", "degrees (from 0 to 360)"),
            ("rotate:nan", "degrees (from 0 to 360)"),
            ("flip:3", "flip takes no number; write \"flip\""),
            ("hue:0.6", "hue takes share of the circle (from 0 to 0.5)"),
            ("crop:0.9,0.2", "\"crop:0.9,0.2\": crop takes least share of the area (from 0.001 to 1), then most"),
            ("scale:1.2,0.8", "scale takes least factor"),
            ("erase:0.5,0.9,0.1", "erase takes probability (from 0 to 1), then least share"),
            (
                "randaugment:2.5",
                "operations (a whole number, from 1 to 14), then magnitude (a whole number, from 0 to 30)",
            ),
            ("randaugment:2,9,1", "such as \"randaugment:2,9\""),
            ("pad-crop:1.5", "pixels (a whole number, from 0)"),
        ] {
            let problem = said.parse::<Augmentation>().expect_err(said).to_string();
            assert!(problem.contains(expected), "{said}: {problem}");
        }
        for (said, most) in [("cutout:9", 8), ("pad-crop:4000", 8)] {
            let augmentation: Augmentation = said.parse().expect("a number of pixels");
            let problem = augmentation.step([8, 4], [0; 3]).err().expect("too many").to_string();
            assert!(problem.contains(said) && problem.contains(&format!("at most {most}")), "{problem}");
        }
    }

    #[test]
    fn a_list_may_stand_in_one_text() {
        let names = |texts: &[&str]| {
            let list = Augmentation::list(texts.iter().copied()).map_err(|e| e.to_string())?;
            Ok::<_, String>(list.iter().map(Augmentation::to_string).collect::<Vec<_>>())
        };
        let expected = ["flip", "randaugment:2,9", "erase:0.25"].map(String::from).to_vec();
        assert_eq!(names(&["flip,randaugment:2,9,erase:0.25"]), Ok(expected.clone()));
        assert_eq!(names(&["flip", " randaugment:2, 9", "erase:0.25"]), Ok(expected));
        assert_eq!(names(&["jitter:.4,.4,.4,.1"]), Ok(vec!["colour-jitter:0.4,0.4,0.4,0.1".into()]));
        assert_eq!(
            names(&["jitter", "color-jitter:1"]),
            Err("\"colour-jitter\" stands there twice; leave out one of them".into())
        );
        assert!(names(&["flip,,rotate"]).is_err_and(|e| e.starts_with("there is no augmentation \"\"")));
        assert_eq!(names(&[]), Ok(vec![]));
    }
}
