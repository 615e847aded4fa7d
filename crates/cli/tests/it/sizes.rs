//! The sizes of a model: said in a run file or as options, kept with the run, refused where the model has none such.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, check_error, events, memfit};

/// A table of 5 columns and a label of 3 classes.
fn table(scratch: &Scratch) -> String {
    let row = |n: u32| {
        let x = |k: u32| f64::from((n * (k + 3)) % 17) / 17.0;
        format!("{},{},{},{},{},{}\n", x(0), x(1), x(2), x(3), x(4), n % 3)
    };
    scratch.write("rows.csv", "a,b,c,d,e,label\n".to_string() + &(0..60).map(row).collect::<String>())
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"))
}

/// The plan among the events of a command.
fn plan_of(args: &[&str]) -> Value {
    let (code, events) = events(args);
    let plan = events.iter().find(|e| e["event"] == "plan").unwrap_or_else(|| panic!("{args:?}: {events:?}"));
    assert_eq!(code, 0, "{args:?}: {events:?}");
    plan.clone()
}

#[test]
fn an_mlp_is_as_large_as_its_table_or_as_is_said() {
    let scratch = Scratch::new("hidden");
    let data = table(&scratch);
    let file =
        scratch.write("run.toml", format!("[model]\nname = \"mlp\"\nhidden = [64, 32]\n[data]\ntrain = {data:?}\n"));
    let [base, wide] = [6 * 64 + 65 * 32 + 33 * 3, 6 * 64 + 65 * 64 + 65 * 3];
    for (args, parameters) in [
        (&["plan", "--data", &data][..], wide),
        (&["plan", "--data", &data, "--hidden", "64,32"], base),
        (&["plan", &file], base),
        (&["plan", &file, "--hidden", "none"], 6 * 3),
        (&["plan", &file, "--hidden", "7", "--activation", "gelu", "--dropout", "0.5"], 6 * 7 + 8 * 3),
        (&["plan", "--model", "mlp"], 785 * 2048 + 2049 * 2048 + 2049 * 10),
    ] {
        // Adam keeps two numbers more of each parameter, and a clock.
        let states = number(&plan_of(&[args, &["--batch", "4"]].concat()), "state_bytes");
        assert!(
            (parameters * 12..parameters * 12 + 2048).contains(&states),
            "{args:?}: {states}, not {}",
            parameters * 12
        );
    }
}

#[test]
fn a_run_keeps_the_sizes_of_its_model() {
    let scratch = Scratch::new("kept-sizes");
    let data = table(&scratch);
    let [run, plan] = ["run", "plan.json"].map(|name| scratch.path(name));
    let sizes = ["--data", &data, "--hidden", "9,8", "--activation", "tanh", "--dropout", "0.2", "--batch", "8"];
    assert!(memfit(&[&["plan", "--save", &plan], &sizes[..]].concat()).status.success());
    let from_plan = ["train", "--plan", &plan, "--epochs", "1", "--out", &run];
    assert!(memfit(&[&from_plan[..], &sizes[..]].concat()).status.success());
    let other = [&from_plan[..5], &sizes[..], &["--activation", "relu"]].concat();
    let other: Vec<&str> = other.into_iter().filter(|a| *a != "tanh").collect();
    let mut seen = false;
    let other: Vec<&str> =
        other.into_iter().filter(|a| *a != "--activation" || std::mem::replace(&mut seen, true)).collect();
    check_error(&other, 2, &["is of another run", "activation"]);
    let said = fs::read_to_string(format!("{run}/run.toml")).expect("a run file");
    for line in ["hidden = [9, 8]", "activation = \"tanh\"", "dropout = 0.2"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(memfit(&["eval", &run]).status.success());
    assert!(memfit(&["train", "--resume", &run, "--epochs", "2"]).status.success());
    // What nobody said is kept too, in case it is chosen otherwise some day.
    let usual = scratch.path("usual");
    assert!(memfit(&["train", "--data", &data, "--epochs", "1", "--out", &usual]).status.success());
    let file = format!("{usual}/run.toml");
    let said = fs::read_to_string(&file).expect("a run file");
    assert!(said.contains("hidden = [64, 64]"), "{said}");
    // A run of a version that had no other sizes.
    fs::write(&file, said.replace("hidden = [64, 64]\n", "")).expect("it can be written");
    check_error(&["eval", &usual], 4, &["fc1/weight"]);
}
