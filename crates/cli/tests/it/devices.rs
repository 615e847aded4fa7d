//! `memfit devices`, and the cost models that plans use.

use crate::common;

use common::{check_error, command, events, memfit, stdout, temporary};
use serde_json::Value;

#[test]
fn a_device_is_shown_with_its_cost_model() {
    let text = stdout(&memfit(&["devices"]));
    for part in ["cpu", "instructions", "\"default, ", "gflops", "gbytes", "launch_us"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, devices) = events(&["devices"]);
    assert_eq!(code, 0);
    let device = &devices[0];
    // Each kind of machine has its own: its instructions and as many threads.
    let threads = device["threads"].as_u64().expect("a number");
    let plural = if threads == 1 { "" } else { "s" };
    let isa = device["instruction_set"].as_str().expect("a name");
    let name = format!("default, {isa}, {threads} thread{plural}");
    assert_eq!((&device["device"], &device["profile"]["name"]), (&"cpu:0".into(), &name.into()));
}

/// More threads than it may use at once would only wait for each other.
#[test]
fn threads_are_as_many_as_cores_that_the_process_may_use() {
    let threads = |shell: &str| -> Option<u64> {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("{shell} \"$0\" devices --json"), env!("CARGO_BIN_EXE_memfit")]);
        let output = command.env("XDG_CONFIG_HOME", "/nowhere").output().ok().filter(|o| o.status.success())?;
        serde_json::from_slice::<Value>(&output.stdout).ok()?["threads"].as_u64()
    };
    let all = threads("exec").expect("it is shown");
    match threads("exec taskset -c $(taskset -cp $$ | sed 's/.*[ ,-]//')") {
        None => eprintln!("skipped: no taskset here"),
        one => assert_eq!(one, Some(1)),
    }
    // A quota of one and a half cores, as containers have it.
    let group = format!("/sys/fs/cgroup/cpu/memfit-test-{}", std::process::id());
    if std::fs::create_dir(&group).is_err() {
        return eprintln!("skipped: no quota of processor time can be set here");
    }
    let set = format!(
        "echo 100000 > {group}/cpu.cfs_period_us && echo 150000 > {group}/cpu.cfs_quota_us && \
         echo $$ > {group}/cgroup.procs && exec"
    );
    let limited = threads(&set);
    std::fs::remove_dir(&group).expect("nobody is in it any more");
    match limited {
        None => eprintln!("skipped: no quota of processor time can be set here"),
        some => assert_eq!(some, Some(all.min(1))),
    }
}

#[test]
fn the_instruction_set_can_be_chosen_of_those_that_there_are() {
    let with_isa =
        |name: &str, args: &[&str]| command(args).env("MEMFIT_ISA", name).output().expect("the binary starts");
    let device = |name: &str| -> Value {
        let output = with_isa(name, &["devices", "--json"]);
        serde_json::from_str(stdout(&output).lines().next().expect("a line")).expect("an object")
    };
    // As good as not set, which is the best.
    let best = device("");
    let sets: Vec<&str> = best["instructions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!((&best["instruction_set"], sets.last()), (&sets[0].into(), Some(&"portable")));
    for set in &sets {
        assert_eq!(device(set)["instruction_set"], *set);
        let text = stdout(&with_isa(set, &["devices"]));
        assert!(text.contains(&format!("instructions: {set} (of {})", sets.join(", "))), "{text}");
        assert!(with_isa(set, &["train", "--steps", "1"]).status.success(), "{set}");
    }
    // Never above what the machine has: no machine has them all.
    let lacking = ["avx512", "avx2", "neon"].into_iter().filter(|name| !sets.contains(name));
    for name in lacking.chain(["sse9"]) {
        for args in [&["devices"][..], &["devices", "--calibrate"], &["plan"], &["train", "--steps", "1"]] {
            let output = with_isa(name, args);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(5), "{args:?}: {message}");
            for part in ["MEMFIT_ISA", name, &sets.join(", ")] {
                assert!(message.contains(part), "{args:?} does not say {part:?}: {message}");
            }
            assert!(!message.contains("panicked"), "{args:?}: {message}");
        }
    }
}

#[test]
fn a_measured_cost_model_is_used_from_then_on() {
    let settings = temporary("settings");
    let run = |args: &[&str]| -> Value {
        let output = command(args).env("XDG_CONFIG_HOME", &settings).output().expect("the binary starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(stdout(&output).lines().next().expect("a line")).expect("an object")
    };
    let before = run(&["plan", "--json"]);
    let name = before["profile"]["name"].as_str().expect("a name");
    assert!(name.starts_with("default, ") && name.ends_with(", 2 threads"), "{name}");
    assert_eq!(before["profile"]["file"], Value::Null);
    let measured = run(&["devices", "--calibrate", "--json"]);
    let file = settings.join("memfit/cost_model.toml");
    assert_eq!(measured["profile"]["file"], file.display().to_string());
    for args in [&["plan", "--json"][..], &["train", "--steps", "1", "--json"], &["devices", "--json"]] {
        assert_eq!(run(args)["profile"], measured["profile"], "{args:?}");
    }
    // A named one goes before it.
    let named = temporary("named.toml");
    std::fs::write(&named, "name = \"slow\"\ngflops = 1.5\n").expect("a temporary file");
    let slow = run(&["plan", "--json", "--cost-model", &named.display().to_string()]);
    assert_eq!((&slow["profile"]["name"], &slow["profile"]["gflops"]), (&"slow".into(), &1.5.into()));
    assert!(slow["predicted_step_ms"].as_f64() > before["predicted_step_ms"].as_f64());
    // One that cannot be read is told, with the cure, and can be measured anew.
    std::fs::write(&file, "gflops = -1").expect("it was written above");
    let output = command(&["plan"]).env("XDG_CONFIG_HOME", &settings).output().expect("the binary starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4));
    for part in ["cost_model.toml", "gflops", "positive", "--calibrate"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    run(&["devices", "--calibrate", "--json"]);
    run(&["plan", "--json"]);
    // One that was measured before it was called so is used where there is no other.
    std::fs::rename(&file, settings.join("memfit/profile.toml")).expect("it was written above");
    let old = run(&["plan", "--json"]);
    assert_eq!(old["profile"]["file"], settings.join("memfit/profile.toml").display().to_string());
    std::fs::remove_dir_all(settings).expect("it was written above");
    std::fs::remove_file(named).expect("it was written above");
}

/// The folder of a run that an older version made says it by its former name; nobody else may.
#[test]
fn a_run_with_the_former_name_of_a_cost_model_goes_on() {
    let scratch = common::Scratch::new("former");
    let (run, model) = (scratch.path("run"), scratch.write("slow.toml", "name = \"slow\"\ngflops = 1.5\n"));
    assert!(memfit(&["train", "--steps", "2", "--out", &run, "--cost-model", &model]).status.success());
    let file = scratch.path("run/run.toml");
    let text = std::fs::read_to_string(&file).expect("a run file");
    assert!(text.contains("cost_model = "), "{text}");
    std::fs::write(&file, text.replace("cost_model = ", "profile = ")).expect("it can be changed");
    check_error(&["plan", &file], 2, &["run.toml", "memory.profile is now memory.cost_model"]);
    let (code, events) = events(&["train", "--resume", &run, "--steps", "4"]);
    assert_eq!((code, &events[0]["profile"]["name"]), (0, &"slow".into()), "{events:?}");
    assert!(memfit(&["eval", &run]).status.success());
}

#[test]
fn logical_devices_are_shown_with_their_limits_and_what_is_hidden() {
    let devices = |visible: Option<&str>| -> Vec<Value> {
        let mut command = command(&["devices", "--logical", "1MiB,2MiB", "--json"]);
        visible.map(|names| command.env("MEMFIT_VISIBLE_DEVICES", names));
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stdout(&output).lines().map(|l| serde_json::from_str(l).expect("an object")).collect()
    };
    let is_visible = |devices: &[Value]| devices[..3].iter().map(|d| d["visible"] == true).collect::<Vec<_>>();
    let all = devices(None);
    assert_eq!([&all[1]["device"], &all[2]["device"]], ["cpu:0/0", "cpu:0/1"]);
    assert_eq!([&all[1]["limit_bytes"], &all[2]["limit_bytes"]], [1 << 20, 2 << 20]);
    assert_eq!(is_visible(&all), [true, true, true]);
    assert_eq!(is_visible(&devices(Some("cpu:0/1"))), [false, false, true]);
    let hidden = |args: &[&str], visible: &str| {
        let output = command(args).env("MEMFIT_VISIBLE_DEVICES", visible).output().expect("the binary starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, message) = hidden(&["train", "--steps", "1"], "gpu:0");
    assert!(code == Some(2) && message.contains("MEMFIT_VISIBLE_DEVICES hides cpu:0"), "{message}");
    let (code, message) = hidden(&["plan", "--logical", "1MiB,8MiB"], "cpu:0/1");
    assert_eq!(code, Some(0), "the second part, into which it fits: {message}");
}

/// While a training runs, others see what it holds; and no more when it is over.
#[cfg(target_os = "linux")]
#[test]
fn who_holds_memory_is_seen_from_outside() {
    let folder = common::Scratch::new("announced");
    let here = |args: &[&str]| {
        let mut command = command(args);
        command.env("XDG_RUNTIME_DIR", &folder.0);
        command
    };
    let processes = || -> Value {
        let output = here(&["devices", "--json"]).output().expect("the binary starts");
        let device: Value = serde_json::from_str(stdout(&output).lines().next().expect("a line")).expect("an object");
        device["processes"].clone()
    };
    let args = ["train", "--epochs", "5000", "--logical", "8MiB", "--json"];
    let mut child = here(&args).stdout(std::process::Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("it is piped")));
    let step = lines.by_ref().map_while(Result::ok).find(|l| l.contains("\"event\":\"step\""));
    assert!(step.is_some(), "it trains");
    let seen = processes();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it runs");
    lines.for_each(drop);
    let id = child.id();
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let device = &seen[0]["devices"][0];
    assert_eq!((seen[0]["pid"].as_u64(), &device["device"]), (Some(id.into()), &"cpu:0/0".into()), "{seen}");
    assert_eq!(device["limit_bytes"], 8 << 20);
    let holders: Vec<&str> =
        device["holders"].as_array().into_iter().flatten().filter_map(|h| h["name"].as_str()).collect();
    assert_eq!(holders, ["the data pipeline of digits", "activations of digits", "weights of digits"]);
    assert_eq!(processes(), serde_json::json!([]));
}

#[test]
fn wrong_use_is_told_with_the_cure() {
    check_error(&["plan", "--cost-model", "/nowhere/p.toml"], 4, &["/nowhere/p.toml", "--calibrate"]);
    check_error(&["plan", "--profile", "/nowhere/p.toml"], 2, &["--profile is now --cost-model"]);
    check_error(&["devices", "--out", "p.toml"], 2, &["--calibrate"]);
    check_error(&["devices", "--calibrate", "--out", "/nowhere/p.toml"], 2, &["/nowhere/p.toml", "folder"]);
    check_error(&["devices", "--calibrate", "--threads", "0"], 2, &["--threads", "0"]);
    let output = command(&["devices", "--calibrate"]).env_remove("XDG_CONFIG_HOME").env_remove("HOME").output();
    let output = output.expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--out"));
}
