//! `memfit train --find-lr`: steps at learning rates that rise, what their losses look like, and the rate that they suggest.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use memfit::profile::Curve;
use memfit::train::{Flow, RangeEnd, RangeTest, Trial, Tried};
use memfit_run::replicas::Peers;
use memfit_run::text::count;
use memfit_run::train::{Keeps, Planning, find_lr as find, prepare};
use memfit_run::{Purpose, file, open_among};
use serde_json::json;

use super::report::Report;
use crate::args::TrainArgs;
use crate::bar::Line;
use crate::commands::make_folder;
use crate::configs::{Configs, split_args};
use crate::failure::{self, usage};
use crate::output::outln;
use crate::settings::advised_value;
use crate::show::columns;
use crate::show::curves::{self, Axis, Plot};
use crate::signals::Signals;

/// Where nobody says for how many steps.
const STEPS: u32 = 100;
/// Fewer say nothing of a slope.
const LEAST_STEPS: usize = 10;
/// In the folder that is named by `--out`.
const FILES: [&str; 2] = ["lr.csv", "lr.svg"];

/// The range test of one run.
pub fn find_lr(range: &str, args: &TrainArgs, json: bool, peers: Option<&dyn Peers>) -> Result<()> {
    if args.settings.is_given("train", "epochs") {
        return Err(usage("--find-lr makes no epochs; say how many steps it makes with --steps"));
    }
    let test = RangeTest { steps: steps(args)?, ..read_range(range)? };
    let Configs { configs, budget } = split_args(&args.files, &[], &args.settings, peers)?;
    if configs.len() > 1 {
        return Err(usage("--find-lr looks for the learning rate of one run; name one run file"));
    }
    // Of several processes the first one writes.
    let out = configs[0].train.out.clone().filter(|_| peers.is_none_or(|peers| peers.rank() == 0));
    out.as_deref().map_or(Ok(()), check_folder)?;
    let runs = open_among(configs, Purpose::Train, false, peers)?;
    let signals = Signals::listen().context("signals cannot be listened to")?;
    let mut report = Report::new(1, json);
    let planning = Planning { budget, plan_file: None, peers, keeps: Keeps::Nothing };
    let mut trainings = prepare(runs, &planning, &mut |event| report.on_event(&event))?;
    report.finish();
    let training = trainings.remove(0);
    let label = training.run.label.clone();
    let (mut line, mut done) = (Line::new(Duration::MAX), 0);
    let mut observer = |trial: Option<&Trial>| {
        if let Some(trial) = trial {
            if json {
                outln!("{}", json!({ "event": "trial", "step": done, "lr": trial.rate, "loss": trial.loss }));
            }
            done += 1;
            line.draw(|| format!("step {done}/{}  lr {:.1e}  loss {:.4}", test.steps, trial.rate, trial.loss));
        }
        if signals.asked_to_stop() { Flow::Stop } else { Flow::Continue }
    };
    let tried = find(training, &test, &failure::farewell, &mut observer)?;
    drop(line);
    let written = out.as_deref().map(|folder| write(folder, &tried, &label)).transpose()?;
    if json {
        print_json(&tried, written.as_deref())
    } else {
        print(&tried, written.as_deref())
    }
    Ok(())
}

/// `1e-5..1`
fn read_range(text: &str) -> Result<RangeTest> {
    let wrong =
        || usage(format!("--find-lr={text}: give the first and the last learning rate, such as --find-lr=1e-6..1"));
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let [from, to] = [from, to].map(|rate| rate.trim().parse::<f32>().ok().filter(|r| r.is_normal() && *r > 0.0));
    match (from, to) {
        (Some(from), Some(to)) if from < to => Ok(RangeTest { from, to, steps: STEPS }),
        _ => Err(wrong()),
    }
}

/// What was typed; a run file says how long the training is.
fn steps(args: &TrainArgs) -> Result<u32> {
    let given = args.settings.given().find(|(key, _)| key.path() == "train.steps");
    let Some(steps) = given.and_then(|(_, value)| value.as_integer()) else { return Ok(STEPS) };
    let steps = u32::try_from(steps).ok().filter(|steps| *steps as usize >= LEAST_STEPS);
    steps.ok_or_else(|| usage(format!("--steps of --find-lr must be {LEAST_STEPS} at least, or nothing can be seen")))
}

/// Before any step is made.
fn check_folder(folder: &Path) -> Result<()> {
    match FILES.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        Some(path) => Err(usage(format!("{} is there already; name another folder with --out", path.display()))),
        None => make_folder(folder),
    }
}

/// The curve as a table and as a picture.
fn write(folder: &Path, tried: &Tried, label: &str) -> Result<Vec<PathBuf>> {
    let [table, picture] = FILES.map(|name| folder.join(name));
    file::write(&table, &tried.to_csv())?;
    let curves = Curves::new(tried);
    let names = [format!("{label}: each with its neighbours"), "as they were".into()];
    file::write(&picture, &curves::svg(&[curves.plot(true)], &names))?;
    Ok(vec![table, picture])
}

fn print_json(tried: &Tried, files: Option<&[PathBuf]>) {
    let files: Vec<String> = files.unwrap_or_default().iter().map(|path| path.display().to_string()).collect();
    outln!(
        "{}",
        json!({ "event": "find_lr", "steps": tried.trials.len(), "suggested_lr": tried.suggestion(), "end": end_name(tried.end),
                "last_lr": tried.trials.last().map(|trial| trial.rate), "files": files })
    );
}

fn end_name(end: RangeEnd) -> &'static str {
    match end {
        RangeEnd::AllTried => "all_tried",
        RangeEnd::Diverged => "diverged",
        RangeEnd::Stopped => "stopped",
    }
}

fn print(tried: &Tried, files: Option<&[PathBuf]>) {
    let Some(last) = tried.trials.last() else {
        outln!("no step was made, or the first loss is no number");
        return;
    };
    let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let curves = Curves::new(tried);
    curves.plot(is_coloured).lines(columns(), is_coloured).iter().for_each(|line| outln!("{line}"));
    let (steps, rate) = (count(tried.trials.len(), "step"), last.rate);
    match tried.end {
        RangeEnd::AllTried => outln!("{steps}; the loss did not fly away up to a learning rate of {rate:.1e}"),
        RangeEnd::Diverged => outln!("{steps}; the loss flew away at a learning rate of {rate:.1e}"),
        RangeEnd::Stopped => outln!("stopped after {steps}, at a learning rate of {rate:.1e}"),
    }
    match tried.suggestion() {
        Some(rate) => {
            let advice = memfit_run::config::find("train", "lr").map(|key| advised_value(key, &two_digits(rate)));
            outln!("try {}: a third of where the loss falls steepest", advice.unwrap_or_default());
        }
        None => outln!(
            "the loss fell nowhere by more than noise: look at the data, or try other rates with --find-lr=FROM..TO"
        ),
    }
    files.unwrap_or_default().iter().for_each(|path| outln!("written: {}", path.display()));
}

/// As a person types it.
fn two_digits(rate: f32) -> String {
    let text = format!("{rate:.1e}");
    text.parse::<f32>().map_or(text, |rate| rate.to_string())
}

/// What is drawn: each loss averaged with its neighbours, and the losses themselves.
struct Curves {
    smooth: Curve,
    losses: Curve,
    axis: Axis,
}

impl Curves {
    /// Where the loss flies away, what lies above `top` would only flatten the rest.
    fn new(tried: &Tried) -> Curves {
        let first = tried.smooth.first().copied().unwrap_or_default();
        let lowest = tried.smooth.iter().copied().fold(first, f64::min);
        let top = first + (first - lowest).max(0.1 * first.abs());
        let curve = |values: &mut dyn Iterator<Item = f64>| Curve {
            name: "loss over learning rate".into(),
            points: (0..).zip(values.map(|loss| loss.min(top))).collect(),
        };
        let end = |trial: Option<&Trial>| trial.map_or(String::new(), |trial| format!("{:.1e}", trial.rate));
        Curves {
            smooth: curve(&mut tried.smooth.iter().copied()),
            losses: curve(&mut tried.trials.iter().map(|trial| f64::from(trial.loss))),
            axis: Axis { name: "lr", ends: [end(tried.trials.first()), end(tried.trials.last())] },
        }
    }

    /// Letters of a second curve would hide the first where there are no colours.
    fn plot(&self, with_losses: bool) -> Plot<'_> {
        let losses = with_losses.then_some((1, &self.losses));
        let curves = [(0, &self.smooth)].into_iter().chain(losses).collect();
        Plot { name: &self.smooth.name, curves, axis: Some(self.axis.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_written() {
        assert_eq!(read_range("1e-5..1").unwrap(), RangeTest { from: 1e-5, to: 1.0, steps: STEPS });
        for wrong in ["1e-5", "1..1e-5", "0..1", "-1..1", "a..b", "1e-3..inf", "1e-50..1"] {
            let problem = read_range(wrong).unwrap_err().to_string();
            assert!(problem.contains("such as --find-lr=1e-6..1"), "{wrong}: {problem}");
        }
    }

    #[test]
    fn a_rate_is_told_in_two_digits() {
        assert_eq!([0.003_456f32, 1.23, 1e-6].map(two_digits), ["0.0035", "1.2", "0.000001"]);
    }
}
