//! `memfit plan`: the plan of a model and where each byte goes; the frontier; the largest batch; two plans compared.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use memfit::AnyExecutor;
use memfit::exec::Executor;
use memfit::plan::MicroBatch;
use memfit::plan::bytes::{Bytes, told_apart};
use memfit::profile::compare::compare as compare_profiles;
use memfit::profile::html::{HtmlOptions, compare_html, html};
use memfit::replicas::{ReplicaBytes, largest_replica};
use memfit::search::{LIMIT, LargestBatch, largest_batch};
use memfit_run::planning::{self, Planned};
use memfit_run::profiling;
use memfit_run::text::count;
use memfit_run::together::{self, Executors, SharedMemory};
use memfit_run::{Purpose, RunResources, file, open};
use serde_json::json;

use crate::args::PlanArgs;
use crate::commands::{check_writable, make_folder};
use crate::configs::{Configs, split_args};
use crate::cure;
use crate::failure::usage;
use crate::output::outln;
use crate::progress::Progress;
use crate::show;
use crate::show::svg::{Picture, svg};
use crate::show::{columns, diff, event, frontier, summary};

pub fn plan(args: PlanArgs, json: bool) -> Result<()> {
    if let Some(files) = args.diff {
        let files: [PathBuf; 2] = files.try_into().map_err(|_| usage("--diff takes two files: before and after"))?;
        return compare([&files[0], &files[1]], None, json);
    }
    for (option, path) in [("--save", &args.save), ("--svg", &args.svg), ("--html", &args.html)] {
        path.as_deref().map_or(Ok(()), |p| check_writable(option, p))?;
    }
    let Configs { configs, budget } = split_args(&args.files, &[], &args.settings, None)?;
    let mut runs = open(configs, Purpose::Plan, budget.is_some())?;
    for run in runs.iter().filter(|_| !json) {
        if let Some(summary) = memfit_run::data::summary(run)? {
            show::data::print(run, &summary);
        }
    }
    let [run] = &mut runs[..] else {
        if args.frontier || args.max_batch || args.save.is_some() || args.html.is_some() {
            return Err(usage("--frontier, --max-batch, --save and --html are of one run; give one run file"));
        }
        return several(&mut runs, budget, json);
    };
    // Where the replica that holds the most fits, so do all.
    let replicas = run.subject(together::executor(run)?.target()).replicas()?;
    run.plan_for_rank(largest_replica(&replicas).map_or(0, |largest| largest.rank));
    if args.max_batch {
        max_batch(run, args.save.as_deref(), json)
    } else if args.frontier {
        draw(run, args.svg.as_deref(), json)
    } else {
        one(run, &replicas, args.save.as_deref(), args.html.as_deref(), json)
    }
}

fn one(
    run: &mut RunResources,
    replicas: &[ReplicaBytes],
    save: Option<&Path>,
    report: Option<&Path>,
    json: bool,
) -> Result<()> {
    let executor = together::executor(run)?;
    let planned = search(run, &executor)?;
    let planned = saved(run, &executor, planned, save)?;
    if let Some(path) = report {
        let profile = profiling::of_plan(run, &planned)?;
        file::write(path, &html(&profile, &HtmlOptions::default()))?;
    }
    if json {
        let mut event = event::plan(run, &planned);
        if run.crew.size > 1 {
            event["replicas"]["each"] = show::replicas::each(replicas);
        }
        outln!("{event}");
        print_data(std::slice::from_ref(run))?;
    } else {
        page(run, &planned);
        show::replicas::print_each(replicas);
    }
    Ok(())
}

/// What runs train on, as events.
fn print_data(runs: &[RunResources]) -> Result<()> {
    for run in runs {
        if let Some(summary) = memfit_run::data::summary(run)? {
            outln!("{}", show::data::event(run, &summary));
        }
    }
    Ok(())
}

/// The plan, with what is tried on the terminal.
fn search(run: &mut RunResources, executor: &AnyExecutor) -> Result<Planned> {
    let mut progress = Progress::new("looking for what would fit");
    Ok(planning::plan(run, executor.target(), &mut |at| progress.show(&cure::progress(at)))?)
}

/// Plans of runs that are to share their devices.
fn several(runs: &mut [RunResources], budget: Option<u64>, json: bool) -> Result<()> {
    let executors = Executors::new(runs)?;
    let mut progress = Progress::new("planning");
    let on_progress = &mut |at: planning::Progress| progress.show(&cure::progress(at));
    let planned = together::plan(runs, budget, false, &executors, on_progress)?;
    drop(progress);
    for (run, planned) in runs.iter().zip(&planned) {
        show::together::print_plan(run, planned, together::is_shared(runs, run), json);
    }
    let plans: Vec<&Planned> = planned.iter().collect();
    for members in together::groups(runs).into_iter().filter(|g| g.len() > 1) {
        show::together::print(&SharedMemory::new(runs, members, &plans, budget), json);
    }
    if json { print_data(runs) } else { Ok(()) }
}

/// Writes the plan to a file where that was asked for.
fn saved(run: &RunResources, executor: &AnyExecutor, planned: Planned, save: Option<&Path>) -> Result<Planned> {
    let Some(path) = save else { return Ok(planned) };
    planning::write(run, executor, &planned.plan, path)?;
    Ok(Planned { file: Some(path.display().to_string()), ..planned })
}

fn page(run: &RunResources, planned: &Planned) {
    summary::print(run, planned, columns());
    if let Some(file) = &planned.file {
        outln!("");
        outln!("  saved to {file}");
    }
}

fn draw(run: &RunResources, file: Option<&Path>, json: bool) -> Result<()> {
    let executor = together::executor(run)?;
    let start = Instant::now();
    let survey = run.subject(executor.target()).survey()?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if let Some(path) = file {
        let title = format!("{}, batch {}, {}", run.name, run.request.batch, run.training.precision.name());
        let (points, lower_bound) = (survey.frontier(), survey.lower_bound_bytes());
        let picture = Picture { title: &title, points: &points, lower_bound, budget: run.request.budget };
        file::write(path, &svg(&picture))?;
    }
    if json {
        outln!("{}", frontier::event(run, &survey, ms))
    } else {
        frontier::print(run, &survey, ms)
    }
    Ok(())
}

/// The largest batch in one piece; in micro-batches any batch would fit that fits at all.
fn max_batch(run: &mut RunResources, save: Option<&Path>, json: bool) -> Result<()> {
    let Some(budget) = run.request.budget else { return Err(usage("--max-batch needs a --budget")) };
    if !matches!(run.request.micro_batch, MicroBatch::Auto | MicroBatch::Off) {
        return Err(usage("--max-batch looks for a batch in one piece; leave out --micro-batch"));
    }
    run.request.micro_batch = MicroBatch::Off;
    let executor = together::executor(run)?;
    let start = Instant::now();
    let mut progress = Progress::new("trying");
    let subject = run.subject(executor.target());
    let LargestBatch { plan, tried } =
        largest_batch(&subject, budget, None, &mut |change| progress.show(&cure::option(change)))?;
    drop(progress);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let batch = plan.map_or(1, |p| p.batch);
    run.request.batch = batch;
    // Where not even one sample fits, this is the refusal that says so.
    let planned = search(run, &executor)?;
    let planned = saved(run, &executor, planned, save)?;
    if json {
        let tried: Vec<_> =
            tried.iter().map(|t| json!({ "batch": t.batch, "needed_bytes": t.needed, "fits": t.fits })).collect();
        outln!(
            "{}",
            json!({ "event": "max_batch", "model": run.name, "budget_bytes": budget, "batch": batch,
                    "is_limit": batch == LIMIT, "tried": tried, "search_ms": ms, "plan": event::plan(run, &planned) })
        );
        return Ok(());
    }
    for t in &tried {
        let needed = t.needed.map_or("more than can be counted".into(), |n| told_apart(n, budget)[0].clone());
        outln!("  batch {:>7}  {needed:>10}  {}", t.batch, if t.fits { "fits" } else { "does not fit" });
    }
    let more = if batch == LIMIT { "; larger ones were not tried" } else { "" };
    outln!(
        "the largest batch in {} is {batch}{more}; planned {} in {ms:.0} ms",
        Bytes(budget),
        count(tried.len(), "batch")
    );
    outln!("");
    page(run, &planned);
    Ok(())
}

/// What changed between two plans, profiles or runs, as text or as one event; and where that is asked for, as files in a folder.
pub fn compare(files: [&Path; 2], folder: Option<&Path>, as_json: bool) -> Result<()> {
    let [a, b] = [profiling::read(files[0])?, profiling::read(files[1])?];
    let comparison = compare_profiles(&a.profile, &b.profile).map_err(usage)?;
    let plans = a.plan.as_ref().zip(b.plan.as_ref()).map(|(a, b)| [a, b]);
    let names = files.map(|f| f.display().to_string());
    let event = diff::event([&a.profile.run, &b.profile.run], &comparison, plans);
    let text = diff::markdown([&names[0], &names[1]], &comparison, plans);
    if let Some(folder) = folder {
        make_folder(folder)?;
        let (tables, options) = (comparison.tables(), HtmlOptions::default());
        let page = compare_html(&a.profile, &b.profile, &text, &tables, &options);
        for (name, content) in [("compare.html", &page), ("compare.md", &text), ("compare.json", &event.to_string())] {
            file::write(&folder.join(name), content)?;
        }
    }
    if as_json {
        outln!("{event}");
    } else {
        outln!("{}", text.trim_end());
    }
    Ok(())
}
