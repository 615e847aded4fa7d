//! `memfit eval`: how good a trained model is on its test set, or on other data of the same kind.

use anyhow::Result;
use memfit::data::LoadOptions;
use memfit::train::evaluate;
use memfit_run::data::{self, DataSources, Kind, Overlap, TestFrom, same_data};
use memfit_run::run_dir::{Rows, Trained};
use memfit_run::text::{count, first_few};
use memfit_run::train::skip_bad;
use memfit_run::{RunConfig, RunError};
use serde_json::json;

use crate::args::EvalArgs;
use crate::failure::usage;
use crate::output::outln;
use crate::show::scores::{print_skipped, scores, words};

pub fn eval(args: &EvalArgs, json: bool) -> Result<()> {
    let of_data = ["features", "label", "header"].into_iter().find(|name| args.settings.is_given("data", name));
    if let Some(option) = of_data.filter(|_| args.data.is_none()) {
        return Err(usage(format!(
            "--{option} is of other data than the run's own; give them with --data PATH, or leave it out"
        )));
    }
    let rows = args.batch.map_or(Rows::AtMost(usize::MAX), Rows::Exactly);
    let mut config = RunConfig::resume(&args.run_dir)?;
    let own = config.clone();
    args.settings.apply(&mut config)?;
    let mut trained = Trained::open(config, rows)?;
    let sources = sources(args, &trained)?;
    let Some(test) = &sources.test else {
        return Err(usage("this run has no test set; give one with --data PATH"));
    };
    let samples = test.len();
    let has_changed = args.data.is_none() && has_changed(&trained, &sources);
    let overlap = match (&args.data, &sources.test_from) {
        (Some(_), _) => data::overlap(&own, &sources, &trained.run.pool),
        (None, TestFrom::TrainingSet(_)) => Overlap::All,
        (None, _) => Overlap::None,
    };
    let (batch, arena) = (trained.session.plan().micro_batch, trained.session.plan().arena_bytes());
    let run = &trained.run;
    let test = data::test_set(sources.kind, test, run, batch)?;
    let load = LoadOptions { threads: run.threads, bad: skip_bad(&run.config), ..LoadOptions::new(run.pool.clone()) };
    let evaluation = evaluate(&mut trained.session, &test, &run.heads()?, load)?;
    let left_out = &evaluation.left_out;
    let evaluated = (samples as u64).saturating_sub(left_out.count);
    if json {
        let run_dir = args.run_dir.display().to_string();
        let arrays = sources.test_arrays.as_ref().map(|a| json!({ "features": a.features, "label": a.label }));
        outln!(
            "{}",
            json!({ "event": "eval", "run_dir": run_dir, "step": trained.step, "samples": evaluated,
                    "skipped_samples": left_out.count, "classes": trained.classes, "batch": batch,
                    "arena_bytes": arena, "test_is_training_data": overlap != Overlap::None,
                    "trained_on": trained_on(overlap), "data_changed": has_changed, "arrays": arrays,
                    "scores": scores(&evaluation.scores) })
        );
        return Ok(());
    }
    if let Some(what) = evaluated_part(args, &trained, &sources) {
        outln!("evaluating {what}");
    }
    print_skipped(left_out, "test");
    let scores = words(&evaluation.scores, trained.run.model.task());
    outln!("{}, weights of step {}: {scores}", count(evaluated, "sample"), trained.step);
    match overlap {
        Overlap::None => {}
        Overlap::All => outln!("warning: these are the samples that the model was trained on"),
        Overlap::AllButHeldOut { share } => {
            outln!("warning: the model was trained on these samples, but for the share of {share} that it held out");
        }
    }
    if has_changed {
        outln!("warning: the data are not as they were when the run began; what is tested on may have been trained on");
    }
    if matches!(sources.kind, Kind::Csv | Kind::Images) && !trained.classes.is_empty() {
        outln!("classes: {}", first_few(&trained.classes));
    }
    Ok(())
}

/// What of the data that were named, or of those of the run, is evaluated, where they have other parts too.
fn evaluated_part(args: &EvalArgs, trained: &Trained, sources: &DataSources) -> Option<String> {
    let config = &trained.run.config.data;
    let path = args.data.as_ref().or(config.test.as_ref()).or(config.train.as_ref());
    match (&sources.test_arrays, &sources.test_from) {
        (Some(arrays), _) => {
            Some(path.map_or(arrays.words(), |path| format!("{} of {}", arrays.words(), path.display())))
        }
        (None, TestFrom::Path(found)) if Some(found) != path => Some(found.display().to_string()),
        (None, _) => None,
    }
}

/// The share of the data that the model was trained on, as far as that is known.
fn trained_on(overlap: Overlap) -> f32 {
    match overlap {
        Overlap::None => 0.0,
        Overlap::All => 1.0,
        Overlap::AllButHeldOut { share } => 1.0 - share,
    }
}

/// Whether the files are others than those that the run began with, as far as its folder says.
fn has_changed(trained: &Trained, sources: &DataSources) -> bool {
    match same_data::check(&trained.folder, sources) {
        Ok(sets) => !sets.is_empty(),
        Err(problem) => matches!(problem, RunError::SamplesChanged { .. }),
    }
}

/// The data that are named, all of them; else those of the run, if they are what it began with.
fn sources(args: &EvalArgs, trained: &Trained) -> Result<DataSources> {
    let (config, pool) = (&trained.run.config, &trained.run.pool);
    let Some(path) = &args.data else {
        let sources = data::open(config, pool)?;
        same_data::check_schema(&trained.folder, &sources.schema)?;
        return Ok(sources);
    };
    let mut config = config.clone();
    // A run's folder says of what kind its data are; where an old one does not, the path does.
    if config.data.kind.is_none() {
        config.set("data", "train", path.to_string_lossy().into_owned())?;
    }
    Ok(data::open_alone(&config, path, same_data::schema(&trained.folder)?, pool)?)
}
