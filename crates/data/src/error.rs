//! What can go wrong with data. An error carries facts (a limit, a size, a location) and says a cure in the terms of
//! this crate; a front end that has other terms words the cure from the facts.

use std::path::PathBuf;

use crate::memory::NoRoom;
use crate::sources::{Colour, Column, colour_name};

/// The result of this crate's functions.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// What can go wrong in a pipeline or in one of its sources.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The [`BytePool`](crate::BytePool) has no room at the moment. Inside of a pipeline the loader tries again when
    /// bytes have come back, so that a map function or a source passes this on with `?`.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The [`BytePool`](crate::BytePool) is too small for good.
    #[error("the pool of {limit} bytes is too small: {what} needs at least {needed}; raise the pool's limit")]
    PoolTooSmall {
        /// The pool's limit in bytes.
        limit: u64,
        /// What was missed when `what` had the pool for itself, in bytes; it may be more.
        needed: u64,
        /// Who needs it: an element of an epoch, the index of a file.
        what: String,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// One sample is not what it should be. [`OnBad::Skip`](crate::OnBad::Skip) leaves such samples out.
    #[error("{0}; or leave bad samples out: OnBad::Skip")]
    Bad(BadSample),
    /// Labels of an array are no classes, all of which were looked at.
    #[error("{first}{}", others_too(*bad, *rows))]
    BadLabels {
        /// The first of them.
        first: BadSample,
        /// How many they are.
        bad: u64,
        /// Of so many.
        rows: u64,
    },
    /// The source as a whole cannot be used: an empty folder, a file of another format.
    #[error("{location}: {problem}")]
    Source {
        /// The file or folder.
        location: String,
        /// What is wrong with it, and what would help.
        problem: String,
    },
    /// A CSV file cannot be read with its [`CsvLayout`](crate::sources::CsvLayout).
    #[error("{}: {problem}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What does not agree.
        problem: CsvProblem,
    },
    /// Bad samples are left out, and an epoch has no others.
    #[error("epoch {epoch}: nothing in it is good; the first that is bad: {first}")]
    NothingGood {
        /// The epoch, counted from 1.
        epoch: u64,
        /// The first sample that was left out.
        first: BadSample,
    },
    /// Bad samples are left out, and too many in a row are bad for the dataset to be what it should be.
    #[error("{last}; and so are the {before} elements before it: none is good")]
    TooManyBad {
        /// The last sample that was left out.
        last: BadSample,
        /// Bad elements before it.
        before: u64,
    },
    /// Bad samples are left out, and of the rows of a batch that only one another can replace none is good. See
    /// [`Dataset::batch_rows`](crate::Dataset::batch_rows).
    #[error("{first}; and so are all {rows} rows of its lane, none of which another can replace: mend the data")]
    BadLane {
        /// The first of them.
        first: BadSample,
        /// How many they are.
        rows: usize,
    },
    /// Verbs that do not go together, or a wrong number given to one.
    #[error("{0}")]
    Pipeline(String),
}

/// A sample that cannot be used: where it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{location}: {problem}")]
pub struct BadSample {
    /// Where the sample comes from: a file, a line of it.
    pub location: String,
    /// What is wrong with it.
    pub problem: SampleProblem,
}

/// What is wrong with a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SampleProblem {
    /// Its file has more bytes than the whole pool.
    #[error("it has {bytes} bytes, more than the whole pool of {limit}; raise the pool's limit")]
    FileTooLarge {
        /// Bytes of the file.
        bytes: u64,
        /// The pool's limit in bytes.
        limit: u64,
    },
    /// The image cannot be decoded within the whole pool.
    #[error(
        "its {}×{} pixels take {needed} bytes and more to decode, and the whole pool has {limit}; raise the pool's limit",
        size[0],
        size[1]
    )]
    ImageTooLarge {
        /// Height and width in pixels.
        size: [usize; 2],
        /// What was missed, in bytes; it may be more.
        needed: u64,
        /// The pool's limit in bytes.
        limit: u64,
    },
    /// Its label is not one of the classes.
    #[error("{field} is {label}, outside of 0..{classes}; give the model more classes, or mend the data")]
    UnknownClass {
        /// What holds the label, as the source calls it: "the label", "column \"species\"".
        field: String,
        /// The label.
        label: i64,
        /// How many classes there are.
        classes: usize,
    },
    /// Its label is less than 0.
    #[error("{field} is {label}, and classes are 0, 1, …; number them so, or leave out what has none")]
    NegativeClass {
        /// What holds the label.
        field: String,
        /// The label.
        label: i64,
    },
    /// Its label is a number that is not whole, and so no class.
    #[error(
        "{field} is {value}, a number and no class; make classes 0, 1, … of the numbers, or use a loss for numbers"
    )]
    NotWhole {
        /// What holds the label.
        field: String,
        /// The number, as text.
        value: String,
    },
    /// Its label has several numbers, and they are not one 1 and otherwise 0.
    #[error(
        "{field} has {numbers} numbers, which are not one-hot (one of them 1, the others 0); give one class for each row: \
         0, 1, …"
    )]
    NotOneHot {
        /// What holds the label.
        field: String,
        /// How many.
        numbers: usize,
    },
    /// A mask has a value besides the two that background and foreground have.
    #[error("it has the value {value}, and background and foreground are {background} and {foreground}; mend the mask")]
    MaskLevel {
        /// The value.
        value: u8,
        /// The value of the background.
        background: u8,
        /// The value of the foreground.
        foreground: u8,
    },
    /// A mask has a class number that is none of the classes.
    #[error("class {class} is not one of 0 to {}; give more classes", *classes as i64 - 1)]
    MaskClass {
        /// The number.
        class: u8,
        /// How many classes there are.
        classes: usize,
    },
    /// A mask has a colour that is none of the classes.
    #[error("the colour {} is of no class; give it one, or mend the mask", colour_name(*colour))]
    MaskColour {
        /// The colour.
        colour: Colour,
    },
    /// A mask has no palette, and its set has one.
    #[error("it has no palette, and the other masks have one; mend the mask")]
    NoPalette,
    /// A mask has another palette than its set.
    #[error(
        "index {index} of its palette is {}, and {} in the other masks; save them with one palette",
        colour_name(*colour),
        colour_name(*known)
    )]
    OtherPalette {
        /// The index that differs.
        index: u8,
        /// Its colour in this mask.
        colour: Colour,
        /// Its colour in the others.
        known: Colour,
    },
    /// Something else: a damaged file, a cell that is no number.
    #[error("{0}")]
    Other(String),
}

/// What in a CSV file does not agree with its [`CsvLayout`](crate::sources::CsvLayout).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CsvProblem {
    /// Two columns have the same name.
    #[error("two columns are called \"{name}\"; rename one{}", or_no_header(*numbers_as_names, ""))]
    DuplicateColumn {
        /// The name.
        name: String,
        /// Whether names look like numbers, as if the first line were no header.
        numbers_as_names: bool,
    },
    /// There is no such column for the label.
    #[error(
        "there is no column {column} for the label; there are {known}; name the one that is the label in \
         CsvLayout::label{}{}",
        or_no_header(*numbers_as_names, " if the first line has no names"),
        or_other_separator(*other_separator)
    )]
    NoLabelColumn {
        /// The column that was asked for.
        column: Column,
        /// Some of the columns that there are.
        known: String,
        /// Whether names look like numbers, as if the first line were no header.
        numbers_as_names: bool,
        /// Whether names have other usual separators in them.
        other_separator: bool,
    },
    /// There is no such column for the weights.
    #[error(
        "there is no column {column} for the weights of rows; there are {known}; name one of them in CsvLayout::weight"
    )]
    NoWeightColumn {
        /// The column that was asked for.
        column: Column,
        /// Some of the columns that there are.
        known: String,
    },
    /// The label's column has too many different words for them to be classes.
    #[error(
        "column \"{column}\" has {words} different words and more in {rows} rows, such as \"{example}\", which are no \
         classes; name the column that has them in CsvLayout::label"
    )]
    NotClasses {
        /// The name of the label's column.
        column: String,
        /// Different words that were seen.
        words: usize,
        /// Rows of the file.
        rows: usize,
        /// One of the words.
        example: String,
    },
    /// A feature has words.
    #[error(
        "column \"{column}\" has words, such as \"{example}\", and features are numbers; make numbers of them, or leave it out"
    )]
    Words {
        /// The name of the column.
        column: String,
        /// One of the words.
        example: String,
    },
    /// A label is a number, and not one of a class.
    #[error("line {line}: column \"{column}\" is \"{value}\", {}", no_class(*is_negative))]
    NotAClass {
        /// The name of the label's column.
        column: String,
        /// The line of the first such label.
        line: usize,
        /// What its cell has.
        value: String,
        /// Whether it is less than 0; otherwise it is not whole, or too large.
        is_negative: bool,
    },
}

fn others_too(bad: u64, rows: u64) -> String {
    match bad {
        0 | 1 => String::new(),
        bad => format!("; of {rows} rows, {bad} have no class"),
    }
}

fn no_class(is_negative: bool) -> &'static str {
    if is_negative {
        "which is no class: those are 0, 1, …; number them so"
    } else {
        "which is a number and no class; name the column that has the classes in CsvLayout::label, or read this one as \
         Label::Value"
    }
}

fn or_no_header(numbers_as_names: bool, when: &str) -> String {
    if numbers_as_names { format!(", or set CsvLayout::header to false{when}") } else { String::new() }
}

fn or_other_separator(other_separator: bool) -> &'static str {
    if other_separator { ", or set CsvLayout::separator" } else { "" }
}

/// "1 row", "2 rows".
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl DataError {
    /// That a sample is bad, with the problem as text: what a map function or a source of one's own says of a sample
    /// that [`OnBad::Skip`](crate::OnBad::Skip) may leave out.
    pub fn bad(location: impl ToString, problem: impl ToString) -> DataError {
        DataError::Bad(BadSample::new(location, problem))
    }

    /// That a sample is bad, and why.
    pub(crate) fn bad_with(location: String, problem: SampleProblem) -> DataError {
        DataError::Bad(BadSample { location, problem })
    }

    /// That a source as a whole cannot be used.
    pub fn source(location: impl ToString, problem: impl ToString) -> DataError {
        DataError::Source { location: location.to_string(), problem: problem.to_string() }
    }

    /// The same once more, for what a generator gave as an error and may be asked again.
    pub(crate) fn duplicate(&self) -> DataError {
        match self {
            DataError::NoRoom(e) => DataError::NoRoom(*e),
            DataError::PoolTooSmall { limit, needed, what } => {
                DataError::PoolTooSmall { limit: *limit, needed: *needed, what: what.clone() }
            }
            DataError::Io { path, source } => {
                DataError::Io { path: path.clone(), source: std::io::Error::new(source.kind(), source.to_string()) }
            }
            DataError::Bad(bad) => DataError::Bad(bad.clone()),
            DataError::BadLabels { first, bad, rows } => {
                DataError::BadLabels { first: first.clone(), bad: *bad, rows: *rows }
            }
            DataError::Source { location, problem } => DataError::source(location, problem),
            DataError::Csv { path, problem } => DataError::Csv { path: path.clone(), problem: problem.clone() },
            DataError::NothingGood { epoch, first } => DataError::NothingGood { epoch: *epoch, first: first.clone() },
            DataError::TooManyBad { last, before } => DataError::TooManyBad { last: last.clone(), before: *before },
            DataError::BadLane { first, rows } => DataError::BadLane { first: first.clone(), rows: *rows },
            DataError::Pipeline(problem) => DataError::Pipeline(problem.clone()),
        }
    }
}

impl BadSample {
    /// A bad sample, with the problem as text.
    pub fn new(location: impl ToString, problem: impl ToString) -> BadSample {
        BadSample { location: location.to_string(), problem: SampleProblem::Other(problem.to_string()) }
    }
}
