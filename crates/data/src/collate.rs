//! Collation: samples become a batch, one tensor a field with a row for each sample. Rows may arrive in any order; what
//! the batch looks like in the end does not depend on it.

use memfit_ir::TensorType;

use crate::error::{DataError, Result};
use crate::memory::{BytePool, NoRoom, rounded};
use crate::tensor::{Example, Tensor};

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Collator {
    /// Which rows are there.
    filled: Vec<bool>,
    /// None until the first sample tells what they are.
    fields: Option<Vec<(String, Tensor)>>,
}

/// What becomes of a batch in which samples are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// It is shorter.
    Close,
    /// The next that is there takes the place of each.
    Fill,
    /// The next of the same lane, of which each has so many rows.
    FillLanes(usize),
}

/// Why a sample did not get in.
#[derive(Debug)]
pub(crate) enum CollateError {
    NoRoom(NoRoom),
    /// It is not like the others.
    Mismatch,
}

impl Collator {
    pub(crate) fn new(rows: usize) -> Collator {
        Collator { filled: vec![false; rows], fields: None }
    }

    pub(crate) fn rows(&self) -> usize {
        self.filled.len()
    }

    /// What a batch of so many samples like this one takes from a pool.
    pub(crate) fn batch_bytes(rows: usize, sample: &Example) -> u64 {
        sample.fields.iter().map(|(_, t)| rounded(t.bytes().len().saturating_mul(rows))).fold(0, u64::saturating_add)
    }

    /// What it holds by now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.fields.iter().flatten().map(|(_, t)| rounded(t.bytes().len())).sum()
    }

    pub(crate) fn insert(&mut self, row: usize, sample: &Example, pool: &BytePool) -> Result<(), CollateError> {
        let fields = match &mut self.fields {
            Some(fields) => fields,
            None => self.fields.insert(allocate_rows(self.filled.len(), sample, pool).map_err(CollateError::NoRoom)?),
        };
        if !matches_spec(fields, sample) {
            return Err(CollateError::Mismatch);
        }
        for ((_, all), (_, one)) in fields.iter_mut().zip(&sample.fields) {
            let bytes = one.bytes();
            all.bytes_mut()[row * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        }
        self.filled[row] = true;
        Ok(())
    }

    /// The batch; or the first row of those among which none is there: of a lane, or of all.
    pub(crate) fn finish(self, gaps: Gaps) -> Result<Example, usize> {
        let Some(mut fields) = self.fields else { return Err(0) };
        if self.filled.contains(&false) {
            match gaps {
                Gaps::Fill => fill_gaps(&mut fields, &self.filled, self.filled.len())?,
                Gaps::FillLanes(rows) => fill_gaps(&mut fields, &self.filled, rows)?,
                Gaps::Close => close_gaps(&mut fields, &self.filled),
            }
        }
        Ok(Example { fields })
    }
}

/// The next row of the same lane that is there, or the first behind the last, takes the place of each that is missing. Else the
/// first row of a lane that has none.
fn fill_gaps(fields: &mut [(String, Tensor)], filled: &[bool], lane: usize) -> Result<(), usize> {
    for (number, lane_filled) in filled.chunks(lane).enumerate() {
        let start = number * lane;
        let mut from = lane_filled.iter().position(|&filled| filled).ok_or(start)?;
        // Backwards, so that each missing one finds the next good one right behind it.
        for row in (0..lane_filled.len()).rev() {
            if lane_filled[row] { from = row } else { copy_row(fields, filled.len(), start + from, start + row) }
        }
    }
    Ok(())
}

fn close_gaps(fields: &mut [(String, Tensor)], filled: &[bool]) {
    let good: Vec<usize> = (0..filled.len()).filter(|&row| filled[row]).collect();
    for (to, &from) in good.iter().enumerate() {
        copy_row(fields, filled.len(), from, to);
    }
    fields.iter_mut().for_each(|(_, tensor)| tensor.keep_rows(good.len()));
}

fn allocate_rows(rows: usize, sample: &Example, pool: &BytePool) -> Result<Vec<(String, Tensor)>, NoRoom> {
    let wanted = Collator::batch_bytes(rows, sample);
    if wanted > pool.free() {
        // Told as a whole, so that nobody makes room field by field.
        return Err(pool.no_room(wanted));
    }
    let rows_of = |(name, tensor): &(String, Tensor)| {
        let shape = [&[rows], &tensor.ty().shape[..]].concat();
        Ok((name.clone(), Tensor::zeros(TensorType::new(tensor.ty().dtype, shape), pool)?))
    };
    sample.fields.iter().map(rows_of).collect()
}

fn matches_spec(rows: &[(String, Tensor)], sample: &Example) -> bool {
    let same = |((a, all), (b, one)): (&(String, Tensor), &(String, Tensor))| {
        a == b && all.ty().dtype == one.ty().dtype && all.ty().shape[1..] == one.ty().shape[..]
    };
    rows.len() == sample.fields.len() && rows.iter().zip(&sample.fields).all(same)
}

fn copy_row(fields: &mut [(String, Tensor)], rows: usize, from: usize, to: usize) {
    for (_, tensor) in fields {
        let bytes = tensor.bytes_mut();
        let row = bytes.len() / rows;
        bytes.copy_within(from * row..(from + 1) * row, to * row);
    }
}

/// The names and types of an element's fields, and where the element comes from.
pub(crate) struct ElementSpec {
    location: String,
    fields: Vec<(String, TensorType)>,
}

impl ElementSpec {
    pub(crate) fn new(location: String, sample: &Example) -> ElementSpec {
        let fields = sample.fields.iter().map(|(name, t)| (name.clone(), t.ty().clone())).collect();
        ElementSpec { location, fields }
    }

    fn list(&self) -> String {
        self.fields.iter().map(|(name, ty)| format!("{name} {ty}")).collect::<Vec<_>>().join(", ")
    }
}

/// Says how a sample differs from the first one of its batch.
pub(crate) fn spec_mismatch(first: &ElementSpec, other: &ElementSpec) -> DataError {
    DataError::Pipeline(format!(
        "samples of one batch differ: {} has {}, {} has {}; make them alike in a map before the batch, for images with \
         a resize or a crop",
        first.location,
        first.list(),
        other.location,
        other.list()
    ))
}

/// Samples are collated by bytes: one of bits must end where a byte does.
pub(crate) fn check_collatable(location: impl FnOnce() -> String, sample: &Example) -> Result<()> {
    match sample.fields.iter().find(|(_, t)| t.ty().elements() * t.ty().dtype.bits() % 8 != 0) {
        None => Ok(()),
        Some((name, t)) => Err(DataError::Pipeline(format!(
            "{}: field \"{name}\" is {}, which is no whole bytes and cannot be batched; make it u8 in a map",
            location(),
            t.ty()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: u8, pool: &BytePool) -> Example {
        let tensor = Tensor::from_bytes(TensorType::new(memfit_ir::DType::U8, [2]), &[value, value], pool);
        Example::default().with("x", tensor.expect("there is room"))
    }

    fn check(filled: &[Option<u8>], gaps: Gaps, expected: Result<&[u8], usize>) {
        let pool = BytePool::new(1000);
        let mut collator = Collator::new(filled.len());
        for (row, value) in filled.iter().enumerate().rev() {
            if let Some(value) = value {
                collator.insert(row, &sample(*value, &pool), &pool).expect("they are alike");
            }
        }
        let batch = collator.finish(gaps);
        let first = batch.as_ref().map(|b| b.fields[0].1.bytes().iter().step_by(2).copied().collect::<Vec<u8>>());
        assert_eq!(first.as_deref().map_err(|row| **row), expected);
        if let Ok(batch) = batch {
            assert_eq!(batch.fields[0].1.ty().shape[..], [expected.map_or(0, <[u8]>::len), 2]);
        }
    }

    #[test]
    fn missing_samples_are_left_out_or_replaced_by_the_next_good_one() {
        let some = [Some(1), None, Some(2), None, None];
        check(&[Some(1), Some(2)], Gaps::Fill, Ok(&[1, 2]));
        check(&some, Gaps::Close, Ok(&[1, 2]));
        check(&some, Gaps::Fill, Ok(&[1, 2, 2, 1, 1]));
        check(&[None, None, Some(7)], Gaps::Fill, Ok(&[7, 7, 7]));
        check(&[None, None], Gaps::Fill, Err(0));
        check(&[None], Gaps::Close, Err(0));
    }

    #[test]
    fn a_missing_sample_is_replaced_by_one_of_its_own_lane() {
        let some = [None, Some(1), Some(2), Some(3), None, Some(4), Some(5), None, None];
        check(&some, Gaps::FillLanes(3), Ok(&[1, 1, 2, 3, 4, 4, 5, 5, 5]));
        check(&some, Gaps::Fill, Ok(&[1, 1, 2, 3, 4, 4, 5, 1, 1]));
        check(&[Some(1), Some(2), None, None, None, None], Gaps::FillLanes(2), Err(2));
    }

    #[test]
    fn a_sample_of_another_shape_or_name_does_not_get_in() {
        let pool = BytePool::new(1000);
        let mut collator = Collator::new(3);
        collator.insert(0, &sample(1, &pool), &pool).expect("it is the first");
        let other = Tensor::zeros(TensorType::new(memfit_ir::DType::U8, [3]), &pool).expect("there is room");
        assert!(matches!(collator.insert(1, &Example::default().with("x", other), &pool), Err(CollateError::Mismatch)));
        let mut renamed = sample(1, &pool);
        renamed.fields[0].0 = "z".to_string();
        assert!(matches!(collator.insert(1, &renamed, &pool), Err(CollateError::Mismatch)));
        assert!(matches!(
            Collator::new(100).insert(0, &sample(1, &pool), &BytePool::new(199)),
            Err(CollateError::NoRoom(_))
        ));
    }
}
