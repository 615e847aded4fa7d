//! Data that some examples share.

use memfit::data::{BytePool, Dataset, Example, Tensor};
use memfit::ir::{TensorType, philox};

pub const CLASSES: usize = 10;

/// Ten patterns of 8×8, each seen through noise.
pub fn glyphs() -> Dataset {
    let patterns: Vec<f32> = philox::normal(3, "patterns", CLASSES * 64).collect();
    Dataset::from_fn(2048, move |index: usize, pool: &BytePool| {
        let class = index % CLASSES;
        let mut x = Tensor::zeros(TensorType::f32([8, 8, 1]), pool)?;
        let noise = philox::normal(index as u64, "noise", 64);
        let pattern = &patterns[class * 64..][..64];
        x.f32s_mut().iter_mut().zip(pattern).zip(noise).for_each(|((to, p), n)| *to = p + 1.2 * n);
        let y = Tensor::from_bytes(TensorType::i32([]), &(class as i32).to_le_bytes(), pool)?;
        Ok(Example::default().with("x", x).with("y", y))
    })
}
