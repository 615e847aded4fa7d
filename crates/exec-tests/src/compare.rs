//! Whether two tensors agree. Errors are measured against the largest magnitude of what was expected, so that a sum
//! with cancellation is not held to the precision of its small result.

use crate::error::{Error, Result};
use crate::tensor::{Tensor, indices};

/// Shapes are equal and no element is off by more than `tolerance` × the largest expected magnitude; gives the largest
/// error, in the same unit. Element types may differ: golden vectors keep booleans as integers.
pub fn check_close(what: &str, expected: &Tensor, given: &Tensor, tolerance: f64) -> Result<f64> {
    check_close_beyond(what, expected, given, tolerance, |_| 0.0)
}

/// The same, where element i may be off by `slack(i)` without counting.
pub fn check_close_beyond(
    what: &str,
    expected: &Tensor,
    given: &Tensor,
    tolerance: f64,
    slack: impl Fn(usize) -> f64,
) -> Result<f64> {
    check_shapes(what, expected, given)?;
    let largest = expected.data.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let mut worst = 0.0f64;
    for (i, index) in indices(expected.shape()).enumerate() {
        let (e, g) = (expected.data[i], given.data[i]);
        // Equal infinities differ by NaN; a NaN must never pass as close.
        let error = if e == g { 0.0 } else { ((g - e).abs() - slack(i)) / scale };
        if error.is_nan() || error > tolerance {
            return Err(Error::NotClose { what: what.into(), index, expected: e, given: g, error, tolerance });
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

/// The same elements to the last bit: the sign of a zero counts, and a NaN is equal to itself.
pub fn check_same(what: &str, expected: &Tensor, given: &Tensor) -> Result<()> {
    check_shapes(what, expected, given)?;
    for (i, index) in indices(expected.shape()).enumerate() {
        let (e, g) = (expected.data[i], given.data[i]);
        if e.to_bits() != g.to_bits() {
            return Err(Error::NotSame { what: what.into(), index, expected: e, given: g });
        }
    }
    Ok(())
}

fn check_shapes(what: &str, expected: &Tensor, given: &Tensor) -> Result<()> {
    if expected.shape() != given.shape() {
        return Err(Error::WrongShape {
            what: what.into(),
            expected: expected.ty.shape.to_string(),
            given: given.ty.shape.to_string(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[f64], given: &[f64]) -> Option<Vec<usize>> {
        let tensor = |data: &[f64]| Tensor::f32([data.len()], data.to_vec()).unwrap();
        match check_close("x", &tensor(expected), &tensor(given), 1e-3) {
            Ok(error) => {
                assert!(error <= 1e-3);
                None
            }
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

    #[test]
    fn the_same_bits_are_more_than_equal_numbers() {
        let same = |a: f64, b: f64| {
            let tensor = |x: f64| Tensor::f32([1], vec![x]).unwrap();
            check_same("x", &tensor(a), &tensor(b)).is_ok()
        };
        assert!(same(1.5, 1.5) && same(f64::NAN, f64::NAN));
        assert!(!same(0.0, -0.0) && !same(1.0, 1.0 + f64::EPSILON));
    }
}
