//! What was typed, as a run file would say it; and what is checked before anything is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use memfit_run::config::Said;
use memfit_run::{parse_size, read_file};

use crate::args::{Overrides, Pack};
use crate::failure::usage;

/// What a run file says, with what was typed besides it.
pub fn said(o: &Overrides) -> Result<Said> {
    let said = match &o.files[..] {
        [] => Said::default(),
        [path] => read_file(path)?,
        _ => return Err(usage("one run file at a time")),
    };
    said_besides(said, o)
}

pub fn said_besides(mut said: Said, o: &Overrides) -> Result<Said> {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let path = |p: &PathBuf| p.to_string_lossy().into_owned();
    if let Some(model) = &o.model {
        said.say("--model", "model", "name", model.as_str());
    }
    if let Some(input) = &o.input {
        said.say("--input", "model", "input", parse_input(input)?.into_iter().map(count).collect::<Vec<i64>>());
    }
    if let Some(classes) = o.classes {
        said.say("--classes", "model", "classes", count(classes));
    }
    if !o.freeze.is_empty() {
        said.say("--freeze", "model", "freeze", o.freeze.clone());
    }
    if let Some(data) = &o.data {
        said.say("--data", "data", "train", path(data));
        // The digits are no kind of file.
        said.unsay("data", "kind", "digits");
    }
    if let Some(batch) = o.batch {
        said.say("--batch", "train", "batch", count(batch));
    }
    if let Some(micro_batch) = &o.micro_batch {
        said.say("--micro-batch", "train", "micro_batch", micro_batch.as_str());
    }
    if let Some(optimizer) = &o.optimizer {
        said.say("--optimizer", "train", "optimizer", optimizer.as_str());
    }
    if let Some(lr) = o.lr {
        said.say("--lr", "train", "lr", lr);
    }
    if let Some(precision) = &o.precision {
        said.say("--precision", "train", "precision", precision.as_str());
    }
    if let Some(seed) = o.seed {
        said.say("--seed", "train", "seed", i64::try_from(seed).map_err(|_| usage("--seed must be below 2^63"))?);
    }
    if let Some(budget) = &o.budget {
        said.say("--budget", "memory", "budget", budget.as_str());
    }
    if let Some(budget) = &o.host_budget {
        said.say("--host-budget", "memory", "host_budget", budget.as_str());
    }
    if let Some(threads) = o.threads {
        said.say("--threads", "memory", "threads", count(threads));
    }
    if o.profile.is_some() {
        return Err(usage("--profile is now --cost-model: say that"));
    }
    if let Some(cost_model) = &o.cost_model {
        said.say("--cost-model", "memory", "cost_model", path(cost_model));
    }
    if let Some(device) = &o.device {
        said.say("--device", "memory", "device", device.as_str());
    }
    if !o.logical.is_empty() {
        said.say("--logical", "memory", "logical", o.logical.clone());
    }
    if let Some(growth) = &o.growth {
        said.say("--growth", "memory", "growth", growth.as_str());
    }
    Ok(said)
}

/// A validated packing.
pub struct PackRun {
    pub file: PathBuf,
    /// Bytes.
    pub capacity: Option<u64>,
    pub timeout: Duration,
    pub out: Option<PathBuf>,
    pub json: bool,
}

impl PackRun {
    pub fn new(args: Pack, json: bool) -> Result<PackRun> {
        let capacity = args.capacity.as_deref().map(parse_size).transpose();
        let timeout = Duration::try_from_secs_f64(args.timeout)
            .map_err(|_| usage(format!("--timeout must be a number of seconds, 0 or more, but is {}", args.timeout)))?;
        if let Some(path) = &args.out {
            check_writable("--out", path)?;
        }
        let capacity = capacity.map_err(usage).context("--capacity")?;
        Ok(PackRun { file: args.file, capacity, timeout, out: args.out, json })
    }
}

/// Whether a file can be written there, as far as that can be known before it is.
pub fn check_writable(option: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !folder.is_dir() {
        let problem = format!("{option} {} cannot be written: name a file in a folder that exists", path.display());
        return Err(usage(problem));
    }
    Ok(())
}

fn parse_input(text: &str) -> Result<Vec<usize>> {
    let sizes: Result<Vec<usize>, _> = text.split('x').map(|s| s.trim().parse::<usize>()).collect();
    sizes.map_err(|_| usage(format!("--input \"{text}\" is not a size; write it like 224x224x3")))
}
