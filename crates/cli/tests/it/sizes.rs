//! The sizes of a model: said in a run file or as options, kept with the run, refused where the model has none such.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, check_error, event, events, memfit, stdout};

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
    let relu: Vec<&str> = sizes.iter().map(|text| if *text == "tanh" { "relu" } else { text }).collect();
    check_error(&[&from_plan[..], &relu].concat(), 2, &["is of another run", "activation"]);
    let wide: Vec<&str> = sizes.iter().map(|text| if *text == "9,8" { "9" } else { text }).collect();
    check_error(&[&from_plan[..], &wide].concat(), 2, &["its hidden is [9, 8], here it is [9] (use --hidden 9,8)"]);
    let said = fs::read_to_string(format!("{run}/run.toml")).expect("a run file");
    for line in ["hidden = [9, 8]", "activation = \"tanh\"", "dropout = 0.2"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(memfit(&["eval", &run]).status.success());
    assert!(memfit(&["train", "--resume", &run, "--epochs", "2"]).status.success());
    // What nobody said is kept too, in case it is chosen otherwise some day.
    let usual = scratch.path("usual");
    assert!(memfit(&["train", "--data", &data, "--epochs", "1", "--out", &usual]).status.success());
    assert!(memfit(&["train", "--resume", &usual, "--epochs", "2"]).status.success());
    let file = format!("{usual}/run.toml");
    let said = fs::read_to_string(&file).expect("a run file");
    assert!(said.contains("hidden = [64, 64]"), "{said}");
    // A run of a version that had no other sizes.
    fs::write(&file, said.replace("hidden = [64, 64]\n", "")).expect("it can be written");
    check_error(&["eval", &usual], 4, &["fc1/weight"]);
}

#[test]
fn a_key_that_a_model_does_not_have_is_refused_with_those_that_it_has() {
    let scratch = Scratch::new("no-such-size");
    let file = scratch.write("run.toml", "[model]\nname = \"resnet18\"\nhidden = [3]\n");
    for (args, expected) in [
        (
            &["plan", &file][..],
            &["model.hidden (--hidden) is not of resnet18", "model.width (--width)", "memfit models resnet18"][..],
        ),
        (
            &["plan", "--model", "vit_b16", "--dropout", "0.1"],
            &["(--dropout) is not of vit_b16", "model.input (--input)"],
        ),
        (
            &["plan", "--model", "mlp", "--kernel", "3"],
            &["model.kernel (--kernel) is not of mlp", "model.hidden (--hidden)"],
        ),
        (&["plan", "--model", "unet", "--sequence", "3"], &["model.sequence (--sequence) is not of unet"]),
        (
            &["plan", "--model", "unet", "--kernel", "4"],
            &["--kernel must be odd and at most 31, but is 4", "model.kernel"],
        ),
        (&["plan", "--model", "resnet18", "--width", "0"], &["--width must be a number above 0, but is 0"]),
        (&["plan", "--model", "resnet18", "--width", "9"], &["--width must be above 0 and at most 8", "but is 9"]),
        (
            &["plan", "--model", "gpt", "--width", "0.5"],
            &["--width is 0.5, but of a gpt it is a whole number of channels"],
        ),
        (
            &["plan", "--model", "mlp", "--hidden", "64,x"],
            &["--hidden \"64,x\" is not a list; write it like 64,32, or none"],
        ),
        (&["plan", "--model", "mlp", "--hidden", "64,0"], &["--hidden must be a list of whole numbers of at least 1"]),
        (
            &["plan", "--model", "mlp", "--activation", "rellu"],
            &["--activation must be the name", "did you mean \"relu\"?"],
        ),
        (&["train", "--model", "resent18"], &["did you mean \"resnet18\"?"]),
        (&["train", "--model", "resent18", "--data", "/nowhere"], &["did you mean \"resnet18\"?"]),
        (&["models", "resent18"], &["did you mean \"resnet18\"?"]),
    ] {
        check_error(args, 2, expected);
    }
}

/// What `memfit models NAME` says of a model is so: each key is an option, and its default changes nothing.
#[test]
fn a_model_is_explained_by_its_keys() {
    for name in ["mlp", "digits", "mobilenet_v3_small", "unet", "gpt"] {
        let model = event(&["models", name]);
        let keys = model["keys"].as_array().expect("a list");
        let plan = |more: &[&str]| {
            number(&plan_of(&[&["plan", "--model", name, "--batch", "2"], more].concat()), "arena_bytes")
        };
        let usual = plan(&[]);
        let options = keys.iter().flat_map(|key| {
            let text = |name: &str| key[name].as_str().expect("a text").to_string();
            [text("option"), text("default").replace(['[', ']', ' '], "")]
        });
        // A gpt has no input besides its sequence.
        let options: Vec<String> = options.collect();
        assert!(options.len() > 4, "{model}");
        assert_eq!(plan(&options.iter().map(String::as_str).collect::<Vec<_>>()), usual, "{options:?}");
        let text = stdout(&memfit(&["models", name]));
        let shown = |key: &Value| text.contains(key["meaning"].as_str().expect("a text"));
        assert!(keys.iter().all(shown) && text.contains(model["example"].as_str().expect("a text")), "{text}");
        assert!(text.contains(&number(&model, "parameters").to_string()), "{text}");
    }
}

#[test]
fn narrow_and_small_kernels_take_less() {
    for (model, less) in [
        ("resnet18", &["--width", "0.5", "--input", "64x64x3"][..]),
        ("mobilenet_v3_large", &["--width", "0.5", "--input", "64x64x3"]),
        ("unet", &["--width", "0.25", "--input", "64x64x3"]),
        ("digits", &["--kernel", "1", "--input", "8x8x1"]),
    ] {
        let states = |args: &[&str]| {
            number(&plan_of(&[&["plan", "--model", model, "--batch", "2"], args].concat()), "state_bytes")
        };
        assert!(states(less) < states(&less[2..]), "{model}");
    }
}

#[test]
fn one_of_several_run_files_is_overridden_by_its_name() {
    let scratch = Scratch::new("one-of-several");
    let file = |name: &str, seed: u32| {
        scratch.write(&format!("{name}.toml"), format!("[train]\nbatch = 32\nseed = {seed}\nsteps = 2\n"))
    };
    let (a, b) = (file("a", 1), file("b", 2));
    let batches = |args: &[&str]| -> Vec<u64> {
        let (code, events) = events(args);
        assert_eq!(code, 0, "{args:?}: {events:?}");
        events.iter().filter(|e| e["event"] == "plan").map(|plan| number(plan, "batch")).collect()
    };
    assert_eq!(batches(&["plan", &a, &b, "a.batch=61"]), [61, 32]);
    assert_eq!(batches(&["plan", "b.train.batch=7", &a, &b, "a.model=mlp"]), [32, 7]);
    assert_eq!(batches(&["plan", &a, "a.batch=9"]), [9]);
    let out = scratch.path("out");
    let trained = ["train", &a, &b, "a.batch=16", &format!("a.out={out}"), "b.weight_decay=0.5", "a.width=0.5"];
    assert_eq!(batches(&[&trained[..], &["b.optimizer=adamw", &format!("b.out={out}-b")]].concat()), [16, 32]);
    let said = fs::read_to_string(format!("{out}/run.toml")).expect("a run file");
    assert!(said.contains("batch = 16") && said.contains("width = 0.5"), "{said}");
    for (said, expected) in [
        ("c.batch=1", "no run is called \"c\""),
        ("a.bacth=1", "did you mean \"batch\"?"),
        ("a.batch=many", "a.batch must be a whole number of at least 1, but is \"many\""),
        ("a.batch=0", "a.batch must be a whole number of at least 1, but is 0"),
    ] {
        check_error(&["plan", &a, &b, said], 2, &[expected]);
    }
    check_error(&["plan", &a, &b, "--batch", "61"], 2, &["several runs", "a.batch=61"]);
    assert!(stdout(&memfit(&["train", "--help"])).contains("a.batch=61"));
}

/// Keys that had no option: what is typed is what the run then keeps.
#[test]
fn every_key_can_be_typed_and_is_kept() {
    let scratch = Scratch::new("typed-keys");
    let out = scratch.path("out");
    let typed = ["--shuffle", "100", "--weight-decay", "0.02"];
    let more = ["--schedule", "step", "--warm-up", "2", "--decay-every", "1", "--decay", "0.5", "--clip-norm", "1.5"];
    let rest =
        ["--label-smoothing", "0.1", "--monitor", "loss", "--patience", "3", "--dropout", "0.1", "--cache", "memory"];
    let args = [&["train", "--epochs", "1", "--optimizer", "adamw", "--out", &out], &typed[..], &more, &rest].concat();
    let output = memfit(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = fs::read_to_string(format!("{out}/run.toml")).expect("a run file");
    let pairs = typed.chunks(2).chain(more.chunks(2)).chain(rest.chunks(2));
    for pair in pairs {
        let name = pair[0].trim_start_matches("--").replace('-', "_");
        let line = said
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap_or_else(|| panic!("{name}: {said}"));
        let value = line.split_once(" = ").expect("a value").1.trim_matches(['[', ']', '"']);
        assert_eq!(value, pair[1], "{line}");
    }
    let alone = ["train", "--steps", "1", "--share", "2", "--priority", "1", "--out", &scratch.path("alone")];
    let output = memfit(&alone);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for option in ["--share", "--priority"] {
        assert!(output.status.success() && told.contains(&format!("{option} changes nothing")), "{told}");
    }
    let file = scratch.path("new.toml");
    assert!(memfit(&["init", &file, "--model", "mlp", "--hidden", "64,32", "--mean", "-0.5,1,1"]).status.success());
    let said = fs::read_to_string(&file).expect("a run file");
    assert!(said.contains("\nhidden = [64, 32]") && said.contains("\nmean = [-0.5, 1"), "{said}");
}
