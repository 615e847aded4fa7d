//! The multi-layer perceptron: dense layers with ReLU between them.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

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
    /// From samples to logits, appended to a graph.
    pub fn logits(&self, b: &mut Builder, _mode: Mode, mut x: ValueId) -> GraphResult<ValueId> {
        let units = self.sizes.get(1..).unwrap_or_default();
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
    }
}
