//! Exchanges between replicas: sums over lanes, and states that one replica updates for all.

use super::Types;
use crate::dtype::{DType, TensorType};
use crate::op::{Join, Replicate, token};
use crate::rule;

pub fn join(join: Join, inputs: &[&TensorType]) -> Types {
    let Join { replica, piece } = join;
    if !replica.exists() {
        let [lanes, count, rank] = [replica.lanes, replica.count, replica.rank];
        rule!("there is no replica {rank} of {count} with {lanes} lanes in all");
    }
    if piece < 4 * replica.count {
        rule!("a piece of {piece} bytes has no number for each of {} replicas", replica.count);
    }
    let sums = without_token(inputs);
    let each = join.sums();
    if sums.is_empty() || !sums.len().is_multiple_of(each) {
        rule!("takes {each} sums of each tensor, but was given {} in all", sums.len());
    }
    let mut types = Vec::with_capacity(sums.len() / each + 1);
    for same in sums.chunks(each) {
        if let Some(other) = same.iter().find(|ty| **ty != same[0]) {
            rule!("sums of one tensor are {} and {other}", same[0]);
        }
        if same[0].dtype != DType::F32 {
            rule!("adds up f32, but was given {}", same[0]);
        }
        types.push(same[0].clone());
    }
    types.push(token());
    Ok(types)
}

pub fn replicate(replicate: Replicate, inputs: &[&TensorType]) -> Types {
    let Replicate { rank, count, owner } = replicate;
    if rank.max(owner) >= count {
        rule!("there is no replica {} of {count}", rank.max(owner));
    }
    let [state] = *without_token(inputs) else {
        rule!("takes one state and a token, but was given {} inputs", inputs.len());
    };
    let new = (rank != owner).then(|| state.clone());
    Ok(new.into_iter().chain([token()]).collect())
}

/// All inputs but the token, which the first exchange of a graph has not.
fn without_token<'a, 'b>(inputs: &'a [&'b TensorType]) -> &'a [&'b TensorType] {
    match inputs.split_last() {
        Some((last, rest)) if **last == token() => rest,
        _ => inputs,
    }
}
