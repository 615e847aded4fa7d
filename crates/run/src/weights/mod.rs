//! Weights to start from: by name, what fits is taken, and what does not is said. Files are memfit's own, or torchvision's and timm's:
//! `source.rs` tells what tensors a file has, `names.rs` what others call a weight, `fit.rs` which is which, `convert.rs` lays them out.

mod convert;
mod fit;
mod names;
mod source;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use memfit::data::BytePool;
use memfit::exec::WireError;
use memfit::exec::weights::{Match, WeightsError};
use memfit::ir::op::StateClass;
use memfit::nn::error::nearest;
use memfit::nn::{Mode, Model};
use memfit::train::run_dir::{set_weights, set_weights_of};
use memfit::{AnyExecutor, Session, ZooModel};
use memfit_files::torch::{Numbers, Tensor};

use crate::error::{LikelyWeights, Result, RunError};
use crate::resources::RunResources;
use convert::Converted;
use fit::{Fit, Found};
use names::{Convention, Own};
use source::Source;

pub use fit::LeftOut;
pub(crate) use names::names_elsewhere;

/// Finds a file that is not there, or of another model, before anything is made of the run.
pub fn check(path: &Path, run: &RunResources) -> Result<()> {
    let weights = Weights::open(path, &run.model)?;
    weights.check_finite(path)
}

/// What was taken of a file.
pub struct LoadedWeights {
    pub taken: usize,
    /// Of the model.
    pub of: usize,
    /// Not in the file, or of another type or shape there.
    pub missing: Vec<String>,
    /// Of a file that is not as memfit writes one.
    pub foreign: Option<Foreign>,
}

/// Of a file that others wrote.
pub struct Foreign {
    /// Who gave the names: memfit, torchvision or timm.
    pub names: &'static str,
    /// Of the file.
    pub left_out: Vec<LeftOut>,
    /// Kinds of numbers that were no f32.
    pub converted: Vec<&'static str>,
    /// What batch norms add to a variance there and here, where scales make up for it.
    pub epsilons: Option<[f64; 2]>,
    /// Another network of which it has more.
    pub meant: Option<String>,
}

/// All replicas of a process take what fits of a file, of which the first one says what that is. Others need no file: they are handed
/// what it reads.
pub(crate) fn load_into(
    sessions: &mut [&mut Session<AnyExecutor>],
    path: &Path,
    run: &RunResources,
    hand_out: &mut dyn FnMut(&mut [u8]) -> std::result::Result<(), WireError>,
) -> Result<Option<LoadedWeights>> {
    if !run.crew.is_first() {
        set_weights(sessions, path, false, Match::Fitting, hand_out)?;
        return Ok(None);
    }
    Weights::open(path, &run.model)?.load_into(sessions, path, run.model.name(), &run.pool, hand_out).map(Some)
}

/// Sets what weights of a network of the zoo are in a file, memfit's own or torchvision's or timm's; room to lay them out is of
/// `pool`. [`Session::load_weights`] is for files of memfit alone.
///
/// # Errors
/// The file cannot be read, or nothing in it fits.
pub fn load(
    session: &mut Session<AnyExecutor>,
    path: &Path,
    model: &ZooModel,
    pool: &BytePool,
) -> Result<LoadedWeights> {
    let weights = Weights::open(path, model)?;
    weights.check_finite(path)?;
    weights.load_into(&mut [session], path, model.name(), pool, &mut |_| Ok(()))
}

/// A file, and what of it fits.
struct Weights {
    source: Source,
    fit: Fit,
}

impl Weights {
    /// Of a file in which something fits.
    fn open(path: &Path, model: &ZooModel) -> Result<Weights> {
        let source = Source::open(path, model.name())?;
        let fit = fit(model, &source.tensors)?;
        if fit.found.is_empty() {
            return Err(none_found(path, fit, &source));
        }
        Ok(Weights { source, fit })
    }

    /// Whether it can be read as it is.
    fn is_own(&self) -> bool {
        self.source.is_safetensors
            && self.fit.convention == Convention::Own
            && self.fit.found.iter().any(|found| found.tensor.numbers == Numbers::F32)
    }

    fn load_into(
        mut self,
        sessions: &mut [&mut Session<AnyExecutor>],
        path: &Path,
        model: &str,
        pool: &BytePool,
        hand_out: &mut dyn FnMut(&mut [u8]) -> std::result::Result<(), WireError>,
    ) -> Result<LoadedWeights> {
        let of = self.fit.found.len() + self.fit.missing.len();
        if self.is_own() {
            let taken = set_weights(sessions, path, true, Match::Fitting, hand_out)?;
            // Numbers of other types stay in their file, as they always did.
            let other = self.fit.found.iter().filter(|found| found.tensor.numbers != Numbers::F32);
            self.fit.missing.extend(other.map(|found| found.own.clone()));
            return Ok(LoadedWeights { taken, of, missing: self.fit.missing, foreign: None });
        }
        let io = |source| WeightsError::Io { path: path.into(), source };
        let converted = Converted::new(&self.source.file, &self.fit.found, pool).map_err(io)?;
        let taken = set_weights_of(sessions, path, Some(converted), Match::Fitting, hand_out)?;
        let other = if self.fit.missing.len() > HEAD { meant(&self.source.tensors) } else { None };
        let foreign = Foreign {
            meant: other.filter(|(name, found)| name != model && *found > self.fit.found.len()).map(|(name, _)| name),
            names: self.fit.convention.title(),
            converted: self.fit.converted(),
            epsilons: self.fit.found.iter().find_map(|found| found.epsilon.as_ref().map(|e| [e.there, e.here])),
            left_out: self.fit.left_out,
        };
        Ok(LoadedWeights { taken, of, missing: self.fit.missing, foreign: Some(foreign) })
    }

    /// Weights that are no numbers train nothing, and the loss would be blamed on something else.
    fn check_finite(&self, path: &Path) -> Result<()> {
        let mut buffer = vec![0; PIECE as usize];
        let is_own = self.is_own();
        for found in self.fit.found.iter().filter(|found| !is_own || found.tensor.numbers == Numbers::F32) {
            check_finite(&self.source, found, path, &mut buffer)?;
        }
        Ok(())
    }
}

/// Weights of a head: where no more are missing, the network is the right one.
const HEAD: usize = 2;

/// What is read at once.
const PIECE: u64 = 1 << 16;

fn check_finite(source: &Source, found: &Found, path: &Path, buffer: &mut [u8]) -> Result<()> {
    let io = |source| WeightsError::Io { path: path.into(), source };
    let (mut file, range, numbers) = (&source.file, found.bytes_in_file(), found.tensor.numbers);
    file.seek(SeekFrom::Start(range.start)).map_err(io)?;
    for start in range.clone().step_by(PIECE as usize) {
        let piece = &mut buffer[..(range.end - start).min(PIECE) as usize];
        match file.read_exact(piece) {
            // Of a file that is cut off, who takes the weights says so.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
            read => read.map_err(io)?,
        }
        let mut all = piece.chunks_exact(numbers.bytes() as usize).map(|bytes| convert::number(numbers, bytes));
        if let Some(at) = all.position(|number| !number.is_finite()) {
            let (path, tensor) = (path.into(), found.tensor.name.clone());
            let element = (start - range.start) / numbers.bytes() + at as u64;
            return Err(RunError::WeightsNotFinite { path, tensor, element });
        }
    }
    Ok(())
}

/// The weights of a model held against a file.
fn fit(model: &ZooModel, tensors: &BTreeMap<String, Tensor>) -> Result<Fit> {
    let graph = model.build(1, Mode::Train)?.graph;
    let is_weight = |class| matches!(class, StateClass::Param | StateClass::Statistic);
    let states = || graph.states().filter(|(state, _)| is_weight(state.class));
    let head = states().last().and_then(|(state, _)| state.name.rsplit_once('/')).map_or("", |(layer, _)| layer);
    let types = states().map(|(state, value)| (state.name.as_str(), graph.ty(value))).collect();
    let order = states().map(|(state, _)| state.name.as_str()).collect();
    Ok(Fit::best(&Own { model: model.name(), head, types, order }, tensors))
}

/// The network of the zoo whose weights a file has, if it has most of them, and how many.
fn meant(tensors: &BTreeMap<String, Tensor>) -> Option<(String, usize)> {
    let fits = ZooModel::names().filter_map(|name| {
        let fit = fit(&ZooModel::from_name(name).ok()?, tensors).ok()?;
        (fit.found.len() > fit.missing.len()).then_some((fit.found.len(), fit.missing.len(), name))
    });
    // A deeper network of the family has all of them too.
    fits.max_by_key(|&(found, missing, _)| (found, Reverse(missing))).map(|(found, _, name)| (name.into(), found))
}

fn none_found(path: &Path, fit: Fit, source: &Source) -> RunError {
    let file: Vec<String> = source.tensors.keys().cloned().collect();
    let likely =
        meant(&source.tensors).map(|(name, _)| LikelyWeights::Of(name)).or_else(|| nearest_names(&fit.missing, &file));
    RunError::NoWeights { path: path.into(), model: fit.missing, file, likely }
}

/// Of the first weights of a model, one that a file has under a similar name.
fn nearest_names(model: &[String], file: &[String]) -> Option<LikelyWeights> {
    let known: Vec<&str> = file.iter().map(String::as_str).take(LOOKED_AT).collect();
    let mut wanted = model.iter().filter(|name| name.ends_with("/weight")).take(LISTED);
    wanted.find_map(|name| Some(LikelyWeights::Nearest([name.clone(), nearest(&known, name)?.into()])))
}

/// Names of a file that are looked at, and of a model.
const LOOKED_AT: usize = 1000;
const LISTED: usize = 4;
