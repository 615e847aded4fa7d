//! TFRecord files of `tf.train.Example`. Opening walks over the lengths of all records and checks their checksums;
//! reading a record checks that of its data. Compressed files are refused: their records have no places that can be
//! read.

mod feature;
mod proto;

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

pub use feature::{Feature, FeatureKind};

use super::pool_vec::PoolVec;
use super::{check_row, claimed_buffer, crc, file_fingerprint, glob, io, no_room_is_final, open_file, read_at};
use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::Example;

/// TFRecord files of `tf.train.Example`, in the order of the files. Checksums are checked. Compressed files are refused:
/// their records cannot be read in any order.
///
/// ```
#[doc = include_str!("../../doc/files.txt")]
/// let features = vec![
///     Feature::new("image", "x", FeatureKind::Image(Channels::Rgb)),
///     Feature::new("label", "y", FeatureKind::Ints(vec![])),
/// ];
/// let source = TfRecord::glob("tests/fixtures/shard-*-of-2.tfrecord", features, &pool)?;
/// let row = source.read_row(0, &pool)?;
/// assert_eq!((row.get("x")?.ty().shape.len(), row.get("y")?.ty().to_string()), (3, "i32[]".to_string()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TfRecord {
    files: Vec<PathBuf>,
    /// For each file, the number of the record after its last.
    ends: Vec<usize>,
    /// Where each record starts in its file.
    starts: PoolVec<u64>,
    features: Vec<Feature>,
    fingerprint: u64,
}

/// A length, its checksum; then the data, and its checksum.
const HEAD: u64 = 12;
const TAIL: u64 = 4;

impl TfRecord {
    /// The files that a pattern matches, sorted: `train-*.tfrecord`. `*` and `?` stand in the last part of the path.
    ///
    /// # Errors
    /// As [`TfRecord::open`]; [`DataError::Source`] also where no file matches.
    pub fn glob(pattern: &str, features: Vec<Feature>, pool: &BytePool) -> Result<TfRecord> {
        TfRecord::open(&glob::files(pattern)?, features, pool)
    }

    /// Finds the records of files, by the lengths that stand before them.
    ///
    /// # Errors
    /// [`DataError::Source`] where a file is no TFRecord file, is cut off or compressed, or there is no record.
    pub fn open<P: AsRef<Path>>(files: &[P], features: Vec<Feature>, pool: &BytePool) -> Result<TfRecord> {
        if features.is_empty() {
            return Err(DataError::Pipeline(
                "no feature of the records is named; name those that the model reads".into(),
            ));
        }
        let mut starts = PoolVec::new(pool)?;
        let (mut ends, mut fingerprint) = (Vec::new(), 0u64);
        for path in files {
            let path = path.as_ref();
            let indexed = index_records(path, &mut starts);
            no_room_is_final(format!("the index of {}", path.display()), pool, indexed)?;
            ends.push(starts.len());
            fingerprint = fingerprint.wrapping_add(file_fingerprint(path)?);
        }
        if starts.is_empty() {
            let location = files.first().map_or("TFRecord".into(), |path| path.as_ref().display().to_string());
            return Err(DataError::source(location, "there is no record; check which files were written"));
        }
        let files = files.iter().map(|path| path.as_ref().to_path_buf()).collect();
        Ok(TfRecord { files, ends, starts, features, fingerprint })
    }
}

impl Source for TfRecord {
    fn len(&self) -> usize {
        self.starts.len()
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.len())?;
        let file = self.ends.partition_point(|end| *end <= index);
        let path = &self.files[file];
        let location = self.location(index);
        let mut head = [0; HEAD as usize];
        read_at(path, self.starts[index], &mut head)?;
        let length =
            length(&head).ok_or_else(|| DataError::bad(&location, "its length has changed since it was opened"))?;
        let mut record = claimed_buffer(length.saturating_add(TAIL), pool)?;
        read_at(path, self.starts[index] + HEAD, record.bytes_mut())?;
        let (data, sum) = record.bytes().split_at(length as usize);
        if sum != crc::masked_crc32c(data).to_le_bytes() {
            return Err(DataError::bad(location, "its checksum is wrong: the data is damaged; write the file again"));
        }
        feature::parse_example(data, &self.features, &location, pool)
    }

    fn location(&self, index: usize) -> String {
        let file = self.ends.partition_point(|end| *end <= index);
        let first = if file == 0 { 0 } else { self.ends[file - 1] };
        let path = self.files.get(file).map(|path| path.display().to_string()).unwrap_or_default();
        format!("{path}, record {}", index - first)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Adds where the records of a file start.
fn index_records(path: &Path, starts: &mut PoolVec<u64>) -> Result<()> {
    let file = open_file(path)?;
    let bytes = file.metadata().map_err(|e| io(path, e))?.len();
    let mut reader = BufReader::with_capacity(256, file);
    let (mut at, mut number) = (0, 0);
    while at < bytes {
        let mut head = [0; HEAD as usize];
        if bytes - at < HEAD {
            return Err(cut_off(path, number));
        }
        reader.read_exact(&mut head).map_err(|e| io(path, e))?;
        let Some(length) = length(&head) else { return Err(not_a_record(path, number, &head)) };
        let end =
            length.checked_add(at + HEAD + TAIL).filter(|end| *end <= bytes).ok_or_else(|| cut_off(path, number))?;
        starts.push(at)?;
        reader.seek_relative((length + TAIL) as i64).map_err(|e| io(path, e))?;
        (at, number) = (end, number + 1);
    }
    Ok(())
}

/// The length of a record, if its checksum is right.
fn length(head: &[u8; HEAD as usize]) -> Option<u64> {
    let (length, sum) = head.split_at(8);
    (sum == crc::masked_crc32c(length).to_le_bytes())
        .then(|| u64::from_le_bytes(length.try_into().expect("these are eight bytes")))
}

fn cut_off(path: &Path, number: usize) -> DataError {
    DataError::source(path.display(), format!("the file is cut off within record {number}; copy or write it again"))
}

fn not_a_record(path: &Path, number: usize, head: &[u8]) -> DataError {
    let problem = match (number, head) {
        (0, [0x1f, 0x8b, ..]) => {
            "it is compressed with gzip, so its records cannot be read in any order; gunzip it".into()
        }
        (0, [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..]) => {
            "it is compressed with zlib, or is no TFRecord file; write it without compression".into()
        }
        (0, _) => "this is no TFRecord file: the checksum of the first length is wrong".into(),
        _ => format!("the checksum of the length of record {number} is wrong: the file is damaged; write it again"),
    };
    DataError::source(path.display(), problem)
}
