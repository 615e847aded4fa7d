//! `memfit eval`: how good a trained model is on its test set, or on other data of the same kind.

use anyhow::Result;
use memfit::data::{LoadOptions, OnBad};
use memfit::nn::Model;
use memfit::train::evaluate;
use serde_json::json;

use super::train::{scores, tell_left_out, words};
use crate::args::EvalArgs;
use crate::failure::usage;
use crate::say::say;
use memfit_run::data::same_data;
use memfit_run::data::{self, Kind};
use memfit_run::run_dir::{Rows, Trained};
use memfit_run::text::{count, first_few};

pub fn eval(args: &EvalArgs, json: bool) -> Result<()> {
    let rows = args.batch.map_or(Rows::AtMost(usize::MAX), Rows::Exactly);
    let mut trained = Trained::open(&args.run_dir, rows, args.threads, json)?;
    let mut spec = trained.spec.clone();
    if let Some(path) = &args.data {
        // All of it is for evaluation. A run's folder says of what kind its data are.
        spec.data.test = Some(path.clone());
        if spec.data.kind.is_none() {
            spec.data.train = Some(path.clone());
        }
    }
    let pool = trained.place.pool.clone();
    let opened = match &args.data {
        Some(path) => data::open_alone(&spec, path, same_data::settled(&args.run_dir)?, &pool)?,
        None => {
            let opened = data::open(&spec, &pool)?;
            same_data::check_settled(&args.run_dir, &opened.settled)?;
            opened
        }
    };
    let Some(test) = &opened.test else {
        return Err(usage("this run has no test set; give one with --data PATH"));
    };
    let samples = test.len();
    let (batch, arena) = (trained.session.plan().micro_batch, trained.session.plan().arena_bytes());
    let test = data::test_set(opened.kind, test, &trained.run, &spec.data, batch)?;
    let bad = if args.skip_bad || spec.data.skip_bad == Some(true) { OnBad::Skip } else { OnBad::Fail };
    let options = LoadOptions { threads: trained.run.threads, bad, ..LoadOptions::new(pool) };
    let judged = evaluate(&mut trained.session, &test, &trained.run.model.heads()?, options)?;
    let left_out = &judged.left_out;
    let judged_samples = (samples as u64).saturating_sub(left_out.count);
    if json {
        let run_dir = args.run_dir.display().to_string();
        say!(
            "{}",
            json!({ "event": "eval", "run_dir": run_dir, "step": trained.step, "samples": judged_samples,
                    "skipped_samples": left_out.count, "classes": trained.classes, "batch": batch,
                    "arena_bytes": arena, "scores": scores(&judged.scores) })
        );
    } else {
        tell_left_out(left_out, "test");
        let scores = words(&judged.scores, trained.run.model.task());
        say!("{}, weights of step {}: {scores}", count(judged_samples, "sample"), trained.step);
        if matches!(opened.kind, Kind::Csv | Kind::Images) && !trained.classes.is_empty() {
            say!("classes: {}", first_few(&trained.classes));
        }
    }
    Ok(())
}
