//! The system's allocator, which says so in a sentence where it has nothing more to give: the process ends as one that does not
//! fit, and not by an abort. Limits are kept before it comes to that; this is for what nobody counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

pub struct LastWord;

/// As [`crate::failure`] has it for what does not fit.
const REFUSED: i32 = 3;

/// Ends the process. Nothing is allocated here.
fn out_of_memory(bytes: usize) -> ! {
    let mut text = [0u8; 160];
    let mut rest = &mut text[..];
    let _ = writeln!(
        rest,
        "error: the system gives no {bytes} bytes more; give the process more memory, or a smaller model"
    );
    let left = rest.len();
    let said = text.len() - left;
    let _ = std::io::stderr().write_all(&text[..said]);
    unsafe extern "C" {
        fn _exit(code: i32) -> !;
    }
    // SAFETY: a function of the C library that every program is linked to; it ends the process and runs nothing of it.
    unsafe { _exit(REFUSED) }
}

fn given(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() { out_of_memory(bytes) } else { memory }
}

// SAFETY: every call goes to the system allocator unchanged; what it cannot give is not returned from.
unsafe impl GlobalAlloc for LastWord {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}
