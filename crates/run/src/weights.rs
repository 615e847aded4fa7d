//! Weights to start from: by name, what fits is taken, and what does not is said.

use std::path::Path;

use memfit::exec::weights::{Match, WeightsError, read_header, type_of};
use memfit::ir::op::StateClass;
use memfit::nn::{Mode, Model};
use memfit::{AnyExecutor, Session};

use crate::error::{Result, RunError};
use crate::resources::RunResources;

/// Finds a file that is not there, or of another model, before anything is made of the run.
pub fn check(path: &Path, run: &RunResources) -> Result<()> {
    let fit = Fit::new(path, run)?;
    if fit.found == 0 { Err(fit.none_found(path)) } else { Ok(()) }
}

/// What was taken of a file.
pub struct LoadedWeights {
    pub taken: usize,
    /// Of the model.
    pub of: usize,
    /// Not in the file, or of another type or shape there.
    pub missing: Vec<String>,
}

/// Takes what fits.
pub fn load_into(session: &mut Session<AnyExecutor>, path: &Path, run: &RunResources) -> Result<LoadedWeights> {
    let fit = Fit::new(path, run)?;
    let taken = session.load_weights(path, Match::Fitting)?;
    if taken == 0 {
        return Err(fit.none_found(path));
    }
    Ok(LoadedWeights { taken, of: fit.found + fit.missing.len(), missing: fit.missing })
}

/// The names of a model held against those of a file.
struct Fit {
    found: usize,
    /// Of the model, not in the file or of another type or shape there.
    missing: Vec<String>,
    of_file: Vec<String>,
}

impl Fit {
    fn new(path: &Path, run: &RunResources) -> Result<Fit> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = memfit_files::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let (_, header) = read_header(&mut file, length, path)?;
        let tensors = header.tensors();
        let graph = run.model.build(1, Mode::Train)?.graph;
        let (mut found, mut missing) = (0, Vec::new());
        for (state, value) in
            graph.states().filter(|(s, _)| matches!(s.class, StateClass::Param | StateClass::Statistic))
        {
            if tensors.get(&state.name).and_then(|t| type_of(t)).as_ref() == Some(graph.ty(value)) {
                found += 1;
            } else {
                missing.push(state.name.clone());
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
