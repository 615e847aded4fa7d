//! Files beside the data that no source reads, by the endings of their names: a few counts, however many files there are.

use std::path::{Path, PathBuf};

/// Endings that are told apart; the rest is counted together.
const ENDINGS: usize = 12;

/// Files that were passed over, of one ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// In small letters, without the dot; empty for names without one, and none for all the rest.
    pub ending: Option<String>,
    /// How many there are.
    pub count: usize,
    /// The first of them by name.
    pub example: PathBuf,
}

/// Adds a file that is passed over.
pub(super) fn add(all: &mut Vec<LeftOut>, path: &Path, count: usize) {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    add_ending(all, Some(ending), path, count);
}

/// Adds what was passed over elsewhere.
pub(super) fn add_all(all: &mut Vec<LeftOut>, others: Vec<LeftOut>) {
    others.into_iter().for_each(|other| add_ending(all, other.ending, &other.example, other.count));
}

fn add_ending(all: &mut Vec<LeftOut>, ending: Option<String>, path: &Path, count: usize) {
    let is_known = all.iter().any(|one| one.ending == ending);
    let ending = if is_known || all.len() < ENDINGS { ending } else { None };
    match all.iter_mut().find(|one| one.ending == ending) {
        Some(one) => {
            one.count += count;
            // Whatever the order in which a folder gives them.
            if path < one.example.as_path() {
                one.example = path.to_path_buf();
            }
        }
        None => all.push(LeftOut { ending, count, example: path.to_path_buf() }),
    }
}
