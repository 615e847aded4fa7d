//! What lies under the names of a run's files and is none of them: nothing of it is written, truncated, removed or followed.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::common::{self, Scratch, check_error, memfit};

/// Every name in the folder of a run.
fn names(process: u32) -> Vec<String> {
    let fixed = "run.lock plan.json run.toml classes.txt data.json weights.safetensors last.json best.json";
    let tensors = "step-00000001-0123456789abcdef.safetensors";
    let unfinished = [format!("last.json.{process}.tmp"), format!("step-00000001.safetensors.{process}-1.tmp")];
    fixed.split(' ').map(str::to_string).chain([tensors.to_string()]).chain(unfinished).collect()
}

/// What a user may have there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theirs {
    Link,
    LostLink,
    File,
    Folder,
    Fifo,
}

const KINDS: [(Theirs, &str); 5] = [
    (Theirs::Link, "a symbolic link"),
    (Theirs::LostLink, "a symbolic link"),
    (Theirs::File, "a file"),
    (Theirs::Folder, "a folder"),
    (Theirs::Fifo, "a named pipe"),
];

const MINE: &str = "{\"mine\": true}\n";

/// Puts it there; `outside` is where links lead.
fn put(path: &Path, theirs: Theirs, outside: &Path) {
    let link = |to: &Path| std::os::unix::fs::symlink(to, path).expect("a link");
    match theirs {
        Theirs::Link => link(outside),
        Theirs::LostLink => link(&outside.with_file_name("nowhere")),
        Theirs::File => std::fs::write(path, MINE).expect("a file"),
        Theirs::Folder => std::fs::create_dir(path).expect("a folder"),
        Theirs::Fifo => common::fifo(path),
    }
}

/// It is as it was put there.
fn assert_untouched(path: &Path, theirs: Theirs, outside: &Path) {
    let is = |kind: fn(&FileType) -> bool| kind(&path.symlink_metadata().expect("it is still there").file_type());
    let expected = match theirs {
        Theirs::Link | Theirs::LostLink => is(FileType::is_symlink),
        Theirs::File => is(FileType::is_file) && std::fs::read_to_string(path).expect("a file") == MINE,
        Theirs::Folder => is(FileType::is_dir),
        Theirs::Fifo => is(FileType::is_fifo),
    };
    assert!(expected, "{} is no longer {theirs:?}", path.display());
    assert_eq!(std::fs::read_to_string(outside).expect("a file"), MINE);
    assert!(!outside.with_file_name("nowhere").exists());
}

#[test]
fn a_new_run_leaves_what_is_in_its_place_alone_and_names_it() {
    let scratch = Scratch::new("in_place");
    scratch.write("outside", MINE);
    let outside = scratch.0.join("outside");
    for name in names(1) {
        for (theirs, words) in KINDS {
            let run = scratch.path(&format!("{name}-{theirs:?}"));
            let path = Path::new(&run).join(&name);
            std::fs::create_dir(&run).expect("a folder");
            put(&path, theirs, &outside);
            let expected = [&*path.to_string_lossy(), words, "not of a run", "--out"];
            check_error(&["train", "--steps", "1", "--out", &run], 2, &expected);
            assert_untouched(&path, theirs, &outside);
            assert_eq!(std::fs::read_dir(&run).expect("a folder").count(), 1, "nothing is written beside {name}");
        }
    }
}

#[test]
fn a_run_goes_on_only_with_its_own_files() {
    let scratch = Scratch::new("own");
    scratch.write("outside", MINE);
    let (outside, run) = (scratch.0.join("outside"), scratch.path("run"));
    assert!(memfit(&["train", "--steps", "1", "--out", &run]).status.success());
    for name in names(1) {
        // Its own file, or none, is a file.
        for (theirs, words) in KINDS.into_iter().filter(|(theirs, _)| *theirs != Theirs::File) {
            let path = Path::new(&run).join(&name);
            let own = path.exists().then(|| std::fs::read(&path).expect("a file of the run"));
            let _ = std::fs::remove_file(&path);
            put(&path, theirs, &outside);
            let output = memfit(&["train", "--resume", &run, "--steps", "2"]);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(2 | 4)), "{name}, {theirs:?}: {message}");
            assert!(message.contains(&*path.to_string_lossy()) && message.contains(words), "{name}: {message}");
            assert_untouched(&path, theirs, &outside);
            if theirs == Theirs::Folder { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) }
                .expect("it");
            own.into_iter().for_each(|own| std::fs::write(&path, own).expect("a file of the run"));
        }
    }
    assert!(memfit(&["train", "--resume", &run, "--steps", "2"]).status.success(), "it is as it was");
}

#[test]
fn a_lock_that_says_something_else_is_no_lock() {
    let scratch = Scratch::new("lock");
    let run = scratch.path("run");
    assert!(memfit(&["train", "--steps", "1", "--out", &run]).status.success());
    let lock = scratch.write("run/run.lock", MINE);
    check_error(&["train", "--resume", &run, "--steps", "2"], 2, &[&lock, "not of a run"]);
    assert_eq!(std::fs::read_to_string(&lock).expect("a file"), MINE);
    // Of an older version, of a run that was killed when it had just begun, or lost: it ends as any other.
    std::fs::write(&lock, "").expect("a file");
    assert!(memfit(&["train", "--resume", &run, "--steps", "2"]).status.success());
    assert_eq!(std::fs::read_to_string(&lock).expect("a file"), "memfit run\n");
    std::fs::remove_file(&lock).expect("a file");
    assert!(memfit(&["train", "--resume", &run, "--steps", "3"]).status.success());
    check_error(&["train", "--steps", "1", "--out", &run], 2, &["holds a run already"]);
    // With nothing but a lock, the rest of the folder is the user's.
    let plan = scratch.write("other/plan.json", MINE);
    scratch.write("other/run.lock", "");
    check_error(&["train", "--steps", "1", "--out", &scratch.path("other")], 2, &[&plan]);
    assert_eq!(std::fs::read_to_string(&plan).expect("a file"), MINE);
    assert_eq!(std::fs::read_to_string(scratch.path("other/run.lock")).expect("a file"), "");
    let begun = scratch.write("begun/run.lock", "");
    assert!(memfit(&["train", "--steps", "1", "--out", &scratch.path("begun")]).status.success());
    assert_eq!(std::fs::read_to_string(&begun).expect("a file"), "memfit run\n");
}
