//! "Did you mean": of known names, the one that a person probably meant.

/// Of the known names, the one with the fewest edits, unless more than half of it would have to change.
pub fn nearest<'a>(known: &[&'a str], given: &str) -> Option<&'a str> {
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
