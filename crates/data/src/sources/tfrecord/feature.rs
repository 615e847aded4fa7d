//! Features of a record → fields of an example.

use memfit_ir::{DType, TensorType};

use super::proto::{self, Values};
use crate::error::{DataError, Result};
use crate::image::{self, Channels};
use crate::memory::BytePool;
use crate::tensor::{Example, Tensor};

/// A feature of the records, and the field that it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name in the records.
    pub name: String,
    /// The name of the field that it becomes.
    pub field: String,
    /// What it holds.
    pub kind: FeatureKind,
}

/// What a feature holds, and so what it becomes.
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureKind {
    /// A JPEG or PNG → u8 `[height, width, channels]`.
    Image(Channels),
    /// A JPEG or PNG that a map function decodes: u8 `[n]`.
    Encoded,
    /// Bytes of a tensor as they are.
    Raw(TensorType),
    /// A list of floats → f32 of this shape; `[]` is a single one.
    Floats(Vec<usize>),
    /// A list of integers → i32 of this shape.
    Ints(Vec<usize>),
}

impl Feature {
    /// The feature `name`, which becomes `field`.
    pub fn new(name: &str, field: &str, kind: FeatureKind) -> Feature {
        Feature { name: name.to_string(), field: field.to_string(), kind }
    }
}

pub(super) fn parse_example(record: &[u8], features: &[Feature], location: &str, pool: &BytePool) -> Result<Example> {
    let mut example = Example::default();
    for feature in features {
        let values = find_feature(record, &feature.name, location)?;
        let location = format!("{location}, feature \"{}\"", feature.name);
        let field = feature_tensor(values, &feature.kind, &location, pool)?;
        example = example.with(&feature.field, field);
    }
    Ok(example)
}

/// The last one of this name, as protobuf has it.
fn find_feature<'a>(record: &'a [u8], name: &str, location: &str) -> Result<Values<'a>> {
    let mut found = None;
    for feature in proto::features(record) {
        let (key, values) = feature.map_err(|e| DataError::bad(location, format!("it is no tf.train.Example: {e}")))?;
        if key == name.as_bytes() {
            found = Some(values);
        }
    }
    found.ok_or_else(|| {
        let known: Vec<_> = proto::features(record)
            .flatten()
            .take(20)
            .map(|(key, _)| String::from_utf8_lossy(&key[..key.len().min(60)]))
            .collect();
        DataError::bad(location, format!("it has no feature \"{name}\"; it has {}", known.join(", ")))
    })
}

fn feature_tensor(values: Values, kind: &FeatureKind, location: &str, pool: &BytePool) -> Result<Tensor> {
    match (kind, values) {
        (FeatureKind::Image(channels), Values::Bytes(list)) => {
            image::decode(only_string(list, location)?, *channels, &location, pool)
        }
        (FeatureKind::Encoded, Values::Bytes(list)) => {
            let bytes = only_string(list, location)?;
            Ok(Tensor::from_bytes(TensorType::new(DType::U8, [bytes.len()]), bytes, pool)?)
        }
        (FeatureKind::Raw(ty), Values::Bytes(list)) => raw_tensor(only_string(list, location)?, ty, location, pool),
        (FeatureKind::Floats(shape), Values::Floats(list)) => {
            let ty = TensorType::new(DType::F32, shape.clone());
            number_tensor(ty, location, pool, |each| proto::floats(list, |value| each(Ok(value.to_le_bytes()))))
        }
        (FeatureKind::Ints(shape), Values::Ints(list)) => {
            let ty = TensorType::new(DType::I32, shape.clone());
            let narrow = |value: i64| i32::try_from(value).map(i32::to_le_bytes).map_err(|_| value);
            number_tensor(ty, location, pool, |each| proto::ints(list, |value| each(narrow(value))))
        }
        (_, values) => {
            let (wanted, held) = (kind_name(kind), values_name(values));
            Err(DataError::bad(
                location,
                format!("{wanted} was asked for, and it holds {held}; name it with its own kind"),
            ))
        }
    }
}

/// The single byte string of a list.
fn only_string<'a>(list: &'a [u8], location: &str) -> Result<&'a [u8]> {
    let mut strings = proto::strings(list);
    match (strings.next(), strings.next()) {
        (Some(Ok(bytes)), None) => Ok(bytes),
        (Some(Err(e)), _) | (_, Some(Err(e))) => Err(DataError::bad(location, e)),
        (None, _) => Err(DataError::bad(location, "its list is empty, and one byte string is needed")),
        (Some(Ok(_)), Some(Ok(_))) => Err(DataError::bad(location, "it has several byte strings, and one is needed")),
    }
}

fn raw_tensor(bytes: &[u8], ty: &TensorType, location: &str, pool: &BytePool) -> Result<Tensor> {
    if bytes.len() as u64 != ty.bytes() {
        let problem =
            format!("it has {} bytes, and {ty} has {}; give the shape it was written with", bytes.len(), ty.bytes());
        return Err(DataError::bad(location, problem));
    }
    Ok(Tensor::from_bytes(ty.clone(), bytes, pool)?)
}

/// Fills a tensor of four-byte elements from a list, whose length must fit.
fn number_tensor(
    ty: TensorType,
    location: &str,
    pool: &BytePool,
    list: impl FnOnce(&mut dyn FnMut(Result<[u8; 4], i64>)) -> Result<(), proto::Broken>,
) -> Result<Tensor> {
    let mut out = Tensor::zeros(ty, pool)?;
    let (wanted, ty) = (out.ty().elements(), out.ty().clone());
    let (words, _) = out.bytes_mut().as_chunks_mut::<4>();
    let (mut count, mut too_large) = (0, None);
    let listed = list(&mut |value| {
        match (value, words.get_mut(count)) {
            (Ok(bytes), Some(word)) => *word = bytes,
            (Ok(_), None) => {}
            (Err(value), _) => too_large = Some(value),
        }
        count += 1;
    });
    listed.map_err(|e| DataError::bad(location, e))?;
    if let Some(value) = too_large {
        return Err(DataError::bad(location, format!("{value} is more than an i32 holds")));
    }
    if count != wanted {
        return Err(DataError::bad(
            location,
            format!("it has {count} values, and {ty} has {wanted}; give its own shape"),
        ));
    }
    Ok(out)
}

fn kind_name(kind: &FeatureKind) -> &'static str {
    match kind {
        FeatureKind::Image(_) | FeatureKind::Encoded => "an image",
        FeatureKind::Raw(_) => "raw bytes",
        FeatureKind::Floats(_) => "a list of floats",
        FeatureKind::Ints(_) => "a list of integers",
    }
}

fn values_name(values: Values) -> &'static str {
    match values {
        Values::Bytes(_) => "byte strings",
        Values::Floats(_) => "floats",
        Values::Ints(_) => "integers",
    }
}
