//! Budgets that are too small: the certificate, and that every fix in it works when it is typed.

use crate::common;

use common::{Scratch, check_error, event, events, memfit, stdout};

use crate::files::{Pixels, write_png};
use serde_json::Value;

/// Arguments as name and setting, so that a fix can replace one.
type Args<'a> = Vec<(&'a str, &'a str)>;

fn flat<'a>(args: &Args<'a>) -> Vec<&'a str> {
    std::iter::once("plan").chain(args.iter().flat_map(|(name, setting)| [*name, *setting])).collect()
}

/// The arguments with a fix done as a person would do it.
fn with<'a>(args: &Args<'a>, change: &'a str) -> Args<'a> {
    let (name, setting) = change.split_once(' ').expect("a name and a setting");
    let others = args.iter().filter(|(n, _)| *n != name).copied();
    others.chain([(name, setting)]).collect()
}

/// A refused plan: its certificate.
fn certificate(args: &Args) -> Value {
    let (code, mut events) = events(&flat(args));
    assert_eq!((code, events.len()), (3, 1), "{args:?}");
    assert_eq!((&events[0]["event"], &events[0]["kind"]), (&"error".into(), &"refused".into()));
    events.remove(0)["certificate"].take()
}

/// Every fix plans to what it promises; the changes that were offered.
fn check_fixes(args: &Args) -> Vec<String> {
    let certificate = certificate(args);
    let fixes = certificate["fixes"].as_array().expect("a list");
    let times: Vec<f64> = fixes.iter().map(|f| f["predicted_sample_ms"].as_f64().expect("a number")).collect();
    assert!(times.is_sorted(), "{times:?}");
    for fix in fixes {
        let change = fix["change"].as_str().expect("a change");
        let plan = event(&flat(&with(args, change)));
        assert_eq!(plan["arena_bytes"], fix["arena_bytes"], "{change}");
        assert_eq!(plan["predicted_step_ms"], fix["predicted_step_ms"], "{change}");
        let budget = plan["budget_bytes"].as_u64().expect("a budget");
        assert!(plan["arena_bytes"].as_u64().expect("a number") <= budget, "{change}");
        if let Some(batch) = change.strip_prefix("--batch ") {
            let more = (batch.parse::<usize>().expect("a number") + 1).to_string();
            assert_eq!(memfit(&flat(&with(args, &format!("--batch {more}")))).status.code(), Some(3), "{change}");
        }
    }
    let is_usual = |fix: &&Value| !SMALLER.iter().any(|note| fix["note"].as_str().is_some_and(|n| n.starts_with(note)));
    fixes.iter().filter(is_usual).map(option_of).collect()
}

/// What fixes say whose model or samples are smaller, but for siblings.
const SMALLER: [&str; 4] = ["a narrower model", "a model with smaller kernels", "another family", "smaller samples"];

/// "--batch"
fn option_of(fix: &Value) -> String {
    fix["change"].as_str().expect("a change").split(' ').next().expect("a name").into()
}

/// A budget that is this share of the way from the states to the smallest plan.
fn budget_at(share: f64, certificate: &Value) -> String {
    let bytes = |key: &str| certificate[key].as_u64().expect("a number") as f64;
    let budget = bytes("state_bytes") + share * (bytes("needed_bytes") - bytes("state_bytes"));
    (budget as u64).to_string()
}

/// Checks a budget that is this share of the way from the states to the smallest plan: which fixes are offered.
fn check_offered(args: &Args, share: f64, expected: &[&str]) {
    let smallest = certificate(&[&args[..], &[("--budget", "1")]].concat());
    let budget = budget_at(share, &smallest);
    let args = [&args[..], &[("--budget", &budget)]].concat();
    let mut offered = check_fixes(&args);
    offered.sort();
    // Whether 16 bits are smaller where everything is recomputed is the planner's to know; what fits must be offered.
    let mixed = memfit(&flat(&with(&args, "--precision mixed"))).status.success();
    let mixed = if mixed { &["--precision"][..] } else { &[] };
    let expected = if expected.contains(&"--precision") { expected.to_vec() } else { [expected, mixed].concat() };
    assert_eq!(offered, expected, "{args:?}");
}

#[test]
fn every_fix_works_when_it_is_typed() {
    let digits = vec![("--model", "digits"), ("--batch", "256")];
    check_offered(&digits, 0.9, &["--batch", "--budget", "--micro-batch", "--precision"]);
    let mobilenet = vec![("--model", "mobilenet_v3_large"), ("--input", "96x96x3"), ("--batch", "48")];
    check_offered(&mobilenet, 0.9, &["--batch", "--budget", "--micro-batch", "--model"]);
    // Less than the states of the model, but not of its sibling; and less than both.
    check_offered(&with(&mobilenet, "--batch 8"), -0.1, &["--budget", "--model"]);
    check_offered(&vec![("--model", "resnet18"), ("--input", "32x32x3")], -0.1, &["--budget"]);
}

#[test]
fn a_micro_batch_is_offered_where_it_was_forbidden() {
    let off = vec![("--model", "mlp"), ("--batch", "8192"), ("--micro-batch", "off")];
    check_offered(&off, 0.7, &["--batch", "--budget", "--micro-batch"]);
    let fixed = vec![("--model", "mlp"), ("--batch", "8192"), ("--micro-batch", "4096")];
    check_offered(&fixed, 0.7, &["--budget", "--micro-batch"]);
}

#[test]
fn a_certificate_says_where_and_why() {
    let args = vec![("--model", "resnet50"), ("--batch", "16"), ("--budget", "256MiB")];
    let text = ["256 MiB", "too much", "lower bound", "is fullest at", "in layer \"layer1", "activations", "--budget "];
    check_error(&flat(&args), 3, &text);
    let certificate = certificate(&args);
    assert_eq!(certificate["budget_bytes"], 256u64 << 20);
    let largest = certificate["largest"].as_array().expect("a list");
    assert_eq!(largest.len(), 10);
    for tensor in largest {
        for key in ["layer", "op", "type", "shape", "dtype", "bytes", "class"] {
            assert!(!tensor[key].is_null(), "{key} of {tensor}");
        }
    }
    let bytes = |key: &str| certificate[key].as_u64().expect("a number");
    assert_eq!(bytes("exceeded_by_bytes"), bytes("needed_bytes") - bytes("budget_bytes"));
    // The budget that the refusal names does fit, and one byte less does not.
    for (budget, code) in [(bytes("needed_bytes"), 0), (bytes("needed_bytes") - 1, 3)] {
        let output = memfit(&["plan", "--model", "resnet50", "--batch", "16", "--budget", &budget.to_string()]);
        assert_eq!(output.status.code(), Some(code), "budget {budget}");
    }
}

#[test]
fn impossible_is_said_only_below_the_bound() {
    let args = vec![("--model", "digits"), ("--budget", "1024")];
    let bound = certificate(&args)["lower_bound_bytes"].as_u64().expect("a number");
    for (budget, proved) in [(bound, false), (bound - 1, true)] {
        let budget = budget.to_string();
        let args = vec![("--model", "digits"), ("--budget", budget.as_str())];
        assert_eq!(certificate(&args)["proved"], proved);
        let words = if proved { "no plan can fit" } else { "no plan was found that fits" };
        check_error(&flat(&args), 3, &[words]);
    }
}

#[test]
fn smaller_models_are_offered_beside_and_marked_as_others() {
    let small = "64x64x3";
    for (args, share, expected) in [
        (
            vec![("--model", "resnet18"), ("--input", small), ("--batch", "16")],
            0.8,
            &["--input", "--model", "--width"][..],
        ),
        (
            vec![("--model", "unet"), ("--input", small), ("--batch", "4"), ("--kernel", "7")],
            0.5,
            &["--kernel", "--width"],
        ),
        (vec![("--model", "gpt"), ("--layers", "2"), ("--batch", "2")], -0.3, &["--width"]),
        (vec![("--model", "mlp"), ("--batch", "32")], -0.5, &["--hidden"]),
        // Its data are built in, and have their size.
        (vec![("--model", "digits"), ("--batch", "64"), ("--micro-batch", "off")], 0.5, &["--width"]),
    ] {
        let budget = budget_at(share, &certificate(&[&args[..], &[("--budget", "1")]].concat()));
        let args = [&args[..], &[("--budget", &budget)]].concat();
        check_fixes(&args);
        let certificate = certificate(&args);
        let fixes = certificate["fixes"].as_array().expect("a list");
        let offered: Vec<String> = fixes.iter().map(option_of).collect();
        for name in expected {
            assert!(offered.iter().any(|option| option == name), "{args:?} is not offered {name}: {offered:?}");
        }
        for fix in fixes {
            let is_other = ["--model", "--width", "--hidden", "--kernel"].contains(&&*option_of(fix));
            assert_eq!(fix["other_model"], is_other, "{fix}");
        }
        let text = String::from_utf8(memfit(&flat(&args)).stderr).expect("text");
        let (same, others) = text.split_once("or other models, whose training is another one").expect("two lists");
        for fix in fixes {
            let list = if fix["other_model"] == true { others } else { same };
            assert!(list.contains(fix["change"].as_str().expect("a change")), "{fix}: {text}");
        }
    }
}

/// Done with the data of a run, each fits too.
#[test]
fn smaller_models_and_pictures_are_trained_within_the_budget() {
    let scratch = Scratch::new("smaller-models");
    for class in ["cat", "dog"] {
        for n in 0..4 {
            let path = scratch.write(&format!("photos/{class}/{n}.png"), "");
            write_png(&path, [24, 24], &Pixels::Rgb(&[60 * n; 24 * 24 * 3]));
        }
    }
    let row = |n: usize| format!("{n},{},{}\n", n * 3 % 7, n % 2);
    scratch.write("rows.csv", "a,b,label\n".to_string() + &(0..40).map(row).collect::<String>());
    let run = |text: &str| scratch.write("run.toml", text);
    let [photos, rows] = ["photos", "rows.csv"].map(|name| scratch.path(name));
    for (name, text, share, expected) in [
        (
            "input",
            format!("[model]\nname = \"digits\"\ninput = [24, 24, 3]\n[data]\ntrain = {photos:?}\n"),
            0.5,
            &["--input", "--width"][..],
        ),
        (
            "size",
            format!("[model]\nname = \"digits\"\n[data]\ntrain = {photos:?}\nimage_size = 24\n"),
            0.5,
            &["--image-size", "--width"],
        ),
        ("rows", format!("[model]\nname = \"mlp\"\n[data]\ntrain = {rows:?}\n"), 0.5, &["--hidden"]),
    ] {
        let file = run(&(text + "[train]\nbatch = 4\nsteps = 1\n"));
        let refused = |budget: &str| {
            let (code, events) = events(&["plan", &file, "--budget", budget]);
            assert_eq!(code, 3, "{events:?}");
            events.last().expect("an error")["certificate"].clone()
        };
        let budget = budget_at(share, &refused("1"));
        let certificate = refused(&budget);
        let fixes = certificate["fixes"].as_array().expect("a list");
        let offered: Vec<String> = fixes
            .iter()
            .map(option_of)
            .filter(|o| ["--input", "--image-size", "--width", "--hidden"].contains(&&**o))
            .collect();
        let mut sorted = offered.clone();
        sorted.sort();
        assert_eq!(sorted, expected, "{name}: {certificate}");
        for (i, fix) in fixes.iter().filter(|fix| offered.contains(&option_of(fix))).enumerate() {
            let out = scratch.path(&format!("{name}-{i}"));
            let change: Vec<&str> = fix["change"].as_str().expect("a change").split(' ').collect();
            let output = memfit(&[&["train", &file, "--budget", &budget, "--out", &out], &change[..]].concat());
            assert!(
                output.status.success(),
                "{change:?}: {}{}",
                stdout(&output),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(memfit(&["eval", &out]).status.success(), "{change:?}");
        }
    }
}
