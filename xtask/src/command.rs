//! Running other programs: a failure is an error that shows the command. Knows nothing of what they do.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs it; what it prints goes to the screen.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs it and gives what it wrote to standard output, and whether it succeeded; errors go to the screen.
pub fn output(command: &mut Command) -> Result<(String, bool)> {
    let done = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    Ok((String::from_utf8_lossy(&done.stdout).into_owned(), done.status.success()))
}

/// Whether it can be started and succeeds; what it prints is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
