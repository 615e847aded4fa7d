//! BENCHMARKS.md: a part for each command that measures, between two markers. A command replaces its own part and leaves
//! the others alone.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::extern_checks::repository;

/// The part of a command as it stands now; empty where there is none.
pub fn read(command: &str) -> Result<String> {
    let page = whole()?;
    Ok(find(&page, command).map_or(String::new(), |(start, end)| page[start..end].to_string()))
}

/// Puts a part in the place of the old one, or at the end, and says so.
pub fn write(command: &str, part: &str) -> Result<()> {
    let path = path();
    fs::write(&path, replaced(&whole()?, command, part))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn path() -> PathBuf {
    repository().join("BENCHMARKS.md")
}

fn whole() -> Result<String> {
    fs::read_to_string(path()).with_context(|| format!("{} cannot be read", path().display()))
}

fn replaced(page: &str, command: &str, part: &str) -> String {
    match find(page, command) {
        Some((start, end)) => format!("{}{part}{}", &page[..start], &page[end..]),
        None => {
            let (begin, end) = markers(command);
            format!("{}\n\n{begin}{part}{end}\n", page.trim_end())
        }
    }
}

/// Where the part starts and ends, markers not included.
fn find(page: &str, command: &str) -> Option<(usize, usize)> {
    let (begin, end) = markers(command);
    let start = page.find(&begin)? + begin.len();
    Some((start, start + page[start..].find(&end)?))
}

fn markers(command: &str) -> (String, String) {
    (format!("<!-- begin {command} -->\n"), format!("<!-- end {command} -->"))
}

#[cfg(test)]
mod tests {
    use super::{find, replaced};

    #[test]
    fn a_command_replaces_its_own_part_only() {
        let one = replaced("# Benchmarks\n", "a", "first\n");
        assert_eq!(one, "# Benchmarks\n\n<!-- begin a -->\nfirst\n<!-- end a -->\n");
        let two = replaced(&one, "b", "second\n");
        assert_eq!(two, format!("{one}\n<!-- begin b -->\nsecond\n<!-- end b -->\n"));
        let three = replaced(&two, "a", "third\n");
        assert_eq!(three, two.replace("first", "third"));
        let (start, end) = find(&three, "b").expect("it was written");
        assert_eq!(&three[start..end], "second\n");
    }
}
