//! Texts of protocol 0, which stand on a line of their own and escape what cannot. What is decoded is at most twice as long as
//! what it was; an escape that is none stays as it is.

/// As Python's codec `raw-unicode-escape` has it: `\uXXXX` and `\UXXXXXXXX`, and all else is Latin-1.
pub fn unescape_unicode(line: &[u8]) -> Vec<u8> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = match rest {
            [b'\\', b'u', digits @ ..] => hexadecimal(digits, 4),
            [b'\\', b'U', digits @ ..] => hexadecimal(digits, 8),
            _ => None,
        };
        let (character, left) = escaped.unwrap_or((char::from(first), after));
        text.push(character);
        rest = left;
    }
    text.into_bytes()
}

/// As Python's `repr` writes a string: `\n`, `\'`, `\\`, `\xHH` and their like.
pub fn unescape_string(line: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, left) = match rest {
            [b'\\', b'n', left @ ..] => (b'\n', left),
            [b'\\', b'r', left @ ..] => (b'\r', left),
            [b'\\', b't', left @ ..] => (b'\t', left),
            [b'\\', byte @ (b'\\' | b'\'' | b'"'), left @ ..] => (*byte, left),
            [b'\\', b'x', digits @ ..] => match hexadecimal(digits, 2) {
                Some((character, left)) => (character as u8, left),
                None => (first, after),
            },
            _ => (first, after),
        };
        text.push(byte);
        rest = left;
    }
    text
}

/// The character of so many digits, and what follows them.
fn hexadecimal(bytes: &[u8], digits: usize) -> Option<(char, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(digits)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    // Half of a pair of surrogates is no character.
    Some((char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_others_stay() {
        for (line, text) in [
            (&br"a\u005cb\U0001F600\u12"[..], "a\\b\u{1f600}\\u12"),
            (b"caf\xe9\\ud800", "caf\u{e9}\u{fffd}"),
            (b"\\n\\", "\\n\\"),
        ] {
            assert_eq!(String::from_utf8_lossy(&unescape_unicode(line)), text);
        }
        assert_eq!(unescape_string(br#"it\'s\n\x41\q\x4\\"#), b"it's\nA\\q\\x4\\");
    }
}
