//! The errors of this crate, and the suggestion that an unknown name gets. Errors of single layers are those of the
//! graph builder, carried unchanged.

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A layer cannot be built; the message names it.
    #[error(transparent)]
    Graph(#[from] memfit_ir::Error),
    #[error("there is no {what} \"{given}\"{}; known are {}", suggestion(.known, .given), .known.join(", "))]
    Unknown { what: &'static str, given: String, known: Vec<&'static str> },
    /// An option that the model does not have, or a value that it cannot take.
    #[error("{model}: {problem}")]
    Option { model: &'static str, problem: String },
}

impl Error {
    /// Of the known names, the one that was probably meant; for [`Error::Unknown`] only.
    pub fn nearest(&self) -> Option<&'static str> {
        match self {
            Error::Unknown { given, known, .. } => nearest(known, given),
            Error::Graph(_) | Error::Option { .. } => None,
        }
    }
}

fn suggestion(known: &[&'static str], given: &str) -> String {
    nearest(known, given).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"))
}

/// The name with the fewest edits, unless more than half of it would have to change.
fn nearest(known: &[&'static str], given: &str) -> Option<&'static str> {
    let given = plain(given);
    let (edits, name) = known.iter().map(|n| (edit_distance(&plain(n), &given), *n)).min_by_key(|(edits, _)| *edits)?;
    (edits <= name.len().div_ceil(2)).then_some(name)
}

/// "ResNet-50" and "resnet_50" are the same word to a person. Cut, so that a pasted file costs nothing.
fn plain(name: &str) -> Vec<char> {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).take(64).collect()
}

fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_insertions_deletions_and_changes() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
            assert_eq!(edit_distance(&plain(a), &plain(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn nearest_looks_past_case_and_dashes_but_not_at_nonsense() {
        let known = ["resnet18", "resnet50", "vgg16"];
        for (given, expected) in [
            ("ResNet-50", Some("resnet50")),
            ("resnt18", Some("resnet18")),
            ("vgg", Some("vgg16")),
            ("a transformer please", None),
        ] {
            assert_eq!(nearest(&known, given), expected, "{given}");
        }
    }
}
