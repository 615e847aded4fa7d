//! Printing. A reader that goes away, as `| head` does, ends the program quietly.

use std::io::Write;

/// Prints a line to standard output.
pub fn line(text: std::fmt::Arguments) {
    if writeln!(std::io::stdout().lock(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// `println!`, but for closed pipes.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;
