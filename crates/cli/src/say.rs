//! Printing. A reader that goes away, as `| head` does, must not end a training: from then on nothing is printed. Any
//! other trouble, such as a full disk, is told when the program ends.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// The first trouble with standard output.
static TROUBLE: OnceLock<ErrorKind> = OnceLock::new();

/// Prints a line to standard output.
pub fn line(text: std::fmt::Arguments) {
    if TROUBLE.get().is_some() {
        return;
    }
    if let Err(e) = writeln!(std::io::stdout().lock(), "{text}") {
        // Only the first is kept.
        let _ = TROUBLE.set(e.kind());
    }
}

/// Prints a message of what went wrong. Where nobody can read it, the exit code has to do.
pub fn error(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "error: {message}");
}

/// Whether everything was printed that anybody wanted to read.
pub fn all_printed() -> bool {
    matches!(TROUBLE.get(), None | Some(ErrorKind::BrokenPipe))
}

/// "1 op", "2 ops", "3 classes".
pub fn count<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    let plural = match what {
        _ if n == N::from(1) => "",
        what if what.ends_with('s') || what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{n} {what}{plural}")
}

/// Names that are listed before "and N more".
const LISTED: usize = 4;

/// "a, b, c, d and 2 more".
pub fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", "))
}

/// `println!`, but for closed pipes.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;

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
    }
}
