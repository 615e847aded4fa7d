//! An XSpace, which the Profile tab of TensorBoard reads (its plugin is `xprof`): the trace viewer shows kernels by thread and
//! what is live, the memory profile shows the memory of the step over time and what is live at its peak.
//!
//! Names of planes, lines, events and statistics are the ones that the plugin looks for. There is no name of a machine.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use memfit_files::create_new;
use memfit_ir::DType;

use super::allocations::{Activity, MemoryEvent, memory_events};
use super::protobuf::Message;
use super::timeline::{Span, Timeline};
use crate::model::{Class, Launch, Profile, Program};

/// Where the plugin has the name of a machine.
const HOST: &str = "memfit";
/// What the plugin calls the memory that an allocator manages.
const ALLOCATOR: &str = "arena";

/// Writes a new file where the plugin looks for it: `plugins/profile/RUN/memfit.xplane.pb` in the folder of TensorBoard's logs.
///
/// # Errors
/// Of the system: of [`ErrorKind::AlreadyExists`] where the run has one, of [`ErrorKind::InvalidInput`] where `run` is not the
/// name of a folder.
pub fn create_xplane(logs: &Path, run: &str, profile: &Profile) -> io::Result<PathBuf> {
    if Path::new(run).file_name().is_none_or(|name| name != run) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{run:?} is not the name of a folder")));
    }
    let folder = logs.join("plugins/profile").join(run);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{HOST}.xplane.pb"));
    write_xspace(profile, create_new(&path)?)?;
    Ok(path)
}

/// Writes the step of a profile as an `XSpace`: as measured, or where nothing was, of predicted times one after the other.
///
/// # Errors
/// Of `out`.
pub fn write_xspace(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut space = Message::new(&mut bytes);
    space.message(1, |plane| host_plane(plane, &Timeline::of(profile)));
    space.string(4, HOST);
    out.write_all(&bytes)?;
    out.flush()
}

/// Fields of `XPlane`.
mod plane {
    pub const NAME: u32 = 2;
    pub const LINES: u32 = 3;
    pub const EVENT_METADATA: u32 = 4;
    pub const STAT_METADATA: u32 = 5;
}

/// Fields of `XLine`.
mod line {
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const EVENTS: u32 = 4;
}

/// Fields of `XEvent`.
mod event {
    pub const METADATA_ID: u32 = 1;
    pub const OFFSET_PS: u32 = 2;
    pub const DURATION_PS: u32 = 3;
    pub const STATS: u32 = 4;
}

/// Fields of `XEventMetadata`.
mod event_metadata {
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const DISPLAY_NAME: u32 = 4;
    pub const STATS: u32 = 5;
}

/// Fields of `XStat`.
mod stat {
    pub const METADATA_ID: u32 = 1;
    pub const DOUBLE: u32 = 2;
    pub const INT64: u32 = 4;
    pub const STRING: u32 = 5;
}

/// A statistic of an event. The plugin finds those of memory by their name.
#[derive(Clone, Copy)]
enum Stat {
    AllocatorName = 1,
    BytesReserved,
    BytesAllocated,
    BytesAvailable,
    PeakBytesInUse,
    Fragmentation,
    RequestedBytes,
    AllocationBytes,
    Address,
    RegionType,
    DataType,
    Shape,
    Op,
    StepId,
    Ops,
    Layer,
    Part,
    Program,
    Launch,
    MicroBatch,
    Operations,
    TrafficBytes,
    ScratchBytes,
    PredictedUs,
    Bytes,
}

/// In the order of [`Stat`].
const STAT_NAMES: [&str; 25] = [
    "allocator_name",
    "bytes_reserved",
    "bytes_allocated",
    "bytes_available",
    "peak_bytes_in_use",
    "fragmentation",
    "requested_bytes",
    "allocation_bytes",
    "addr",
    "region_type",
    "data_type",
    "shape",
    "tf_op",
    "group_id",
    "ops",
    "layer",
    "part",
    "program",
    "launch",
    "micro_batch",
    // The plugin hides what is called `flops`.
    "operations",
    "traffic_bytes",
    "scratch_bytes",
    "predicted_us",
    "bytes",
];
/// Numbers of the metadata of events that are no kernels.
const ALLOCATION: u64 = 1;
const DEALLOCATION: u64 = 2;
const LIVE_BYTES: u64 = 3;
/// Of the first class.
const LIVE_OF_CLASS: u64 = 4;
const FIRST_KERNEL: u64 = LIVE_OF_CLASS + Class::ALL.len() as u64;

fn host_plane(plane: &mut Message, timeline: &Timeline) {
    plane.string(plane::NAME, "/host:CPU");
    let kernels = Kernels::of(timeline.profile);
    for (thread, name) in timeline.threads.iter().enumerate() {
        plane.message(plane::LINES, |line| thread_line(line, timeline, &kernels, thread, name));
    }
    plane.message(plane::LINES, |line| counters_line(line, timeline));
    let names = ["MemoryAllocation", "MemoryDeallocation", "live bytes"].map(String::from);
    let names = names.into_iter().chain(Class::ALL.map(|class| format!("live bytes of {}", class.name())));
    for (id, name) in (ALLOCATION..).zip(names) {
        metadata(plane, plane::EVENT_METADATA, id, &name, |_| {});
    }
    kernels.write_metadata(plane);
    for (id, name) in (1..).zip(STAT_NAMES) {
        metadata(plane, plane::STAT_METADATA, id, name, |_| {});
    }
}

/// An entry of a map from numbers to metadata.
fn metadata(plane: &mut Message, field: u32, id: u64, name: &str, stats: impl FnOnce(&mut Message)) {
    plane.message(field, |entry| {
        entry.uint(1, id);
        entry.message(2, |value| {
            value.uint(event_metadata::ID, id);
            value.string(event_metadata::NAME, name);
            stats(value);
        });
    });
}

/// Kernels; and on the first thread what happens to memory, as if it had asked for it.
fn thread_line(line: &mut Message, timeline: &Timeline, kernels: &Kernels, thread: usize, name: &str) {
    line.uint(line::ID, thread as u64 + 1);
    line.string(line::NAME, name);
    let memory = if thread == 0 { memory_events(timeline) } else { Vec::new() };
    let arena_bytes = timeline.profile.memory.arena_bytes;
    let mut memory = memory.iter().peekable();
    for span in timeline.spans.iter().filter(|s| s.thread == thread) {
        while let Some(event) = memory.next_if(|m| m.at_ps < span.begin_ns * 1000) {
            line.message(line::EVENTS, |message| memory_event(message, event, arena_bytes));
        }
        line.message(line::EVENTS, |event| kernel_event(event, kernels, span));
    }
    for event in memory {
        line.message(line::EVENTS, |message| memory_event(message, event, arena_bytes));
    }
}

fn kernel_event(event: &mut Message, kernels: &Kernels, span: &Span) {
    event.uint(event::METADATA_ID, kernels.id(span.id.program, span.id.launch));
    event.uint(event::OFFSET_PS, span.begin_ns * 1000);
    event.uint(event::DURATION_PS, (span.end_ns - span.begin_ns) * 1000);
    let mut stats = Stats { message: event, field: event::STATS };
    stats.int(Stat::MicroBatch, span.id.micro_batch as u64);
    stats.int(Stat::StepId, 0);
}

fn memory_event(event: &mut Message, memory: &MemoryEvent, arena_bytes: u64) {
    let block = &memory.block;
    let kind = match memory.activity {
        Activity::Allocation => ALLOCATION,
        Activity::Deallocation => DEALLOCATION,
    };
    event.uint(event::METADATA_ID, kind);
    event.uint(event::OFFSET_PS, memory.at_ps);
    event.uint(event::DURATION_PS, 0);
    let mut stats = Stats { message: event, field: event::STATS };
    stats.string(Stat::AllocatorName, ALLOCATOR);
    stats.int(Stat::BytesReserved, 0);
    stats.int(Stat::BytesAllocated, memory.live_bytes);
    stats.int(Stat::BytesAvailable, arena_bytes.saturating_sub(memory.live_bytes));
    stats.int(Stat::PeakBytesInUse, memory.peak_bytes);
    stats.double(Stat::Fragmentation, memory.fragmentation);
    stats.int(Stat::RequestedBytes, block.requested_bytes);
    stats.int(Stat::AllocationBytes, block.bytes);
    stats.int(Stat::Address, block.address);
    stats.int(Stat::StepId, 0);
    if memory.activity == Activity::Allocation {
        let (data_type, shape) = data_type_and_shape(block.ty);
        stats.string(Stat::RegionType, block.class.name());
        stats.int(Stat::DataType, data_type);
        stats.string(Stat::Shape, shape);
        // No kernel is named so: the plugin would count it once more.
        stats.string(Stat::Op, format!("{} ({})", block.layer, block.op).trim_start());
    }
}

/// What TensorFlow numbers the type, and the shape with its brackets.
fn data_type_and_shape(ty: &str) -> (u64, &str) {
    let (name, shape) = ty.split_at(ty.find('[').unwrap_or(ty.len()));
    let number = match DType::from_name(name) {
        Some(DType::F32) => 1,
        Some(DType::I32) => 3,
        Some(DType::U8) => 4,
        Some(DType::Bit) => 10,
        Some(DType::BF16) => 14,
        Some(DType::F16) => 19,
        None => 0,
    };
    (number, shape)
}

/// The trace viewer shows what stands in a line of this name as counters, of which each has one number.
fn counters_line(line: &mut Message, timeline: &Timeline) {
    line.uint(line::ID, timeline.threads.len() as u64 + 1);
    line.string(line::NAME, "_counters_");
    let live = timeline.live_by_class();
    let begins = timeline.begins.iter().map(|b| (b.begin_ns, live[b.id.program][b.id.launch]));
    for (begin_ns, by_class) in begins.chain([(timeline.end_ns, timeline.profile.state_bytes_by_class())]) {
        counter(line, LIVE_BYTES, begin_ns, by_class.iter().sum());
        (LIVE_OF_CLASS..).zip(by_class).for_each(|(id, bytes)| counter(line, id, begin_ns, bytes));
    }
}

fn counter(line: &mut Message, id: u64, begin_ns: u64, bytes: u64) {
    line.message(line::EVENTS, |event| {
        event.uint(event::METADATA_ID, id);
        event.uint(event::OFFSET_PS, begin_ns * 1000);
        event.uint(event::DURATION_PS, 0);
        Stats { message: event, field: event::STATS }.int(Stat::Bytes, bytes);
    });
}

/// Kernels by their number in the plane, all programs in a row.
struct Kernels<'a> {
    programs: &'a [Program],
    /// Of the first launch of each program.
    first: Vec<u64>,
}

impl<'a> Kernels<'a> {
    fn of(profile: &'a Profile) -> Kernels<'a> {
        let ends = profile.programs.iter().scan(FIRST_KERNEL, |next, p| {
            *next += p.launches.len() as u64;
            Some(*next)
        });
        Kernels { programs: &profile.programs, first: [FIRST_KERNEL].into_iter().chain(ends).collect() }
    }

    fn id(&self, program: usize, launch: usize) -> u64 {
        self.first[program] + launch as u64
    }

    /// What is the same whenever a kernel runs.
    fn write_metadata(&self, plane: &mut Message) {
        for (p, program) in self.programs.iter().enumerate() {
            for (n, launch) in program.launches.iter().enumerate() {
                metadata(plane, plane::EVENT_METADATA, self.id(p, n), &framework_name(launch), |value| {
                    value.string(event_metadata::DISPLAY_NAME, format!("{} {}", launch.op, launch.layer).trim_end());
                    let mut stats = Stats { message: value, field: event_metadata::STATS };
                    stats.string(Stat::Ops, &launch.ops);
                    stats.string(Stat::Layer, &launch.layer);
                    stats.string(Stat::Part, launch.part.name());
                    stats.string(Stat::Program, &program.phase);
                    stats.int(Stat::Launch, n as u64);
                    stats.int(Stat::Operations, launch.flops);
                    stats.int(Stat::TrafficBytes, launch.traffic_bytes);
                    stats.int(Stat::ScratchBytes, launch.scratch_bytes);
                    stats.double(Stat::PredictedUs, launch.predicted_us);
                });
            }
        }
    }
}

/// A name and a type as TensorFlow's ops have them, such as `layer1/conv/conv2d:Conv2d`: the plugin counts what is named so as
/// the ops of a framework.
fn framework_name(launch: &Launch) -> String {
    let mut letters = launch.op.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let path = if launch.layer.is_empty() { String::new() } else { format!("{}/", launch.layer) };
    format!("{path}{}:{first}{}", launch.op, letters.as_str())
}

/// The statistics of an event or of metadata.
struct Stats<'a, 'b> {
    message: &'a mut Message<'b>,
    field: u32,
}

impl Stats<'_, '_> {
    /// The plugin reads whole numbers with a sign only.
    fn int(&mut self, id: Stat, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.write(id, |stat| stat.int(stat::INT64, value));
    }

    fn double(&mut self, id: Stat, value: f64) {
        self.write(id, |stat| stat.double(stat::DOUBLE, value));
    }

    fn string(&mut self, id: Stat, value: &str) {
        self.write(id, |stat| stat.string(stat::STRING, value));
    }

    fn write(&mut self, id: Stat, write: impl FnOnce(&mut Message)) {
        self.message.message(self.field, |stat| {
            stat.uint(stat::METADATA_ID, id as u64);
            write(stat);
        });
    }
}
