//! Weights to start from: by name, what fits is taken, and what does not is said.

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use memfit::exec::WireError;
use memfit::exec::weights::{Match, WeightsError, read_header, type_of};
use memfit::ir::op::StateClass;
use memfit::nn::{Mode, Model};
use memfit::train::run_dir::set_weights;
use memfit::{AnyExecutor, Session};

use crate::error::{Result, RunError};
use crate::resources::RunResources;

/// Finds a file that is not there, or of another model, before anything is made of the run.
pub fn check(path: &Path, run: &RunResources) -> Result<()> {
    let fit = Fit::new(path, run)?;
    if fit.found.is_empty() { Err(fit.none_found(path)) } else { check_finite(path, &fit.found) }
}

/// What is read at once.
const PIECE: u64 = 1 << 16;

/// Weights that are no numbers train nothing, and the loss would be blamed on something else.
fn check_finite(path: &Path, tensors: &[Found]) -> Result<()> {
    let io = |source| WeightsError::Io { path: path.into(), source };
    let mut file = memfit_files::open(path).map_err(io)?;
    let mut buffer = vec![0; PIECE as usize];
    for Found { name, start, bytes } in tensors {
        file.seek(SeekFrom::Start(*start)).map_err(io)?;
        for offset in (0..*bytes).step_by(PIECE as usize) {
            let piece = &mut buffer[..(bytes - offset).min(PIECE) as usize];
            match file.read_exact(piece) {
                // Of a file that is cut off, who takes the weights says so.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
                read => read.map_err(io)?,
            }
            let mut numbers = piece.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            if let Some(at) = numbers.position(|number| !number.is_finite()) {
                let (path, tensor) = (path.into(), name.clone());
                return Err(RunError::WeightsNotFinite { path, tensor, element: offset / 4 + at as u64 });
            }
        }
    }
    Ok(())
}

/// What was taken of a file.
pub struct LoadedWeights {
    pub taken: usize,
    /// Of the model.
    pub of: usize,
    /// Not in the file, or of another type or shape there.
    pub missing: Vec<String>,
}

/// All replicas of a process take what fits of a file, of which the first one says what that is. Others need no file: they are handed
/// what it reads.
pub(crate) fn load_into(
    sessions: &mut [&mut Session<AnyExecutor>],
    path: &Path,
    run: &RunResources,
    hand_out: &mut dyn FnMut(&mut [u8]) -> std::result::Result<(), WireError>,
) -> Result<Option<LoadedWeights>> {
    let fit = if run.crew.is_first() { Some(Fit::new(path, run)?) } else { None };
    let taken = set_weights(sessions, path, fit.is_some(), Match::Fitting, hand_out)?;
    match fit {
        Some(fit) if taken == 0 => Err(fit.none_found(path)),
        Some(fit) => Ok(Some(LoadedWeights { taken, of: fit.found.len() + fit.missing.len(), missing: fit.missing })),
        None => Ok(None),
    }
}

/// A weight of the model that the file has, and where: numbers of f32.
struct Found {
    name: String,
    start: u64,
    bytes: u64,
}

/// The names of a model held against those of a file.
struct Fit {
    found: Vec<Found>,
    /// Of the model, not in the file or of another type or shape there.
    missing: Vec<String>,
    of_file: Vec<String>,
}

impl Fit {
    fn new(path: &Path, run: &RunResources) -> Result<Fit> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = memfit_files::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let (data, header) = read_header(&mut file, length, path)?;
        let tensors = header.tensors();
        let graph = run.model.build(1, Mode::Train)?.graph;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (state, value) in
            graph.states().filter(|(s, _)| matches!(s.class, StateClass::Param | StateClass::Statistic))
        {
            match tensors.get(&state.name).filter(|t| type_of(t).as_ref() == Some(graph.ty(value))) {
                Some(tensor) => found.push(Found {
                    name: state.name.clone(),
                    start: data.saturating_add(tensor.data_offsets.0 as u64),
                    bytes: graph.ty(value).bytes(),
                }),
                None => missing.push(state.name.clone()),
            }
        }
        let mut of_file: Vec<String> = tensors.into_keys().collect();
        of_file.sort_unstable();
        Ok(Fit { found, missing, of_file })
    }

    fn none_found(self, path: &Path) -> RunError {
        RunError::NoWeights { path: path.into(), model: self.missing, file: self.of_file }
    }
}
