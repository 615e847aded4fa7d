//! Arrays of numpy: NPY files, and the members of NPZ files. Rows are read from where they lie in the file; what has no
//! such place (compressed members, Fortran order) is held in the pool as a whole, or refused where it has no room.

mod element;
mod header;
mod zip;

use std::path::{Path, PathBuf};

use memfit_ir::{DType, TensorType};

use self::element::Element;
use self::header::Header;
use self::zip::Member;
use super::class_counts::ClassCounts;
use super::{check_row, claimed_buffer, file_bytes, file_fingerprint, no_room_is_final, read_at};
use crate::error::{BadSample, DataError, Result, SampleProblem, counted};
use crate::memory::{Buffer, BytePool, Lease};
use crate::source::Source;
use crate::tensor::{Example, Tensor};

/// NumPy arrays with equally many rows, each of which is a field: row i is the i-th slice along the first axis. Floats
/// become f32, integers i32, u8 and bool u8. Rows are read from where they lie in the file; compressed arrays and those
/// in Fortran order are held in the pool as a whole.
///
/// ```
#[doc = include_str!("../../doc/files.txt")]
/// let source = Arrays::npz("tests/fixtures/stored.npz", &[], &pool)?;
/// assert!(source.len() > 0);
/// let row = source.read_row(0, &pool)?;
/// assert_eq!(Some(row.fields[0].1.ty()), source.row(&row.fields[0].0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arrays {
    rows: usize,
    fields: Vec<(String, Array)>,
    _index: Lease,
    fingerprint: u64,
}

impl Arrays {
    /// Pairs of a field and its `.npy` file.
    ///
    /// # Errors
    /// [`DataError::Source`] where a file is no array, or they have not equally many rows; [`DataError::PoolTooSmall`]
    /// where an array that has to be held has no room.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let source = Arrays::npy(&[("x", "tests/fixtures/c_le_f4.npy")], &pool)?;
    /// assert_eq!(source.row("x").map(|ty| ty.dtype.to_string()).as_deref(), Some("f32"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn npy<P: AsRef<Path>>(fields: &[(&str, P)], pool: &BytePool) -> Result<Arrays> {
        let open = |(name, path): &(&str, P)| {
            let path = path.as_ref();
            let bytes = file_bytes(path)?;
            let location = path.display().to_string();
            let array = Array::open(Bytes::File { path: path.to_path_buf(), start: 0, length: bytes }, location, pool)?;
            Ok((name.to_string(), array))
        };
        let print =
            |sum: u64, (_, path): &(&str, P)| file_fingerprint(path.as_ref()).map(|print| sum.wrapping_add(print));
        let fingerprint = fields.iter().try_fold(0, print)?;
        Arrays::from_fields(fields.iter().map(open).collect::<Result<_>>()?, pool.reserve(0)?, fingerprint)
    }

    /// An `.npz` file, with pairs of a field and the name of its array in the file; without any, all arrays under their
    /// own names.
    ///
    /// # Errors
    /// As [`Arrays::npy`]; [`DataError::Source`] also where an array is not there.
    pub fn npz(path: impl AsRef<Path>, fields: &[(&str, &str)], pool: &BytePool) -> Result<Arrays> {
        let path = path.as_ref();
        let opened = zip::members(path, pool).and_then(|(members, lease)| {
            let all: Vec<(&str, &str)> = members.iter().map(|m| (m.array(), m.array())).collect();
            let wanted = if fields.is_empty() { &all } else { fields };
            let open = |(field, name): &(&str, &str)| {
                let member = find_member(path, &members, name)?;
                let what = format!(
                    "{}: compressed arrays are held as a whole (np.savez leaves them on disk), which",
                    path.display()
                );
                let bytes = no_room_is_final(what, pool, member.bytes(path, pool))?;
                let location = format!("{}, array \"{name}\"", path.display());
                Ok((field.to_string(), Array::open(bytes, location, pool)?))
            };
            Arrays::from_fields(wanted.iter().map(open).collect::<Result<_>>()?, lease, file_fingerprint(path)?)
        });
        no_room_is_final(format!("the list of arrays in {}", path.display()), pool, opened)
    }

    /// The names of the arrays in an `.npz` file, in its order.
    ///
    /// # Errors
    /// [`DataError::Source`] where it is none, or has none.
    pub fn names(path: impl AsRef<Path>, pool: &BytePool) -> Result<Vec<String>> {
        let path = path.as_ref();
        let listed = zip::members(path, pool).map(|(members, _)| members.iter().map(|m| m.array().into()).collect());
        no_room_is_final(format!("the list of arrays in {}", path.display()), pool, listed)
    }

    /// How many rows are of each class, by a pass over a field of one integer a row; none where the field is something
    /// else. What is no class is told when it is read.
    ///
    /// # Errors
    /// [`DataError::Io`] where the file cannot be read.
    pub fn class_counts(&self, field: &str, pool: &BytePool) -> Result<Option<ClassCounts>> {
        let labels = self.fields.iter().find(|(name, _)| name == field).map(|(_, array)| array);
        let Some(labels) = labels.filter(|a| a.row.elements() == 1 && a.row.dtype != DType::F32) else {
            return Ok(None);
        };
        let mut counts = ClassCounts::new(pool);
        labels.each_label(pool, |_, label| {
            if let Some(class) = label.ok().and_then(|label| usize::try_from(label).ok()) {
                counts.add(class, 1);
            }
            Ok(())
        })?;
        Ok(Some(counts))
    }

    /// The type of a field of one row.
    pub fn row(&self, field: &str) -> Option<&TensorType> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, array)| &array.row)
    }

    fn from_fields(fields: Vec<(String, Array)>, index: Lease, fingerprint: u64) -> Result<Arrays> {
        let Some((name, first)) = fields.first() else {
            return Err(DataError::Pipeline("no array is named; name those that the model reads".into()));
        };
        let rows = first.rows;
        if let Some((other, array)) = fields.iter().find(|(_, array)| array.rows != rows) {
            let found = counted(array.rows, "row");
            let problem = format!("\"{other}\" has {found} and \"{name}\" {rows}; they should have equally many");
            return Err(DataError::source(&array.location, problem));
        }
        if rows == 0 {
            return Err(DataError::source(&first.location, "the array has no rows"));
        }
        Ok(Arrays { rows, fields, _index: index, fingerprint })
    }
}

impl Source for Arrays {
    fn len(&self) -> usize {
        self.rows
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.rows)?;
        let mut example = Example::default();
        for (name, array) in &self.fields {
            example = example.with(name, array.read_row(index, pool)?);
        }
        Ok(example)
    }

    fn location(&self, index: usize) -> String {
        let location = self.fields.first().map(|(_, array)| array.location.as_str()).unwrap_or_default();
        format!("{location}, row {index}")
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        match self.fields.iter().find(|(name, _)| name == "y") {
            Some((_, labels)) if labels.row.elements() == 1 => labels.check_classes(classes, pool),
            Some(_) | None => Ok(()),
        }
    }
}

fn find_member<'a>(path: &Path, members: &'a [Member], name: &str) -> Result<&'a Member> {
    members.iter().find(|member| member.array() == name).ok_or_else(|| {
        let known: Vec<&str> = members.iter().map(Member::array).collect();
        DataError::source(path.display(), format!("there is no array \"{name}\" in it; there are {}", known.join(", ")))
    })
}

/// Where the bytes of an NPY file are.
#[derive(Debug)]
enum Bytes {
    File { path: PathBuf, start: u64, length: u64 },
    InMemory(Buffer),
}

impl Bytes {
    fn len(&self) -> u64 {
        match self {
            Bytes::File { length, .. } => *length,
            Bytes::InMemory(buffer) => buffer.bytes().len() as u64,
        }
    }

    /// The caller looked at the length.
    fn read_at(&self, from: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Bytes::File { path, start, .. } => read_at(path, start + from, into),
            Bytes::InMemory(buffer) => {
                into.copy_from_slice(&buffer.bytes()[from as usize..][..into.len()]);
                Ok(())
            }
        }
    }
}

/// Labels that are looked at in one go.
const PIECE: usize = 4096;

#[derive(Debug)]
struct Array {
    location: String,
    bytes: Bytes,
    /// Where the elements start.
    start: u64,
    rows: usize,
    element: Element,
    row: TensorType,
    fortran: bool,
}

impl Array {
    fn open(bytes: Bytes, location: String, pool: &BytePool) -> Result<Array> {
        let mut head = [0; 12];
        let shorter = (bytes.len() as usize).min(head.len());
        bytes.read_at(0, &mut head[..shorter])?;
        let (from, length) = header::extent(&head[..shorter]).map_err(|e| DataError::source(&location, e))?;
        if from + length > bytes.len() {
            return Err(DataError::source(location, "the file is cut off within its header; copy or write it again"));
        }
        let mut text = claimed_buffer(length, pool)?;
        bytes.read_at(from, text.bytes_mut())?;
        let header = Header::parse(text.bytes()).map_err(|e| DataError::source(&location, e))?;
        let start = from + length;
        let needed = header
            .bytes()
            .ok_or_else(|| DataError::source(&location, "its shape has more elements than any memory"))?;
        if bytes.len() - start < needed {
            let problem =
                format!("the shape needs {needed} bytes, and there are {}; the file is cut off", bytes.len() - start);
            return Err(DataError::source(location, problem));
        }
        let Header { element, fortran, rows, row } = header;
        let array = Array { location, bytes, start, rows, element, row, fortran };
        if array.fortran { array.load_fortran(needed, pool) } else { Ok(array) }
    }

    /// In Fortran order a row lies in pieces all over the file.
    fn load_fortran(mut self, bytes: u64, pool: &BytePool) -> Result<Array> {
        if matches!(self.bytes, Bytes::File { .. }) {
            let what = format!(
                "{} is in Fortran order and so held as a whole (np.ascontiguousarray turns it), which",
                self.location
            );
            let mut all = no_room_is_final(what, pool, claimed_buffer(bytes, pool))?;
            self.bytes.read_at(self.start, all.bytes_mut())?;
            (self.bytes, self.start) = (Bytes::InMemory(all), 0);
        }
        Ok(self)
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Tensor> {
        let mut out = Tensor::zeros(self.row.clone(), pool)?;
        let size = self.element.bytes();
        let elements = self.row.elements();
        let mut stored = pool.buffer(elements * size)?;
        match &self.bytes {
            Bytes::InMemory(all) if self.fortran => {
                self.gather(index, &all.bytes()[self.start as usize..], stored.bytes_mut())
            }
            bytes => bytes.read_at(self.start + (index * elements * size) as u64, stored.bytes_mut())?,
        }
        let bad = |problem| DataError::bad(format!("{}, row {index}", self.location), problem);
        self.element.convert(stored.bytes(), out.bytes_mut()).map_err(bad)?;
        Ok(out)
    }

    /// Calls `f` with the row and the number of each label, or what is wrong with it. One number a row lies in the same
    /// order everywhere.
    fn each_label(&self, pool: &BytePool, mut f: impl FnMut(usize, Result<i32, String>) -> Result<()>) -> Result<()> {
        let (size, dtype) = (self.element.bytes(), self.element.dtype());
        let mut piece = no_room_is_final(
            format!("{}, some rows", self.location),
            pool,
            claimed_buffer((PIECE * size) as u64, pool),
        )?;
        for first in (0..self.rows).step_by(PIECE) {
            let stored = &mut piece.bytes_mut()[..PIECE.min(self.rows - first) * size];
            self.bytes.read_at(self.start + (first * size) as u64, stored)?;
            for (row, stored) in (first..).zip(stored.chunks_exact(size)) {
                let mut number = [0; 4];
                let converted = self.element.convert(stored, &mut number[..dtype.bits() / 8]);
                f(row, converted.map(|()| i32::from_le_bytes(number)))?;
            }
        }
        Ok(())
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        let is_whole = self.element.dtype() != DType::F32;
        self.each_label(pool, |row, label| {
            let location = || format!("{}, row {row}", self.location);
            let label = label.map_err(|problem| DataError::bad(location(), problem))?;
            if !is_whole {
                return Err(DataError::bad(location(), "the label is no whole number; write the labels as integers"));
            }
            if usize::try_from(label).is_ok_and(|label| label < classes) {
                return Ok(());
            }
            let problem = SampleProblem::UnknownClass { field: "the label".to_string(), label: label.into(), classes };
            Err(DataError::Bad(BadSample { location: location(), problem }))
        })
    }

    /// Element [i, j, k] of [n, a, b] lies at i + n (j + a k) in Fortran order, and at (i a + j) b + k otherwise.
    fn gather(&self, index: usize, all: &[u8], out: &mut [u8]) {
        let size = self.element.bytes();
        let shape = &self.row.shape;
        for (position, out) in out.chunks_exact_mut(size).enumerate() {
            let (mut rest, mut stride, mut from) = (position, self.row.elements() * self.rows, index);
            for extent in shape.iter().rev() {
                stride /= extent;
                from += rest % extent * stride;
                rest /= extent;
            }
            out.copy_from_slice(&all[from * size..][..size]);
        }
    }
}
