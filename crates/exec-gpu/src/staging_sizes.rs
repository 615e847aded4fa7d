//! What an engine takes of a GPU beside its two segments: what copies go through, stamps of the clock, parameters of kernels.
//! Plain numbers, so that a budget holds them before a device is there.

use memfit_plan::{Phase, StagedProgram};

use crate::target::GpuTarget;

/// Bytes of what kernels read and write in one go.
const WORD: u64 = 4;

/// Bytes of each buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingSizes {
    pub up: u64,
    pub down: u64,
    pub numbers: u64,
}

/// What is read at once.
const PIECE: u64 = 256 << 10;
/// No buffer for writes is smaller: initial values and weights come in pieces up to this.
const LEAST_UP: u64 = 64 << 10;
/// Numbers that a step gives, where nobody knows how many.
const NUMBERS: u64 = 64;

impl StagingSizes {
    /// Without a plan: enough for anything, and of use for little.
    pub const LEAST: StagingSizes = StagingSizes { up: LEAST_UP, down: PIECE, numbers: NUMBERS * WORD };

    pub fn new(programs: &[StagedProgram]) -> StagingSizes {
        let inputs = programs.iter().map(|p| p.input_bytes);
        let steps = programs.iter().filter(|p| matches!(p.phase, Phase::Step | Phase::Apply));
        // And one for what is counted over all steps.
        let numbers = steps.map(|p| p.outputs + 1);
        StagingSizes {
            up: inputs.max().unwrap_or(0).max(LEAST_UP),
            down: PIECE,
            numbers: numbers.max().unwrap_or(0).max(NUMBERS) * WORD,
        }
    }

    pub fn bytes(&self) -> u64 {
        2 * self.up + self.down + 2 * self.numbers
    }
}

/// Kernels whose stamps have room: after so many the host waits for them once.
pub const STAMPED_KERNELS: usize = 512;
/// Bytes of a stamp.
const STAMP: u64 = 8;
/// Of the two stamps of all these kernels.
pub const STAMPS: u64 = 2 * STAMPED_KERNELS as u64 * STAMP;

/// The runtime keeps the parameters of a kernel in pages: the first has so many bytes, and each a hundredth less than the one
/// before, down to the parameters themselves.
const FIRST_PAGE: u64 = 16 << 10;
/// Pages that this makes, taken together.
const PAGES: u64 = 100;
/// No kernel has more parameters.
const PARAMETERS: u64 = 1 << 10;

impl GpuTarget {
    /// What stamps take: the queries, and as many bytes for their values. They are read through the buffer of reads.
    pub fn stamps_bytes(&self) -> u64 {
        if self.has_clock { 2 * STAMPS } else { 0 }
    }

    /// Buffers for copies and for stamps, which are exact, and the parameters of kernels, which are not: kernels with the same
    /// share them.
    pub fn bytes_beside_segments(&self, programs: &[StagedProgram]) -> u64 {
        // Each may have been tried first.
        let kernels = 2 * programs.iter().map(|p| p.kernels).sum::<u64>();
        let canary = self.limits.alignment.max(WORD) * self.limits.bindings as u64;
        let copies = StagingSizes::new(programs).bytes() + self.stamps_bytes();
        copies + canary + kernels.min(PAGES) * FIRST_PAGE + kernels * PARAMETERS
    }
}
