//! Fields that are images, and moving all of them alike.

use memfit_ir::{DType, TensorType};

use crate::error::{DataError, Result};
use crate::image::PixelValue;
use crate::tensor::{Example, Tensor};

/// Height and width of `x`, with its channels.
pub(super) fn image_shape(x: &Tensor) -> Result<([usize; 2], usize)> {
    match x.ty().shape[..] {
        [height, width, channels] if height > 0 && width > 0 && channels > 0 => Ok(([height, width], channels)),
        _ => Err(DataError::Pipeline(format!(
            "field \"x\" is {}, and an image [height, width, channels] is needed; augment before batching",
            x.ty()
        ))),
    }
}

/// The names of the fields that geometry moves: `x`, and `y` where it is a mask of `x`.
pub(super) fn geometric_fields(example: &Example) -> Result<([usize; 2], &'static [&'static str])> {
    let (size, _) = image_shape(example.get("x")?)?;
    let mask = example.get("y").is_ok_and(|y| y.ty().shape.rank() >= 2 && y.ty().shape[..2] == size);
    Ok((size, if mask { &["x", "y"] } else { &["x"] }))
}

/// The channels of an image or a mask: a mask of rank 2 has one.
pub(super) fn channels(ty: &TensorType) -> usize {
    ty.shape[2..].iter().product()
}

/// The type of the same image in another size.
pub(super) fn with_size(ty: &TensorType, size: [usize; 2]) -> TensorType {
    let mut shape = ty.shape.to_vec();
    shape[..2].copy_from_slice(&size);
    TensorType::new(ty.dtype, shape)
}

/// Something to do with the elements of a tensor, whatever their type is.
pub(super) trait PixelOp {
    type Output;
    fn run<S: PixelValue + bytemuck::Pod>(self, from: &Tensor, to: &mut Tensor) -> Self::Output;
}

/// Calls `f` with the type of the elements; both tensors have it.
pub(super) fn dispatch<F: PixelOp>(from: &Tensor, to: &mut Tensor, f: F) -> Result<F::Output> {
    match from.ty().dtype {
        DType::U8 => Ok(f.run::<u8>(from, to)),
        DType::F32 => Ok(f.run::<f32>(from, to)),
        DType::I32 => Ok(f.run::<i32>(from, to)),
        DType::F16 | DType::BF16 | DType::Bit => {
            Err(DataError::Pipeline(format!("images of {} are not augmented; u8, f32 and i32 are", from.ty().dtype)))
        }
    }
}
