//! What the labels of a table are: numbers of classes, or words that are given numbers. One pass over the label's
//! column finds out which. The words are drawn from the pool, and a column with too many of them is not taken for classes.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use super::{BUFFER, Csv, EMPTY, excerpt, number, trimmed, unquoted};
use crate::error::{CsvProblem, DataError, Result, SampleProblem};
use crate::memory::{BytePool, Lease, NoRoom};
use crate::produce::OnBad;
use crate::sources::class_counts::ClassCounts;
use crate::sources::{claimed_buffer, io, no_room_is_final, open_file};

/// So many different words may be classes of any table; more of them must stand in two rows each, on average.
const FEW: usize = 1000;
/// No class has a name of more bytes.
const LONGEST: usize = 256;
/// One label of so many that is no class is a mistake; more of them are numbers.
const OF_ODD_NUMBERS: usize = 20;
/// Of known classes that an error lists.
const LISTED: usize = 20;

impl Csv {
    /// Finds out what the classes are, by one pass over the labels, and returns how many. Where all labels are integers,
    /// they are the classes, up to the largest; where they are words, the classes are the different words in sorted
    /// order. Where they are both, or numbers that are no classes, that is an error, or with [`OnBad::Skip`] the fewer of
    /// them are bad. What is otherwise wrong with a row is an error when it is read.
    ///
    /// # Errors
    /// [`DataError::Source`] where there is no label, or they are mixed; [`DataError::Csv`] where there are too many
    /// different words for them to be classes, or a number that is no class: less than 0, or not whole.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let folder = TempDir::new("csv-classes");
    /// let path = folder.write("t.csv", "x,y\n1,rose\n2,iris\n3,rose\n");
    /// let layout = CsvLayout { label: Some(Label::Class(Column::Name("y".into()))), ..CsvLayout::default() };
    /// let mut csv = Csv::open(path, layout, &pool)?;
    /// assert_eq!(csv.find_classes(OnBad::Fail, &pool)?, 2);
    /// assert_eq!(csv.classes(), ["iris", "rose"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_classes(&mut self, mixed: OnBad, pool: &BytePool) -> Result<usize> {
        let survey = self.survey(mixed, pool)?;
        self.settle_classes(survey, mixed, pool)
    }

    /// The same, unless the labels are numbers that look like none of classes: then none, and the label may be read as
    /// [`Label::Value`](super::Label::Value). They do where several, and more than one in twenty, are not whole or less than −1, and where the largest is beyond both the number of rows and a thousand.
    ///
    /// # Errors
    /// As [`Csv::find_classes`].
    pub fn find_classes_or_values(&mut self, mixed: OnBad, pool: &BytePool) -> Result<Option<usize>> {
        let survey = self.survey(mixed, pool)?;
        if survey.are_values() { Ok(None) } else { self.settle_classes(survey, mixed, pool).map(Some) }
    }

    fn survey(&self, mixed: OnBad, pool: &BytePool) -> Result<LabelSurvey> {
        let what = format!("the classes in {}", self.path.display());
        no_room_is_final(what, pool, self.survey_labels(mixed, pool))
    }

    fn settle_classes(&mut self, survey: LabelSurvey, mixed: OnBad, pool: &BytePool) -> Result<usize> {
        let what = format!("the classes in {}", self.path.display());
        let are_words = match (&survey.number, &survey.word) {
            (None, None) => {
                let problem = format!("no row has a label in column \"{}\"; name another column", self.label_name());
                return Err(DataError::source(self.path.display(), problem));
            }
            (Some(number), Some(word)) if mixed == OnBad::Fail => return Err(self.mixed(number, word)),
            (_, _) => survey.words > survey.numbers,
        };
        if !are_words {
            let most = survey.by_number.classes();
            if let Some((row, value)) = survey.no_class.filter(|_| mixed == OnBad::Fail || most == 0) {
                let (column, line) = (self.label_name().to_string(), self.line_number(row)?);
                let problem = CsvProblem::NotAClass { is_negative: value.starts_with('-'), column, line, value };
                return Err(DataError::Csv { path: self.path.clone(), problem });
            }
            (self.words, self.counts) = (None, Some(survey.by_number));
            return Ok(most);
        }
        self.counts = Some(ClassCounts::of(survey.distinct.values().copied(), pool));
        let names = survey.distinct.into_keys().collect();
        let words = no_room_is_final(what, pool, ClassNames::new(names, pool).map_err(DataError::from))?;
        Ok(self.words.insert(words).names.len())
    }

    /// Reads labels as the classes of another table, by their words in its order; without any, as numbers. A word that is
    /// none of them is [`DataError::Bad`] when its row is read.
    ///
    /// # Errors
    /// [`DataError::PoolTooSmall`] where the words have no room.
    pub fn set_classes(&mut self, classes: &[String], pool: &BytePool) -> Result<()> {
        let what = || format!("the classes in {}", self.path.display());
        self.words = match classes {
            [] => None,
            classes => {
                Some(no_room_is_final(what(), pool, ClassNames::new(classes.to_vec(), pool).map_err(DataError::from))?)
            }
        };
        Ok(())
    }

    /// Counts labels that are numbers of classes, by one pass; what is none of them is passed over.
    ///
    /// # Errors
    /// [`DataError::Io`] where the file cannot be read.
    pub fn count_numbers(&mut self, pool: &BytePool) -> Result<()> {
        let mut counts = ClassCounts::new(pool);
        let counted = self.each_label(pool, |_, cell| {
            number(cell, true).into_iter().for_each(|class| counts.add(class as usize, 1));
            Ok(())
        });
        no_room_is_final(format!("a row of {}", self.path.display()), pool, counted)?;
        self.counts = Some(counts);
        Ok(())
    }

    /// A label that is none of so many classes is told now, by one pass, rather than when its row is read.
    pub(super) fn check_labels(&self, classes: usize, pool: &BytePool) -> Result<()> {
        let checked = self.each_label(pool, |row, cell| {
            let problem = match self.class(cell) {
                Ok(class) if (class as usize) < classes => return Ok(()),
                Ok(class) => {
                    let field = format!("column \"{}\"", self.label_name());
                    SampleProblem::UnknownClass { field, label: class as i64, classes }
                }
                Err(problem) => SampleProblem::Other(self.in_column(&problem)),
            };
            Err(self.bad(row, problem))
        });
        no_room_is_final(format!("a row of {}", self.path.display()), pool, checked)
    }

    /// The words that are classes, in the order of their numbers; none where classes are numbers.
    pub fn classes(&self) -> &[String] {
        self.words.as_ref().map_or(&[], |words| &words.names)
    }

    /// How many rows are of each class, as [`Csv::find_classes`] found.
    pub fn class_counts(&self) -> Option<&ClassCounts> {
        self.counts.as_ref()
    }

    /// The number of a class, or what its cell is instead.
    pub(super) fn class(&self, cell: &[u8]) -> Result<f32, String> {
        let Some(words) = &self.words else { return number(cell, true) };
        let word = word(cell)?;
        words.number(&word).map(|n| n as f32).ok_or_else(|| {
            let known = words.names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if words.names.len() > LISTED { ", …" } else { "" };
            format!("is \"{word}\", which is no class of the training set; there are {known}{more}")
        })
    }

    fn label_name(&self) -> &str {
        self.label_column().unwrap_or_default()
    }

    fn in_column(&self, problem: &str) -> String {
        format!("column \"{}\" {problem}", self.label_name())
    }

    fn survey_labels(&self, mixed: OnBad, pool: &BytePool) -> Result<LabelSurvey> {
        let mut survey = LabelSurvey::new(pool)?;
        let rows = self.starts.len() - 1 - self.layout.header as usize;
        self.each_label(pool, |row, cell| {
            if number(cell, false).is_ok() {
                survey.numbers += 1;
                match number(cell, true) {
                    Ok(class) => survey.by_number.add(class as usize, 1),
                    Err(_) => {
                        survey.no_classes += usize::from(number(cell, false) != Ok(-1.0));
                        survey.no_class.get_or_insert_with(|| (row, excerpt(cell)));
                    }
                }
                survey.number.get_or_insert_with(|| (row, excerpt(cell)));
                return Ok(());
            }
            match word(cell) {
                Ok(word) => {
                    survey.add(row, word)?;
                    let count = survey.distinct.len();
                    if count > FEW && count > rows / 2 { Err(self.no_classes(count, rows, cell)) } else { Ok(()) }
                }
                // Told when it is read.
                Err(_) if cell.trim_ascii().len() <= LONGEST || mixed == OnBad::Skip => Ok(()),
                Err(problem) => Err(self.bad(row, SampleProblem::Other(self.in_column(&problem)))),
            }
        })?;
        Ok(survey)
    }

    /// Rows without a cell for the label are passed over.
    fn each_label(&self, pool: &BytePool, f: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        self.labels.first().map_or(Ok(()), |label| self.each_cell(*label, pool, f))
    }

    /// The cells of a column, with their rows; rows without one are passed over.
    pub(super) fn each_cell(
        &self,
        column: usize,
        pool: &BytePool,
        mut f: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let first = self.layout.header as usize;
        let file = open_file(&self.path)?;
        let _buffer = pool.reserve(BUFFER as u64)?;
        let mut reader = BufReader::with_capacity(BUFFER, file);
        reader.seek_relative(self.starts[first] as i64).map_err(|e| io(&self.path, e))?;
        let lengths = self.starts[first..].windows(2).map(|row| row[1] - row[0]);
        let mut room = claimed_buffer(lengths.clone().max().unwrap_or(0), pool)?;
        for (row, length) in lengths.enumerate() {
            let bytes = &mut room.bytes_mut()[..length as usize];
            reader.read_exact(bytes).map_err(|e| io(&self.path, e))?;
            if let Some(cell) = self.cells(trimmed(bytes)).nth(column) {
                f(first + row, cell)?;
            }
        }
        Ok(())
    }

    fn mixed(&self, (row, number): &(usize, String), (other, word): &(usize, String)) -> DataError {
        let (line, other) = match (self.line_number(*row), self.line_number(*other)) {
            (Ok(line), Ok(other)) => (line, other),
            (Err(e), _) | (_, Err(e)) => return e,
        };
        let problem = format!(
            "the labels in column \"{}\" are numbers, such as \"{number}\" in line {line}, and words, such as \"{word}\" \
             in line {other}; make them all words, or all numbers 0, 1, …",
            self.label_name()
        );
        DataError::source(self.path.display(), problem)
    }

    fn no_classes(&self, count: usize, rows: usize, cell: &[u8]) -> DataError {
        let (column, example) = (self.label_name().to_string(), excerpt(cell));
        let problem = CsvProblem::NotClasses { column, words: count, rows, example };
        DataError::Csv { path: self.path.clone(), problem }
    }
}

/// What one pass saw.
struct LabelSurvey {
    numbers: usize,
    by_number: ClassCounts,
    /// Numbers that are none of classes, but for −1.
    no_classes: usize,
    words: usize,
    /// With their rows.
    distinct: BTreeMap<String, u64>,
    /// The first of each, with its row.
    number: Option<(usize, String)>,
    word: Option<(usize, String)>,
    /// The first number that cannot be one of a class.
    no_class: Option<(usize, String)>,
    lease: Lease,
}

impl LabelSurvey {
    fn new(pool: &BytePool) -> Result<LabelSurvey, NoRoom> {
        let (lease, distinct, by_number) = (pool.reserve(0)?, BTreeMap::new(), ClassCounts::new(pool));
        let (number, word, no_class) = (None, None, None);
        Ok(LabelSurvey { numbers: 0, by_number, no_classes: 0, words: 0, distinct, number, word, no_class, lease })
    }

    /// Whether these are numbers to be predicted, rather than classes with a mistake here and there.
    fn are_values(&self) -> bool {
        let are_beyond = self.by_number.classes() > self.numbers.max(FEW);
        let are_odd = self.no_classes > 1 && self.no_classes * OF_ODD_NUMBERS > self.numbers;
        self.words == 0 && (are_odd || are_beyond)
    }

    fn add(&mut self, row: usize, word: String) -> Result<(), NoRoom> {
        self.words += 1;
        self.word.get_or_insert_with(|| (row, word.clone()));
        if let Some(rows) = self.distinct.get_mut(&word) {
            *rows += 1;
            return Ok(());
        }
        // Nodes of the tree may be half empty.
        self.lease.grow((word.len() + 4 * size_of::<String>() + 2 * size_of::<u64>()) as u64)?;
        self.distinct.insert(word, 1);
        Ok(())
    }
}

/// Words that are classes.
#[derive(Debug)]
pub(super) struct ClassNames {
    /// In the order of their numbers.
    names: Vec<String>,
    /// The numbers, in the order of their words.
    sorted: Vec<u32>,
    _lease: Lease,
}

impl ClassNames {
    fn new(names: Vec<String>, pool: &BytePool) -> Result<ClassNames, NoRoom> {
        let each = 2 * size_of::<String>() + size_of::<u32>();
        let lease = pool.reserve(names.iter().map(|name| (name.len() + each) as u64).sum())?;
        let mut sorted: Vec<u32> = (0..names.len() as u32).collect();
        sorted.sort_unstable_by_key(|n| &names[*n as usize]);
        Ok(ClassNames { names, sorted, _lease: lease })
    }

    fn number(&self, word: &str) -> Option<u32> {
        let at = self.sorted.binary_search_by(|n| self.names[*n as usize].as_str().cmp(word));
        at.ok().map(|at| self.sorted[at])
    }
}

/// A cell as the name of a class, or what it is instead.
fn word(cell: &[u8]) -> Result<String, String> {
    let cell = cell.trim_ascii();
    if cell.len() > LONGEST {
        return Err(format!("is a text of {} bytes, which is no class; one has at most {LONGEST}", cell.len()));
    }
    let cell = std::str::from_utf8(cell)
        .map_err(|_| format!("is \"{}\", which is not UTF-8; save the file as UTF-8", String::from_utf8_lossy(cell)))?;
    match unquoted(cell).trim() {
        "" => Err(EMPTY.into()),
        word => Ok(word.to_string()),
    }
}
