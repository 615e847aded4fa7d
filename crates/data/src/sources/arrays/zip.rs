//! As much of ZIP as numpy writes: stored and deflated members, with the 64-bit fields of large files. The central
//! directory is what counts; a stored member is read where it lies.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::super::{claimed_buffer, file_bytes, io, open_file, read_at};
use super::Bytes;
use super::list::HEAD;
use crate::error::{DataError, Result};
use crate::memory::{Buffer, BytePool, Lease};

/// A file within the file.
#[derive(Debug)]
pub(super) struct Member {
    name: String,
    deflated: bool,
    crc: u32,
    packed: u64,
    bytes: u64,
    /// Where its own header is.
    offset: u64,
}

const END: usize = 22;
const ENTRY: usize = 46;

/// Those that are NPY files, and the lease on what is remembered of them.
pub(super) fn members(path: &Path, pool: &BytePool) -> Result<(Vec<Member>, Lease)> {
    let broken = |problem: &str| DataError::source(path.display(), problem);
    let length = file_bytes(path)?;
    // The end record is followed by a comment of at most 64 KiB.
    let tail_bytes = length.min(END as u64 + 65_535 + 20);
    let mut tail = claimed_buffer(tail_bytes, pool)?;
    read_at(path, length - tail_bytes, tail.bytes_mut())?;
    let tail = tail.bytes();
    let end = tail.windows(4).rposition(|w| w == b"PK\x05\x06").filter(|at| tail.len() - at >= END);
    let end =
        end.ok_or_else(|| broken("this is no NPZ file, or its end is cut off: there is no directory at its end"))?;
    let (mut bytes, mut start) = (u32_at(tail, end + 12) as u64, u32_at(tail, end + 16) as u64);
    if bytes == u32::MAX as u64 || start == u32::MAX as u64 {
        (bytes, start) = large_end(path, &tail[..end]).ok_or_else(|| broken("its directory of 64 bits is damaged"))?;
    }
    if start.checked_add(bytes).is_none_or(|end| end > length) {
        return Err(broken("its directory lies outside of the file: the file is damaged"));
    }
    let mut directory = claimed_buffer(bytes, pool)?;
    // An entry of the directory is smaller than what is made of it, at most by so much.
    let lease = pool.reserve(8 * bytes)?;
    read_at(path, start, directory.bytes_mut())?;
    let members = entries(directory.bytes()).ok_or_else(|| broken("its directory is damaged"))?;
    match members.iter().find(|member| member.offset >= length || member.packed > length) {
        Some(member) => Err(broken(&format!("its member {} lies outside of the file", member.name))),
        None if members.is_empty() => Err(broken("there is no array in it")),
        None => Ok((members, lease)),
    }
}

impl Member {
    pub fn array(&self) -> &str {
        self.name.strip_suffix(".npy").unwrap_or(&self.name)
    }

    pub fn bytes(&self, path: &Path, pool: &BytePool) -> Result<Bytes> {
        let start = self.start(path)?;
        if self.deflated {
            let inflated = self.inflate(path, start, pool)?;
            return Ok(Bytes::InMemory(inflated.map_err(|e| DataError::source(self.location(path), e))?));
        }
        Ok(Bytes::File { path: path.to_path_buf(), start, length: self.bytes })
    }

    /// Its first bytes, as far as a header goes.
    pub fn head(&self, path: &Path, pool: &BytePool) -> Result<Vec<u8>> {
        let start = self.start(path)?;
        let mut head = vec![0; self.bytes.min(HEAD as u64) as usize];
        if !self.deflated {
            read_at(path, start, &mut head)?;
            return Ok(head);
        }
        let mut packed = vec![0; self.packed.min(HEAD as u64) as usize];
        read_at(path, start, &mut packed)?;
        let _state = pool.reserve(size_of::<DecompressorOxide>() as u64)?;
        let mut state = Box::<DecompressorOxide>::default();
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
        let (_, _, written) = decompress(&mut state, &packed, &mut head, 0, flags);
        head.truncate(written);
        Ok(head)
    }

    fn location(&self, path: &Path) -> String {
        format!("{}, array \"{}\"", path.display(), self.array())
    }

    /// Where its bytes begin.
    fn start(&self, path: &Path) -> Result<u64> {
        let mut head = [0; 30];
        read_at(path, self.offset, &mut head)?;
        if !head.starts_with(b"PK\x03\x04") {
            return Err(DataError::source(
                self.location(path),
                "it is not where the directory says; the file is damaged",
            ));
        }
        let start = self.offset + 30 + u16_at(&head, 26) as u64 + u16_at(&head, 28) as u64;
        if self.deflated {
            return Ok(start);
        }
        let length = file_bytes(path)?;
        if self.packed != self.bytes || start + self.bytes > length {
            let problem = "it goes beyond the end of the file; the file is damaged";
            return Err(DataError::source(self.location(path), problem));
        }
        Ok(start)
    }

    /// Straight into its place: no window is needed, and no more than the directory says can come out.
    fn inflate(&self, path: &Path, start: u64, pool: &BytePool) -> Result<Result<Buffer, &'static str>> {
        let mut out = claimed_buffer(self.bytes, pool)?;
        let _state = pool.reserve(size_of::<DecompressorOxide>() as u64)?;
        let mut state = Box::<DecompressorOxide>::default();
        let mut chunk = pool.buffer(self.packed.min(CHUNK as u64) as usize)?;
        let mut file = open_file(path)?;
        file.seek(SeekFrom::Start(start)).map_err(|e| io(path, e))?;
        let (mut left, mut written) = (self.packed, 0);
        loop {
            let now = left.min(CHUNK as u64) as usize;
            file.read_exact(&mut chunk.bytes_mut()[..now]).map_err(|e| io(path, e))?;
            left -= now as u64;
            let more = if left > 0 { inflate_flags::TINFL_FLAG_HAS_MORE_INPUT } else { 0 };
            let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | more;
            let (status, _, wrote) = decompress(&mut state, &chunk.bytes()[..now], out.bytes_mut(), written, flags);
            written += wrote;
            match status {
                TINFLStatus::NeedsMoreInput if left > 0 => {}
                TINFLStatus::Done if written as u64 == self.bytes => break,
                _ => return Ok(Err("its compressed data is damaged; write the file again")),
            }
        }
        let sound = crc32fast::hash(out.bytes()) == self.crc;
        Ok(if sound { Ok(out) } else { Err("its checksum is wrong: the data is damaged; write the file again") })
    }
}

const CHUNK: usize = 64 * 1024;

/// The size and the start of the directory, from the record of 64 bits to which a locator before the end points.
fn large_end(path: &Path, before: &[u8]) -> Option<(u64, u64)> {
    let locator = &before[before.len().checked_sub(20)?..];
    let mut record = [0; 56];
    read_at(path, u64_at(locator.strip_prefix(b"PK\x06\x07")?, 4), &mut record).ok()?;
    record.starts_with(b"PK\x06\x06").then(|| (u64_at(&record, 40), u64_at(&record, 48)))
}

fn entries(mut directory: &[u8]) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    while directory.starts_with(b"PK\x01\x02") {
        let (entry, rest) = directory.split_at_checked(ENTRY)?;
        let (name, rest) = rest.split_at_checked(u16_at(entry, 28) as usize)?;
        let (extra, rest) = rest.split_at_checked(u16_at(entry, 30) as usize)?;
        (_, directory) = rest.split_at_checked(u16_at(entry, 32) as usize)?;
        let name = String::from_utf8_lossy(name).into_owned();
        if name.ends_with(".npy") {
            members.push(member(entry, name, extra)?);
        }
    }
    Some(members)
}

/// Encrypted members and other methods of compression are damage to numpy as well.
fn member(entry: &[u8], name: String, extra: &[u8]) -> Option<Member> {
    let deflated = match (u16_at(entry, 8) & 1, u16_at(entry, 10)) {
        (0, 0) => false,
        (0, 8) => true,
        _ => return None,
    };
    let (mut packed, mut bytes) = (u32_at(entry, 20) as u64, u32_at(entry, 24) as u64);
    let mut offset = u32_at(entry, 42) as u64;
    let mut large = large_fields(extra);
    for field in [&mut bytes, &mut packed, &mut offset] {
        if *field == u32::MAX as u64 {
            let (value, rest) = large.split_at_checked(8)?;
            (*field, large) = (u64_at(value, 0), rest);
        }
    }
    Some(Member { name, deflated, crc: u32_at(entry, 16), packed, bytes, offset })
}

/// The extra field with number 1.
fn large_fields(mut extra: &[u8]) -> &[u8] {
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let Some((field, rest)) = rest.split_at_checked(u16_at(head, 2) as usize) else { break };
        if u16_at(head, 0) == 1 {
            return field;
        }
        extra = rest;
    }
    &[]
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
