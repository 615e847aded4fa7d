//! Losses: from what the model says and what is true to one scalar, the mean, weighted where there are weights. All are
//! computed from logits, so that nothing overflows. Logits and labels must have the same shape where they are compared
//! element by element: a silent broadcast of `f32[n]` against `f32[n,1]` is the classic wrong loss.

use std::fmt;

use memfit_ir::op::{Binary, Unary};
use memfit_ir::{Builder, DType, Result, TensorType, ValueId};

use crate::error::{Error, Result as NnResult};

/// What an output is compared with its labels by. All but [`Loss::Custom`] are known to the host too, which computes
/// them again when it evaluates: over the rows that are there, without those that only fill up a micro-batch.
///
/// | here | Keras | PyTorch |
/// |---|---|---|
/// | `SparseCrossEntropy` | `SparseCategoricalCrossentropy(from_logits=True)` | `CrossEntropyLoss` with class indices |
/// | `CrossEntropy` | `CategoricalCrossentropy(from_logits=True)` | `CrossEntropyLoss` with probabilities |
/// | `BinaryCrossEntropy` | `BinaryCrossentropy(from_logits=True)` | `BCEWithLogitsLoss` |
/// | `MeanSquaredError` | `MeanSquaredError` | `MSELoss` |
/// | `MeanAbsoluteError` | `MeanAbsoluteError` | `L1Loss` |
/// | `Huber` | `Huber` | `HuberLoss` |
/// | `LogCosh` | `LogCosh` | |
/// | `Poisson` | `Poisson` of e to the output | `PoissonNLLLoss(log_input=True)` |
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Softmax over the last axis against one i32 class for each row of it: see [`sparse_cross_entropy`].
    SparseCrossEntropy {
        /// The share of each label that is spread over all classes.
        smoothing: f32,
    },
    /// Softmax over the last axis against a distribution over the classes: see [`cross_entropy`].
    CrossEntropy {
        /// The share of each label that is spread over all classes.
        smoothing: f32,
    },
    /// A sigmoid of each element against a label in 0…1: see [`binary_cross_entropy`].
    BinaryCrossEntropy,
    /// The squared difference to the labels: see [`mean_squared_error`].
    MeanSquaredError,
    /// The absolute difference: see [`mean_absolute_error`].
    MeanAbsoluteError,
    /// Half the squared difference up to delta, and linear beyond: see [`huber`].
    Huber {
        /// Positive and finite.
        delta: f32,
    },
    /// The logarithm of the hyperbolic cosine of the difference: see [`log_cosh`].
    LogCosh,
    /// Counts against the logarithm of their rate: see [`poisson`].
    Poisson,
    /// One that only the graph knows: see [`Head::custom`](crate::Head::custom).
    Custom,
}

/// The losses that have a name, each with what else it is called.
const NAMES: [(&str, &[&str], Loss); 6] = [
    ("cross-entropy", &["cross_entropy"], Loss::SparseCrossEntropy { smoothing: 0.0 }),
    ("mse", &["mean_squared_error", "l2"], Loss::MeanSquaredError),
    ("mae", &["mean_absolute_error", "l1"], Loss::MeanAbsoluteError),
    (HUBER, &[], Loss::Huber { delta: 1.0 }),
    ("log-cosh", &["log_cosh", "logcosh"], Loss::LogCosh),
    ("poisson", &[], Loss::Poisson),
];
const HUBER: &str = "huber";

impl Loss {
    /// The loss of this name: cross-entropy, mse, mae, huber, log-cosh or poisson; "huber:0.5" has another delta than 1.
    ///
    /// ```
    /// use memfit_nn::Loss;
    ///
    /// assert_eq!(Loss::from_name("huber:0.5")?, Loss::Huber { delta: 0.5 });
    /// assert!(Loss::from_name("hubert").unwrap_err().to_string().contains("huber"));
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn from_name(name: &str) -> NnResult<Loss> {
        if let Some(delta) = name.strip_prefix(HUBER).and_then(|rest| rest.strip_prefix(':')) {
            let number = delta.trim().parse().ok().filter(|delta: &f32| *delta > 0.0 && delta.is_finite());
            let problem = || format!("huber:{delta} has no delta; write a number above 0, such as huber:0.5");
            return number
                .map(|delta| Loss::Huber { delta })
                .ok_or_else(|| Error::Option { model: "loss", problem: problem() });
        }
        let found = NAMES.iter().find(|(known, others, _)| *known == name || others.contains(&name));
        found.map(|(_, _, loss)| *loss).ok_or_else(|| Error::Unknown {
            what: "loss",
            given: name.to_string(),
            known: NAMES.iter().map(|(name, ..)| *name).collect(),
        })
    }

    /// Whether it compares numbers with numbers that are to be predicted, and no classes.
    pub const fn is_of_values(self) -> bool {
        match self {
            Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::Huber { .. } | Loss::LogCosh | Loss::Poisson => {
                true
            }
            Loss::SparseCrossEntropy { .. } | Loss::CrossEntropy { .. } | Loss::BinaryCrossEntropy | Loss::Custom => {
                false
            }
        }
    }

    /// What is predicted, of an output: the same number, or e to it where that is the logarithm of a rate.
    pub fn prediction(self, output: f64) -> f64 {
        if self == Loss::Poisson { output.exp() } else { output }
    }

    /// Appends the loss of an output, a scalar.
    pub fn append(self, b: &mut Builder, output: ValueId, label: ValueId) -> Result<ValueId> {
        b.scope(SCOPE, |b| {
            let losses = self.elements(b, output, label)?;
            b.mean(losses)
        })
    }

    /// The same with a weight for each sample, or for each of its labels: f32 of the first axes that labels have. The loss is
    /// the mean of weight · loss, so that the weights are divided by their number and not by their sum, as in Keras; and
    /// weights that are all 1 change no bit.
    ///
    /// ```
    /// use memfit_ir::{Builder, TensorType};
    /// use memfit_nn::Loss;
    ///
    /// let mut b = Builder::new();
    /// let price = b.input("price", TensorType::f32([32, 2]))?;
    /// let target = b.input("target", TensorType::f32([32, 2]))?;
    /// let weights = b.input("weights", TensorType::f32([32]))?;
    /// let loss = Loss::Huber { delta: 1.0 }.append_weighted(&mut b, price, target, weights)?;
    /// assert_eq!(b.shape(loss), []);
    /// # // One for each of other samples.
    /// # let other = b.input("other", TensorType::f32([16]))?;
    /// # assert!(Loss::LogCosh.append_weighted(&mut b, price, target, other).is_err());
    /// # Ok::<(), memfit_ir::Error>(())
    /// ```
    #[doc(alias = "sample_weight")]
    #[doc(alias = "class_weight")]
    pub fn append_weighted(
        self,
        b: &mut Builder,
        output: ValueId,
        label: ValueId,
        weights: ValueId,
    ) -> Result<ValueId> {
        b.scope(SCOPE, |b| {
            let losses = self.elements(b, output, label)?;
            weighted_mean(b, losses, weights)
        })
    }

    /// The losses of which the mean is the loss: one for each row of logits, or for each element.
    fn elements(self, b: &mut Builder, output: ValueId, label: ValueId) -> Result<ValueId> {
        match self {
            Loss::SparseCrossEntropy { smoothing } => {
                if b.ty(label).dtype != DType::I32 {
                    let given = b.ty(label).clone();
                    return b.fail(format!("sparse labels must be i32 classes, but are {given}; use cross_entropy"));
                }
                return b.cross_entropy(output, label, smoothing);
            }
            Loss::Custom => return b.fail("a loss of one's own is given by its values: use Head::custom"),
            _ => same_shape(b, output, label)?,
        }
        match self {
            Loss::SparseCrossEntropy { smoothing } | Loss::CrossEntropy { smoothing } => {
                b.cross_entropy(output, label, smoothing)
            }
            Loss::BinaryCrossEntropy => b.sigmoid_cross_entropy(output, label),
            Loss::Poisson => {
                let (rate, product) = (b.unary(Unary::Exp, output)?, b.mul(label, output)?);
                b.sub(rate, product)
            }
            Loss::MeanSquaredError | Loss::MeanAbsoluteError | Loss::Huber { .. } | Loss::LogCosh | Loss::Custom => {
                let difference = b.sub(output, label)?;
                self.of_difference(b, difference)
            }
        }
    }

    /// Of a prediction and what is true, by their difference alone.
    fn of_difference(self, b: &mut Builder, d: ValueId) -> Result<ValueId> {
        if self == Loss::MeanSquaredError {
            return b.mul(d, d);
        }
        let distance = b.unary(Unary::Abs, d)?;
        match self {
            Loss::Huber { delta } => {
                if !(delta > 0.0 && delta.is_finite()) {
                    return b.fail(format!("the delta of a huber loss must be a number above 0, but is {delta}"));
                }
                // q (|d| − q/2), where q is no more than delta.
                let delta = b.constant(delta)?;
                let q = b.binary(Binary::Min, distance, delta)?;
                let half = b.scale(q, 0.5)?;
                let rest = b.sub(distance, half)?;
                b.mul(q, rest)
            }
            Loss::LogCosh => {
                // |d| + log(1 + e^−2|d|) − log 2, which does not overflow.
                let twice = b.scale(distance, -2.0)?;
                let rest = b.unary(Unary::Softplus, twice)?;
                let sum = b.add(distance, rest)?;
                let offset = b.constant(-std::f32::consts::LN_2)?;
                b.add(sum, offset)
            }
            _ => Ok(distance),
        }
    }
}

/// As [`Loss::from_name`] reads it, where it has a name.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Loss::SparseCrossEntropy { .. } | Loss::CrossEntropy { .. } => "cross-entropy",
            Loss::BinaryCrossEntropy => "binary cross-entropy",
            Loss::MeanSquaredError => "mse",
            Loss::MeanAbsoluteError => "mae",
            Loss::Huber { delta: 1.0 } => HUBER,
            Loss::Huber { delta } => return write!(f, "{HUBER}:{delta}"),
            Loss::LogCosh => "log-cosh",
            Loss::Poisson => "poisson",
            Loss::Custom => "its own",
        })
    }
}

/// Where losses stand in a graph.
const SCOPE: &str = "loss";

/// The mean of weight · loss; weights have the first axes of the losses.
pub(crate) fn weighted_mean(b: &mut Builder, losses: ValueId, weights: ValueId) -> Result<ValueId> {
    let (shape, given) = (b.shape(losses).to_vec(), b.ty(weights).clone());
    let rank = given.shape.rank();
    if given.dtype != DType::F32 || rank == 0 || !shape.starts_with(&given.shape) {
        let wanted = TensorType::f32([shape.first().copied().unwrap_or(1)]);
        return b.fail(format!("weights must be one for each sample, {wanted}, but are {given}"));
    }
    let mut aligned = given.shape.to_vec();
    aligned.resize(shape.len(), 1);
    let weights = if rank == shape.len() { weights } else { b.reshape(weights, aligned)? };
    let weighted = b.mul(losses, weights)?;
    b.mean(weighted)
}

/// Softmax cross-entropy with i32 classes, averaged over all rows: −log softmax(logits)\[label\]. `smoothing` is spread
/// over all classes, as in Keras and PyTorch.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::sparse_cross_entropy;
///
/// let mut b = Builder::new();
/// let logits = b.input("logits", TensorType::f32([32, 10]))?;
/// let labels = b.input("labels", TensorType::i32([32]))?;
/// let loss = sparse_cross_entropy(&mut b, logits, labels, 0.1)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn sparse_cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId, smoothing: f32) -> Result<ValueId> {
    Loss::SparseCrossEntropy { smoothing }.append(b, logits, labels)
}

/// Softmax cross-entropy with a distribution over the classes for every row, averaged over all rows: for mixed samples
/// and for teachers.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::cross_entropy;
///
/// let mut b = Builder::new();
/// let logits = b.input("logits", TensorType::f32([32, 10]))?;
/// let labels = b.input("labels", TensorType::f32([32, 10]))?;
/// let loss = cross_entropy(&mut b, logits, labels, 0.0)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId, smoothing: f32) -> Result<ValueId> {
    Loss::CrossEntropy { smoothing }.append(b, logits, labels)
}

/// Sigmoid cross-entropy with labels in 0…1, averaged over all elements: several independent yes or no, such as masks.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::binary_cross_entropy;
///
/// let mut b = Builder::new();
/// let logits = b.input("logits", TensorType::f32([4, 64, 64, 1]))?;
/// let masks = b.input("masks", TensorType::f32([4, 64, 64, 1]))?;
/// let loss = binary_cross_entropy(&mut b, logits, masks)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn binary_cross_entropy(b: &mut Builder, logits: ValueId, labels: ValueId) -> Result<ValueId> {
    Loss::BinaryCrossEntropy.append(b, logits, labels)
}

/// The mean of (prediction − target)² over all elements.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::mean_squared_error;
///
/// let mut b = Builder::new();
/// let price = b.input("price", TensorType::f32([32, 1]))?;
/// let target = b.input("target", TensorType::f32([32, 1]))?;
/// let loss = mean_squared_error(&mut b, price, target)?;
/// assert_eq!(b.shape(loss), []);
/// # // Shapes that only broadcast are refused.
/// # let flat = b.input("flat", TensorType::f32([32]))?;
/// # assert!(mean_squared_error(&mut b, price, flat).is_err());
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn mean_squared_error(b: &mut Builder, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    Loss::MeanSquaredError.append(b, prediction, target)
}

/// The mean of |prediction − target| over all elements: of noise with a median, and less moved by outliers than squares.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::mean_absolute_error;
///
/// let mut b = Builder::new();
/// let given = b.input("given", TensorType::f32([32, 1]))?;
/// let target = b.input("target", TensorType::f32([32, 1]))?;
/// let loss = mean_absolute_error(&mut b, given, target)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn mean_absolute_error(b: &mut Builder, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    Loss::MeanAbsoluteError.append(b, prediction, target)
}

/// The mean of (prediction − target)² ÷ 2 where that difference is at most `delta`, and of delta · (|difference| − delta ÷ 2)
/// where it is more: as Keras and PyTorch have it.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::huber;
///
/// let mut b = Builder::new();
/// let given = b.input("given", TensorType::f32([32, 1]))?;
/// let target = b.input("target", TensorType::f32([32, 1]))?;
/// let loss = huber(&mut b, given, target, 1.0)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn huber(b: &mut Builder, prediction: ValueId, target: ValueId, delta: f32) -> Result<ValueId> {
    Loss::Huber { delta }.append(b, prediction, target)
}

/// The mean of log cosh(prediction − target): half the square of a small difference, and a large one less log 2.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::log_cosh;
///
/// let mut b = Builder::new();
/// let given = b.input("given", TensorType::f32([32, 1]))?;
/// let target = b.input("target", TensorType::f32([32, 1]))?;
/// let loss = log_cosh(&mut b, given, target)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn log_cosh(b: &mut Builder, prediction: ValueId, target: ValueId) -> Result<ValueId> {
    Loss::LogCosh.append(b, prediction, target)
}

/// The mean of e^output − target · output: −log of the chance of a count, less what does not depend on the model, where the
/// output is the logarithm of the rate. Targets are 0 or more.
///
/// ```
/// use memfit_ir::{Builder, TensorType};
/// use memfit_nn::loss::poisson;
///
/// let mut b = Builder::new();
/// let given = b.input("given", TensorType::f32([32, 1]))?;
/// let target = b.input("target", TensorType::f32([32, 1]))?;
/// let loss = poisson(&mut b, given, target)?;
/// assert_eq!(b.shape(loss), []);
/// # Ok::<(), memfit_ir::Error>(())
/// ```
pub fn poisson(b: &mut Builder, log_rate: ValueId, target: ValueId) -> Result<ValueId> {
    Loss::Poisson.append(b, log_rate, target)
}

fn same_shape(b: &Builder, given: ValueId, labels: ValueId) -> Result<()> {
    if b.ty(given) != b.ty(labels) {
        return b.fail(format!("the model gives {}, but the labels are {}", b.ty(given), b.ty(labels)));
    }
    Ok(())
}
