//! Numbers and lists of names, as sentences have them.

use std::fmt::Display;

/// "1 op", "2 ops", "3 classes", "4 epochs".
pub fn count<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    let plural = match what {
        _ if n == N::from(1) => "",
        "epoch" => "s",
        what if what.ends_with('s') || what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{n} {what}{plural}")
}

/// Names that are listed before "and N more".
const LISTED: usize = 4;

/// "a, b, c, d and 2 more".
pub fn first_few(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_of_a_thing_is_no_several() {
        assert_eq!([count(0u64, "op"), count(1u32, "op"), count(2usize, "op")], ["0 ops", "1 op", "2 ops"]);
        assert_eq!(
            [count(1u8, "class"), count(3u8, "class"), count(2u8, "batch")],
            ["1 class", "3 classes", "2 batches"]
        );
        assert_eq!([count(1u8, "epoch"), count(3u8, "epoch")], ["1 epoch", "3 epochs"]);
    }
}
