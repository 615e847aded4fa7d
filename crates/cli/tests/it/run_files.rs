//! Run files: each key is checked, `memfit init` writes one that trains, and a model has to go with the data.

use serde_json::Value;

use crate::common::{Scratch, check_error, command, events, memfit, stdout};
use crate::files::{Pixels, write_png};
use crate::train::pictures;

#[test]
fn run_files_are_checked_key_by_key() {
    let scratch = Scratch::new("files");
    for (text, code, expected) in [
        ("[train]\nbacth = 3", 2, &["run.toml", "bacth", "did you mean \"batch\""][..]),
        ("[model]\nname = \"resnet19\"", 2, &["resnet19", "did you mean \"resnet18\""][..]),
        ("[memory]\nbudget = \"12 parsecs\"", 2, &["run.toml", "memory.budget", "12 parsecs"]),
        ("[train]\nbatch = \"many\"", 2, &["train.batch", "whole number"]),
        ("[model]\nname = \"resnet18\"", 2, &["resnet18 needs data"]),
        ("[model]\nname = \"resnet18\"\n[data]\ntrain = \"nowhere\"", 4, &["nowhere", "no such file or folder"]),
        ("[data]\naugment = [\"flip\"]", 2, &["data.augment (--augment) is for images"]),
        ("[data]\naugment = [\"flop\"]", 2, &["data.augment", "\"flop\" (did you mean \"flip\"?)", "randaugment"]),
        ("[model]\nfreeze = [\"layer9\"]", 2, &["\"layer9\"", "conv1, conv2, conv3, fc"]),
        ("[model]\nfreeze = [\"*\"]", 2, &["every parameter is frozen"]),
        ("[train]\nmonitor = \"charm\"", 2, &["charm", "accuracy"]),
        ("[memory]\nbudget = \"1KiB\"", 3, &["no plan can fit"]),
        ("[memory]\nhost_budget = 100", 3, &["host budget of 100 B is too small", "bytes); raise --host-budget"]),
        ("[train]\nepochs = 3\nsteps = 4", 2, &["train.epochs (--epochs) and train.steps (--steps) both say how long"]),
        (
            "[train]\ndecay = 0.5",
            2,
            &["train.decay (--decay) is for train.schedule = \"step\" or \"cosine\"", "is constant"],
        ),
        (
            "[train]\nschedule = \"constant\"\ndecay_every = 3",
            2,
            &["train.decay_every (--decay-every) is for", "\"step\"", "leave it out"],
        ),
        (
            "[train]\nschedule = \"cosine\"\ndecay_every = 3",
            2,
            &["train.decay_every (--decay-every) is for", "the schedule is cosine"],
        ),
        ("not toml", 2, &["run.toml", "line 1"]),
    ] {
        let file = scratch.write("run.toml", text);
        check_error(&["train", &file, "--out", &scratch.path("run")], code, expected);
    }
    check_error(&["train", &scratch.path("absent.toml")], 2, &["absent.toml", "memfit init"]);
}

#[test]
fn init_writes_a_file_that_trains() {
    let scratch = Scratch::new("init");
    let file = scratch.path("digits.toml");
    assert!(memfit(&["init", &file]).status.success());
    check_error(&["init", &file], 2, &["is there already"]);
    let (code, events) = events(&["train", &file, "--epochs", "1", "--out", &scratch.path("run")]);
    assert_eq!((code, &events[0]["batch"]), (0, &32.into()));
    let plan = stdout(&memfit(&["plan", &file]));
    assert!(plan.starts_with("digits, batch 32"), "{plan}");
}

#[test]
fn init_proposes_a_model_that_reads_the_data_and_a_path_that_is_found() {
    let scratch = Scratch::new("propose");
    pictures(&scratch, "photos", &["cat", "dog"], 8);
    scratch.write("rows.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,0,0\n");
    scratch.write("words.txt", "so many words, so many letters ".repeat(30));
    std::fs::create_dir(scratch.path("sub")).expect("a folder");
    for (data, model, more) in [
        ("photos", "resnet18", &["--batch", "2", "--input", "32x32x3"][..]),
        ("rows.csv", "mlp", &["--batch", "2"]),
        ("words.txt", "gpt", &["--batch", "2"]),
    ] {
        let file = format!("sub/{model}.toml");
        let here = |args: &[&str]| command(args).current_dir(&scratch.0).output().expect("the binary starts");
        assert!(here(&["init", &file, "--data", data]).status.success());
        let output = here(&[&["plan", &file, "--json"], more].concat());
        let text = stdout(&output);
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        let plan = &events[0];
        assert_eq!((&plan["event"], &plan["model"]), (&"plan".into(), &model.into()), "{plan}");
    }
}

#[test]
fn a_model_that_does_something_else_is_refused_before_anything_is_made() {
    let scratch = Scratch::new("other");
    pictures(&scratch, "classes", &["cat", "dog"], 4);
    pictures(&scratch, "pairs", &["images"], 4);
    for image in std::fs::read_dir(scratch.path("pairs/images")).expect("a folder") {
        let name = image.expect("a file").file_name().to_string_lossy().into_owned();
        let mask = scratch.write(&format!("pairs/masks/{name}"), "");
        write_png(&mask, [2, 2], &Pixels::Grey(&[0, 255, 255, 0]));
    }
    scratch.write("words.txt", "so many words ".repeat(30));
    let out = scratch.path("run");
    for (model, data, more, expected) in [
        ("unet", "classes", None, &["unet segments images", "images", "--model resnet18"][..]),
        ("resnet18", "pairs", None, &["resnet18 classifies", "masks", "--model unet"]),
        ("unet", "pairs", Some("3"), &["1 class", "have 3", "leave out --classes"]),
        ("resnet18", "words.txt", None, &["text", "--model gpt"]),
        ("gpt", "classes", None, &["gpt generates text", "--model resnet18"]),
    ] {
        let data = scratch.path(data);
        let classes: Vec<&str> = more.into_iter().flat_map(|n| ["--classes", n]).collect();
        for command in [&["train", "--out", &out][..], &["plan"]] {
            check_error(&[command, &["--model", model, "--data", &data], &classes[..]].concat(), 2, expected);
        }
    }
    let file = scratch.write("a.toml", "[data]\ntrain = \"classes\"\naugment = [\"flop\"]\n[train]\nbatch = 2\n");
    check_error(&["train", &file, "--out", &out], 2, &["flop", "flip"]);
    assert!(!std::path::Path::new(&out).exists(), "nothing is made of a run that cannot start");
}
