//! The number types of numpy, and what they become.

use std::fmt::Display;

use memfit_ir::DType;

/// How an element is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    kind: Kind,
    big_endian: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl Element {
    /// From numpy's description: `<f4`, `|u1`.
    pub fn parse(descr: &str) -> Option<Element> {
        let big_endian = match descr.as_bytes().first()? {
            b'>' => true,
            b'<' | b'|' => false,
            b'=' => cfg!(target_endian = "big"),
            _ => return None,
        };
        let kind = match &descr[1..] {
            "f2" => Kind::F16,
            "f4" => Kind::F32,
            "f8" => Kind::F64,
            "i1" => Kind::I8,
            "i2" => Kind::I16,
            "i4" => Kind::I32,
            "i8" => Kind::I64,
            "u1" => Kind::U8,
            "u2" => Kind::U16,
            "u4" => Kind::U32,
            "u8" => Kind::U64,
            "b1" => Kind::Bool,
            _ => return None,
        };
        Some(Element { kind, big_endian })
    }

    pub fn bytes(self) -> usize {
        match self.kind {
            Kind::I8 | Kind::U8 | Kind::Bool => 1,
            Kind::F16 | Kind::I16 | Kind::U16 => 2,
            Kind::F32 | Kind::I32 | Kind::U32 => 4,
            Kind::F64 | Kind::I64 | Kind::U64 => 8,
        }
    }

    /// What it becomes.
    pub fn dtype(self) -> DType {
        match self.kind {
            Kind::F16 | Kind::F32 | Kind::F64 => DType::F32,
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 | Kind::U16 | Kind::U32 | Kind::U64 => DType::I32,
            Kind::U8 | Kind::Bool => DType::U8,
        }
    }

    /// Both slices have equally many elements.
    pub fn convert(self, from: &[u8], to: &mut [u8]) -> Result<(), String> {
        match self.kind {
            Kind::U8 => to.copy_from_slice(from),
            Kind::Bool => to.iter_mut().zip(from).for_each(|(to, from)| *to = (*from != 0) as u8),
            Kind::F16 => self.each(from, to, |b: [u8; 2]| half(u16::from_le_bytes(b)).to_le_bytes()),
            Kind::F32 | Kind::I32 => self.each(from, to, |b: [u8; 4]| b),
            Kind::F64 => self.each(from, to, |b| (f64::from_le_bytes(b) as f32).to_le_bytes()),
            Kind::I8 => self.each(from, to, |b| (i8::from_le_bytes(b) as i32).to_le_bytes()),
            Kind::I16 => self.each(from, to, |b| (i16::from_le_bytes(b) as i32).to_le_bytes()),
            Kind::U16 => self.each(from, to, |b| (u16::from_le_bytes(b) as i32).to_le_bytes()),
            Kind::I64 => return self.narrow(from, to, i64::from_le_bytes),
            Kind::U32 => return self.narrow(from, to, u32::from_le_bytes),
            Kind::U64 => return self.narrow(from, to, u64::from_le_bytes),
        }
        Ok(())
    }

    /// Integers of which an i32 holds some; what it does not hold is told.
    fn narrow<const N: usize, T: Copy + Display + TryInto<i32>>(
        self,
        from: &[u8],
        to: &mut [u8],
        read: impl Fn([u8; N]) -> T,
    ) -> Result<(), String> {
        let mut outside = None;
        self.each(from, to, |bytes| {
            let value = read(bytes);
            let narrow = value.try_into().unwrap_or_else(|_| {
                outside.get_or_insert(value);
                0
            });
            narrow.to_le_bytes()
        });
        outside.map_or(Ok(()), |value| Err(format!("{value} does not fit into an i32")))
    }

    /// Calls `f` with the bytes of each element, least significant first.
    fn each<const N: usize>(self, from: &[u8], to: &mut [u8], mut f: impl FnMut([u8; N]) -> [u8; 4]) {
        for (from, to) in from.as_chunks::<N>().0.iter().zip(to.as_chunks_mut::<4>().0) {
            let mut bytes = *from;
            if self.big_endian {
                bytes.reverse();
            }
            *to = f(bytes);
        }
    }
}

/// A 16-bit float as f32, exactly.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = ((bits >> 10) & 31, (bits & 1023) as f32);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent as i32 - 25),
    }
}
