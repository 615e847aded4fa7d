//! GPUs on the command line, where it is built with them. Without a driver there is nothing to look at, which is said.
#![cfg(feature = "gpu")]

#[path = "it/common/mod.rs"]
mod common;
#[path = "../../../examples/pictures/draw.rs"]
mod draw;
#[path = "it/pictures.rs"]
mod pictures;

use std::path::Path;
use std::sync::Mutex;

use common::{Scratch, check_error, command, event, events, stdout};
use memfit::train::{Event, Flow};
use memfit_run::train::{End, Finished, Observer, Planning, prepare, run_all};
use memfit_run::{Purpose, RunConfig, RunError, RunResources, open};
use serde_json::Value;

/// Set where a missing GPU is a failure, as it is in CI.
const REQUIRED: &str = "MEMFIT_REQUIRE_GPU";

/// Whether there is a GPU to test with.
fn has_gpu() -> bool {
    let found = events(&["devices"]).1.iter().any(|d| d["device"] == "gpu:0");
    assert!(found || std::env::var_os(REQUIRED).is_none(), "no GPU is listed");
    if !found {
        eprintln!("skipped: this machine has no GPU with a driver");
    }
    found
}

/// What a run says, with an environment variable.
fn events_with(variable: (&str, &str), args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let args = [args, &["--json"]].concat();
    let output = command(&args).env(variable.0, variable.1).output().expect("the binary starts");
    (output.status.code(), stdout(&output).lines().map(|l| serde_json::from_str(l).expect("an object")).collect())
}

#[test]
fn gpus_are_listed_beside_the_cpu() {
    if !has_gpu() {
        return;
    }
    let (code, devices) = events(&["devices"]);
    assert_eq!((code, &devices[0]["device"]), (0, &"cpu:0".into()));
    for (i, gpu) in devices[1..].iter().enumerate() {
        assert_eq!(gpu["device"], format!("gpu:{i}"), "{gpu}");
        for text in ["name", "kind", "api", "driver", "compiler"] {
            assert!(gpu[text].as_str().is_some_and(|n| !n.is_empty()), "{text}: {gpu}");
        }
        assert!(gpu["largest_operand_bytes"].as_u64() <= gpu["largest_segment_bytes"].as_u64(), "{gpu}");
        assert!(gpu["f16"].is_boolean() && gpu["int64"].is_boolean(), "{gpu}");
        // What is not known stands as null, and never as a number that somebody made up.
        for bytes in ["memory_bytes", "used_bytes", "available_bytes"] {
            assert!(gpu.get(bytes).is_some_and(|v| v.is_null() || v.is_u64()), "{bytes}: {gpu}");
        }
        assert!(gpu["memory_bytes"].is_null() || gpu["memory_bytes"].as_u64() > Some(0), "{gpu}");
    }
}

#[test]
fn a_gpu_is_named_hidden_and_split_as_the_cpu_is() {
    if !has_gpu() {
        return;
    }
    check_error(&["plan", "--device", "gpu:99"], 5, &["gpu:99", "memfit devices", "--device cpu"]);
    check_error(&["plan", "--device", "gpu:0/1"], 2, &["gpu:0/1", "--logical"]);
    check_error(&["plan", "--device", "gpu:x"], 2, &["gpu:x", "there are cpu:0, gpu:0"]);
    check_error(&["train", "--device", "gpu", "--growth", "lazy"], 2, &["gpu:0", "not page by page", "--growth"]);
    let (_, parts) = events(&["devices", "--device", "gpu", "--logical", "1MiB,2MiB"]);
    let of_gpu: Vec<_> = parts.iter().filter(|d| d["part_of"] == "gpu:0").map(|d| &d["limit_bytes"]).collect();
    assert_eq!(of_gpu, [1 << 20, 2 << 20]);
    let (code, told) = events_with(("MEMFIT_VISIBLE_DEVICES", "cpu"), &["plan", "--device", "gpu"]);
    assert_eq!((code, &told[0]["kind"]), (Some(2), &"usage".into()), "{told:?}");
    assert!(told[0]["message"].as_str().is_some_and(|m| m.contains("hides gpu:0")), "{told:?}");
}

#[test]
fn what_was_measured_on_the_cpu_is_never_said_of_a_gpu() {
    if !has_gpu() {
        return;
    }
    let settings = Scratch::new("gpu-cost-model");
    let text = "name = \"of the processor\"\ngflops = 123\ngbytes = 12\nlaunch_us = 1\n";
    settings.write("memfit/cost_model.toml", text);
    let listed = |folder: &str| events_with(("XDG_CONFIG_HOME", folder), &["devices"]).1;
    let devices = listed(&settings.path(""));
    assert_eq!(devices[0]["profile"]["name"], "of the processor");
    for gpu in &devices[1..] {
        assert!(gpu["profile"]["name"] != "of the processor" && gpu["profile"]["file"].is_null(), "{gpu}");
    }
}

#[test]
fn a_gpu_is_measured_for_a_cost_model_of_its_own() {
    if !has_gpu() {
        return;
    }
    let settings = Scratch::new("gpu-calibrated");
    let here = |args: &[&str]| events_with(("XDG_CONFIG_HOME", &settings.path("")), args);
    let (code, told) = here(&["devices", "--calibrate", "--device", "gpu"]);
    assert_eq!(code, Some(0), "{told:?}");
    let measured = &told[0]["profile"];
    let (_, devices) = here(&["devices"]);
    assert_eq!(measured["name"], devices[1]["name"], "it has the adapter's name");
    assert_eq!(measured["hash"], devices[1]["profile"]["hash"], "it is in use");
    assert!(devices[0]["profile"]["file"].is_null(), "the CPU's was not measured: {}", devices[0]);
    for constant in ["gflops", "gbytes", "launch_us"] {
        assert!(measured[constant].as_f64().is_some_and(|c| c > 0.0), "{constant}: {measured}");
    }
}

/// The smallest model there is.
const TRAIN: [&str; 9] = ["train", "--device", "gpu", "--steps", "3", "--batch", "8", "--budget", "4MiB"];

#[test]
fn a_run_trains_on_a_gpu_and_goes_on_there_to_the_same_bits_and_elsewhere_to_others() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-train");
    let out = scratch.path("run");
    let (code, told) = events(&[&TRAIN[..], &["--out", &out]].concat());
    assert_eq!(code, 0, "{told:?}");
    let plan = &told[0];
    assert_eq!((&plan["event"], &plan["device"]), (&"plan".into(), &"gpu:0".into()), "{plan}");
    assert!(taken(plan) <= 4 << 20, "{plan}");
    let weights = |run: &str| std::fs::read(scratch.0.join(run).join("weights.safetensors")).expect("it was trained");
    let at_once = weights("run");
    // The same device gives the same bits, at once or in two goes.
    let again = scratch.path("again");
    let two = [&TRAIN[..4], &["2"], &TRAIN[5..], &["--out", &again]].concat();
    assert_eq!(events(&two).0, 0);
    let (code, told) = events(&["train", "--resume", &again, "--steps", "3"]);
    assert_eq!((code, &told[0]["device"], &told[0]["moved_from"]), (0, &"gpu:0".into(), &Value::Null), "{told:?}");
    assert!(weights("again") == at_once);
    // Another one goes on with it, and says so; and the way back is open.
    let (code, told) = events(&["train", "--resume", &out, "--steps", "4", "--device", "cpu"]);
    assert_eq!(code, 0, "{told:?}");
    assert!(told[0]["device"] == "cpu" && told[0]["moved_from"].is_string(), "{told:?}");
    let (code, told) = events(&["train", "--resume", &out, "--steps", "5", "--device", "gpu"]);
    assert_eq!((code, &told[0]["device"]), (0, &"gpu:0".into()), "{told:?}");
    for device in ["cpu", "gpu"] {
        let (code, told) = events(&["eval", &out, "--device", device]);
        assert_eq!((code, &told[0]["event"]), (0, &"eval".into()), "{device}: {told:?}");
    }
}

#[test]
fn a_logical_device_of_a_gpu_limits_arena_and_copies_and_not_the_data_pipeline() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-logical");
    let out = scratch.path("run");
    let of_gpu = ["--device", "gpu", "--batch", "8"];
    let limits = ["--logical", "3MiB", "--host-budget", "8MiB", "--steps", "1", "--out", &out];
    let (code, told) = events(&[&["train"], &of_gpu[..], &limits].concat());
    assert_eq!((code, &told[0]["device"]), (0, &"gpu:0/0".into()), "{told:?}");
    let bytes = |what: &str| told[0][what].as_u64().expect("a number");
    assert!(bytes("staging_bytes") > 0 && bytes("arena_bytes") + bytes("staging_bytes") <= 3 << 20, "{}", told[0]);
    // What would fit is said with what copies take, and it does.
    let too_small = (bytes("staging_bytes") + (64 << 10)).to_string();
    let (code, told) = events(&[&["plan"], &of_gpu[..], &["--logical", &too_small]].concat());
    let message = told[0]["message"].as_str().unwrap_or_default();
    assert_eq!(code, 3, "{told:?}");
    assert!(message.contains("of gpu:0/0 is free; no plan") && message.contains("beside the arena"), "{message}");
    let cure = message.split("--logical ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a cure");
    let (code, told) = events(&[&["plan"], &of_gpu[..], &["--logical", cure]].concat());
    assert_eq!(code, 0, "{cure}: {told:?}");
}

/// All that a plan takes of its device.
fn taken(plan: &Value) -> u64 {
    let bytes = |what: &str| plan[what].as_u64().expect("a number");
    assert_eq!(bytes("arena_bytes") + bytes("staging_bytes"), bytes("device_bytes"), "{plan}");
    bytes("device_bytes")
}

#[test]
fn a_budget_on_a_gpu_holds_the_arena_and_the_copies() {
    if !has_gpu() {
        return;
    }
    let of_gpu = ["--device", "gpu", "--model", "digits", "--batch", "8"];
    // Of an option that is said twice, neither would hold.
    let plan = |more: &[&str]| {
        let usual = of_gpu.chunks(2).filter(|option| !more.contains(&option[0])).flatten().copied();
        events(&["plan"].into_iter().chain(usual).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let (_, told) = plan(&["--frontier"]);
    let points = told[0]["points"].as_array().expect("points");
    for point in points {
        let (code, told) = plan(&["--budget", &taken(point).to_string()]);
        assert_eq!((code, taken(&told[0])), (0, taken(point)), "{told:?}");
        assert!(told[0]["staging_bytes"].as_u64() > Some(0), "{told:?}");
    }
    // One byte less than the smallest is refused, and what is proposed is enough.
    let smallest = taken(&points[points.len() - 1]);
    let too_small = (smallest - 1).to_string();
    let (code, told) = plan(&["--budget", &too_small]);
    let certificate = &told[0]["certificate"];
    assert_eq!((code, &certificate["needed_bytes"]), (3, &smallest.into()), "{told:?}");
    for fix in certificate["fixes"].as_array().expect("fixes") {
        let change = fix["change"].as_str().expect("options");
        let mut options: Vec<&str> = change.split_whitespace().collect();
        if !options.contains(&"--budget") {
            options.extend(["--budget", &too_small]);
        }
        let (code, told) = plan(&options);
        assert_eq!((code, taken(&told[0])), (0, taken(fix)), "{change}: {told:?}");
    }
    let (code, told) = events(&[&["plan"], &of_gpu[..4], &["--budget", "3MiB", "--max-batch"]].concat());
    assert_eq!(code, 0, "{told:?}");
    assert!(taken(&told[0]["plan"]) <= 3 << 20, "{told:?}");
}

/// Loses the device when a step has been made.
struct LosesDevice {
    at: u32,
    failed: Mutex<Vec<String>>,
}

impl Observer for LosesDevice {
    fn on_event(&self, _: usize, event: &Event) -> Flow {
        if matches!(event, Event::Step { step, .. } if *step == self.at) {
            memfit::gpu::GpuExecutor::new(0).expect("it is open").gpu().destroy();
        }
        Flow::Continue
    }

    fn on_finish(&self, _: &Finished) {}

    fn on_failure(&self, _: &RunResources, error: &RunError) {
        self.failed.lock().expect("no panic").push(error.to_string());
    }
}

#[test]
fn a_run_whose_device_is_lost_says_so_once_and_goes_on_from_its_checkpoint_to_the_same_bits() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-lost");
    let text = |out: &str| {
        let out = scratch.path(out);
        format!(
            "[train]\nsteps = 9\nbatch = 8\nsave_every = 4\nout = {out:?}\n[memory]\ndevice = \"gpu\"\nbudget = \"4MiB\"\n"
        )
    };
    let config = RunConfig::read(Path::new(&scratch.write("lost.toml", text("lost")))).expect("a run file");
    let runs = open(vec![config], Purpose::Train, false).expect("it is right");
    let trainings = prepare(runs, &Planning::default(), &mut |_| {}).expect("a plan");
    let observer = LosesDevice { at: 5, failed: Mutex::default() };
    let ends = run_all(trainings, &observer);
    let [End::Failed { error: RunError::DeviceFailed { step, source, .. }, .. }] = &ends[..] else {
        panic!("{:?}", observer.failed)
    };
    assert_eq!((*step, observer.failed.lock().expect("no panic").len()), (4, 1), "{source}");
    assert!(source.is_of_device() && source.to_string().contains("gpu:0"), "{source}");
    // What it left is whole, and leads to where it would have gone.
    let (code, told) = events(&["train", "--resume", &scratch.path("lost")]);
    assert_eq!(code, 0, "{told:?}");
    let (code, told) = events(&["train", &scratch.write("whole.toml", text("whole"))]);
    assert_eq!(code, 0, "{told:?}");
    let weights = |run: &str| std::fs::read(scratch.0.join(run).join("weights.safetensors")).expect("it was trained");
    assert!(weights("lost") == weights("whole"));
}

#[test]
fn models_share_a_gpu_and_a_process_has_several_devices() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-together");
    let file = |name: &str, device: &str| {
        let out = scratch.path(&format!("{name}-out"));
        let text = format!("[train]\nsteps = 1\nbatch = 8\nout = {out:?}\n[memory]\ndevice = \"{device}\"\n");
        scratch.write(&format!("{name}.toml"), text)
    };
    let (a, b, c) = (file("a", "gpu"), file("b", "gpu:0"), file("c", "cpu"));
    let (code, told) = events(&["train", &a, &b, &c]);
    assert_eq!(code, 0, "{told:?}");
    let together: Vec<&Value> = told.iter().filter(|e| e["event"] == "together").collect();
    assert_eq!(together.len(), 1, "{told:?}");
    assert_eq!((&together[0]["device"], &together[0]["runs"]), (&"gpu:0".into(), &serde_json::json!(["a", "b"])));
    let weights = |run: &str| std::fs::read(scratch.0.join(run).join("weights.safetensors")).expect("it was trained");
    assert!(weights("a-out") == weights("b-out"), "they are the same run");
    // One budget is for both, with what copies take; what a refusal asks for is enough, and a byte less is not.
    let (code, told) = events(&["plan", &a, &b, "--budget", "1MiB"]);
    assert_eq!(code, 3, "{told:?}");
    let needed = told[0]["certificate"]["needed_bytes"].as_u64().expect("a number");
    let (code, told) = events(&["plan", &a, &b, "--budget", &needed.to_string()]);
    let together = told.iter().find(|e| e["event"] == "together").expect("they share it");
    let bytes = |what: &str| together[what].as_u64().expect("a number");
    assert_eq!((code, bytes("arena_bytes") + bytes("staging_bytes")), (0, needed), "{together}");
    assert!(bytes("staging_bytes") > 0, "{together}");
    assert_eq!(events(&["plan", &a, &b, "--budget", &(needed - 1).to_string()]).0, 3);
}

#[test]
fn a_step_on_a_gpu_is_profiled_kernel_by_kernel_on_its_queue() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-profile");
    let out = scratch.path("profile");
    let (code, told) = events(&["profile", "--device", "gpu", "--batch", "8", "--steps", "2", "--out", &out]);
    assert_eq!(code, 0, "{told:?}");
    let has_clock = events(&["devices"]).1.iter().any(|d| d["device"] == "gpu:0" && d["timestamps"] == true);
    assert_eq!(told[0]["kernel_clock"], if has_clock { "device" } else { "waiting" }, "{}", told[0]);
    let read = |name: &str| std::fs::read_to_string(scratch.0.join("profile").join(name)).expect(name);
    let profile: Value = serde_json::from_str(&read("profile.json")).expect("a profile");
    let measured = &profile["measured"];
    let kernels = profile["memory"]["kernels"].as_u64().expect("a number") as usize;
    assert_eq!((measured["steps"].as_array().map(Vec::len), &measured["dropped"]), (Some(2), &0.into()));
    assert_eq!(measured["slices"].as_array().map(Vec::len), Some(kernels), "each kernel once");
    assert!(measured["threads"][0].as_str().is_some_and(|queue| queue.starts_with("queue of gpu")), "{measured}");
    for limit in ["gflops", "gbytes"] {
        assert!(profile["limits"][limit].as_f64().is_some_and(|most| most > 0.0), "{limit}: {}", profile["limits"]);
    }
    let trace: Value = serde_json::from_str(&read("trace.json")).expect("a trace");
    let names = trace["traceEvents"].as_array().expect("events").iter().filter(|e| e["name"] == "thread_name");
    assert_eq!(names.map(|e| &e["args"]["name"]).collect::<Vec<_>>(), [&measured["threads"][0]]);
    assert!(read("report.html").contains("\"clock\""), "the report says which clock it was");
}

#[test]
fn digits_are_learned_in_two_epochs_and_judged_alike_on_both_devices() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-digits");
    let out = scratch.path("run");
    let limits = ["--budget", "4MiB", "--out", &out];
    let (code, told) =
        events(&[&["train", "--model", "digits", "--epochs", "2", "--device", "gpu"], &limits[..]].concat());
    let done = told.last().expect("it ends");
    assert_eq!((code, &done["event"]), (0, &"done".into()), "{done}");
    let accuracy = done["test_accuracy"].as_f64().expect("a number");
    assert!(accuracy >= 0.95, "{accuracy}");
    let [on_gpu, on_cpu] = ["gpu", "cpu"].map(|device| event(&["eval", &out, "--device", device]));
    for scores in [&on_gpu["scores"], &on_cpu["scores"]] {
        assert_eq!((&scores["accuracy"], &scores["count"]), (&done["test_accuracy"], &done["scores"]["count"]));
    }
    assert_eq!(on_gpu["scores"]["loss"], done["scores"]["loss"], "the same device, the same bits");
    let losses = [&on_gpu, &on_cpu].map(|told| told["scores"]["loss"].as_f64().expect("a number"));
    assert!((losses[0] - losses[1]).abs() <= 1e-4 * losses[1], "{losses:?}");
}

#[test]
fn pictures_are_of_the_same_classes_on_both_devices() {
    if !has_gpu() {
        return;
    }
    let scratch = pictures::pictures("gpu-predicted");
    let (data, out) = (scratch.path("data"), scratch.path("run"));
    let model = ["--model", "digits", "--input", "16x16x3", "--batch", "4", "--budget", "8MiB", "--device", "gpu"];
    let (code, told) = events(&[&["train", "--data", &data, "--epochs", "2", "--out", &out], &model[..]].concat());
    assert_eq!(code, 0, "{:?}", told.last());
    // Two batches, the second not full.
    let files: Vec<String> =
        (0..7).map(|n| scratch.path(&format!("data/{}/{n}.png", ["bar", "disc"][n % 2]))).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let [on_gpu, on_cpu] = ["gpu", "cpu"].map(|device| {
        let (code, told) = events(&[&["predict", &out, "--device", device], &files[..]].concat());
        assert_eq!(code, 0, "{told:?}");
        told
    });
    assert_eq!((on_gpu.len(), on_cpu.len()), (files.len(), files.len()), "{on_gpu:?}");
    for (gpu, cpu) in on_gpu.iter().zip(&on_cpu) {
        assert_eq!((&gpu["file"], &gpu["class"]), (&cpu["file"], &cpu["class"]));
        let [a, b] = [gpu, cpu].map(|told| told["probability"].as_f64().expect("a number"));
        assert!((a - b).abs() <= 1e-4, "{gpu} {cpu}");
    }
}

#[test]
fn replicas_on_logical_devices_of_a_gpu_end_in_the_bytes_of_one() {
    if !has_gpu() {
        return;
    }
    let scratch = Scratch::new("gpu-replicas");
    let train = |name: &str, options: &[&str]| {
        let out = scratch.path(name);
        let args = [&["train", "--device", "gpu", "--lanes", "2", "--steps", "3", "--out", &out], options].concat();
        let output = command(&args).output().expect("the binary starts");
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(format!("{out}/weights.safetensors")).expect("weights")
    };
    let alone = train("1", &[]);
    assert!(train("2", &["--replicas", "2", "--logical", "8MiB,8MiB"]) == alone);
    assert!(train("2 sharded", &["--replicas", "2", "--logical", "8MiB,8MiB", "--shard", "optimizer"]) == alone);
    let none = ["train", "--device", "gpu", "--replicas", "40", "--batch", "40", "--steps", "1"];
    check_error(&none, 2, &["has no device of its own", "--logical"]);
}
