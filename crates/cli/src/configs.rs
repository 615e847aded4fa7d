//! From what was typed to the configurations of runs: a run file or the folder of a run for each, and the options over it.

use std::path::PathBuf;

use anyhow::Result;
use memfit_run::config::{parse_size, scope};
use memfit_run::replicas::Peers;
use memfit_run::{RunConfig, StartedRuns};

use crate::failure::usage;
use crate::overrides::{self, Override};
use crate::settings::{Settings, list};

/// The runs of a command.
pub struct Configs {
    pub configs: Vec<RunConfig>,
    /// For all of them together, where there are several.
    pub budget: Option<u64>,
}

/// A configuration for each run file or folder; one where there is none. Of several processes the first one reads them.
pub fn split_args<const COMMAND: u16>(
    files: &[PathBuf],
    resume: &[PathBuf],
    settings: &Settings<COMMAND>,
    peers: Option<&dyn Peers>,
) -> Result<Configs> {
    if resume.len() > 1 && settings.text("memory", "budget").is_some() {
        return Err(usage("--resume goes on with the plans that the runs have; leave out --budget"));
    }
    if !resume.is_empty() && (!overrides::split(files).0.is_empty() || !settings.are_in(scope::RESUME)) {
        let options = list(scope::TRAIN | scope::RESUME);
        let refused = settings.beyond(scope::RESUME);
        let refused = if refused.is_empty() { "a run file".into() } else { refused };
        return Err(usage(format!(
            "{refused} cannot be given with --resume, which goes on with the run as it was; {options} can"
        )));
    }
    let (files, said) = overrides::split(files);
    let scope = if resume.is_empty() { COMMAND } else { COMMAND | scope::RESUME };
    let said = overrides::read(&said, &[&files, resume].concat(), scope)?;
    let mut runs = StartedRuns::read(&files, resume, peers)?;
    let configs = &mut runs.configs;
    let mut settings = settings.clone();
    let mut budget = None;
    if configs.len() > 1 {
        if !settings.are_in(scope::SEVERAL) {
            return Err(only_for_one(COMMAND, &settings.beyond(scope::SEVERAL)));
        }
        let size =
            |text: &str| parse_size(text).map_err(|problem| usage(format!("--budget must be a size: {problem}")));
        budget = settings.text("memory", "budget").map(size).transpose()?;
        settings = settings.without("memory", "budget");
    }
    for config in configs.iter_mut() {
        settings.apply(config)?;
    }
    Override::apply(&said, configs)?;
    Ok(Configs { configs: runs.settled(), budget })
}

/// Of an option that is not for several runs at once.
pub fn only_for_one(command: u16, refused: &str) -> anyhow::Error {
    let options = list(command | scope::SEVERAL);
    usage(format!(
        "{refused} cannot be given for several runs, but belongs into the run file of one, or is said of one of them, as in a.batch=61; {options} can"
    ))
}
