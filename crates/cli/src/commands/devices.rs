//! `memfit devices`: what this machine computes on, and how fast.

use std::path::{Path, PathBuf};

use anyhow::Result;
use memfit::AnyExecutor;
use memfit::calibrate::calibrate;
use memfit::cpu::isa::Isa;
use memfit::exec::{Device, machine};
use memfit::plan::bytes::Bytes;
use memfit::plan::{CONSTANTS, CostModel};
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::commands::check_writable;
use crate::failure::{bad_data, usage};
use crate::output::outln;
use crate::progress::Progress;
#[cfg(feature = "gpu")]
use crate::show;
use memfit_run::announce::{Process, processes};
use memfit_run::config::parse_size;
use memfit_run::cost_model::{in_use, measured_file};
use memfit_run::device::{Devices, VISIBLE};
use memfit_run::file;
use memfit_run::text::count;
use memfit_run::threads;

const CPU: &str = "cpu:0";

pub fn devices(args: &DevicesArgs, as_json: bool) -> Result<()> {
    if args.calibrate { measure(args, as_json) } else { show(args, as_json) }
}

fn show(args: &DevicesArgs, as_json: bool) -> Result<()> {
    let size = |text: &String| parse_size(text).map_err(|problem| usage(format!("--logical: {problem}")));
    let limits = args.logical.iter().map(size).collect::<Result<Vec<_>>>()?;
    let devices = Devices::new(Device::host(), &limits, &[args.device.as_deref()])?;
    let host = Host::new()?;
    if as_json {
        host.print_json(&devices)
    } else {
        host.print(&devices)
    }
    gpus(&devices, as_json)
}

/// What is known of this machine's processor and memory.
struct Host {
    cpu: String,
    cores: usize,
    /// In use, and all that there are.
    instruction_set: &'static str,
    instruction_sets: Vec<&'static str>,
    total: Option<u64>,
    available: Option<u64>,
    processes: Vec<Process>,
    cost_model: CostModel,
    cost_model_file: Option<PathBuf>,
}

impl Host {
    fn new() -> Result<Host> {
        let cores = threads(None)?;
        let (cost_model, cost_model_file) = in_use(None, CPU, cores)?;
        Ok(Host {
            cpu: processor().unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores,
            instruction_set: Isa::chosen()?.name(),
            instruction_sets: Isa::available().into_iter().map(Isa::name).collect(),
            total: machine::capacity(),
            available: machine::available(),
            processes: processes(),
            cost_model,
            cost_model_file,
        })
    }

    fn print_json(&self, devices: &Devices) {
        let event = json!({
            "event": "device", "device": CPU, "name": self.cpu, "threads": self.cores,
            "instruction_set": self.instruction_set, "instructions": self.instruction_sets,
            "memory_bytes": self.total, "available_bytes": self.available,
            "used_bytes": used(self.total, self.available), "visible": is_visible(devices),
            "processes": self.processes, "profile": describe(&self.cost_model, self.cost_model_file.as_deref()),
        });
        outln!("{event}");
        for (part, is_visible) in devices.all().skip(1) {
            outln!(
                "{}",
                json!({ "event": "device", "device": part.name(), "limit_bytes": part.limit(),
                        "part_of": part.name().split('/').next(), "visible": is_visible })
            );
        }
    }

    fn print(&self, devices: &Devices) {
        let (cpu, threads) = (&self.cpu, count(self.cores, "thread"));
        let instructions = format!("instructions: {} (of {})", self.instruction_set, self.instruction_sets.join(", "));
        outln!("{CPU}    {cpu}: {threads}, {instructions}{}", hidden(is_visible(devices)));
        if let (Some(total), Some(available)) = (self.total, self.available) {
            let used = Bytes(total.saturating_sub(available));
            outln!("memory   {}, of which {used} are used and {} are available", Bytes(total), Bytes(available));
        }
        for (part, is_visible) in devices.all().skip(1) {
            outln!("{}  a logical device of {}{}", part.name(), Bytes(part.limit()), hidden(is_visible));
        }
        print_holders(&self.processes);
        print_cost_model(&self.cost_model, self.cost_model_file.as_deref(), "--calibrate");
    }
}

fn hidden(is_visible: bool) -> String {
    if is_visible { String::new() } else { format!("; hidden by {VISIBLE}") }
}

/// With the options that measure one.
fn print_cost_model(model: &CostModel, file: Option<&Path>, options: &str) {
    let name = &model.name;
    match file {
        Some(file) => outln!("cost model  \"{name}\", from {}", file.display()),
        None => outln!("cost model  \"{name}\", which ships with memfit; {options} measures it"),
    }
    print_constants(model);
}

fn is_visible(devices: &Devices) -> bool {
    devices.all().any(|(device, is_visible)| is_visible && device.name() == CPU)
}

fn measure(args: &DevicesArgs, as_json: bool) -> Result<()> {
    let place = Devices::new(Device::host(), &[], &[])?.of_run(args.device.as_deref(), 0)?;
    let device = place.device.name();
    let path = match &args.out {
        Some(path) => {
            check_writable("--out", path)?;
            path.clone()
        }
        None => {
            measured_file(device)?.ok_or_else(|| usage("there is no folder for settings; name a file with --out"))?
        }
    };
    let threads = threads(args.threads)?;
    let name = match AnyExecutor::adapter(device)? {
        Some(adapter) => adapter,
        None => format!("cpu, {}, {}", Isa::chosen()?.name(), count(threads, "thread")),
    };
    let mut progress = Progress::new("measuring");
    let open = || AnyExecutor::open(device, threads);
    let model = calibrate(name, open, open()?.patience(), &mut |what| progress.show(what))?;
    drop(progress);
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| bad_data(format!("{} cannot be made: {e}", folder.display())))?;
    }
    file::write(&path, &model.to_toml())?;
    if as_json {
        outln!("{}", json!({ "event": "profile", "profile": describe(&model, Some(&path)) }));
    } else {
        outln!("cost model  \"{}\", written to {}", model.name, path.display());
        print_constants(&model);
    }
    Ok(())
}

fn print_constants(model: &CostModel) {
    for constant in &CONSTANTS {
        outln!("  {:<10} {:>8}  {}", constant.key, constant.value_in(model), constant.meaning);
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
fn print_holders(processes: &[Process]) {
    for process in processes {
        for held in process.devices.iter().filter(|d| !d.holders.is_empty()) {
            let limit = held.limit_bytes.map_or(String::new(), |limit| format!("the {} of ", Bytes(limit)));
            outln!("held     {} of {limit}{} by process {}", Bytes(held.used()), held.device, process.pid);
            for name in &held.holders {
                outln!("  {:>10}  {}", Bytes(name.bytes).to_string(), name.name);
            }
        }
    }
}

#[cfg(not(feature = "gpu"))]
fn gpus(_: &Devices, _: bool) -> Result<()> {
    Ok(())
}

/// A GPU that cannot be opened is listed with the reason.
#[cfg(feature = "gpu")]
fn gpus(devices: &Devices, as_json: bool) -> Result<()> {
    for found in memfit::gpu::devices() {
        let gpu = match found {
            Ok(gpu) => gpu,
            Err(e) if as_json => {
                outln!("{}", json!({ "event": "device", "device": "gpu", "error": e.to_string() }));
                continue;
            }
            Err(e) => {
                outln!("{e}");
                continue;
            }
        };
        let (model, file) = in_use(None, &gpu.id, 1)?;
        let is_visible = devices.is_visible(&gpu.id);
        if as_json {
            outln!("{}", show::gpu::event(&gpu, is_visible, describe(&model, file.as_deref())));
        } else {
            show::gpu::print(&gpu, &hidden(is_visible));
            print_cost_model(&model, file.as_deref(), &format!("--calibrate --device {}", gpu.id));
        }
    }
    Ok(())
}
