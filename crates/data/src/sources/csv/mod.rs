//! CSV: numbers in rows, and a label. Opening finds where the rows start; reading parses one of them. `columns.rs` says
//! what the cells of a row are, `first_line.rs` whether the first has names, `classes.rs` and `values.rs` look at the labels of
//! all of them.

mod classes;
mod columns;
mod first_line;
mod values;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use memfit_ir::TensorType;

use super::class_counts::ClassCounts;
use super::pool_vec::PoolVec;
use super::{check_row, claimed_buffer, file_fingerprint, io, no_room_is_final, open_file, read_at, scalar};
use crate::error::{BadSample, DataError, Result, SampleProblem, counted};
use crate::memory::{BytePool, Lease};
use crate::source::Source;
use crate::tensor::{Example, Tensor};
use classes::ClassNames;
pub use first_line::{FirstLine, FirstLines};

/// How a CSV file is to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvLayout {
    /// The first row has the names of the columns.
    pub header: bool,
    /// What stands between cells: a comma by default.
    pub separator: u8,
    /// The label; without it all columns are features.
    pub label: Option<Label>,
    /// The weight of each row, 0 or more, and no feature.
    pub weight: Option<Column>,
}

impl Default for CsvLayout {
    /// A header, commas, neither label nor weight.
    fn default() -> CsvLayout {
        CsvLayout { header: true, separator: b',', label: None, weight: None }
    }
}

/// Which column is the label, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// A class → i32 `[]`: its number, or a word that stands for one; see [`Csv::find_classes`].
    Class(Column),
    /// A number to be predicted → f32 `[]`.
    Value(Column),
    /// Several of them → f32 `[columns]`.
    Values(Vec<Column>),
}

impl Label {
    fn columns(&self) -> &[Column] {
        match self {
            Label::Class(column) | Label::Value(column) => std::slice::from_ref(column),
            Label::Values(columns) => columns,
        }
    }
}

/// A column, by name or by number.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// As the header says it; where no column is called so, a number as text.
    Name(String),
    /// From 0.
    Number(usize),
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Column::Name(name) => write!(f, "\"{name}\""),
            Column::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Rows of numbers: field `x` is f32 `[features]`, `y` is the label, and `w` the weight, f32 `[]`, where there is one. Cells may be quoted. Of the file, only the offsets of
/// rows are held in memory.
///
/// ```
#[doc = include_str!("../../doc/files.txt")]
/// let folder = TempDir::new("csv");
/// let path = folder.write("t.csv", "a,b,y\n1,2.5,0\n3,4.5,1\n");
/// let layout = CsvLayout { label: Some(Label::Class(Column::Name("y".into()))), ..CsvLayout::default() };
/// let source = Csv::open(path, layout, &pool)?;
/// assert_eq!(source.len(), 2);
/// let row = source.read_row(1, &pool)?;
/// assert_eq!((row.get("x")?.f32s(), row.get("y")?.bytes()), (&[3.0, 4.5][..], &[1, 0, 0, 0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Csv {
    path: PathBuf,
    /// Where each row starts, and the end of the file.
    starts: PoolVec<u64>,
    columns: Vec<String>,
    /// Columns of the label: one, or several values; none where there is no label.
    labels: Vec<usize>,
    weight: Option<usize>,
    /// Labels are these, and not numbers.
    words: Option<ClassNames>,
    /// Rows by class, where they were looked at.
    counts: Option<ClassCounts>,
    layout: CsvLayout,
    /// For each column the feature that it is, where that is not the order of the file; [`NONE`] for one that is not read.
    order: Option<(Vec<u32>, Lease)>,
    /// How many columns are features, where others are not read.
    selected: Option<usize>,
    /// Of the names of the columns.
    names: Lease,
    fingerprint: u64,
}

impl Csv {
    /// Finds the rows of a file, and its label's column.
    ///
    /// # Errors
    /// [`DataError::Source`] where there is no row, no feature, or a quote is not closed; [`DataError::Csv`] where the
    /// label's column is not there, or two have the same name.
    pub fn open(path: impl AsRef<Path>, layout: CsvLayout, pool: &BytePool) -> Result<Csv> {
        let path = path.as_ref();
        let mut starts = PoolVec::new(pool)?;
        no_room_is_final(format!("the index of {}", path.display()), pool, index_rows(path, &mut starts, pool))?;
        if starts.len() < 2 {
            return Err(DataError::source(path.display(), "the file is empty; there should be at least one row"));
        }
        let mut csv = Csv {
            path: path.to_path_buf(),
            starts,
            columns: Vec::new(),
            labels: Vec::new(),
            weight: None,
            words: None,
            counts: None,
            layout,
            order: None,
            selected: None,
            names: pool.reserve(0)?,
            fingerprint: file_fingerprint(path)?,
        };
        csv.find_columns(pool)?;
        Ok(csv)
    }

    /// The same file read with another layout, without looking for its rows again. What was found out or set of classes and of
    /// the order of columns is forgotten.
    ///
    /// # Errors
    /// As [`Csv::open`].
    pub fn with_layout(mut self, layout: CsvLayout, pool: &BytePool) -> Result<Csv> {
        (self.layout, self.words, self.counts, self.order) = (layout, None, None, None);
        self.selected = None;
        self.find_columns(pool)?;
        Ok(self)
    }

    /// The columns, as the layout has them.
    fn find_columns(&mut self, pool: &BytePool) -> Result<()> {
        let path = self.path.display().to_string();
        no_room_is_final(format!("the first row of {path}"), pool, self.read_columns(pool))?;
        if self.layout.header && self.starts.len() < 3 {
            return Err(DataError::source(
                path,
                "there is a header and no row; add rows, or say that it has no header",
            ));
        }
        self.find_labels()?;
        if self.features() == 0 {
            return Err(DataError::source(path, "the label is its only column; there should be features too"));
        }
        Ok(())
    }

    fn features(&self) -> usize {
        self.selected.unwrap_or(self.columns.len() - self.labels.len() - self.weight.is_some() as usize)
    }

    fn is_feature(&self, column: usize) -> bool {
        !self.labels.contains(&column) && self.weight != Some(column)
    }

    /// A row as it stands in the file, without what ends it; the header, where `index` is none.
    ///
    /// # Errors
    /// Where the file cannot be read any more, or the row is not UTF-8.
    pub fn row_text(&self, index: Option<usize>, pool: &BytePool) -> Result<String> {
        let row = index.map_or(0, |index| index + self.layout.header as usize);
        let text = self.with_row(row, pool, |bytes| String::from_utf8(bytes.to_vec()))?;
        text.map_err(|_| self.bad(row, SampleProblem::Other("the row is not UTF-8; save the table as that".into())))
    }

    /// How it is read.
    pub fn layout(&self) -> &CsvLayout {
        &self.layout
    }

    fn cells<'a>(&self, row: &'a [u8]) -> Cells<'a> {
        Cells { rest: Some(row), separator: self.layout.separator }
    }

    /// The bytes of a row of the file, without what ends it.
    fn with_row<T>(&self, number: usize, pool: &BytePool, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (start, end) = (self.starts[number], self.starts[number + 1]);
        let mut bytes = claimed_buffer(end - start, pool)?;
        read_at(&self.path, start, bytes.bytes_mut())?;
        Ok(f(trimmed(bytes.bytes())))
    }

    /// Counted only where something is wrong, so that the index need not hold it.
    fn line_number(&self, row: usize) -> Result<usize> {
        let file = open_file(&self.path)?;
        let mut reader = BufReader::new(file.take(self.starts[row]));
        let mut lines = 1;
        loop {
            let bytes = reader.fill_buf().map_err(|e| io(&self.path, e))?;
            if bytes.is_empty() {
                return Ok(lines);
            }
            lines += bytes.iter().filter(|b| **b == b'\n').count();
            let read = bytes.len();
            reader.consume(read);
        }
    }

    fn bad(&self, row: usize, problem: SampleProblem) -> DataError {
        match self.line_number(row) {
            Ok(line) => {
                DataError::Bad(BadSample { location: format!("{}, line {line}", self.path.display()), problem })
            }
            Err(e) => e,
        }
    }

    /// Into features, labels, and the weight.
    fn parse(&self, row: &[u8], x: &mut [f32], y: &mut [f32], w: &mut f32) -> Result<(), String> {
        let (mut next, mut count, mut problem) = (0, 0, None);
        let are_classes = matches!(self.layout.label, Some(Label::Class(_)));
        for (i, cell) in self.cells(row).enumerate() {
            count += 1;
            let Some(column) = self.columns.get(i) else { continue };
            let at = self.order.as_ref().and_then(|(order, _)| order.get(i)).copied();
            if at == Some(NONE) {
                continue;
            }
            let label = self.labels.iter().position(|label| *label == i);
            let value = match label {
                Some(_) if are_classes => self.class(cell),
                None if self.weight == Some(i) => values::weight(cell),
                _ => number(cell, false),
            };
            let value = value.unwrap_or_else(|is| {
                problem.get_or_insert_with(|| format!("column \"{column}\" {is}"));
                0.0
            });
            if let Some(label) = label {
                y[label] = value;
            } else if self.weight == Some(i) {
                *w = value;
            } else {
                let at = at.map_or(next, |at| at as usize);
                x.get_mut(at).into_iter().for_each(|feature| *feature = value);
                next += 1;
            }
        }
        // First, for in such a row the cells stand in columns of others.
        if count != self.columns.len() {
            let count = counted(count, "column");
            return Err(format!("the row has {count}, and the first one has {}", self.columns.len()));
        }
        problem.map_or(Ok(()), Err)
    }
}

impl Source for Csv {
    fn len(&self) -> usize {
        self.starts.len() - 1 - self.layout.header as usize
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.len())?;
        let row = index + self.layout.header as usize;
        let mut x = Tensor::zeros(TensorType::f32([self.features()]), pool)?;
        let several = matches!(self.layout.label, Some(Label::Values(_)));
        let several = several.then(|| Tensor::zeros(TensorType::f32([self.labels.len()]), pool));
        let (mut several, mut one, mut w) = (several.transpose()?, [0.0], 1.0);
        let y = several.as_mut().map_or(&mut one[..], Tensor::f32s_mut);
        self.with_row(row, pool, |bytes| self.parse(bytes, x.f32s_mut(), y, &mut w))?
            .map_err(|problem| self.bad(row, SampleProblem::Other(problem)))?;
        let number = |value: f32| Tensor::from_bytes(TensorType::f32([]), &value.to_le_bytes(), pool);
        let example = Example::default().with("x", x);
        let example = match (&self.layout.label, several) {
            (None, _) => example,
            (Some(Label::Class(_)), _) => example.with("y", scalar(one[0] as i32, pool)?),
            (Some(_), None) => example.with("y", number(one[0])?),
            (Some(_), Some(several)) => example.with("y", several),
        };
        Ok(if self.weight.is_some() { example.with("w", number(w)?) } else { example })
    }

    fn location(&self, index: usize) -> String {
        format!("{}, row {index}", self.path.display())
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn check_classes(&self, classes: usize, pool: &BytePool) -> Result<()> {
        match self.layout.label {
            Some(Label::Class(_)) => self.check_labels(classes, pool),
            Some(Label::Value(_) | Label::Values(_)) | None => Ok(()),
        }
    }
}

/// In the order of columns: not read.
const NONE: u32 = u32::MAX;

/// Where rows start that are not empty; line ends between quotes end no row. The last entry is the end of the file.
fn index_rows(path: &Path, starts: &mut PoolVec<u64>, pool: &BytePool) -> Result<()> {
    let file = open_file(path)?;
    let _buffer = pool.reserve(BUFFER as u64)?;
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let (mut at, mut line, mut quoted, mut empty) = (0u64, 1, None, true);
    let bom = reader.fill_buf().map_err(|e| io(path, e))?.starts_with(b"\xef\xbb\xbf");
    if bom {
        reader.consume(3);
        at = 3;
    }
    loop {
        let bytes = reader.fill_buf().map_err(|e| io(path, e))?;
        if bytes.is_empty() {
            break;
        }
        for byte in bytes {
            match byte {
                b'\n' | b'\r' if quoted.is_none() => empty = true,
                _ if empty => {
                    starts.push(at)?;
                    empty = false;
                }
                _ => {}
            }
            match byte {
                b'"' => quoted = if quoted.is_none() { Some(line) } else { None },
                b'\n' => line += 1,
                _ => {}
            }
            at += 1;
        }
        let read = bytes.len();
        reader.consume(read);
    }
    if let Some(line) = quoted {
        let problem = "a quote is opened here and never closed; close it, or double it where it is meant as text";
        return Err(DataError::source(format!("{}, line {line}", path.display()), problem));
    }
    Ok(starts.push(at)?)
}

const BUFFER: usize = 64 * 1024;

/// Without the line ends behind it, of which there may be several where empty lines follow.
fn trimmed(row: &[u8]) -> &[u8] {
    let end = row.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |last| last + 1);
    &row[..end]
}

/// The cells of a row, with their quotes.
struct Cells<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Cells<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let row = self.rest?;
        let mut quoted = false;
        let end = row.iter().position(|b| {
            quoted ^= *b == b'"';
            *b == self.separator && !quoted
        });
        self.rest = end.map(|end| &row[end + 1..]);
        Some(&row[..end.unwrap_or(row.len())])
    }
}

/// A cell as text: without the quotes around it, and doubled ones within as one.
fn text(cell: &[u8]) -> String {
    unquoted(&String::from_utf8_lossy(cell.trim_ascii()))
}

/// The same, without the space within its quotes.
fn trimmed_text(cell: &[u8]) -> String {
    text(cell).trim().to_string()
}

fn unquoted(cell: &str) -> String {
    match cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => cell.to_string(),
    }
}

/// As much of a cell as a message has room for.
fn excerpt(cell: &[u8]) -> String {
    text(cell.get(..60).unwrap_or(cell))
}

const EMPTY: &str = "is empty; fill it in, or leave the row out";

/// A cell as a number, or what it is instead.
fn number(cell: &[u8], class: bool) -> Result<f32, String> {
    let bare = cell.trim_ascii();
    let bare = bare.strip_prefix(b"\"").and_then(|b| b.strip_suffix(b"\"")).unwrap_or(bare).trim_ascii();
    if bare.is_empty() {
        return Err(EMPTY.into());
    }
    let value = std::str::from_utf8(bare).ok().and_then(|text| text.parse::<f32>().ok()).filter(|v| v.is_finite());
    match value {
        None => Err(format!("is \"{}\", which is not a number", excerpt(cell))),
        Some(v) if class && (v.fract() != 0.0 || !(0.0..16_777_216.0).contains(&v)) => {
            Err(format!("is \"{}\", which is not the number of a class: 0, 1, …", excerpt(cell)))
        }
        Some(v) => Ok(v),
    }
}
