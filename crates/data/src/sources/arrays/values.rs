//! Arrays of numbers that are to be predicted, and of the weights of rows: what they look like, and what is wrong with one, is
//! told before anything is read, by one pass.

use memfit_ir::DType;

use super::view::{ClassLabels, View, number};
use super::{Array, Arrays};
use crate::error::{DataError, Result, SampleProblem};
use crate::memory::BytePool;

/// One row of so many that is no class is a mistake; more of them are numbers.
const OF_ODD_ROWS: usize = 20;

impl Arrays {
    /// Whether a field looks like numbers to be predicted and not like classes: floats, of which several rows, and more than one in twenty, are
    /// neither one class nor one-hot, and not all of which are shares of classes.
    ///
    /// # Errors
    /// [`DataError::Io`] where the file cannot be read.
    pub fn are_values(&self, field: &str, pool: &BytePool) -> Result<bool> {
        let Some(array) = self.array(field).filter(|array| array.element.dtype() == DType::F32) else {
            return Ok(false);
        };
        let labels = ClassLabels::of(&array.stored);
        let (mut odd, mut distributions) = (0, 0);
        array.each_row(pool, |_, bytes| {
            let Ok(bytes) = bytes else { return Ok(()) };
            let problem = labels.class(DType::F32, bytes);
            odd +=
                usize::from(matches!(problem, Err(SampleProblem::NotWhole { .. } | SampleProblem::NotOneHot { .. })));
            distributions += usize::from(labels == ClassLabels::OneHot && is_distribution(bytes));
            Ok(())
        })?;
        if distributions == array.rows {
            return Ok(false);
        }
        Ok(odd > 1 && odd * OF_ODD_ROWS > array.rows)
    }

    /// Reads a field as numbers, f32 `[elements]`, from now on; says how many there are in a row. None where there is no such
    /// field.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let mut source = Arrays::npz("tests/fixtures/stored.npz", &[("y", "y")], &pool)?;
    /// let count = source.read_as_values("y").expect("there is such a field");
    /// assert_eq!(source.read_row(0, &pool)?.get("y")?.f32s().len(), count);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_as_values(&mut self, field: &str) -> Option<usize> {
        let (_, array) = self.fields.iter_mut().find(|(name, _)| name == field)?;
        array.set_view(View::Values);
        Some(array.stored.elements())
    }

    /// Checks that all numbers of a field are finite, and where it has to be, 0 or more: `what` they are, in a sentence.
    ///
    /// # Errors
    /// [`DataError::Bad`] for the first row that is not so; [`DataError::Io`] where the file cannot be read.
    pub fn check_values(&self, field: &str, not_negative: Option<&str>, pool: &BytePool) -> Result<()> {
        let Some(array) = self.array(field) else { return Ok(()) };
        let dtype = array.element.dtype();
        let problem = |bytes: &[u8]| {
            let mut numbers = bytes.chunks_exact(dtype.bits() / 8).map(|bytes| number(dtype, bytes));
            let is_bad = |value: &f64| !value.is_finite() || (not_negative.is_some() && *value < 0.0);
            numbers.find(is_bad).map(|value| match not_negative.filter(|_| value < 0.0) {
                Some(what) => format!("is {value}, and {what} are 0 or more"),
                None => "is not a finite number".to_string(),
            })
        };
        array.each_row(pool, |row, bytes| {
            let bad = bytes.map(|bytes| problem(bytes).map(|is| SampleProblem::Other(format!("the number {is}"))));
            match bad {
                Ok(None) => Ok(()),
                Ok(Some(problem)) | Err(problem) => Err(DataError::bad_with(array.row_location(row), problem)),
            }
        })
    }

    fn array(&self, field: &str) -> Option<&Array> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, array)| array)
    }
}

/// Whether the numbers of a row are shares of a whole: of classes, and no numbers to be predicted.
fn is_distribution(row: &[u8]) -> bool {
    let shares = || row.chunks_exact(size_of::<f32>()).map(|bytes| number(DType::F32, bytes));
    shares().all(|share| share >= 0.0) && (shares().sum::<f64>() - 1.0).abs() < 1e-3
}
