//! Protocol buffers as they are on the wire, to be written: a message is its fields one after the other, each with its number.
//! Writes what it is told and knows no schema; a field that is not written has its default.

/// How a field lies on the wire.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

/// A message, at the end of a buffer.
pub struct Message<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Message<'a> {
    /// One that begins where the bytes end.
    pub fn new(bytes: &'a mut Vec<u8>) -> Message<'a> {
        Message { bytes }
    }

    /// Of type `uint64`, `uint32`, `bool` or an enum.
    pub fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, WireType::Varint);
        varint(self.bytes, value);
    }

    /// Of type `int64` or `int32`.
    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value.cast_unsigned());
    }

    /// Of type `double`.
    pub fn double(&mut self, field: u32, value: f64) {
        self.tag(field, WireType::Fixed64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Of type `float`.
    pub fn float(&mut self, field: u32, value: f32) {
        self.tag(field, WireType::Fixed32);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Of type `string`.
    pub fn string(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Of type `bytes`.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, WireType::Bytes);
        varint(self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// A message in this one.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        self.tag(field, WireType::Bytes);
        let start = self.bytes.len();
        write(&mut Message { bytes: self.bytes });
        let end = self.bytes.len();
        varint(self.bytes, (end - start) as u64);
        let length_bytes = self.bytes.len() - end;
        self.bytes[start..].rotate_right(length_bytes);
    }

    fn tag(&mut self, field: u32, wire_type: WireType) {
        varint(self.bytes, u64::from(field << 3 | wire_type as u32));
    }
}

/// Seven bits a byte, the lowest first; all but the last have the high bit set.
fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Message::new(&mut bytes));
        bytes
    }

    #[test]
    fn fields_are_as_the_encoding_guide_shows_them() {
        assert_eq!(written(|m| m.uint(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.string(2, "testing")), *b"\x12\x07testing");
        assert_eq!(written(|m| m.message(3, |m| m.uint(1, 150))), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.int(1, -2)), [8, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(written(|m| m.float(1, 1.0)), [0x0d, 0, 0, 0x80, 0x3f]);
        assert_eq!(written(|m| m.double(20, 1.0)), [0xa1, 0x01, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    }

    #[test]
    fn a_message_of_any_length_has_its_length_before_it() {
        for (length, prefix) in [(0, 1), (125, 1), (126, 2), (16_380, 2), (16_381, 3)] {
            let body = written(|m| m.bytes(1, &vec![7; length]));
            let mut expected = vec![0x12];
            varint(&mut expected, body.len() as u64);
            expected.extend_from_slice(&body);
            assert_eq!(written(|m| m.message(2, |m| m.bytes(1, &vec![7; length]))), expected);
            assert_eq!(expected.len(), 1 + prefix + body.len());
        }
    }
}
