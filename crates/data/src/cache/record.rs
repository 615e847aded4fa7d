//! An element as bytes in a file:
//!
//! ```text
//! checksum u64, bytes of the head u32, fields u32
//! the head: for each field the length of its name u32, the name, its type u32, its rank u32, its extents u64 …
//! the bytes of each tensor
//! ```
//!
//! The checksum is over everything behind it.

use memfit_ir::{DType, TensorType};

use super::checksum;
use super::file::CacheFile;
use crate::memory::{BytePool, NoRoom};
use crate::tensor::{Example, Tensor};

/// Checksum, bytes of the head, fields.
const FIXED_BYTES: usize = 16;
/// No head is longer: names and extents of a few tensors.
const MAX_HEAD_BYTES: usize = 1 << 16;

/// Why a record gives no element.
#[derive(Debug)]
pub(super) enum RecordError {
    NoRoom(NoRoom),
    Damaged,
}

/// The bytes that a record of this element takes.
pub(super) fn record_bytes(example: &Example) -> u64 {
    let fields = example.fields.iter();
    let of = |(name, tensor): &(String, Tensor)| 12 + name.len() + 8 * tensor.ty().shape.len() + tensor.bytes().len();
    (FIXED_BYTES + fields.map(of).sum::<usize>()) as u64
}

/// Appends a record and says where it begins. After an error the end of the file is where it was.
pub(super) fn write_record(file: &mut CacheFile, example: &Example) -> std::io::Result<u64> {
    let begin = file.end;
    let head = encode_head(example);
    let mut fixed = Vec::with_capacity(FIXED_BYTES - 8);
    fixed.extend((head.len() as u32).to_le_bytes());
    fixed.extend((example.fields.len() as u32).to_le_bytes());
    let sum = checksum(checksum(0, &fixed), &head);
    let sum = example.fields.iter().fold(sum, |sum, (_, tensor)| checksum(sum, tensor.bytes()));
    let start = [&sum.to_le_bytes()[..], &fixed, &head].concat();
    let parts = std::iter::once(&start[..]).chain(example.fields.iter().map(|(_, tensor)| tensor.bytes()));
    for part in parts {
        if let Err(e) = file.append(part) {
            file.end = begin;
            return Err(e);
        }
    }
    Ok(begin)
}

pub(super) fn read_record(file: &CacheFile, offset: u64, pool: &BytePool) -> Result<Example, RecordError> {
    let mut fixed = [0; FIXED_BYTES];
    file.read_exact_at(&mut fixed, offset).map_err(|_| RecordError::Damaged)?;
    let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| fixed[4 * i + k]));
    let (head_len, fields) = (word(2) as usize, word(3));
    if head_len > MAX_HEAD_BYTES {
        return Err(RecordError::Damaged);
    }
    let mut head = vec![0; head_len];
    let mut at = offset + FIXED_BYTES as u64;
    file.read_exact_at(&mut head, at).map_err(|_| RecordError::Damaged)?;
    at += head_len as u64;
    let mut sum = checksum(checksum(0, &fixed[8..]), &head);
    let mut example = Example::default();
    let mut rest = &head[..];
    for _ in 0..fields {
        let (name, ty) = parse_field(&mut rest).ok_or(RecordError::Damaged)?;
        // A damaged extent must not be taken for a lack of room.
        if ty.bytes() > pool.limit() {
            return Err(RecordError::Damaged);
        }
        let mut tensor = Tensor::zeros(ty, pool).map_err(RecordError::NoRoom)?;
        file.read_exact_at(tensor.bytes_mut(), at).map_err(|_| RecordError::Damaged)?;
        at += tensor.bytes().len() as u64;
        sum = checksum(sum, tensor.bytes());
        example.fields.push((name, tensor));
    }
    if sum.to_le_bytes() == fixed[..8] && rest.is_empty() { Ok(example) } else { Err(RecordError::Damaged) }
}

fn encode_head(example: &Example) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, tensor) in &example.fields {
        let ty = tensor.ty();
        let dtype = DType::ALL.iter().position(|d| *d == ty.dtype).unwrap_or(0);
        head.extend((name.len() as u32).to_le_bytes());
        head.extend(name.as_bytes());
        head.extend((dtype as u32).to_le_bytes());
        head.extend((ty.shape.len() as u32).to_le_bytes());
        ty.shape.iter().for_each(|extent| head.extend((*extent as u64).to_le_bytes()));
    }
    head
}

fn parse_field(head: &mut &[u8]) -> Option<(String, TensorType)> {
    let len = u32::from_le_bytes(*take(head)?) as usize;
    let (name, rest) = head.split_at_checked(len)?;
    *head = rest;
    let name = std::str::from_utf8(name).ok()?.to_string();
    let dtype = *DType::ALL.get(u32::from_le_bytes(*take(head)?) as usize)?;
    let rank = u32::from_le_bytes(*take(head)?);
    let extents: Option<Vec<usize>> =
        (0..rank).map(|_| take(head).map(|bytes| u64::from_le_bytes(*bytes) as usize)).collect();
    let extents = extents?;
    extents.iter().try_fold(64usize, |all, extent| all.checked_mul(*extent))?;
    Some((name, TensorType::new(dtype, extents)))
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(pool: &BytePool) -> Example {
        let x = Tensor::from_bytes(TensorType::f32([2, 1]), &[1, 2, 3, 4, 5, 6, 7, 8], pool).expect("there is room");
        let y = Tensor::from_bytes(TensorType::new(DType::U8, []), &[9], pool).expect("there is room");
        Example::default().with("x", x).with("label", y)
    }

    #[test]
    fn a_record_gives_back_what_was_written() {
        let pool = BytePool::new(1000);
        let mut file = CacheFile::temporary().expect("a temporary file");
        let one = example(&pool);
        let before = file.end;
        let offsets = [write_record(&mut file, &one), write_record(&mut file, &one)].map(|o| o.expect("it is written"));
        assert_eq!(file.end - before, 2 * record_bytes(&one));
        for offset in offsets {
            let read = read_record(&file, offset, &pool).expect("it is whole");
            assert_eq!(format!("{:?}", names(&read)), format!("{:?}", names(&one)));
        }
        assert!(matches!(read_record(&file, offsets[0], &BytePool::new(8)), Err(RecordError::NoRoom(_))));
        assert_eq!(pool.used(), 16);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let pool = BytePool::new(1000);
        let one = example(&pool);
        let mut file = CacheFile::temporary().expect("a temporary file");
        let begin = write_record(&mut file, &one).expect("it is written");
        let mut bytes = vec![0; (file.end - begin) as usize];
        file.read_exact_at(&mut bytes, begin).expect("it was written");
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut file = CacheFile::temporary().expect("a temporary file");
            let at = file.end;
            file.append(&flipped).expect("it is written");
            assert!(matches!(read_record(&file, at, &pool), Err(RecordError::Damaged)), "bit {bit}");
        }
        for len in 0..bytes.len() {
            let mut file = CacheFile::temporary().expect("a temporary file");
            let at = file.end;
            file.append(&bytes[..len]).expect("it is written");
            assert!(matches!(read_record(&file, at, &pool), Err(RecordError::Damaged)), "{len} bytes");
        }
    }

    fn names(example: &Example) -> Vec<(&str, &TensorType, &[u8])> {
        example.fields.iter().map(|(name, t)| (name.as_str(), t.ty(), t.bytes())).collect()
    }
}
