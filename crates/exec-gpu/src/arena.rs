//! Device memory for a plan: allocations that no pool of the runtime may move, cut or reuse.

use std::sync::Arc;

use cubecl::MemoryAllocationMode;
use cubecl::future::block_on;
use cubecl::server::{Handle, ServerError};
use cubecl::wgpu::wgpu::{Buffer, BufferDescriptor, BufferUsages, ErrorFilter};
use cubecl::wgpu::{AutoCompiler, WgpuServer};
use memfit_exec::{Device, ExecError, Reservation};
use memfit_plan::Place;
use memfit_plan::bytes::Bytes;

use crate::device::Gpu;
pub use crate::sizes::WORD;

/// A segment in the memory of a GPU.
pub struct GpuMemory {
    /// As the runtime knows it, and as copies do; none where the plan takes nothing.
    segment: Option<(Handle, Buffer)>,
    gpu: Arc<Gpu>,
    _held: Reservation,
}

impl Drop for GpuMemory {
    /// The runtime keeps what was given back until it is told not to.
    fn drop(&mut self) {
        if self.segment.take().is_some() {
            let _alone = self.gpu.alone();
            // If the device is lost, there is nothing to give back.
            let _ = self.gpu.client.memory_cleanup();
        }
    }
}

impl GpuMemory {
    pub fn new(gpu: &Arc<Gpu>, device: &Device, holder: &str, bytes: u64) -> Result<GpuMemory, ExecError> {
        let held = device.take(holder, bytes)?;
        let out_of_memory = |problem: String| gpu.out_of_memory(holder, bytes, problem);
        if bytes > gpu.target.limits.buffer {
            return Err(out_of_memory(format!("it gives at most {} at once", Bytes(gpu.target.limits.buffer))));
        }
        ask(gpu, bytes).map_err(out_of_memory)?;
        let segment = take(gpu, bytes).map_err(|e| out_of_memory(e.to_string()))?;
        Ok(GpuMemory { segment, gpu: gpu.clone(), _held: held })
    }

    /// The slice of a place in this segment.
    pub fn slice(&self, place: Place) -> Handle {
        self.part(place, 0, place.size)
    }

    /// `size` bytes from `offset` of a place, up to the end of their last word.
    pub fn part(&self, place: Place, offset: u64, size: u64) -> Handle {
        let (segment, _) = self.segment(place);
        let start = place.offset + offset;
        let end = start + size.next_multiple_of(WORD);
        segment.clone().offset_start(start).offset_end(segment.size_in_used() - end)
    }

    /// The whole segment, of which a place is a part.
    pub(crate) fn buffer(&self, place: Place) -> &Buffer {
        &self.segment(place).1
    }

    fn segment(&self, place: Place) -> &(Handle, Buffer) {
        match &self.segment {
            Some(segment) => segment,
            None => unreachable!("{place:?} is in a segment of no bytes"),
        }
    }
}

/// Whether the driver gives so much. The runtime asks on a thread of its own, where a refusal is a panic: it comes back as an
/// error, but is printed as a bug before.
fn ask(gpu: &Gpu, bytes: u64) -> Result<(), String> {
    if bytes == 0 {
        return Ok(());
    }
    let scope = gpu.device.push_error_scope(ErrorFilter::OutOfMemory);
    let (size, usage) = (bytes.next_multiple_of(WORD), BufferUsages::STORAGE | BufferUsages::COPY_DST);
    let asked = gpu.device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    let refused = block_on(scope.pop());
    asked.destroy();
    match refused {
        Some(refused) => Err(refused.to_string()),
        None => Ok(()),
    }
}

/// Takes memory that the runtime neither moves nor shares.
pub(crate) fn take(gpu: &Gpu, bytes: u64) -> Result<Option<(Handle, Buffer)>, ServerError> {
    if bytes == 0 {
        return Ok(None);
    }
    let _alone = gpu.alone();
    // SAFETY: the mode is of the device's only queue, and nothing else is allocated there until it is set back.
    unsafe { gpu.client.allocation_mode(MemoryAllocationMode::Dedicated) };
    let taken = gpu.client.empty(bytes.next_multiple_of(WORD) as usize);
    // SAFETY: as above.
    unsafe { gpu.client.allocation_mode(MemoryAllocationMode::Auto) };
    gpu.client.check([&taken])?;
    // The runtime moves no dedicated allocation, so this is where it stays.
    let resource = gpu.client.get_resource::<WgpuServer<AutoCompiler>>(taken.clone())?;
    Ok(Some((taken, resource.resource().buffer.clone())))
}
