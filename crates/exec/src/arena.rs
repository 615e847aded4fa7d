//! Host memory for a plan: two anonymous mappings, taken once and given back whole.

use memfit_plan::bytes::Bytes;
use memfit_plan::{Place, Segment};
use memmap2::{MmapMut, MmapOptions};

use crate::error::ExecError;

/// When pages are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Growth {
    /// All at the start: a machine that cannot give them fails before the first step.
    #[default]
    Commit,
    /// Each when it is first touched.
    Lazy,
}

pub struct HostArena {
    state: MmapMut,
    transient: MmapMut,
}

const PAGE: usize = 4096;

impl HostArena {
    pub fn new(state_bytes: u64, transient_bytes: u64, growth: Growth) -> Result<HostArena, ExecError> {
        let bytes = state_bytes + transient_bytes;
        let out_of_memory = |source| ExecError::OutOfMemory { bytes, source };
        if growth == Growth::Commit
            && let Some(available) = available_bytes()
            && bytes > available
        {
            return Err(out_of_memory(std::io::Error::other(format!("only {} are available", Bytes(available)))));
        }
        let map = |n: u64| -> std::io::Result<MmapMut> {
            let len = usize::try_from(n).map_err(std::io::Error::other)?.max(1);
            let mut map = MmapOptions::new().len(len).map_anon()?;
            advise_pages(&map, growth);
            if growth == Growth::Commit {
                map.iter_mut().step_by(PAGE).for_each(|b| *b = 0);
            }
            Ok(map)
        };
        Ok(HostArena {
            state: map(state_bytes).map_err(out_of_memory)?,
            transient: map(transient_bytes).map_err(out_of_memory)?,
        })
    }

    /// Where a segment starts. The pointer stays valid as long as the arena.
    pub fn base(&self, segment: Segment) -> *const u8 {
        self.segment(segment).as_ptr()
    }

    pub fn base_mut(&mut self, segment: Segment) -> *mut u8 {
        self.segment_mut(segment).as_mut_ptr()
    }

    pub fn bytes(&self, place: Place) -> &[u8] {
        &self.segment(place.segment)[place.offset as usize..][..place.size as usize]
    }

    pub fn bytes_mut(&mut self, place: Place) -> &mut [u8] {
        &mut self.segment_mut(place.segment)[place.offset as usize..][..place.size as usize]
    }

    fn segment(&self, segment: Segment) -> &MmapMut {
        match segment {
            Segment::State => &self.state,
            Segment::Transient => &self.transient,
        }
    }

    fn segment_mut(&mut self, segment: Segment) -> &mut MmapMut {
        match segment {
            Segment::State => &mut self.state,
            Segment::Transient => &mut self.transient,
        }
    }
}

/// What the system could give without ending another process, where it says so. A page that it promised and cannot give
/// would otherwise end this process without a word.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
