//! Processes that train the same runs, before the first step: all have to be about to compute the same, or nothing is begun.
//! Whoever differs is named, with what it differs in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memfit::data::BytePool;
use memfit::exec::{Checksum, ExecError, Wire, WireError};
use memfit::ir::fingerprint;
use memfit::{AnyExecutor, Plan};
use serde::{Deserialize, Serialize};

use crate::config::KEYS;
use crate::data::DataSources;
use crate::error::{Result, RunError};
use crate::planning;
use crate::replicas::Peers;
use crate::resources::RunResources;

/// Something that all processes have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    what: String,
    value: String,
}

/// Rows of a set that are looked at.
const ROWS: usize = 8;

fn fact(what: &str, value: String) -> Fact {
    Fact { what: what.into(), value }
}

/// What processes were started with, before anything is read. Which files these are the first of them says.
pub(crate) fn started_with(files: &[PathBuf], resume: &[PathBuf]) -> Vec<Fact> {
    let words = |paths: &[PathBuf]| match paths {
        [] => planning::NOT_SET.into(),
        paths => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
    };
    vec![version(), fact("run file", words(files)), fact("run to go on with", words(resume))]
}

fn version() -> Fact {
    fact("version of memfit", env!("CARGO_PKG_VERSION").into())
}

/// What decides the bits that a run ends in.
pub(super) fn facts(run: &RunResources, executor: &AnyExecutor, plan: &Plan) -> Result<Vec<Fact>> {
    let mut facts = vec![version()];
    // Threads may differ, and no bit with them.
    let identity = executor.identity().into_iter().filter(|(name, _)| *name != planning::THREADS);
    facts.extend(
        identity
            .map(|(name, value)| fact(if name == planning::INSTRUCTIONS { "instruction set" } else { name }, value)),
    );
    facts.push(fact("seed", run.seed.to_string()));
    let computes = |section: &str| matches!(section, "model" | "data" | "train" | "replicas");
    // Where a run lies and how long somebody waits changes nothing.
    let is_own = |name: &str| {
        matches!(name, "out" | "share" | "priority" | "save_every" | "keep" | "stall" | "count" | "link" | "cache")
    };
    for key in KEYS.iter().filter(|key| computes(key.section) && !key.is_path && !is_own(key.name)) {
        let value = run.config.value(key.section, key.name);
        facts.push(fact(&key.path(), value.map_or_else(|| planning::NOT_SET.into(), ToString::to_string)));
    }
    // After what they follow from, which says more.
    facts.push(fact("batch", plan.batch.to_string()));
    facts.push(fact("order of exchanges", format!("{:016x}", plan.exchange_hash())));
    facts.push(fact("micro-batch", plan.micro_batch.to_string()));
    let source = planning::labels(run, executor, plan.micro_batch)?.remove("source");
    facts.push(fact("model", source.unwrap_or_default()));
    // What is in it the first process says.
    let weights = run.config.model.weights.as_ref().filter(|_| run.config.run_folder().is_none());
    facts.push(fact("weights to start from", weights.map_or(planning::NOT_SET.into(), |file| absolute(file))));
    if let Some(sources) = run.data.as_deref() {
        facts.extend(of_data(sources, &run.pool));
    }
    Ok(facts)
}

/// How many samples there are, and what some of them hold: files may have other times and paths on every machine.
fn of_data(sources: &DataSources, pool: &BytePool) -> Vec<Fact> {
    let mut facts = Vec::new();
    let sets = [("training", Some(&sources.train)), ("test", sources.test.as_ref())];
    for (name, set) in sets.into_iter().filter_map(|(name, set)| Some((name, set?))) {
        let count = set.len();
        facts.push(Fact { what: format!("number of samples of the {name} set"), value: count.to_string() });
        for row in (0..ROWS.min(count)).map(|i| i * count / ROWS.min(count)) {
            // One that cannot be read is told of when it is its turn.
            let value = set.read_row(row, pool).map_or(String::new(), |example| {
                let bytes = |(name, tensor): &(String, memfit::data::Tensor)| {
                    format!("{name} {:016x}", Checksum::of_bytes(tensor.bytes()))
                };
                example.fields.iter().map(bytes).collect::<Vec<_>>().join(" ")
            });
            facts.push(Fact { what: format!("sample {row} of the {name} set"), value });
        }
    }
    let classes = format!("{:016x}", fingerprint(&sources.schema.classes.join("\n")));
    facts.push(Fact { what: "names of the classes".into(), value: classes });
    facts
}

/// As it is called from anywhere.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.into()).display().to_string()
}

/// The connections of the runs.
pub(super) fn connect(peers: &dyn Peers, stalls: &[Duration]) -> Result<Vec<Box<dyn Wire>>> {
    stalls.iter().map(|stall| peers.wire(*stall).map_err(lost)).collect()
}

/// Meets all other processes, who have to be about to do the same.
pub(crate) fn meet(peers: &dyn Peers, facts: &[Vec<Fact>]) -> Result<()> {
    let own = serde_json::to_vec(facts).map_err(|e| RunError::conflict(e.to_string()))?;
    let all = peers.gather(&own).map_err(lost)?;
    let mut known: Vec<Vec<Vec<Fact>>> = Vec::new();
    for (rank, words) in all.iter().enumerate() {
        // What another version says may not even be readable.
        let unread = || RunError::PeerDiffers {
            rank,
            what: "version of memfit".into(),
            theirs: "another one".into(),
            first: env!("CARGO_PKG_VERSION").into(),
        };
        known.push(serde_json::from_slice(words).map_err(|_| unread())?);
    }
    difference(&known).map_or(Ok(()), Err)
}

pub(crate) fn lost(source: WireError) -> RunError {
    RunError::Exec(ExecError::Wire { layer: String::new(), source })
}

/// The first process that differs from the first one, and in what.
fn difference(all: &[Vec<Vec<Fact>>]) -> Option<RunError> {
    let first = all.first()?;
    all.iter().enumerate().find_map(|(rank, theirs)| {
        if theirs.len() != first.len() {
            let count = |runs: &[Vec<Fact>]| runs.len().to_string();
            let what = "number of runs".into();
            return Some(RunError::PeerDiffers { rank, what, theirs: count(theirs), first: count(first) });
        }
        theirs.iter().zip(first).find_map(|(theirs, first)| of_run(rank, theirs, first))
    })
}

fn of_run(rank: usize, theirs: &[Fact], first: &[Fact]) -> Option<RunError> {
    let differ = |(theirs, first): (&Fact, &Fact)| {
        let is_unread = theirs.value.is_empty() || first.value.is_empty();
        let differs = theirs.what != first.what || (theirs.value != first.value && !is_unread);
        differs.then(|| RunError::PeerDiffers {
            rank,
            what: first.what.clone(),
            theirs: theirs.value.clone(),
            first: first.value.clone(),
        })
    };
    let of_length = || {
        (theirs.len() != first.len()).then(|| RunError::PeerDiffers {
            rank,
            what: "number of sets".into(),
            theirs: theirs.len().to_string(),
            first: first.len().to_string(),
        })
    };
    theirs.iter().zip(first).find_map(differ).or_else(of_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(values: &[(&str, &str)]) -> Vec<Vec<Fact>> {
        vec![values.iter().map(|(what, value)| Fact { what: (*what).into(), value: (*value).into() }).collect()]
    }

    #[test]
    fn whoever_differs_is_named_with_what_it_differs_in() {
        let first = facts(&[("seed", "1"), ("sample 0", "abc")]);
        let same = |others: &[Vec<Vec<Fact>>]| {
            let all: Vec<_> = std::iter::once(first.clone()).chain(others.iter().cloned()).collect();
            difference(&all).map(|e| e.to_string())
        };
        assert_eq!(same(&[first.clone(), first.clone()]), None);
        assert_eq!(
            same(&[facts(&[("seed", "1"), ("sample 0", "")])]),
            None,
            "what cannot be read is no difference yet"
        );
        let problem = same(&[first.clone(), facts(&[("seed", "2"), ("sample 0", "abc")])]).expect("another seed");
        assert!(problem.contains("replica 2") && problem.contains("seed") && problem.contains('2'), "{problem}");
        let problem = same(&[facts(&[("seed", "1")])]).expect("fewer facts");
        assert!(problem.contains("replica 1"), "{problem}");
        assert!(same(&[Vec::new()]).expect("no run").contains("number of runs"));
    }
}
