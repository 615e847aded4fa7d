//! Images in folders: with a class for each sub-folder, or a plain list of files.

use std::path::{Path, PathBuf};

use super::class_counts::ClassCounts;
use super::left_out::{self, LeftOut};
use super::pool_vec::{PoolVec, StringList};
use super::walk::{self, Images};
use super::{check_row, file_fingerprint, fingerprint_in, no_room_is_final, read_file, scalar};
use crate::error::{DataError, Result};
use crate::image::{self, Channels};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::Example;

/// A folder of folders of JPEG and PNG files, as torchvision's `ImageFolder`: the sorted names of the sub-folders are the
/// classes 0, 1, …; files may lie deeper. Field `x` is u8 `[height, width, channels]`, `y` is i32 `[]`. Hidden files are
/// passed over.
///
/// ```
#[doc = include_str!("../doc/files.txt")]
/// let folder = TempDir::new("image-folder");
/// let png = std::fs::read("tests/fixtures/rgb.png").expect("it is there");
/// for name in ["cat/1.png", "cat/2.png", "dog/1.png"] {
///     folder.write(name, &png);
/// }
/// let source = ImageFolder::open(&folder.0, &pool)?;
/// assert_eq!((source.classes(), source.len()), (&["cat".to_string(), "dog".to_string()][..], 3));
/// let row = source.read_row(2, &pool)?;
/// assert_eq!((row.get("x")?.ty().to_string().as_str(), source.label(2)), ("u8[38,45,3]", 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ImageFolder {
    files: ImageFiles,
    classes: Vec<String>,
    /// For each folder, the number of the file after its last, and its class.
    ends: PoolVec<u64>,
    labels: Vec<usize>,
    /// Files beside the folders, which are of no class.
    loose: Vec<LeftOut>,
}

impl ImageFolder {
    /// Lists the files of a folder.
    ///
    /// # Errors
    /// [`DataError::Source`] where there is no sub-folder, or one has no image.
    pub fn open(root: impl AsRef<Path>, pool: &BytePool) -> Result<ImageFolder> {
        let folders = class_folders(root.as_ref())?;
        let labels = (0..folders.len()).collect();
        ImageFolder::from_files(root.as_ref(), &folders, folders.clone(), labels, pool)
    }

    /// With the classes of another folder, by their names: a test set may lack some of them, and has no others.
    ///
    /// # Errors
    /// [`DataError::Source`] also for a sub-folder that is none of the classes.
    pub fn open_with(root: impl AsRef<Path>, classes: &[String], pool: &BytePool) -> Result<ImageFolder> {
        let root = root.as_ref();
        let folders = class_folders(root)?;
        let label = |folder: &String| {
            classes.iter().position(|class| class == folder).ok_or_else(|| {
                let known = classes.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
                let problem = format!("\"{folder}\" is no class of the training set; there are {known}; move it away");
                DataError::source(root.join(folder).display(), problem)
            })
        };
        let labels = folders.iter().map(label).collect::<Result<_>>()?;
        ImageFolder::from_files(root, &folders, classes.to_vec(), labels, pool)
    }

    fn from_files(
        root: &Path,
        folders: &[String],
        classes: Vec<String>,
        labels: Vec<usize>,
        pool: &BytePool,
    ) -> Result<ImageFolder> {
        let what = || format!("the list of files in {}", root.display());
        let mut names = no_room_is_final(what(), pool, StringList::new(pool).map_err(DataError::from))?;
        let mut ends = no_room_is_final(what(), pool, PoolVec::new(pool).map_err(DataError::from))?;
        let (mut left_out, mut fingerprint) = (Vec::new(), 0u64);
        for folder in folders {
            let images = some_images(&root.join(folder), pool)?;
            left_out::add_all(&mut left_out, images.left_out);
            fingerprint = fingerprint.wrapping_add(fingerprint_in(folder, images.fingerprint));
            let pushed = images.names.iter().try_for_each(|name| names.push(&format!("{folder}/{name}")));
            let pushed = pushed.and_then(|()| ends.push(names.len() as u64));
            no_room_is_final(what(), pool, pushed.map_err(DataError::from))?;
        }
        let files = ImageFiles::from_names(root, names, left_out, fingerprint);
        Ok(ImageFolder { files, classes, ends, labels, loose: walk::loose_files(root)? })
    }

    /// The channels of `x`; RGB by default.
    pub fn channels(mut self, channels: Channels) -> ImageFolder {
        self.files.channels = channels;
        self
    }

    /// Leaves decoding to a map function that needs only a part of the image, such as
    /// [`Prepare`](crate::augment::Prepare): `x` is the file's bytes as u8 `[n]`.
    pub fn encoded(mut self) -> ImageFolder {
        self.files.encoded = true;
        self
    }

    /// The names of the classes, in the order of their numbers.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// How many files were passed over, since their names are not those of JPEGs or PNGs.
    pub fn other_files(&self) -> usize {
        self.files.other_files()
    }

    /// The files that were passed over: those of other formats, and those that lie in no class's folder.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let mut all = self.files.left_out.clone();
        left_out::add_all(&mut all, self.loose.clone());
        all
    }

    /// How many images each class has.
    pub fn class_counts(&self, pool: &BytePool) -> ClassCounts {
        let mut counts = ClassCounts::of((0..self.classes.len()).map(|_| 0), pool);
        let mut start = 0;
        for (&end, &label) in self.ends.iter().zip(&self.labels) {
            counts.add(label, end - start);
            start = end;
        }
        counts
    }

    /// The class number of a row.
    pub fn label(&self, index: usize) -> usize {
        let folder = self.ends.partition_point(|end| *end <= index as u64);
        self.labels.get(folder).copied().unwrap_or(self.classes.len())
    }
}

impl Source for ImageFolder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        let example = self.files.read_row(index, pool)?;
        Ok(example.with("y", scalar(self.label(index) as i32, pool)?))
    }

    fn location(&self, index: usize) -> String {
        self.files.location(index)
    }

    fn fingerprint(&self) -> u64 {
        self.files.fingerprint
    }
}

/// Images without labels, to be predicted: field `x` is u8 `[height, width, channels]`.
///
/// ```
#[doc = include_str!("../doc/files.txt")]
/// let source = ImageFiles::list(&["tests/fixtures/rgb.png", "tests/fixtures/grey.jpg"], &pool)?.channels(Channels::Grey);
/// assert_eq!(source.read_row(1, &pool)?.get("x")?.ty().to_string(), "u8[38,45,1]");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ImageFiles {
    root: PathBuf,
    names: StringList,
    channels: Channels,
    encoded: bool,
    left_out: Vec<LeftOut>,
    fingerprint: u64,
}

impl ImageFiles {
    /// All images in a folder and below, sorted by path.
    ///
    /// # Errors
    /// [`DataError::Source`] where there is none.
    pub fn open(root: impl AsRef<Path>, pool: &BytePool) -> Result<ImageFiles> {
        let images = some_images(root.as_ref(), pool)?;
        Ok(ImageFiles::from_names(root.as_ref(), images.names, images.left_out, images.fingerprint))
    }

    /// These files, in this order, whatever their names; in place of a folder, all images in it and below, sorted by path.
    ///
    /// # Errors
    /// [`DataError::Source`] where one of them is not there, there is none, or none in a folder.
    pub fn list<P: AsRef<Path>>(paths: &[P], pool: &BytePool) -> Result<ImageFiles> {
        let (mut names, mut fingerprint, mut left_out) = (StringList::new(pool)?, 0u64, Vec::new());
        for path in paths {
            let path = path.as_ref();
            if !path.exists() {
                return Err(DataError::source(path.display(), "there is no such file; check the path"));
            }
            let name =
                path.to_str().ok_or_else(|| DataError::source(path.display(), "its name is not UTF-8; rename it"))?;
            if path.is_dir() {
                let images = some_images(path, pool)?;
                let folder = name.trim_end_matches('/');
                let pushed = images.names.iter().try_for_each(|image| names.push(&format!("{folder}/{image}")));
                no_room_is_final("the list of image files".to_string(), pool, pushed.map_err(DataError::from))?;
                fingerprint = fingerprint.wrapping_add(images.fingerprint);
                left_out.extend(images.left_out);
                continue;
            }
            fingerprint = fingerprint.wrapping_add(file_fingerprint(path)?);
            let pushed = names.push(name).map_err(DataError::from);
            no_room_is_final("the list of image files".to_string(), pool, pushed)?;
        }
        if names.len() == 0 {
            return Err(DataError::source("the list of image files", "it is empty; name at least one file"));
        }
        Ok(ImageFiles::from_names(Path::new(""), names, left_out, fingerprint))
    }

    /// The channels of `x`; RGB by default.
    pub fn channels(mut self, channels: Channels) -> ImageFiles {
        self.channels = channels;
        self
    }

    /// Leaves decoding to a map function, as [`ImageFolder::encoded`].
    pub fn encoded(mut self) -> ImageFiles {
        self.encoded = true;
        self
    }

    /// The file of a row.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        self.names.get(index).map(|name| self.root.join(name))
    }

    /// How many files were passed over, since their names are not those of JPEGs or PNGs.
    pub fn other_files(&self) -> usize {
        self.left_out.iter().map(|one| one.count).sum()
    }

    /// The files that were passed over, by the endings of their names.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn from_names(root: &Path, names: StringList, left_out: Vec<LeftOut>, fingerprint: u64) -> ImageFiles {
        let channels = Channels::default();
        ImageFiles { root: root.to_path_buf(), names, channels, encoded: false, left_out, fingerprint }
    }
}

impl Source for ImageFiles {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.len())?;
        let path = self.path(index).unwrap_or_default();
        let bytes = read_file(&path, pool)?;
        if self.encoded {
            return Ok(Example::default().with("x", bytes));
        }
        let x = image::decode(bytes.bytes(), self.channels, &path.display(), pool)?;
        Ok(Example::default().with("x", x))
    }

    fn location(&self, index: usize) -> String {
        self.path(index).unwrap_or_default().display().to_string()
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn class_folders(root: &Path) -> Result<Vec<String>> {
    let folders = walk::folders(root)?;
    if folders.is_empty() {
        let problem = "there is no folder in it; give a folder that has one sub-folder of images for each class";
        return Err(DataError::source(root.display(), problem));
    }
    Ok(folders)
}

fn some_images(folder: &Path, pool: &BytePool) -> Result<Images> {
    let images = walk::images(folder, pool)?;
    if images.names.len() > 0 {
        return Ok(images);
    }
    let count: usize = images.left_out.iter().map(|one| one.count).sum();
    let found = match images.left_out.first() {
        Some(other) => format!("there are {count} other files, such as {}", other.example.display()),
        None => "it is empty".to_string(),
    };
    let problem =
        format!("no JPEG or PNG is in it: {found}; put .jpg, .jpeg or .png files there, or remove the folder");
    Err(DataError::source(folder.display(), problem))
}
