//! Whether data that are evaluated on are those that a run is trained on: by what some of their rows hold, so that copies and
//! arrays of other files are recognised too.

use std::sync::Arc;

use memfit::data::sources::hold_out;
use memfit::data::{BytePool, Example, Source, Tensor};

use super::{DataSources, TestFrom, open};
use crate::config::RunConfig;

/// Rows that are compared, at most.
const ROWS: usize = 64;

/// What of data the model of a run was trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overlap {
    /// Nothing that is known.
    None,
    /// All of it.
    All,
    /// All but the share that the run held out.
    AllButHeldOut { share: f32 },
}

/// What of these data the run was trained on, as far as its own training set is still there.
pub fn overlap(config: &RunConfig, evaluated: &DataSources, pool: &BytePool) -> Overlap {
    let (Ok(own), Some(source)) = (open(config, pool), &evaluated.test) else { return Overlap::None };
    if have_same_rows(&*own.train, &**source, pool) {
        return Overlap::All;
    }
    let TestFrom::HeldOut { share, .. } = own.test_from else { return Overlap::None };
    match hold_out(Arc::clone(source), share.into()) {
        Ok((kept, _)) if have_same_rows(&*own.train, &kept, pool) => Overlap::AllButHeldOut { share },
        Ok(_) | Err(_) => Overlap::None,
    }
}

/// Whether both have as many rows, and some of them, evenly spread, hold the same.
pub(super) fn have_same_rows(one: &dyn Source, other: &dyn Source, pool: &BytePool) -> bool {
    let (rows, looked) = (one.len(), one.len().min(ROWS));
    if rows != other.len() {
        return false;
    }
    let same = |row: usize| match (one.read_row(row, pool), other.read_row(row, pool)) {
        (Ok(one), Ok(other)) => Some(is_same(&one, &other)),
        // A row that cannot be read tells nothing.
        (Err(_), Err(_)) => None,
        (_, _) => Some(false),
    };
    let mut told = (0..looked).filter_map(|i| same(i * rows / looked)).peekable();
    told.peek().is_some() && told.all(|same| same)
}

fn is_same(one: &Example, other: &Example) -> bool {
    let fields = one.fields.iter().zip(&other.fields);
    let are_same =
        |((a, x), (b, y)): (&(String, Tensor), &(String, Tensor))| a == b && x.ty() == y.ty() && x.bytes() == y.bytes();
    one.fields.len() == other.fields.len() && fields.into_iter().all(are_same)
}
