//! What an engine takes of a GPU beside its segments, as plain numbers: so the planner knows it of devices that are not here.

use memfit_plan::{Phase, StagedProgram};

use crate::target::GpuTarget;

/// Devices copy and fill words of this many bytes.
pub const WORD: u64 = 4;

/// Bytes of each buffer that copies go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingSizes {
    pub up: u64,
    pub down: u64,
    pub numbers: u64,
    /// Of the stamps of the device's clock, and of their values. They are read through the buffer of reads.
    pub stamps: u64,
}

/// What is read at once.
const PIECE: u64 = 256 << 10;
/// No buffer for writes is smaller: initial values and weights come in pieces up to this.
const LEAST_UP: u64 = 64 << 10;
/// Numbers that a step gives, where nobody knows how many.
const NUMBERS: u64 = 64;

/// Kernels whose stamps have room: after so many the host waits for them once.
pub const STAMPED_KERNELS: usize = 512;
/// Of a stamp.
const STAMP: u64 = 8;
/// Of all stamps: two for each kernel.
pub const STAMPS: u64 = 2 * STAMPED_KERNELS as u64 * STAMP;

/// The runtime keeps the parameters of a kernel in pages: the first has so many bytes, and each a hundredth less than the one
/// before, down to the parameters themselves.
const FIRST_PAGE: u64 = 16 << 10;
/// Pages that this makes, taken together.
const PAGES: u64 = 100;
/// No kernel has more parameters.
const PARAMETERS: u64 = 1 << 10;

impl StagingSizes {
    /// Without programs: enough for anything, and of use for little.
    pub fn new(programs: &[StagedProgram], target: &GpuTarget) -> StagingSizes {
        let inputs = programs.iter().map(|p| p.input_bytes);
        let steps = programs.iter().filter(|p| matches!(p.phase, Phase::Step | Phase::Apply));
        // And one for what is counted over all steps.
        let numbers = steps.map(|p| p.outputs + 1);
        StagingSizes {
            up: inputs.max().unwrap_or(0).max(LEAST_UP),
            down: PIECE,
            numbers: numbers.max().unwrap_or(0).max(NUMBERS) * WORD,
            stamps: if target.has_clock { 2 * STAMPS } else { 0 },
        }
    }

    pub fn bytes(&self) -> u64 {
        2 * self.up + self.down + 2 * self.numbers + self.stamps
    }
}

/// Buffers for copies and stamps, which are exact, and the parameters of kernels, which are not: kernels with the same share them.
pub fn staging_bytes(programs: &[StagedProgram], target: &GpuTarget) -> u64 {
    // Each may have been tried first.
    let kernels = 2 * programs.iter().map(|p| p.kernels).sum::<u64>();
    let canary = target.limits.alignment.max(WORD) * target.limits.bindings as u64;
    StagingSizes::new(programs, target).bytes() + canary + kernels.min(PAGES) * FIRST_PAGE + kernels * PARAMETERS
}
