//! Host memory for a plan: anonymous mappings, taken once and given back whole.

use memfit_ir::bytes::Bytes;
use memfit_plan::Place;
use memmap2::{MmapMut, MmapOptions};

use crate::device::{Device, Reservation};
use crate::error::ExecError;
use crate::machine;

/// When pages are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Growth {
    /// All at the start: a machine that cannot give them fails before the first step.
    #[default]
    Commit,
    /// Each when it is first touched.
    Lazy,
}

/// A segment in host memory.
pub struct HostMemory {
    map: MmapMut,
    _reserved: Reservation,
}

const PAGE: usize = 4096;

impl HostMemory {
    /// Takes so many bytes of a device for a holder of this name, and then of the system.
    pub fn new(device: &Device, holder: &str, bytes: u64, growth: Growth) -> Result<HostMemory, ExecError> {
        let reserved = device.take(holder, bytes)?;
        let out_of_memory =
            |source| ExecError::OutOfMemory { device: "this machine".into(), holder: holder.into(), bytes, source };
        if growth == Growth::Commit
            && let Some(available) = machine::available()
            && bytes > available
        {
            return Err(out_of_memory(std::io::Error::other(format!("only {} are available", Bytes(available)))));
        }
        let len = usize::try_from(bytes).map_err(|e| out_of_memory(std::io::Error::other(e)))?.max(1);
        let mut map = MmapOptions::new().len(len).map_anon().map_err(out_of_memory)?;
        advise_pages(&map, growth);
        if growth == Growth::Commit {
            map.iter_mut().step_by(PAGE).for_each(|b| *b = 0);
        }
        Ok(HostMemory { map, _reserved: reserved })
    }

    /// Where it starts. The pointer stays valid as long as the memory.
    pub fn base(&self) -> *const u8 {
        self.map.as_ptr()
    }

    pub fn base_mut(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub fn all(&self) -> &[u8] {
        &self.map
    }

    /// Bytes in pages that the system holds at the moment; none where it does not say. Allocates nothing.
    pub fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(&self.map)
    }

    /// The bytes of a place in this segment.
    pub fn bytes(&self, place: Place) -> &[u8] {
        &self.map[place.offset as usize..][..place.size as usize]
    }

    pub fn bytes_mut(&mut self, place: Place) -> &mut [u8] {
        &mut self.map[place.offset as usize..][..place.size as usize]
    }
}

/// Large pages save address translations, small ones are touched one by one; where the advice is not taken, nothing is lost.
fn advise_pages(map: &MmapMut, growth: Growth) {
    #[cfg(target_os = "linux")]
    let _ = map.advise(match growth {
        Growth::Commit => memmap2::Advice::HugePage,
        Growth::Lazy => memmap2::Advice::NoHugePage,
    });
    #[cfg(not(target_os = "linux"))]
    let _ = (map, growth);
}

#[cfg(target_os = "linux")]
fn resident_bytes(map: &MmapMut) -> Option<u64> {
    unsafe extern "C" {
        fn mincore(start: *const u8, length: usize, pages: *mut u8) -> i32;
    }
    // A byte a page of what is asked at once.
    let mut pages = [0u8; 4096];
    let page = rustix::param::page_size();
    let mut resident = 0;
    for part in map.chunks(pages.len() * page) {
        // SAFETY: a function of the C library that every program of this target is linked to. The part is mapped and begins with a
        // page, for a mapping does and so do its chunks; the system writes a byte for each of its pages, at most `pages.len()`.
        if unsafe { mincore(part.as_ptr(), part.len(), pages.as_mut_ptr()) } != 0 {
            return None;
        }
        let in_memory = pages[..part.len().div_ceil(page)].iter().filter(|p| **p & 1 == 1).count();
        resident += (in_memory * page) as u64;
    }
    Some(resident)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes(_: &MmapMut) -> Option<u64> {
    None
}
