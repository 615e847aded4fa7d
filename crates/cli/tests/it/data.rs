//! What a run trains on: found out, said before anything else, and refused where it may be several things.

use std::fs;

use serde_json::Value;

use crate::common::{self, Scratch, check_error, events, memfit, stdout};
use crate::files::{Pixels, floats, labels, npz, write_png};

const SIDE: usize = 16;

/// A square of a class at a place that depends on the number, for each class but 0.
fn classes(n: usize, count: u8) -> Vec<u8> {
    let mut mask = vec![0; SIDE * SIDE];
    for class in 1..count {
        let (top, left) = ((n * 5 + usize::from(class) * 7) % 9, (n * 3 + usize::from(class) * 4) % 9);
        (0..7 * 7).for_each(|at| mask[(top + at / 7) * SIDE + left + at % 7] = class);
    }
    mask
}

/// Images whose colours are their masks, and the masks as `write` stores them.
fn segmentation(name: &str, count: u8, samples: usize, write: impl Fn(&str, &[u8])) -> Scratch {
    let scratch = Scratch::new(name);
    for n in 0..samples {
        let mask = classes(n, count);
        let image: Vec<u8> = mask.iter().flat_map(|c| [40 + 70 * c, 200 - 60 * c, 20 + (n as u8 % 8)]).collect();
        let path = scratch.write(&format!("data/images/{n}.png"), "");
        write_png(&path, [SIDE; 2], &Pixels::Rgb(&image));
        write(&scratch.write(&format!("data/masks/{n}.png"), ""), &mask);
    }
    scratch
}

fn grey(map: impl Fn(u8) -> u8) -> impl Fn(&str, &[u8]) {
    move |path, mask| {
        let values: Vec<u8> = mask.iter().map(|class| map(*class)).collect();
        write_png(path, [SIDE; 2], &Pixels::Grey(&values));
    }
}

/// Runs a few steps of a U-Net with what a run file says more of the data.
fn segment(scratch: &Scratch, more: &str, steps: usize) -> (i32, Vec<Value>) {
    let text = format!(
        "[model]\nname = \"unet\"\ninput = [16, 16, 3]\n[data]\ntrain = \"data\"\n{more}\n[train]\nbatch = 4\n\
         steps = {steps}\nlr = 0.003\n"
    );
    let file = scratch.write("run.toml", text);
    fs::remove_dir_all(scratch.path("out")).ok();
    events(&["train", &file, "--out", &scratch.path("out")])
}

fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name}: {events:?}"))
}

fn losses(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|e| e["event"] == "step").map(|e| &e["loss"]).collect()
}

fn warnings(data: &Value) -> Vec<&str> {
    data["warnings"].as_array().expect("a list").iter().filter_map(|w| w["kind"].as_str()).collect()
}

#[test]
fn masks_of_zero_and_one_train_as_those_of_zero_and_255() {
    let told = [1, 255].map(|white| {
        let scratch = segmentation(&format!("mask-{white}"), 2, 12, grey(|class| class * white));
        let (code, told) = segment(&scratch, "", 2);
        assert_eq!(code, 0, "{told:?}");
        let data = find(&told, "data");
        assert_eq!((&data["masks"]["kind"], &data["classes"]["count"]), (&"binary".into(), &1.into()), "{data}");
        assert_eq!(data["classes"]["counts"], serde_json::json!([12 * (256 - 49), 12 * 49]), "{data}");
        let run = fs::read_to_string(scratch.path("out/run.toml")).expect("what the run is");
        assert!(run.contains("masks = \"binary\""), "{run}");
        let judged = common::event(&["eval", &scratch.path("out"), "--data", &scratch.path("data")]);
        assert_eq!(judged["samples"], 12);
        told
    });
    assert_eq!(losses(&told[0]), losses(&told[1]));
}

#[test]
fn class_numbers_a_palette_and_colours_are_the_same_classes() {
    const PALETTE: [u8; 9] = [0, 0, 0, 128, 0, 0, 0, 128, 0];
    let palette = |path: &str, mask: &[u8]| write_png(path, [SIDE; 2], &Pixels::Indexed(mask, &PALETTE));
    let wide = |path: &str, mask: &[u8]| {
        let wide: Vec<u8> = mask.iter().flat_map(|class| [0, *class]).collect();
        write_png(path, [SIDE; 2], &Pixels::Wide(&wide));
    };
    let coloured = |path: &str, mask: &[u8]| {
        let colours: Vec<u8> = mask.iter().flat_map(|c| PALETTE[3 * usize::from(*c)..][..3].to_vec()).collect();
        write_png(path, [SIDE; 2], &Pixels::Rgb(&colours));
    };
    let table = "colours = [\"ground #000000\", \"red #800000\", \"green #008000\"]";
    let numbers = segmentation("mask-numbers", 3, 12, grey(|class| class));
    let (code, told) = segment(&numbers, "", 24);
    let data = find(&told, "data");
    assert_eq!((code, &data["masks"]["kind"], &data["classes"]["count"]), (0, &"classes".into(), &3.into()), "{data}");
    let counts: Vec<u64> = (0..3)
        .map(|class| (0..12).map(|n| classes(n, 3).iter().filter(|c| **c == class).count() as u64).sum())
        .collect();
    assert_eq!(data["classes"]["counts"], serde_json::json!(counts));
    let done = told.last().expect("it ends");
    assert!(done["best"]["value"].as_f64() > Some(0.6), "all ground has less than 0.3: {done}");
    for (scratch, kind, more) in [
        (segmentation("mask-palette", 3, 12, palette), "palette", ""),
        (segmentation("mask-wide", 3, 12, wide), "classes", ""),
        (segmentation("mask-colours", 3, 12, coloured), "colours", table),
    ] {
        let (code, same) = segment(&scratch, more, 2);
        assert_eq!((code, &find(&same, "data")["masks"]["kind"]), (0, &kind.into()), "{same:?}");
        assert_eq!(losses(&same), losses(&told)[..2]);
        if kind == "colours" {
            let names = fs::read_to_string(scratch.path("out/classes.txt")).expect("names");
            assert_eq!(names.lines().collect::<Vec<_>>(), ["ground", "red", "green"]);
            let out = scratch.path("out");
            let (code, more) = events(&["train", "--resume", &out, "--steps", "3"]);
            assert_eq!((code, losses(&more)), (0, losses(&told)[2..3].to_vec()), "it goes on as it began");
        }
    }
}

#[test]
fn masks_that_may_be_several_things_are_refused_with_the_choices() {
    let say = |name: &str, map: fn(u8) -> u8, expected: &[&str]| {
        let scratch = segmentation(name, 3, 6, grey(map));
        let (code, told) = segment(&scratch, "", 1);
        let message = told[0]["message"].as_str().expect("an error");
        assert_eq!(code, 4, "{message}");
        expected.iter().for_each(|part| assert!(message.contains(part), "no {part}: {message}"));
        scratch
    };
    let choices = ["data/masks", "data.masks = \"classes\"", "\"binary\"", "\"grey\""];
    let sparse = say("mask-sparse", |class| class * 20, &[&choices[..], &["0, 20, 40"]].concat());
    let (code, told) = segment(&sparse, "masks = \"classes\"", 1);
    assert_eq!((code, &find(&told, "data")["classes"]["count"]), (0, &41.into()));
    assert_eq!(warnings(find(&told, "data")), ["empty_classes"]);
    let (code, told) = segment(&sparse, "masks = \"binary\"", 1);
    assert_eq!((code, &find(&told, "data")["classes"]["count"]), (0, &1.into()));
    // What is proposed works when it is typed.
    let levels =
        say("mask-levels", |class| [0, 127, 255][usize::from(class)], &["0, 127, 255", "data.masks = \"binary\""]);
    let (_, refused) = segment(&levels, "", 1);
    assert!(!refused[0]["message"].as_str().expect("an error").contains("\"classes\""), "{refused:?}");
    let void = say("mask-void", |class| [0, 1, 255][usize::from(class)], &["0, 1, 255", "ignore"]);
    let table = "masks = \"colours\"\ncolours = [\"0 #000000\", \"1 #010101\", \"0 #ffffff\"]";
    let (_, refused) = segment(&void, "", 1);
    assert!(refused[0]["message"].as_str().expect("an error").contains(&table[table.find('[').expect("a list")..]));
    let (code, told) = segment(&void, table, 1);
    assert_eq!((code, &find(&told, "data")["classes"]["count"]), (0, &2.into()), "{told:?}");
}

#[test]
fn a_mask_that_is_something_else_than_the_others_is_named() {
    let scratch = segmentation("mask-later", 2, 70, grey(|class| class));
    // Sixty-four of seventy are looked at, and by their names this is the twelfth, which is none of them.
    write_png(&scratch.path("data/masks/19.png"), [SIDE; 2], &Pixels::Grey(&classes(19, 3)));
    let (code, told) = segment(&scratch, "hold_out = 0\nshuffle = 1", 17);
    let masks = &find(&told, "data")["masks"];
    assert_eq!((&masks["looked_at"], &masks["of"]), (&64.into(), &70.into()));
    let message = told.last().and_then(|e| e["message"].as_str()).expect("an error");
    assert!(code == 4 && message.contains("masks/19.png, row"), "{message}");
    assert!(message.contains("value 2") && message.contains("data.masks = \"classes\""), "{message}");
}

#[test]
fn masks_of_one_class_alone_get_a_warning() {
    let scratch = segmentation("mask-empty", 2, 6, grey(|_| 0));
    let (code, told) = segment(&scratch, "", 1);
    assert_eq!((code, warnings(find(&told, "data"))), (0, vec!["one_class"]));
    let text = stdout(&memfit(&["plan", &scratch.path("run.toml")]));
    assert!(text.contains("warning") && text.contains("all pixels are background"), "{text}");
}

/// Rows that two numbers tell apart, so many of each of four classes.
fn rows(each: usize) -> (Vec<u8>, Vec<u8>) {
    let of = |class: usize, n: usize| [(class % 2) as f32 + n as f32 / 100.0, (class / 2) as f32];
    let all: Vec<(usize, usize)> = (0..each).flat_map(|n| (0..4).map(move |class| (class, n))).collect();
    let x: Vec<[f32; 2]> = all.iter().map(|(class, n)| of(*class, *n)).collect();
    (floats(&x), labels(&all.iter().map(|(class, _)| *class as i64).collect::<Vec<_>>()))
}

/// Trains a multilayer perceptron on what a run file says of the data.
fn train_rows(scratch: &Scratch, model: &str, data: &str) -> (i32, Vec<Value>) {
    let text = format!("[model]\nname = \"mlp\"\n{model}\n[data]\n{data}\n[train]\nbatch = 4\nsteps = 1\n");
    let file = scratch.write("run.toml", text);
    fs::remove_dir_all(scratch.path("out")).ok();
    events(&["train", &file, "--out", &scratch.path("out")])
}

#[test]
fn arrays_of_training_and_test_are_known_by_their_names() {
    let scratch = Scratch::new("arrays-names");
    let ((x, y), (test_x, test_y)) = (rows(10), rows(3));
    let arrays =
        [("x_train", x.clone()), ("y_train", y.clone()), ("x_test", test_x.clone()), ("y_test", test_y.clone())];
    scratch.write("a.npz", npz(&arrays));
    scratch.write("xy.npz", npz(&[("x", x), ("y", y), ("held_x", test_x), ("held_y", test_y)]));
    let sizes = |data: &Value| (data["train_samples"].as_u64(), data["test_samples"].as_u64());
    for data in [
        "train = \"a.npz\"",
        "train = \"a.npz\"\nfeatures = \"x_train\"\nlabel = \"y_train\"",
        "train = \"a.npz\"\ntest = \"a.npz\"\nfeatures = \"x_train\"\nlabel = \"y_train\"",
        "train = \"xy.npz\"\ntest_features = \"held_x\"\ntest_label = \"held_y\"",
        "train = \"xy.npz\"\ntest = \"a.npz\"",
    ] {
        let (code, told) = train_rows(&scratch, "", data);
        assert_eq!(code, 0, "{data}: {told:?}");
        let seen = find(&told, "data");
        assert_eq!((sizes(seen), &seen["test_is_training_data"]), ((Some(40), Some(12)), &false.into()), "{seen}");
        assert_eq!(told.last().expect("it ends")["scores"]["count"], 12, "{data}");
    }
    assert_eq!(common::event(&["eval", &scratch.path("out"), "--data", &scratch.path("a.npz")])["samples"], 12);
    let (code, told) = train_rows(&scratch, "", "train = \"xy.npz\"\ntest = \"xy.npz\"");
    let seen = find(&told, "data");
    assert_eq!(
        (code, &seen["test_is_training_data"], warnings(seen)),
        (0, &true.into(), vec!["test_is_training_data"])
    );
    let text = stdout(&memfit(&["train", &scratch.path("run.toml"), "--out", &scratch.path("second")]));
    assert!(text.contains("the test set is the training set"), "{text}");
    let text = stdout(&memfit(&["eval", &scratch.path("second")]));
    assert!(text.contains("warning: these are the samples"), "{text}");
    for (name, bytes) in &arrays {
        scratch.write(&format!("folder/{name}.npy"), bytes);
    }
    let (code, told) = train_rows(&scratch, "", "train = \"folder\"");
    let seen = find(&told, "data");
    assert_eq!((code, sizes(seen), &seen["kind"]), (0, (Some(40), Some(12)), &"npz".into()), "{told:?}");
    let (code, told) = train_rows(&scratch, "", "train = \"folder\"\nlabel = \"z\"");
    let message = told[0]["message"].as_str().expect("an error");
    assert!(code == 4 && message.contains("no array \"z\"") && message.contains("x_test (float32, 12x2)"), "{message}");
    let (code, told) = train_rows(&scratch, "", "train = \"a.npz\"\nhold_out = 0.25");
    let seen = find(&told, "data");
    assert_eq!((code, sizes(seen), warnings(seen)), (0, (Some(30), Some(10)), vec!["unused_arrays"]));
}

#[test]
fn the_classes_of_an_array_are_those_of_the_model() {
    let scratch = Scratch::new("arrays-classes");
    let (x, y) = rows(10);
    scratch.write("a.npz", npz(&[("x", x), ("y", y)]));
    let train = |model: &str| train_rows(&scratch, model, "train = \"a.npz\"");
    let (code, told) = train("");
    let classes = &find(&told, "data")["classes"];
    assert_eq!((code, &classes["count"], &classes["from"]), (0, &4.into(), &"data".into()));
    assert_eq!(classes["counts"], serde_json::json!([10, 10, 10, 10]));
    let run = fs::read_to_string(scratch.path("out/run.toml")).expect("what the run is");
    assert!(run.contains("classes = 4"), "{run}");
    let (code, told) = train("classes = 6");
    assert_eq!((code, warnings(find(&told, "data"))), (0, vec!["fewer_classes_than_said"]));
    let (code, told) = train("classes = 3");
    let message = told[0]["message"].as_str().expect("an error");
    assert!(code == 4 && message.contains("a.npz") && message.contains("is 3, outside of 0..3"), "{message}");
    // Too small a budget is not blamed on a compression that there is not.
    let output = memfit(&["train", &scratch.path("run.toml"), "--host-budget", "600"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && !message.contains("compressed"), "{message}");
}

#[test]
fn the_header_says_first_what_is_trained_on() {
    let scratch = Scratch::new("header");
    for (class, count) in [("cat", 24), ("dog", 2)] {
        for n in 0..count {
            let (height, width) = (10 + n % 3, 12 + n % 2);
            let path = scratch.write(&format!("photos/{class}/{n}.png"), "");
            write_png(&path, [height, width], &Pixels::Rgb(&vec![10 * n as u8; height * width * 3]));
        }
    }
    for other in ["cat/a.webp", "cat/b.WEBP", "dog/c.gif", "dog/notes.txt", "loose.png"] {
        scratch.write(&format!("photos/{other}"), "no picture that is read");
    }
    let data = scratch.path("photos");
    let args = ["train", "--model", "mobilenet_v3_small", "--data", &data, "--batch", "2", "--steps", "1"];
    let output = memfit(&[&args[..], &["--out", &scratch.path("a")]].concat());
    let text = stdout(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with(&format!("data: images, {data}\n")), "{text}");
    let header: Vec<&str> = text.lines().skip(1).take_while(|line| line.starts_with("  ")).collect();
    for (line, parts) in [
        ("train", &["21  samples, 10 batches of 2; 1 left out an epoch"][..]),
        ("test", &["5  samples held out", "0.2", "no test set is named"]),
        ("classes", &["2  cat 24, dog 2"]),
        ("input", &["224x224x3  mobilenet_v3_small's own", "10x12 to 12x13"]),
        ("left out", &["5  ", "2 .webp", "1 .gif", "1 .txt", "1 .png"]),
        ("assumed", &["data.kind images", "train.optimizer adam", "train.lr"]),
    ] {
        let said = header.iter().find(|said| said.starts_with(&format!("  {line} "))).copied().unwrap_or_default();
        parts.iter().for_each(|part| assert!(said.contains(part), "{line} does not say {part:?}: {text}"));
    }
    assert!(header.iter().any(|line| line.contains("warning") && line.contains("enlarged to 224x224")), "{text}");
    let (_, told) = events(&[&args[..], &["--out", &scratch.path("b")]].concat());
    assert_eq!(warnings(find(&told, "data")), ["one_class", "enlarged_pictures"]);
    let epoch =
        ["train_samples", "batch", "train_batches", "train_left_out"].map(|key| find(&told, "data")[key].as_u64());
    assert_eq!(epoch, [21, 2, 10, 1].map(Some));
    assert_eq!(
        (&told[0]["event"], find(&told, "data")["left_out"].as_array().map(Vec::len)),
        (&"plan".into(), Some(4))
    );
    // A plan for data says it too; one for none says what it always said.
    let (_, told) = events(&["plan", "--model", "mobilenet_v3_small", "--data", &data, "--batch", "2"]);
    assert_eq!(told.iter().map(|e| e["event"].as_str()).collect::<Vec<_>>(), [Some("plan"), Some("data")]);
    assert_eq!(common::event(&["plan", "--model", "digits"])["event"], "plan");
}

#[test]
fn a_folder_of_both_sets_is_no_folder_of_two_classes() {
    let scratch = Scratch::new("sets");
    for (set, count) in [("train", 4), ("test", 2)] {
        for class in ["cat", "dog"] {
            for n in 0..count {
                let path = scratch.write(&format!("photos/{set}/{class}/{n}.png"), "");
                write_png(&path, [8, 8], &Pixels::Rgb(&[20 * n; 8 * 8 * 3]));
            }
        }
    }
    let (data, out) = (scratch.path("photos"), scratch.path("out"));
    let args = ["--model", "digits", "--input", "8x8x3", "--data", &data, "--batch", "2", "--steps", "1"];
    let (code, told) = events(&[&["train"], &args[..], &["--out", &out]].concat());
    let seen = find(&told, "data");
    assert_eq!((code, &seen["train_samples"], &seen["test_samples"]), (0, &8.into(), &4.into()), "{seen}");
    assert_eq!((&seen["test_from"], &seen["classes"]["names"]), (&"folder".into(), &serde_json::json!(["cat", "dog"])));
    assert_eq!(common::event(&["eval", &out])["samples"], 4);
}

#[test]
fn what_does_not_go_together_is_told() {
    let scratch = Scratch::new("mask-keys");
    let file = scratch.write("run.toml", "[data]\nmasks = \"classes\"\n");
    check_error(&["train", &file], 2, &["data.masks (--masks) is for images with masks"]);
    let masks = segmentation("mask-said", 2, 4, grey(|class| class));
    let train = |more: &str, expected: &[&str]| {
        let (code, told) = segment(&masks, more, 1);
        let message = told[0]["message"].as_str().expect("an error");
        assert!([2, 4].contains(&code), "{message}");
        expected.iter().for_each(|part| assert!(message.contains(part), "no {part}: {message}"));
    };
    train("masks = \"binary\"\ncolours = [\"#000000\", \"#010101\"]", &["data.colours", "\"binary\""]);
    train("masks = \"colours\"\ncolours = [\"#000000\", \"#00\"]", &["data.colours", "\"#00\"", "#ff8000"]);
    train("masks = \"colours\"\ncolours = [\"#000000\", \"#000000\"]", &["#000000 twice"]);
    train("masks = \"colours\"\ncolours = [\"#000000\", \"#ffffff\"]", &["#010101", "data.colours"]);
    train("masks = \"colours\"", &["data.colours = [\"#000000\", \"#010101\"]"]);
    train("masks = \"palette\"", &["is grey", "\"classes\""]);
}

/// The host budget that a refusal proposes.
fn proposed(args: &[&str]) -> String {
    let output = memfit(&[args, &["--host-budget", "64KiB"]].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{message}");
    let budget = message.split_once(" is enough: it was tried").and_then(|(before, _)| before.rsplit_once('('));
    budget.unwrap_or_else(|| panic!("nothing is proposed: {message}")).1.to_string()
}

#[test]
fn the_host_budget_that_is_proposed_is_enough() {
    let scratch = Scratch::new("proposed");
    let header: String = (0..20_000).map(|n| format!("measurement-{n},")).collect();
    let row = |label: usize| format!("{}{label}\n", "0.25,".repeat(20_000));
    scratch.write("wide.csv", format!("{header}label\n{}", (0..20).map(|n| row(n % 2)).collect::<String>()));
    let first = scratch.write("many/a/0.png", "");
    write_png(&first, [8, 8], &Pixels::Rgb(&[7; 8 * 8 * 3]));
    for class in ["a", "b"] {
        for n in 1..1500 {
            let link = scratch.path(&format!("many/{class}/picture-with-a-name-{n}.png"));
            fs::create_dir_all(scratch.path(&format!("many/{class}"))).expect("a folder");
            fs::hard_link(&first, link).expect("a link");
        }
    }
    let (wide, many) = (scratch.path("wide.csv"), scratch.path("many"));
    for (model, more) in [("mlp", &["--data", &wide][..]), ("digits", &["--data", &many, "--input", "8x8x3"])] {
        let out = scratch.path(model);
        let args = [&["train", "--model", model, "--batch", "4", "--steps", "1", "--out", &out], more].concat();
        let budget = proposed(&args);
        let output = memfit(&[&args[..], &["--host-budget", &budget]].concat());
        assert!(output.status.success(), "{budget}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_stem_and_a_budget_that_nobody_said_are_told() {
    let scratch = Scratch::new("assumed");
    let run = |args: &[&str], name: &str| {
        let (code, told) = events(&[&["train", "--steps", "1", "--out", &scratch.path(name)], args].concat());
        assert_eq!(code, 0, "{told:?}");
        (told[0].clone(), find(&told, "data")["assumed"].clone())
    };
    let (plan, assumed) = run(&[], "digits");
    let said = assumed["memory.budget"].as_str().and_then(|text| memfit::plan::bytes::parse(text).ok());
    let budget = plan["budget_bytes"].as_u64().expect("a budget");
    assert!(said.is_some_and(|said| said.0 >= budget && said.0 < budget + budget / 50), "{assumed} and {plan}");
    assert!(assumed["model.stem"].is_null(), "{assumed}");
    assert!(run(&["--budget", "8MiB"], "said").1["memory.budget"].is_null());
    for n in 0..8 {
        let pixels: Vec<u8> = (0..8 * 8 * 3).map(|i| (i * n) as u8).collect();
        let path = scratch.write(&format!("photos/{}/{n}.png", ["a", "b"][n % 2]), "");
        crate::draw::write_png(std::path::Path::new(&path), &pixels, 8, 3).expect("a picture");
    }
    let photos = scratch.path("photos");
    let args = ["--model", "resnet18", "--input", "8x8x3", "--batch", "2", "--data", &photos];
    assert_eq!(run(&args, "resnet").1["model.stem"], "imagenet");
}
