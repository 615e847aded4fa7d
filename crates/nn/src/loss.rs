//! Losses: from what the model says and what is true to one scalar, the mean. All are computed from logits, so that
//! nothing overflows. Logits and labels must have the same shape where they are compared element by element: a silent
//! broadcast of `f32[n]` against `f32[n,1]` is the classic wrong loss.

use memfit_ir::{Builder, DType, Result, ValueId};

/// What an output is compared with its labels by. All but [`Loss::Custom`] are known to the host too, which computes
/// them again when it evaluates: over the rows that are there, without those that only fill up a micro-batch.
///
/// | here | Keras | PyTorch |
/// |---|---|---|
/// | `SparseCrossEntropy` | `SparseCategoricalCrossentropy(from_logits=True)` | `CrossEntropyLoss` with class indices |
/// | `CrossEntropy` | `CategoricalCrossentropy(from_logits=True)` | `CrossEntropyLoss` with probabilities |
/// | `BinaryCrossEntropy` | `BinaryCrossentropy(from_logits=True)` | `BCEWithLogitsLoss` |
/// | `MeanSquaredError` | `MeanSquaredError` | `MSELoss` |
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
    /// One that only the graph knows: see [`Head::custom`](crate::Head::custom).
    Custom,
}

impl Loss {
    /// Appends the loss of an output, a scalar.
    pub fn append(self, b: &mut Builder, output: ValueId, label: ValueId) -> Result<ValueId> {
        match self {
            Loss::SparseCrossEntropy { smoothing } => sparse_cross_entropy(b, output, label, smoothing),
            Loss::CrossEntropy { smoothing } => cross_entropy(b, output, label, smoothing),
            Loss::BinaryCrossEntropy => binary_cross_entropy(b, output, label),
            Loss::MeanSquaredError => mean_squared_error(b, output, label),
            Loss::Custom => b.fail("a loss of one's own is given by its values: use Head::custom"),
        }
    }
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
    b.scope("loss", |b| {
        if b.ty(labels).dtype != DType::I32 {
            let given = b.ty(labels).clone();
            return b.fail(format!("sparse labels must be i32 classes, but are {given}; use cross_entropy"));
        }
        let rows = b.cross_entropy(logits, labels, smoothing)?;
        b.mean(rows)
    })
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
    b.scope("loss", |b| {
        same_shape(b, logits, labels)?;
        let rows = b.cross_entropy(logits, labels, smoothing)?;
        b.mean(rows)
    })
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
    b.scope("loss", |b| {
        same_shape(b, logits, labels)?;
        let elements = b.sigmoid_cross_entropy(logits, labels)?;
        b.mean(elements)
    })
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
    b.scope("loss", |b| {
        same_shape(b, prediction, target)?;
        b.mean_squared_error(prediction, target)
    })
}

fn same_shape(b: &Builder, given: ValueId, labels: ValueId) -> Result<()> {
    if b.ty(given) != b.ty(labels) {
        return b.fail(format!("the model gives {}, but the labels are {}", b.ty(given), b.ty(labels)));
    }
    Ok(())
}
