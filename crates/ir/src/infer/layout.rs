//! Rules of reduce, layout and gather.

use super::{Types, broadcast, limit, needs_f32, needs_rank, one};
use crate::dtype::{DType, Shape, TensorType};
use crate::op::{Reduce, Slice};
use crate::rule;

pub fn reduce(r: &Reduce, x: &TensorType) -> Types {
    needs_f32("the input", x)?;
    if !r.axes.windows(2).all(|w| w[0] < w[1]) || r.axes.last().is_some_and(|&a| a >= x.shape.rank()) {
        rule!("the axes {:?} must ascend and be axes of {x}", r.axes);
    }
    if r.axes.iter().any(|&a| x.shape[a] == 0) {
        rule!("cannot reduce over an empty axis of {x}");
    }
    let dims = x.shape.iter().enumerate().filter_map(|(i, &d)| match (r.axes.contains(&i), r.keep) {
        (false, _) => Some(d),
        (true, true) => Some(1),
        (true, false) => None,
    });
    one(TensorType::new(x.dtype, dims.collect::<Vec<_>>()))
}

pub fn reshape(to: &Shape, x: &TensorType) -> Types {
    limit::shape(to)?;
    if to.elements() != x.elements() {
        rule!("{x} has {} elements, but {to} has {}", x.elements(), to.elements());
    }
    one(TensorType::new(x.dtype, to.clone()))
}

pub fn transpose(perm: &[usize], x: &TensorType) -> Types {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if sorted.len() != x.shape.rank() || sorted.iter().enumerate().any(|(i, &p)| i != p) {
        rule!("{perm:?} is not an order of the {} axes of {x}", x.shape.rank());
    }
    one(TensorType::new(x.dtype, perm.iter().map(|&p| x.shape[p]).collect::<Vec<_>>()))
}

pub fn slice(s: &Slice, x: &TensorType) -> Types {
    let inside = s.start.len() == x.shape.rank()
        && s.stop.len() == x.shape.rank()
        && (0..x.shape.rank()).all(|i| s.start[i] <= s.stop[i] && s.stop[i] <= x.shape[i]);
    if !inside {
        rule!("start {:?} and stop {:?} do not lie inside {x}", s.start, s.stop);
    }
    one(TensorType::new(x.dtype, s.start.iter().zip(&s.stop).map(|(a, b)| b - a).collect::<Vec<_>>()))
}

pub fn concat(axis: usize, inputs: &[&TensorType]) -> Types {
    let first = inputs[0];
    if axis >= first.shape.rank() {
        rule!("axis {axis} is not an axis of {first}");
    }
    let mut dims = first.shape.to_vec();
    for t in &inputs[1..] {
        let fits = t.dtype == first.dtype
            && t.shape.rank() == first.shape.rank()
            && (0..dims.len()).all(|i| i == axis || t.shape[i] == first.shape[i]);
        if !fits {
            rule!("{first} and {t} differ besides axis {axis}");
        }
        dims[axis] = dims[axis].saturating_add(t.shape[axis]);
    }
    one(TensorType::new(first.dtype, dims))
}

pub fn pad(pads: &[(usize, usize)], x: &TensorType) -> Types {
    if pads.len() != x.shape.rank() {
        rule!("{} pairs of padding were given for {x}", pads.len());
    }
    pads.iter().try_for_each(|&(before, after)| limit::extents("padding", &[before, after]))?;
    one(TensorType::new(x.dtype, x.shape.iter().zip(pads).map(|(d, (a, b))| d + a + b).collect::<Vec<_>>()))
}

pub fn broadcast_to(to: &Shape, x: &TensorType) -> Types {
    if broadcast(&x.shape, to).as_ref() != Some(to) {
        rule!("{x} does not broadcast to {to}");
    }
    one(TensorType::new(x.dtype, to.clone()))
}

pub fn gather(table: &TensorType, ids: &TensorType) -> Types {
    needs_f32("the table", table)?;
    needs_rank("the table", table, 2)?;
    if ids.dtype != DType::I32 {
        rule!("the ids must be i32, but are {ids}");
    }
    let mut dims = ids.shape.to_vec();
    dims.push(table.shape[1]);
    one(TensorType::f32(dims))
}

pub fn gather_grad(rows: usize, ids: &TensorType, dy: &TensorType) -> Types {
    needs_f32("the gradient", dy)?;
    if ids.dtype != DType::I32
        || dy.shape.rank() != ids.shape.rank() + 1
        || dy.shape[..ids.shape.rank()] != ids.shape[..]
    {
        rule!("the ids are {ids}, but the gradient is {dy}");
    }
    one(TensorType::f32([rows, dy.shape[ids.shape.rank()]]))
}
