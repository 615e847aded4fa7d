//! Typed views of planned places. The plan guarantees that what a kernel writes overlaps nothing that it reads, except
//! where a kernel says that it works in place.

use memfit_exec::{Arena, HostMemory};
use memfit_plan::{Place, Segment};

/// Where the two segments start, for the time of one launch.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    state: *mut u8,
    transient: *mut u8,
}

// SAFETY: it gives addresses, and slices only to callers who promise that nobody else has them.
unsafe impl Sync for Memory {}
// SAFETY: it gives the same on whatever thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn new(arena: &mut Arena<HostMemory>) -> Memory {
        Memory { state: arena.state.base_mut(), transient: arena.transient.base_mut() }
    }

    /// Where a place starts.
    pub(crate) fn at(&self, place: Place) -> *mut u8 {
        let base = match place.segment {
            Segment::State => self.state,
            Segment::Transient => self.transient,
        };
        base.wrapping_add(place.offset as usize)
    }

    pub(crate) fn f32_at(&self, place: Place) -> *mut f32 {
        self.at(place).cast()
    }

    /// What a kernel reads.
    ///
    /// # Safety
    /// The place lies inside of its segment, which lives as long as the slice, and nothing writes it meanwhile.
    pub(crate) unsafe fn read<'a, T: bytemuck::Pod>(&self, place: Place) -> &'a [T] {
        // SAFETY: the place is inside of its segment, and nothing writes it; the planner aligns places to 64 bytes, and any bits are
        // a `Pod`.
        unsafe { std::slice::from_raw_parts(self.at(place).cast(), place.size as usize / size_of::<T>()) }
    }

    /// What a kernel writes.
    ///
    /// # Safety
    /// The place lies inside of its segment, which lives as long as the slice, and nothing else reads or writes it meanwhile.
    pub(crate) unsafe fn write<'a, T: bytemuck::Pod>(&self, place: Place) -> &'a mut [T] {
        // SAFETY: the place is inside of its segment, and nothing else touches it; the planner aligns places to 64 bytes, and any
        // bits are a `Pod`.
        unsafe { std::slice::from_raw_parts_mut(self.at(place).cast(), place.size as usize / size_of::<T>()) }
    }
}
