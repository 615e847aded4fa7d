//! The plain tensor of the tests: a type and its elements as f64, row-major. Integers are exact in it; f32 tensors keep
//! full f64 precision, so that what is computed from them is a yardstick for f32 kernels.

use half::{bf16, f16};
use memfit_ir::{DType, Shape, TensorType};

use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub ty: TensorType,
    pub data: Vec<f64>,
}

impl Tensor {
    pub fn new(ty: TensorType, data: Vec<f64>) -> Result<Tensor> {
        if ty.elements() != data.len() {
            return Err(Error::ElementCount { ty, given: data.len() });
        }
        Ok(Tensor { ty, data })
    }

    pub fn f32(shape: impl Into<Shape>, data: Vec<f64>) -> Result<Tensor> {
        Tensor::new(TensorType::f32(shape), data)
    }

    pub fn i32(shape: impl Into<Shape>, data: &[i32]) -> Result<Tensor> {
        Tensor::new(TensorType::i32(shape), data.iter().map(|&x| f64::from(x)).collect())
    }

    pub fn filled(ty: &TensorType, value: f64) -> Tensor {
        Tensor { ty: ty.clone(), data: vec![value; ty.elements()] }
    }

    pub fn zeros(ty: &TensorType) -> Tensor {
        Tensor::filled(ty, 0.0)
    }

    /// Each element from its index.
    pub fn from_index(ty: &TensorType, mut f: impl FnMut(&[usize]) -> f64) -> Tensor {
        Tensor { ty: ty.clone(), data: indices(&ty.shape).map(|i| f(&i)).collect() }
    }

    /// From the bytes of a device, which must be those of the type.
    pub fn from_bytes(ty: &TensorType, bytes: &[u8]) -> Result<Tensor> {
        fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks::<N>().0.iter().map(|&b| f(b)).collect()
        }
        let data = match ty.dtype {
            DType::F32 => each(bytes, |b| f64::from(f32::from_ne_bytes(b))),
            DType::F16 => each(bytes, |b| f16::from_ne_bytes(b).to_f64()),
            DType::BF16 => each(bytes, |b| bf16::from_ne_bytes(b).to_f64()),
            DType::I32 => each(bytes, |b| f64::from(i32::from_ne_bytes(b))),
            DType::U8 => each(bytes, |[b]| f64::from(b)),
            DType::Bit if bytes.len() as u64 == ty.bytes() => {
                (0..ty.elements()).map(|i| f64::from(bytes[i / 8] >> (i % 8) & 1)).collect()
            }
            DType::Bit => Vec::new(),
        };
        Tensor::new(ty.clone(), data)
    }

    /// As a device holds it, each element rounded as its type does.
    pub fn to_bytes(&self) -> Vec<u8> {
        let data = self.data.iter();
        match self.ty.dtype {
            DType::F32 => data.flat_map(|&x| (x as f32).to_ne_bytes()).collect(),
            // Through f32, as in `round_to`.
            DType::F16 => data.flat_map(|&x| f16::from_f32(x as f32).to_ne_bytes()).collect(),
            DType::BF16 => data.flat_map(|&x| bf16::from_f32(x as f32).to_ne_bytes()).collect(),
            DType::I32 => data.flat_map(|&x| (x as i32).to_ne_bytes()).collect(),
            DType::U8 => data.map(|&x| x as u8).collect(),
            DType::Bit => {
                let mut bytes = vec![0; self.ty.bytes() as usize];
                data.enumerate().for_each(|(i, &x)| bytes[i / 8] |= u8::from(x != 0.0) << (i % 8));
                bytes
            }
        }
    }

    pub fn shape(&self) -> &[usize] {
        &self.ty.shape
    }

    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[self.offset(index)]
    }

    pub fn at_mut(&mut self, index: &[usize]) -> &mut f64 {
        let offset = self.offset(index);
        &mut self.data[offset]
    }

    /// The element that numpy broadcasting puts at an index of a larger shape.
    pub fn at_broadcast(&self, index: &[usize]) -> f64 {
        let own = &index[index.len() - self.shape().len()..];
        let own: Vec<usize> = own.iter().zip(self.shape()).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect();
        self.at(&own)
    }

    fn offset(&self, index: &[usize]) -> usize {
        let shape = self.shape();
        assert_eq!(index.len(), shape.len(), "index {index:?} of {}", self.ty);
        index.iter().zip(shape).fold(0, |offset, (&i, &d)| {
            assert!(i < d, "index {index:?} of {}", self.ty);
            offset * d + i
        })
    }
}

/// All indices of a shape, the last axis fastest. A scalar has one, the empty index.
pub fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |flat: usize| {
        let mut rest = flat;
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        index
    })
}

/// What is left of a number stored in a type: 16-bit floats round to nearest even, integers truncate and saturate.
/// A bit is set by all but 0. f32 keeps all of f64, because the reference is the yardstick for f32.
pub fn round_to(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F32 => x,
        // Through f32, because that is what a kernel holds when it stores 16 bits.
        DType::F16 => f16::from_f32(x as f32).to_f64(),
        DType::BF16 => bf16::from_f32(x as f32).to_f64(),
        DType::I32 => f64::from(x as i32),
        DType::U8 => f64::from(x as u8),
        DType::Bit => f64::from(u8::from(x != 0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_count_with_the_last_axis_fastest() {
        let all: Vec<_> = indices(&[2, 1, 2]).collect();
        assert_eq!(all, [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]);
        assert_eq!(indices(&[]).collect::<Vec<_>>(), [[0usize; 0]]);
        assert_eq!(indices(&[3, 0]).count(), 0);
    }

    #[test]
    fn bytes_there_and_back_round_as_the_type_does() {
        let numbers = [0.0, 1.0, 2049.0, 200.0, 77.5, 255.0];
        for dtype in DType::ALL {
            let ty = TensorType::new(dtype, [2, 3]);
            let bytes = Tensor::new(ty.clone(), numbers.to_vec()).unwrap().to_bytes();
            assert_eq!(bytes.len() as u64, ty.bytes());
            let back = Tensor::from_bytes(&ty, &bytes).unwrap();
            assert_eq!(back.data, numbers.map(|x| round_to(dtype, x)), "{dtype}");
            assert!(Tensor::from_bytes(&ty, &bytes[..bytes.len() - 1]).is_err(), "{dtype}: too few bytes");
        }
    }

    #[test]
    fn storing_rounds_as_the_type_does() {
        let third = 1.0 / 3.0;
        assert_eq!(round_to(DType::F32, third), third);
        assert_eq!(round_to(DType::F16, 2049.0), 2048.0, "ties to even");
        assert_eq!(round_to(DType::F16, 2051.0), 2052.0, "ties to even");
        assert_eq!(round_to(DType::F16, 1e6), f64::INFINITY);
        assert_eq!(round_to(DType::BF16, 257.0), 256.0);
        assert_eq!(round_to(DType::I32, -2.9), -2.0);
        assert_eq!(round_to(DType::I32, 3e9), f64::from(i32::MAX));
        assert_eq!(round_to(DType::U8, -1.0), 0.0);
        assert_eq!(round_to(DType::U8, 300.7), 255.0);
    }
}
