//! Printing. A reader that goes away, as `| head` does, must not end a training: from then on nothing is printed. Any
//! other trouble, such as a full disk, is told when the program ends.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
#[cfg(feature = "mpi")]
use std::sync::atomic::AtomicBool;

/// The first trouble with standard output.
static TROUBLE: OnceLock<ErrorKind> = OnceLock::new();

/// Whether another process tells the same.
#[cfg(feature = "mpi")]
static SILENT: AtomicBool = AtomicBool::new(false);

/// From now on nothing is printed: another process does.
#[cfg(feature = "mpi")]
pub fn silence() {
    SILENT.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Prints again, where that one is gone.
#[cfg(feature = "mpi")]
pub fn speak() {
    SILENT.store(false, std::sync::atomic::Ordering::Relaxed);
}

fn is_silent() -> bool {
    #[cfg(feature = "mpi")]
    return SILENT.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "mpi"))]
    false
}

/// Prints a line to standard output.
pub fn line(text: std::fmt::Arguments) {
    if TROUBLE.get().is_some() || is_silent() {
        return;
    }
    if let Err(e) = writeln!(std::io::stdout().lock(), "{text}") {
        // Only the first is kept.
        let _ = TROUBLE.set(e.kind());
    }
}

/// Prints a part of a line, at once.
pub fn part(text: &str) {
    if TROUBLE.get().is_some() || is_silent() {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let _ = TROUBLE.set(e.kind());
    }
}

/// Prints a message of what went wrong. Where nobody can read it, the exit code has to do.
pub fn error(message: &str) {
    if is_silent() {
        return;
    }
    let _ = writeln!(std::io::stderr().lock(), "error: {message}");
}

/// Prints what somebody should know before it goes on, beside what is told on standard output.
pub fn warning(message: &str) {
    progress(&format!("warning: {message}"));
}

/// Prints how far something is, beside what is told on standard output. Whether anybody reads it does not matter.
pub fn progress(text: &str) {
    if !is_silent() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// What is wrong where it was not.
pub const NOT_ALL: &str = "not everything could be written to standard output";

/// Whether everything was printed that anybody wanted to read.
pub fn all_printed() -> bool {
    matches!(TROUBLE.get(), None | Some(ErrorKind::BrokenPipe))
}

/// `println!`, but for closed pipes.
macro_rules! outln {
    ($($arg:tt)*) => { $crate::output::line(format_args!($($arg)*)) };
}
pub(crate) use outln;
