//! Labels of a table that are numbers to be predicted, and the weights of its rows: what is wrong with one is told before
//! anything is read, by one pass over its column.

use super::{Csv, excerpt, number};
use crate::error::{Result, SampleProblem};
use crate::memory::BytePool;
use crate::sources::no_room_is_final;

impl Csv {
    /// Checks that every label is a number, and of counts that it is 0 or more.
    ///
    /// # Errors
    /// [`DataError::Bad`](crate::DataError::Bad) for the first that is not; [`DataError::Io`](crate::DataError::Io) where the
    /// file cannot be read.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let folder = TempDir::new("csv-values");
    /// let path = folder.write("t.csv", "x,price,tax\n1,9.5,0.5\n2,-3,x\n");
    /// let columns = ["price", "tax"].map(|name| Column::Name(name.into()));
    /// let layout = CsvLayout { label: Some(Label::Values(columns.to_vec())), ..CsvLayout::default() };
    /// let csv = Csv::open(path, layout, &pool)?;
    /// assert_eq!(csv.read_row(0, &pool)?.get("y")?.f32s(), [9.5, 0.5]);
    /// assert!(csv.check_values(false, &pool).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_values(&self, are_counts: bool, pool: &BytePool) -> Result<()> {
        self.labels.iter().try_for_each(|label| {
            self.check_cells(*label, pool, &|cell| {
                let value = number(cell, false)?;
                if are_counts && value < 0.0 {
                    return Err(format!("is \"{}\", and counts are 0 or more", excerpt(cell)));
                }
                Ok(value)
            })
        })
    }

    /// Checks that every weight is a number, 0 or more.
    ///
    /// # Errors
    /// As [`Csv::check_values`].
    pub fn check_weights(&self, pool: &BytePool) -> Result<()> {
        self.weight.map_or(Ok(()), |column| self.check_cells(column, pool, &weight))
    }

    fn check_cells(&self, column: usize, pool: &BytePool, read: &dyn Fn(&[u8]) -> Result<f32, String>) -> Result<()> {
        let checked = self.each_cell(column, pool, |row, cell| {
            let problem = |is: String| SampleProblem::Other(format!("column \"{}\" {is}", self.columns[column]));
            read(cell).map(drop).map_err(|is| self.bad(row, problem(is)))
        });
        no_room_is_final(format!("a row of {}", self.path.display()), pool, checked)
    }
}

/// A cell as the weight of its row, or what it is instead.
pub(super) fn weight(cell: &[u8]) -> Result<f32, String> {
    match number(cell, false)? {
        negative if negative < 0.0 => Err(format!("is \"{}\", and weights are 0 or more", excerpt(cell))),
        weight => Ok(weight),
    }
}
