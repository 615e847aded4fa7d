//! Samples become a batch: one tensor a field, with a row for each sample. Rows may arrive in any order; what the batch
//! looks like in the end does not depend on it.

use memfit_ir::TensorType;

use crate::dataset::Remainder;
use crate::error::{DataError, Result};
use crate::memory::{BytePool, NoRoom, rounded};
use crate::tensor::{Example, Tensor};

#[derive(Debug)]
pub(crate) struct Stack {
    /// Which rows are there.
    there: Vec<bool>,
    /// None until the first sample tells what they are.
    fields: Option<Vec<(String, Tensor)>>,
}

/// Why a sample did not get in.
#[derive(Debug)]
pub(crate) enum Misfit {
    NoRoom(NoRoom),
    /// It is not like the others.
    Differs,
}

impl Stack {
    pub(crate) fn new(rows: usize) -> Stack {
        Stack { there: vec![false; rows], fields: None }
    }

    pub(crate) fn rows(&self) -> usize {
        self.there.len()
    }

    /// What a batch of so many samples like this one takes from a pool.
    pub(crate) fn bytes(rows: usize, sample: &Example) -> u64 {
        sample.fields.iter().map(|(_, t)| rounded(t.bytes().len().saturating_mul(rows))).fold(0, u64::saturating_add)
    }

    /// What it holds by now.
    pub(crate) fn held(&self) -> u64 {
        self.fields.iter().flatten().map(|(_, t)| rounded(t.bytes().len())).sum()
    }

    pub(crate) fn put(&mut self, row: usize, sample: &Example, pool: &BytePool) -> Result<(), Misfit> {
        let fields = match &mut self.fields {
            Some(fields) => fields,
            None => self.fields.insert(rows_like(self.there.len(), sample, pool).map_err(Misfit::NoRoom)?),
        };
        if !is_like(fields, sample) {
            return Err(Misfit::Differs);
        }
        for ((_, all), (_, one)) in fields.iter_mut().zip(&sample.fields) {
            let bytes = one.bytes();
            all.bytes_mut()[row * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        }
        self.there[row] = true;
        Ok(())
    }

    /// The batch. Where a sample is missing, the next that is there takes its place if all batches must have one shape;
    /// otherwise the batch is shorter. None if there is none at all.
    pub(crate) fn finish(self, remainder: Remainder) -> Option<Example> {
        let first = self.there.iter().position(|&there| there)?;
        let (rows, mut fields) = (self.there.len(), self.fields?);
        if self.there.contains(&false) {
            match remainder {
                Remainder::Drop => {
                    // Backwards, so that each missing one finds the next good one right behind it.
                    let mut from = first;
                    for row in (0..rows).rev() {
                        if self.there[row] { from = row } else { copy(&mut fields, rows, from, row) }
                    }
                }
                Remainder::Keep => {
                    let good: Vec<usize> = (0..rows).filter(|&row| self.there[row]).collect();
                    for (to, &from) in good.iter().enumerate() {
                        copy(&mut fields, rows, from, to);
                    }
                    fields.iter_mut().for_each(|(_, tensor)| tensor.keep_rows(good.len()));
                }
            }
        }
        Some(Example { fields })
    }
}

fn rows_like(rows: usize, sample: &Example, pool: &BytePool) -> Result<Vec<(String, Tensor)>, NoRoom> {
    let wanted = Stack::bytes(rows, sample);
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

fn is_like(rows: &[(String, Tensor)], sample: &Example) -> bool {
    let same = |((a, all), (b, one)): (&(String, Tensor), &(String, Tensor))| {
        a == b && all.ty().dtype == one.ty().dtype && all.ty().shape[1..] == one.ty().shape[..]
    };
    rows.len() == sample.fields.len() && rows.iter().zip(&sample.fields).all(same)
}

fn copy(fields: &mut [(String, Tensor)], rows: usize, from: usize, to: usize) {
    for (_, tensor) in fields {
        let bytes = tensor.bytes_mut();
        let row = bytes.len() / rows;
        bytes.copy_within(from * row..(from + 1) * row, to * row);
    }
}

/// The first sample of a batch: its place and its fields.
pub(crate) type Like = (String, Vec<(String, TensorType)>);

pub(crate) fn like(place: String, sample: &Example) -> Like {
    (place, sample.fields.iter().map(|(name, t)| (name.clone(), t.ty().clone())).collect())
}

/// Says how a sample differs from the first one of its batch.
pub(crate) fn difference(first: &Like, place: &str, sample: &Example) -> DataError {
    let list = |fields: &[(String, TensorType)]| {
        fields.iter().map(|(name, ty)| format!("{name} {ty}")).collect::<Vec<_>>().join(", ")
    };
    DataError::Pipeline(format!(
        "samples of one batch differ: {} has {}, {place} has {}; make them alike in a map before the batch, for images \
         with a resize or a crop",
        first.0,
        list(&first.1),
        list(&like(String::new(), sample).1)
    ))
}

/// Samples are stacked by bytes: one of bits must end where a byte does.
pub(crate) fn stackable(place: impl FnOnce() -> String, sample: &Example) -> Result<()> {
    match sample.fields.iter().find(|(_, t)| t.ty().elements() * t.ty().dtype.bits() % 8 != 0) {
        None => Ok(()),
        Some((name, t)) => Err(DataError::Pipeline(format!(
            "{}: field \"{name}\" is {}, which is no whole bytes and cannot be batched; make it u8 in a map",
            place(),
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

    fn check(there: &[Option<u8>], remainder: Remainder, expected: Option<&[u8]>) {
        let pool = BytePool::new(1000);
        let mut stack = Stack::new(there.len());
        for (row, value) in there.iter().enumerate().rev() {
            if let Some(value) = value {
                stack.put(row, &sample(*value, &pool), &pool).expect("they are alike");
            }
        }
        let batch = stack.finish(remainder);
        let first = batch.as_ref().map(|b| b.fields[0].1.bytes().iter().step_by(2).copied().collect::<Vec<u8>>());
        assert_eq!(first.as_deref(), expected);
        if let Some(batch) = batch {
            assert_eq!(batch.fields[0].1.ty().shape[..], [expected.map_or(0, <[u8]>::len), 2]);
        }
    }

    #[test]
    fn missing_samples_are_left_out_or_replaced_by_the_next_good_one() {
        let some = [Some(1), None, Some(2), None, None];
        check(&[Some(1), Some(2)], Remainder::Drop, Some(&[1, 2]));
        check(&some, Remainder::Keep, Some(&[1, 2]));
        check(&some, Remainder::Drop, Some(&[1, 2, 2, 1, 1]));
        check(&[None, None, Some(7)], Remainder::Drop, Some(&[7, 7, 7]));
        check(&[None, None], Remainder::Drop, None);
        check(&[None], Remainder::Keep, None);
    }

    #[test]
    fn a_sample_of_another_shape_or_name_does_not_get_in() {
        let pool = BytePool::new(1000);
        let mut stack = Stack::new(3);
        stack.put(0, &sample(1, &pool), &pool).expect("it is the first");
        let other = Tensor::zeros(TensorType::new(memfit_ir::DType::U8, [3]), &pool).expect("there is room");
        assert!(matches!(stack.put(1, &Example::default().with("x", other), &pool), Err(Misfit::Differs)));
        let mut renamed = sample(1, &pool);
        renamed.fields[0].0 = "z".to_string();
        assert!(matches!(stack.put(1, &renamed, &pool), Err(Misfit::Differs)));
        assert!(matches!(Stack::new(100).put(0, &sample(1, &pool), &BytePool::new(199)), Err(Misfit::NoRoom(_))));
    }
}
