//! `memfit pack --torch`: what PyTorch reserved, what was live, and what the same buffers need when they are packed.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use memfit::plan::bytes::Bytes;
use memfit::plan::pack::{Packing, pack_within};
use memfit_profile::torch::{Buffer, DeviceTrace, Frame, FreedAt, Peak, Snapshot, TorchError};
use memfit_run::file;
use memfit_run::text::count;
use serde_json::{Value, json};

use super::{Packer, grade};
use crate::failure::{bad_data, usage};
use crate::output::outln;

/// PyTorch's allocator places buffers at multiples of this, and so does what it is held against.
const ALIGNMENT: u64 = 512;

/// So many lines are given to the buffers at the peak, and so many of these are looked at.
const LARGEST: usize = 10;
const MOST_LOOKED_AT: usize = 2000;

pub fn pack(run: &Packer, device: Option<usize>) -> Result<()> {
    let snapshot = Snapshot::read(&run.file).map_err(|e| wrong(&run.file, &e))?;
    let trace = snapshot.device(device).map_err(|e| wrong(&run.file, &e))?;
    if trace.buffers.is_empty() {
        let (file, device) = (run.file.display(), trace.device);
        return Err(bad_data(format!("{file}: nothing was allocated on device {device} while events were recorded")));
    }
    let start = Instant::now();
    let items = trace.items();
    let limits = run.search.limits(items.len(), start);
    let packing = pack_within(&items, ALIGNMENT, limits, &mut |_| {});
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &run.out {
        file::write(path, &table(&trace.buffers, &packing.offsets))?;
    }
    let found =
        Found { trace: &trace, live: trace.peak(1), rounded: trace.peak(ALIGNMENT), packing: &packing, seconds };
    if run.json {
        outln!("{}", found.event(run));
    } else {
        found.print(run, &snapshot.events());
    }
    Ok(())
}

/// What is wrong with a snapshot, and the cure.
fn wrong(path: &Path, error: &TorchError) -> anyhow::Error {
    let file = path.display();
    match error {
        TorchError::NoEvents { others, .. } if others.is_empty() => bad_data(format!(
            "{file}: {error}; call torch.cuda.memory._record_memory_history() before the steps that are to be looked at, and \
             torch.cuda.memory._dump_snapshot() after them"
        )),
        TorchError::NoEvents { others, .. } => {
            bad_data(format!("{file}: {error}; {} some: --device {}", have(others), others[0]))
        }
        TorchError::NoDevice { .. } => usage(format!("--device: {file}: {error}")),
        _ => bad_data(format!("{file}: {error}")),
    }
}

/// "device 1 has", "devices 0, 2 have".
fn have(devices: &[usize]) -> String {
    match devices {
        [device] => format!("device {device} has"),
        _ => format!("devices {} have", devices.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// As `memfit pack` reads it.
fn table(buffers: &[Buffer], offsets: &[u64]) -> String {
    let mut text = String::from("id,lower,upper,size,offset\n");
    for (id, (Buffer { lower, upper, bytes, .. }, offset)) in buffers.iter().zip(offsets).enumerate() {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{id},{lower},{upper},{bytes},{offset}");
    }
    text
}

/// "model.py:57 forward".
fn place(frame: &Frame) -> String {
    let Frame { file, line, function } = frame;
    format!("{file}:{line} {function}")
}

/// "event 17": events are counted from 0, and the first moves the time from 0 to 1.
fn event_of(time: usize) -> String {
    time.checked_sub(1).map_or("the beginning".into(), |event| format!("event {event}"))
}

struct Found<'a> {
    trace: &'a DeviceTrace<'a>,
    live: Peak,
    /// The same of sizes in multiples of the alignment.
    rounded: Peak,
    packing: &'a Packing,
    seconds: f64,
}

impl Found<'_> {
    /// What PyTorch reserved at most, where its segments have room for what was live.
    fn reserved(&self) -> Option<u64> {
        self.trace.reserved.map(|r| r.peak).filter(|&peak| peak >= self.live.bytes)
    }

    fn fragmentation(&self) -> Option<u64> {
        self.reserved().map(|reserved| reserved.saturating_sub(self.packing.capacity))
    }

    fn event(&self, run: &Packer) -> Value {
        let (trace, packing) = (self.trace, self.packing);
        let largest = |alike: &Alike| {
            let frame = alike.frame.as_ref();
            let frame = frame.map(|f| json!({ "file": f.file, "line": f.line, "function": f.function }));
            json!({ "bytes": alike.bytes, "buffers": alike.buffers, "frame": frame })
        };
        json!({
            "event": "pack", "file": run.file.display().to_string(), "device": trace.device, "events": trace.events,
            "buffers": trace.buffers.len(), "buffers_before": trace.before, "contradictions": trace.contradictions,
            "peak_live_bytes": self.live.bytes, "peak_live_rounded_bytes": self.rounded.bytes, "peak_time": self.live.time,
            "peak_reserved_bytes": self.reserved(), "packed_bytes": packing.capacity,
            "fragmentation_bytes": self.fragmentation(), "is_optimal": packing.optimal,
            "freed_at": freed_at(trace.freed_at), "alignment": ALIGNMENT,
            "snapshot_requested_bytes": trace.blocks.map(|b| b.requested),
            "snapshot_block_bytes": trace.blocks.map(|b| b.bytes),
            "out_of_memory_events": trace.out_of_memory.events,
            "largest": self.largest().iter().map(largest).collect::<Vec<_>>(),
            "method": packing.method.to_string(), "ms": self.seconds * 1e3,
            "out": run.out.as_ref().map(|p| p.display().to_string()),
        })
    }

    fn print(&self, run: &Packer, events: &[usize]) {
        let (trace, packing) = (self.trace, self.packing);
        outln!(
            "{}, device {}: {}, {}",
            run.file.display(),
            trace.device,
            count(trace.events, "event"),
            count(trace.buffers.len(), "buffer")
        );
        self.print_verdict();
        let row = |name: &str, bytes: u64, words: &str| {
            outln!("  {name:<10} {:>10}  {}{words}", Bytes(bytes).to_string(), count(bytes, "byte"));
        };
        let rounded = count(self.rounded.bytes, "byte");
        let first = event_of(self.live.time);
        row(
            "max live",
            self.live.bytes,
            &format!(" as requested, first at {first}; {rounded} in multiples of {ALIGNMENT}"),
        );
        if let (Some(reserved), Some(all)) = (self.reserved(), trace.reserved) {
            row("reserved", reserved, &format!(" at most; {} at the snapshot", Bytes(all.at_snapshot)));
        }
        let grade = grade(packing, self.rounded.bytes);
        row("packed", packing.capacity, &format!(" at multiples of {ALIGNMENT}; {grade}"));
        if let Some(fragmentation) = self.fragmentation() {
            row("fragmented", fragmentation, " reserved that the packed buffers do not need");
        }
        outln!("  found in   {:>7.1} ms  by {}", self.seconds * 1e3, packing.method);
        self.print_notes(events);
        self.print_largest();
        if let Some(path) = &run.out {
            outln!("  written to {}", path.display());
        }
    }

    fn print_verdict(&self) {
        let (live, packed) = (Bytes(self.live.bytes), Bytes(self.packing.capacity));
        let exactly = if self.packing.optimal { "packed exactly" } else { "packed" };
        match self.reserved() {
            Some(reserved) => {
                outln!("  PyTorch reserved {} for {live} live; {exactly} they need {packed}", Bytes(reserved));
            }
            None => outln!("  {live} were live; {exactly} they need {packed}"),
        }
    }

    /// What a reader should know of how this was counted.
    fn print_notes(&self, events: &[usize]) {
        let trace = self.trace;
        if self.reserved().is_none() {
            outln!("  what was reserved is not known: segments and events of the snapshot contradict each other");
        }
        match trace.freed_at {
            FreedAt::Completed => outln!("  a buffer lives until free_completed, when its memory can be used again"),
            FreedAt::Requested => outln!("  a buffer lives until free_requested: no free_completed was recorded"),
        }
        if trace.before > 0 {
            outln!("  {} allocated before recording began, and live from the beginning", were(trace.before, "buffer"));
        }
        if trace.empty > 0 {
            outln!("  {} of 0 bytes left out", were(trace.empty, "allocation"));
        }
        if trace.contradictions > 0 {
            let are = were(trace.contradictions, "event");
            outln!("  {are} not followed: a second allocation or free of the same address",);
        }
        if trace.out_of_memory.events > 0 {
            let failed = were(trace.out_of_memory.events, "request");
            outln!("  {failed} not met for want of memory, the largest of {}", Bytes(trace.out_of_memory.largest));
        }
        if let Some(blocks) = trace.blocks.filter(|b| b.blocks > 0) {
            let (requested, bytes) = (Bytes(blocks.requested), Bytes(blocks.bytes));
            outln!(
                "  at the snapshot {} held {requested} that were requested, and took {bytes}",
                count(blocks.blocks, "block")
            );
        }
        let others: Vec<usize> = (0..events.len()).filter(|&d| d != trace.device && events[d] > 0).collect();
        if let Some(other) = others.first() {
            outln!("  {} events too: --device {other}", have(&others));
        }
    }

    /// What is live at the peak, the largest first; those that are alike count together.
    fn largest(&self) -> Vec<Alike> {
        let mut largest: Vec<Alike> = Vec::new();
        for buffer in self.trace.live_at(self.live.time).into_iter().take(MOST_LOOKED_AT) {
            let (bytes, frame) = (buffer.bytes, self.trace.frame(buffer));
            match largest.iter().position(|alike| alike.bytes == bytes && alike.frame == frame) {
                Some(at) => largest[at].buffers += 1,
                None if largest.len() == LARGEST => break,
                None => largest.push(Alike { bytes, buffers: 1, frame }),
            }
        }
        largest
    }

    fn print_largest(&self) {
        let live = self.trace.live_at(self.live.time).len();
        outln!("  the largest of {} that are live at {}:", count(live, "buffer"), event_of(self.live.time));
        for Alike { bytes, buffers, frame } in self.largest() {
            let who = frame.as_ref().map_or("no frame recorded".into(), place);
            let times = if buffers > 1 { format!("{buffers} × ") } else { String::new() };
            outln!("  {times:>10} {:>10}  {who}", Bytes(bytes).to_string());
        }
    }
}

/// Buffers of one size that one line of a program asked for.
struct Alike {
    bytes: u64,
    buffers: usize,
    frame: Option<Frame>,
}

fn freed_at(freed_at: FreedAt) -> &'static str {
    match freed_at {
        FreedAt::Completed => "free_completed",
        FreedAt::Requested => "free_requested",
    }
}

/// "1 event was", "2 events were".
fn were(number: usize, noun: &str) -> String {
    format!("{} {}", count(number, noun), if number == 1 { "was" } else { "were" })
}
