//! Copies between the host and a GPU. They go through buffers of fixed size that are taken once, so that no copy allocates and
//! what stands beside the segments is known before: two buffers up, each for all inputs of a program, so that the next batch
//! is staged while this one is read; one down, for a piece of what is read; and two for single numbers that are looked at when
//! the next step is on its way. Only this file, and the stamps that it keeps, put anything on the queue beside the runtime.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

use cubecl::prelude::Client;
use cubecl::wgpu::wgpu::{
    Buffer, BufferDescriptor, BufferUsages, BufferViewMut, CommandEncoder, CommandEncoderDescriptor, ErrorFilter,
    MapMode, PollType, SubmissionIndex,
};
use memfit_exec::recorder::{LaunchId, Recorder};
use memfit_exec::{Device, ExecError, Reservation};

use crate::arena::WORD;
use crate::device::Gpu;
use crate::sizes::StagingSizes;
use crate::stamps::Stamps;

/// The buffers of one engine.
pub struct Staging {
    up: Upload,
    down: Buffer,
    numbers: Numbers,
    /// Where the device has a clock.
    stamps: Option<Stamps>,
    /// What was submitted last: it comes behind the run before this one, and before this one.
    last: Option<SubmissionIndex>,
    taken: Taken,
}

/// Two buffers in turn. What is written is copied when somebody may look at it, or when a buffer is full.
struct Upload {
    buffers: [Buffer; 2],
    /// By which submission each is read.
    read: [Option<SubmissionIndex>; 2],
    current: usize,
    /// Of the current one, while it is mapped.
    view: Option<BufferViewMut>,
    filled: u64,
    commands: Vec<Command>,
    last: Option<LastWrite>,
}

/// What is done to `size` bytes of a buffer.
struct Command {
    to: Buffer,
    offset: u64,
    size: u64,
    from: Source,
}

/// What they become.
enum Source {
    Zero,
    /// What lies there in the current buffer.
    Upload(u64),
}

/// Words that are to be put aside before anything else is done to them, by whomever: others may have the same transient segment.
pub(crate) struct Keeping {
    /// Segment and offset of each.
    words: Vec<(Buffer, u64)>,
    to: Buffer,
    submitted: Arc<OnceLock<SubmissionIndex>>,
}

/// Where the last write ended, and the bytes of its last word where that is not whole: they are written again with the rest
/// of the word.
struct LastWrite {
    to: Buffer,
    end: u64,
    tail: [u8; WORD as usize],
}

/// What is read at once of a segment: from where, where it is put in the buffer, and where it goes.
struct Piece {
    from: u64,
    at: u64,
    to: Range<usize>,
}

struct Numbers {
    buffers: [Buffer; 2],
    next: usize,
    /// The oldest first: which buffer, and with which submission, as soon as there is one.
    kept: VecDeque<(usize, Arc<OnceLock<SubmissionIndex>>)>,
}

/// How much of a device is taken for staging; given back when it is dropped.
struct Taken {
    gpu: Arc<Gpu>,
    bytes: u64,
    _held: Reservation,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.gpu.staged.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Staging {
    /// Nobody looks at what is still to be put aside.
    fn drop(&mut self) {
        let own = |keeping: &Keeping| self.numbers.kept.iter().any(|(_, kept)| Arc::ptr_eq(kept, &keeping.submitted));
        self.gpu().keeping().retain(|keeping| !own(keeping));
    }
}

impl Staging {
    /// Takes `held` bytes of the device: its own, and those of which it speaks.
    pub fn new(
        gpu: &Arc<Gpu>,
        device: &Device,
        holder: &str,
        sizes: StagingSizes,
        held: u64,
    ) -> Result<Staging, ExecError> {
        let _held = device.take(holder, held)?;
        let scope = gpu.device.push_error_scope(ErrorFilter::OutOfMemory);
        let buffer = |size, usage| {
            gpu.device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let up = || buffer(sizes.up, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC);
        let down = |size| buffer(size, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        let (up, numbers) = ([up(), up()], [down(sizes.numbers), down(sizes.numbers)]);
        let down = down(sizes.down);
        let stamps = gpu.tick.map(|period| Stamps::new(&gpu.device, period));
        let bytes = sizes.bytes();
        if let Some(refused) = cubecl::future::block_on(scope.pop()) {
            return Err(gpu.out_of_memory(holder, bytes, refused));
        }
        gpu.staged.fetch_add(bytes, Ordering::Relaxed);
        Ok(Staging {
            up: Upload {
                buffers: up,
                read: [None, None],
                current: 0,
                view: None,
                filled: 0,
                commands: Vec::new(),
                last: None,
            },
            down,
            numbers: Numbers { buffers: numbers, next: 0, kept: VecDeque::with_capacity(2) },
            stamps,
            last: None,
            taken: Taken { gpu: gpu.clone(), bytes, _held },
        })
    }

    fn gpu(&self) -> &Gpu {
        &self.taken.gpu
    }

    // ---- to the device -----------------------------------------------------------------------------------------------

    /// Copies bytes to an offset of a segment.
    pub fn write(&mut self, to: &Buffer, mut offset: u64, mut bytes: &[u8]) -> Result<(), ExecError> {
        while !bytes.is_empty() {
            if self.up.view.is_some() && self.up.is_full() {
                self.submit_writes()?;
            }
            if self.up.view.is_none() {
                self.map_upload()?;
            }
            self.up.begin_copy(to, offset);
            let room = self.up.buffers[0].size() - self.up.filled;
            let (piece, rest) = bytes.split_at(bytes.len().min(room as usize));
            self.up.append(piece);
            (offset, bytes) = (offset + piece.len() as u64, rest);
        }
        Ok(())
    }

    fn map_upload(&mut self) -> Result<(), ExecError> {
        let Upload { buffers, read, current, .. } = &self.up;
        let buffer = &buffers[*current];
        map(self.gpu(), buffer, MapMode::Write, read[*current].clone())?;
        let view = buffer.get_mapped_range_mut(..).map_err(|e| self.gpu().error(e))?;
        (self.up.view, self.up.filled) = (Some(view), 0);
        Ok(())
    }

    /// Puts what was written, cleared and kept on the queue, behind all that was launched before. Whoever launches, fills or
    /// reads does it first.
    pub fn submit_writes(&mut self) -> Result<(), ExecError> {
        let gpu = self.taken.gpu.clone();
        let mut keeping = gpu.keeping();
        if self.up.commands.is_empty() && keeping.is_empty() {
            return Ok(());
        }
        self.flush()?;
        let mut encoder = gpu.device.create_command_encoder(&CommandEncoderDescriptor::default());
        for Keeping { words, to, .. } in &*keeping {
            for (i, (segment, offset)) in (0..).zip(words) {
                encoder.copy_buffer_to_buffer(segment, *offset, to, i * WORD, WORD);
            }
        }
        let is_used = self.up.encode(&mut encoder);
        let submitted = gpu.queue.submit([encoder.finish()]);
        keeping.drain(..).for_each(|kept| _ = kept.submitted.set(submitted.clone()));
        if is_used {
            self.up.read[self.up.current] = Some(submitted.clone());
            self.up.current = 1 - self.up.current;
        }
        self.last = Some(submitted);
        Ok(())
    }

    /// Sets bytes of a segment to zero, up to the end of their last word.
    pub fn clear(&mut self, to: &Buffer, offset: u64, size: u64) {
        self.up.commands.push(Command { to: to.clone(), offset, size, from: Source::Zero });
    }

    // ---- from the device ---------------------------------------------------------------------------------------------

    /// Copies parts of a segment, each from its offset, to parts of `room`, once everything started before has run: as much at
    /// once as the buffer holds, so that most are waited for together.
    pub fn read(
        &mut self,
        from: &Buffer,
        parts: impl Iterator<Item = (u64, Range<usize>)>,
        room: &mut [u8],
    ) -> Result<(), ExecError> {
        self.submit_all()?;
        let (mut pieces, mut filled) = (Vec::new(), 0);
        for (offset, part) in parts {
            let mut to = part.start;
            while to < part.end {
                if filled == self.down.size() {
                    self.fetch(from, &pieces, room)?;
                    (pieces, filled) = (Vec::new(), 0);
                }
                let size = (part.end - to).min((self.down.size() - filled) as usize);
                pieces.push(Piece { from: offset + (to - part.start) as u64, at: filled, to: to..to + size });
                filled = (filled + size as u64).next_multiple_of(WORD);
                to += size;
            }
        }
        self.fetch(from, &pieces, room)
    }

    /// Pieces that the buffer holds all at once.
    fn fetch(&self, from: &Buffer, pieces: &[Piece], room: &mut [u8]) -> Result<(), ExecError> {
        let mut encoder = self.gpu().device.create_command_encoder(&CommandEncoderDescriptor::default());
        for piece in pieces {
            let size = (piece.to.len() as u64).next_multiple_of(WORD);
            encoder.copy_buffer_to_buffer(from, piece.from, &self.down, piece.at, size);
        }
        let copied = self.gpu().queue.submit([encoder.finish()]);
        read_mapped(self.gpu(), &self.down, Some(copied), |view| {
            for piece in pieces {
                room[piece.to.clone()].copy_from_slice(&view[piece.at as usize..][..piece.to.len()]);
            }
        })
    }

    /// Puts a word of each aside, before anything else is done to them: with the next submission, so that none is made for it.
    pub fn keep<'a>(&mut self, words: impl Iterator<Item = (&'a Buffer, u64)>) {
        let words: Vec<(Buffer, u64)> = words.map(|(segment, offset)| (segment.clone(), offset)).collect();
        let Numbers { buffers, next, kept } = &mut self.numbers;
        let fits = words.len() as u64 * WORD <= buffers[0].size();
        assert!(fits && kept.len() < buffers.len(), "{} words are kept beside {}", words.len(), kept.len());
        let (to, submitted) = (buffers[*next].clone(), Arc::new(OnceLock::new()));
        kept.push_back((*next, submitted.clone()));
        *next = 1 - *next;
        self.taken.gpu.keeping().push(Keeping { words, to, submitted });
    }

    /// The words that were put aside first, when they are there.
    pub fn kept(&mut self, words: &mut [u32]) -> Result<(), ExecError> {
        let Some((at, submitted)) = self.numbers.kept.pop_front() else { unreachable!("nothing was kept") };
        if submitted.get().is_none() {
            self.submit_writes()?;
        }
        read_mapped(self.gpu(), &self.numbers.buffers[at], submitted.get().cloned(), |view| {
            let bytes = view.chunks_exact(WORD as usize);
            words.iter_mut().zip(bytes).for_each(|(word, b)| *word = u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        })
    }

    // ---- kernels with their times ------------------------------------------------------------------------------------

    /// Has a kernel launched between two stamps, on a device with a clock.
    pub fn launch_stamped(
        &mut self,
        id: LaunchId,
        recorder: &Recorder,
        launch: impl FnOnce(&Client) + Send,
    ) -> Result<(), ExecError> {
        if self.stamps.as_ref().is_some_and(Stamps::is_full) {
            self.tell_stamped(recorder)?;
        }
        self.submit_writes()?;
        let (gpu, Some(stamps)) = (&self.taken.gpu, &mut self.stamps) else { unreachable!("a device with a clock") };
        let _alone = gpu.alone();
        // On the runtime's own thread, so that nothing but the launch comes between the stamps and the kernel.
        let launched = gpu.client.exclusive(|| {
            // What others launched before is not this kernel's time.
            gpu.client.flush()?;
            stamps.begin(&gpu.device, &gpu.queue, id);
            launch(&gpu.client);
            let flushed = gpu.client.flush();
            stamps.end(&gpu.device, &gpu.queue);
            flushed
        });
        launched.flatten().map_err(|e| gpu.error(e))
    }

    /// Tells of all kernels that were launched so, once they have run.
    pub fn tell_stamped(&mut self, recorder: &Recorder) -> Result<(), ExecError> {
        let (gpu, Some(stamps)) = (&self.taken.gpu, &mut self.stamps) else { return Ok(()) };
        let mut encoder = gpu.device.create_command_encoder(&CommandEncoderDescriptor::default());
        let bytes = stamps.encode(&mut encoder, &self.down);
        if bytes == 0 {
            return Ok(());
        }
        let copied = gpu.queue.submit([encoder.finish()]);
        read_mapped(gpu, &self.down, Some(copied), |view| stamps.tell(&view[..bytes as usize], recorder))
    }

    // ---- waiting -----------------------------------------------------------------------------------------------------

    /// All of a run is with the device: waits until the run before it has ended, behind which the inputs of this one come.
    pub fn end_run(&mut self) -> Result<(), ExecError> {
        self.submit_all()?;
        self.last.take().map_or(Ok(()), |inputs| poll(self.gpu(), inputs))
    }

    /// All that was written and launched is with the device.
    pub fn submit_all(&mut self) -> Result<(), ExecError> {
        self.submit_writes()?;
        self.flush()
    }

    fn flush(&self) -> Result<(), ExecError> {
        self.gpu().client.flush().map_err(|e| self.gpu().error(e))
    }
}

impl Upload {
    /// Hands out all commands; gives whether they read the current buffer, which is not mapped any more then.
    fn encode(&mut self, encoder: &mut CommandEncoder) -> bool {
        let buffer = &self.buffers[self.current];
        let is_used = self.view.take().is_some();
        if is_used {
            buffer.unmap();
        }
        for Command { to, offset, size, from } in self.commands.drain(..) {
            let size = size.next_multiple_of(WORD);
            match from {
                Source::Zero => encoder.clear_buffer(&to, offset, Some(size)),
                Source::Upload(from) => encoder.copy_buffer_to_buffer(buffer, from, &to, offset, size),
            }
        }
        is_used
    }

    /// Goes on with the last copy, or begins one behind it. The buffer has room for a word.
    fn begin_copy(&mut self, to: &Buffer, offset: u64) {
        let goes_on = |c: &Command| {
            let at_end = matches!(c.from, Source::Upload(from) if from + c.size == self.filled);
            at_end && c.to == *to && c.offset + c.size == offset
        };
        if self.commands.last().is_some_and(goes_on) {
            return;
        }
        let odd = offset % WORD;
        self.filled = self.filled.next_multiple_of(WORD);
        let copy = Command { to: to.clone(), offset: offset - odd, size: 0, from: Source::Upload(self.filled) };
        let tail = self.last.as_ref().filter(|last| last.to == *to && last.end == offset).map(|last| last.tail);
        assert!(odd == 0 || tail.is_some(), "a write at byte {offset}, which is in the middle of a word");
        self.commands.push(copy);
        if odd > 0 {
            self.append(&tail.unwrap_or_default()[..odd as usize]);
        }
    }

    /// Behind what the last copy has.
    fn append(&mut self, bytes: &[u8]) {
        let (Some(copy), Some(view)) = (self.commands.last_mut(), &mut self.view) else {
            unreachable!("a copy was begun in a buffer that is mapped")
        };
        let at = self.filled as usize;
        view.slice(at..at + bytes.len()).copy_from_slice(bytes);
        copy.size += bytes.len() as u64;
        self.filled += bytes.len() as u64;
        let (to, end) = (copy.to.clone(), copy.offset + copy.size);
        let odd = (end % WORD) as usize;
        let mut tail = [0; WORD as usize];
        match odd.checked_sub(bytes.len()) {
            // It goes on in the word of the write before.
            Some(before) => {
                tail = self.last.as_ref().map_or(tail, |last| last.tail);
                tail[before..odd].copy_from_slice(bytes);
            }
            None => tail[..odd].copy_from_slice(&bytes[bytes.len() - odd..]),
        }
        self.last = Some(LastWrite { to, end, tail });
    }

    /// Whether there is no room for another word.
    fn is_full(&self) -> bool {
        self.filled.next_multiple_of(WORD) + WORD > self.buffers[0].size()
    }
}

/// Waits for a submission, and for none behind it.
fn poll(gpu: &Gpu, submission: SubmissionIndex) -> Result<(), ExecError> {
    let wait = PollType::Wait { submission_index: Some(submission), timeout: None };
    gpu.device.poll(wait).map(|_| ()).map_err(|e| gpu.error(e))
}

/// Maps a buffer, once the submission that uses it has run.
fn map(gpu: &Gpu, buffer: &Buffer, mode: MapMode, used: Option<SubmissionIndex>) -> Result<(), ExecError> {
    let (sender, receiver) = sync_channel(1);
    buffer.map_async(mode, .., move |mapped| _ = sender.send(mapped));
    match used {
        Some(submission) => poll(gpu, submission)?,
        None => _ = gpu.device.poll(PollType::Poll).map_err(|e| gpu.error(e))?,
    }
    let mapped = receiver.recv().map_err(|e| gpu.error(e))?;
    mapped.map_err(|e| gpu.error(format!("{e}; the device may be lost")))
}

/// Looks at a buffer that a submission has written.
fn read_mapped(
    gpu: &Gpu,
    buffer: &Buffer,
    written: Option<SubmissionIndex>,
    look: impl FnOnce(&[u8]),
) -> Result<(), ExecError> {
    map(gpu, buffer, MapMode::Read, written)?;
    let view = buffer.get_mapped_range(..).map_err(|e| gpu.error(e))?;
    look(&view);
    drop(view);
    buffer.unmap();
    Ok(())
}
