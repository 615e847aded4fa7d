//! The trace event format (JSON) that Perfetto and `chrome://tracing` open: a slice for every kernel on every thread, and
//! counters of what is live from the begin of each launch on.
//!
//! Perfetto shows every argument of a counter as a track of its own, `live bytes total` and so on; `chrome://tracing` stacks them.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::timeline::{LaunchId, Timeline};
use crate::model::{Class, Profile};

/// The name of the counter of all that is live; its one argument is `total`.
pub const LIVE_BYTES: &str = "live bytes";
/// The name of the counter of what is live by class.
pub const LIVE_BY_CLASS: &str = "live bytes by class";
/// There is but one.
const PROCESS: u32 = 1;

/// The trace as a text.
pub fn trace_json(profile: &Profile) -> String {
    let mut bytes = Vec::new();
    // Writing to memory never fails, and JSON is always text.
    let _ = write_trace(profile, &mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

/// Writes the trace of a step: as measured, or where nothing was, of predicted times one after the other.
///
/// # Errors
/// Of `out`.
pub fn write_trace(profile: &Profile, out: impl Write) -> io::Result<()> {
    let timeline = Timeline::of(profile);
    let mut events = Events { out, is_first: true };
    events.out.write_all(b"{\"traceEvents\":[")?;
    write_names(&timeline, &mut events)?;
    write_slices(&timeline, &mut events)?;
    write_counters(&timeline, &mut events)?;
    events.out.write_all(b"\n],\"otherData\":")?;
    serde_json::to_writer(&mut events.out, &Head::of(&timeline))?;
    events.out.write_all(b"}\n")?;
    events.out.flush()
}

fn write_names(timeline: &Timeline, events: &mut Events<impl Write>) -> io::Result<()> {
    let times = if timeline.is_measured { "measured" } else { "predicted" };
    let process = format!("memfit {}, {times}", timeline.profile.run.model);
    events.write(&Event::metadata("process_name", 0, Name { name: &process }))?;
    for (thread, name) in timeline.threads.iter().enumerate() {
        let tid = thread_id(thread);
        events.write(&Event::metadata("thread_name", tid, Name { name }))?;
        events.write(&Event::metadata("thread_sort_index", tid, SortIndex { sort_index: tid }))?;
    }
    Ok(())
}

fn write_slices(timeline: &Timeline, events: &mut Events<impl Write>) -> io::Result<()> {
    for span in &timeline.spans {
        let args = KernelArgs::of(timeline.profile, span.id);
        let name = format!("{} {}", args.op, args.layer);
        events.write(&Event {
            name: name.trim_end(),
            cat: Some(args.part),
            ph: "X",
            pid: PROCESS,
            tid: thread_id(span.thread),
            ts: Some(microseconds(span.begin_ns)),
            dur: Some(microseconds(span.end_ns - span.begin_ns)),
            args,
        })?;
    }
    Ok(())
}

fn write_counters(timeline: &Timeline, events: &mut Events<impl Write>) -> io::Result<()> {
    let live = timeline.live_by_class();
    let mut write = |begin_ns: u64, by_class: [u64; Class::ALL.len()]| {
        events.write(&Event::counter(LIVE_BYTES, begin_ns, Total { total: by_class.iter().sum() }))?;
        events.write(&Event::counter(LIVE_BY_CLASS, begin_ns, ByClass(by_class)))
    };
    for begin in &timeline.begins {
        write(begin.begin_ns, live[begin.id.program][begin.id.launch])?;
    }
    // States are all that is left of a step.
    write(timeline.end_ns, timeline.profile.state_bytes_by_class())
}

/// The one process has no thread 0.
fn thread_id(thread: usize) -> u64 {
    thread as u64 + 1
}

/// In the unit of the format. Who multiplies by 1000 and cuts off what is behind the point, as Perfetto does, has the
/// nanoseconds again: otherwise slices that touch would overlap.
fn microseconds(ns: u64) -> f64 {
    let us = ns as f64 / 1e3;
    if (us * 1e3) as u64 == ns { us } else { us.next_up() }
}

/// Events one after the other, a line each.
struct Events<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> Events<W> {
    fn write(&mut self, event: &Event<impl Serialize>) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }
}

#[derive(Serialize)]
struct Event<'a, A> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    ph: &'a str,
    pid: u32,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: A,
}

impl<'a, A> Event<'a, A> {
    fn metadata(name: &'a str, tid: u64, args: A) -> Event<'a, A> {
        Event { name, cat: None, ph: "M", pid: PROCESS, tid, ts: None, dur: None, args }
    }

    fn counter(name: &'a str, begin_ns: u64, args: A) -> Event<'a, A> {
        Event { name, cat: None, ph: "C", pid: PROCESS, tid: 0, ts: Some(microseconds(begin_ns)), dur: None, args }
    }
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct SortIndex {
    sort_index: u64,
}

#[derive(Serialize)]
struct Total {
    total: u64,
}

struct ByClass([u64; Class::ALL.len()]);

impl Serialize for ByClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Class::ALL.iter().map(|c| c.name()).zip(self.0))
    }
}

#[derive(Serialize)]
struct KernelArgs<'a> {
    op: &'a str,
    ops: &'a str,
    layer: &'a str,
    part: &'a str,
    program: &'a str,
    launch: usize,
    micro_batch: usize,
    flops: u64,
    traffic_bytes: u64,
    live_bytes: u64,
    scratch_bytes: u64,
    predicted_us: f64,
}

impl<'a> KernelArgs<'a> {
    fn of(profile: &'a Profile, id: LaunchId) -> KernelArgs<'a> {
        let program = &profile.programs[id.program];
        let launch = &program.launches[id.launch];
        KernelArgs {
            op: &launch.op,
            ops: &launch.ops,
            layer: &launch.layer,
            part: launch.part.name(),
            program: &program.phase,
            launch: id.launch,
            micro_batch: id.micro_batch,
            flops: launch.flops,
            traffic_bytes: launch.traffic_bytes,
            live_bytes: profile.memory.state_bytes.saturating_add(launch.live_bytes),
            scratch_bytes: launch.scratch_bytes,
            predicted_us: launch.predicted_us,
        }
    }
}

/// What the trace is of.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    batch: usize,
    micro_batch: usize,
    device: &'a str,
    memfit: &'a str,
    times: &'a str,
    arena_bytes: u64,
    peak_bytes: u64,
}

impl<'a> Head<'a> {
    fn of(timeline: &Timeline<'a>) -> Head<'a> {
        let Profile { run, memory, .. } = timeline.profile;
        Head {
            model: &run.model,
            batch: run.batch,
            micro_batch: run.micro_batch,
            device: &run.device,
            memfit: &run.memfit,
            times: if timeline.is_measured { "measured" } else { "predicted" },
            arena_bytes: memory.arena_bytes,
            peak_bytes: memory.peak_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_nanoseconds_survive_a_reader_that_cuts_off() {
        let odd = (0..2_000_000).chain((0..100_000).map(|i| i * 999_999_937));
        for ns in odd {
            assert_eq!((microseconds(ns) * 1e3) as u64, ns);
        }
    }
}
