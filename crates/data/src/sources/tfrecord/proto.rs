//! As much of the protobuf wire format as `tf.train.Example` needs. Nothing is copied: all that is found points into
//! the record.

/// The values of one feature.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    Bytes(&'a [u8]),
    Floats(&'a [u8]),
    Ints(&'a [u8]),
}

/// What is wrong with a record.
pub(super) type Broken = &'static str;

/// The features of an `Example` with their names, in the order they are stored.
pub(super) fn features(example: &[u8]) -> impl Iterator<Item = Result<(&[u8], Values<'_>), Broken>> {
    nested(example, 1).flat_map(|map| {
        let entries = map.map(|map| nested(map, 1));
        let (entries, broken) = match entries {
            Ok(entries) => (Some(entries), None),
            Err(e) => (None, Some(Err(e))),
        };
        broken.into_iter().chain(entries.into_iter().flatten().map(|entry| feature(entry?)))
    })
}

/// The byte strings of a list.
pub(super) fn strings(list: &[u8]) -> impl Iterator<Item = Result<&[u8], Broken>> {
    nested(list, 1)
}

/// The floats of a list, packed or one by one.
pub(super) fn floats(list: &[u8], mut each: impl FnMut(f32)) -> Result<(), Broken> {
    for field in Fields(list) {
        match field? {
            (1, Value::Fixed32(bits)) => each(f32::from_bits(bits)),
            (1, Value::Bytes(packed)) => {
                let (words, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err("a packed list of floats has a broken length");
                }
                words.iter().for_each(|word| each(f32::from_le_bytes(*word)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The integers of a list, packed or one by one.
pub(super) fn ints(list: &[u8], mut each: impl FnMut(i64)) -> Result<(), Broken> {
    for field in Fields(list) {
        match field? {
            (1, Value::Varint(value)) => each(value as i64),
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    each(varint(&mut packed)? as i64);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// One entry of the map of features.
fn feature(entry: &[u8]) -> Result<(&[u8], Values<'_>), Broken> {
    let (mut name, mut values) = (&[][..], Values::Bytes(&[]));
    for field in Fields(entry) {
        match field? {
            (1, Value::Bytes(key)) => name = key,
            (2, Value::Bytes(feature)) => {
                for list in Fields(feature) {
                    match list? {
                        (1, Value::Bytes(list)) => values = Values::Bytes(list),
                        (2, Value::Bytes(list)) => values = Values::Floats(list),
                        (3, Value::Bytes(list)) => values = Values::Ints(list),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok((name, values))
}

/// The messages or strings under one number.
fn nested(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Broken>> {
    Fields(message).filter_map(move |field| match field {
        Ok((n, Value::Bytes(bytes))) if n == number => Some(Ok(bytes)),
        Ok(_) => None,
        Err(e) => Some(Err(e)),
    })
}

enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(&'a [u8]),
}

/// The fields of a message; after a broken one there is nothing more.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), Broken> {
        let tag = varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| "a length is broken")?)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            _ => return Err("a field has an unknown wire type"),
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("a field goes beyond the end of its message")?;
        self.0 = rest;
        Ok(taken)
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Broken> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a number goes beyond the end of its message")?;
        *bytes = rest;
        value |= ((byte & 127) as u64) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err("a number has more than ten bytes")
}
