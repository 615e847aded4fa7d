//! Op cases: the forward graph of one op, from its name, its attributes and the shapes of its tensors.

use std::collections::HashMap;

use memfit_ir::op::*;
use memfit_ir::{Builder, DType, Graph, Op, TensorType, ValueId};
use memfit_transform::{Cotangent, gradients, prune};

use super::{Attrs, Named};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

#[derive(Clone, Debug)]
pub struct OpCase {
    pub name: String,
    pub op: String,
    pub attrs: Attrs,
    pub inputs: Named,
    pub out: Tensor,
    /// The gradient that arrives at the output.
    pub cotangent: Option<Tensor>,
    /// The gradient of Σ(out · cotangent) by these inputs.
    pub grads: Named,
}

impl OpCase {
    /// The forward graph: an input `in/NAME` for every input, `ct` for the cotangent, and the output `out`.
    pub fn graph(&self) -> Result<Graph> {
        let mut builder = OpBuilder { case: self, b: Builder::new(), inputs: HashMap::new() };
        for (name, t) in &self.inputs {
            let v = builder.b.input(&format!("in/{name}"), t.ty.clone()).map_err(|e| self.located(e))?;
            builder.inputs.insert(name, v);
        }
        if let Some(t) = &self.cotangent {
            builder.b.input("ct", t.ty.clone()).map_err(|e| self.located(e))?;
        }
        let out = builder.build()?;
        builder.b.output("out", out);
        Ok(builder.b.finish())
    }

    /// The forward graph and an output `grad/NAME` for every name in `grads`.
    pub fn graph_with_gradients(&self) -> Result<Graph> {
        let graph = self.graph()?;
        let (Some(out), Some(ct)) = (graph.output("out"), graph.input("ct")) else { return Ok(graph) };
        let wrt = |name: &String| {
            let missing = || self.problem(format!("grads names \"{name}\", which is not an input"));
            graph.input(&format!("in/{name}")).ok_or_else(missing)
        };
        let wrt: Vec<ValueId> = self.grads.keys().map(wrt).collect::<Result<_>>()?;
        let mut found = gradients(&graph, &[(out, Cotangent::Value(ct))], &wrt)?;
        for (name, (given, &input)) in self.grads.keys().zip(found.of.into_iter().zip(&wrt)) {
            let gradient = match given {
                Some(v) => v,
                // The output does not depend on it.
                None => zeros_like(&mut found.graph, input)?,
            };
            found.graph.outputs.push((format!("grad/{name}"), gradient));
        }
        Ok(prune(&found.graph))
    }

    /// The tensors for the inputs of [`OpCase::graph`].
    pub fn feeds(&self) -> HashMap<String, Tensor> {
        let inputs = self.inputs.iter().map(|(name, t)| (format!("in/{name}"), t.clone()));
        inputs.chain(self.cotangent.clone().map(|t| ("ct".to_string(), t))).collect()
    }

    fn located(&self, source: memfit_ir::Error) -> Error {
        Error::CaseGraph { case: self.name.clone(), source }
    }

    fn problem(&self, problem: String) -> Error {
        Error::Case { case: self.name.clone(), problem }
    }
}

/// Of a sequence to itself, which the IR has as one op: queries, keys and values are put side by side first.
fn packed_attention(b: &mut Builder, v: &[ValueId], a: Attention) -> memfit_ir::Result<ValueId> {
    let mut parts = Vec::new();
    for &v in v {
        let [batch, heads, sequence, dim] = match *b.shape(v) {
            [batch, heads, sequence, dim] => [batch, heads, sequence, dim],
            _ => return b.fail(format!("q, k and v must be batch, heads, sequence, dim, but one is {}", b.ty(v))),
        };
        let by_position = b.transpose(v, &[0, 2, 1, 3])?;
        parts.push(b.reshape(by_position, [batch, sequence, 1, heads, dim])?);
    }
    let qkv = b.concat(&parts, 2)?;
    let y = b.op(Op::Attention(a), &[qkv])?;
    b.transpose(y, &[0, 2, 1, 3])
}

/// Of one sequence to another, which the IR has no op for.
fn attention_across(b: &mut Builder, v: &[ValueId], scale: f32) -> memfit_ir::Result<ValueId> {
    let scores = b.matmul_with(v[0], v[1], MatMul { transpose_a: false, transpose_b: true })?;
    let scores = b.scale(scores, scale)?;
    let last = b.shape(scores).len() - 1;
    let weights = b.softmax(scores, last, false)?;
    b.matmul(weights, v[2])
}

fn zeros_like(graph: &mut Graph, v: ValueId) -> Result<ValueId> {
    let TensorType { dtype, shape } = graph.ty(v).clone();
    let node = graph.push(Op::Fill(Fill { value: 0.0, dtype, shape }), &[], "")?;
    Ok(graph.node(node).outputs[0])
}

/// Names that cases give to ops which the IR calls otherwise.
fn canonical(op: &str) -> &str {
    match op {
        "gelu" => "gelu_erf",
        "swish" => "silu",
        "minimum" => "min",
        "maximum" => "max",
        "equal" => "eq",
        "not_equal" => "ne",
        "less" => "lt",
        "less_equal" => "le",
        "greater" => "gt",
        "greater_equal" => "ge",
        "where" => "select",
        "embedding" => "gather",
        "mse" => "mean_squared_error",
        "cross_entropy" | "sparse_softmax_cross_entropy" => "softmax_cross_entropy",
        "sigmoid_binary_cross_entropy" => "sigmoid_cross_entropy",
        other => other,
    }
}

struct OpBuilder<'a> {
    case: &'a OpCase,
    b: Builder,
    inputs: HashMap<&'a str, ValueId>,
}

type Made = Result<ValueId>;

impl OpBuilder<'_> {
    fn build(&mut self) -> Made {
        let op = canonical(&self.case.op);
        if let Some(made) = self.elementwise(op)? {
            return Ok(made);
        }
        if let Some(&kind) = ReduceKind::ALL.iter().find(|k| k.name() == op) {
            return self.reduce(kind);
        }
        match op {
            "select" => self.select(),
            "cast" => self.cast(),
            "reshape" | "broadcast" => self.reshape(op),
            "transpose" => self.transpose(),
            "slice" => self.slice(),
            "concat" => self.concat(),
            "pad" => self.pad(),
            "matmul" => self.matmul(),
            "conv2d" | "depthwise_conv2d" => self.conv(op),
            "conv2d_transpose" => self.conv_transpose(),
            "attention" => self.attention(),
            "max_pool" | "avg_pool" => self.pool(op),
            "global_avg_pool" => self.with(&["x"], |b, v| b.global_avg_pool(v[0])),
            "global_max_pool" => self.with(&["x"], |b, v| b.global_max_pool(v[0])),
            "upsample_nearest" | "upsample_bilinear" => self.upsample(op),
            "batch_norm" | "batch_norm_inference" => self.batch_norm(op),
            "layer_norm" | "rms_norm" | "group_norm" => self.row_norm(op),
            "softmax" | "log_softmax" => self.softmax(op),
            "softmax_cross_entropy" | "sigmoid_cross_entropy" | "mean_squared_error" => self.loss(op),
            "gather" => self.gather(),
            _ => Err(self.case.problem(format!("the op \"{}\" is not known", self.case.op))),
        }
    }

    // ---- inputs and errors -------------------------------------------------------------------------------------------

    /// An input by the first of its names that the case has: "x|a".
    fn input(&self, names: &str) -> Made {
        names.split('|').find_map(|n| self.inputs.get(n)).copied().ok_or_else(|| {
            let given: Vec<&str> = self.case.inputs.keys().map(String::as_str).collect();
            self.case.problem(format!("there is no input {} among {}", names.replace('|', " or "), given.join(", ")))
        })
    }

    fn with(&mut self, names: &[&str], f: impl FnOnce(&mut Builder, &[ValueId]) -> memfit_ir::Result<ValueId>) -> Made {
        let inputs: Vec<ValueId> = names.iter().map(|n| self.input(n)).collect::<Result<_>>()?;
        f(&mut self.b, &inputs).map_err(|e| self.case.located(e))
    }

    fn rank(&self, v: ValueId) -> usize {
        self.b.shape(v).len()
    }

    // ---- elementwise -------------------------------------------------------------------------------------------------

    fn elementwise(&mut self, op: &str) -> Result<Option<ValueId>> {
        // As a loss it has a reduction of its own.
        if op == Binary::SigmoidCrossEntropy.name() {
            return Ok(None);
        }
        if let Some(u) = unary_named(op, &self.case.attrs)? {
            return self.with(&["x"], |b, v| b.unary(u, v[0])).map(Some);
        }
        if let Some(&binary) = Binary::ALL.iter().find(|b| b.name() == op) {
            return self.with(&["x|a", "y|b"], |b, v| b.binary(binary, v[0], v[1])).map(Some);
        }
        if let Some(&compare) = Compare::ALL.iter().find(|c| c.name() == op) {
            return self.with(&["x|a", "y|b"], |b, v| b.compare(compare, v[0], v[1])).map(Some);
        }
        Ok(None)
    }

    fn select(&mut self) -> Made {
        self.with(&["condition|cond|mask|c", "x|a", "y|b"], |b, v| {
            let mut condition = v[0];
            // Golden booleans are stored as integers.
            let dtype = b.ty(condition).dtype;
            if dtype != DType::U8 {
                let zero = b.fill(0.0, TensorType::new(dtype, []))?;
                condition = b.compare(Compare::Ne, condition, zero)?;
            }
            b.select(condition, v[1], v[2])
        })
    }

    fn cast(&mut self) -> Made {
        let attrs = &self.case.attrs;
        let name: String = attrs.present("to", attrs.any(&["to", "dtype"])?)?;
        let short = match name.as_str() {
            "float32" => "f32",
            "float16" => "f16",
            "bfloat16" => "bf16",
            "int32" => "i32",
            "uint8" | "bool" => "u8",
            other => other,
        };
        let to = DType::from_name(short)
            .ok_or_else(|| attrs.wrong("to", format!("is \"{name}\", which is not an element type")))?;
        self.with(&["x"], |b, v| b.cast(v[0], to))
    }

    // ---- reduce, layout ----------------------------------------------------------------------------------------------

    fn reduce(&mut self, kind: ReduceKind) -> Made {
        let rank = self.rank(self.input("x")?);
        let attrs = &self.case.attrs;
        let axes = match attrs.axes("axes", rank)? {
            Some(axes) => axes,
            None => attrs.axes("axis", rank)?.unwrap_or_else(|| (0..rank).collect()),
        };
        let keep = attrs.any(&["keep", "keepdims", "keep_dims", "keepdim"])?.unwrap_or(false);
        self.with(&["x"], |b, v| b.reduce(kind, v[0], &axes, keep))
    }

    fn reshape(&mut self, op: &str) -> Made {
        // The shape that was made says it too.
        let shape: Vec<usize> = self.case.attrs.get("shape")?.unwrap_or_else(|| self.case.out.shape().to_vec());
        self.with(&["x"], |b, v| if op == "reshape" { b.reshape(v[0], shape) } else { b.broadcast(v[0], shape) })
    }

    fn transpose(&mut self) -> Made {
        let rank = self.rank(self.input("x")?);
        let perm = self.case.attrs.axes("perm", rank)?.unwrap_or_else(|| (0..rank).rev().collect());
        self.with(&["x"], |b, v| b.transpose(v[0], &perm))
    }

    fn slice(&mut self) -> Made {
        let start: Vec<usize> = self.case.attrs.required("start")?;
        let stop: Vec<usize> = self.case.attrs.required("stop")?;
        self.with(&["x"], |b, v| b.slice(v[0], &start, &stop))
    }

    fn concat(&mut self) -> Made {
        // In the order of their names.
        let all: Vec<ValueId> = self.case.inputs.keys().map(|n| self.inputs[n.as_str()]).collect();
        let rank = all.first().map_or(0, |&v| self.rank(v));
        let attrs = &self.case.attrs;
        let axis = attrs.present("axis", attrs.axis("axis", rank)?)?;
        self.b.concat(&all, axis).map_err(|e| self.case.located(e))
    }

    fn pad(&mut self) -> Made {
        let pads: Vec<(usize, usize)> = self.case.attrs.required("pads")?;
        self.with(&["x"], |b, v| b.pad(v[0], &pads))
    }

    // ---- contractions ------------------------------------------------------------------------------------------------

    fn matmul(&mut self) -> Made {
        let flag = |name: &str| self.case.attrs.get(name).map(|f| f.unwrap_or(false));
        let m = MatMul { transpose_a: flag("transpose_a")?, transpose_b: flag("transpose_b")? };
        self.with(&["x|a", "y|b|w"], |b, v| b.matmul_with(v[0], v[1], m))
    }

    fn conv(&mut self, op: &str) -> Made {
        let x = self.input("x")?;
        let channels = self.b.shape(x).last().copied().unwrap_or(1);
        let c = self.case.attrs.conv(if op == "depthwise_conv2d" { channels } else { 1 })?;
        self.with(&["x", "w"], |b, v| b.conv(v[0], v[1], c))
    }

    fn conv_transpose(&mut self) -> Made {
        let conv = self.case.attrs.conv(1)?;
        // A stride leaves several sizes possible; the output tells which was meant.
        let &[_, h, w, _] = self.case.out.shape() else {
            return Err(self.case.problem(format!("the output {} is not an image", self.case.out.ty)));
        };
        self.with(&["x", "w"], |b, v| b.conv_transpose(v[0], v[1], ConvTranspose { conv, size: [h, w] }))
    }

    fn attention(&mut self) -> Made {
        let attrs = &self.case.attrs;
        if let Some(layout) = attrs.get::<String>("layout")?
            && layout != "batch,heads,seq,dim"
        {
            return Err(attrs.wrong("layout", format!("is \"{layout}\"; only batch,heads,seq,dim is known")));
        }
        let causal = attrs.get("causal")?.unwrap_or(false);
        let scale: Option<f32> = attrs.get("scale")?;
        let [q, k, v] = [self.input("q")?, self.input("k")?, self.input("v")?];
        let alike = self.b.ty(q) == self.b.ty(k) && self.b.ty(k) == self.b.ty(v);
        if causal && !alike {
            return Err(self.case.problem("causal attention needs q, k and v of one shape".into()));
        }
        let dim = self.b.shape(q).last().copied().unwrap_or(1);
        let scale = scale.unwrap_or(1.0 / (dim as f32).sqrt());
        self.with(&["q", "k", "v"], |b, v| match alike {
            true => packed_attention(b, v, Attention { causal, scale }),
            false => attention_across(b, v, scale),
        })
    }

    // ---- windows -----------------------------------------------------------------------------------------------------

    fn pool(&mut self, op: &str) -> Made {
        let attrs = &self.case.attrs;
        let size = attrs.present("size", attrs.pair("size")?)?;
        let window = Window { size, stride: attrs.pair("stride")?.unwrap_or(size), pad: attrs.pad()? };
        self.with(&["x"], |b, v| if op == "max_pool" { b.max_pool(v[0], window) } else { b.avg_pool(v[0], window) })
    }

    fn upsample(&mut self, op: &str) -> Made {
        let attrs = &self.case.attrs;
        if attrs.get("align_corners")? == Some(true) {
            return Err(attrs.wrong("align_corners", "is true; only half-pixel centres are known".into()));
        }
        let factor = attrs.pair("factor")?.unwrap_or([2, 2]);
        let mode = if op == "upsample_nearest" { UpsampleMode::Nearest } else { UpsampleMode::Bilinear };
        self.with(&["x"], |b, v| b.upsample(v[0], mode, factor))
    }

    // ---- norms, softmax, losses, gather ------------------------------------------------------------------------------

    fn batch_norm(&mut self, op: &str) -> Made {
        let eps = self.case.attrs.get("eps")?.unwrap_or(1e-3);
        if op == "batch_norm" {
            return self.with(&["x", "scale", "bias"], |b, v| Ok(b.batch_norm(v[0], v[1], v[2], eps)?[0]));
        }
        self.with(&["x", "mean", "var", "scale", "bias"], |b, v| b.op(Op::BatchApply(Eps(eps)), v))
    }

    fn row_norm(&mut self, op: &str) -> Made {
        let eps = self.case.attrs.get("eps")?.unwrap_or(1e-5);
        match op {
            "layer_norm" => self.with(&["x", "scale", "bias"], |b, v| b.layer_norm(v[0], v[1], v[2], eps)),
            "rms_norm" => self.with(&["x", "scale"], |b, v| b.rms_norm(v[0], v[1], eps)),
            _ => {
                let groups = self.case.attrs.required("groups")?;
                self.with(&["x", "scale", "bias"], |b, v| b.group_norm(v[0], v[1], v[2], groups, eps))
            }
        }
    }

    fn softmax(&mut self, op: &str) -> Made {
        let rank = self.rank(self.input("x")?);
        let axis = self.case.attrs.axis("axis", rank)?.unwrap_or(rank.saturating_sub(1));
        self.with(&["x"], |b, v| b.softmax(v[0], axis, op == "log_softmax"))
    }

    fn loss(&mut self, op: &str) -> Made {
        let attrs = &self.case.attrs;
        let smoothing = attrs.any(&["label_smoothing", "smoothing"])?.unwrap_or(0.0);
        let reduction: String = attrs.get("reduction")?.unwrap_or("mean".into());
        let kind = match reduction.as_str() {
            "mean" => Some(ReduceKind::Mean),
            "sum" => Some(ReduceKind::Sum),
            "none" => None,
            _ => return Err(attrs.wrong("reduction", format!("is \"{reduction}\"; known are mean, sum and none"))),
        };
        self.with(&["logits|x", "labels|y"], |b, v| {
            let each = match op {
                "softmax_cross_entropy" => b.cross_entropy(v[0], v[1], smoothing)?,
                "sigmoid_cross_entropy" => b.sigmoid_cross_entropy(v[0], v[1])?,
                _ => {
                    let difference = b.sub(v[0], v[1])?;
                    b.mul(difference, difference)?
                }
            };
            let axes: Vec<usize> = (0..b.shape(each).len()).collect();
            kind.map_or(Ok(each), |kind| b.reduce(kind, each, &axes, false))
        })
    }

    fn gather(&mut self) -> Made {
        if let Some(axis) = self.case.attrs.axis("axis", 2)?
            && axis != 0
        {
            return Err(self.case.attrs.wrong("axis", format!("is {axis}; only rows can be gathered")));
        }
        self.with(&["table|x", "ids|indices"], |b, v| b.gather(v[0], v[1]))
    }
}

/// A unary op by its name; a parameter may stand behind it (`leaky_relu_0.2`) or among the attributes.
fn unary_named(op: &str, attrs: &Attrs) -> Result<Option<Unary>> {
    let in_attrs: Option<f32> = attrs.any(&["alpha", "slope", "negative_slope"])?;
    for u in Unary::ALL {
        let in_name = op.strip_prefix(u.name()).and_then(|rest| rest.strip_prefix('_')?.parse::<f32>().ok());
        if op != u.name() && in_name.is_none() {
            continue;
        }
        let parameter = in_name.or(in_attrs);
        return Ok(Some(match u {
            Unary::LeakyRelu(usual) => Unary::LeakyRelu(parameter.unwrap_or(usual)),
            Unary::Elu(usual) => Unary::Elu(parameter.unwrap_or(usual)),
            _ if in_name.is_some() => continue,
            plain => plain,
        }));
    }
    Ok(None)
}
