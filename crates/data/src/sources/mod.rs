//! Sources that read files: each row by itself, by any thread, in any order. Opening a source builds an index of its rows,
//! which is drawn from a pool like everything else; no source holds its data in memory, but for what it says.
//!
//! | data | source | fields of a row |
//! |---|---|---|
//! | folders of images, one a class | [`ImageFolder`] | `x` u8 `[height, width, channels]`, `y` i32 `[]` |
//! | images without labels | [`ImageFiles`] | `x` |
//! | images and masks | [`SegmentationPairs`] | `x`, `y` f32 `[height, width, 1]` or i32 `[height, width]` |
//! | a table of numbers | [`Csv`] | `x` f32 `[features]`, `y` the label |
//! | NumPy arrays, `.npy` and `.npz` | [`Arrays`] | as the arrays are called |
//! | TFRecord files of `tf.train.Example` | [`TfRecord`] | as [`Feature`]s say |
//! | text, bytes or tokens for language models | [`Tokens`] | `x`, `y` i32 `[sequence]` |
//!
//! [`hold_out`] splits any of them into a training set and a test set.
//!
//! Errors of opening: [`DataError::Io`] for a file that cannot be read, [`DataError::Source`] for one that is not what
//! it should be, [`DataError::PoolTooSmall`] where the index has no room. What is wrong with a single row is an error when
//! it is read: [`DataError::Bad`].

mod arrays;
mod class_counts;
mod crc;
mod csv;
mod folder;
mod glob;
mod left_out;
mod masks;
mod pairs;
mod pool_vec;
mod subset;
mod tfrecord;
mod tokens;
mod walk;

pub use arrays::{ArrayInfo, Arrays, ClassLabels};
pub use class_counts::ClassCounts;
pub use csv::{Column, Csv, CsvLayout, FirstLine, FirstLines, Label};
pub use folder::{ImageFiles, ImageFolder};
pub use left_out::LeftOut;
pub use masks::{Colour, MaskClasses, MaskFormat, MaskProblem, MaskSurvey, Masks, colour_name};
pub use pairs::SegmentationPairs;
pub use subset::{Subset, hold_out};
pub use tfrecord::{Feature, FeatureKind, TfRecord};
pub use tokens::{TokenWidth, Tokens, Windows};

use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use memfit_files::NotAFile;
use memfit_ir::{DType, TensorType, fingerprint};

use crate::error::{BadSample, DataError, Result, SampleProblem};
use crate::memory::{Buffer, BytePool};
use crate::tensor::Tensor;

/// A whole file as u8 `[bytes]`.
fn read_file(path: &Path, pool: &BytePool) -> Result<Tensor> {
    let mut file = match memfit_files::open(path) {
        // One of many files, of which the others may be good.
        Err(e) if NotAFile::in_error(&e).is_some() => return Err(DataError::bad(path.display(), e)),
        file => file.map_err(|e| io(path, e))?,
    };
    let bytes = file.metadata().map_err(|e| io(path, e))?.len();
    if bytes > pool.limit() {
        let problem = SampleProblem::FileTooLarge { bytes, limit: pool.limit() };
        return Err(DataError::Bad(BadSample { location: path.display().to_string(), problem }));
    }
    let mut tensor = Tensor::zeros(TensorType::new(DType::U8, [bytes as usize]), pool)?;
    file.read_exact(tensor.bytes_mut()).map_err(|e| io(path, e))?;
    Ok(tensor)
}

/// A regular file: what is none would be waited for, or read for ever.
fn open_file(path: &Path) -> Result<File> {
    memfit_files::open(path).map_err(|e| io(path, e))
}

/// The bytes of a regular file.
fn file_bytes(path: &Path) -> Result<u64> {
    Ok(open_file(path)?.metadata().map_err(|e| io(path, e))?.len())
}

/// As many bytes as a file claims to have of something.
fn claimed_buffer(bytes: u64, pool: &BytePool) -> Result<Buffer> {
    match usize::try_from(bytes) {
        Ok(fits) if fits <= isize::MAX as usize => Ok(pool.buffer(fits)?),
        _ => Err(pool.no_room(bytes).into()),
    }
}

/// Bytes of a file from an offset on.
fn read_at(path: &Path, offset: u64, bytes: &mut [u8]) -> Result<()> {
    let mut file = open_file(path)?;
    file.seek(SeekFrom::Start(offset)).map_err(|e| io(path, e))?;
    file.read_exact(bytes).map_err(|e| io(path, e))
}

fn check_row(index: usize, rows: usize) -> Result<()> {
    if index < rows {
        return Ok(());
    }
    Err(DataError::Pipeline(format!("row {index} was asked for, and there are {rows}")))
}

fn io(path: &Path, source: std::io::Error) -> DataError {
    DataError::Io { path: path.to_path_buf(), source }
}

/// A number for a file's own name, size and time of change, wherever it lies and however its path is spelt.
fn file_fingerprint(path: &Path) -> Result<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(fingerprint_of(&name, &std::fs::metadata(path).map_err(|e| io(path, e))?))
}

/// `name` is the path from the root of the source: a folder that was moved has the same data.
fn fingerprint_of(name: &str, metadata: &Metadata) -> u64 {
    let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    fingerprint(&format!("{name} {} {changed:?}", metadata.len()))
}

/// The number of what lies in a folder, for this folder: what moves from one to another changes it.
fn fingerprint_in(folder: &str, print: u64) -> u64 {
    fingerprint(&format!("{folder} {print:016x}"))
}

/// While a source is opened nobody gives bytes back: there, no room is too small a budget.
fn no_room_is_final<T>(what: String, pool: &BytePool, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        DataError::NoRoom(e) => {
            DataError::PoolTooSmall { limit: pool.limit(), needed: pool.used().saturating_add(e.wanted), what }
        }
        other => other,
    })
}

/// A single i32.
fn scalar(value: i32, pool: &BytePool) -> Result<Tensor> {
    Ok(Tensor::from_bytes(TensorType::i32([]), &value.to_le_bytes(), pool)?)
}
