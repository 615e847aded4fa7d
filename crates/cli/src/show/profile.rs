//! A profile on the terminal: how planned and measured agree, the largest tensors at the peak, the slowest layers.

use std::collections::HashMap;
use std::path::Path;

use memfit::plan::bytes::Bytes;
use memfit::profile::Profile;
use memfit_run::text::count;
use serde::Serialize;

use crate::output::outln;

/// Lines of a list that a person still reads.
const LINES: usize = 10;

pub fn print(profile: &Profile, folder: &Path, no_limits: Option<&str>) {
    head(profile, no_limits);
    peak(profile);
    slowest(profile);
    outln!("");
    outln!("  written to {}", folder.display());
}

fn head(profile: &Profile, no_limits: Option<&str>) {
    let (run, memory) = (&profile.run, &profile.memory);
    let budget = memory.budget_bytes.map_or(String::new(), |b| format!("; budget {}", Bytes(b)));
    outln!("{}, batch {}, {}, {}{budget}", run.model, run.batch, run.precision, run.device);
    let arena = Bytes(memory.arena_bytes).to_string();
    outln!("  planned    {arena:>10}  arena; at most {} are live at once", Bytes(memory.peak_bytes));
    if memory.staging_bytes > 0 {
        outln!("  copies     {:>10}  at most, beside it on the device", Bytes(memory.staging_bytes).to_string());
    }
    let Some(measured) = &profile.measured else {
        outln!("  predicted  {:>7.1} ms  a step of {}", memory.predicted_step_ms, count(memory.kernels, "kernel"));
        return;
    };
    if let Some(pages) = measured.steps.last().and_then(|s| s.arena_resident_bytes) {
        outln!("  measured   {:>10}  in pages of the arena that were touched", Bytes(pages).to_string());
    }
    let ms = profile.median_step_ms().unwrap_or(0.0);
    let ratio = memory.predicted_step_ms / ms.max(1e-9);
    let steps = count(measured.steps.len(), "step");
    outln!(
        "  step       {ms:>7.1} ms  in the middle of {steps}; predicted {:.1} ms, {ratio:.2} of it",
        memory.predicted_step_ms
    );
    let (exchanges, exchange_ms) = exchanges(profile);
    if exchanges > 0 {
        let share = 100.0 * exchange_ms / ms.max(1e-9);
        let times = count(exchanges, "exchange");
        outln!(
            "  replicas   {exchange_ms:>7.1} ms  of a step, {share:.0} %, in {times} with the others, waiting for them included"
        );
    }
    if let Some(note) = measured.clock.note() {
        outln!("  times                  {note}");
    }
    if let Some(limits) = profile.limits {
        let flops: f64 = step_launches(profile).map(|(p, n)| profile.programs[p].launches[n].flops as f64).sum();
        let reached = flops / ms.max(1e-9) * 1e-6;
        let share = 100.0 * reached / limits.gflops.max(1e-9);
        outln!(
            "  machine    {:>7} GFLOP/s, {share:.0} % of the {} of a large product; memory {} GB/s",
            rate(reached),
            rate(limits.gflops),
            rate(limits.gbytes)
        );
    } else if let Some(why) = no_limits {
        outln!("  machine                what it can do at most was not measured: {why}");
    }
    if let Some(pipeline) = &profile.pipeline {
        let (held, limit) = (Bytes(pipeline.peak_bytes), Bytes(pipeline.limit_bytes));
        let (step, data) = (pipeline.step_waited_ms, pipeline.data_waited_ms);
        outln!(
            "  data       {:>10}  of {limit} held at most; steps waited {step:.1} ms for data, data {data:.1} ms for steps",
            held.to_string()
        );
    }
    if measured.dropped > 0 {
        outln!("  {} were not recorded for want of room", count(measured.dropped, "event"));
    }
}

/// Exchanges of a step, and what they take.
fn exchanges(profile: &Profile) -> (usize, f64) {
    let is_exchange = |&(p, n): &(usize, usize)| {
        let op = profile.programs[p].launches[n].op.as_str();
        EXCHANGES.contains(&op)
    };
    let times = step_launches(profile).filter(is_exchange).map(|(p, n)| profile.launch_us(p, n, true) * 1e-3);
    times.fold((0, 0.0), |(count, sum), ms| (count + 1, sum + ms))
}

/// Ops in which replicas meet.
const EXCHANGES: [&str; 2] = ["join", "replicate"];

fn peak(profile: &Profile) {
    let Some(program) = profile.programs.get(profile.peak.program) else { return };
    let Some(at) = program.launches.get(profile.peak.launch) else { return };
    let live = &profile.peak.live;
    let position = format!("kernel {} of {}", profile.peak.launch + 1, program.launches.len());
    outln!("");
    outln!(
        "the peak is at {} of {} ({position}); of {} there:",
        at.op,
        layer(&at.layer),
        count(live.len(), "live tensor")
    );
    let shown = &live[..live.len().min(LINES)];
    let width = shown.iter().map(|e| layer(&e.layer).chars().count()).max().unwrap_or(0);
    for e in shown {
        let recompute = e.recompute_ms.map_or(String::new(), |ms| format!("  {ms:.2} ms to recompute"));
        outln!(
            "  {:>10}  {:<width$}  {} {} ({}){recompute}",
            Bytes(e.bytes).to_string(),
            layer(&e.layer),
            e.op,
            e.ty,
            e.class.name()
        );
    }
}

/// The time of a layer in a step.
#[derive(Serialize)]
pub struct LayerTime {
    pub layer: String,
    pub ms: f64,
    pub kernels: usize,
    pub gflops: f64,
}

/// All layers, the slowest first: as measured, or as predicted where nothing ran.
pub fn layers(profile: &Profile) -> Vec<LayerTime> {
    let mut sums: HashMap<&str, (f64, usize, f64)> = HashMap::new();
    for (p, n) in step_launches(profile) {
        let launch = &profile.programs[p].launches[n];
        let sum = sums.entry(&launch.layer).or_default();
        sum.0 += profile.launch_us(p, n, true) * 1e-3;
        sum.1 += 1;
        sum.2 += launch.flops as f64;
    }
    let time = |(name, (ms, kernels, flops)): (&str, (f64, usize, f64))| LayerTime {
        layer: layer(name),
        ms,
        kernels,
        gflops: flops / ms.max(1e-9) * 1e-6,
    };
    let mut layers: Vec<LayerTime> = sums.into_iter().map(time).collect();
    layers.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| a.layer.cmp(&b.layer)));
    layers
}

fn slowest(profile: &Profile) {
    let layers = layers(profile);
    let whole: f64 = layers.iter().map(|l| l.ms).sum();
    let how = if profile.measured.is_some() { "measured" } else { "predicted" };
    outln!("");
    outln!("the slowest of {}, {how}:", count(layers.len(), "layer"));
    let shown = &layers[..layers.len().min(LINES)];
    let width = shown.iter().map(|l| l.layer.chars().count()).max().unwrap_or(0);
    for l in shown {
        let share = 100.0 * l.ms / whole.max(1e-9);
        outln!(
            "  {:>7.2} ms  {share:>4.1} %  {:<width$}  {}, {} GFLOP/s",
            l.ms,
            l.layer,
            count(l.kernels, "kernel"),
            rate(l.gflops)
        );
    }
}

/// Of what is slow, with a digit more.
fn rate(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Program and number of each launch of a step.
fn step_launches(profile: &Profile) -> impl Iterator<Item = (usize, usize)> + '_ {
    profile.step_runs().flat_map(|(p, _)| (0..profile.programs[p].launches.len()).map(move |n| (p, n)))
}

fn layer(name: &str) -> String {
    if name.is_empty() { "(model)".into() } else { name.into() }
}
