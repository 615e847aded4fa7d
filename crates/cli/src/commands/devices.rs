//! `memfit devices`: what this machine computes on, and how fast.

use std::path::Path;

use anyhow::Result;
use memfit::AnyExecutor;
use memfit::calibrate::calibrate;
use memfit::cpu::isa::Isa;
use memfit::exec::machine;
use memfit::plan::bytes::Bytes;
use memfit::plan::{CONSTANTS, CostModel};
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::commands::check_writable;
use crate::failure::{bad_data, usage};
use crate::progress::Progress;
use crate::say::say;
use memfit_run::announce::{Process, processes};
use memfit_run::config::parse_size;
use memfit_run::cost_model::{in_use, measured_file};
use memfit_run::device::{Devices, VISIBLE};
use memfit_run::file;
use memfit_run::text::count;
use memfit_run::threads;

/// The device that is measured.
const CPU: &str = "cpu:0";

pub fn devices(args: &DevicesArgs, as_json: bool) -> Result<()> {
    if args.calibrate { measure(args, as_json) } else { show(args, as_json) }
}

fn show(args: &DevicesArgs, as_json: bool) -> Result<()> {
    let (model, file) = in_use(None, CPU)?;
    let size = |text: &String| parse_size(text).map_err(|problem| usage(format!("--logical: {problem}")));
    let devices = Devices::new(&args.logical.iter().map(size).collect::<Result<Vec<_>>>()?)?;
    let cores = threads(None)?;
    let chosen = Isa::chosen()?.name();
    let sets: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    let cpu = processor().unwrap_or_else(|| std::env::consts::ARCH.into());
    let (total, available) = (machine::capacity(), machine::available());
    let processes = processes();
    let is_visible = devices.all().any(|(d, is_visible)| is_visible && d.name() == "cpu:0");
    let hidden = |is_visible: bool| if is_visible { String::new() } else { format!("; hidden by {VISIBLE}") };
    if as_json {
        let event = json!({
            "event": "device", "device": "cpu:0", "name": cpu, "threads": cores,
            "instruction_set": chosen, "instructions": sets,
            "memory_bytes": total, "available_bytes": available, "used_bytes": used(total, available),
            "visible": is_visible, "processes": processes, "profile": describe(&model, file.as_deref()),
        });
        say!("{event}");
        for (part, is_visible) in devices.all().skip(1) {
            say!(
                "{}",
                json!({ "event": "device", "device": part.name(), "limit_bytes": part.limit(), "part_of": "cpu:0",
                        "visible": is_visible })
            );
        }
        gpus(as_json);
        return Ok(());
    }
    let threads = count(cores, "thread");
    let instructions = format!("instructions: {chosen} (of {})", sets.join(", "));
    say!("cpu:0    {cpu}: {threads}, {instructions}{}", hidden(is_visible));
    if let (Some(total), Some(available)) = (total, available) {
        let used = Bytes(total.saturating_sub(available));
        say!("memory   {}, of which {used} are used and {} are available", Bytes(total), Bytes(available));
    }
    for (part, is_visible) in devices.all().skip(1) {
        say!("{}  a logical device of {}{}", part.name(), Bytes(part.limit()), hidden(is_visible));
    }
    who_holds(&processes);
    match file {
        Some(file) => say!("cost model  \"{}\", from {}", model.name, file.display()),
        None => say!("cost model  \"{}\", which ships with memfit; --calibrate measures this machine", model.name),
    }
    print_constants(&model);
    gpus(as_json);
    Ok(())
}

fn measure(args: &DevicesArgs, as_json: bool) -> Result<()> {
    let path = match &args.out {
        Some(path) => {
            check_writable("--out", path)?;
            path.clone()
        }
        None => measured_file().ok_or_else(|| usage("there is no folder for settings; name a file with --out"))?,
    };
    let threads = threads(args.threads)?;
    let name = format!("cpu, {}, {}", Isa::chosen()?.name(), count(threads, "thread"));
    let mut progress = Progress::new("measuring");
    let model = calibrate(name, || AnyExecutor::open(CPU, threads), &mut |what| progress.show(what))?;
    drop(progress);
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| bad_data(format!("{} cannot be made: {e}", folder.display())))?;
    }
    file::write(&path, &model.to_toml())?;
    if as_json {
        say!("{}", json!({ "event": "profile", "profile": describe(&model, Some(&path)) }));
    } else {
        say!("cost model  \"{}\", written to {}", model.name, path.display());
        print_constants(&model);
    }
    Ok(())
}

fn print_constants(model: &CostModel) {
    for constant in &CONSTANTS {
        say!("  {:<10} {:>8}  {}", constant.key, constant.value_in(model), constant.meaning);
    }
}

/// A cost model as data.
pub fn describe(model: &CostModel, file: Option<&Path>) -> Value {
    let mut value = json!({ "name": model.name, "hash": format!("{:016x}", model.hash()) });
    value["file"] = file.map(|f| f.display().to_string()).into();
    for constant in &CONSTANTS {
        value[constant.key] = constant.value_in(model).into();
    }
    value
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_string())
}

/// By anybody.
fn used(total: Option<u64>, available: Option<u64>) -> Option<u64> {
    Some(total?.saturating_sub(available?))
}

/// What memfit's processes hold, each on its devices.
fn who_holds(processes: &[Process]) {
    for process in processes {
        for held in process.devices.iter().filter(|d| !d.holders.is_empty()) {
            let (used, limit) = (Bytes(held.used()), Bytes(held.limit_bytes));
            say!("held     {used} of the {limit} of {} by process {}", held.device, process.pid);
            for name in &held.holders {
                say!("  {:>10}  {}", Bytes(name.bytes).to_string(), name.name);
            }
        }
    }
}

#[cfg(not(feature = "gpu"))]
fn gpus(_: bool) {}

/// A GPU that cannot be opened is listed with the reason.
#[cfg(feature = "gpu")]
fn gpus(as_json: bool) {
    for found in memfit::gpu::devices() {
        match found {
            Ok(gpu) if as_json => say!(
                "{}",
                json!({
                    "event": "device", "device": gpu.id, "name": gpu.name, "kind": gpu.kind.name(), "api": gpu.api,
                    "alignment_bytes": gpu.limits.alignment, "largest_operand_bytes": gpu.limits.binding,
                    "largest_segment_bytes": gpu.limits.buffer,
                })
            ),
            Ok(gpu) => say!(
                "{}  {} ({}, {}); operands up to {}, segments up to {}",
                gpu.id,
                gpu.name,
                gpu.kind.name(),
                gpu.api,
                Bytes(gpu.limits.binding),
                Bytes(gpu.limits.buffer)
            ),
            Err(e) if as_json => say!("{}", json!({ "event": "device", "device": "gpu", "error": e.to_string() })),
            Err(e) => say!("{e}"),
        }
    }
}
