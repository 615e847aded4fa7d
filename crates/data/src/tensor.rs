//! What flows through a pipeline: tensors under names.

use memfit_ir::{DType, TensorType};

use crate::error::{DataError, Result};
use crate::memory::{Buffer, BytePool, NoRoom, rounded};

/// A type and its bytes, which are drawn from a pool.
#[derive(Debug)]
pub struct Tensor {
    ty: TensorType,
    data: Buffer,
}

impl Tensor {
    pub fn zeros(ty: TensorType, pool: &BytePool) -> Result<Tensor, NoRoom> {
        let data = pool.buffer(ty.bytes() as usize)?;
        Ok(Tensor { ty, data })
    }

    /// The bytes must be as many as the type has.
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

    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.bytes_mut()
    }

    pub fn f32s(&self) -> &[f32] {
        assert_eq!(self.ty.dtype, DType::F32, "the caller looked at the type");
        bytemuck::cast_slice(self.bytes())
    }

    /// Whether no number of it is a NaN or infinite; whole numbers never are.
    pub fn is_finite(&self) -> bool {
        self.ty.dtype != DType::F32 || self.f32s().iter().all(|number| number.is_finite())
    }

    pub fn f32s_mut(&mut self) -> &mut [f32] {
        assert_eq!(self.ty.dtype, DType::F32, "the caller looked at the type");
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

/// One element: tensors under the names by which the model reads them, in a fixed order.
#[derive(Debug, Default)]
pub struct Example {
    pub fields: Vec<(String, Tensor)>,
}

impl Example {
    pub fn with(mut self, name: &str, tensor: Tensor) -> Example {
        self.fields.push((name.to_string(), tensor));
        self
    }

    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, t)| t).ok_or_else(|| self.unknown(name))
    }

    pub fn get_mut(&mut self, name: &str) -> Result<&mut Tensor> {
        match self.fields.iter().position(|(n, _)| n == name) {
            Some(i) => Ok(&mut self.fields[i].1),
            None => Err(self.unknown(name)),
        }
    }

    /// What it takes from its pool.
    pub fn held_bytes(&self) -> u64 {
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
