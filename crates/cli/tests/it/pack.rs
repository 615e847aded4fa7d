//! `memfit pack` as a person meets it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn memfit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memfit")).args(args).output().expect("the binary starts")
}

/// A public instance of the packer's own tests.
fn instance(name: &str) -> String {
    format!("{}/../plan/tests/pack/{name}.csv", env!("CARGO_MANIFEST_DIR"))
}

/// A file that is gone when the test is over.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Temporary {
        let path = std::env::temp_dir().join(format!("memfit-pack-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file");
        Temporary(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is not there need not be removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn check_error(args: &[&str], code: i32, expected: &[&str]) {
    let output = memfit(args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(!message.contains("panicked"), "{args:?}: {message}");
    for part in expected {
        assert!(message.contains(part), "{args:?} does not say {part:?}: {message}");
    }
}

fn check_event(args: &[&str]) -> Value {
    let output = memfit(&[args, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

#[test]
fn a_public_instance_is_packed_and_written() {
    let out = Temporary::new("out.csv", "");
    let file = instance("A.1048576");
    let event = check_event(&["pack", &file, "--capacity", "1MiB", "--timeout", "600", "--out", out.path()]);
    assert_eq!((&event["event"], &event["items"]), (&"pack".into(), &154.into()));
    assert_eq!((&event["max_live_bytes"], &event["capacity_bytes"]), (&(1 << 20).into(), &(1 << 20).into()));
    assert_eq!((&event["optimal"], &event["method"]), (&true.into(), &"exact search".into()));
    let text = std::fs::read_to_string(out.path()).expect("it was written");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size,offset"));
    let rows: Vec<Vec<u64>> = lines.map(|l| l.split(',').map(|n| n.parse().expect("a number")).collect()).collect();
    assert_eq!(rows.len(), 154);
    for (i, a) in rows.iter().enumerate() {
        assert!(a[4] + a[3] <= 1 << 20, "{a:?}");
        for b in &rows[..i] {
            let together = a[1] < b[2] && b[1] < a[2];
            let overlap = a[4] < b[4] + b[3] && b[4] < a[4] + a[3];
            assert!(!(together && overlap), "{a:?} and {b:?}");
        }
    }
    // What was written can be read, and gets the same offsets, in place.
    assert!(memfit(&["pack", out.path(), "--capacity", "1048576", "--out", out.path()]).status.success());
    assert_eq!(std::fs::read_to_string(out.path()).expect("it was written"), text);
}

#[test]
fn without_a_capacity_the_best_is_found() {
    let event = check_event(&["pack", &instance("resnet50.somas"), "--timeout", "600"]);
    assert_eq!(event["capacity_bytes"], event["max_live_bytes"]);
    let file = Temporary::new("best.csv", "id,lower,upper,size\na,0,2,1KiB\nb,1,3,64\n");
    let output = memfit(&["pack", file.path()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["2 buffers", "1088 bytes, first at step 1", "optimal", "greedy", "ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Many buffers whose lives and sizes look like chance.
fn many(count: u64) -> String {
    let row = |i: u64| {
        let mix = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (lower, length, size) = (mix % count, 1 + (mix >> 16) % 600, 1 + (mix >> 8) % 100_000);
        format!("{i},{lower},{},{size}\n", lower + length)
    };
    (0..count).map(row).fold("id,lower,upper,size\n".into(), |text, row| text + &row)
}

#[test]
fn a_search_goes_on_only_while_asked_and_what_is_known_is_said_before() {
    let file = Temporary::new("many.csv", many(8000));
    let [first, second] = [(); 2].map(|()| check_event(&["pack", file.path()]));
    assert_eq!(first["capacity_bytes"], second["capacity_bytes"], "no clock decides");
    let rules = check_event(&["pack", file.path(), "--nodes", "0"]);
    assert_eq!(rules["capacity_bytes"], first["greedy_bytes"]);
    assert!(rules["method"].as_str().is_some_and(|method| method.starts_with("greedy")), "{rules}");
    let text = |args: &[&str]| String::from_utf8_lossy(&memfit(args).stdout).into_owned();
    let searched = text(&["pack", file.path(), "--nodes", "50"]);
    let so_far = format!("{} bytes", first["greedy_bytes"]);
    assert!(searched.contains(&so_far) && searched.contains("searching on for 50 nodes"), "{searched}");
    assert!(!text(&["pack", file.path()]).contains("so far"));
}

#[test]
fn what_does_not_fit_is_told_and_whether_that_is_proved() {
    let a = instance("A.1048576");
    check_error(&["pack", &a, "--capacity", "1000000"], 3, &["proved", "1048576 bytes", "step 966656", "48576 bytes"]);
    let certificate = &check_event(&["pack", &a, "--capacity", "1000000"])["certificate"];
    assert_eq!((&certificate["proved"], &certificate["capacity_bytes"]), (&true.into(), &1_000_000.into()));
    check_error(&["pack", &a, "--capacity", "1MiB", "--timeout", "0"], 3, &["found in 0 s", "--timeout", "enough"]);
    let event = check_event(&["pack", &a, "--capacity", "1MiB", "--timeout", "0"]);
    assert_eq!((&event["kind"], &event["certificate"]["proved"]), (&"refused".into(), &false.into()));
    // No more than 6 live at once, but 7 are needed.
    let rows = "0,0,2,4\n1,0,1,2\n2,1,4,1\n3,1,5,1\n4,2,5,3\n5,4,6,2\n6,5,6,4\n";
    let file = Temporary::new("seven.csv", format!("id,lower,upper,size\n{rows}"));
    check_error(&["pack", file.path(), "--capacity", "6"], 3, &["proved by search", "6 bytes"]);
    let event = check_event(&["pack", file.path()]);
    assert_eq!((&event["capacity_bytes"], &event["optimal"]), (&7.into(), &true.into()));
}

#[test]
fn bad_tables_are_told_with_file_line_column_and_cure() {
    let file = Temporary::new("bad.csv", "id,lower,upper,size\n0,0,4,8\n1,2,x,8\n");
    check_error(&["pack", file.path()], 4, &[file.path(), "line 3", "\"upper\"", "\"x\"", "whole number"]);
    let file = Temporary::new("header.csv", "id,start,upper,size\n0,0,4,8\n");
    check_error(&["pack", file.path()], 4, &[file.path(), "line 1", "\"lower\"", "id,lower,upper,size"]);
    check_error(&["pack", "/nowhere/buffers.csv"], 4, &["/nowhere/buffers.csv"]);
}

#[test]
fn wrong_use_is_told_with_the_cure() {
    let file = instance("A.1048576");
    check_error(&["pack"], 2, &["FILE.csv"]);
    check_error(&["pack", &file, "--device", "0"], 2, &["--device", "FILE.csv"]);
    check_error(&["pack", &file, "--torch", &file], 2, &["--torch"]);
    check_error(&["pack", "--torch", &file, "--capacity", "1MiB"], 2, &["--capacity"]);
    check_error(&["pack", &file, "--capacity", "much"], 2, &["--capacity", "much", "512MiB"]);
    check_error(&["pack", &file, "--timeout", "-1"], 2, &["--timeout", "-1"]);
    check_error(&["pack", &file, "--timeout", "nan"], 2, &["--timeout"]);
    check_error(&["pack", &file, "--timeout", "1", "--nodes", "1"], 2, &["--timeout", "--nodes"]);
    check_error(&["pack", &file, "--out", "/nowhere/out.csv"], 2, &["/nowhere/out.csv", "folder"]);
}

/// A snapshot in PyTorch's form, which a script beside it wrote.
fn snapshot() -> String {
    format!("{}/../profile/tests/data/snapshot.pickle", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_buffers_of_a_snapshot_are_packed_and_held_against_what_was_reserved() {
    let out = Temporary::new("snapshot.csv", "");
    let facts = std::fs::read_to_string(snapshot().replace(".pickle", ".json")).expect("what was counted");
    let facts: Value = serde_json::from_str(&facts).expect("JSON");
    let event = check_event(&["pack", "--torch", &snapshot(), "--out", out.path()]);
    assert_eq!((&event["event"], &event["device"]), (&"pack".into(), &0.into()));
    for (key, fact) in [
        ("events", "events"),
        ("buffers", "buffers"),
        ("buffers_before", "before"),
        ("peak_live_bytes", "peak_live"),
        ("peak_reserved_bytes", "peak_reserved"),
    ] {
        assert_eq!(event[key], facts[0][fact], "{key}");
    }
    let bytes = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"));
    assert!(bytes("peak_live_bytes") <= bytes("packed_bytes") && bytes("packed_bytes") < bytes("peak_reserved_bytes"));
    assert_eq!(bytes("fragmentation_bytes"), bytes("peak_reserved_bytes") - bytes("packed_bytes"));
    assert_eq!((&event["is_optimal"], &event["freed_at"]), (&true.into(), &"free_completed".into()));
    // What was written is a table: packed again with no alignment, it takes what lives at once.
    let again = check_event(&["pack", out.path()]);
    assert_eq!((&again["items"], &again["max_live_bytes"]), (&event["buffers"], &event["peak_live_bytes"]));
    let text = std::fs::read_to_string(out.path()).expect("it was written");
    assert!(text.starts_with("id,lower,upper,size,offset\n0,0,"), "{text}");
    let ends = text.lines().skip(1).map(|line| {
        let numbers: Vec<u64> = line.split(',').map(|n| n.parse().expect("a number")).collect();
        assert!(numbers[4].is_multiple_of(512), "{line}");
        numbers[3] + numbers[4]
    });
    assert_eq!(ends.max(), Some(bytes("packed_bytes")));
}

#[test]
fn a_snapshot_is_told_in_words_with_who_asked_for_the_largest_buffers() {
    let text = |args: &[&str]| String::from_utf8_lossy(&memfit(args).stdout).into_owned();
    let first = text(&["pack", "--torch", &snapshot()]);
    for part in [
        "device 0: 233 events, 85 buffers",
        "PyTorch reserved 116 MiB for 95.4 MiB live; packed exactly they need 95.4 MiB",
        "until free_completed",
        "7 buffers were allocated before recording began",
        "1 request was not met",
        "device 1 has events too: --device 1",
        "model.py:52 mlp",
        "no frame recorded",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!first.contains("/home/") && !first.contains("linear.py"), "{first}");
    let second = text(&["pack", "--torch", &snapshot(), "--device", "1"]);
    assert!(second.contains("PyTorch reserved 20.0 MiB for 8.00 MiB live"), "{second}");
}

#[test]
fn what_is_no_snapshot_is_told_with_its_place_and_nothing_in_it_is_run() {
    let check = |name: &str, content: &[u8], parts: &[&str]| {
        let file = Temporary::new(name, content);
        check_error(&["pack", "--torch", file.path()], 4, &[&[file.path()], parts].concat());
    };
    let marker = std::env::temp_dir().join(format!("memfit-pack-{}-was-run", std::process::id()));
    let command = format!("touch {}", marker.display());
    let run = [b"cos\nsystem\n(S'", command.as_bytes(), b"'\ntR."].concat();
    check("class.pickle", &run, &["os.system", "only plain data is read", "byte 0"]);
    assert!(!marker.exists());
    let whole = std::fs::read(snapshot()).expect("the snapshot");
    check("truncated.pickle", &whole[..whole.len() / 2], &["cut off"]);
    check("empty.pickle", b"", &["empty"]);
    check("deep.pickle", &[b"]".repeat(300_000), b"a".repeat(299_999), b".".to_vec()].concat(), &["is a list"]);
    check("archive.pickle", b"PK\x03\x04", &["torch.save"]);
    check("other.pickle", b"}.", &["device_traces"]);
    let silent = b"}(\x8c\x08segments]\x8c\x0ddevice_traces](]]eu.";
    check("silent.pickle", silent, &["no events", "torch.cuda.memory._record_memory_history()", "_dump_snapshot"]);
    check_error(&["pack", "--torch", "/nowhere/x.pickle"], 4, &["/nowhere/x.pickle"]);
    check_error(
        &["pack", "--torch", &snapshot(), "--device", "2"],
        4,
        &["device 2", "devices 0, 1 have", "--device 0"],
    );
    check_error(&["pack", "--torch", &snapshot(), "--device", "7"], 2, &["--device", "0 to 2"]);
}
