//! The lines of an image that some tiles read: where they lie in memory, or in a window that moves along and in which a
//! feed computes each element once.

use std::ops::Range;

use crate::gemm::{Feed, Patches, Window};

/// An image as one thread reads it, tile after tile.
pub struct Lines<'a> {
    patches: &'a Patches,
    feed: Option<&'a dyn Feed>,
    thread: usize,
    window: Window,
}

/// Elements of the window that as many tiles at once take, of all that there are.
pub fn window_len(patches: &Patches, at_once: usize, tiles: usize) -> usize {
    patches.window(at_once).min(patches.elements(tiles)).next_multiple_of(16)
}

impl<'a> Lines<'a> {
    /// `window` has room for `room` elements, as [`window_len`] says, where there is a feed.
    pub fn new(
        patches: &'a Patches,
        feed: Option<&'a dyn Feed>,
        thread: usize,
        window: *mut f32,
        room: usize,
    ) -> Lines<'a> {
        Lines { patches, feed, thread, window: Window::new(window, room) }
    }

    /// Where element 0 of the image is, or would be with the lines of these tiles in the window.
    ///
    /// # Safety
    /// Nobody else uses the window, nor the feed with this thread's number.
    pub unsafe fn of(&mut self, tiles: Range<usize>) -> *mut f32 {
        let Some(feed) = self.feed else { return self.patches.image.cast_mut() };
        let wanted = if tiles.is_empty() { 0..0 } else { self.patches.lines(tiles) };
        // SAFETY: passed on.
        unsafe { self.window.slide(feed, self.thread, wanted) }
    }
}
