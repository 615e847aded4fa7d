//! Softmax, cross-entropy and gather.

use memfit_ir::op::{CrossEntropy, Softmax};
use memfit_ir::{DType, Op, Result as Built, ValueId};

use super::maker::{Made, Maker, Numbers, shrink};

/// Rows of any number of axes, and their length.
fn rows(m: &mut Maker) -> (Vec<usize>, usize) {
    let mut rows: Vec<usize> = (0..m.draws.draw(4)).map(|_| m.extent(&[1, 2, 3, 7, 20])).collect();
    let length = m.extent(&[1, 2, 3, 10, 16, 17, 33, 100, 130, 1000]);
    shrink(&mut rows, (20_000 / length).max(1));
    (rows, length)
}

fn logits(m: &mut Maker, rows: &[usize], length: usize) -> Built<ValueId> {
    m.f32(&[rows, &[length]].concat(), Numbers::Wide)
}

pub fn softmax(m: &mut Maker) -> Made {
    let (rows, length) = rows(m);
    let x = logits(m, &rows, length)?;
    let log = m.draws.flip();
    m.one(Op::Softmax(Softmax { log }), &[x])
}

pub fn cross_entropy(m: &mut Maker) -> Made {
    let (rows, classes) = rows(m);
    let x = logits(m, &rows, classes)?;
    let labels = if m.draws.flip() {
        m.fixed(DType::I32, &rows, Numbers::Below(classes))?
    } else {
        m.f32(&[&rows[..], &[classes]].concat(), Numbers::Positive)?
    };
    let smoothing = m.draws.pick(&[0.0, 0.1, 1.0]);
    m.one(Op::CrossEntropy(CrossEntropy { smoothing }), &[x, labels])
}

pub fn gather(m: &mut Maker) -> Made {
    let (height, width) = (m.extent(&[1, 2, 5, 100]), m.channels());
    let mut ids = m.shape(0..=3);
    shrink(&mut ids, 20_000 / width);
    let table = m.f32(&[height, width], Numbers::Normal)?;
    let ids = m.fixed(DType::I32, &ids, Numbers::Below(height))?;
    m.one(Op::Gather, &[table, ids])
}
