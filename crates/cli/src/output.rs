//! Printing. A reader that goes away, as `| head` does, must not end a training: from then on nothing is printed. Any
//! other trouble, such as a full disk, is told when the program ends.

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

/// `println!`, but for closed pipes.
macro_rules! outln {
    ($($arg:tt)*) => { $crate::output::line(format_args!($($arg)*)) };
}
pub(crate) use outln;
