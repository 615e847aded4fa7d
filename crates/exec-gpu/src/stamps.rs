//! When kernels began and ended, by the device's own clock. Each recorded kernel is a submission of its own between two that
//! stamp the time; the queue runs them in order, and nobody waits. The stamps are read when a step has ended, or when there is
//! no room for more.

use cubecl::wgpu::wgpu::{
    Backend, Buffer, BufferDescriptor, BufferUsages, CommandEncoder, CommandEncoderDescriptor, Device, Features,
    QUERY_SIZE, QuerySet, QuerySetDescriptor, QueryType, Queue,
};
use memfit_exec::recorder::{LaunchId, Recorder, Stamped, now};

use crate::sizes::{STAMPED_KERNELS, STAMPS};

/// The stamps of one engine.
pub struct Stamps {
    set: QuerySet,
    /// What the device makes of them.
    resolved: Buffer,
    /// Nanoseconds of a tick.
    period: f64,
    /// Kernels that were handed over and not told of yet, whose stamps are still on the device.
    started: Vec<Stamped>,
}

impl Stamps {
    /// Nanoseconds of a tick, of a device that stamps between submissions. Metal stamps where a pass begins, which may be while
    /// those before it still run.
    pub fn period(device: &Device, queue: &Queue, backend: Backend) -> Option<f64> {
        let has = device.features().contains(Features::TIMESTAMP_QUERY | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);
        (has && backend != Backend::Metal).then(|| f64::from(queue.get_timestamp_period())).filter(|&ns| ns > 0.0)
    }

    pub fn new(device: &Device, period: f64) -> Stamps {
        let ty = QueryType::Timestamp;
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        Stamps {
            set: device.create_query_set(&QuerySetDescriptor {
                label: None,
                ty,
                count: (STAMPS / u64::from(QUERY_SIZE)) as u32,
            }),
            resolved: device.create_buffer(&BufferDescriptor {
                label: None,
                size: STAMPS,
                usage,
                mapped_at_creation: false,
            }),
            period,
            started: Vec::with_capacity(STAMPED_KERNELS),
        }
    }

    /// Whether there is no room for another kernel.
    pub fn is_full(&self) -> bool {
        self.started.len() == STAMPED_KERNELS
    }

    /// A kernel is about to be handed over.
    pub fn begin(&mut self, device: &Device, queue: &Queue, id: LaunchId) {
        self.started.push(Stamped { id, before: now(), begin: 0, end: 0 });
        self.stamp(device, queue, 0);
    }

    /// It was.
    pub fn end(&mut self, device: &Device, queue: &Queue) {
        self.stamp(device, queue, 1);
    }

    fn stamp(&self, device: &Device, queue: &Queue, which: usize) {
        let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
        let at = 2 * (self.started.len() - 1) + which;
        encoder.write_timestamp(&self.set, at as u32);
        queue.submit([encoder.finish()]);
    }

    /// Copies all stamps to where the host reads them, and says how many bytes these are.
    pub fn encode(&self, encoder: &mut CommandEncoder, to: &Buffer) -> u64 {
        let count = 2 * self.started.len() as u32;
        let bytes = u64::from(count * QUERY_SIZE);
        if count > 0 {
            encoder.resolve_query_set(&self.set, 0..count, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, to, 0, bytes);
        }
        bytes
    }

    /// Tells of all kernels, whose stamps these are. Then there is room again.
    pub fn tell(&mut self, stamps: &[u8], recorder: &Recorder) {
        let (ticks, _) = stamps.as_chunks::<{ QUERY_SIZE as usize }>();
        for (kernel, pair) in self.started.iter_mut().zip(ticks.chunks_exact(2)) {
            (kernel.begin, kernel.end) = (u64::from_ne_bytes(pair[0]), u64::from_ne_bytes(pair[1]));
        }
        recorder.stamped(&self.started, self.period);
        self.started.clear();
    }
}
