//! `memfit train`: plan, take the memory, train, evaluate; and leave a folder from which it can go on. One run is a set of one.
//! `find_lr.rs` looks for a learning rate instead.

mod board;
mod find_lr;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memfit_run::config::scope;
use memfit_run::replicas::Peers;
use memfit_run::train::{End, Planning, prepare, run_all};
use memfit_run::{Purpose, RunConfig, StartedRuns, open_among};

use crate::args::TrainArgs;
use crate::configs::{Configs, only_for_one, split_args};
use crate::failure::{Interrupted, Stopped};
use crate::launch::among_peers;
use crate::show::idle::InVain;
use crate::signals::Signals;
use board::Board;
use report::Report;

pub fn train(args: TrainArgs, json: bool) -> Result<()> {
    among_peers(json, || stall(&args), |peers| train_among(args.clone(), json, peers))
}

/// How long other processes are waited for, as far as it is known before this one has met them: the first alone has to have the files.
fn stall(args: &TrainArgs) -> Option<Duration> {
    let are_here = args.files.iter().all(|file| file.is_file());
    let runs = are_here.then(|| StartedRuns::read(&args.files, &args.resume, None).ok()).flatten();
    let mut configs = runs.map_or_else(|| vec![RunConfig::default()], StartedRuns::settled);
    // What is wrong with it is told when all have met.
    configs.iter_mut().for_each(|config| drop(args.settings.apply(config)));
    configs.iter().filter_map(|config| config.replicas.stall).max()
}

/// Trains with all processes that do the same.
fn train_among(args: TrainArgs, json: bool, peers: Option<&dyn Peers>) -> Result<()> {
    if let Some(range) = &args.find_lr {
        return find_lr::find_lr(range, &args, json, peers);
    }
    let Configs { configs, budget } = split_args(&args.files, &args.resume, &args.settings, peers)?;
    if configs.len() > 1 && args.plan.is_some() {
        return Err(only_for_one(scope::TRAIN, "--plan"));
    }
    let runs = open_among(configs, Purpose::Train, budget.is_some(), peers)?;
    let in_vain = InVain::told(&runs, json)?;
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let started = Instant::now();
    let mut report = Report::new(runs.len(), json);
    let planning = Planning { budget, plan_file: args.plan, peers, ..Planning::default() };
    let trainings = prepare(runs, &planning, &mut |event| report.on_event(&event))?;
    report.finish();
    in_vain.finish();
    let board = Board::new(&trainings, signals, started, json, peers.map(Peers::resident_bytes_taken));
    let ends = run_all(trainings, &board);
    drop(board);
    finish(ends)
}

/// The result of all: what failed, or how to go on with what was stopped.
fn finish(ends: Vec<End>) -> Result<()> {
    let count = ends.len();
    let (mut stopped, mut failed) = (Vec::new(), Vec::new());
    for end in ends {
        match end {
            End::Finished => {}
            End::Interrupted { folder, saved } => stopped.push(Stopped { folder, saved }),
            End::Failed { label, error } => failed.push((label, anyhow::Error::from(error))),
        }
    }
    let labels: Vec<String> = failed.iter().map(|(label, _)| label.clone()).collect();
    let interrupted = (!stopped.is_empty()).then_some(Interrupted { runs: stopped });
    match (failed.into_iter().next(), interrupted) {
        (None, None) => Ok(()),
        (None, Some(interrupted)) => Err(interrupted.into()),
        (Some((_, error)), _) if count == 1 => Err(error),
        (Some((_, error)), interrupted) => {
            let others = interrupted.map_or(String::new(), |i| format!("; the others were {i}"));
            Err(error.context(format!("{} of {count} runs failed ({}){others}", labels.len(), labels.join(", "))))
        }
    }
}
