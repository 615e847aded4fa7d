//! Data that cannot be used: each is told with its place and a cure, with the exit code of bad data, and without a panic.

use crate::common;

use std::path::Path;

use common::{Scratch, check_error, events, memfit};

use crate::pictures::pictures;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// With the one place that has `from` having `to`, which is as long.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!((places.len(), from.len()), (1, to.len()));
    let mut bytes = bytes.to_vec();
    bytes[places[0]..][..to.len()].copy_from_slice(to);
    bytes
}

/// Trains the digits convnet, which is small, on a folder of images: all of them, in pairs.
pub fn args<'a>(data: &'a str, out: &'a str) -> Vec<&'a str> {
    vec![
        "train", "--model", "digits", "--input", "16x16x3", "--batch", "2", "--epochs", "1", "--data", data, "--out",
        out,
    ]
}

#[test]
fn folders_that_are_not_there_or_empty_are_named() {
    let scratch = pictures("folders");
    let out = scratch.path("out");
    check_error(&args(&scratch.path("nowhere"), &out), 4, &["nowhere", "no such file or folder"]);
    std::fs::create_dir(scratch.path("data/empty")).expect("a folder");
    check_error(&args(&scratch.path("data"), &out), 4, &["empty", "JPEG or PNG"]);
    std::fs::create_dir(scratch.path("bare")).expect("a folder");
    check_error(&args(&scratch.path("bare"), &out), 4, &["bare"]);
    assert!(!Path::new(&out).exists(), "nothing is made of a run that cannot start");
}

#[test]
fn a_truncated_image_is_named_or_left_out_and_counted() {
    let scratch = pictures("truncated");
    let jpeg = fixture("baseline_420.jpg");
    scratch.write("data/disc/cut.jpg", &jpeg[..jpeg.len() / 2]);
    scratch.write("data/disc/whole.jpg", &jpeg);
    let (data, out) = (scratch.path("data"), scratch.path("out"));
    check_error(&args(&data, &out), 4, &["cut.jpg"]);
    let second = scratch.path("second");
    let (code, events) = events(&[&args(&data, &second)[..], &["--skip-bad"]].concat());
    let done = events.last().expect("it ends");
    assert_eq!((code, &done["event"]), (0, &"done".into()), "{done}");
    let third = scratch.path("third");
    let output = memfit(&[&args(&data, &third)[..], &["--skip-bad"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let skipped = done["skipped_samples"].as_u64().expect("a number");
    // It may be one of the held-out samples; then it is no sample of the training.
    assert!(skipped <= 1 && (skipped == 0 || text.contains("cut.jpg")), "{text}");
}

#[test]
fn what_evaluation_leaves_out_is_told_too() {
    let scratch = pictures("judged");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    assert!(memfit(&args(&data, &run)).status.success());
    let all = common::event(&["eval", &run, "--data", &data]);
    let jpeg = fixture("baseline_420.jpg");
    scratch.write("data/bar/cut.jpg", &jpeg[..jpeg.len() / 2]);
    check_error(&["eval", &run, "--data", &data], 4, &["cut.jpg"]);
    let some = common::event(&["eval", &run, "--data", &data, "--skip-bad"]);
    assert_eq!((&some["samples"], &some["skipped_samples"]), (&all["samples"], &1.into()));
    assert_eq!(some["samples"], some["scores"]["count"]);
    let text = common::stdout(&memfit(&["eval", &run, "--data", &data, "--skip-bad"]));
    assert!(text.contains("left out 1 sample of the test set") && text.contains("cut.jpg"), "{text}");
    // In training, as its test set.
    let file = scratch.write("run.toml", format!("[data]\ntest = {data:?}\nskip_bad = true\n"));
    let second = scratch.path("second");
    let typed = args(&data, &second);
    let (code, events) = events(&[&["train", &file], &typed[1..]].concat());
    let done = events.last().expect("it ends");
    assert_eq!((code, &done["skipped_test_samples"]), (0, &1.into()), "{done}");
}

#[test]
fn files_that_cannot_be_predicted_are_listed_and_the_others_are_predicted() {
    let scratch = pictures("predicted");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    assert!(memfit(&args(&data, &run)).status.success());
    let good: Vec<String> = (0..5).map(|n| scratch.path(&format!("data/bar/{n}.png"))).collect();
    let (torn, gone) = (scratch.write("torn.png", "no picture"), scratch.path("gone.png"));
    let alone = |file: &String| common::event(&["predict", &run, file]);
    // A batch of 8, one file of it torn and one not there, and a batch of nothing but torn ones.
    let mut files: Vec<&str> = good.iter().map(String::as_str).collect();
    files.insert(2, &torn);
    files.insert(0, &gone);
    files.extend([&*good[0], &*good[1]]);
    files.extend([&*torn; 8]);
    check_error(&[&["predict", &run], &files[..]].concat(), 4, &["gone.png", "no such file"]);
    check_error(&["predict", &run, &good[0], &torn], 4, &["torn.png", "neither a JPEG nor a PNG"]);
    let (code, events) = events(&[&["predict", &run, "--skip-bad"], &files[..]].concat());
    let expected: Vec<_> = good.iter().chain(&good[..2]).map(alone).collect();
    let (done, predictions) = events.split_last().expect("it ends");
    assert_eq!((code, predictions), (0, &expected[..]));
    let counts = (&done["event"], &done["predicted"], &done["skipped_files"]);
    assert_eq!(counts, (&"done".into(), &7.into(), &10.into()), "{done}");
    let listed = [0, 1].map(|i| done["skipped"][i]["file"].as_str().map(str::to_string));
    assert_eq!(listed, [Some(gone.clone()), Some(torn.clone())], "{done}");
    let text = common::stdout(&memfit(&["predict", &run, "--skip-bad", &good[0], &torn]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&good[0]) && lines[0].ends_with(" %"), "{text}");
    assert!(lines[1] == "left out 1 file that could not be read:" && lines[2].contains("torn.png: "), "{text}");
    for bad in [&gone, &torn] {
        check_error(&["predict", &run, "--skip-bad", bad], 4, &[bad]);
    }
}

#[test]
fn batches_without_one_good_sample_are_left_out_and_counted() {
    let scratch = pictures("batches");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    assert!(memfit(&args(&data, &run)).status.success());
    // The first four of a folder: two batches of two, whatever the batch begins with.
    for n in 0..4 {
        scratch.write(&format!("data/bar/{n}.png"), "no picture");
    }
    for batch in ["1", "2", "3"] {
        let judged = common::event(&["eval", &run, "--data", &data, "--skip-bad", "--batch", batch]);
        let counts = (&judged["samples"], &judged["skipped_samples"], &judged["scores"]["count"]);
        assert_eq!(counts, (&12.into(), &4.into(), &12.into()), "{judged}");
    }
    let file = scratch.write("run.toml", format!("[data]\ntest = {data:?}\nskip_bad = true\nshuffle = 1\n"));
    let second = scratch.path("second");
    let (code, events) = events(&[&["train", &file], &args(&data, &second)[1..]].concat());
    let done = events.last().expect("it ends");
    let skipped = (&done["skipped_samples"], &done["skipped_test_samples"], &done["steps"]);
    assert_eq!((code, skipped), (0, (&4.into(), &4.into(), &6.into())), "{done}");
    for class in ["bar", "disc"] {
        (0..8).for_each(|n| drop(scratch.write(&format!("data/{class}/{n}.png"), "no picture")));
    }
    check_error(&["eval", &run, "--data", &data, "--skip-bad"], 4, &["nothing in it is good", "bar/0.png"]);
}

#[test]
fn a_broken_record_is_named() {
    let scratch = Scratch::new("records");
    let mut record = fixture("shard-0-of-2.tfrecord");
    let file = |name: &str| {
        scratch.write(
            &format!("{name}.toml"),
            format!(
                "[model]\nname = \"digits\"\ninput = [16, 16, 3]\n[data]\ntrain = {:?}\nhold_out = 0\nfeatures = \"image\"\n\
                 label = \"label\"\n[train]\nbatch = 1\nepochs = 1\n",
                scratch.path(&format!("{name}.tfrecord"))
            ),
        )
    };
    let middle = record.len() / 2;
    record[middle] ^= 0x10;
    scratch.write("broken.tfrecord", &record);
    check_error(&["train", &file("broken"), "--out", &scratch.path("out")], 4, &["broken.tfrecord"]);
}

#[test]
fn samples_of_another_size_than_the_model_reads_are_told() {
    let scratch = Scratch::new("arrays");
    scratch.write("data.npz", fixture("stored.npz"));
    let file = |model: &str| {
        let rest = "[data]\ntrain = \"data.npz\"\nhold_out = 0\n[train]\nbatch = 1\nepochs = 1\n";
        scratch.write("run.toml", format!("[model]\nname = \"digits\"\n{model}{rest}"))
    };
    let out = scratch.path("out");
    check_error(&["train", &file("input = [8, 8, 1]\n"), "--out", &out], 4, &["data.npz", "f32[8,8,1]"]);
    // Where the run does not say it, the model is made for what the samples are; their labels may be bytes too.
    let bytes = replaced(&fixture("stored.npz"), b"'<i8'", b"'|u1'");
    for (name, data) in [("long", fixture("stored.npz")), ("bytes", bytes)] {
        scratch.write("data.npz", data);
        let output = memfit(&["train", &file(""), "--out", &scratch.path(name)]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_kept_cache_is_not_read_as_pictures_of_another_size() {
    let scratch = pictures("kept");
    let file = |size: usize| {
        scratch.write(
            &format!("{size}.toml"),
            format!(
                "[model]\nname = \"digits\"\ninput = [{size}, {size}, 3]\n[data]\ntrain = \"data\"\nhold_out = 0\n\
                 cache = \"kept\"\n[train]\nbatch = 4\nepochs = 1\n"
            ),
        )
    };
    let mut caches = Vec::new();
    for (size, out) in [(16, "a"), (8, "b"), (8, "c")] {
        let output = memfit(&["train", &file(size), "--out", &scratch.path(out)]);
        assert!(output.status.success(), "{size}: {}", String::from_utf8_lossy(&output.stderr));
        caches.push(std::fs::read(scratch.path("kept")).expect("it is kept"));
    }
    assert!(caches[0].len() > caches[1].len() && caches[1] == caches[2], "it is made anew only for another size");
}

#[test]
fn a_cache_takes_no_other_files_place() {
    let scratch = pictures("notes");
    scratch.write("notes.txt", "a year of measurements");
    let file = scratch.write(
        "run.toml",
        "[model]\nname = \"digits\"\ninput = [16, 16, 3]\n[data]\ntrain = \"data\"\ncache = \"notes.txt\"\n\
         [train]\nbatch = 2\nepochs = 1\n",
    );
    check_error(&["train", &file, "--out", &scratch.path("out")], 4, &["notes.txt", "another name"]);
    assert_eq!(std::fs::read_to_string(scratch.path("notes.txt")).ok().as_deref(), Some("a year of measurements"));
}

#[test]
fn digits_are_not_trained_where_other_data_were_named() {
    let scratch = pictures("named");
    for (key, value) in [("train", "\"data\""), ("test", "\"data\""), ("hold_out", "0.5")] {
        let file = scratch.write("run.toml", format!("[data]\nkind = \"digits\"\n{key} = {value}\n"));
        let expected = format!("the digits are built in; leave out data.{key}");
        check_error(&["train", &file, "--out", &scratch.path("out")], 2, &[&expected]);
    }
    let file = scratch.write("typed.toml", "[model]\ninput = [16, 16, 3]\n[data]\nkind = \"digits\"\n");
    let (data, out) = (scratch.path("data"), scratch.path("typed"));
    let output = memfit(&["train", &file, "--data", &data, "--batch", "2", "--steps", "1", "--out", &out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let classes = std::fs::read_to_string(scratch.path("typed/classes.txt")).expect("the classes of the pictures");
    assert_eq!(classes.lines().collect::<Vec<_>>(), ["bar", "disc"]);
}

#[test]
fn a_test_set_is_read_in_the_classes_and_characters_of_the_training_set() {
    let scratch = pictures("settled");
    let picture = std::fs::read(scratch.path("data/disc/0.png")).expect("a picture");
    scratch.write("test/disc/0.png", &picture);
    scratch.write("train.txt", "the quick brown fox jumps over the lazy dog ".repeat(8));
    scratch.write("test.txt", "a lazy fox jumps over a dog");
    let file = |name: &str, model: &str, train: &str, test: &str| {
        let data = format!("[data]\ntrain = \"{train}\"\ntest = \"{test}\"\n[train]\nbatch = 2\nsteps = 1\n");
        scratch.write(&format!("{name}.toml"), format!("[model]\n{model}\n{data}"))
    };
    let gpt = "name = \"gpt\"\nlayers = 1\nwidth = 8\nheads = 1\nsequence = 8";
    let digits = "name = \"digits\"\ninput = [16, 16, 3]";
    for (name, file) in
        [("images", file("images", digits, "data", "test")), ("text", file("text", gpt, "train.txt", "test.txt"))]
    {
        let output = memfit(&["train", &file, "--out", &scratch.path(name)]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    scratch.write("test/star/0.png", &picture);
    let (images, out) = (scratch.path("images.toml"), scratch.path("out"));
    check_error(&["train", &images, "--out", &out], 4, &["star", "no class of the training set", "bar, disc"]);
    scratch.write("test.txt", "a lazy Fox jumps over a dog");
    check_error(&["train", &scratch.path("text.toml"), "--out", &out], 4, &["test.txt, character 7"]);
}

#[test]
fn a_key_that_would_do_nothing_is_told() {
    let scratch = pictures("idle");
    scratch.write("rows.csv", "a,label\n1,0\n2,1\n");
    for (data, keys, expected) in [
        ("rows.csv", "mean = [0.5]", "data.mean (--mean) is for images, and these data are csv"),
        ("rows.csv", "augment = [\"flip\"]", "data.augment (--augment) is for images"),
        ("rows.csv", "token = \"u8\"", "data.token (--token) is for tokens"),
        ("rows.csv", "features = \"a\"", "data.features (--features) is for npz and tfrecord"),
        ("data", "label = \"y\"", "data.label (--label) is for csv, npz and tfrecord, and these data are images"),
        ("data", "header = false", "data.header (--header) is for csv"),
        ("data", "test = \"data\"\nhold_out = 0.1", "data.hold_out (--hold-out) is for runs without data.test"),
    ] {
        let file = scratch.write("run.toml", format!("[model]\nname = \"mlp\"\n[data]\ntrain = \"{data}\"\n{keys}\n"));
        check_error(&["train", &file, "--out", &scratch.path("out")], 2, &[expected]);
    }
}

#[test]
fn too_few_samples_to_hold_some_out_are_told_with_a_cure() {
    let scratch = Scratch::new("few");
    let data = scratch.write("one.csv", "a,label\n1,0\n");
    let args = ["train", "--model", "mlp", "--classes", "2", "--data", &data, "--out", &scratch.path("out")];
    check_error(&args, 4, &["one.csv", "of its 1 sample a share of 0.2", "data.test", "data.hold_out = 0"]);
}

#[test]
fn a_picture_that_claims_to_be_huge_is_named_or_left_out_and_counted() {
    let scratch = pictures("huge");
    let mut jpeg = fixture("baseline_420.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).expect("a frame header");
    jpeg[frame + 5..frame + 9].fill(0xff);
    scratch.write("data/disc/huge.jpg", &jpeg);
    let file = scratch.write("run.toml", "[data]\nhold_out = 0\n");
    let run = |data: &str, out: &str, more: &[&str]| -> Vec<String> {
        let args = args(data, out);
        [&args[..1], &[file.as_str()], &args[1..], more].concat().into_iter().map(str::to_string).collect()
    };
    fn of(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }
    let (data, out) = (scratch.path("data"), scratch.path("out"));
    check_error(&of(&run(&data, &out, &[])), 4, &["huge.jpg", "65535×65535", "--skip-bad"]);
    let (code, told) = events(&of(&run(&data, &out, &["--skip-bad"])));
    assert_eq!((code, &told.last().expect("it ends")["skipped_samples"]), (0, &1.into()));
    // So is one that the bytes could hold and the host budget cannot.
    jpeg.resize(4 << 20, 0);
    scratch.write("data/disc/huge.jpg", &jpeg);
    let second = scratch.path("second");
    check_error(&of(&run(&data, &second, &[])), 4, &["huge.jpg", "65535×65535", "--host-budget", "--skip-bad"]);
    let (code, told) = events(&of(&run(&data, &second, &["--skip-bad"])));
    assert_eq!((code, &told.last().expect("it ends")["skipped_samples"]), (0, &1.into()));
}

#[test]
fn a_test_set_that_is_bad_costs_no_training_and_other_data_are_judged_alone() {
    let scratch = pictures("test-set");
    for class in ["bar", "disc"] {
        std::fs::create_dir_all(scratch.path(&format!("test/{class}"))).expect("a folder");
        std::fs::copy(scratch.path(&format!("data/{class}/0.png")), scratch.path(&format!("test/{class}/0.png")))
            .expect("a picture");
    }
    let good = std::fs::read(scratch.path("test/bar/0.png")).expect("a picture");
    scratch.write("test/bar/0.png", &good[..good.len() / 2]);
    let file = scratch.write(
        "run.toml",
        "[model]\nname = \"digits\"\ninput = [16, 16, 3]\n[data]\ntrain = \"data\"\ntest = \"test\"\n\
         [train]\nbatch = 4\nepochs = 2\n",
    );
    let out = scratch.path("out");
    let resume = format!("`memfit train --resume {out}`");
    check_error(&["train", &file, "--out", &out], 4, &["bar/0.png", "test set", "from step 4", &resume]);
    scratch.write("test/bar/0.png", &good);
    let (code, told) = events(&["train", "--resume", &out]);
    let done = told.last().expect("it ends");
    assert_eq!((code, &done["steps"], &done["steps_made"]), (0, &8.into(), &4.into()));
    std::fs::rename(scratch.path("data"), scratch.path("away")).expect("it can be moved");
    assert_eq!(common::event(&["eval", &out, "--data", &scratch.path("test")])["samples"], 2);
}
