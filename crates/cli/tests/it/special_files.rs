//! FIFOs, devices and sockets where files should be: refused at once, or left out like other bad samples. Nobody waits for
//! them, and none is read for ever.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::bad_data::args;
use crate::common::{self, Scratch, check_error, events, fifo, memfit};
use crate::pictures::pictures;

/// Puts something into the place of a file.
type Put = fn(&Path);

#[test]
fn what_is_no_file_among_pictures_is_a_bad_sample() {
    let scratch = pictures("special");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    assert!(memfit(&args(&data, &run)).status.success());
    let put: [(&str, Put); 3] = [
        ("a named pipe", fifo),
        ("a socket", common::socket),
        ("a device", |path| symlink("/dev/zero", path).expect("a link")),
    ];
    for (n, (words, put)) in put.into_iter().enumerate() {
        let special = scratch.path("data/disc/special.png");
        put(Path::new(&special));
        let (failed, done) = (scratch.path(&format!("failed{n}")), scratch.path(&format!("done{n}")));
        // It may be one of the held-out samples: those are evaluated at the end.
        check_error(&args(&data, &failed), 4, &[&special, words, "not a regular file"]);
        let (code, events) = events(&[&args(&data, &done)[..], &["--skip-bad"]].concat());
        let last = events.last().expect("it ends");
        let skipped = ["skipped_samples", "skipped_test_samples"].map(|key| last[key].as_u64().unwrap_or(0));
        assert_eq!((code, skipped[0] + skipped[1]), (0, 1), "{last}");
        check_error(&["eval", &run, "--data", &data], 4, &[&special, words]);
        assert_eq!(common::event(&["eval", &run, "--data", &data, "--skip-bad"])["skipped_samples"], 1);
        check_error(&["predict", &run, &special], 4, &[&special, words]);
        std::fs::remove_file(special).expect("it was made here");
    }
}

#[test]
fn no_file_that_is_named_is_waited_for_or_read_for_ever() {
    let scratch = Scratch::new("named");
    let out = scratch.path("run");
    for (name, model) in [("a.csv", "mlp"), ("a.npz", "mlp"), ("a.txt", "gpt"), ("a.bin", "gpt"), ("a.tfrecord", "mlp")]
    {
        for put in [fifo, |path: &Path| symlink("/dev/zero", path).expect("a link")] {
            let path = scratch.path(name);
            put(Path::new(&path));
            let train = ["train", "--model", model, "--data", &path, "--steps", "1", "--out", &out];
            check_error(&train, 4, &[&path, "not a regular file"]);
            std::fs::remove_file(path).expect("it was made here");
        }
    }
    let pipe = scratch.path("pipe");
    fifo(Path::new(&pipe));
    for special in [&*pipe, "/dev/zero"] {
        check_error(&["train", special], 2, &[special, "not a regular file"]);
        check_error(&["train", "--plan", special, "--out", &out], 4, &[special, "not a regular file"]);
        check_error(&["train", "--weights", special, "--out", &out], 4, &[special, "not a regular file"]);
        check_error(&["plan", "--cost-model", special], 4, &[special, "not a regular file"]);
        check_error(&["plan", "--diff", special, special], 4, &[special, "not a regular file"]);
        check_error(&["pack", special, "--capacity", "10"], 4, &[special, "not a regular file"]);
        check_error(&["pack", "--torch", special], 4, &[special, "not a regular file"]);
        let toml = format!("[data]\ncache = {special:?}\n");
        check_error(&["train", &scratch.write("cache.toml", toml), "--steps", "1", "--out", &out], 4, &[special]);
    }
    assert!(!Path::new(&out).join("last.json").exists(), "nothing was trained");
}
