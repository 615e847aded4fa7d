//! The tensors that a file has, of whichever kind it is, and where their numbers lie.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::path::Path;

use memfit::exec::weights::{WeightsError, read_header};
use memfit_files::torch::{self, Numbers, Tensor};
use safetensors::tensor::{Dtype, TensorInfo};

use crate::error::{Result, RunError};

/// What wrappers put in front of all names, and what checkpoints call the dictionary that they have them in.
const PREFIXES: [&str; 5] = ["module.", "_orig_mod.", "model.", "state_dict.", "model_state_dict."];

/// The tensors of a file by name, as the model that was saved called them: without what wrappers put in front.
pub struct Source {
    pub file: File,
    pub tensors: BTreeMap<String, Tensor>,
    /// Whether memfit writes files of its kind.
    pub is_safetensors: bool,
}

impl Source {
    pub fn open(path: &Path, model: &str) -> Result<Source> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = memfit_files::open(path).map_err(|source| not_there(path, model, source))?;
        let length = file.metadata().map_err(io)?.len();
        let mut first = Vec::new();
        (&mut file).take(8).read_to_end(&mut first).map_err(io)?;
        file.rewind().map_err(io)?;
        let is_safetensors = !torch::is_pickled(&first);
        let tensors = if is_safetensors {
            safetensors(&mut file, length, path)?
        } else {
            let read = torch::tensors(&mut file);
            read.map_err(|source| RunError::TorchFile { path: path.into(), source })?
        };
        let named = tensors.into_iter().map(|tensor| (plain(&tensor.name), tensor));
        Ok(Source { file, tensors: named.collect(), is_safetensors })
    }
}

/// A word in the place of a file, by which somebody may mean weights from elsewhere.
fn not_there(path: &Path, model: &str, source: std::io::Error) -> RunError {
    // Run files make a path of it.
    let word = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if source.kind() == ErrorKind::NotFound && ["imagenet", "default", "pretrained"].contains(&word.as_str()) {
        return RunError::WeightsByName { name: word, model: model.into() };
    }
    WeightsError::Io { path: path.into(), source }.into()
}

/// Without what wrappers put in front, and without anything that a terminal would obey.
fn plain(name: &str) -> String {
    let mut name = name;
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name.chars().filter(|c| !c.is_control()).collect()
}

fn safetensors(file: &mut File, length: u64, path: &Path) -> Result<Vec<Tensor>> {
    let (data, header) = read_header(file, length, path)?;
    let tensor = |(name, info): (String, &TensorInfo)| {
        let numbers = match info.dtype {
            Dtype::F32 => Numbers::F32,
            Dtype::F64 => Numbers::F64,
            Dtype::F16 => Numbers::F16,
            Dtype::BF16 => Numbers::Bf16,
            other => Numbers::Whole((other.bitsize() / 8).max(1) as u8),
        };
        let shape = info.shape.clone();
        let [start, end] = [info.data_offsets.0, info.data_offsets.1].map(|at| at as u64);
        let elements = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n as u64));
        let is_whole = elements.and_then(|n| n.checked_mul(numbers.bytes())) == end.checked_sub(start);
        let mut strides = vec![1u64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(shape[i] as u64);
        }
        is_whole.then(|| Tensor { name, numbers, shape, strides, start: data.saturating_add(start) })
    };
    // A tensor that does not lie where it should is none; who loads the file as it is says so.
    Ok(header.tensors().into_iter().filter_map(tensor).collect())
}
