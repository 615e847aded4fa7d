//! The mask of each picture, as a PNG of the picture's size in the form of the masks that the model was trained on; on request
//! the picture itself with the mask over it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::data::image::{Channels, Pixels, decode, dimensions, scale, write_png};
use memfit::data::sources::{Colour, ImageFiles, Masks};
use memfit::data::{BytePool, Source, Tensor};
use memfit_run::data::{Part, same_data};
use memfit_run::run_dir::Trained;
use serde_json::json;

use super::beside;
use super::pictures::Pictures;
use super::written::cannot_write;
use crate::args::PredictArgs;
use crate::commands::make_folder;
use crate::failure::{bad_data, usage};
use crate::output::outln;

pub fn predict(mut trained: Trained, args: &PredictArgs, json: bool) -> Result<()> {
    if let Some(folder) = &args.out {
        make_folder(folder)?;
    }
    let [height, width] = match trained.run.model.input()?[..] {
        [height, width, _] => [height, width],
        _ => return Err(bad_data("the model reads no pictures")),
    };
    let painter = Painter {
        masks: same_data::schema(&trained.folder)?.masks.unwrap_or(Masks::Grey),
        classes: trained.run.model.classes(),
        size: [height, width],
        pool: trained.run.pool.clone(),
    };
    let files = without_own(&args.files, &trained.run.pool)?;
    check_names(&files, args.out.as_deref())?;
    let pictures = Pictures::open(&trained, &files, args, Part::Whole)?;
    let outcome = pictures.each(&mut trained, |trained, file, logits| {
        let file = PathBuf::from(file);
        let painted = painter.paint(&file, logits, args)?;
        if json {
            outln!(
                "{}",
                json!({ "event": "prediction", "file": file, "mask": painted.mask, "overlay": painted.overlay,
                        "shares": painted.shares })
            );
        } else {
            outln!("{}  {}  {}", file.display(), painted.mask.display(), painted.words(trained));
        }
        Ok(())
    })?;
    outcome.print(None, json);
    Ok(())
}

/// The pictures that were named, and those in folders but for what was written there before.
fn without_own(named: &[PathBuf], pool: &BytePool) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = ImageFiles::open(path, pool)?;
        let all: Vec<PathBuf> = (0..found.len()).filter_map(|row| found.path(row)).collect();
        let stems: HashSet<PathBuf> = all.iter().map(|path| path.with_extension("")).collect();
        let is_own = |path: &PathBuf| {
            let stem = path.with_extension("").into_os_string().into_string().unwrap_or_default();
            OWN.iter().any(|own| stem.strip_suffix(&format!("_{own}")).is_some_and(|of| stems.contains(Path::new(of))))
        };
        files.extend(all.iter().filter(|path| !is_own(path)).cloned());
    }
    Ok(files)
}

/// What is written beside a picture.
const OWN: [&str; 2] = ["mask", "overlay"];

/// Refuses pictures of which one's mask would be written over another's.
fn check_names(files: &[PathBuf], folder: Option<&Path>) -> Result<()> {
    let mut written: HashMap<PathBuf, &PathBuf> = HashMap::new();
    for file in files {
        let mask = beside(file, folder, OWN[0]);
        if let Some(other) = written.insert(mask.clone(), file).filter(|other| *other != file) {
            let [other, file, mask] = [other, file, &mask].map(|path| path.display().to_string());
            return Err(usage(format!(
                "the masks of {other} and {file} would both be {mask}; predict them one after the other, \
                                      each with an --out of its own"
            )));
        }
    }
    Ok(())
}

/// What masks look like.
struct Painter {
    masks: Masks,
    classes: usize,
    /// Of what the model says.
    size: [usize; 2],
    pool: BytePool,
}

/// What was written.
struct Painted {
    mask: PathBuf,
    overlay: Option<PathBuf>,
    /// Of the pixels, for each class; of one class, of the foreground.
    shares: Vec<f64>,
}

impl Painted {
    /// The classes that take most of the picture.
    fn words(&self, trained: &Trained) -> String {
        if let [foreground] = self.shares[..] {
            return format!("{:.1} % foreground", foreground * 100.0);
        }
        let mut order: Vec<usize> = (0..self.shares.len()).filter(|class| self.shares[*class] > 0.0).collect();
        order.sort_by(|a, b| self.shares[*b].total_cmp(&self.shares[*a]));
        order.truncate(4);
        let share = |class: usize| format!("{} {:.1} %", trained.class(class), self.shares[class] * 100.0);
        order.into_iter().map(share).collect::<Vec<_>>().join(", ")
    }
}

impl Painter {
    fn paint(&self, file: &Path, logits: &[f32], args: &PredictArgs) -> Result<Painted> {
        let bytes = std::fs::read(file).map_err(|e| bad_data(format!("{} cannot be read: {e}", file.display())))?;
        let size = dimensions(&bytes, &file.display())?;
        let scaled = scale(logits, self.size, self.classes, size, &self.pool)?;
        let folder = args.out.as_deref();
        let mask = beside(file, folder, OWN[0]);
        let (numbers, shares) = self.numbers(&scaled);
        let painted = if *self.is_grey() {
            let grey: Vec<u8> = scaled.f32s().iter().map(|l| (sigmoid(*l) * 255.0).round() as u8).collect();
            write(&mask, size, Pixels::Grey(&grey))
        } else {
            self.write_numbers(&mask, size, &numbers)
        };
        painted?;
        let overlay = args.overlay.then(|| beside(file, folder, OWN[1]));
        if let Some(path) = &overlay {
            let mut picture = decode(&bytes, Channels::Rgb, &file.display(), &self.pool)?;
            self.lay_over(picture.bytes_mut(), &numbers);
            write(path, size, Pixels::Rgb(picture.bytes()))?;
        }
        Ok(Painted { mask, overlay, shares })
    }

    /// Whether masks are probabilities.
    fn is_grey(&self) -> &bool {
        if self.masks == Masks::Grey { &true } else { &false }
    }

    /// The class of each pixel, of one class whether it is foreground; and the share of each.
    fn numbers(&self, logits: &Tensor) -> (Vec<u8>, Vec<f64>) {
        let class = |pixel: &[f32]| match pixel {
            [one] => u8::from(*one > 0.0),
            all => (0..all.len()).fold(0, |best, at| if all[at] > all[best] { at } else { best }) as u8,
        };
        let numbers: Vec<u8> = logits.f32s().chunks(self.classes.max(1)).map(class).collect();
        let mut counts = vec![0u64; 256];
        numbers.iter().for_each(|number| counts[usize::from(*number)] += 1);
        let share = |class: usize| counts[class] as f64 / numbers.len().max(1) as f64;
        let shares = if self.classes == 1 { vec![share(1)] } else { (0..self.classes.min(256)).map(share).collect() };
        (numbers, shares)
    }

    fn write_numbers(&self, path: &Path, size: [usize; 2], numbers: &[u8]) -> Result<()> {
        match &self.masks {
            Masks::Grey | Masks::Binary { .. } => {
                let levels = match self.masks {
                    Masks::Binary { levels: Some([low, high]), .. } => [low.min(high), low.max(high)],
                    _ => [0, 255],
                };
                let grey: Vec<u8> = numbers.iter().map(|n| levels[usize::from(*n).min(1)]).collect();
                write(path, size, Pixels::Grey(&grey))
            }
            Masks::Colours { .. } => {
                let colours = self.colours();
                let rgb: Vec<Colour> = numbers.iter().map(|n| colours[usize::from(*n)]).collect();
                write(path, size, Pixels::Rgb(rgb.as_flattened()))
            }
            Masks::Classes { .. } | Masks::Palette { .. } => {
                let colours = self.colours();
                write(path, size, Pixels::Numbers { numbers, colours: &colours[..self.classes.clamp(1, 256)] })
            }
        }
    }

    /// Half the picture, half the colour of its class; what is background stays.
    fn lay_over(&self, picture: &mut [u8], numbers: &[u8]) {
        let colours = self.colours();
        let blend = |a: &mut u8, b: u8| *a = ((u16::from(*a) + u16::from(b)) / 2) as u8;
        for (pixel, number) in picture.chunks_exact_mut(3).zip(numbers).filter(|(_, number)| **number > 0) {
            pixel.iter_mut().zip(colours[usize::from(*number)]).for_each(|(a, b)| blend(a, b));
        }
    }

    /// Of each class: those of the masks of the run where they have some, else ones that are easily told apart.
    fn colours(&self) -> Vec<Colour> {
        let known = |class: usize| match &self.masks {
            Masks::Palette { colours, .. } => colours.get(class).copied().flatten(),
            Masks::Colours { table } => table.iter().find(|(_, of)| *of == class).map(|(colour, _)| *colour),
            Masks::Grey | Masks::Binary { .. } | Masks::Classes { .. } => None,
        };
        (0..256).map(|class| known(class).unwrap_or_else(|| usual_colour(class))).collect()
    }
}

/// Black, then colours whose bits are those of the number, highest first: the palette of PASCAL VOC.
fn usual_colour(class: usize) -> Colour {
    std::array::from_fn(|channel| {
        (0..3).fold(0, |sum, bit| sum | (((class >> (3 * bit + channel)) & 1) << (7 - bit)) as u8)
    })
}

fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

fn write(path: &Path, size: [usize; 2], pixels: Pixels) -> Result<()> {
    let file = File::create(path).map_err(|e| cannot_write(path, &e))?;
    write_png(BufWriter::new(file), size, pixels).map_err(|e| cannot_write(path, &e))
}

#[cfg(test)]
mod tests {
    use super::usual_colour;

    #[test]
    fn classes_have_the_usual_colours() {
        let colours = [0, 1, 2, 3, 15, 21].map(usual_colour);
        assert_eq!(colours, [[0; 3], [128, 0, 0], [0, 128, 0], [128, 128, 0], [192, 128, 128], [128, 64, 128]]);
    }
}
