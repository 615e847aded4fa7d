//! Writes reports to look at, and to test the page with: profiles of plans, with times as a run could have measured them.
//! `sample_report FOLDER` writes NAME.json and NAME.html for each, and compare.html.

use std::error::Error;
use std::fs;
use std::path::Path;

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::nn::zoo::Gpt;
use memfit::{CpuExecutor, Request, Training, ZooModel, survey_model};
use memfit_profile::html::{DifferenceTable, HtmlOptions, compare_html, html};
use memfit_profile::*;

/// Of the one that nobody planned.
const MANY_BUFFERS: usize = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give a folder")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let (small, large) = (resnet18(0.35)?, resnet18(1.0)?);
    let samples = [
        ("resnet18", small.clone()),
        ("gpt", gpt(Gpt::default(), 32, 0.0)?),
        ("gpt48", gpt(Gpt { layers: 48, width: 128, heads: 4, sequence: 128, vocabulary: 512 }, 8, 0.5)?),
        ("digits", planned(&ZooModel::from_name("digits")?, "digits", "8x8x1", 32, 0.3)?),
        ("planned", only_planned(small.clone())),
        ("many", many(small.clone())),
        ("hostile", hostile(small.clone())),
    ];
    for (name, profile) in samples {
        fs::write(folder.join(format!("{name}.json")), profile.to_json())?;
        fs::write(folder.join(format!("{name}.html")), html(&profile, &HtmlOptions::default()))?;
    }
    let table = DifferenceTable {
        title: "Tensors at the peak".into(),
        columns: ["layer", "A", "B"].map(String::from).to_vec(),
        rows: vec![["layer1/0/conv1", "4.00 MiB", "–"].map(String::from).to_vec()],
    };
    let compared = compare_html(&large, &small, &markdown(&small), &[table], &HtmlOptions::default());
    fs::write(folder.join("compare.html"), compared)?;
    Ok(())
}

fn resnet18(share: f64) -> Result<Profile, Box<dyn Error>> {
    let model = ZooModel::from_name("resnet18")?.with_input(&[64, 64, 3])?.with_classes(10)?;
    let mut profile = planned(&model, "resnet18", "64x64x3", 128, share)?;
    profile.curves = curves();
    profile.pipeline = Some(Pipeline {
        limit_bytes: 512 << 20,
        peak_bytes: 83 << 20,
        step_waited_ms: 14.0,
        data_waited_ms: 1930.0,
        threads: 2,
    });
    Ok(profile)
}

fn gpt(network: Gpt, batch: usize, share: f64) -> Result<Profile, Box<dyn Error>> {
    let input = format!("{} tokens", network.sequence);
    planned(&ZooModel::from(network), "gpt", &input, batch, share)
}

/// Under a budget that lies as far between the smallest and the largest plan of the frontier as `share` says.
fn planned(model: &ZooModel, name: &str, input: &str, batch: usize, share: f64) -> Result<Profile, Box<dyn Error>> {
    let cpu = CpuExecutor::new(2)?;
    let training = Training::new(Optimizer::adam().update);
    let request = Request::new(batch);
    let survey = survey_model(model, &training, cpu.target(), &request)?;
    let frontier = survey.frontier();
    let sizes = frontier.iter().map(|p| p.arena_bytes);
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    let budget = least + ((most - least) as f64 * share) as u64;
    // As a person would type it.
    let budget = memfit::ir::bytes::round_up(budget);
    let plan = survey.plan(Some(budget))?;
    let labels = Labels {
        model: name.into(),
        input: input.into(),
        precision: "f32".into(),
        optimizer: "adam".into(),
        budget: Some(budget),
        frontier,
    };
    let mut profile = from_plan(&plan, &labels);
    profile.limits = Some(MachineLimits { gflops: 300.0, gbytes: 20.0 });
    profile.measured = Some(measured(&profile));
    Ok(profile)
}

/// Numbers that look drawn and are always the same.
struct Noise(u64);

impl Noise {
    /// In −1…1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    }
}

fn measured(profile: &Profile) -> Measured {
    let mut noise = Noise(1);
    let mut kernel = |l: &Launch| {
        let mean_us = l.predicted_us * (1.08 + 0.2 * noise.next());
        KernelTimes { count: 20, mean_us, median_us: mean_us, min_us: mean_us * 0.93, max_us: mean_us * 1.3 }
    };
    let times = |p: &Program| p.launches.iter().map(&mut kernel).collect();
    let kernels: Vec<Vec<KernelTimes>> = profile.programs.iter().map(times).collect();
    let sum =
        |(p, times): (&Program, &Vec<KernelTimes>)| p.repeats as f64 * times.iter().map(|k| k.mean_us).sum::<f64>();
    let step_ms = profile.programs.iter().zip(&kernels).map(sum).sum::<f64>() / 1e3;
    let mut noise = Noise(2);
    let step = |n: u32| StepSample {
        step: n,
        ms: step_ms * (1.0 + 0.03 * noise.next()) * if n == 0 { 1.25 } else { 1.0 },
        waited_ms: 0.4 + 0.3 * noise.next(),
        loss: (2.3 * (-f64::from(n) / 12.0).exp() + 0.2 + 0.06 * noise.next()) as f32,
        arena_resident_bytes: Some(profile.memory.arena_bytes),
        process_resident_bytes: Some(profile.memory.arena_bytes + (95 << 20) + u64::from(n) * 4096),
        pipeline_bytes: Some(((70.0 + 9.0 * noise.next()) * 1048576.0) as u64),
    };
    Measured { steps: (0..20).map(step).collect(), kernels, ..Measured::default() }
}

fn curves() -> Vec<Curve> {
    let mut noise = Noise(3);
    let loss = (0..200).map(|n| (n * 5, 2.3 * (-(n as f64) / 45.0).exp() + 0.25 + 0.08 * noise.next())).collect();
    let mut noise = Noise(4);
    let accuracy = (1..=10).map(|n| (n * 100, 0.93 - 0.5 * (-(n as f64) / 2.5).exp() + 0.01 * noise.next())).collect();
    let rate =
        (0..200).map(|n| (n * 5, 1e-3 * (1.0 + (n as f64 / 200.0 * std::f64::consts::PI).cos()) / 2.0)).collect();
    let curve = |name: &str, points| Curve { name: name.into(), points };
    vec![curve("loss", loss), curve("test accuracy", accuracy), curve("learning rate", rate)]
}

/// A profile with so many buffers that drawing them is work: a program of short lives, stacked without overlap.
fn many(mut profile: Profile) -> Profile {
    let lanes = 40;
    let of = profile.programs[0].clone();
    let launch =
        |n: usize| Launch { scratch_bytes: 0, scratch_offset: 0, ..of.launches[n % of.launches.len()].clone() };
    let count = MANY_BUFFERS / lanes * 8;
    let lane_bytes = profile.memory.transient_bytes / lanes as u64;
    let buffer = |n: usize| {
        let (lane, turn) = (n % lanes, n / lanes);
        let first = turn * 8 + (lane * 3) % 5;
        let like = &of.buffers[n % of.buffers.len()];
        let bytes = lane_bytes - (n as u64 * 97) % (lane_bytes / 2);
        let end = (first + 2 + n % 6).min(turn * 8 + 8);
        Buffer {
            value: n as u32,
            offset: lane as u64 * lane_bytes,
            bytes,
            first,
            end,
            last_read: Some(end - 1),
            ..like.clone()
        }
    };
    let mut program = Program {
        launches: (0..count).map(launch).collect(),
        buffers: (0..MANY_BUFFERS).map(buffer).collect(),
        ..of.clone()
    };
    for n in 0..count {
        program.launches[n].live_bytes = 0;
    }
    for b in &program.buffers {
        program.launches[b.first..b.end].iter_mut().for_each(|l| l.live_bytes += b.bytes);
    }
    let launch = (0..count).max_by_key(|&n| program.launches[n].live_bytes).unwrap_or(0);
    profile.memory.kernels = count;
    profile.memory.peak_bytes = profile.memory.state_bytes + program.launches[launch].live_bytes;
    profile.peak = Peak { program: 0, launch, live: Vec::new() };
    profile.programs = vec![program];
    profile.measured = Some(measured(&profile));
    profile
}

/// What there is before anything runs.
fn only_planned(profile: Profile) -> Profile {
    Profile { limits: None, measured: None, pipeline: None, curves: Vec::new(), ..profile }
}

/// Names as somebody could choose who means harm.
fn hostile(mut profile: Profile) -> Profile {
    let bad = "</script><img src=x onerror=alert(1)><script>alert(2)</script>";
    profile.run.model = bad.into();
    profile.run.device = bad.into();
    for program in &mut profile.programs {
        program.launches.iter_mut().for_each(|l| l.layer = format!("{bad}/{}", l.layer));
        program.buffers.iter_mut().for_each(|b| b.layer = format!("{bad}/{}", b.layer));
    }
    profile.peak.live.iter_mut().for_each(|e| e.layer = format!("{bad}/{}", e.layer));
    profile.states.iter_mut().for_each(|s| s.name = format!("{bad}/{}", s.name));
    profile
}
