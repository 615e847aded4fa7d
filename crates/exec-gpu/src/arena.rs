//! Device memory for a plan: allocations that no pool of the runtime may move, cut or reuse.

use std::sync::PoisonError;

use cubecl::MemoryAllocationMode;
use cubecl::server::Handle;
use memfit_exec::{Device, ExecError, Reservation};
use memfit_plan::Place;
use memfit_plan::bytes::Bytes;

use crate::device::Gpu;

/// A segment in the memory of a GPU.
pub struct GpuMemory {
    /// None where the plan takes nothing.
    segment: Option<Handle>,
    _held: Reservation,
}

/// Devices copy and fill words of this many bytes.
pub const WORD: u64 = 4;

impl GpuMemory {
    pub fn new(gpu: &Gpu, device: &Device, holder: &str, bytes: u64) -> Result<GpuMemory, ExecError> {
        let held = device.take(holder, bytes)?;
        let out_of_memory = |problem: String| {
            let (device, holder) = (format!("{} ({})", gpu.id, gpu.name), holder.to_string());
            ExecError::OutOfMemory { device, holder, bytes, source: std::io::Error::other(problem) }
        };
        if bytes > gpu.limits.buffer {
            return Err(out_of_memory(format!("it gives at most {} at once", Bytes(gpu.limits.buffer))));
        }
        let segment = take(gpu, bytes);
        gpu.client.check(segment.iter()).map_err(|e| out_of_memory(e.to_string()))?;
        Ok(GpuMemory { segment, _held: held })
    }

    /// The slice of a place in this segment.
    pub fn slice(&self, place: Place) -> Handle {
        self.part(place, 0, place.size)
    }

    /// `size` bytes from `offset` of a place, up to the end of their last word.
    pub fn part(&self, place: Place, offset: u64, size: u64) -> Handle {
        let Some(segment) = &self.segment else { unreachable!("{place:?} is in a segment of no bytes") };
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
