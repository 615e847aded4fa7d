//! Checkpoints of replicas of which each has a part of the states: one file with whole tensors, which does not say how many there
//! were. The first replica writes it; what it does not have is sent to it, piece by piece.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use memfit_ir::TensorType;
use memfit_plan::{Place, StateSlot};
use safetensors::tensor::Metadata;

use crate::engine::Engine;
use crate::error::ExecError;
use crate::executor::Executor;
use crate::weights::{PIECE, WeightsError, file_order, header_of, type_of};
use crate::wire::{Wire, gather_words};

/// A state of the model, and the first of the replicas that have it.
pub(crate) struct WholeState {
    name: String,
    ty: TensorType,
    owner: usize,
}

impl<E: Executor> Engine<E> {
    /// The states of all replicas together in the form of a safetensors file: the first replica writes it, as `out` says, and the
    /// others send what they alone have. All have to call it. `path` is what errors name.
    pub fn write_whole_states(&self, mut out: Option<&mut dyn Write>, path: &Path) -> Result<(), WeightsError> {
        let io = |source| WeightsError::Io { path: path.into(), source };
        let device = |source| WeightsError::Device { path: path.into(), source };
        let format = |problem| WeightsError::Format { path: path.into(), problem };
        let states = self.with_wire(|wire| self.whole_states(wire)).map_err(device)?.map_err(format)?;
        let header = header_of(states.iter().map(|s| (&s.name, &s.ty))).map_err(format)?;
        if let Some(out) = &mut out {
            out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
            out.write_all(&header).map_err(io)?;
        }
        let mut buffer = vec![0; PIECE as usize];
        for state in &states {
            let bytes = state.ty.bytes();
            for start in (0..bytes).step_by(PIECE as usize) {
                let piece = &mut buffer[..(bytes - start).min(PIECE) as usize];
                self.with_wire(|wire| self.fetch(state, start, piece, wire)).map_err(device)?;
                if let Some(out) = &mut out {
                    out.write_all(piece).map_err(io)?;
                }
            }
        }
        Ok(())
    }

    /// What the replicas have together, in the order of a file.
    fn whole_states(&self, wire: &mut dyn Wire) -> Result<Result<Vec<WholeState>, String>, ExecError> {
        let own: Vec<&StateSlot> = self.plan().states.iter().filter(|s| self.is_handed_out(s)).collect();
        let own = match header_of(own.iter().map(|s| (&s.name, &s.ty))) {
            Ok(own) => own,
            Err(problem) => return Ok(Err(problem)),
        };
        let said = gather_words(wire, &own).map_err(|source| ExecError::Wire { layer: String::new(), source })?;
        Ok(union(&said))
    }

    /// Brings a piece of a state to the first replica. What that one has itself is sent to nobody.
    fn fetch(&self, state: &WholeState, start: u64, piece: &mut [u8], wire: &mut dyn Wire) -> Result<(), ExecError> {
        if wire.rank() == state.owner {
            let Place { segment, offset, .. } = self.state(&state.name)?.place;
            let part = Place { segment, offset: offset + start, size: piece.len() as u64 };
            self.read_place(&state.name, part, piece)?;
        }
        if state.owner == 0 {
            return Ok(());
        }
        wire.broadcast(state.owner, piece).map_err(|source| ExecError::Wire { layer: state.name.clone(), source })
    }
}

/// All states that replicas say they have, each once.
fn union(said: &[Vec<u8>]) -> Result<Vec<WholeState>, String> {
    let mut all: BTreeMap<String, (TensorType, usize)> = BTreeMap::new();
    for (rank, words) in said.iter().enumerate() {
        let metadata: Metadata = serde_json::from_slice(words).map_err(|e| e.to_string())?;
        for (name, info) in metadata.tensors() {
            let ty = type_of(info).ok_or_else(|| format!("replica {rank} has \"{name}\" of an unknown type"))?;
            let known = &all.entry(name.clone()).or_insert_with(|| (ty.clone(), rank)).0;
            if *known != ty {
                return Err(format!("\"{name}\" is {ty} in replica {rank}, and {known} in one before it"));
            }
        }
    }
    let mut states: Vec<WholeState> =
        all.into_iter().map(|(name, (ty, owner))| WholeState { name, ty, owner }).collect();
    states.sort_by(|a, b| file_order(&a.name, &a.ty).cmp(&file_order(&b.name, &b.ty)));
    Ok(states)
}
