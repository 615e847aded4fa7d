//! The errors of this crate, and the suggestion that an unknown name gets. Errors of single layers are those of the
//! graph builder, carried unchanged.

/// What this crate gives, or why not.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model cannot be named, set up or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A layer cannot be built; the message names it.
    #[error(transparent)]
    Graph(#[from] memfit_ir::Error),
    /// A name that nothing has.
    #[error("there is no {what} \"{given}\"{}; known are {}", suggestion(.known, .given), .known.join(", "))]
    Unknown {
        /// The kind of thing that was asked for: "model", "optimizer".
        what: &'static str,
        /// The name that was given.
        given: String,
        /// Every name that there is.
        known: Vec<&'static str>,
    },
    /// An option that the model does not have, or a value that it cannot take.
    #[error("{model}: {problem}")]
    Option {
        /// The model, or the option where several models are meant.
        model: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Whatever a model of one's own fails with.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Of the known names, the one that was probably meant; for [`Error::Unknown`] only.
    pub fn nearest(&self) -> Option<&'static str> {
        match self {
            Error::Unknown { given, known, .. } => nearest(known, given),
            Error::Graph(_) | Error::Option { .. } | Error::Other(_) => None,
        }
    }
}

fn suggestion(known: &[&'static str], given: &str) -> String {
    nearest(known, given).map_or(String::new(), |n| format!(" (did you mean \"{n}\"?)"))
}

/// Of the known names, the one with the fewest edits, unless more than half of it would have to change.
pub fn nearest(known: &[&'static str], given: &str) -> Option<&'static str> {
    let given = plain(given);
    let (edits, name) = known.iter().map(|n| (edit_distance(&plain(n), &given), *n)).min_by_key(|(edits, _)| *edits)?;
    (edits <= name.len().div_ceil(2)).then_some(name)
}

/// "ResNet-50" and "resnet_50" are the same word to a person. Cut, so that a pasted file costs nothing.
fn plain(name: &str) -> Vec<char> {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).take(64).collect()
}

/// Letters inserted, left out, changed, or swapped with their neighbour: a swap is one slip, not two.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut edits = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            edits[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = edits[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swap = if swapped { edits[i - 2][j - 2] + 1 } else { usize::MAX };
                changed.min(edits[i - 1][j] + 1).min(edits[i][j - 1] + 1).min(swap)
            };
        }
    }
    edits[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_insertions_deletions_changes_and_swaps() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("gtp", "gpt", 1),
        ] {
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
