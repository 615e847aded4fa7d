//! A safetensors file as plain tensors. Wider types than the IR has become the nearest that it has: f64 is kept as the
//! elements of an f32 tensor, i64 as i32, booleans as u8.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memfit_ir::{DType, TensorType};
use safetensors::{Dtype, SafeTensors};

use super::Named;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub struct TensorFile {
    path: PathBuf,
    tensors: BTreeMap<String, Tensor>,
    /// Tensors of element types that no case uses, with the type: a matter of those who ask for them.
    foreign: BTreeMap<String, String>,
}

impl TensorFile {
    pub fn read(path: &Path) -> Result<TensorFile> {
        let path = path.to_path_buf();
        let bytes = fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
        let file =
            SafeTensors::deserialize(&bytes).map_err(|source| Error::TensorFile { path: path.clone(), source })?;
        let (mut tensors, mut foreign) = (BTreeMap::new(), BTreeMap::new());
        for (name, view) in file.iter() {
            match elements(view.dtype(), view.data()) {
                Some((dtype, data)) => {
                    tensors.insert(name.to_string(), Tensor::new(TensorType::new(dtype, view.shape()), data)?);
                }
                None => drop(foreign.insert(name.to_string(), format!("{:?}", view.dtype()))),
            }
        }
        Ok(TensorFile { path, tensors, foreign })
    }

    pub fn get(&self, name: &str) -> Result<Tensor> {
        let path = || self.path.clone();
        match (self.tensors.get(name), self.foreign.get(name)) {
            (Some(tensor), _) => Ok(tensor.clone()),
            (None, Some(dtype)) => Err(Error::ElementType { path: path(), name: name.into(), dtype: dtype.clone() }),
            (None, None) => Err(Error::NoTensor { path: path(), name: name.into() }),
        }
    }

    /// All tensors whose names start with a prefix, by the rest of their names.
    pub fn under(&self, prefix: &str) -> Named {
        let rest = |(name, t): (&String, &Tensor)| Some((name.strip_prefix(prefix)?.to_string(), t.clone()));
        self.tensors.iter().filter_map(rest).collect()
    }
}

fn elements(dtype: Dtype, bytes: &[u8]) -> Option<(DType, Vec<f64>)> {
    fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&b| f(b)).collect()
    }
    Some(match dtype {
        Dtype::F64 => (DType::F32, each(bytes, f64::from_le_bytes)),
        Dtype::F32 => (DType::F32, each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
        Dtype::F16 => (DType::F16, each(bytes, |b| f16::from_le_bytes(b).to_f64())),
        Dtype::BF16 => (DType::BF16, each(bytes, |b| bf16::from_le_bytes(b).to_f64())),
        Dtype::I64 => (DType::I32, each(bytes, |b| i64::from_le_bytes(b) as f64)),
        Dtype::I32 => (DType::I32, each(bytes, |b| f64::from(i32::from_le_bytes(b)))),
        Dtype::U8 | Dtype::BOOL => (DType::U8, each(bytes, |[b]| f64::from(b))),
        _ => return None,
    })
}
