//! Limits of extents and of geometry. Below them no rule, size or stride can overflow, so the rules may use plain
//! arithmetic; above them a graph is refused, whether it comes from a model or from text.

const _: () = assert!(usize::BITS >= 64, "memfit needs a 64-bit machine");

use crate::dtype::{Shape, TensorType};
use crate::error::Rule;
use crate::rule;

/// Largest extent of one axis.
pub const MAX_EXTENT: usize = 1 << 40;
/// Largest stride, dilation, padding of an image, upsampling factor and number of groups: times an extent it still
/// fits.
pub const MAX_STEP: usize = 1 << 20;
/// Most axes of a tensor: kernels keep what they know of each axis in fixed arrays.
pub const MAX_RANK: usize = 16;
/// Largest number of elements: four bytes each, a tensor's size is an `i64`.
pub const MAX_ELEMENTS: usize = (i64::MAX / 4) as usize;

/// An extent that is about to be added to another one or multiplied by a step.
pub fn extents(what: &str, given: &[usize]) -> Result<(), Rule> {
    at_most(what, given, MAX_EXTENT)
}

/// A number that is about to be multiplied by an extent.
pub fn steps(what: &str, given: &[usize]) -> Result<(), Rule> {
    at_most(what, given, MAX_STEP)
}

fn at_most(what: &str, given: &[usize], limit: usize) -> Result<(), Rule> {
    match given.iter().find(|&&n| n > limit) {
        Some(n) => rule!("the {what} {n} is larger than the limit of {limit}"),
        None => Ok(()),
    }
}

/// The product of the extents fits. An axis of 0 counts as 1, because the strides of an empty tensor are products too.
pub fn shape(shape: &Shape) -> Result<(), Rule> {
    if shape.rank() > MAX_RANK {
        rule!("the shape {shape} has {} axes, more than the limit of {MAX_RANK}", shape.rank());
    }
    extents("extent", shape)?;
    let mut elements: usize = 1;
    for &d in shape.iter() {
        elements = match elements.checked_mul(d.max(1)) {
            Some(n) if n <= MAX_ELEMENTS => n,
            _ => rule!("the shape {shape} has more than the limit of {MAX_ELEMENTS} elements"),
        };
    }
    Ok(())
}

/// Every output is within the limits.
pub fn types(types: &[TensorType]) -> Result<(), Rule> {
    types.iter().try_for_each(|t| shape(&t.shape))
}
