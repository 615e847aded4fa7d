//! From a name and settings to an op: the way back from [`attrs`](super::attrs). It checks that each setting is there
//! and can be read; whether the op accepts it is for the shape rules.

use super::setting::Setting;
use crate::dtype::TensorType;
use crate::lanes::Replica;
use crate::nearest::nearest;
use crate::op::*;

/// What a line says about its op besides the op's name.
pub struct Fields {
    pub label: Option<String>,
    pub attrs: Vec<(String, String)>,
    /// The printed types of the results.
    pub types: Vec<TensorType>,
}

/// The op of that name with these settings, of which it must need all.
pub fn build(name: &str, mut fields: Fields) -> Result<Op, String> {
    let made = if let Some(op) = members().find(|op| op.name() == name) {
        with_parameters(op, &mut fields)
    } else if let Some((_, read)) = SINGLE.iter().find(|(n, _)| *n == name) {
        read(&mut fields)
    } else {
        let known: Vec<&str> = members().map(|op| op.name()).chain(SINGLE.iter().map(|(n, _)| *n)).collect();
        let meant = nearest(&known, name).map_or(String::new(), |n| format!("; the nearest is \"{n}\""));
        return Err(format!("there is no op \"{name}\"{meant}"));
    };
    let finished = made.and_then(|op| fields.finish().map(|()| op));
    finished.map_err(|problem| format!("{name}: {problem}"))
}

impl Fields {
    fn take<T: Setting>(&mut self, key: &'static str) -> Result<T, String> {
        let Some(at) = self.attrs.iter().position(|(k, _)| k == key) else {
            return Err(format!("the attribute \"{key}\" is missing"));
        };
        let (_, text) = self.attrs.remove(at);
        T::read(&text).ok_or_else(|| format!("the attribute \"{key}\" must be {}, but is \"{text}\"", T::EXPECTED))
    }

    fn label(&mut self) -> Result<String, String> {
        self.label.take().ok_or_else(|| "the name is missing; it stands in quotes after the op".to_string())
    }

    fn ty(&self) -> Result<TensorType, String> {
        match &self.types[..] {
            [ty] => Ok(ty.clone()),
            other => Err(format!("has one result, but {} types are given", other.len())),
        }
    }

    /// Nothing may be left over: it would be dropped silently.
    fn finish(self) -> Result<(), String> {
        if let Some((key, _)) = self.attrs.first() {
            return Err(format!("the attribute \"{key}\" is unknown"));
        }
        match self.label {
            Some(name) => Err(format!("takes no name, but is given \"{name}\"")),
            None => Ok(()),
        }
    }
}

type Made = Result<Op, String>;
type Read = fn(&mut Fields) -> Made;

/// The ops of families whose members carry their own names, with any parameters.
fn members() -> impl Iterator<Item = Op> {
    let reduce = |kind| Op::Reduce(Reduce { kind, axes: vec![], keep: false });
    let unary = Unary::ALL.into_iter().flat_map(|u| [Op::Unary(u), Op::UnaryGrad(u)]);
    unary
        .chain(Binary::ALL.into_iter().map(Op::Binary))
        .chain(Compare::ALL.into_iter().map(Op::Compare))
        .chain(ReduceKind::ALL.into_iter().map(reduce))
}

fn with_parameters(member: Op, f: &mut Fields) -> Made {
    if let Op::Unary(u) = member {
        Ok(Op::Unary(unary(u, f)?))
    } else if let Op::UnaryGrad(u) = member {
        Ok(Op::UnaryGrad(unary(u, f)?))
    } else if let Op::Reduce(r) = member {
        Ok(Op::Reduce(Reduce { kind: r.kind, axes: f.take("axes")?, keep: f.take("keep")? }))
    } else {
        Ok(member)
    }
}

fn unary(u: Unary, f: &mut Fields) -> Result<Unary, String> {
    Ok(match u {
        Unary::LeakyRelu(_) => Unary::LeakyRelu(f.take("slope")?),
        Unary::Elu(_) => Unary::Elu(f.take("alpha")?),
        Unary::Neg
        | Unary::Abs
        | Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sigmoid
        | Unary::Relu
        | Unary::Relu6
        | Unary::Softplus
        | Unary::HardSigmoid
        | Unary::HardSwish
        | Unary::Silu
        | Unary::GeluTanh
        | Unary::GeluErf => u,
    })
}

fn masked(f: &mut Fields) -> Result<Unary, String> {
    unary(f.take("of")?, f)
}

/// Every other op by its name. A table and not a `match`, so that the nearest name can be looked for in it.
const SINGLE: &[(&str, Read)] = &[
    ("input", |f| f.ty().and_then(|t| Ok(Op::Input(Input { name: f.label()?, dtype: t.dtype, shape: t.shape })))),
    ("state", state),
    ("fill", |f| f.ty().and_then(|t| Ok(Op::Fill(Fill { value: f.take("value")?, dtype: t.dtype, shape: t.shape })))),
    ("mask", |f| Ok(Op::Mask(masked(f)?))),
    ("mask_grad", |f| Ok(Op::MaskGrad(masked(f)?))),
    ("select", |_| Ok(Op::Select)),
    ("cast", |f| Ok(Op::Cast(f.ty()?.dtype))),
    ("dropout", |f| Ok(Op::Dropout(Dropout { rate: f.take("rate")?, stream: f.take("stream")? }))),
    ("reshape", |f| Ok(Op::Reshape(f.ty()?.shape))),
    ("transpose", |f| Ok(Op::Transpose(f.take("perm")?))),
    ("slice", |f| Ok(Op::Slice(Slice { start: f.take("start")?, stop: f.take("stop")? }))),
    ("concat", |f| Ok(Op::Concat(f.take("axis")?))),
    ("pad", |f| Ok(Op::Pad(f.take("pad")?))),
    ("broadcast", |f| Ok(Op::Broadcast(f.ty()?.shape))),
    ("matmul", |f| Ok(Op::MatMul(MatMul { transpose_a: f.take("transpose_a")?, transpose_b: f.take("transpose_b")? }))),
    ("conv2d", |f| Ok(Op::Conv(conv(f)?))),
    ("conv2d_transpose", |f| Ok(Op::ConvTranspose(ConvTranspose { conv: conv(f)?, size: f.take("size")? }))),
    ("conv2d_filter", |f| Ok(Op::ConvFilter(ConvFilter { conv: conv(f)?, size: f.take("size")? }))),
    ("attention", |f| Ok(Op::Attention(attention(f)?))),
    ("attention_grad", |f| Ok(Op::AttentionGrad(attention(f)?))),
    ("max_pool", |f| Ok(Op::MaxPool(window(f)?))),
    ("max_pool_grad", |f| Ok(Op::MaxPoolGrad(window_grad(f)?))),
    ("avg_pool", |f| Ok(Op::AvgPool(window(f)?))),
    ("avg_pool_grad", |f| Ok(Op::AvgPoolGrad(window_grad(f)?))),
    ("upsample", |f| Ok(Op::Upsample(upsample(f)?))),
    ("upsample_grad", |f| Ok(Op::UpsampleGrad(upsample(f)?))),
    ("batch_stats", |_| Ok(Op::BatchStats)),
    ("batch_apply", |f| Ok(Op::BatchApply(eps(f)?))),
    ("batch_grad_reduce", |f| Ok(Op::BatchGradReduce(eps(f)?))),
    ("batch_grad_input", |f| {
        Ok(Op::BatchGradInput(BatchGradInput { eps: f.take("eps")?, batch_stats: f.take("batch_stats")? }))
    }),
    ("batch_update", |f| Ok(Op::BatchUpdate(BatchUpdate { momentum: f.take("momentum")? }))),
    ("layer_norm", |f| Ok(Op::LayerNorm(eps(f)?))),
    ("layer_norm_grad", |_| Ok(Op::LayerNormGrad)),
    ("rms_norm", |f| Ok(Op::RmsNorm(eps(f)?))),
    ("rms_norm_grad", |_| Ok(Op::RmsNormGrad)),
    ("group_norm", |f| Ok(Op::GroupNorm(GroupNorm { groups: f.take("groups")?, eps: f.take("eps")? }))),
    ("group_norm_grad", |f| Ok(Op::GroupNormGrad(f.take("groups")?))),
    ("softmax", |_| Ok(Op::Softmax(Softmax { log: false }))),
    ("log_softmax", |_| Ok(Op::Softmax(Softmax { log: true }))),
    ("softmax_grad", |_| Ok(Op::SoftmaxGrad(Softmax { log: false }))),
    ("log_softmax_grad", |_| Ok(Op::SoftmaxGrad(Softmax { log: true }))),
    ("cross_entropy", |f| Ok(Op::CrossEntropy(cross_entropy(f)?))),
    ("cross_entropy_grad", |f| Ok(Op::CrossEntropyGrad(cross_entropy(f)?))),
    ("gather", |_| Ok(Op::Gather)),
    ("gather_grad", |f| Ok(Op::GatherGrad(GatherGrad { rows: f.take("rows")? }))),
    ("sgd", sgd),
    ("adam", |f| adam(f, false)),
    ("adamw", |f| adam(f, true)),
    ("rmsprop", |f| Ok(Op::Update(Update::RmsProp { alpha: f.take("alpha")?, eps: f.take("eps")? }))),
    ("adagrad", |f| Ok(Op::Update(Update::Adagrad { eps: f.take("eps")? }))),
    ("join", join),
    ("replicate", |f| {
        Ok(Op::Replicate(Replicate { count: f.take("count")?, rank: f.take("rank")?, owner: f.take("owner")? }))
    }),
];

fn state(f: &mut Fields) -> Made {
    let t = f.ty()?;
    let (class, init) = (f.take("class")?, f.take("init")?);
    Ok(Op::State(State { name: f.label()?, class, dtype: t.dtype, shape: t.shape, init }))
}

fn join(f: &mut Fields) -> Made {
    let replica = Replica { lanes: f.take("lanes")?, count: f.take("replicas")?, rank: f.take("rank")? };
    Ok(Op::Join(Join { replica, piece: f.take("piece")? }))
}

fn conv(f: &mut Fields) -> Result<Conv, String> {
    let (stride, pad) = (f.take("stride")?, f.take("pad")?);
    Ok(Conv { stride, pad, dilation: f.take("dilation")?, groups: f.take("groups")? })
}

fn attention(f: &mut Fields) -> Result<Attention, String> {
    Ok(Attention { causal: f.take("causal")?, scale: f.take("scale")? })
}

fn window(f: &mut Fields) -> Result<Window, String> {
    Ok(Window { size: f.take("window")?, stride: f.take("stride")?, pad: f.take("pad")? })
}

fn window_grad(f: &mut Fields) -> Result<WindowGrad, String> {
    Ok(WindowGrad { window: window(f)?, size: f.take("size")? })
}

fn upsample(f: &mut Fields) -> Result<Upsample, String> {
    Ok(Upsample { mode: f.take("mode")?, factor: f.take("factor")? })
}

fn eps(f: &mut Fields) -> Result<Eps, String> {
    f.take("eps").map(Eps)
}

fn cross_entropy(f: &mut Fields) -> Result<CrossEntropy, String> {
    Ok(CrossEntropy { smoothing: f.take("smoothing")? })
}

fn sgd(f: &mut Fields) -> Made {
    let (momentum, nesterov) = (f.take("momentum")?, f.take("nesterov")?);
    Ok(Op::Update(Update::Sgd { momentum, nesterov, weight_decay: f.take("weight_decay")? }))
}

fn adam(f: &mut Fields, decoupled: bool) -> Made {
    let (beta1, beta2) = (f.take("beta1")?, f.take("beta2")?);
    let (eps, weight_decay) = (f.take("eps")?, f.take("weight_decay")?);
    Ok(Op::Update(Update::Adam { beta1, beta2, eps, weight_decay, decoupled }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_table_makes_an_op_of_that_name() {
        let ty = TensorType::f32([1]);
        for (name, read) in SINGLE {
            // Each setting that is asked for is added until the op is content.
            let mut attrs: Vec<(String, String)> = vec![];
            loop {
                let label = Some("name".to_string());
                match read(&mut Fields { label, attrs: attrs.clone(), types: vec![ty.clone()] }) {
                    Ok(op) => {
                        assert_eq!(op.name(), *name);
                        break;
                    }
                    Err(problem) => {
                        let key = problem.split('"').nth(1).unwrap().to_string();
                        assert!(problem.ends_with("is missing"), "{name}: {problem}");
                        let setting = match key.as_str() {
                            "class" => "param",
                            "init" => "normal(1)",
                            "mode" => "nearest",
                            "of" => "relu",
                            "causal" | "transpose_a" | "transpose_b" | "nesterov" | "batch_stats" => "true",
                            "perm" | "start" | "stop" => "[0]",
                            "stride" | "dilation" | "window" | "size" | "factor" => "[1,1]",
                            "pad" if *name == "pad" => "[0,0]",
                            "pad" => "[0,0,0,0]",
                            _ => "1",
                        };
                        attrs.push((key, setting.into()));
                    }
                }
            }
        }
    }
}
