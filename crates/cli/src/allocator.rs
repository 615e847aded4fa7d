//! The system's allocator, which says so in a sentence where it has nothing more to give: the process ends as one that does not
//! fit, and not by an abort. Limits are kept before it comes to that; this is for what nobody counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct LastWord;

/// Whether the last word is an event, as all others are.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Says that what is printed is read by a machine.
pub fn speak_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// As [`crate::failure`] has it for what does not fit.
const REFUSED: i32 = 3;

/// Ends the process. Nothing is allocated here.
fn out_of_memory(bytes: usize) -> ! {
    let mut text = [0u8; 200];
    let mut rest = &mut text[..];
    let is_json = AS_JSON.load(Ordering::Relaxed);
    let (head, tail) =
        if is_json { (r#"{"event":"error","kind":"refused","message":""#, "\"}") } else { ("error: ", "") };
    let _ = writeln!(
        rest,
        "{head}the system gives no {bytes} bytes more; give the process more memory, or a smaller model{tail}"
    );
    let said = 200 - rest.len();
    // What is buffered of standard output may be somebody else's to write at this moment: this goes past it.
    write_all(if is_json { 1 } else { 2 }, &text[..said]);
    unsafe extern "C" {
        fn _exit(code: i32) -> !;
    }
    // SAFETY: a function of the C library that every program is linked to; it ends the process and runs nothing of it.
    unsafe { _exit(REFUSED) }
}

/// To a file of the process by its number.
#[cfg(unix)]
fn write_all(file: i32, text: &[u8]) {
    unsafe extern "C" {
        fn write(file: i32, text: *const u8, bytes: usize) -> isize;
    }
    // SAFETY: a function of the C library; it reads so many bytes of a slice that has them. Where nobody can read what is
    // written, the exit code has to do.
    unsafe { write(file, text.as_ptr(), text.len()) };
}

#[cfg(not(unix))]
fn write_all(file: i32, text: &[u8]) {
    let _ = if file == 1 { std::io::stdout().write_all(text) } else { std::io::stderr().write_all(text) };
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
