//! `memfit devices`, and the cost profiles that plans use.

mod common;

use common::{check_error, command, events, memfit, stdout, temporary};
use serde_json::Value;

#[test]
fn a_device_is_shown_with_its_profile() {
    let text = stdout(&memfit(&["devices"]));
    for part in ["cpu", "instructions", "\"default\"", "gflops", "gbytes", "launch_us"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, devices) = events(&["devices"]);
    assert_eq!(code, 0);
    let device = &devices[0];
    assert_eq!((&device["device"], &device["profile"]["name"]), (&"cpu:0".into(), &"default".into()));
    assert!(device["threads"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn a_measured_profile_is_used_from_then_on() {
    let settings = temporary("settings");
    let run = |args: &[&str]| -> Value {
        let output = command(args).env("XDG_CONFIG_HOME", &settings).output().expect("the binary starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(stdout(&output).lines().next().expect("a line")).expect("an object")
    };
    let before = run(&["plan", "--json"]);
    assert_eq!((&before["profile"]["name"], &before["profile"]["file"]), (&"default".into(), &Value::Null));
    let measured = run(&["devices", "--calibrate", "--json"]);
    let file = settings.join("memfit/profile.toml");
    assert_eq!(measured["profile"]["file"], file.display().to_string());
    for args in [&["plan", "--json"][..], &["train", "--steps", "1", "--json"], &["devices", "--json"]] {
        assert_eq!(run(args)["profile"], measured["profile"], "{args:?}");
    }
    // A named one goes before it.
    let named = temporary("named.toml");
    std::fs::write(&named, "name = \"slow\"\ngflops = 1.5\n").expect("a temporary file");
    let slow = run(&["plan", "--json", "--profile", &named.display().to_string()]);
    assert_eq!((&slow["profile"]["name"], &slow["profile"]["gflops"]), (&"slow".into(), &1.5.into()));
    assert!(slow["predicted_step_ms"].as_f64() > before["predicted_step_ms"].as_f64());
    // One that cannot be read is told, with the cure, and can be measured anew.
    std::fs::write(&file, "gflops = -1").expect("it was written above");
    let output = command(&["plan"]).env("XDG_CONFIG_HOME", &settings).output().expect("the binary starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4));
    for part in ["profile.toml", "gflops", "positive", "--calibrate"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    run(&["devices", "--calibrate", "--json"]);
    run(&["plan", "--json"]);
    std::fs::remove_dir_all(settings).expect("it was written above");
    std::fs::remove_file(named).expect("it was written above");
}

#[test]
fn wrong_use_is_told_with_the_cure() {
    check_error(&["plan", "--profile", "/nowhere/p.toml"], 4, &["/nowhere/p.toml", "--calibrate"]);
    check_error(&["devices", "--out", "p.toml"], 2, &["--calibrate"]);
    check_error(&["devices", "--calibrate", "--out", "/nowhere/p.toml"], 2, &["/nowhere/p.toml", "folder"]);
    check_error(&["devices", "--calibrate", "--threads", "0"], 2, &["--threads", "0"]);
    let output = command(&["devices", "--calibrate"]).env_remove("XDG_CONFIG_HOME").env_remove("HOME").output();
    let output = output.expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--out"));
}
