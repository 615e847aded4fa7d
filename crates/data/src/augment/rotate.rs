//! Rotation by any angle.

use super::affine::{Back, Move};
use super::field::{dispatch, geometric_fields};
use super::{Map, stream};
use crate::context::Context;
use crate::tensor::{Example, Tensor};

/// Rotates about the centre by a random angle from −`degrees` to `degrees`. What comes in from outside is zero.
///
/// ```
#[doc = include_str!("../doc/augment.txt")]
/// let example = rotate(0.0)(grey([2, 2], &[1, 2, 3, 4], &pool)?, &context)?;
/// assert_eq!(example.get("x")?.bytes(), [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "RandomRotation")]
pub fn rotate(degrees: f32) -> impl Map {
    move |mut example: Example, context: &Context| {
        let (_, names) = geometric_fields(&example)?;
        let angle = context.random(stream::ROTATE).range(-degrees, degrees).to_radians();
        for name in names {
            let image = example.get_mut(name)?;
            let mut out = Tensor::zeros(image.ty().clone(), context.pool)?;
            dispatch(image, &mut out, Move { back: rotation(angle) })?;
            *image = out;
        }
        Ok(example)
    }
}

/// Counter-clockwise for a positive angle in radians.
pub(super) fn rotation(angle: f32) -> Back {
    let (sin, cos) = angle.sin_cos();
    Back { x: [cos, -sin], y: [sin, cos], translate: [0.0; 2] }
}
