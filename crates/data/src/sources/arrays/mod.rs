//! Arrays of numpy: NPY files, and the members of NPZ files. Rows are read from where they lie in the file; what has no
//! such place (compressed members, Fortran order) is held in the pool as a whole, or refused where it has no room.

mod element;
mod header;
mod list;
mod values;
mod view;
mod zip;

use std::path::{Path, PathBuf};

use memfit_ir::TensorType;

use self::element::Element;
use self::header::Header;
pub use self::list::ArrayInfo;
pub use self::view::ClassLabels;
use self::view::{FIELD, View};
use self::zip::Member;
use super::class_counts::ClassCounts;
use super::{check_row, claimed_buffer, file_bytes, file_fingerprint, no_room_is_final, read_at};
use crate::error::{BadSample, DataError, Result, SampleProblem, counted};
use crate::memory::{Buffer, BytePool, Lease};
use crate::produce::OnBad;
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

    /// Reads a field as classes from now on, and counts the rows of each by a pass over it. Classes are integers; or floats
    /// that are whole, or one-hot rows, which become i32 `[]`. None where there is no such field.
    ///
    /// # Errors
    /// [`DataError::BadLabels`] where a label is no class; with [`OnBad::Skip`] only where all are none, and the others are told
    /// when they are read. [`DataError::Io`] where the file cannot be read.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let mut source = Arrays::npz("tests/fixtures/stored.npz", &[("y", "y")], &pool)?;
    /// let (labels, counts) = source.read_as_classes("y", OnBad::Fail, &pool)?.expect("there is one");
    /// assert_eq!((labels, counts.classes() > 0), (ClassLabels::Integers, true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_as_classes(
        &mut self,
        field: &str,
        bad: OnBad,
        pool: &BytePool,
    ) -> Result<Option<(ClassLabels, ClassCounts)>> {
        let Some((_, array)) = self.fields.iter_mut().find(|(name, _)| name == field) else { return Ok(None) };
        let labels = ClassLabels::of(&array.stored);
        array.set_view(View::Class(labels));
        let (mut counts, mut first_bad, mut bad_rows) = (ClassCounts::new(pool), None, 0);
        array.each_label(pool, |row, label| {
            match label {
                Ok(class) => counts.add(class as usize, 1),
                Err(problem) => {
                    bad_rows += 1;
                    first_bad.get_or_insert_with(|| BadSample { location: array.row_location(row), problem });
                }
            }
            Ok(())
        })?;
        if let Some(first) = first_bad.filter(|_| bad == OnBad::Fail || counts.classes() == 0) {
            return Err(DataError::BadLabels { first, bad: bad_rows, rows: array.rows as u64 });
        }
        if labels == ClassLabels::OneHot {
            counts.add(array.stored.elements() - 1, 0);
        }
        Ok(Some((labels, counts)))
    }

    /// Reads a field of `[channels, height, width]` as `[height, width, channels]` from now on; says whether it is of three
    /// axes.
    pub fn turn_channels_last(&mut self, field: &str) -> bool {
        let array = self.fields.iter_mut().find(|(name, array)| name == field && array.stored.shape.len() == 3);
        array.is_some_and(|(_, array)| {
            array.set_view(View::ChannelsLast);
            true
        })
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
            Some((_, labels)) => labels.check_classes(classes, pool),
            None => Ok(()),
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
    /// The type that a row becomes, ...
    stored: TensorType,
    /// ... what it is then read as, ...
    view: View,
    /// ... and the type of that.
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
        let (stored, view) = (row.clone(), View::Stored);
        let array = Array { location, bytes, start, rows, element, stored, view, row, fortran };
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

    fn set_view(&mut self, view: View) {
        (self.view, self.row) = (view, view.row(&self.stored));
    }

    fn row_location(&self, row: usize) -> String {
        format!("{}, row {row}", self.location)
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Tensor> {
        let mut out = Tensor::zeros(self.stored.clone(), pool)?;
        let mut stored = pool.buffer(self.stored.elements() * self.element.bytes())?;
        self.copy_rows(index, stored.bytes_mut())?;
        let bad = |problem| DataError::bad(self.row_location(index), problem);
        self.element.convert(stored.bytes(), out.bytes_mut()).map_err(bad)?;
        drop(stored);
        self.view.read(out, || self.row_location(index), pool)
    }

    /// Rows as they lie in the file, from one on, as many as there is room for; in Fortran order one.
    fn copy_rows(&self, first: usize, out: &mut [u8]) -> Result<()> {
        match &self.bytes {
            Bytes::InMemory(all) if self.fortran => {
                self.gather(first, &all.bytes()[self.start as usize..], out);
                Ok(())
            }
            bytes => bytes.read_at(self.start + (first * self.stored.elements() * self.element.bytes()) as u64, out),
        }
    }

    /// Calls `f` with each row and the class that it is, or what is wrong with it.
    fn each_label(
        &self,
        pool: &BytePool,
        mut f: impl FnMut(usize, Result<i32, SampleProblem>) -> Result<()>,
    ) -> Result<()> {
        let (labels, dtype) = (ClassLabels::of(&self.stored), self.element.dtype());
        self.each_row(pool, |row, bytes| f(row, bytes.and_then(|bytes| labels.class(dtype, bytes))))
    }

    /// Calls `f` with each row and its numbers, or what is wrong with them.
    fn each_row(
        &self,
        pool: &BytePool,
        mut f: impl FnMut(usize, Result<&[u8], SampleProblem>) -> Result<()>,
    ) -> Result<()> {
        let (elements, dtype) = (self.stored.elements(), self.element.dtype());
        let (size, converted) = (elements * self.element.bytes(), elements * dtype.bits() / 8);
        let rows = if self.fortran { 1 } else { (PIECE / elements.max(1)).max(1) };
        let room = |bytes: usize| {
            no_room_is_final(format!("{}, some rows", self.location), pool, claimed_buffer(bytes as u64, pool))
        };
        let (mut piece, mut row_bytes) = (room(rows * size)?, room(converted)?);
        for first in (0..self.rows).step_by(rows) {
            let stored = &mut piece.bytes_mut()[..rows.min(self.rows - first) * size];
            self.copy_rows(first, stored)?;
            for row in first..self.rows.min(first + rows) {
                let converted = self.element.convert(&stored[(row - first) * size..][..size], row_bytes.bytes_mut());
                let converted = converted.map_err(SampleProblem::Other);
                f(row, converted.map(|()| row_bytes.bytes()))?;
            }
        }
        Ok(())
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        self.each_label(pool, |row, label| {
            let problem = match label {
                Ok(label) if (label as usize) < classes => return Ok(()),
                Ok(label) => SampleProblem::UnknownClass { field: FIELD.into(), label: label.into(), classes },
                Err(problem) => problem,
            };
            Err(DataError::bad_with(self.row_location(row), problem))
        })
    }

    /// Element [i, j, k] of [n, a, b] lies at i + n (j + a k) in Fortran order, and at (i a + j) b + k otherwise.
    fn gather(&self, index: usize, all: &[u8], out: &mut [u8]) {
        let size = self.element.bytes();
        let shape = &self.stored.shape;
        for (position, out) in out.chunks_exact_mut(size).enumerate() {
            let (mut rest, mut stride, mut from) = (position, self.stored.elements() * self.rows, index);
            for extent in shape.iter().rev() {
                stride /= extent;
                from += rest % extent * stride;
                rest /= extent;
            }
            out.copy_from_slice(&all[from * size..][..size]);
        }
    }
}
