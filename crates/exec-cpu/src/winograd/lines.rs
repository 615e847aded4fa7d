//! The lines of an image that some tiles read: where they lie in memory, or in a window that moves along and in which a
//! prologue computes each element once.

use std::ops::Range;

use crate::gemm::{Patches, Source, Window};

/// An image as one thread reads it, tile after tile.
pub(super) struct Lines<'a> {
    patches: &'a Patches,
    image: Source<'a>,
    thread: usize,
    window: Window,
}

/// Elements of the window that as many tiles at once take, of all that there are.
pub(super) fn window_len(patches: &Patches, at_once: usize, tiles: usize) -> usize {
    patches.window(at_once).min(patches.elements(tiles)).next_multiple_of(16)
}

impl<'a> Lines<'a> {
    /// `window` has room for `room` elements, as [`window_len`] says, where the image is computed.
    pub(super) fn new(
        patches: &'a Patches,
        image: Source<'a>,
        thread: usize,
        window: *mut f32,
        room: usize,
    ) -> Lines<'a> {
        Lines { patches, image, thread, window: Window::new(window, room) }
    }

    /// Where element 0 of the image is, or would be with the lines of these tiles in the window.
    ///
    /// # Safety
    /// The window has the room that [`Lines::new`] was told; nobody else uses it, nor the prologue with this thread's number.
    pub(super) unsafe fn of(&mut self, tiles: Range<usize>) -> *mut f32 {
        match self.image {
            Source::Memory(start) => start.cast_mut(),
            Source::Prologue { chain, first } => {
                let wanted = if tiles.is_empty() { 0..0 } else { self.patches.lines(tiles) };
                // SAFETY: the caller's promise about the window and the prologue.
                unsafe { self.window.slide(chain, self.thread, wanted) }.wrapping_add(first)
            }
        }
    }
}
