//! What pages of the documentation show is what the program says: every `$ memfit …` in a block marked `console` is typed, and its
//! output compared with the lines below it. `…` stands for anything within a line, and alone on a line for any lines.

use std::fmt::Write;
use std::path::Path;

use crate::common::{Scratch, command};

/// Types all that a page shows, in a folder with these files.
fn check_page(name: &str, files: &[(&str, String)]) {
    let scratch = Scratch::new(&format!("page-{name}"));
    files.iter().for_each(|(file, content)| drop(scratch.write(file, content)));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(page).expect("the page");
    let (mut problems, mut typed) = (String::new(), 0);
    for (command, expected) in page.split("```console\n").skip(1).flat_map(|rest| commands(rest.split("```").next())) {
        let found = said(&scratch, command);
        typed += 1;
        if !alike(&expected, &found.lines().collect::<Vec<_>>()) {
            writeln!(problems, "$ {command}\n{found}").expect("a text");
        }
    }
    assert!(typed > 0, "{name} shows nothing");
    assert!(problems.is_empty(), "{name} shows something else than this:\n{problems}");
}

/// Each command of a block, with the lines below it.
fn commands(block: Option<&str>) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.unwrap_or_default().lines() {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push((command, Vec::new())),
            (None, Some((_, expected))) => expected.push(line),
            (None, None) => panic!("{line}: before it stands no command"),
        }
    }
    all
}

/// What a command prints, errors last.
fn said(scratch: &Scratch, typed: &str) -> String {
    let mut words = typed.split_whitespace();
    assert_eq!(words.next(), Some("memfit"), "{typed}");
    let output = command(&words.collect::<Vec<_>>()).current_dir(scratch.path("")).output().expect("the binary starts");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

/// Whether lines are as a page has them.
fn alike(page: &[&str], found: &[&str]) -> bool {
    match page.split_first() {
        None => found.is_empty(),
        Some((&"…", rest)) => (0..=found.len()).any(|skipped| alike(rest, &found[skipped..])),
        Some((line, rest)) => {
            found.split_first().is_some_and(|(first, others)| is_line(line, first) && alike(rest, others))
        }
    }
}

fn is_line(page: &str, found: &str) -> bool {
    let Some((before, after)) = page.split_once('…') else { return page.trim_end() == found.trim_end() };
    let Some(rest) = found.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| is_line(after, &rest[at..]))
}

#[test]
fn lines_are_compared_as_they_stand_but_for_what_is_left_open() {
    for (page, found, expected) in [
        (&["a b"][..], &["a b"][..], true),
        (&["a …"], &["a b"], true),
        (&["a … c"], &["a b c"], true),
        (&["a … c"], &["a b"], false),
        (&["…", "b"], &["a", "c", "b"], true),
        (&["…", "b"], &["a", "c"], false),
        (&["a"], &["a", "b"], false),
        (&["a"], &[], false),
    ] {
        assert_eq!(alike(page, found), expected, "{page:?} {found:?}");
    }
}

#[test]
fn errors() {
    let rows = |line: &dyn Fn(usize) -> String| -> String { (0..60).map(|i| line(i) + "\n").collect() };
    let class = |i: usize| if i % 7 > i % 5 { "yes" } else { "no" };
    let table = rows(&|i| format!("{},{},{}", i % 7, i % 5, class(i)));
    let gap =
        rows(&|i| format!("{},{},{}", i % 7, if i == 30 { String::new() } else { (i % 5).to_string() }, class(i)));
    check_page(
        "errors.md",
        &[
            ("typo.toml", "[train]\nbacth = 8\n".into()),
            ("rows.csv", format!("a,b,label\n{table}")),
            ("semicolons.csv", format!("a,b,label\n{table}").replace(',', ";")),
            ("gap.csv", format!("a,b,label\n{gap}")),
            (
                "words.csv",
                format!(
                    "size,colour,label\n{}",
                    rows(&|i| format!("{},{},{}", i % 7, ["blue", "red"][i % 2], class(i)))
                ),
            ),
        ],
    );
}
