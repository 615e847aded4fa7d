//! CRC-32C as TFRecord uses it, eight bytes a step by tables that are computed when this is compiled.

/// Turned and offset, since a checksum of data that holds checksums would be weak.
pub(super) fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    for c in chunks {
        let low = crc ^ u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        let table = |k: usize, byte: u32| TABLES[k][(byte & 255) as usize];
        crc = table(7, low) ^ table(6, low >> 8) ^ table(5, low >> 16) ^ table(4, low >> 24);
        crc ^= table(3, c[4] as u32) ^ table(2, c[5] as u32) ^ table(1, c[6] as u32) ^ table(0, c[7] as u32);
    }
    !rest.iter().fold(crc, |crc, byte| TABLES[0][((crc ^ *byte as u32) & 255) as usize] ^ (crc >> 8))
}

/// Table k is what a byte does that is followed by k zeroes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[k - 1][i];
            tables[k][i] = tables[0][(before & 255) as usize] ^ (before >> 8);
            i += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    // The vectors of RFC 3720, B.4, and the usual check value.
    #[test]
    fn matches_the_published_vectors() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b""), 0);
    }
}
