//! `memfit plan`: the plan of a model and where each byte goes; the frontier; the largest batch; two plans compared.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use memfit::exec::Executor;
use memfit::plan::MicroBatch;
use memfit::plan::bytes::{Bytes, told_apart};
use memfit::profile::compare::compare as compare_profiles;
use memfit::profile::html::{HtmlOptions, compare_html, html};
use memfit::replicas::{ReplicaBytes, largest_replica};
use memfit::search::{LIMIT, LargestBatch, TriedBatch, largest_batch};
use memfit_run::planning::{self, Planned};
use memfit_run::profiling;
use memfit_run::replicas::begin_search;
use memfit_run::text::count;
use memfit_run::together::{self, Executors, SharedMemory};
use memfit_run::{Purpose, RunResources, by_replica, file, open};
use serde_json::json;

use crate::args::PlanArgs;
use crate::commands::{check_replaceable, make_folder};
use crate::configs::{Configs, split_args};
use crate::cure;
use crate::failure::usage;
use crate::output::outln;
use crate::progress::Progress;
use crate::show;
use crate::show::idle::InVain;
use crate::show::svg::{Picture, svg};
use crate::show::{columns, diff, event, frontier, summary};

pub fn plan(args: PlanArgs, json: bool) -> Result<()> {
    if let Some(files) = args.diff {
        let files: [PathBuf; 2] = files.try_into().map_err(|_| usage("--diff takes two files: before and after"))?;
        return compare([&files[0], &files[1]], None, json);
    }
    let written = [("--save", &args.save, "json"), ("--svg", &args.svg, "svg"), ("--html", &args.html, "html")];
    for (option, path, ending) in written {
        path.as_deref().map_or(Ok(()), |p| check_replaceable(option, p, ending))?;
    }
    let Configs { mut configs, budget } = split_args(&args.files, &[], &args.settings, None)?;
    if args.max_batch {
        configs.iter_mut().try_for_each(begin_search)?;
    }
    let runs = open(configs, Purpose::Plan, budget.is_some())?;
    for run in runs.iter().filter(|_| !json) {
        if let Some(summary) = memfit_run::data::summary(run)? {
            show::data::print(run, &summary);
        }
    }
    let in_vain = InVain::told(&runs, json)?;
    if runs.len() > 1 {
        if args.frontier || args.max_batch || args.save.is_some() || args.html.is_some() {
            return Err(usage("--frontier, --max-batch, --save and --html are of one run; give one run file"));
        }
        several(by_replica(runs), budget, json)?;
    } else {
        one(by_replica(runs).into_iter().flatten().collect(), &args, json)?;
    }
    in_vain.finish();
    Ok(())
}

/// What is asked of one run, of which each replica with a device of its own is there, or one for all of them.
fn one(mut replicas: Vec<RunResources>, args: &PlanArgs, json: bool) -> Result<()> {
    let holds = tightest_first(&mut replicas)?;
    let save = args.save.as_deref();
    if args.max_batch {
        max_batch(&mut replicas, save, json)
    } else if args.frontier {
        replicas.first().map_or(Ok(()), |run| draw(run, args.svg.as_deref(), json))
    } else {
        plans(&mut replicas, &holds, save, args.html.as_deref(), json)
    }
}

/// The plan of the first replica as a page, once all others are known to fit too.
fn plans(
    replicas: &mut [RunResources],
    holds: &[ReplicaBytes],
    save: Option<&Path>,
    report: Option<&Path>,
    json: bool,
) -> Result<()> {
    let all = replicas.iter_mut().map(search).collect::<Result<Vec<Planned>>>()?;
    let mut all = all.into_iter();
    let (Some(run), Some(planned)) = (replicas.first(), all.next()) else { return Ok(()) };
    let planned = saved(run, planned, save)?;
    if let Some(path) = report {
        let profile = profiling::of_plan(run, &planned)?;
        file::write(path, &html(&profile, &HtmlOptions::default()))?;
    }
    let others: Vec<Planned> = all.collect();
    // Of one that stands for all there are no parts.
    let parts = replicas.iter().zip(std::iter::once(&planned).chain(&others)).filter(|_| !others.is_empty());
    let parts: Vec<(&RunResources, &Planned)> = parts.collect();
    if json {
        let mut event = event::plan(run, &planned);
        if run.crew.size > 1 {
            event["replicas"]["each"] = show::replicas::each(holds, &parts);
        }
        outln!("{event}");
        print_data(std::slice::from_ref(run))?;
    } else {
        page(run, &planned);
        show::replicas::print_each(holds);
        show::replicas::print_parts(&parts);
    }
    Ok(())
}

/// What each replica holds. Those that have devices of their own are put in order, the one with the least left there first; one
/// that stands for all is planned as the one that holds the most: where that fits, so do all.
fn tightest_first(replicas: &mut [RunResources]) -> Result<Vec<ReplicaBytes>> {
    let Some(first) = replicas.first() else { return Ok(Vec::new()) };
    let holds = first.subject(together::executor(first)?.target()).replicas()?;
    match replicas {
        [one] => one.plan_for_rank(largest_replica(&holds).map_or(0, |largest| largest.rank))?,
        all => all.sort_by_key(|run| left(std::slice::from_ref(run), holds[run.rank()].bytes())),
    }
    Ok(holds)
}

/// What is left of a device when states and sums of the runs there have so many bytes; the most where it has no limit.
fn left(runs: &[RunResources], held: u64) -> i128 {
    let may = runs.iter().filter_map(|run| run.request.budget).min();
    may.map_or(i128::MAX, |may| i128::from(may) - i128::from(held))
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
fn search(run: &mut RunResources) -> Result<Planned> {
    let executor = together::executor(run)?;
    let mut progress = Progress::new("looking for what would fit");
    let planned = planning::plan(run, executor.target(), &mut |at| progress.show(&cure::progress(at)));
    Ok(run.of_replica(planned)?)
}

/// Plans of runs that are to share their devices: those of the replicas with the least left are shown, once all others are known to
/// fit too.
fn several(mut replicas: Vec<Vec<RunResources>>, budget: Option<u64>, json: bool) -> Result<()> {
    let held = held_together(&replicas)?;
    match &mut replicas[..] {
        [runs] => {
            let most = (0..held.len()).rev().max_by_key(|rank| held[*rank]).unwrap_or(0);
            runs.iter_mut().try_for_each(|run| run.plan_for_rank(most))?;
        }
        all => all.sort_by_key(|runs| runs.first().map_or(i128::MAX, |run| left(runs, held[run.rank()]))),
    }
    let mut planned = Vec::new();
    for runs in &mut replicas {
        planned.push(plan_together(runs, budget)?);
    }
    match (replicas.first(), planned.first()) {
        (Some(runs), Some(planned)) => print_several(runs, planned, budget, json),
        _ => Ok(()),
    }
}

/// By rank, what the replicas of all runs hold.
fn held_together(replicas: &[Vec<RunResources>]) -> Result<Vec<u64>> {
    let mut held = Vec::new();
    for run in replicas.first().into_iter().flatten() {
        let of_run = run.subject(together::executor(run)?.target()).replicas()?;
        held.resize(of_run.len().max(held.len()), 0);
        held.iter_mut().zip(&of_run).for_each(|(sum, replica)| *sum += replica.bytes());
    }
    Ok(held)
}

fn plan_together(runs: &mut [RunResources], budget: Option<u64>) -> Result<Vec<Planned>> {
    let executors = Executors::new(runs)?;
    let mut progress = Progress::new("planning");
    let on_progress = &mut |at: planning::Progress| progress.show(&cure::progress(at));
    Ok(together::plan(runs, budget, false, &executors, on_progress)?)
}

fn print_several(runs: &[RunResources], planned: &[Planned], budget: Option<u64>, json: bool) -> Result<()> {
    for (run, planned) in runs.iter().zip(planned) {
        show::together::print_plan(run, planned, together::is_shared(runs, run), json);
    }
    let plans: Vec<&Planned> = planned.iter().collect();
    for members in together::groups(runs).into_iter().filter(|g| g.len() > 1) {
        show::together::print(&SharedMemory::new(runs, members, &plans, budget), json);
    }
    if json { print_data(runs) } else { Ok(()) }
}

/// Writes the plan to a file where that was asked for.
fn saved(run: &RunResources, planned: Planned, save: Option<&Path>) -> Result<Planned> {
    let Some(path) = save else { return Ok(planned) };
    planning::write(run, &together::executor(run)?, &planned.plan, path)?;
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

/// The largest batch in one piece, and of which all replicas fit; in micro-batches any batch would fit that fits at all.
fn max_batch(replicas: &mut [RunResources], save: Option<&Path>, json: bool) -> Result<()> {
    for run in replicas.iter_mut() {
        if !matches!(run.request.micro_batch, MicroBatch::Auto | MicroBatch::Off) {
            return Err(usage("--max-batch looks for a batch in one piece; leave out --micro-batch"));
        }
        run.request.micro_batch = MicroBatch::Off;
    }
    let Some(budget) = replicas.first().and_then(|run| run.request.budget) else {
        return Err(usage("--max-batch needs a --budget"));
    };
    let start = Instant::now();
    let tried = largest_of_all(replicas)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    // Where not even one sample for each lane fits, this is the refusal that says so.
    let all = replicas.iter_mut().map(search).collect::<Result<Vec<Planned>>>()?;
    let (Some(run), Some(planned)) = (replicas.first(), all.into_iter().next()) else { return Ok(()) };
    let (batch, planned) = (run.request.batch, saved(run, planned, save)?);
    let is_limit = batch + run.crew.lanes > LIMIT;
    if json {
        let tried: Vec<_> =
            tried.iter().map(|t| json!({ "batch": t.batch, "needed_bytes": t.needed, "fits": t.fits })).collect();
        outln!(
            "{}",
            json!({ "event": "max_batch", "model": run.name, "budget_bytes": budget, "batch": batch,
                    "is_limit": is_limit, "tried": tried, "search_ms": ms, "plan": event::plan(run, &planned) })
        );
        return Ok(());
    }
    for t in &tried {
        let needed = t.needed.map_or("more than can be counted".into(), |n| told_apart(n, budget)[0].clone());
        outln!("  batch {:>7}  {needed:>10}  {}", t.batch, if t.fits { "fits" } else { "does not fit" });
    }
    let more = if is_limit { "; larger ones were not tried" } else { "" };
    outln!(
        "the largest batch in {} is {batch}{more}; planned {} in {ms:.0} ms",
        Bytes(budget),
        count(tried.len(), "batch")
    );
    outln!("");
    page(run, &planned);
    Ok(())
}

/// Has all replicas have the largest batch that fits each of them, as far as one does, and says what was tried.
fn largest_of_all(replicas: &mut [RunResources]) -> Result<Vec<TriedBatch>> {
    let mut progress = Progress::new("trying");
    let (mut all, mut batch) = (Vec::new(), None);
    for run in replicas.iter_mut() {
        let Some(budget) = run.request.budget else { continue };
        let executor = together::executor(run)?;
        run.request.batch = batch.unwrap_or(run.request.batch);
        let subject = run.subject(executor.target());
        // What one has no room for, the others need not try.
        if batch.is_some() && subject.survey()?.plan(Some(budget)).is_ok() {
            continue;
        }
        let too_large = smallest_too_large(&all);
        let LargestBatch { plan, tried } =
            largest_batch(&subject, budget, too_large, &mut |change| progress.show(&cure::option(change)))?;
        all.extend(tried);
        batch = Some(plan.map_or(run.crew.lanes, |p| p.batch));
    }
    let batch = batch.unwrap_or(1);
    replicas.iter_mut().for_each(|run| run.request.batch = batch);
    Ok(all)
}

/// The smallest batch that was too large, with what it needed.
fn smallest_too_large(tried: &[TriedBatch]) -> Option<(usize, u64)> {
    let too_large = tried.iter().filter(|t| !t.fits).min_by_key(|t| t.batch)?;
    Some((too_large.batch, too_large.needed.unwrap_or(u64::MAX)))
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
