//! Device memory for a plan: two allocations that no pool of the runtime may move, cut or reuse.

use std::sync::PoisonError;

use cubecl::MemoryAllocationMode;
use cubecl::server::Handle;
use memfit_exec::ExecError;
use memfit_plan::bytes::Bytes;
use memfit_plan::{Place, Segment};

use crate::device::Gpu;

pub struct GpuArena {
    /// None where the plan takes nothing.
    state: Option<Handle>,
    transient: Option<Handle>,
}

/// Devices copy and fill words of this many bytes.
pub const WORD: u64 = 4;

impl GpuArena {
    pub fn new(gpu: &Gpu, state_bytes: u64, transient_bytes: u64) -> Result<GpuArena, ExecError> {
        let out_of_memory = |problem: String| {
            let bytes = state_bytes + transient_bytes;
            ExecError::OutOfMemory { bytes, source: std::io::Error::other(problem) }
        };
        for bytes in [state_bytes, transient_bytes] {
            if bytes > gpu.limits.buffer {
                return Err(out_of_memory(format!("{} gives at most {} at once", gpu.id, Bytes(gpu.limits.buffer))));
            }
        }
        let arena = GpuArena { state: take(gpu, state_bytes), transient: take(gpu, transient_bytes) };
        let taken = arena.state.iter().chain(&arena.transient);
        gpu.client.check(taken).map_err(|e| out_of_memory(e.to_string()))?;
        Ok(arena)
    }

    /// The slice of a place.
    pub fn slice(&self, place: Place) -> Handle {
        self.part(place, 0, place.size)
    }

    /// `size` bytes from `offset` of a place, up to the end of their last word.
    pub fn part(&self, place: Place, offset: u64, size: u64) -> Handle {
        let segment = match place.segment {
            Segment::State => &self.state,
            Segment::Transient => &self.transient,
        };
        let Some(segment) = segment else { unreachable!("{place:?} is in a segment of no bytes") };
        let start = place.offset + offset;
        let end = start + size.next_multiple_of(WORD);
        segment.clone().offset_start(start).offset_end(segment.size_in_used() - end)
    }
}

fn take(gpu: &Gpu, bytes: u64) -> Option<Handle> {
    if bytes == 0 {
        return None;
    }
    let _alone = gpu.taking.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the mode is of the device's only queue, and nothing else is allocated there until it is set back.
    unsafe { gpu.client.allocation_mode(MemoryAllocationMode::Dedicated) };
    let taken = gpu.client.empty(bytes.next_multiple_of(WORD) as usize);
    // SAFETY: as above.
    unsafe { gpu.client.allocation_mode(MemoryAllocationMode::Auto) };
    Some(taken)
}
