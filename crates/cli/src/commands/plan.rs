//! `memfit plan`: the plan of a model and where each byte goes; the frontier; the largest batch; two plans compared.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use memfit::exec::Executor;
use memfit::plan::MicroBatch;
use memfit::plan::bytes::Bytes;
use memfit::search::{LIMIT, Largest, largest_batch};
use memfit::{CpuExecutor, Plan, Request};
use serde_json::json;

use crate::cure;
use crate::progress::Progress;
use crate::runs::{PlanRun, Wanted};
use crate::say::say;
use crate::show;
use crate::show::svg::{Picture, svg};
use crate::show::{brief, columns, diff, event, frontier, summary};
use memfit_run::Place;
use memfit_run::Run;
use memfit_run::file;
use memfit_run::planning::{self, Planned};
use memfit_run::text::count;
use memfit_run::together::{self, Neighbour, Shared};

pub fn plan(run: &PlanRun) -> Result<()> {
    match run {
        PlanRun::Together { runs, budget } => several(runs, *budget),
        PlanRun::Diff { files, json } => compare([&files[0], &files[1]], *json),
        PlanRun::Model { run, wanted: Wanted::Plan { save } } => one(run, save.as_deref()),
        PlanRun::Model { run, wanted: Wanted::Frontier { svg } } => draw(run, svg.as_deref()),
        PlanRun::Model { run, wanted: Wanted::MaxBatch { budget, save } } => max_batch(run, *budget, save.as_deref()),
    }
}

/// A plan before a training: a few lines, or one event.
pub fn print(run: &Run, planned: &Planned) {
    if run.json { say!("{}", event::plan(run, planned)) } else { brief::print(run, planned, false) }
}

fn one(run: &Run, save: Option<&Path>) -> Result<()> {
    let executor = CpuExecutor::new(run.threads)?;
    let planned = kept(run, &executor, searched(run, &executor)?, save)?;
    if run.json {
        say!("{}", event::plan(run, &planned))
    } else {
        page(run, &planned)
    }
    Ok(())
}

/// The plan, with what is tried on the terminal.
pub fn searched(run: &Run, executor: &CpuExecutor) -> Result<Planned> {
    let mut progress = Progress::new("looking for what would fit");
    planning::plan(run, executor, &mut |at| progress.show(&cure::progress(at)))
}

/// Plans of runs that are to share their devices.
fn several(runs: &[(Run, Place)], budget: Option<u64>) -> Result<()> {
    let runs: Vec<Neighbour> = runs.iter().map(|(run, place)| place.neighbour(run)).collect();
    let executor = CpuExecutor::new(together::threads(&runs)?)?;
    let planned = {
        let mut progress = Progress::new("planning");
        together::plan(&runs, budget, false, &executor, &mut |at| progress.show(&cure::progress(at)))?
    };
    for (run, planned) in runs.iter().zip(&planned) {
        show::together::print_plan(run, planned, together::is_shared(&runs, run));
    }
    let plans: Vec<&Plan> = planned.iter().map(|p| &p.plan).collect();
    for members in together::groups(&runs).into_iter().filter(|g| g.len() > 1) {
        show::together::print(&Shared::new(&runs, &members, &plans, budget), runs[members[0]].run.json);
    }
    Ok(())
}

/// Writes the plan down where that was asked for.
fn kept(run: &Run, executor: &CpuExecutor, planned: Planned, save: Option<&Path>) -> Result<Planned> {
    let Some(path) = save else { return Ok(planned) };
    planning::write(run, executor, &planned.plan, path)?;
    Ok(Planned { file: Some(path.display().to_string()), ..planned })
}

fn page(run: &Run, planned: &Planned) {
    summary::print(run, planned, columns());
    if let Some(file) = &planned.file {
        say!("");
        say!("  saved to {file}");
    }
}

fn draw(run: &Run, file: Option<&Path>) -> Result<()> {
    let executor = CpuExecutor::new(run.threads)?;
    let start = Instant::now();
    let survey = run.subject(executor.target()).survey()?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if let Some(path) = file {
        let title = format!("{}, batch {}, {}", run.name, run.request.batch, run.training.precision.name());
        let (points, lower_bound) = (survey.frontier(), survey.lower_bound_bytes());
        let picture = Picture { title: &title, points: &points, lower_bound, budget: run.request.budget };
        file::write(path, &svg(&picture))?;
    }
    if run.json {
        say!("{}", frontier::event(run, &survey, ms))
    } else {
        frontier::print(run, &survey, ms)
    }
    Ok(())
}

/// The largest batch in one piece; in micro-batches any batch would fit that fits at all.
fn max_batch(run: &Run, budget: u64, save: Option<&Path>) -> Result<()> {
    let executor = CpuExecutor::new(run.threads)?;
    let start = Instant::now();
    let mut progress = Progress::new("trying");
    let Largest { plan, tried } = largest_batch(&run.subject(executor.target()), budget, None, &mut |change| {
        progress.show(&cure::option(change))
    })?;
    drop(progress);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let batch = plan.map_or(1, |p| p.batch);
    let run = Run { request: Request { batch, micro_batch: MicroBatch::Off, ..run.request.clone() }, ..run.clone() };
    // Where not even one sample fits, this is the refusal that says so.
    let planned = kept(&run, &executor, searched(&run, &executor)?, save)?;
    if run.json {
        let tried: Vec<_> =
            tried.iter().map(|t| json!({ "batch": t.batch, "needed_bytes": t.needed, "fits": t.fits })).collect();
        say!(
            "{}",
            json!({ "event": "max_batch", "model": run.name, "budget_bytes": budget, "batch": batch,
                    "is_limit": batch == LIMIT, "tried": tried, "search_ms": ms, "plan": event::plan(&run, &planned) })
        );
        return Ok(());
    }
    for t in &tried {
        let needed = t.needed.map_or("more than can be counted".into(), |n| Bytes(n).to_string());
        say!("  batch {:>7}  {needed:>10}  {}", t.batch, if t.fits { "fits" } else { "does not fit" });
    }
    let more = if batch == LIMIT { "; larger ones were not tried" } else { "" };
    say!(
        "the largest batch in {} is {batch}{more}; planned {} in {ms:.0} ms",
        Bytes(budget),
        count(tried.len(), "batch")
    );
    say!("");
    page(&run, &planned);
    Ok(())
}

fn compare(files: [&Path; 2], as_json: bool) -> Result<()> {
    let (a, b) = (planning::read(files[0])?, planning::read(files[1])?);
    if as_json {
        say!("{}", diff::event(&a, &b));
    } else {
        let names = files.map(|f| f.display().to_string());
        say!("{}", diff::markdown([&names[0], &names[1]], &a, &b).trim_end());
    }
    Ok(())
}
