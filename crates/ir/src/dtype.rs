//! Element types and tensor types. A tensor type is an element type and a concrete shape; it owns no data.

use std::fmt;
use std::ops::Deref;

/// The element types that a tensor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F32,
    F16,
    BF16,
    I32,
    U8,
    /// Yes or no, eight to a byte: element i is bit i mod 8 of byte i ÷ 8, and what is left of the last byte is 0. Made
    /// and read as masks only.
    Bit,
}

impl DType {
    pub const ALL: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8, DType::Bit];
    /// Those that one can count with: all but bits.
    pub const NUMBERS: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8];

    /// Bits of one element.
    pub const fn bits(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 32,
            DType::F16 | DType::BF16 => 16,
            DType::U8 => 8,
            DType::Bit => 1,
        }
    }

    /// Bytes of this many elements, which is also where the element of that number starts: of bits only every eighth
    /// starts a byte.
    pub const fn bytes(self, elements: usize) -> usize {
        match self {
            DType::Bit => elements.div_ceil(8),
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::U8 => elements * (self.bits() / 8),
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bit => "bit",
        }
    }

    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The extents of a tensor, outermost first. Row-major: the last axis is contiguous.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Shape(Vec<usize>);

impl Shape {
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Shape(dims.into())
    }

    pub fn scalar() -> Self {
        Shape(Vec::new())
    }

    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Elements between neighbours along each axis.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.0.len()];
        for i in (0..self.0.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * self.0[i + 1];
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl<T: Into<Vec<usize>>> From<T> for Shape {
    fn from(dims: T) -> Self {
        Shape(dims.into())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a value is: `f32[2,224,224,3]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Shape,
}

impl TensorType {
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        TensorType { dtype, shape: shape.into() }
    }

    pub fn f32(shape: impl Into<Shape>) -> Self {
        TensorType::new(DType::F32, shape)
    }

    pub fn i32(shape: impl Into<Shape>) -> Self {
        TensorType::new(DType::I32, shape)
    }

    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.shape.elements()) as u64
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
