//! Images and their masks, for segmentation: two folders with the same names in them.

use std::path::{Path, PathBuf};

use super::left_out::{self, LeftOut};
use super::masks::{MaskSurvey, Masks};
use super::pool_vec::StringList;
use super::{check_row, fingerprint_in, read_file, walk};
use crate::error::{DataError, Result};
use crate::image::{self, Channels};
use crate::memory::BytePool;
use crate::produce::OnBad;
use crate::source::Source;
use crate::tensor::Example;

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
    left_out: Vec<LeftOut>,
    fingerprint: u64,
}

impl SegmentationPairs {
    /// Lists both folders.
    ///
    /// # Errors
    /// [`DataError::Source`] where an image has no mask or a mask no image, or two have the same name.
    pub fn open(root: impl AsRef<Path>, kind: Masks, pool: &BytePool) -> Result<SegmentationPairs> {
        let root = root.as_ref();
        let mut left_out = Vec::new();
        let (images, image_print) = in_folder(root, "images", &mut left_out, pool)?;
        let (masks, mask_print) = in_folder(root, "masks", &mut left_out, pool)?;
        let (root, fingerprint) = (root.to_path_buf(), image_print.wrapping_add(mask_print));
        let pairs =
            SegmentationPairs { root, images, masks, kind, channels: Channels::default(), left_out, fingerprint };
        pairs.check_names()?;
        Ok(pairs)
    }

    /// The channels of `x`; RGB by default.
    pub fn channels(mut self, channels: Channels) -> SegmentationPairs {
        self.channels = channels;
        self
    }

    /// The files that were passed over, by the endings of their names.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// What its masks are read as.
    pub fn with_masks(mut self, masks: Masks) -> SegmentationPairs {
        self.kind = masks;
        self
    }

    /// Looks at some of the masks, to tell what they are.
    ///
    /// # Errors
    /// [`DataError::Bad`] and [`DataError::Io`] for a mask that cannot be read, unless such are to be skipped.
    pub fn survey_masks(&self, bad: OnBad, pool: &BytePool) -> Result<MaskSurvey> {
        let path = |index| self.root.join("masks").join(self.masks.get(index).unwrap_or_default());
        MaskSurvey::new(self.masks.len(), path, bad, pool)
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
        let y = self.kind.read(&mask, pool)?;
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

fn in_folder(root: &Path, folder: &str, left_out: &mut Vec<LeftOut>, pool: &BytePool) -> Result<(StringList, u64)> {
    let images = walk::images(&root.join(folder), pool)?;
    if images.names.len() == 0 {
        let problem = format!(
            "no JPEG or PNG is in its folder {folder}; segmentation needs images/ and masks/ with the same names"
        );
        return Err(DataError::source(root.display(), problem));
    }
    left_out::add_all(left_out, images.left_out);
    let mut names = images.names;
    names.sort_by(stem);
    Ok((names, fingerprint_in(folder, images.fingerprint)))
}

/// A relative path without its extension.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
