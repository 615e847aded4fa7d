//! Where the operands of a product are: in memory, or computed by a prologue while they are packed. What is packed is what
//! packing from memory would give: zeros around an image are put there by packing, after the prologue.

use std::ops::Range;

/// Computes elements of an operand that has no memory.
pub(crate) trait Prologue: Sync {
    /// Writes the elements with these numbers.
    ///
    /// # Safety
    /// There is room for them at `to`, and no other thread calls with the same `thread` at once.
    unsafe fn compute(&self, thread: usize, elements: Range<usize>, to: *mut f32);
}

/// Where the elements of an operand come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// From memory, in which element 0 lies here.
    Memory(*const f32),
    /// From a prologue, whose element `first` is element 0.
    Prologue { chain: &'a dyn Prologue, first: usize },
}

impl Source<'_> {
    /// The same from its `n`-th element on.
    pub(crate) fn skip(self, n: usize) -> Self {
        match self {
            Source::Memory(start) => Source::Memory(start.wrapping_add(n)),
            Source::Prologue { chain, first } => Source::Prologue { chain, first: first + n },
        }
    }

    pub(crate) fn has_prologue(self) -> bool {
        matches!(self, Source::Prologue { .. })
    }
}

/// The two operands of a contraction, and where its result goes.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) a: Source<'a>,
    pub(crate) b: Source<'a>,
    pub(crate) c: *mut f32,
}

// SAFETY: a prologue is `Sync`; the pointers name memory of the arena, which kernels read and write only in `unsafe`
// functions whose callers give each thread its own part of what is written.
unsafe impl Sync for Operands<'_> {}
// SAFETY: as a shared one, which says as much as a copy.
unsafe impl Send for Operands<'_> {}

impl Operands<'_> {
    /// Which of the two has a prologue.
    pub(crate) fn prologues(&self) -> [bool; 2] {
        [self.a.has_prologue(), self.b.has_prologue()]
    }

    /// Each from as many of its elements on.
    pub(crate) fn skip(self, [a, b, c]: [usize; 3]) -> Self {
        Operands { a: self.a.skip(a), b: self.b.skip(b), c: self.c.wrapping_add(c) }
    }
}

impl Operands<'static> {
    /// Without places, for what depends on sizes alone and on which operand has a prologue.
    pub(crate) fn unplaced(prologues: [bool; 2]) -> Operands<'static> {
        let source = |prologue: bool| {
            if prologue { Source::Prologue { chain: &NoPrologue, first: 0 } } else { Source::Memory(std::ptr::null()) }
        };
        Operands { a: source(prologues[0]), b: source(prologues[1]), c: std::ptr::null_mut() }
    }
}

/// The prologue of operands that are never read.
struct NoPrologue;

impl Prologue for NoPrologue {
    unsafe fn compute(&self, _: usize, _: Range<usize>, _: *mut f32) {
        unreachable!("operands without places were read");
    }
}

/// Computes lines of `n` elements, `stride` apart from `at` on, one after the other.
///
/// # Safety
/// As for [`Prologue::compute`], with room for all lines.
pub(crate) unsafe fn compute_lines(
    chain: &dyn Prologue,
    thread: usize,
    at: usize,
    stride: usize,
    [lines, n]: [usize; 2],
    to: *mut f32,
) {
    // SAFETY: line i goes to its n of the elements that the caller has room for.
    unsafe {
        if n == stride {
            return chain.compute(thread, at..at + lines * n, to);
        }
        for i in 0..lines {
            chain.compute(thread, at + i * stride..at + i * stride + n, to.add(i * n));
        }
    }
}

/// Scratch that holds some neighbouring elements of a computed operand and moves along with what is read, so that each
/// element is computed once.
pub(crate) struct Window {
    start: *mut f32,
    room: usize,
    held: Range<usize>,
}

impl Window {
    pub(crate) fn new(start: *mut f32, room: usize) -> Window {
        Window { start, room, held: 0..0 }
    }

    /// Moves to these elements, of which those that are held stay. Gives where element 0 would be.
    ///
    /// # Safety
    /// The window has the room that [`Window::new`] was told; nobody else uses it, nor the prologue with this thread's number.
    pub(crate) unsafe fn slide(&mut self, chain: &dyn Prologue, thread: usize, wanted: Range<usize>) -> *mut f32 {
        if !(self.held.start <= wanted.start && wanted.end <= self.held.end) {
            assert!(wanted.len() <= self.room, "the window is too small");
            let kept = if self.held.contains(&wanted.start) { wanted.start..self.held.end } else { 0..0 };
            let next = if kept.is_empty() { wanted.start } else { kept.end };
            // SAFETY: what is kept is among the held elements, which are in the window; it and the new ones are `wanted`, for
            // which there is room by the assertion.
            unsafe {
                if !kept.is_empty() {
                    std::ptr::copy(self.start.add(kept.start - self.held.start), self.start, kept.len());
                }
                chain.compute(thread, next..wanted.end, self.start.add(kept.len()));
            }
            self.held = wanted;
        }
        self.start.wrapping_sub(self.held.start)
    }
}
