//! Whether two tensors agree. Errors are measured against the largest magnitude of what was expected, so that a sum
//! with cancellation is not held to the precision of its small result.

use crate::error::{Error, Result};
use crate::tensor::{Tensor, indices};

/// Shapes are equal and no element is off by more than `tolerance` × the largest expected magnitude. Element types may
/// differ: golden vectors keep booleans as integers.
pub fn check_close(what: &str, expected: &Tensor, given: &Tensor, tolerance: f64) -> Result<()> {
    if expected.shape() != given.shape() {
        return Err(Error::WrongShape {
            what: what.into(),
            expected: expected.ty.shape.to_string(),
            given: given.ty.shape.to_string(),
        });
    }
    let largest = expected.data.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    for (i, index) in indices(expected.shape()).enumerate() {
        let (e, g) = (expected.data[i], given.data[i]);
        let error = (g - e).abs() / scale;
        // Equal infinities differ by NaN; a NaN must never pass as close.
        if e != g && (error.is_nan() || error > tolerance) {
            return Err(Error::NotClose { what: what.into(), index, expected: e, given: g, error, tolerance });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[f64], given: &[f64]) -> Option<Vec<usize>> {
        let tensor = |data: &[f64]| Tensor::f32([data.len()], data.to_vec()).unwrap();
        match check_close("x", &tensor(expected), &tensor(given), 1e-3) {
            Ok(()) => None,
            Err(Error::NotClose { index, .. }) => Some(index),
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    fn the_error_is_relative_to_the_largest_magnitude() {
        assert_eq!(check(&[100.0, 0.0], &[100.0, 0.09]), None);
        assert_eq!(check(&[100.0, 0.0], &[100.0, 0.11]), Some(vec![1]));
        assert_eq!(check(&[0.0], &[0.002]), Some(vec![0]));
    }

    #[test]
    fn nan_is_never_close_and_equal_infinities_are() {
        assert_eq!(check(&[1.0], &[f64::NAN]), Some(vec![0]));
        assert_eq!(check(&[f64::NAN], &[1.0]), Some(vec![0]));
        assert_eq!(check(&[f64::INFINITY], &[f64::INFINITY]), None);
        assert_eq!(check(&[f64::INFINITY], &[1.0]), Some(vec![0]));
    }
}
