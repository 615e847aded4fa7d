//! Exports of profiles, read by the programs that they are for: event files and profiles by TensorBoard and the plugin of its
//! Profile tab, traces by Perfetto's rules. Judges nothing itself: the readers do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::built::Built;
use crate::command::run as run_command;
use crate::extern_checks::{step, work_folder};
use crate::python::{self, Dependencies};

/// In Python: what is read, and by which script.
const READERS: [(&str, &str); 3] = [
    ("event files in TensorBoard", "events.py"),
    ("profiles in TensorBoard's Profile tab", "xplane.py"),
    ("traces by the rules of Perfetto", "trace.py"),
];

/// Has samples written and read.
pub fn check() -> Result<()> {
    let requirements = readers().join("requirements.txt");
    let interpreter =
        step("Python environment", || python::environment("readers", &requirements, Dependencies::Listed))?;
    let samples = step("samples of every export", write_samples)?;
    for (name, script) in READERS {
        step(name, || {
            let mut reader = Command::new(&interpreter);
            // Compiled files would land in the repository, and the plugin tells of all it does.
            reader.arg("-B").arg(readers().join(script)).arg(&samples).env("TF_CPP_MIN_LOG_LEVEL", "3");
            run_command(&mut reader)
        })?;
    }
    Ok(())
}

/// Into a folder of its own, made anew: exports never replace a file.
fn write_samples() -> Result<PathBuf> {
    let samples = work_folder("exports")?;
    fs::remove_dir_all(&samples).with_context(|| format!("cannot remove {}", samples.display()))?;
    run_command(Built::new()?.example("sample_exports")?.arg(&samples))?;
    Ok(samples)
}

fn readers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("readers")
}
