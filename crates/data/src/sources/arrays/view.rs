//! What a row of an array is read as, where that is not what is stored: pictures with their channels last, classes of whole
//! floats or of one-hot rows, numbers of any type as floats.

use memfit_ir::{DType, TensorType};

use crate::error::{DataError, Result, SampleProblem};
use crate::memory::BytePool;
use crate::sources::scalar;
use crate::tensor::Tensor;

/// What a row is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As it is stored.
    Stored,
    /// `[channels, height, width]` as `[height, width, channels]`.
    ChannelsLast,
    /// One class, i32 `[]`.
    Class(ClassLabels),
    /// Its numbers, f32 `[elements]`.
    Values,
}

/// How classes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassLabels {
    /// One integer a row.
    Integers,
    /// One float a row, which is whole.
    WholeFloats,
    /// As many numbers a row as there are classes, of which one is 1 and the others are 0.
    OneHot,
}

impl ClassLabels {
    /// Of rows of this type.
    pub(super) fn of(row: &TensorType) -> ClassLabels {
        match (row.elements(), row.dtype) {
            (1, DType::F32) => ClassLabels::WholeFloats,
            (1, _) => ClassLabels::Integers,
            (_, _) => ClassLabels::OneHot,
        }
    }

    /// The class of a row, whose numbers are of this type.
    pub(super) fn class(self, dtype: DType, row: &[u8]) -> Result<i32, SampleProblem> {
        match self {
            ClassLabels::Integers => natural(number(dtype, row)),
            ClassLabels::WholeFloats => match number(dtype, row) {
                value if value.fract() == 0.0 && value.abs() < 16_777_216.0 => natural(value),
                value => Err(SampleProblem::NotWhole { field: FIELD.into(), value: value.to_string() }),
            },
            ClassLabels::OneHot => one_hot(dtype, row),
        }
    }
}

/// What holds a label, in a sentence.
pub(super) const FIELD: &str = "the label";

/// Integers of 32 bits are exact in it.
pub(super) fn number(dtype: DType, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (DType::U8, [byte, ..]) => f64::from(*byte),
        (DType::F32, &[a, b, c, d, ..]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (_, &[a, b, c, d, ..]) => f64::from(i32::from_le_bytes([a, b, c, d])),
        (_, _) => f64::NAN,
    }
}

fn natural(value: f64) -> Result<i32, SampleProblem> {
    match value as i32 {
        negative @ ..0 => Err(SampleProblem::NegativeClass { field: FIELD.into(), label: negative.into() }),
        class => Ok(class),
    }
}

fn one_hot(dtype: DType, row: &[u8]) -> Result<i32, SampleProblem> {
    let size = dtype.bits() / 8;
    let mut ones = row.chunks_exact(size).enumerate().filter(|(_, bytes)| number(dtype, bytes) != 0.0);
    match (ones.next(), ones.next()) {
        (Some((class, bytes)), None) if number(dtype, bytes) == 1.0 => Ok(class as i32),
        (_, _) => Err(SampleProblem::NotOneHot { field: FIELD.into(), numbers: row.len() / size }),
    }
}

impl View {
    /// The type of a row that is stored as this one.
    pub(super) fn row(self, stored: &TensorType) -> TensorType {
        match (self, &stored.shape[..]) {
            (View::ChannelsLast, &[channels, height, width]) => {
                TensorType::new(stored.dtype, [height, width, channels])
            }
            (View::Class(ClassLabels::WholeFloats | ClassLabels::OneHot), _) => TensorType::i32([]),
            (View::Values, _) => TensorType::f32([stored.elements()]),
            (_, _) => stored.clone(),
        }
    }

    /// A row that is stored as this one.
    pub(super) fn read(self, stored: Tensor, location: impl Fn() -> String, pool: &BytePool) -> Result<Tensor> {
        match (self, &stored.ty().shape[..]) {
            (View::ChannelsLast, &[channels, height, width]) => {
                let mut turned = Tensor::zeros(self.row(stored.ty()), pool)?;
                let size = stored.ty().dtype.bits() / 8;
                turn(stored.bytes(), turned.bytes_mut(), [channels, height * width], size);
                Ok(turned)
            }
            (View::Class(labels @ (ClassLabels::WholeFloats | ClassLabels::OneHot)), _) => {
                let class = labels.class(stored.ty().dtype, stored.bytes());
                scalar(class.map_err(|problem| DataError::bad_with(location(), problem))?, pool)
            }
            (View::Values, _) => {
                let mut values = Tensor::zeros(self.row(stored.ty()), pool)?;
                let dtype = stored.ty().dtype;
                for (value, bytes) in values.f32s_mut().iter_mut().zip(stored.bytes().chunks_exact(dtype.bits() / 8)) {
                    *value = number(dtype, bytes) as f32;
                }
                Ok(values)
            }
            (_, _) => Ok(stored),
        }
    }
}

/// From planes to pixels: elements of `size` bytes.
fn turn(from: &[u8], to: &mut [u8], [channels, pixels]: [usize; 2], size: usize) {
    for (channel, plane) in from.chunks_exact((pixels * size).max(1)).enumerate() {
        let to = to.chunks_exact_mut((channels * size).max(1));
        for (pixel, value) in to.zip(plane.chunks_exact(size)) {
            pixel[channel * size..][..size].copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_become_pixels() {
        let mut pixels = [0; 12];
        turn(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &mut pixels, [3, 2], 2);
        assert_eq!(pixels, [1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
    }

    #[test]
    fn a_class_is_one_whole_number_or_one_of_ones_and_zeros() {
        let floats = |row: &[f32]| row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let class = |row: &[f32]| {
            let of = ClassLabels::of(&TensorType::f32([row.len()]));
            of.class(DType::F32, &floats(row)).map_err(|problem| problem.to_string())
        };
        assert_eq!((class(&[3.0]), class(&[0.0, 0.0, 1.0]), class(&[0.0])), (Ok(3), Ok(2), Ok(0)));
        for (row, problem) in [
            (&[2.5][..], "2.5"),
            (&[f32::NAN], "NaN"),
            (&[-1.0], "-1"),
            (&[0.0, 2.0], "one-hot"),
            (&[1.0, 1.0], "one-hot"),
            (&[0.0, 0.0], "one-hot"),
        ] {
            let told = class(row).expect_err(problem);
            assert!(told.contains(problem), "{told}");
        }
        assert_eq!(ClassLabels::of(&TensorType::i32([])).class(DType::I32, &7i32.to_le_bytes()), Ok(7));
    }
}
