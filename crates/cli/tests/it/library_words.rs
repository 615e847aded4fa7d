//! Libraries speak of what they know. No message of theirs names an option of the command line: whoever calls them from
//! Rust or Python has none. Errors carry facts, and the command line words the cure.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that keep to it.
const LIBRARIES: [&str; 12] =
    ["ir", "transform", "plan", "exec", "exec-cpu", "exec-gpu", "data", "nn", "train", "profile", "memfit", "run"];

#[test]
fn no_library_names_an_option_or_a_command_of_the_command_line() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for library in LIBRARIES {
        let files = rust_files(&crates.join(library).join("src"));
        assert!(!files.is_empty(), "there is no crate {library}");
        for file in files {
            let source = fs::read_to_string(&file).expect("source can be read");
            // The table of keys has the help of the options too.
            let is_table = file.ends_with("run/src/config/keys.rs");
            let names = |text: &str| names_an_option(text) || (!is_table && text.contains("`memfit "));
            let literals = string_literals(&source).into_iter().filter(|(_, text)| names(text));
            found.extend(literals.map(|(line, text)| format!("{}:{line}: {text}", file.display())));
        }
    }
    assert!(found.is_empty(), "these messages name options or commands:\n{}", found.join("\n"));
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a crate has sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Whether there is a `--` with a small letter behind it, and no further dash before it.
fn names_an_option(text: &str) -> bool {
    let bytes = text.as_bytes();
    (0..bytes.len()).any(|at| {
        bytes[at..].starts_with(b"--")
            && bytes.get(at + 2).is_some_and(u8::is_ascii_lowercase)
            && (at == 0 || bytes[at - 1] != b'-')
    })
}

/// The text between the quotes of each string literal, with the line on which it begins. Comments, documentation
/// included, characters and lifetimes are passed over; a scanner of this size does not look into macros' own syntax.
fn string_literals(source: &str) -> Vec<(usize, &str)> {
    let bytes = source.as_bytes();
    let line = |at: usize| bytes[..at].iter().filter(|b| **b == b'\n').count() + 1;
    let (mut literals, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(hashes) = raw_string(rest, at.checked_sub(1).map(|before| bytes[before])) {
            let open = hashes + 2;
            let close = format!("\"{}", "#".repeat(hashes));
            let text = &rest[open..];
            let end = text.find(&close).unwrap_or(text.len());
            literals.push((line(at), &text[..end]));
            open + end + close.len()
        } else if let Some(text) = rest.strip_prefix('"') {
            let end = end_of_string(text);
            literals.push((line(at), &text[..end]));
            end + 2
        } else if rest.starts_with('\'') {
            character(rest)
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
    }
    literals
}

/// How many bytes a block comment has, with those inside of it.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match (rest.as_bytes().get(at), rest.as_bytes().get(at + 1)) {
            (Some(b'/'), Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (Some(b'*'), Some(b'/')) => (depth, at) = (depth - 1, at + 2),
            (Some(_), _) => at += 1,
            (None, _) => return at,
        }
        if depth == 0 {
            return at;
        }
    }
}

/// The number of `#` where a raw string begins: `r"`, `r#"`. What ends in an r is an identifier.
fn raw_string(rest: &str, before: Option<u8>) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?;
    let count = hashes.bytes().take_while(|b| *b == b'#').count();
    let in_a_word = before.is_some_and(|b| b != b'b' && (b == b'_' || b.is_ascii_alphanumeric()));
    (hashes[count..].starts_with('"') && !in_a_word).then_some(count)
}

fn end_of_string(text: &str) -> usize {
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// How many bytes a character has with its quotes; of a lifetime only the quote counts.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(escaped)) => {
            let from = 2 + escaped.len_utf8();
            rest[from..].find('\'').map_or(rest.len(), |end| from + end + 1)
        }
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 1,
    }
}

#[test]
fn the_scanner_sees_strings_and_nothing_else() {
    let source = r##"
// "--in-a-comment"
/* "--in /* a "--deeper" */ block" */
fn f<'a>(x: &'a str) -> char { let _ = ("plain", "two \"quoted\" --words", r#"raw "--one""#, b"bytes"); '"' }
const C: [char; 2] = ['\'', '\u{22}']; // "no"
let bar = for"odd";
"##;
    let texts: Vec<&str> = string_literals(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["plain", "two \\\"quoted\\\" --words", "raw \"--one\"", "bytes", "odd"]);
    assert_eq!(string_literals(source)[0].0, 4);
    for (text, names) in [("raise --lr", true), ("--", false), ("a -- b", false), ("---x", false), ("--A", false)] {
        assert_eq!(names_an_option(text), names, "{text}");
    }
}
