//! What the tests of this crate share: a device, or a word on the screen that there is none.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::cell::Cell;
use std::io::Write;

use memfit_exec_gpu::GpuExecutor;
use memfit_exec_tests::{Planned, Runner, Settings};
use memfit_ir::{Builder, Graph};
use memfit_transform::Grouping;

/// Set where a missing device is a failure, as it is in CI.
const REQUIRED: &str = "MEMFIT_REQUIRE_GPU";

thread_local! {
    /// Whether the test of this thread has said that it is skipped.
    static SAID: Cell<bool> = const { Cell::new(false) };
}

/// The first GPU, or none after saying so past the test's captured output.
pub fn gpu() -> Option<GpuExecutor> {
    match GpuExecutor::new(0) {
        Ok(gpu) => Some(gpu),
        Err(e) if std::env::var_os(REQUIRED).is_some() => panic!("{e}"),
        Err(e) => {
            if !SAID.replace(true) {
                let test = std::thread::current().name().unwrap_or("a test").to_string();
                let _ = writeln!(std::io::stderr(), "{test}: skipped, {e}");
            }
            None
        }
    }
}

pub fn graph(build: impl FnOnce(&mut Builder) -> memfit_ir::Result<()>) -> Graph {
    let mut b = Builder::new();
    build(&mut b).unwrap();
    b.finish()
}

/// In groups and in poisoned memory.
pub const POISONED: Settings = Settings { grouping: Grouping::Fused, poison: true, squeeze: 0 };

/// Runs graphs on the first GPU.
pub fn runner(settings: Settings) -> impl Runner {
    Planned::new(|| GpuExecutor::new(0), settings)
}
