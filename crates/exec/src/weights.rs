//! Weights by name: safetensors in and out. Tensors are read into the segment one after the other, never mapped and never
//! held twice.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use memfit_ir::{DType, TensorType};
use memfit_plan::{Phase, StateSlot};
use safetensors::tensor::{Dtype, Metadata, View};

use crate::engine::Engine;
use crate::error::ExecError;
use crate::executor::Executor;

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: not a safetensors file: {problem}", path.display())]
    Format { path: PathBuf, problem: String },
    /// Names that the model has and the file has not, or the other way round, or of another shape.
    #[error("{}: does not belong to this model: {}", path.display(), problems.join("; "))]
    Mismatch { path: PathBuf, problems: Vec<String> },
    #[error("{}: nothing is written, because a weight cannot be read: {source}", path.display())]
    Device { path: PathBuf, source: ExecError },
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Match {
    /// The file and the model have the same names.
    #[default]
    Exact,
    /// What the file has in common with the model by name; the rest stays as it is.
    Common,
}

/// No header of a sane file is longer.
const LARGEST_HEADER: u64 = 100 << 20;
/// Names listed of each kind of mismatch before "and N more".
const LISTED: usize = 8;

impl<E: Executor> Engine<E> {
    /// Writes the chosen states to a file: beside it first, then renamed, so that a half-written file is never met.
    pub fn save(&self, path: &Path, chosen: impl Fn(&StateSlot) -> bool) -> Result<(), WeightsError> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let failed = RefCell::new(None);
        let views: Vec<(&str, StateView<E>)> = self
            .plan()
            .states
            .iter()
            .filter(|s| self.is_handed_out(s) && chosen(s))
            .map(|slot| (slot.name.as_str(), StateView { engine: self, slot, failed: &failed }))
            .collect();
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.tmp", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = safetensors::serialize_to_file(views, None, &beside)
            .map_err(|e| match e {
                safetensors::SafeTensorError::IoError(source) => io(source),
                other => WeightsError::Format { path: path.into(), problem: other.to_string() },
            })
            .and_then(|()| match failed.take() {
                Some(source) => Err(WeightsError::Device { path: path.into(), source }),
                None => settle(&beside, path).map_err(io),
            });
        if written.is_err() {
            // It may not even exist; the first error is the one that counts.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }

    /// Whether a checkpoint has the state: as its program says, where the plan has one.
    fn is_handed_out(&self, slot: &StateSlot) -> bool {
        match self.plan().program(Phase::Checkpoint) {
            Some(program) => program.graph.output(&slot.name).is_some(),
            None => slot.class.outlives_step(),
        }
    }

    /// Reads states from a file. Nothing is changed unless names, types and shapes all fit.
    pub fn load(
        &mut self,
        path: &Path,
        matching: Match,
        chosen: impl Fn(&StateSlot) -> bool,
    ) -> Result<usize, WeightsError> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        let (start, metadata) = read_header(&mut file, path)?;
        let length = file.get_ref().metadata().map_err(io)?.len();
        let tensors = metadata.tensors();
        let wanted: Vec<StateSlot> =
            self.plan().states.iter().filter(|s| s.class.outlives_step() && chosen(s)).cloned().collect();
        let mut problems = Vec::new();
        let missing: Vec<&str> = wanted.iter().map(|s| s.name.as_str()).filter(|n| !tensors.contains_key(*n)).collect();
        let extra: Vec<&str> =
            tensors.keys().map(String::as_str).filter(|n| !wanted.iter().any(|s| s.name == *n)).collect();
        if matching == Match::Exact {
            list(&mut problems, "missing in the file", missing);
            list(&mut problems, "not in the model", extra);
        }
        let mut found = Vec::new();
        for slot in &wanted {
            let Some(info) = tensors.get(&slot.name) else { continue };
            let given = from_safetensors(info.dtype).map(|d| TensorType::new(d, info.shape.clone()));
            if given.as_ref() != Some(&slot.ty) {
                let given = given.as_ref().map_or(format!("{:?}{:?}", info.dtype, info.shape), |t| t.to_string());
                problems.push(format!("\"{}\" is {given} in the file but {} in the model", slot.name, slot.ty));
            }
            let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
            if start.checked_add(to).is_none_or(|end| end > length) {
                problems.push(format!("\"{}\" is cut off: the file has only {length} bytes", slot.name));
            } else if to.checked_sub(from) != Some(slot.place.size) && given.as_ref() == Some(&slot.ty) {
                problems.push(format!("\"{}\" lies at {from}..{to}, which is not its size", slot.name));
            }
            found.push((slot, start.saturating_add(from)));
        }
        if !problems.is_empty() {
            return Err(WeightsError::Mismatch { path: path.into(), problems });
        }
        for (slot, offset) in &found {
            file.seek(SeekFrom::Start(*offset)).map_err(io)?;
            self.read_into(&mut file, slot).map_err(io)?;
        }
        Ok(found.len())
    }

    fn read_into(&mut self, file: &mut impl Read, slot: &StateSlot) -> std::io::Result<()> {
        let mut buffer = [0u8; 1 << 16];
        let mut offset = 0;
        while offset < slot.place.size {
            let n = (slot.place.size - offset).min(buffer.len() as u64) as usize;
            file.read_exact(&mut buffer[..n])?;
            self.executor.write(&mut self.arena, slot.place, offset, &buffer[..n]);
            offset += n as u64;
        }
        Ok(())
    }
}

/// Makes a file written beside its place durable, and moves it there.
fn settle(beside: &Path, path: &Path) -> std::io::Result<()> {
    File::options().write(true).open(beside)?.sync_all()?;
    std::fs::rename(beside, path)?;
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn list(problems: &mut Vec<String>, what: &str, mut names: Vec<&str>) {
    if names.is_empty() {
        return;
    }
    names.sort_unstable();
    let more = names.len().saturating_sub(LISTED);
    let shown: Vec<String> = names.iter().take(LISTED).map(|n| format!("\"{n}\"")).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    problems.push(format!("{what}: {}{rest}", shown.join(", ")));
}

/// The header and where the data starts.
fn read_header(file: &mut BufReader<File>, path: &Path) -> Result<(u64, Metadata), WeightsError> {
    let format = |problem: String| WeightsError::Format { path: path.into(), problem };
    let mut size = [0u8; 8];
    let short = |source: std::io::Error| match source.kind() {
        ErrorKind::UnexpectedEof => format("it is shorter than its header".into()),
        _ => WeightsError::Io { path: path.into(), source },
    };
    file.read_exact(&mut size).map_err(short)?;
    let length = u64::from_le_bytes(size);
    if length > LARGEST_HEADER {
        return Err(format(format!("its header would be {length} bytes long")));
    }
    let mut header = vec![0u8; length as usize];
    file.read_exact(&mut header).map_err(short)?;
    let metadata = serde_json::from_slice(&header).map_err(|e| format(e.to_string()))?;
    Ok((8 + length, metadata))
}

/// A state as safetensors wants to see it; its bytes are copied out only while they are written.
struct StateView<'a, E: Executor> {
    engine: &'a Engine<E>,
    slot: &'a StateSlot,
    /// The view itself cannot fail: what went wrong waits here until the file is written.
    failed: &'a RefCell<Option<ExecError>>,
}

impl<E: Executor> View for StateView<'_, E> {
    fn dtype(&self) -> Dtype {
        match self.slot.ty.dtype {
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::I32 => Dtype::I32,
            DType::U8 => Dtype::U8,
            DType::Bit => unreachable!("the type rules refuse a state of bits"),
        }
    }

    fn shape(&self) -> &[usize] {
        &self.slot.ty.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.slot.place.size as usize];
        if let Err(e) = self.engine.executor.read(&self.engine.arena, self.slot.place, &mut bytes) {
            self.failed.replace(Some(e));
        }
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.slot.place.size as usize
    }
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::I32 => Some(DType::I32),
        Dtype::U8 => Some(DType::U8),
        _ => None,
    }
}
