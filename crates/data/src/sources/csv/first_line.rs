//! What the first line of a table is: names of columns, or a row like those below it. Told by how its cells look beside theirs.

use super::{Csv, excerpt, text, trimmed_text};
use crate::error::Result;
use crate::memory::BytePool;
use crate::sources::no_room_is_final;

/// Lines below the first that are looked at.
const LINES: usize = 20;
/// What stands where a value is missing.
const MISSING: [&str; 8] = ["", "na", "n/a", "nan", "null", "none", "?", "-"];

/// What the first line of a table looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// It has a name that was asked for.
    Named,
    /// It has words where the lines below have numbers.
    WordsAboveNumbers,
    /// It has no number, and nothing below tells more.
    Words,
    /// It has numbers and nothing else.
    Numbers,
    /// It has numbers, and words only where the lines below have words.
    LikeOthers,
}

impl FirstLine {
    /// Whether it names the columns.
    pub const fn is_header(self) -> bool {
        matches!(self, FirstLine::Named | FirstLine::WordsAboveNumbers | FirstLine::Words)
    }
}

/// What the first lines of a table look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstLines {
    /// The first.
    pub first: FirstLine,
    /// The one column that has words, below the header if there is one; none where there are several, or none.
    pub word_column: Option<usize>,
}

/// What a cell looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Missing,
    Number,
    Word,
}

impl Csv {
    /// Looks at the first lines of a table, whatever its layout says of a header. A first line with one of `names` in it is
    /// one of names.
    ///
    /// # Errors
    /// [`DataError::Io`](crate::DataError::Io) where the file cannot be read.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let folder = TempDir::new("first-lines");
    /// let path = folder.write("t.csv", "5.1,3.5,setosa\n7.0,3.2,versicolor\n");
    /// let csv = Csv::open(path, CsvLayout { header: false, ..CsvLayout::default() }, &pool)?;
    /// let seen = csv.first_lines(&["label"], &pool)?;
    /// assert_eq!((seen.first.is_header(), seen.word_column), (false, Some(2)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_lines(&self, names: &[&str], pool: &BytePool) -> Result<FirstLines> {
        let what = || format!("the first rows of {}", self.path.display());
        let count = self.columns.len();
        let _looks = no_room_is_final(what(), pool, pool.reserve(2 * count as u64).map_err(Into::into))?;
        let (mut first, mut below) = (vec![Look::Missing; count], vec![Look::Missing; count]);
        let mut is_named = false;
        for row in 0..(self.starts.len() - 1).min(LINES + 1) {
            let looked = self.with_row(row, pool, |bytes| {
                for (column, cell) in self.cells(bytes).enumerate().take(count) {
                    let of_row = if row == 0 { &mut first } else { &mut below };
                    let look = look(cell);
                    is_named |= row == 0 && look == Look::Word && names.contains(&text(cell).as_str());
                    of_row[column] = of_row[column].or(look);
                }
            });
            no_room_is_final(what(), pool, looked)?;
        }
        let first_line = if is_named { FirstLine::Named } else { compare(&first, &below) };
        let is_word =
            |column: &usize| below[*column] == Look::Word || (!first_line.is_header() && first[*column] == Look::Word);
        let mut words = (0..count).filter(is_word);
        let word_column = words.next().filter(|_| words.next().is_none());
        Ok(FirstLines { first: first_line, word_column })
    }
}

impl Csv {
    /// A feature that has a word in each of the first rows that has it at all, and one of the words. No such row can be read,
    /// and no other is likely to be.
    ///
    /// # Errors
    /// [`DataError::Io`](crate::DataError::Io) where the file cannot be read.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let folder = TempDir::new("word-feature");
    /// let path = folder.write("t.csv", "age,city,y\n31,Rome,0\n42,Oslo,1\n");
    /// let layout = CsvLayout { label: Some(Label::Class(Column::Name("y".into()))), ..CsvLayout::default() };
    /// let found = Csv::open(path, layout, &pool)?.word_feature(&pool)?;
    /// assert_eq!(found, Some(("city".to_string(), "Rome".to_string())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn word_feature(&self, pool: &BytePool) -> Result<Option<(String, String)>> {
        let what = || format!("the first rows of {}", self.path.display());
        let count = self.columns.len();
        let _looks = no_room_is_final(what(), pool, pool.reserve(count as u64).map_err(Into::into))?;
        let (mut looks, mut found) = (vec![Look::Missing; count], None);
        let head = self.layout.header as usize;
        let rows = head..(self.starts.len() - 1).min(head + LINES);
        for row in rows.clone() {
            let looked = self.with_row(row, pool, |bytes| {
                for (seen, cell) in looks.iter_mut().zip(self.cells(bytes)) {
                    let look = look(cell);
                    // Here a number says more.
                    *seen = if *seen == Look::Missing || look == Look::Number { look } else { *seen };
                }
            });
            no_room_is_final(what(), pool, looked)?;
        }
        let column = (0..count).find(|column| looks[*column] == Look::Word && self.is_feature(*column));
        let Some(column) = column else { return Ok(None) };
        for row in rows {
            let cell = self.with_row(row, pool, |bytes| self.cells(bytes).nth(column).map(excerpt))?;
            found = found.or(cell.filter(|cell| look(cell.as_bytes()) == Look::Word));
        }
        Ok(found.map(|word| (self.columns[column].clone(), word)))
    }
}

impl Look {
    /// The one that says more: one word among numbers makes no column of numbers.
    fn or(self, other: Look) -> Look {
        if self == Look::Missing || other == Look::Word { other } else { self }
    }
}

fn look(cell: &[u8]) -> Look {
    let cell = trimmed_text(cell);
    match cell.parse::<f32>() {
        _ if MISSING.iter().any(|missing| cell.eq_ignore_ascii_case(missing)) => Look::Missing,
        Ok(_) => Look::Number,
        Err(_) => Look::Word,
    }
}

fn compare(first: &[Look], below: &[Look]) -> FirstLine {
    let has = |look: Look| first.contains(&look);
    let above_number = || first.iter().zip(below).any(|pair| pair == (&Look::Word, &Look::Number));
    match (has(Look::Number), has(Look::Word)) {
        (true, false) => FirstLine::Numbers,
        (_, true) if above_number() => FirstLine::WordsAboveNumbers,
        (true, true) => FirstLine::LikeOthers,
        (false, _) => FirstLine::Words,
    }
}
