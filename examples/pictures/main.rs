//! Draws pictures of shapes, for the other examples: `pictures FOLDER` makes train/, test/ and other/ with one folder for
//! each class; `pictures FOLDER --masks` makes images/ and masks/.

mod draw;

use std::path::{Path, PathBuf};

use draw::{Shape, picture, write_png};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (folder, masks) = match &args[..] {
        [folder] => (PathBuf::from(folder), false),
        [folder, flag] if flag == "--masks" => (PathBuf::from(folder), true),
        _ => return Err("usage: pictures FOLDER [--masks]".into()),
    };
    if masks {
        return draw_masks(&folder, 160, 64);
    }
    for (set, classes, count) in [
        ("train", &["disc", "square", "cross"][..], 160),
        ("test", &["disc", "square", "cross"], 32),
        ("other", &["ring", "bar"], 64),
    ] {
        draw_classes(&folder.join(set), classes, count, 32)?;
    }
    Ok(())
}

/// So many pictures of each class.
fn draw_classes(folder: &Path, classes: &[&str], count: u32, side: usize) -> Result<(), Error> {
    for class in classes {
        let shape = Shape::from_name(class).ok_or("no such shape")?;
        std::fs::create_dir_all(folder.join(class))?;
        for n in 0..count {
            let (image, _) = picture(shape, side, &format!("{}/{class}/{n}", folder.display()));
            write_png(&folder.join(class).join(format!("{n}.png")), &image, side, 3)?;
        }
    }
    Ok(())
}

fn draw_masks(folder: &Path, count: u32, side: usize) -> Result<(), Error> {
    for part in ["images", "masks"] {
        std::fs::create_dir_all(folder.join(part))?;
    }
    for n in 0..count {
        let shape = Shape::ALL[n as usize % Shape::ALL.len()];
        let (image, mask) = picture(shape, side, &format!("{}/{n}", folder.display()));
        write_png(&folder.join("images").join(format!("{n}.png")), &image, side, 3)?;
        write_png(&folder.join("masks").join(format!("{n}.png")), &mask, side, 1)?;
    }
    Ok(())
}
