//! Pooling and upsampling.

use memfit_ir::Op;
use memfit_ir::op::{Pad2, Upsample, UpsampleMode, Window};

use super::maker::{Made, Maker, Numbers};

/// A window and an image that it fits into. Strides may be larger than the window.
fn pool(m: &mut Maker) -> (Window, [usize; 4]) {
    let size: [usize; 2] = std::array::from_fn(|_| 1 + m.draws.draw(4));
    let stride = std::array::from_fn(|_| 1 + m.draws.draw(4));
    let pad = if m.draws.flip() {
        Pad2::NONE
    } else {
        let [h, w] = size;
        Pad2 { top: m.draws.draw(h), bottom: m.draws.draw(h), left: m.draws.draw(w), right: m.draws.draw(w) }
    };
    let image = [
        m.batch(),
        m.side().max(size[0].saturating_sub(pad.top).max(1)),
        m.side().max(size[1].saturating_sub(pad.left).max(1)),
        m.channels(),
    ];
    (Window { size, stride, pad }, image)
}

pub fn max_pool(m: &mut Maker) -> Made {
    let (window, image) = pool(m);
    let ties = m.for_kernels() && m.draws.flip();
    let x = m.f32(&image, if ties { Numbers::Few } else { Numbers::Normal })?;
    m.one(Op::MaxPool(window), &[x])
}

pub fn avg_pool(m: &mut Maker) -> Made {
    let (window, image) = pool(m);
    let x = m.f32(&image, Numbers::Normal)?;
    m.one(Op::AvgPool(window), &[x])
}

pub fn upsample(m: &mut Maker) -> Made {
    let mode = m.draws.pick(&UpsampleMode::ALL);
    let factor = std::array::from_fn(|_| 1 + m.draws.draw(4));
    let image = [m.batch(), m.side(), m.side(), m.channels()];
    let x = m.f32(&image, Numbers::Normal)?;
    m.one(Op::Upsample(Upsample { mode, factor }), &[x])
}
