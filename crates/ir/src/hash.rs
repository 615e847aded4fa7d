//! The hash of this workspace: FNV-1a of 64 bits. It names random streams, and tells whether a text, a plan or a model is
//! the one it was. It guards against mistakes, not against forgery.

/// The same for the same text, on every machine and in every version.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    // The published test vectors of FNV-1a.
    #[test]
    fn matches_the_published_vectors() {
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint("foobar"), 0x8594_4171_f739_67e8);
    }
}
