//! As much of ZIP as numpy writes: stored and deflated members, with the 64-bit fields of large files. The central
//! directory is what counts; a stored member is read where it lies.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use memfit_files::zip::{self, Entry, Method, NoDirectory};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::super::{claimed_buffer, file_bytes, io, open_file, read_at};
use super::Bytes;
use super::list::HEAD;
use crate::error::{DataError, Result};
use crate::memory::{Buffer, BytePool, Lease};

/// A file within the file.
#[derive(Debug)]
pub(super) struct Member(Entry);

/// Those that are NPY files, and the lease on what is remembered of them.
pub(super) fn members(path: &Path, pool: &BytePool) -> Result<(Vec<Member>, Lease)> {
    let broken = |problem: &str| DataError::source(path.display(), problem);
    let length = file_bytes(path)?;
    let tail_bytes = length.min(zip::TAIL);
    let mut tail = claimed_buffer(tail_bytes, pool)?;
    read_at(path, length - tail_bytes, tail.bytes_mut())?;
    let place = zip::directory(tail.bytes(), length, |at, record| read_at(path, at, record).ok());
    let (start, bytes) = place.map_err(|problem| {
        broken(match problem {
            NoDirectory::End => "this is no NPZ file, or its end is cut off: there is no directory at its end",
            NoDirectory::LargeEnd => "its directory of 64 bits is damaged",
            NoDirectory::Outside => "its directory lies outside of the file: the file is damaged",
        })
    })?;
    let mut directory = claimed_buffer(bytes, pool)?;
    // An entry of the directory is smaller than what is made of it, at most by so much.
    let lease = pool.reserve(8 * bytes)?;
    read_at(path, start, directory.bytes_mut())?;
    let members = arrays(directory.bytes()).ok_or_else(|| broken("its directory is damaged"))?;
    match members.iter().find(|Member(entry)| entry.offset >= length || entry.packed > length) {
        Some(Member(entry)) => Err(broken(&format!("its member {} lies outside of the file", entry.name))),
        None if members.is_empty() => Err(broken("there is no array in it")),
        None => Ok((members, lease)),
    }
}

impl Member {
    pub fn array(&self) -> &str {
        self.0.name.strip_suffix(".npy").unwrap_or(&self.0.name)
    }

    pub fn bytes(&self, path: &Path, pool: &BytePool) -> Result<Bytes> {
        let start = self.start(path)?;
        if self.is_deflated() {
            let inflated = self.inflate(path, start, pool)?;
            return Ok(Bytes::InMemory(inflated.map_err(|e| DataError::source(self.location(path), e))?));
        }
        Ok(Bytes::File { path: path.to_path_buf(), start, length: self.0.bytes })
    }

    /// Its first bytes, as far as a header goes.
    pub fn head(&self, path: &Path, pool: &BytePool) -> Result<Vec<u8>> {
        let start = self.start(path)?;
        let mut head = vec![0; self.0.bytes.min(HEAD as u64) as usize];
        if !self.is_deflated() {
            read_at(path, start, &mut head)?;
            return Ok(head);
        }
        let mut packed = vec![0; self.0.packed.min(HEAD as u64) as usize];
        read_at(path, start, &mut packed)?;
        let _state = pool.reserve(size_of::<DecompressorOxide>() as u64)?;
        let mut state = Box::<DecompressorOxide>::default();
        let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
        let (_, _, written) = decompress(&mut state, &packed, &mut head, 0, flags);
        head.truncate(written);
        Ok(head)
    }

    fn is_deflated(&self) -> bool {
        self.0.method == Method::Deflated
    }

    fn location(&self, path: &Path) -> String {
        format!("{}, array \"{}\"", path.display(), self.array())
    }

    /// Where its bytes begin.
    fn start(&self, path: &Path) -> Result<u64> {
        let mut head = [0; zip::HEAD];
        read_at(path, self.0.offset, &mut head)?;
        let Some(start) = zip::start(&self.0, &head) else {
            return Err(DataError::source(
                self.location(path),
                "it is not where the directory says; the file is damaged",
            ));
        };
        if self.is_deflated() {
            return Ok(start);
        }
        let length = file_bytes(path)?;
        if self.0.packed != self.0.bytes || start.checked_add(self.0.bytes).is_none_or(|end| end > length) {
            let problem = "it goes beyond the end of the file; the file is damaged";
            return Err(DataError::source(self.location(path), problem));
        }
        Ok(start)
    }

    /// Straight into its place: no window is needed, and no more than the directory says can come out.
    fn inflate(&self, path: &Path, start: u64, pool: &BytePool) -> Result<Result<Buffer, &'static str>> {
        let mut out = claimed_buffer(self.0.bytes, pool)?;
        let _state = pool.reserve(size_of::<DecompressorOxide>() as u64)?;
        let mut state = Box::<DecompressorOxide>::default();
        let mut chunk = pool.buffer(self.0.packed.min(CHUNK as u64) as usize)?;
        let mut file = open_file(path)?;
        file.seek(SeekFrom::Start(start)).map_err(|e| io(path, e))?;
        let (mut left, mut written) = (self.0.packed, 0);
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
                TINFLStatus::Done if written as u64 == self.0.bytes => break,
                _ => return Ok(Err("its compressed data is damaged; write the file again")),
            }
        }
        let sound = crc32fast::hash(out.bytes()) == self.0.crc;
        Ok(if sound { Ok(out) } else { Err("its checksum is wrong: the data is damaged; write the file again") })
    }
}

const CHUNK: usize = 64 * 1024;

/// Encrypted members and other methods of compression are damage to numpy as well.
fn arrays(directory: &[u8]) -> Option<Vec<Member>> {
    let arrays: Vec<Member> =
        zip::entries(directory)?.into_iter().filter(|entry| entry.name.ends_with(".npy")).map(Member).collect();
    arrays.iter().all(|Member(entry)| entry.method != Method::Other).then_some(arrays)
}
