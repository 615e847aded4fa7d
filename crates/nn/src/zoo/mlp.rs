//! The multi-layer perceptron: dense layers with ReLU between them.

use memfit_ir::{Builder, Result as GraphResult, ValueId};

use super::frame::forward;
use super::{Labels, Network, Setting, Task, option};
use crate::Initializer;
use crate::error::Result;
use crate::forward::Forward;
use crate::layers::{Dense, dense, elements};
use crate::model::{Mode, Model};

/// Dense layers with ReLU between them.
///
/// ```
/// use memfit_nn::{Mode, Model, zoo::Mlp};
///
/// let mlp = Mlp { sizes: vec![784, 256, 10] };
/// assert_eq!(mlp.build(32, Mode::Train)?.graph.param_count(), 785 * 256 + 257 * 10);
/// # Ok::<(), memfit_nn::Error>(())
/// ```
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

impl Model for Mlp {
    fn name(&self) -> &str {
        "mlp"
    }

    fn build(&self, batch: usize, mode: Mode) -> Result<Forward> {
        forward(self, batch, mode, Labels::default())
    }
}

impl Network for Mlp {
    fn task(&self) -> Task {
        Task::Classes
    }

    fn input(&self) -> Result<Vec<usize>> {
        match self.sizes.first() {
            Some(&features) => Ok(vec![features]),
            None => option("mlp", "it has no layers; give the sizes of features, hidden layers and classes".into()),
        }
    }

    fn classes(&self) -> usize {
        self.sizes.last().copied().unwrap_or(0)
    }

    fn logits(&self, b: &mut Builder, _mode: Mode, mut x: ValueId) -> GraphResult<ValueId> {
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

    fn set(&mut self, setting: Setting) -> Result<()> {
        match setting {
            Setting::Input(sample) => match (self.sizes.first_mut(), elements(&sample)) {
                (Some(first), Some(features)) => *first = features,
                (None, _) => return option("mlp", "it has no layers; give its sizes first".into()),
                (_, None) => return option("mlp", format!("an input of {sample:?} is empty or too large")),
            },
            Setting::Classes(classes) => match self.sizes.last_mut() {
                Some(last) => *last = classes,
                None => return option("mlp", "it has no layers; give its sizes first".into()),
            },
            other => return Err(other.refuse("mlp")),
        }
        Ok(())
    }

    fn boxed(&self) -> Box<dyn Network> {
        Box::new(self.clone())
    }
}
