//! Images and their masks, for segmentation: two folders with the same names in them.

use std::path::{Path, PathBuf};

use memfit_ir::TensorType;

use super::pool_vec::StringList;
use super::{check_row, fingerprint_in, read_file, walk};
use crate::error::{DataError, Result};
use crate::image::{self, Channels};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::{Example, Tensor};

/// What the pixels of a mask are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// Grey from 0 to 255 → f32 `[height, width, 1]` from 0 to 1.
    Grey,
    /// Class numbers below `count`, in PNGs → i32 `[height, width]`.
    Classes {
        /// How many classes there are.
        count: usize,
    },
}

/// The images in `images/` and their masks in `masks/`, which have the same names but for the extension. Field `x` is
/// u8 `[height, width, channels]`, `y` is the mask.
///
/// ```
#[doc = include_str!("../doc/files.txt")]
/// let folder = TempDir::new("pairs");
/// let png = std::fs::read("tests/fixtures/rgb.png").expect("it is there");
/// folder.write("images/1.png", &png);
/// folder.write("masks/1.png", &png);
/// let source = SegmentationPairs::open(&folder.0, Masks::Grey, &pool)?;
/// let row = source.read_row(0, &pool)?;
/// assert_eq!((row.get("x")?.ty().to_string(), row.get("y")?.ty().to_string()), ("u8[38,45,3]".into(), "f32[38,45,1]".into()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentationPairs {
    root: PathBuf,
    images: StringList,
    masks: StringList,
    kind: Masks,
    channels: Channels,
    fingerprint: u64,
}

impl SegmentationPairs {
    /// Lists both folders.
    ///
    /// # Errors
    /// [`DataError::Source`] where an image has no mask or a mask no image, or two have the same name.
    pub fn open(root: impl AsRef<Path>, kind: Masks, pool: &BytePool) -> Result<SegmentationPairs> {
        let root = root.as_ref();
        let (images, image_print) = in_folder(root, "images", pool)?;
        let (masks, mask_print) = in_folder(root, "masks", pool)?;
        let (channels, fingerprint) = (Channels::default(), image_print.wrapping_add(mask_print));
        let pairs = SegmentationPairs { root: root.to_path_buf(), images, masks, kind, channels, fingerprint };
        pairs.check_names()?;
        Ok(pairs)
    }

    /// The channels of `x`; RGB by default.
    pub fn channels(mut self, channels: Channels) -> SegmentationPairs {
        self.channels = channels;
        self
    }

    /// Both are sorted by name without extension, so the first difference names who is alone.
    fn check_names(&self) -> Result<()> {
        for (folder, names) in [("images", &self.images), ("masks", &self.masks)] {
            let twice = names.iter().zip(names.iter().skip(1)).find(|(a, b)| stem(a) == stem(b));
            if let Some((a, b)) = twice {
                let location = self.root.join(folder).join(a);
                return Err(DataError::source(
                    location.display(),
                    format!("{b} has the same name; remove one of them"),
                ));
            }
        }
        let (mut images, mut masks) = (self.images.iter(), self.masks.iter());
        loop {
            let (alone, has, lacks) = match (images.next(), masks.next()) {
                (None, None) => return Ok(()),
                (Some(image), Some(mask)) if stem(image) == stem(mask) => continue,
                (Some(image), Some(mask)) if stem(image) > stem(mask) => (mask, "masks", "images"),
                (Some(image), _) => (image, "images", "masks"),
                (None, Some(mask)) => (mask, "masks", "images"),
            };
            let problem = format!(
                "there is no {}.* in {}; add it, or remove this file",
                stem(alone),
                self.root.join(lacks).display()
            );
            return Err(DataError::source(self.root.join(has).join(alone).display(), problem));
        }
    }

    fn mask(&self, path: &Path, pool: &BytePool) -> Result<Tensor> {
        let file = read_file(path, pool)?;
        match self.kind {
            Masks::Grey => {
                let grey = image::decode(file.bytes(), Channels::Grey, &path.display(), pool)?;
                let mut y = Tensor::zeros(TensorType::f32(grey.ty().shape.to_vec()), pool)?;
                y.f32s_mut().iter_mut().zip(grey.bytes()).for_each(|(y, grey)| *y = *grey as f32 / 255.0);
                Ok(y)
            }
            Masks::Classes { count } => {
                let classes = image::decode_classes(file.bytes(), &path.display(), pool)?;
                let width = classes.ty().shape[1];
                if let Some(at) = classes.bytes().iter().position(|class| *class as usize >= count) {
                    let location = format!("{}, row {}, column {}", path.display(), at / width, at % width);
                    let problem = format!(
                        "class {} is not one of 0 to {}; give more classes",
                        classes.bytes()[at],
                        count as i64 - 1
                    );
                    return Err(DataError::bad(location, problem));
                }
                let mut y = Tensor::zeros(TensorType::i32([classes.ty().shape[0], width]), pool)?;
                let wide = bytemuck::cast_slice_mut::<u8, i32>(y.bytes_mut());
                wide.iter_mut().zip(classes.bytes()).for_each(|(y, class)| *y = *class as i32);
                Ok(y)
            }
        }
    }
}

impl Source for SegmentationPairs {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.len())?;
        let path = |folder, names: &StringList| self.root.join(folder).join(names.get(index).unwrap_or_default());
        let (image, mask) = (path("images", &self.images), path("masks", &self.masks));
        let file = read_file(&image, pool)?;
        let x = image::decode(file.bytes(), self.channels, &image.display(), pool)?;
        drop(file);
        let y = self.mask(&mask, pool)?;
        let (of_x, of_y) = (&x.ty().shape, &y.ty().shape);
        if of_x[..2] != of_y[..2] {
            let problem = format!(
                "the mask has {}×{} pixels, and {} has {}×{}",
                of_y[0],
                of_y[1],
                image.display(),
                of_x[0],
                of_x[1]
            );
            return Err(DataError::bad(mask.display(), problem));
        }
        Ok(Example::default().with("x", x).with("y", y))
    }

    fn location(&self, index: usize) -> String {
        self.root.join("images").join(self.images.get(index).unwrap_or_default()).display().to_string()
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn in_folder(root: &Path, folder: &str, pool: &BytePool) -> Result<(StringList, u64)> {
    let images = walk::images(&root.join(folder), pool)?;
    if images.names.len() == 0 {
        let problem = format!(
            "no JPEG or PNG is in its folder {folder}; segmentation needs images/ and masks/ with the same names"
        );
        return Err(DataError::source(root.display(), problem));
    }
    let mut names = images.names;
    names.sort_by(stem);
    Ok((names, fingerprint_in(folder, images.fingerprint)))
}

/// A relative path without its extension.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
