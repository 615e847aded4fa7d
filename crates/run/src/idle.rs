//! What was set over a run's file and is of no use there: a wish that would not be heard.

use memfit::exec::Executor;
use memfit::transform::{BatchDependence, BatchNorm, Shard};

use crate::config::{Key, find};
use crate::error::Result;
use crate::resources::RunResources;
use crate::together;

/// A key that was set over the file, and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    pub key: &'static Key,
    pub why: Why,
}

/// Why a key has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is nobody to exchange anything with.
    OneReplica,
    /// There is nobody to share the device with.
    OneRun,
    /// The optimizer keeps nothing that could be dealt out: who updates which parameter saves no byte.
    NoStates { optimizer: String },
    /// The model has no batch norm.
    NoBatchNorms { model: String },
}

/// What of replicas, and of runs that share a device, was said in vain.
pub fn idle(run: &RunResources) -> Result<Vec<Idle>> {
    let (mut found, crew) = (Vec::new(), &run.crew);
    let mut add = |name: &str, why: Why| {
        let said = find("replicas", name).filter(|_| run.config.is_overridden("replicas", name));
        found.extend(said.map(|key| Idle { key, why }));
    };
    let is_sharded = crew.shard == Shard::Optimizer;
    if crew.size == 1 {
        for name in ["piece", "stall", "link"].into_iter().chain(is_sharded.then_some("shard")) {
            add(name, Why::OneReplica);
        }
    } else if is_sharded && run.training.update.slots().is_empty() {
        add("shard", Why::NoStates { optimizer: run.optimizer.clone() });
    }
    if crew.batch_norm == BatchNorm::Synchronised && !has_batch_norms(run)? {
        add("batch_norm", Why::NoBatchNorms { model: run.name.clone() });
    }
    let shared = ["share", "priority"].into_iter().filter(|name| run.config.is_overridden("train", name));
    let alone = shared.filter(|_| !run.is_one_of_several).filter_map(|name| find("train", name));
    found.extend(alone.map(|key| Idle { key, why: Why::OneRun }));
    Ok(found)
}

fn has_batch_norms(run: &RunResources) -> Result<bool> {
    let executor = together::executor(run)?;
    let dependence = run.subject(executor.target()).batch_dependence()?;
    Ok(matches!(dependence, Some(BatchDependence::BatchStatistics { .. })))
}
