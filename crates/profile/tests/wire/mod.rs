//! Reads back what the exports write: protocol buffers and records, by hand and without a schema. Shares no code with what it
//! checks; a test panics on what is not well formed.
#![allow(dead_code, reason = "each test reads another format")]

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// The fields of a message in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message<'a>(pub Vec<(u64, Field<'a>)>);

impl<'a> Message<'a> {
    pub fn read(mut bytes: &'a [u8]) -> Message<'a> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Varint(varint(&mut bytes)),
                1 => Field::Fixed64(take(&mut bytes, 8).try_into().unwrap()),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, length))
                }
                5 => Field::Fixed32(take(&mut bytes, 4).try_into().unwrap()),
                other => panic!("no wire type: {other}"),
            };
            fields.push((tag >> 3, field));
        }
        Message(fields)
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &Field<'a>> {
        self.0.iter().filter(move |(n, _)| *n == number).map(|(_, field)| field)
    }

    /// The last of a number counts.
    pub fn get(&self, number: u64) -> Option<&Field<'a>> {
        self.all(number).last()
    }

    pub fn uint(&self, number: u64) -> u64 {
        self.get(number).map_or(0, |field| match field {
            Field::Varint(value) => *value,
            other => panic!("field {number} is {other:?}"),
        })
    }

    pub fn double(&self, number: u64) -> f64 {
        self.get(number).map_or(0.0, |field| match field {
            Field::Fixed64(bytes) => f64::from_le_bytes(*bytes),
            other => panic!("field {number} is {other:?}"),
        })
    }

    pub fn float(&self, number: u64) -> Option<f32> {
        self.get(number).map(|field| match field {
            Field::Fixed32(bytes) => f32::from_le_bytes(*bytes),
            other => panic!("field {number} is {other:?}"),
        })
    }

    pub fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.get(number).map(|field| match field {
            Field::Bytes(bytes) => *bytes,
            other => panic!("field {number} is {other:?}"),
        })
    }

    pub fn string(&self, number: u64) -> &'a str {
        std::str::from_utf8(self.bytes(number).unwrap_or_default()).unwrap()
    }

    pub fn message(&self, number: u64) -> Option<Message<'a>> {
        self.bytes(number).map(Message::read)
    }

    pub fn messages(&self, number: u64) -> Vec<Message<'a>> {
        let message = |field: &Field<'a>| match field {
            Field::Bytes(bytes) => Message::read(bytes),
            other => panic!("field {number} is {other:?}"),
        };
        self.all(number).map(message).collect()
    }
}

/// The contents of the records of a file, both checksums of each looked at.
pub fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length = take(&mut bytes, 8);
        assert_eq!(take(&mut bytes, 4), masked_crc32c(length).to_le_bytes(), "checksum of a length");
        let record = take(&mut bytes, u64::from_le_bytes(length.try_into().unwrap()) as usize);
        assert_eq!(take(&mut bytes, 4), masked_crc32c(record).to_le_bytes(), "checksum of a record");
        records.push(record);
    }
    records
}

/// Bit by bit.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than 64 bits")
}
