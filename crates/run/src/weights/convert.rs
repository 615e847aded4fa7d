//! A file of weights as memfit would have written it, of which nothing is written: a header, and tensors that are laid out anew while
//! they are read, as far as there is room for them at once.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use memfit::data::{Buffer, BytePool};
use memfit::exec::weights::header_of;
use memfit_files::torch::Numbers;

use super::fit::{Found, Layout, OtherEpsilon};

/// Room for a tensor, or for the part of one that is laid out at once: the larger it is, the less often a row is read.
const MOST_ROOM: u64 = 16 << 20;
const LEAST_ROOM: u64 = 32 << 10;
/// Rows that are read before they are written across.
const ROWS: u64 = 16;

/// Reads as a safetensors file of f32.
pub struct Converted<'a> {
    file: &'a File,
    found: &'a [Found],
    header: Vec<u8>,
    /// Where the next byte is.
    at: u64,
    /// By tensor: where it begins, and at last where all end.
    starts: Vec<u64>,
    room: Room,
}

/// A part of a tensor, as it is wanted.
struct Room {
    numbers: Buffer,
    /// Numbers as they are in the file.
    raw: Buffer,
    /// Where it lies in what is read.
    place: Range<u64>,
}

impl<'a> Converted<'a> {
    /// Its room is of `pool`.
    pub fn new(file: &'a File, found: &'a [Found], pool: &BytePool) -> io::Result<Converted<'a>> {
        let header = header_of(found.iter().map(|found| (&found.own, &found.ty))).map_err(io::Error::other)?;
        let header = [&(header.len() as u64).to_le_bytes()[..], &header].concat();
        let mut starts = vec![header.len() as u64];
        for found in found {
            starts.push(starts[starts.len() - 1] + found.ty.bytes());
        }
        let largest = found.iter().map(|found| found.ty.bytes()).max().unwrap_or(0).clamp(LEAST_ROOM, MOST_ROOM);
        let row = found.iter().map(Found::row_bytes).max().unwrap_or(0);
        let raw = room(pool, (ROWS * row).max(LEAST_ROOM), row.max(LEAST_ROOM))?;
        let numbers = room(pool, largest, LEAST_ROOM)?;
        Ok(Converted { file, found, header, at: 0, starts, room: Room { numbers, raw, place: 0..0 } })
    }

    fn end(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Lays out the part of a tensor that has the next byte.
    fn lay_out(&mut self) -> io::Result<()> {
        let tensor = self.starts.partition_point(|&start| start <= self.at) - 1;
        let (found, start) = (&self.found[tensor], self.starts[tensor]);
        let first = (self.at - start) / 4;
        let numbers = (self.room.numbers.bytes().len() / 4) as u64;
        let Room { numbers: to, raw, place } = &mut self.room;
        let laid = found.lay_out(self.file, first, numbers, to.bytes_mut(), raw.bytes_mut())?;
        *place = start + 4 * laid.start..start + 4 * laid.end;
        Ok(())
    }
}

/// As much as there is, up to so much.
fn room(pool: &BytePool, most: u64, least: u64) -> io::Result<Buffer> {
    let mut bytes = most;
    loop {
        match pool.buffer(bytes as usize) {
            Err(_) if bytes > least => bytes = (bytes / 2).max(least),
            found => return found.map_err(io::Error::other),
        }
    }
}

impl Read for Converted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.end() || buffer.is_empty() {
            return Ok(0);
        }
        let rest = if self.at < self.header.len() as u64 {
            &self.header[self.at as usize..]
        } else {
            if !self.room.place.contains(&self.at) {
                self.lay_out()?;
            }
            let Range { start, end } = self.room.place;
            &self.room.numbers.bytes()[(self.at - start) as usize..(end - start) as usize]
        };
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Converted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.end().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Found {
    /// All of its numbers are here, in some order.
    pub fn bytes_in_file(&self) -> Range<u64> {
        let bytes = self.ty.bytes() / 4 * self.tensor.numbers.bytes();
        match self.layout {
            Layout::AsIs => self.tensor.start..self.tensor.start + bytes,
            Layout::Rows { outputs, row, inputs, taps, .. } => {
                let numbers = outputs.saturating_sub(1) * row + inputs * taps;
                self.tensor.start..self.tensor.start + numbers * self.tensor.numbers.bytes()
            }
        }
    }

    /// What is read of the file at once, at least.
    fn row_bytes(&self) -> u64 {
        match self.layout {
            Layout::AsIs => self.tensor.numbers.bytes(),
            Layout::Rows { inputs, taps, .. } => inputs * taps * self.tensor.numbers.bytes(),
        }
    }

    /// Writes numbers from the one that is asked for on, or from one before it; gives which ones.
    fn lay_out(&self, file: &File, first: u64, most: u64, to: &mut [u8], raw: &mut [u8]) -> io::Result<Range<u64>> {
        let elements = self.ty.bytes() / 4;
        let bytes = self.tensor.numbers.bytes();
        let Layout::Rows { outputs, inputs, taps, row, input, tap } = self.layout else {
            let some = (elements - first).min(most).min(raw.len() as u64 / bytes);
            let raw = &mut raw[..(some * bytes) as usize];
            read_at(file, self.tensor.start + first * bytes, raw)?;
            for (to, raw) in to.chunks_exact_mut(4).zip(raw.chunks_exact(bytes as usize)) {
                to.copy_from_slice(&number(self.tensor.numbers, raw).to_le_bytes());
            }
            if let Some(epsilon) = &self.epsilon {
                make_up(epsilon, file, first, &mut to[..4 * some as usize])?;
            }
            return Ok(first..first + some);
        };
        // Columns are pairs of tap and input, in the order in which they are wanted.
        let from = first / outputs;
        let columns = from..(from + (most / outputs).max(1)).min(taps * inputs);
        let place = |column: u64| column / inputs * tap + column % inputs * input;
        // Of a row nothing but what lies between these is read.
        let (low, high) = columns.clone().map(place).fold((u64::MAX, 0), |(low, high), at| (low.min(at), high.max(at)));
        let span = ((high - low + 1) * bytes) as usize;
        let at_once = ROWS.min((raw.len() / span) as u64);
        for group in (0..outputs).step_by(at_once as usize) {
            let rows = (outputs - group).min(at_once) as usize;
            for (i, raw) in raw.chunks_exact_mut(span).take(rows).enumerate() {
                read_at(file, self.tensor.start + ((group + i as u64) * row + low) * bytes, raw)?;
            }
            for (i, column) in columns.clone().enumerate() {
                let at = (place(column) - low) * bytes;
                let to = &mut to[4 * (i * outputs as usize + group as usize)..][..4 * rows];
                for (to, raw) in to.chunks_exact_mut(4).zip(raw.chunks_exact(span)) {
                    let raw = &raw[at as usize..(at + bytes) as usize];
                    to.copy_from_slice(&number(self.tensor.numbers, raw).to_le_bytes());
                }
            }
        }
        Ok(columns.start * outputs..columns.end * outputs)
    }
}

/// Scales of batch norms, from one on, for our epsilon.
fn make_up(epsilon: &OtherEpsilon, file: &File, first: u64, scales: &mut [u8]) -> io::Result<()> {
    let variance = &epsilon.variance;
    let bytes = variance.numbers.bytes();
    let mut raw = vec![0; scales.len() / 4 * bytes as usize];
    read_at(file, variance.start + first * bytes, &mut raw)?;
    for (scale, raw) in scales.as_chunks_mut().0.iter_mut().zip(raw.chunks_exact(bytes as usize)) {
        let factor = epsilon.factor(number(variance.numbers, raw));
        *scale = ((f64::from(f32::from_le_bytes(*scale)) * factor) as f32).to_le_bytes();
    }
    Ok(())
}

fn read_at(mut file: &File, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it is cut off; get the file again"),
        _ => error,
    })
}

/// A number of the file as f32; its bytes are as many as its kind has.
pub fn number(numbers: Numbers, bytes: &[u8]) -> f32 {
    match (numbers, bytes) {
        (Numbers::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (Numbers::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f32(),
        (Numbers::Bf16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f32(),
        (Numbers::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
        _ => f32::NAN,
    }
}
