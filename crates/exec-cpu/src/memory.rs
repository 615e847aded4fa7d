//! Typed views of planned places. The plan guarantees that what a kernel writes overlaps nothing that it reads, except
//! where a kernel says that it works in place.

use memfit_exec::{Arena, HostMemory};
use memfit_plan::{Place, Segment};

/// Where the two segments start, for the time of one launch.
#[derive(Clone, Copy)]
pub struct Memory {
    state: *mut u8,
    transient: *mut u8,
}

// SAFETY: kernels give each thread its own part of what they write.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    pub fn new(arena: &mut Arena<HostMemory>) -> Memory {
        Memory { state: arena.state.base_mut(), transient: arena.transient.base_mut() }
    }

    /// Where a place starts.
    pub fn at(&self, place: Place) -> *mut u8 {
        let base = match place.segment {
            Segment::State => self.state,
            Segment::Transient => self.transient,
        };
        base.wrapping_add(place.offset as usize)
    }

    pub fn f32_at(&self, place: Place) -> *mut f32 {
        self.at(place).cast()
    }

    /// What a kernel reads.
    ///
    /// # Safety
    /// Nothing writes the place while the slice lives, and it is a place of this memory.
    pub unsafe fn read<'a, T: bytemuck::Pod>(&self, place: Place) -> &'a [T] {
        // SAFETY: places are aligned to 64 bytes and lie inside their segment; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(place).cast(), place.size as usize / size_of::<T>()) }
    }

    /// What a kernel writes.
    ///
    /// # Safety
    /// Nothing else reads or writes the place while the slice lives, and it is a place of this memory.
    pub unsafe fn write<'a, T: bytemuck::Pod>(&self, place: Place) -> &'a mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at(place).cast(), place.size as usize / size_of::<T>()) }
    }
}
