//! As much of ZIP as numpy and PyTorch write: where the directory lies, with the 64-bit fields of large files, and what it says
//! of the members. Nothing is read here but what is asked for, and nothing is unpacked.

/// The directory is found from so many bytes at the end, of a file that has as many: the end record with its longest comment,
/// and the locator before it.
pub const TAIL: u64 = END as u64 + 65_535 + 20;

const END: usize = 22;
const ENTRY: usize = 46;

/// What stands before a member.
pub const HEAD: usize = 30;

/// A file within the file, as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// With its folders.
    pub name: String,
    /// How it is packed.
    pub method: Method,
    /// The sum of its bytes.
    pub crc: u32,
    /// Its bytes as they are packed.
    pub packed: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where its own head is: see [`start`].
    pub offset: u64,
}

/// How a member is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// With deflate.
    Deflated,
    /// Encrypted, or in a way that neither numpy nor PyTorch knows.
    Other,
}

/// Why there is no directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDirectory {
    /// The end record is not there.
    End,
    /// That of 64 bits is not where it should be.
    LargeEnd,
    /// It lies outside of the file.
    Outside,
}

/// Where the directory starts and how long it is, by the last [`TAIL`] bytes of a file of `length` bytes. `read_at` reads more.
pub fn directory(
    tail: &[u8],
    length: u64,
    read_at: impl FnOnce(u64, &mut [u8]) -> Option<()>,
) -> Result<(u64, u64), NoDirectory> {
    let end = tail.windows(4).rposition(|w| w == b"PK\x05\x06").filter(|at| tail.len() - at >= END);
    let end = end.ok_or(NoDirectory::End)?;
    let (mut bytes, mut start) = (u32_at(tail, end + 12) as u64, u32_at(tail, end + 16) as u64);
    if bytes == u32::MAX as u64 || start == u32::MAX as u64 {
        (bytes, start) = large_end(&tail[..end], read_at).ok_or(NoDirectory::LargeEnd)?;
    }
    match start.checked_add(bytes) {
        Some(end) if end <= length => Ok((start, bytes)),
        _ => Err(NoDirectory::Outside),
    }
}

/// The size and the start of the directory, from the record of 64 bits to which a locator before the end points.
fn large_end(before: &[u8], read_at: impl FnOnce(u64, &mut [u8]) -> Option<()>) -> Option<(u64, u64)> {
    let locator = &before[before.len().checked_sub(20)?..];
    let mut record = [0; 56];
    read_at(u64_at(locator.strip_prefix(b"PK\x06\x07")?, 4), &mut record)?;
    record.starts_with(b"PK\x06\x06").then(|| (u64_at(&record, 40), u64_at(&record, 48)))
}

/// What a directory says; none if it is damaged.
pub fn entries(mut directory: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while directory.starts_with(b"PK\x01\x02") {
        let (fixed, rest) = directory.split_at_checked(ENTRY)?;
        let (name, rest) = rest.split_at_checked(u16_at(fixed, 28) as usize)?;
        let (extra, rest) = rest.split_at_checked(u16_at(fixed, 30) as usize)?;
        (_, directory) = rest.split_at_checked(u16_at(fixed, 32) as usize)?;
        entries.push(entry(fixed, String::from_utf8_lossy(name).into_owned(), extra)?);
    }
    Some(entries)
}

fn entry(fixed: &[u8], name: String, extra: &[u8]) -> Option<Entry> {
    let method = match (u16_at(fixed, 8) & 1, u16_at(fixed, 10)) {
        (0, 0) => Method::Stored,
        (0, 8) => Method::Deflated,
        _ => Method::Other,
    };
    let (mut packed, mut bytes) = (u32_at(fixed, 20) as u64, u32_at(fixed, 24) as u64);
    let mut offset = u32_at(fixed, 42) as u64;
    let mut large = large_fields(extra);
    for field in [&mut bytes, &mut packed, &mut offset] {
        if *field == u32::MAX as u64 {
            let (value, rest) = large.split_at_checked(8)?;
            (*field, large) = (u64_at(value, 0), rest);
        }
    }
    Some(Entry { name, method, crc: u32_at(fixed, 16), packed, bytes, offset })
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

/// Where the bytes of a member begin, by what stands at its offset; none if that is no member.
pub fn start(entry: &Entry, head: &[u8; HEAD]) -> Option<u64> {
    let length = HEAD as u64 + u16_at(head, 26) as u64 + u16_at(head, 28) as u64;
    head.starts_with(b"PK\x03\x04").then(|| entry.offset.checked_add(length))?
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
