//! Event files of TensorBoard: scalars, texts and histograms by tag and step, as records that are only ever appended.
//!
//! A scalar is a `simple_value`, which TensorBoard shows under Scalars and every reader of event files knows; it has 32 bits
//! there. Texts and histograms are tensors that name their plugin. No file has a name of the machine in it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memfit_files::create_new;

use super::protobuf::Message;
use super::record;

/// What TensorBoard finds event files by.
const PREFIX: &str = "events.out.tfevents.";
/// Where others have the name of the machine.
const SUFFIX: &str = ".memfit";
/// Of a histogram.
pub const BUCKETS: usize = 30;
/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 16;

/// An event file that is being written.
pub type EventFile = EventWriter<File>;

/// Where events belong: TensorBoard shows both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// The number of the step.
    pub step: u64,
    /// Seconds since 1970.
    pub wall_seconds: f64,
}

impl At {
    /// A step that is done now.
    pub fn now(step: u64) -> At {
        At { step, wall_seconds: wall_seconds() }
    }
}

/// Seconds since 1970.
pub fn wall_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Writes events to anything. What it has collected is written when there is much of it, on [`EventWriter::flush`], and when it
/// is dropped.
pub struct EventWriter<W: Write> {
    out: W,
    /// Whole records, but for the first where a write ended in the middle of it.
    buffer: Vec<u8>,
}

impl EventFile {
    /// A new file in the folder, which is made if it is not there. Of a run that is resumed it is one more file: `first` is the
    /// step that comes next, and TensorBoard forgets what older files say of it and of later ones.
    ///
    /// # Errors
    /// Of the system.
    pub fn create(folder: &Path, first: At) -> io::Result<EventFile> {
        std::fs::create_dir_all(folder)?;
        let file = create_after(folder, first.wall_seconds.max(0.0) as u64)?;
        EventWriter::new(file, first)
    }
}

impl<W: Write> EventWriter<W> {
    /// Begins with what every event file begins with.
    ///
    /// # Errors
    /// Of `out`.
    pub fn new(out: W, first: At) -> io::Result<EventWriter<W>> {
        let mut writer = EventWriter { out, buffer: Vec::with_capacity(BUFFER + BUFFER / 4) };
        writer.event(At { step: 0, ..first }, |event| {
            event.string(event::FILE_VERSION, "brain.Event:2");
            event.message(event::SOURCE_METADATA, |source| source.string(1, "memfit"));
        })?;
        // Of a run's first file too: there it forgets nothing.
        writer.event(first, |event| event.message(event::SESSION_LOG, |log| log.uint(1, SESSION_START)))?;
        writer.flush()?;
        Ok(writer)
    }

    /// A number.
    ///
    /// # Errors
    /// Of `out`; the event is lost then, unless its begin is written already.
    pub fn scalar(&mut self, tag: &str, at: At, value: f32) -> io::Result<()> {
        self.value(tag, at, |message| message.float(value::SIMPLE_VALUE, value))
    }

    /// A text in Markdown.
    ///
    /// # Errors
    /// As of [`EventWriter::scalar`].
    pub fn text(&mut self, tag: &str, at: At, markdown: &str) -> io::Result<()> {
        self.value(tag, at, |message| {
            metadata(message, "text");
            message.message(value::TENSOR, |tensor| {
                tensor.uint(tensor::DTYPE, tensor::STRING);
                tensor.message(tensor::SHAPE, |_| {});
                tensor.string(tensor::STRING_VAL, markdown);
            });
        })
    }

    /// How values are distributed, in [`BUCKETS`] buckets of equal width. What is not finite is in none.
    ///
    /// # Errors
    /// As of [`EventWriter::scalar`].
    pub fn histogram(&mut self, tag: &str, at: At, values: &[f32]) -> io::Result<()> {
        let mut content = [0; BUCKETS * 3 * 8];
        let rows = buckets(values);
        for (place, number) in content.as_chunks_mut().0.iter_mut().zip(rows.as_flattened()) {
            *place = number.to_le_bytes();
        }
        self.value(tag, at, |message| {
            metadata(message, "histograms");
            message.message(value::TENSOR, |tensor| {
                tensor.uint(tensor::DTYPE, tensor::DOUBLE);
                tensor.message(tensor::SHAPE, |shape| {
                    [BUCKETS, 3].iter().for_each(|&size| shape.message(2, |dim| dim.uint(1, size as u64)));
                });
                tensor.bytes(tensor::CONTENT, &content);
            });
        })
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// Of `out`. What was not written stays, and the next call goes on where this one ended.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        self.out.flush()
    }

    fn value(&mut self, tag: &str, at: At, write: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.event(at, |event| {
            event.message(event::SUMMARY, |summary| {
                summary.message(1, |message| {
                    message.string(value::TAG, tag);
                    write(message);
                });
            });
        })
    }

    fn event(&mut self, at: At, write: impl FnOnce(&mut Message)) -> io::Result<()> {
        let start = self.buffer.len();
        record::append(&mut self.buffer, |bytes| {
            let mut event = Message::new(bytes);
            event.double(event::WALL_TIME, at.wall_seconds);
            event.uint(event::STEP, at.step);
            write(&mut event);
        });
        if self.buffer.len() < BUFFER {
            return Ok(());
        }
        let length = self.buffer.len();
        self.write_buffer().inspect_err(|_| {
            // Where nothing can be written, nothing is collected.
            let written = length - self.buffer.len();
            if written <= start {
                self.buffer.truncate(start - written);
            }
        })
    }

    /// Keeps what could not be written.
    fn write_buffer(&mut self) -> io::Result<()> {
        let mut written = 0;
        let mut result = Ok(());
        while written < self.buffer.len() && result.is_ok() {
            match self.out.write(&self.buffer[written..]) {
                Ok(0) => result = Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => result = Err(e),
            }
        }
        self.buffer.drain(..written);
        result
    }
}

impl<W: Write> Drop for EventWriter<W> {
    fn drop(&mut self) {
        // Who wants to know calls it before.
        let _ = self.flush();
    }
}

/// Fields of `Event`.
mod event {
    pub const WALL_TIME: u32 = 1;
    pub const STEP: u32 = 2;
    pub const FILE_VERSION: u32 = 3;
    pub const SUMMARY: u32 = 5;
    pub const SESSION_LOG: u32 = 7;
    pub const SOURCE_METADATA: u32 = 10;
}

/// Fields of `Summary.Value`.
mod value {
    pub const TAG: u32 = 1;
    pub const SIMPLE_VALUE: u32 = 2;
    pub const TENSOR: u32 = 8;
    pub const METADATA: u32 = 9;
}

/// Fields of `TensorProto`, and of its types those that are used.
mod tensor {
    pub const DTYPE: u32 = 1;
    pub const SHAPE: u32 = 2;
    pub const CONTENT: u32 = 4;
    pub const STRING_VAL: u32 = 8;
    pub const DOUBLE: u64 = 2;
    pub const STRING: u64 = 7;
}

/// A value of `SessionLog.SessionStatus`.
const SESSION_START: u64 = 1;
/// A value of `DataClass`.
const DATA_CLASS_TENSOR: u64 = 2;

/// `SummaryMetadata`: who shows a tensor.
fn metadata(value: &mut Message, plugin: &str) {
    value.message(value::METADATA, |metadata| {
        metadata.message(1, |data| data.string(1, plugin));
        metadata.uint(4, DATA_CLASS_TENSOR);
    });
}

/// Left edge, right edge and count of each bucket, as TensorBoard makes them: of equal width; all in the last one where there is
/// but one value.
fn buckets(values: &[f32]) -> [[f64; 3]; BUCKETS] {
    let finite = || values.iter().filter(|v| v.is_finite()).map(|&v| f64::from(v));
    let (min, max) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), v| (min.min(v), max.max(v)));
    if min > max {
        return [[0.0; 3]; BUCKETS];
    }
    let edge = |i: usize| if i == BUCKETS { max } else { min + (max - min) * i as f64 / BUCKETS as f64 };
    let mut rows: [[f64; 3]; BUCKETS] = std::array::from_fn(|i| [edge(i), edge(i + 1), 0.0]);
    for v in finite() {
        let index = (v - min) / (max - min) * BUCKETS as f64;
        // Not a number where there is but one value.
        let index = if index.is_nan() { BUCKETS - 1 } else { (index as usize).min(BUCKETS - 1) };
        rows[index][2] += 1.0;
    }
    rows
}

/// A file that comes after all others of the folder in the order of names, which is how TensorBoard reads them.
fn create_after(folder: &Path, seconds: u64) -> io::Result<File> {
    let latest = latest_event_file(folder)?;
    let mut key = match latest {
        Some((second, number)) if second >= seconds => (second, number.saturating_add(1)),
        _ => (seconds, 0),
    };
    loop {
        match create_new(&event_file(folder, key)) {
            // Another program was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => key.1 += 1,
            result => return result,
        }
    }
}

fn event_file(folder: &Path, (seconds, number): (u64, u32)) -> PathBuf {
    folder.join(format!("{PREFIX}{seconds:010}.{number:03}{SUFFIX}"))
}

/// Of those that have names as ours.
fn latest_event_file(folder: &Path) -> io::Result<Option<(u64, u32)>> {
    let mut latest = None;
    for entry in std::fs::read_dir(folder)? {
        latest = latest.max(entry?.file_name().to_str().and_then(key_of));
    }
    Ok(latest)
}

fn key_of(name: &str) -> Option<(u64, u32)> {
    let (seconds, number) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('.')?;
    Some((seconds.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_bucket_between_whose_edges_they_are() {
        let values: Vec<f32> = (0..=300).map(|i| i as f32 / 10.0).collect();
        let rows = buckets(&values);
        assert_eq!(rows[0][..2], [0.0, 1.0]);
        assert_eq!(rows[BUCKETS - 1][..2], [29.0, 30.0]);
        for [left, right, count] in &rows[..BUCKETS - 1] {
            let inside = values.iter().filter(|v| (*left..*right).contains(&f64::from(**v))).count();
            assert!((count - inside as f64).abs() <= 1.0, "{count} of {inside} between {left} and {right}");
        }
        assert_eq!(rows.iter().map(|r| r[2]).sum::<f64>(), 301.0);
    }

    #[test]
    fn one_value_is_in_the_last_bucket_and_none_in_no_bucket() {
        let rows = buckets(&[2.5, 2.5, f32::NAN, f32::INFINITY]);
        assert!(rows.iter().all(|r| r[..2] == [2.5, 2.5]));
        assert_eq!(rows[BUCKETS - 1][2], 2.0);
        assert_eq!(rows[..BUCKETS - 1].iter().map(|r| r[2]).sum::<f64>(), 0.0);
        assert_eq!(buckets(&[f32::NAN]), [[0.0; 3]; BUCKETS]);
    }

    /// Takes so many bytes, and then no more until it is given room.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 && !bytes.is_empty() {
                return Err(ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..count]);
            self.room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_leaves_whole_records_and_no_growing_buffer() {
        let mut disk = Disk { bytes: Vec::new(), room: BUFFER + 10 };
        let mut writer = EventWriter::new(&mut disk, At { step: 0, wall_seconds: 1.0 }).unwrap();
        let mut written = 0u64;
        for step in 0..10_000 {
            written += u64::from(writer.scalar("loss", At { step, wall_seconds: 1.0 }, 0.5).is_ok());
        }
        assert!(written < 9_000, "{written}");
        assert!(writer.buffer.len() <= BUFFER);
        writer.out.room = usize::MAX;
        writer.flush().unwrap();
        drop(writer);
        let mut rest = &disk.bytes[..];
        let mut records = 0;
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert!(length < 100, "a record of {length} bytes");
            rest = &rest[8 + 4 + length + 4..];
            records += 1;
        }
        // The first two are how every file begins.
        assert_eq!(records, written + 2);
    }
}
