//! Sources that need no format: tensors in memory of their own, and functions. The memory of [`Tensors`] belongs to
//! whoever made them and is in no pool; [`Tensors::bytes`] says how much it is.

use memfit_ir::TensorType;

use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::source::Source;
use crate::tensor::{Example, Tensor};

/// Named tensors in memory of their own, outside of every pool: a table for
/// [`Dataset::from_tensors`](crate::Dataset::from_tensors), or one element of
/// [`Dataset::from_iter`](crate::Dataset::from_iter).
///
/// ```
/// use memfit_data::Tensors;
/// use memfit_ir::TensorType;
///
/// # fn main() -> memfit_data::Result<()> {
/// let table = Tensors::new()
///     .with("x", TensorType::f32([2, 2]), vec![0.0, 1.0, 2.0, 3.0])?
///     .with("y", TensorType::i32([2]), vec![0, 1])?;
/// assert_eq!(table.bytes(), 24);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    ty: TensorType,
    data: TensorData,
}

/// The elements of a tensor of [`Tensors`], as they stand in memory. It is made by `into()` of a vector or a static slice.
#[derive(Clone, Debug)]
pub enum TensorData {
    /// Bytes of any type that lie in the program, such as those of `include_bytes!`.
    Static(&'static [u8]),
    /// Bytes of any type, in the machine's byte order.
    Bytes(Vec<u8>),
    /// For tensors of f32.
    F32(Vec<f32>),
    /// For tensors of i32.
    I32(Vec<i32>),
}

impl TensorData {
    fn bytes(&self) -> &[u8] {
        match self {
            TensorData::Static(bytes) => bytes,
            TensorData::Bytes(bytes) => bytes,
            TensorData::F32(numbers) => bytemuck::cast_slice(numbers),
            TensorData::I32(numbers) => bytemuck::cast_slice(numbers),
        }
    }
}

impl From<&'static [u8]> for TensorData {
    fn from(bytes: &'static [u8]) -> TensorData {
        TensorData::Static(bytes)
    }
}

impl From<Vec<u8>> for TensorData {
    fn from(bytes: Vec<u8>) -> TensorData {
        TensorData::Bytes(bytes)
    }
}

impl From<Vec<f32>> for TensorData {
    fn from(numbers: Vec<f32>) -> TensorData {
        TensorData::F32(numbers)
    }
}

impl From<Vec<i32>> for TensorData {
    fn from(numbers: Vec<i32>) -> TensorData {
        TensorData::I32(numbers)
    }
}

impl Tensors {
    /// No tensors yet.
    pub fn new() -> Tensors {
        Tensors::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`DataError::Pipeline`] where the data have not as many bytes as the type, or the name is there already.
    pub fn with(mut self, name: &str, ty: TensorType, data: impl Into<TensorData>) -> Result<Tensors> {
        let data = data.into();
        let (has, needs) = (data.bytes().len() as u64, ty.bytes());
        if has != needs {
            return Err(DataError::Pipeline(format!("tensor \"{name}\": {ty} has {needs} bytes, its data {has}")));
        }
        if self.fields.iter().any(|f| f.name == name) {
            return Err(DataError::Pipeline(format!("there are two tensors \"{name}\": give them different names")));
        }
        self.fields.push(Field { name: name.to_string(), ty, data });
        Ok(self)
    }

    /// The bytes that they hold, outside of every pool.
    pub fn bytes(&self) -> u64 {
        self.fields.iter().map(|f| f.data.bytes().len() as u64).sum()
    }

    /// The rows of these tensors as a source: all must have the same first extent, and whole bytes in a row.
    pub(crate) fn rows(self) -> Result<impl Source + 'static> {
        let first =
            self.fields.first().ok_or_else(|| DataError::Pipeline("a source needs at least one tensor".into()))?;
        let (name, len) = (first.name.clone(), first.ty.shape.first().copied());
        for field in &self.fields {
            let has = field.ty.shape.first().copied();
            if has.is_none() || has != len {
                return Err(DataError::Pipeline(format!(
                    "tensors \"{name}\" and \"{}\" are no rows of one table: their first extents are of {} and {}",
                    field.name, first.ty, field.ty
                )));
            }
            if has.is_some_and(|n| n > 0 && field.ty.elements() / n * field.ty.dtype.bits() % 8 != 0) {
                return Err(DataError::Pipeline(format!(
                    "tensor \"{}\": a row of {} is no whole bytes",
                    field.name, field.ty
                )));
            }
        }
        Ok(Rows { len: len.unwrap_or(0), fields: self.fields })
    }

    /// A copy in a pool.
    pub(crate) fn to_example(&self, pool: &BytePool) -> Result<Example> {
        let mut example = Example::default();
        for field in &self.fields {
            let tensor = Tensor::from_bytes(field.ty.clone(), field.data.bytes(), pool)?;
            example.fields.push((field.name.clone(), tensor));
        }
        Ok(example)
    }
}

struct Rows {
    len: usize,
    fields: Vec<Field>,
}

impl Source for Rows {
    fn len(&self) -> usize {
        self.len
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        let mut example = Example::default();
        for field in &self.fields {
            let bytes = field.data.bytes();
            let row = bytes.len() / self.len;
            let ty = TensorType::new(field.ty.dtype, &field.ty.shape[1..]);
            let tensor = Tensor::from_bytes(ty, &bytes[index * row..][..row], pool)?;
            example.fields.push((field.name.clone(), tensor));
        }
        Ok(example)
    }

    /// Of the data itself: it is in memory anyway.
    fn fingerprint(&self) -> u64 {
        self.fields.iter().fold(0, |h, f| {
            let ty = memfit_ir::fingerprint(&format!("{h} {} {}", f.name, f.ty));
            crate::cache::checksum(ty, f.data.bytes())
        })
    }
}

/// A function as a source.
pub(crate) struct FromFn<F> {
    pub len: usize,
    pub f: F,
}

impl<F> Source for FromFn<F>
where
    F: Fn(usize, &BytePool) -> Result<Example> + Send + Sync,
{
    fn len(&self) -> usize {
        self.len
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        (self.f)(index, pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_slices_along_the_first_axis() {
        let tensors = Tensors::new()
            .with("x", TensorType::f32([3, 2]), vec![0f32, 1., 2., 3., 4., 5.])
            .and_then(|t| t.with("y", TensorType::i32([3]), vec![7, 8, 9]))
            .expect("they fit");
        assert_eq!(tensors.bytes(), 36);
        let (rows, pool) = (tensors.rows().expect("they are rows"), BytePool::new(64));
        let row = rows.read_row(1, &pool).expect("there is room");
        assert_eq!(row.get("x").expect("it is there").f32s(), [2., 3.]);
        assert_eq!(row.get("y").expect("it is there").bytes(), 8i32.to_le_bytes());
        assert_eq!((rows.len(), row.fields[1].1.ty().to_string()), (3, "i32[]".to_string()));
    }

    #[test]
    fn what_is_no_table_is_refused_with_both_types() {
        let one = |shape: &[usize]| {
            let n = shape.iter().product();
            Tensors::new().with("x", TensorType::f32(shape), vec![0f32; n]).expect("they fit")
        };
        let check = |tensors: Tensors, says: &str| match tensors.rows() {
            Ok(_) => panic!("they are no rows"),
            Err(e) => assert!(e.to_string().contains(says), "{e}"),
        };
        check(Tensors::new(), "at least one");
        check(one(&[]), "f32[]");
        check(one(&[2, 3]).with("y", TensorType::i32([3]), vec![0, 1, 2]).expect("they fit"), "f32[2,3] and i32[3]");
        assert!(Tensors::new().with("x", TensorType::f32([2]), vec![0f32]).is_err());
        assert!(one(&[1]).with("x", TensorType::f32([1]), vec![0f32]).is_err());
    }
}
