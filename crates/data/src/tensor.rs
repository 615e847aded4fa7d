//! What flows through a pipeline: tensors under names.

use memfit_ir::{DType, TensorType};

use crate::error::{DataError, Result};
use crate::memory::{Buffer, BytePool, NoRoom, rounded};

/// A tensor in host memory, which is drawn from a [`BytePool`].
///
/// ```
/// use memfit_data::{BytePool, Tensor};
/// use memfit_ir::TensorType;
///
/// let pool = BytePool::new(64);
/// let mut tensor = Tensor::zeros(TensorType::f32([2, 3]), &pool)?;
/// tensor.f32s_mut()[4] = 1.5;
/// assert_eq!(tensor.f32s(), [0.0, 0.0, 0.0, 0.0, 1.5, 0.0]);
/// assert_eq!((tensor.ty().to_string().as_str(), pool.used()), ("f32[2,3]", 24));
/// # Ok::<(), memfit_data::NoRoom>(())
/// ```
#[derive(Debug)]
pub struct Tensor {
    ty: TensorType,
    data: Buffer,
}

impl Tensor {
    /// A tensor of zeroes.
    ///
    /// # Errors
    /// [`NoRoom`] where the pool has no room for it.
    pub fn zeros(ty: TensorType, pool: &BytePool) -> Result<Tensor, NoRoom> {
        let data = pool.buffer(ty.bytes() as usize)?;
        Ok(Tensor { ty, data })
    }

    /// A tensor with a copy of these bytes, in the machine's byte order.
    ///
    /// # Errors
    /// [`NoRoom`] where the pool has no room for it.
    ///
    /// # Panics
    /// Where the bytes are not as many as the type has.
    pub fn from_bytes(ty: TensorType, bytes: &[u8], pool: &BytePool) -> Result<Tensor, NoRoom> {
        assert_eq!(bytes.len() as u64, ty.bytes(), "the caller knows the type");
        Ok(Tensor { ty, data: pool.copy(bytes)? })
    }

    /// Keeps the first `rows` along the first axis.
    pub(crate) fn keep_rows(&mut self, rows: usize) {
        let shape = [&[rows], &self.ty.shape[1..]].concat();
        self.ty = TensorType::new(self.ty.dtype, shape);
        self.data.truncate(self.ty.bytes() as usize);
    }

    /// Its element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Its elements as bytes, in the machine's byte order and row-major.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Its elements as bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.bytes_mut()
    }

    /// Its elements, where they are f32.
    ///
    /// # Panics
    /// Where they are not.
    pub fn f32s(&self) -> &[f32] {
        assert_eq!(self.ty.dtype, DType::F32, "the caller looked at the type");
        bytemuck::cast_slice(self.bytes())
    }

    /// Whether no element is a NaN or infinite; integers never are.
    pub fn is_finite(&self) -> bool {
        self.ty.dtype != DType::F32 || self.f32s().iter().all(|number| number.is_finite())
    }

    /// Its elements, where they are f32, to be written.
    ///
    /// # Panics
    /// Where they are not.
    pub fn f32s_mut(&mut self) -> &mut [f32] {
        assert_eq!(self.ty.dtype, DType::F32, "the caller looked at the type");
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

/// One element of a [`Dataset`](crate::Dataset): tensors under the names by which the model reads them. A sample before
/// [`batch`](crate::Dataset::batch), a batch behind it.
///
/// ```
/// use memfit_data::{BytePool, Example, Tensor};
/// use memfit_ir::TensorType;
///
/// # fn main() -> memfit_data::Result<()> {
/// let pool = BytePool::new(1024);
/// let example = Example::default().with("x", Tensor::zeros(TensorType::f32([2]), &pool)?);
/// assert_eq!(example.get("x")?.f32s(), [0.0, 0.0]);
/// assert_eq!(example.get("y").unwrap_err().to_string(), "there is no field \"y\"; there are x");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Example {
    /// Names and tensors, in a fixed order.
    pub fields: Vec<(String, Tensor)>,
}

impl Example {
    /// Adds a field.
    pub fn with(mut self, name: &str, tensor: Tensor) -> Example {
        self.fields.push((name.to_string(), tensor));
        self
    }

    /// A field by its name.
    ///
    /// # Errors
    /// [`DataError::Pipeline`], with the names that there are.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, t)| t).ok_or_else(|| self.unknown(name))
    }

    /// A field by its name, to be changed or replaced.
    ///
    /// # Errors
    /// [`DataError::Pipeline`], with the names that there are.
    pub fn get_mut(&mut self, name: &str) -> Result<&mut Tensor> {
        match self.fields.iter().position(|(n, _)| n == name) {
            Some(i) => Ok(&mut self.fields[i].1),
            None => Err(self.unknown(name)),
        }
    }

    /// What it takes from its pool.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.fields.iter().map(|(_, tensor)| rounded(tensor.bytes().len())).sum()
    }

    pub(crate) fn copy(&self, pool: &BytePool) -> Result<Example, NoRoom> {
        let copy = |(name, tensor): &(String, Tensor)| {
            Ok((name.clone(), Tensor::from_bytes(tensor.ty().clone(), tensor.bytes(), pool)?))
        };
        Ok(Example { fields: self.fields.iter().map(copy).collect::<Result<_, NoRoom>>()? })
    }

    fn unknown(&self, name: &str) -> DataError {
        let known: Vec<&str> = self.fields.iter().map(|(n, _)| n.as_str()).collect();
        DataError::Pipeline(format!("there is no field \"{name}\"; there are {}", known.join(", ")))
    }
}
