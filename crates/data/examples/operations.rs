//! Holds augmentation against what another program computed. In a folder, `operations.txt` has a line for each case,
//!
//! ```text
//! HEIGHT WIDTH CHANNELS MOST MEAN OPERATION NUMBERS…
//! ```
//!
//! with how far values may be apart at most and on average, and `operations.raw` the pixels: for each line those of the image
//! and then those of the result.

#![allow(dead_code)] // Tests use a part.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use memfit_data::augment::{Affine, Operation};
use memfit_data::{BytePool, Example, Tensor};
use memfit_ir::{DType, TensorType};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("operations FOLDER");
        return ExitCode::from(2);
    };
    match check(Path::new(&folder)) {
        Ok(cases) => {
            println!("{cases} operations are as they should be");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// How many cases there are, if all are as they should be.
pub fn check(folder: &Path) -> Result<usize, String> {
    let read = |name: &str| fs::read(folder.join(name)).map_err(|e| format!("{}: {e}", folder.join(name).display()));
    let (text, raw) = (read("operations.txt")?, read("operations.raw")?);
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    let (mut rest, mut wrong, mut cases) = (&raw[..], Vec::new(), 0);
    for line in text.lines() {
        let case = Case::read(line).ok_or_else(|| format!("no case: {line}"))?;
        let bytes: usize = case.shape.iter().product();
        let (image, expected) = rest.get(..bytes).zip(rest.get(bytes..2 * bytes)).ok_or("too few pixels")?;
        rest = &rest[2 * bytes..];
        cases += 1;
        wrong.extend(case.run(image, expected).err().map(|problem| format!("{line}: {problem}")));
    }
    if wrong.is_empty() && rest.is_empty() && cases > 0 { Ok(cases) } else { Err(wrong.join("\n")) }
}

struct Case {
    shape: [usize; 3],
    most: u8,
    mean: f64,
    operation: Operation,
}

impl Case {
    fn read(line: &str) -> Option<Case> {
        let words: Vec<&str> = line.split(' ').collect();
        let [height, width, channels, most, mean, name, numbers @ ..] = &words[..] else { return None };
        let numbers: Vec<f32> = numbers.iter().map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let shape = [height.parse().ok()?, width.parse().ok()?, channels.parse().ok()?];
        let operation = operation(name, &numbers)?;
        Some(Case { shape, most: most.parse().ok()?, mean: mean.parse().ok()?, operation })
    }

    fn run(&self, image: &[u8], expected: &[u8]) -> Result<(), String> {
        let pool = BytePool::new(16 << 20);
        let x = Tensor::from_bytes(TensorType::new(DType::U8, self.shape), image, &pool).map_err(|e| e.to_string())?;
        let mut example = Example::default().with("x", x);
        self.operation.apply(&mut example, &pool).map_err(|e| e.to_string())?;
        let made = example.get("x").map_err(|e| e.to_string())?.bytes();
        let apart: Vec<u8> = made.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).collect();
        let most = apart.iter().copied().max().unwrap_or(0);
        let mean = apart.iter().map(|a| f64::from(*a)).sum::<f64>() / apart.len().max(1) as f64;
        if most <= self.most && mean <= self.mean {
            Ok(())
        } else {
            Err(format!("values are {most} apart at most and {mean:.3} on average"))
        }
    }
}

fn operation(name: &str, numbers: &[f32]) -> Option<Operation> {
    Some(match (name, numbers) {
        ("brightness", &[factor]) => Operation::Brightness(factor),
        ("contrast", &[factor]) => Operation::Contrast(factor),
        ("saturation", &[factor]) => Operation::Saturation(factor),
        ("sharpness", &[factor]) => Operation::Sharpness(factor),
        ("hue", &[share]) => Operation::Hue(share),
        ("grayscale", []) => Operation::Grayscale,
        ("invert", []) => Operation::Invert,
        ("autocontrast", []) => Operation::Autocontrast,
        ("equalize", []) => Operation::Equalize,
        ("posterize", &[bits]) => Operation::Posterize { bits: bits as u32 },
        ("solarize", &[from]) => Operation::Solarize { from: from as u16 },
        ("blur", &[sigma, radius]) => Operation::Blur { sigma, radius: radius as usize },
        ("affine", &[degrees, right, down, scale, along_rows, along_columns]) => {
            Operation::Affine(Affine { degrees, translate: [right, down], scale, shear: [along_rows, along_columns] })
        }
        _ => return None,
    })
}
