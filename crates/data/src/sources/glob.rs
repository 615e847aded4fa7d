//! Files by a pattern: `*` and `?` in the last part of a path.

use std::path::{Path, PathBuf};

use super::io;
use crate::error::{DataError, Result};

/// Sorted; a path without a pattern is itself. None at all is an error.
pub(super) fn files(pattern: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(pattern);
    let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !last.contains(['*', '?']) {
        return Ok(vec![path.to_path_buf()]);
    }
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| io(folder, e))? {
        let entry = entry.map_err(|e| io(folder, e))?;
        if entry.file_name().to_str().is_some_and(|name| matches(last.as_bytes(), name.as_bytes())) {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        return Err(DataError::source(pattern, "no file has such a name; check the pattern"));
    }
    found.sort_unstable();
    Ok(found)
}

/// Goes back to the last `*` only, so the time is at most the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match back {
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    (p, n) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name, same) in [
            ("*", "", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("train-?????-of-*.rec", "train-00001-of-9.rec", true),
            ("train-?????-of-*.rec", "train-0001-of-9.rec", false),
            ("*.a*b", "x.a.ab", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), same, "{pattern} {name}");
        }
    }
}
