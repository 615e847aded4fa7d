//! The multi-layer perceptron: dense layers with ReLU between them.

use super::frame::classifier;
use super::{Forward, option};
use crate::error::Result;
use crate::layers::{Dense, dense};
use crate::{Initializer, Mode};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Features in, hidden widths, classes.
    pub sizes: Vec<usize>,
}

impl Default for Mlp {
    fn default() -> Self {
        Mlp { sizes: vec![784, 2048, 2048, 10] }
    }
}

impl Mlp {
    pub fn build(&self, batch: usize, _mode: Mode) -> Result<Forward> {
        let [features, units @ ..] = &self.sizes[..] else {
            return option("mlp", "it has no layers; give the sizes of features, hidden layers and classes".into());
        };
        classifier(batch, &[*features], |b, mut x| {
            if units.is_empty() {
                return b.fail(format!("an mlp of {:?} has no layer; give features and classes at least", self.sizes));
            }
            for (i, &n) in units.iter().enumerate() {
                x = dense(b, format!("fc{}", i + 1), x, Dense { init: Initializer::HE_NORMAL, ..Dense::new(n) })?;
                if i + 1 < units.len() {
                    x = b.relu(x)?;
                }
            }
            Ok(x)
        })
    }
}
