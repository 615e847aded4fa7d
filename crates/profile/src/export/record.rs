//! Records one after the other, as TensorFlow keeps them in files: length, checksum of the length, bytes, checksum of the bytes.

use super::crc32c::masked;

/// Length and its checksum.
const HEAD: usize = 12;

/// Appends a record that `write` writes into place; it must only append.
pub fn append(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD]);
    write(bytes);
    let length = ((bytes.len() - start - HEAD) as u64).to_le_bytes();
    let checksum = masked(&bytes[start + HEAD..]);
    bytes[start..][..8].copy_from_slice(&length);
    bytes[start + 8..][..4].copy_from_slice(&masked(&length).to_le_bytes());
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_length_and_both_checksums() {
        let mut bytes = vec![1, 2, 3];
        append(&mut bytes, |b| b.extend_from_slice(b"abc"));
        assert_eq!(bytes.len(), 3 + 8 + 4 + 3 + 4);
        assert_eq!(bytes[3..11], 3u64.to_le_bytes());
        assert_eq!(bytes[11..15], masked(&3u64.to_le_bytes()).to_le_bytes());
        assert_eq!(bytes[15..18], *b"abc");
        assert_eq!(bytes[18..], masked(b"abc").to_le_bytes());
    }
}
