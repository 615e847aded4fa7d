//! A forward pass: from named inputs to named outputs, each output with its loss, and the weighted sum of the losses.

use memfit_ir::op::{Input, Op, ReduceKind};
use memfit_ir::{Builder, DType, Graph, Result as GraphResult, ValueId};

use crate::error::Result;
use crate::loss::{Loss, weighted_mean};
use crate::model::Mode;

/// The name of the total loss among the outputs of a graph.
pub const TOTAL_LOSS: &str = "loss";

/// A model's graph from its inputs to its loss, and what each of its outputs is trained and evaluated by. Made by
/// [`Forward::new`]; or by hand, with any loss that is a scalar and an output called `loss`.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// Inputs, layers, losses. Its outputs are named.
    pub graph: Graph,
    /// What training makes smaller: a scalar, Σ weight · loss over the heads.
    pub loss: ValueId,
    /// What evaluation reads, by name.
    pub heads: Vec<HeadInfo>,
}

/// An output with its loss, while a graph is built: see [`Forward::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    name: String,
    output: ValueId,
    /// For a loss of one's own: one number for each row.
    losses: Option<ValueId>,
    loss: Loss,
    label: Option<ValueId>,
    weight: f32,
    sample_weights: Option<ValueId>,
    metrics: Vec<(String, ValueId)>,
}

/// The unit of a number that a model gives standardised: `mean` is 0 to it, and `mean + std` is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Of the training data.
    pub mean: f64,
    /// Positive.
    pub std: f64,
}

impl Unit {
    /// The number that a model is to give for this one.
    pub fn standardised(self, value: f64) -> f64 {
        (value - self.mean) / self.std
    }

    /// What a number of the model means.
    pub fn original(self, standardised: f64) -> f64 {
        self.mean + standardised * self.std
    }
}

/// An output of a model, what its loss is, and where its labels come from: all by name, so that it holds for every plan
/// of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadInfo {
    /// The head's own name; its losses and scores go by it.
    pub name: String,
    /// The output of the graph that is compared with the labels.
    pub output: String,
    /// The input of the graph that has the labels; none where the loss needs none.
    pub label: Option<String>,
    /// How they are compared.
    pub loss: Loss,
    /// Its share in the total loss.
    pub weight: f32,
    /// What the labels were measured in before they were standardised, one for each element of a row of the output; none
    /// where they are as they are. Evaluation is given labels in their own unit: errors are in it, and the loss is that of
    /// standardised ones, as in training.
    pub units: Vec<Unit>,
    /// Metrics besides those that come with the loss. In [`Mode::Eval`] the output `head/metric` has a number for each
    /// row; evaluation gives their mean.
    pub metrics: Vec<String>,
}

impl Head {
    /// An output that is compared with the labels of an input.
    pub fn new(name: impl Into<String>, output: ValueId, loss: Loss, label: ValueId) -> Head {
        let (losses, label) = (None, Some(label));
        Head { name: name.into(), output, losses, loss, label, weight: 1.0, sample_weights: None, metrics: Vec::new() }
    }

    /// An output with a loss of one's own. `losses` has the batch as its first axis; the loss is the mean of all its
    /// elements. That each row has its own is what lets evaluation leave out the rows that only fill up the last
    /// micro-batch.
    ///
    /// ```
    /// use memfit_ir::{Builder, TensorType};
    /// use memfit_nn::layers::{Dense, dense};
    /// use memfit_nn::{Forward, Head, Mode};
    ///
    /// // An autoencoder with an absolute error needs no labels.
    /// let mut b = Builder::new();
    /// let x = b.input("x", TensorType::f32([8, 16]))?;
    /// let code = dense(&mut b, "encoder", x, Dense::new(4))?;
    /// let y = dense(&mut b, "decoder", code, Dense::new(16))?;
    /// let difference = b.sub(y, x)?;
    /// let absolute = b.unary(memfit_ir::op::Unary::Abs, difference)?;
    /// let forward = Forward::new(b, Mode::Train, &[Head::custom("y", y, absolute)])?;
    /// assert_eq!(forward.heads[0].label, None);
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    pub fn custom(name: impl Into<String>, output: ValueId, losses: ValueId) -> Head {
        let (loss, losses, label) = (Loss::Custom, Some(losses), None);
        Head { name: name.into(), output, losses, loss, label, weight: 1.0, sample_weights: None, metrics: Vec::new() }
    }

    /// Its share in the total loss: 1 unless it is said.
    pub fn weight(self, weight: f32) -> Head {
        Head { weight, ..self }
    }

    /// A weight for each sample, by which its losses are multiplied before their mean is taken: see
    /// [`Loss::append_weighted`]. They are of training alone: evaluation counts all samples alike and reads no weights, so
    /// that a model has their input in [`Mode::Train`] only.
    ///
    /// ```
    /// use memfit_ir::{Builder, TensorType};
    /// use memfit_nn::layers::{Dense, dense};
    /// use memfit_nn::{Forward, Head, Loss, Mode, Model, from_fn};
    ///
    /// let weighted = from_fn("weighted", |batch, mode| {
    ///     let mut b = Builder::new();
    ///     let x = b.input("x", TensorType::f32([batch, 4]))?;
    ///     let class = b.input("class", TensorType::i32([batch]))?;
    ///     let logits = dense(&mut b, "fc", x, Dense::new(3))?;
    ///     let mut head = Head::new("logits", logits, Loss::SparseCrossEntropy { smoothing: 0.0 }, class);
    ///     if mode == Mode::Train {
    ///         head = head.sample_weights(b.input("weight", TensorType::f32([batch]))?);
    ///     }
    ///     Forward::new(b, mode, &[head])
    /// });
    /// assert!(weighted.build(8, Mode::Train)?.graph.input("weight").is_some());
    /// assert!(weighted.build(8, Mode::Eval)?.graph.input("weight").is_none());
    /// # Ok::<(), memfit_nn::Error>(())
    /// ```
    #[doc(alias = "sample_weight")]
    #[doc(alias = "class_weight")]
    pub fn sample_weights(self, weights: ValueId) -> Head {
        Head { sample_weights: Some(weights), ..self }
    }

    /// A metric of one's own, of which evaluation gives the mean. `values` has the batch as its first axis.
    pub fn metric(mut self, name: impl Into<String>, values: ValueId) -> Head {
        self.metrics.push((name.into(), values));
        self
    }

    /// Its loss as a scalar.
    fn scalar(&self, b: &mut Builder) -> GraphResult<ValueId> {
        match (self.losses, self.label, self.sample_weights) {
            (Some(losses), _, weights) => b.scope(TOTAL_LOSS, |b| {
                check_rows(b, losses, "losses")?;
                match weights {
                    Some(weights) => weighted_mean(b, losses, weights),
                    None => b.mean(losses),
                }
            }),
            (None, Some(label), None) => self.loss.append(b, self.output, label),
            (None, Some(label), Some(weights)) => self.loss.append_weighted(b, self.output, label, weights),
            (None, None, _) => b.fail("it has neither labels nor a loss of its own"),
        }
    }

    /// What evaluation reads besides the output, by the name that it has in the head.
    fn by_row(&self) -> impl Iterator<Item = (&str, ValueId)> {
        let losses = self.losses.map(|losses| (TOTAL_LOSS, losses));
        losses.into_iter().chain(self.metrics.iter().map(|(name, values)| (name.as_str(), *values)))
    }

    fn info(&self, b: &Builder) -> GraphResult<HeadInfo> {
        let label = match self.label.map(|v| b.graph().producer_op(v)) {
            None => None,
            Some(Op::Input(Input { name, .. })) => Some(name.clone()),
            Some(_) => return b.fail("its labels must be an input of the model"),
        };
        Ok(HeadInfo {
            name: self.name.clone(),
            output: self.name.clone(),
            label,
            loss: self.loss,
            weight: self.weight,
            units: Vec::new(),
            metrics: self.metrics.iter().map(|(name, _)| name.clone()).collect(),
        })
    }
}

impl HeadInfo {
    /// The output of the graph with the head's own loss: of a training step one number, where there are several heads;
    /// in evaluation one number for each row, where the loss is [`Loss::Custom`].
    pub fn loss_output(&self) -> String {
        format!("{}/{TOTAL_LOSS}", self.name)
    }

    /// The output of the graph with one of its [`metrics`](HeadInfo::metrics), a number for each row.
    pub fn metric_output(&self, metric: &str) -> String {
        format!("{}/{metric}", self.name)
    }
}

impl Forward {
    /// Ends a graph: appends the losses of its heads and their weighted sum, and names the outputs. Output `loss` is the
    /// total; every head has its output under its own name, and where there are several, `head/loss` is its own loss
    /// before it is weighted.
    ///
    /// It is what `model.compile(loss={…}, loss_weights={…}, metrics={…})` is in Keras. See [`Model`](crate::Model) for
    /// an example.
    pub fn new(mut b: Builder, mode: Mode, heads: &[Head]) -> Result<Forward> {
        check_heads(&b, heads)?;
        let infos = heads.iter().map(|head| head.info(&b)).collect::<GraphResult<Vec<HeadInfo>>>()?;
        let losses = match heads {
            // The only one: its loss is the model's.
            [head] => vec![head.scalar(&mut b)?],
            _ => heads.iter().map(|h| b.scope(&h.name, |b| h.scalar(b))).collect::<GraphResult<_>>()?,
        };
        let loss = b.scope(TOTAL_LOSS, |b| weighted_sum(b, heads, &losses))?;
        b.output(TOTAL_LOSS, loss);
        for ((head, info), own) in heads.iter().zip(&infos).zip(losses) {
            // In evaluation the host has the losses of the rows that count; the program's include those that fill up.
            if mode == Mode::Train && heads.len() > 1 {
                b.output(info.loss_output(), own);
            }
            b.output(&info.output, head.output);
            if mode == Mode::Eval {
                for (name, values) in head.by_row() {
                    let rows = b.scope(&head.name, |b| mean_by_row(b, values, name))?;
                    b.output(info.metric_output(name), rows);
                }
            }
        }
        Ok(Forward { graph: b.finish(), loss, heads: infos })
    }

    /// An output by its name.
    pub fn output(&self, name: &str) -> Option<ValueId> {
        self.graph.output(name)
    }
}

fn check_heads(b: &Builder, heads: &[Head]) -> GraphResult<()> {
    if heads.is_empty() {
        return b.fail("it has no head; give at least one output with its loss");
    }
    for (i, head) in heads.iter().enumerate() {
        let name = &head.name;
        if name.is_empty() || name == TOTAL_LOSS {
            return b.fail(format!("a head cannot be called \"{name}\"; \"{TOTAL_LOSS}\" is the sum of all"));
        }
        if heads[..i].iter().any(|other| other.name == *name) {
            return b.fail(format!("two heads are called \"{name}\""));
        }
        if !head.weight.is_finite() {
            return b.fail(format!("head \"{name}\" has the weight {}; give a finite number", head.weight));
        }
        if let Some((metric, _)) = head.metrics.iter().find(|(metric, _)| metric == TOTAL_LOSS) {
            return b.fail(format!("a metric of head \"{name}\" cannot be called \"{metric}\": that is its loss"));
        }
    }
    Ok(())
}

/// Σ weight · loss. Where the only weight is 1 nothing is appended.
fn weighted_sum(b: &mut Builder, heads: &[Head], losses: &[ValueId]) -> GraphResult<ValueId> {
    let mut sum = None;
    for (head, &loss) in heads.iter().zip(losses) {
        let part = if head.weight == 1.0 { loss } else { b.scale(loss, head.weight)? };
        sum = Some(match sum {
            None => part,
            Some(sum) => b.add(sum, part)?,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => b.fail("there is no loss"),
    }
}

fn check_rows(b: &Builder, values: ValueId, what: &str) -> GraphResult<()> {
    let ty = b.ty(values);
    if ty.dtype != DType::F32 || ty.shape.rank() == 0 {
        return b.fail(format!("{what} must be f32 with the batch as first axis, but is {ty}"));
    }
    Ok(())
}

/// One number for each row.
fn mean_by_row(b: &mut Builder, values: ValueId, what: &str) -> GraphResult<ValueId> {
    check_rows(b, values, what)?;
    let axes: Vec<usize> = (1..b.shape(values).len()).collect();
    if axes.is_empty() { Ok(values) } else { b.reduce(ReduceKind::Mean, values, &axes, false) }
}
