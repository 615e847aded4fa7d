//! Weights by name: safetensors in and out. Tensors go to and from the segment in small pieces, never mapped and never
//! held twice.

use std::cmp::Reverse;
use std::io::{ErrorKind, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memfit_ir::{DType, TensorType};
use memfit_plan::{Phase, Place, StateSlot};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::atomic_file::{AtomicFile, Faults};
use crate::engine::Engine;
use crate::error::ExecError;
use crate::executor::Executor;
use crate::hand_out::StatesFile;
use crate::wire::WireError;

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
    /// On the way from the replica that has the file.
    #[error("{0}")]
    Wire(#[from] WireError),
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Match {
    /// The file and the model have the same names.
    #[default]
    Exact,
    /// Every name of the model is in the file, which may have more: those of other replicas.
    Own,
    /// What the file has in common with the model by name; the rest stays as it is.
    Common,
    /// Of those, what has the model's type and shape too: a head for other classes stays as it is.
    Fitting,
}

/// No header of a sane file is longer.
pub(crate) const LARGEST_HEADER: u64 = 100 << 20;
/// What is read or written at once.
pub(crate) const PIECE: u64 = 1 << 16;
/// Names listed of each kind of mismatch before "and N more".
const LISTED: usize = 8;

impl<E: Executor> Engine<E> {
    /// Writes the chosen states to a file: beside it first, then renamed, so that a half-written file is never met.
    pub fn save(&self, path: &Path, chosen: impl Fn(&StateSlot) -> bool) -> Result<(), WeightsError> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = AtomicFile::create(path, &Faults::default()).map_err(io)?;
        self.write_states(&mut file, path, chosen)?;
        file.commit(path).map_err(io)
    }

    /// The chosen states in the form of a safetensors file, in pieces, so that no tensor is held twice. `path` is what
    /// errors name.
    pub fn write_states(
        &self,
        out: &mut impl Write,
        path: &Path,
        chosen: impl Fn(&StateSlot) -> bool,
    ) -> Result<(), WeightsError> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut slots: Vec<&StateSlot> =
            self.plan().states.iter().filter(|s| self.is_handed_out(s) && chosen(s)).collect();
        slots.sort_by(|a, b| file_order(&a.name, &a.ty).cmp(&file_order(&b.name, &b.ty)));
        let header = header_of(slots.iter().map(|s| (&s.name, &s.ty)))
            .map_err(|problem| WeightsError::Format { path: path.into(), problem })?;
        out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
        out.write_all(&header).map_err(io)?;
        let mut buffer = vec![0; PIECE as usize];
        for slot in slots {
            let Place { segment, offset, size } = slot.place;
            for start in (0..size).step_by(PIECE as usize) {
                let part = Place { segment, offset: offset + start, size: (size - start).min(PIECE) };
                let bytes = &mut buffer[..part.size as usize];
                let read = self.read_place(&slot.name, part, bytes);
                read.map_err(|source| WeightsError::Device { path: path.into(), source })?;
                out.write_all(bytes).map_err(io)?;
            }
        }
        Ok(())
    }

    /// Whether a checkpoint has the state: as its program says, where the plan has one.
    pub(crate) fn is_handed_out(&self, slot: &StateSlot) -> bool {
        match self.plan().program(Phase::Export) {
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
        self.read_states(&mut memfit_files::open(path).map_err(io)?, path, matching, chosen)
    }

    /// Reads states from what [`Engine::write_states`] wrote, in pieces. `path` is what errors name. If reading fails
    /// on the way, a state that took no memory yet is either read whole or still gets its initial value.
    pub fn read_states(
        &mut self,
        file: &mut (impl Read + Seek),
        path: &Path,
        matching: Match,
        chosen: impl Fn(&StateSlot) -> bool,
    ) -> Result<usize, WeightsError> {
        let read = StatesFile::new(Some(file), path, &mut |_| Ok(())).read_into(&mut [self], matching, chosen)?;
        Ok(read.0)
    }

    /// The numbers of the states that are read from a file whose data has this range; or all that does not fit.
    pub(crate) fn match_tensors(
        &self,
        metadata: &Metadata,
        data: Range<u64>,
        matching: Match,
        chosen: impl Fn(&StateSlot) -> bool,
    ) -> Result<Vec<usize>, Vec<String>> {
        let tensors = metadata.tensors();
        let is_wanted = |(_, s): &(usize, &StateSlot)| s.class.outlives_step() && chosen(s);
        let wanted: Vec<(usize, &StateSlot)> = self.plan().states.iter().enumerate().filter(is_wanted).collect();
        let mut problems = Vec::new();
        if matches!(matching, Match::Exact | Match::Own) {
            let names = wanted.iter().map(|(_, s)| s.name.as_str());
            list_names(&mut problems, "missing in the file", names.filter(|n| !tensors.contains_key(*n)).collect());
        }
        if matching == Match::Exact {
            let is_extra = |n: &&str| !wanted.iter().any(|(_, s)| s.name == *n);
            list_names(
                &mut problems,
                "not in the model",
                tensors.keys().map(String::as_str).filter(is_extra).collect(),
            );
        }
        let mut found = Vec::new();
        for (index, slot) in wanted {
            let Some(info) = tensors.get(&slot.name) else { continue };
            let given = type_of(info);
            if given.as_ref() != Some(&slot.ty) {
                if matching == Match::Fitting {
                    continue;
                }
                let given = given.as_ref().map_or(format!("{:?}{:?}", info.dtype, info.shape), |t| t.to_string());
                problems.push(format!("\"{}\" is {given} in the file but {} in the model", slot.name, slot.ty));
            }
            let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
            if data.start.checked_add(to).is_none_or(|end| end > data.end) {
                problems.push(format!("\"{}\" is cut off: the file has only {} bytes", slot.name, data.end));
            } else if to.checked_sub(from) != Some(slot.place.size) && given.as_ref() == Some(&slot.ty) {
                problems.push(format!("\"{}\" lies at {from}..{to}, which is not its size", slot.name));
            }
            found.push(index);
        }
        if problems.is_empty() { Ok(found) } else { Err(problems) }
    }
}

fn list_names(problems: &mut Vec<String>, what: &str, mut names: Vec<&str>) {
    if names.is_empty() {
        return;
    }
    names.sort_unstable();
    let more = names.len().saturating_sub(LISTED);
    let shown: Vec<String> = names.iter().take(LISTED).map(|n| format!("\"{n}\"")).collect();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    problems.push(format!("{what}: {}{rest}", shown.join(", ")));
}

/// The header of a safetensors file of `length` bytes, and where its data starts. `path` is what errors name.
pub fn read_header(file: &mut impl Read, length: u64, path: &Path) -> Result<(u64, Metadata), WeightsError> {
    let header = header_bytes(file, length, path)?;
    Ok((8 + header.len() as u64, parse_header(&header, path)?))
}

/// The header as it stands in the file, behind its size.
pub(crate) fn header_bytes(file: &mut impl Read, length: u64, path: &Path) -> Result<Vec<u8>, WeightsError> {
    let format = |problem: String| WeightsError::Format { path: path.into(), problem };
    let mut size = [0u8; 8];
    let short = |source: std::io::Error| match source.kind() {
        ErrorKind::UnexpectedEof => format("it is shorter than its header".into()),
        _ => WeightsError::Io { path: path.into(), source },
    };
    file.read_exact(&mut size).map_err(short)?;
    let size = u64::from_le_bytes(size);
    if size > LARGEST_HEADER {
        return Err(format(format!("its header would be {size} bytes long")));
    }
    // Before room is made for it.
    if size > length.saturating_sub(8) {
        return Err(short(ErrorKind::UnexpectedEof.into()));
    }
    let mut header = vec![0u8; size as usize];
    file.read_exact(&mut header).map_err(short)?;
    Ok(header)
}

pub(crate) fn parse_header(header: &[u8], path: &Path) -> Result<Metadata, WeightsError> {
    serde_json::from_slice(header).map_err(|e| WeightsError::Format { path: path.into(), problem: e.to_string() })
}

/// By which tensors stand in a file: wide types first, so that each tensor is aligned to its own; then by name, so that the order
/// is nobody's choice.
pub(crate) fn file_order<'a>(name: &'a str, ty: &TensorType) -> (Reverse<Dtype>, &'a str) {
    (Reverse(to_safetensors(ty.dtype)), name)
}

/// The header of a file with these states, one after the other.
pub fn header_of<'a>(states: impl Iterator<Item = (&'a String, &'a TensorType)>) -> Result<Vec<u8>, String> {
    let mut end = 0;
    let mut info = |(name, ty): (&String, &TensorType)| {
        let start = end;
        end += ty.bytes() as usize;
        let (dtype, shape) = (to_safetensors(ty.dtype), ty.shape.to_vec());
        (name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let metadata = Metadata::new(None, states.map(&mut info).collect()).map_err(|e| e.to_string())?;
    let mut header = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
    // Spaces, so that the data is aligned for whoever maps the file.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

fn to_safetensors(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        DType::Bit => unreachable!("the type rules refuse a state of bits"),
    }
}

/// What a tensor of a file is; none if it is of a type that no state has.
pub fn type_of(info: &TensorInfo) -> Option<TensorType> {
    from_safetensors(info.dtype).map(|dtype| TensorType::new(dtype, info.shape.clone()))
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    DType::NUMBERS.into_iter().find(|d| to_safetensors(*d) == dtype)
}
