//! What is printed of a training before its first step: plans, shared memory, weights, where it goes on.

use std::path::Path;

use memfit::plan::bytes::Bytes;
use memfit::train::run_dir::HISTORY;
use memfit_run::RunResources;
use memfit_run::data::same_data::Set;
use memfit_run::planning::Planned;
use memfit_run::process::limit_words;
use memfit_run::text::{count, first_few};
use memfit_run::train::RunEvent;
use memfit_run::weights::{Foreign, LeftOut, LoadedWeights};
use serde_json::{Value, json};

use crate::cure;
use crate::output::outln;
use crate::progress::Progress;
use crate::show::event::{self, prefix};
use crate::show::{brief, data, replicas, together};

pub struct Report {
    json: bool,
    /// What is being tried.
    progress: Option<Progress>,
    what: &'static str,
    /// What runs train on, as events: they are told behind the plans, which machines read first.
    data: Vec<Value>,
}

impl Report {
    pub fn new(runs: usize, json: bool) -> Report {
        let what = if runs > 1 { "planning" } else { "looking for what would fit" };
        Report { json, progress: None, what, data: Vec::new() }
    }

    pub fn on_event(&mut self, event: &RunEvent) {
        if let RunEvent::Planning(at) = event {
            let progress = self.progress.get_or_insert_with(|| Progress::new(self.what));
            return progress.show(&cure::progress(*at));
        }
        // Makes room for a line that stays.
        self.progress = None;
        match *event {
            RunEvent::Planning(_) => {}
            RunEvent::Data { run, summary } if self.json => self.data.push(data::event(run, summary)),
            RunEvent::Data { run, summary } => data::print(run, summary),
            RunEvent::DataChanged { run, set } => self.data_changed(run, set),
            RunEvent::Planned { run, planned, is_shared, others } => {
                self.plan(run, planned, is_shared);
                if !self.json {
                    replicas::print(run, planned, others);
                }
            }
            RunEvent::Shared(shared) => together::print(shared, self.json),
            RunEvent::Weights { run, file, loaded } => self.weights(run, file, loaded),
            RunEvent::Caching { run, file, samples } => self.caching(run, file, samples),
            RunEvent::Resumed { run, step, epoch, is_over, history_ends } => {
                self.resumed(run, step, epoch, is_over);
                history_ends.into_iter().for_each(|ends| self.history_lost(run, ends, step));
            }
        }
    }

    /// When all is ready.
    pub fn finish(self) {
        self.data.iter().for_each(|event| outln!("{event}"));
    }

    fn data_changed(&self, run: &RunResources, set: Set) {
        if self.json {
            outln!("{}", event::of_run(run, json!({ "event": "data_changed", "set": set.key })));
        } else {
            outln!("  {}the files of the {} set are not the same as when the run began", prefix(run), set.name);
        }
    }

    /// A few lines, or one event.
    fn plan(&self, run: &RunResources, planned: &Planned, is_shared: bool) {
        if run.is_one_of_several {
            together::print_plan(run, planned, is_shared, self.json);
        } else if self.json {
            outln!("{}", event::plan(run, planned));
        } else {
            brief::print(run, planned, false);
        }
        if self.json {
            return;
        }
        let host = Bytes(run.pool.limit()).to_string();
        outln!("  host       {host:>10}  at most, for the data pipeline");
        if let Some(process) = run.process.as_ref().filter(|p| p.is_limited()) {
            let (limit, outside) = (Bytes(process.bytes).to_string(), Bytes(process.outside));
            let words = limit_words(process.limiter, process.sharers());
            outln!("  process    {limit:>10}  at most ({words}), of it {outside} for program, stacks and checkpoints");
        }
        device_limit(run);
        if let Some(before) = &planned.moved_from {
            let (label, now) = (prefix(run), run.device.name());
            outln!(
                "  {label}now on {now}, before on {before}: the same steps on the same samples, not to the same bits"
            );
        }
    }

    fn weights(&self, run: &RunResources, file: &Path, loaded: &LoadedWeights) {
        let name = file.display();
        let LoadedWeights { taken, of, missing, foreign } = loaded;
        if self.json {
            let mut event = json!({ "event": "weights", "file": name.to_string(), "taken": taken, "of": of,
                                    "missing": missing });
            if let Some(Foreign { names, left_out, converted, epsilons, meant }) = foreign {
                let left_out = left_out.iter().map(|l| json!({ "tensors": l.names, "reason": l.reason }));
                event["names"] = json!(names);
                event["left_out"] = left_out.collect();
                event["converted_from"] = json!(converted);
                event["likely_model"] = json!(meant);
                if let Some([there, here]) = epsilons {
                    event["batch_norm_epsilon"] = json!({ "there": there, "here": here });
                }
            }
            outln!("{}", event::of_run(run, event));
            return;
        }
        let Some(foreign) = foreign else {
            outln!("  {}weights        {taken} of {of} from {name}", prefix(run));
            if !missing.is_empty() {
                outln!("                 not in it, or of another type or shape: {}", first_few(missing));
            }
            return;
        };
        let words = foreign_words(foreign);
        outln!(
            "  {}weights        {taken} of {of} tensors from {name} ({}'s names){words}",
            prefix(run),
            foreign.names
        );
        if let Some(meant) = &foreign.meant {
            outln!("                 the file is of a {meant}: --model {meant} would take more of it");
        }
        // Those of another shape were named as the file has them.
        if foreign.left_out.is_empty() && !missing.is_empty() {
            outln!("                 not in it: {}", first_few(missing));
        }
    }

    fn caching(&self, run: &RunResources, file: &Path, samples: usize) {
        let name = file.display();
        if self.json {
            let event = json!({ "event": "caching", "file": name.to_string(), "samples": samples });
            outln!("{}", event::of_run(run, event));
        } else {
            outln!("  {}cache          made of {} first, in {name}", prefix(run), count(samples, "sample"));
        }
    }

    fn resumed(&self, run: &RunResources, step: u32, epoch: u64, is_over: bool) {
        let label = prefix(run);
        if self.json {
            return;
        }
        if is_over {
            outln!("  {label}at its end, step {step}: give more --epochs or --steps to go on");
        } else {
            outln!("  {label}resumed at step {step}, epoch {}", epoch + 1);
        }
    }

    fn history_lost(&self, run: &RunResources, ends: u32, step: u32) {
        if self.json {
            let event = json!({ "event": "history_lost", "ends_at_step": ends, "resumed_at_step": step });
            outln!("{}", event::of_run(run, event));
        } else {
            let lost = format!("the steps {} to {step} are no longer in {HISTORY}", ends + 1);
            outln!("  {}{lost}: the history goes on without them", prefix(run));
        }
    }
}

/// How much the device of a run may give, where that is not all that the process may have.
fn device_limit(run: &RunResources) {
    let (limit, name) = (Bytes(run.device.limit()).to_string(), run.device.name());
    if !run.config.memory.logical.is_empty() {
        outln!("  device     {limit:>10}  is the limit of {name}");
    } else if !run.is_on_host() && run.device.has_known_limit() {
        outln!("  device     {limit:>10}  is what {name} has, of it {} free", Bytes(run.device.free()));
    } else if !run.is_on_host() {
        outln!("  device     {:>10}  is what {name} has: it is asked for the arena once", "unknown");
    }
}

/// Of why tensors are left out, so many are told.
const REASONS: usize = 3;

/// "; f16 made f32; left out fc.weight, fc.bias: 1000 classes there, 10 here".
fn foreign_words(Foreign { left_out, converted, epsilons, .. }: &Foreign) -> String {
    let mut words = String::new();
    if !converted.is_empty() {
        words += &format!("; {} made f32", converted.join(" and "));
    }
    if let Some([there, here]) = epsilons {
        words += &format!("; scales of batch norms make up for an epsilon of {there} there, {here} here");
    }
    for (i, LeftOut { names, reason }) in left_out.iter().take(REASONS).enumerate() {
        let lead = if i == 0 { "; left out" } else { "," };
        words += &format!("{lead} {}: {reason}", first_few(names));
    }
    let more: usize = left_out.iter().skip(REASONS).map(|left_out| left_out.names.len()).sum();
    if more > 0 {
        words += &format!(", and {more} more");
    }
    words
}
