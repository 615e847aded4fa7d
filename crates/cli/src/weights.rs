//! Weights to start from: by name, what fits is taken, and what does not is said.

use std::fs::File;
use std::path::Path;

use anyhow::Result;
use memfit::exec::weights::{Match, WeightsError, read_header, type_of};
use memfit::ir::op::StateClass;
use memfit::nn::Mode;
use memfit::{CpuExecutor, Session};
use serde_json::json;

use crate::failure::usage;
use crate::run::Run;
use crate::say::{self, say};

/// Finds a file that is not there, or of another model, before anything is made of the run.
pub fn check(path: &Path, run: &Run) -> Result<()> {
    let fit = Fit::new(path, run)?;
    match fit.found {
        0 => Err(fit.none_found(path)),
        _ => Ok(()),
    }
}

/// Takes what fits.
pub fn start_from(session: &mut Session<CpuExecutor>, path: &Path, run: &Run) -> Result<()> {
    let fit = Fit::new(path, run)?;
    let taken = session.load_weights(path, Match::Fitting)?;
    if taken == 0 {
        return Err(fit.none_found(path));
    }
    let (all, missing) = (fit.found + fit.missing.len(), &fit.missing);
    if run.json {
        let file = path.display().to_string();
        let told = json!({ "event": "weights", "file": file, "taken": taken, "of": all, "missing": missing });
        say!("{}", run.event(told));
        return Ok(());
    }
    say!("  {}weights        {taken} of {all} from {}", run.prefix(), path.display());
    if !missing.is_empty() {
        say!("                 not in it, or of another type or shape: {}", say::some(missing));
    }
    Ok(())
}

/// The names of a model held against those of a file.
struct Fit {
    found: usize,
    /// Of the model, not in the file or of another type or shape there.
    missing: Vec<String>,
    of_file: Vec<String>,
}

impl Fit {
    fn new(path: &Path, run: &Run) -> Result<Fit> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let (_, header) = read_header(&mut file, length, path)?;
        let tensors = header.tensors();
        let graph = run.model.build(1, Mode::Train).map_err(usage)?.graph;
        let (mut found, mut missing) = (0, Vec::new());
        for (state, value) in
            graph.states().filter(|(s, _)| matches!(s.class, StateClass::Param | StateClass::Statistic))
        {
            match tensors.get(&state.name).and_then(|t| type_of(t)).as_ref() == Some(graph.ty(value)) {
                true => found += 1,
                false => missing.push(state.name.clone()),
            }
        }
        let mut of_file: Vec<String> = tensors.into_keys().collect();
        of_file.sort_unstable();
        Ok(Fit { found, missing, of_file })
    }

    fn none_found(&self, path: &Path) -> anyhow::Error {
        usage(format!(
            "{} has no weight of this model, whose names are {}; in the file there are {}",
            path.display(),
            say::some(&self.missing),
            say::some(&self.of_file)
        ))
    }
}
