//! A model written as a list of layers: "conv1 3x3 same no-bias, bn1, relu, max_pool 2x2, …, dense".

use memfit_ir::infer::same_padding;
use memfit_ir::op::*;
use memfit_ir::{Builder, Op, Result as Built, TensorType, ValueId};

use super::Attrs;
use super::run::Weights;
use crate::error::Result;

pub struct Spec {
    layers: Vec<String>,
    momentum: f32,
    eps: f32,
}

impl Spec {
    pub fn read(spec: &Attrs) -> Result<Spec> {
        let layers: String = spec.required("layers")?;
        let batch_norm = spec.nested("bn")?;
        Ok(Spec {
            layers: layers.split(',').map(|l| l.trim().to_string()).collect(),
            momentum: batch_norm.get("momentum")?.unwrap_or(0.9),
            eps: batch_norm.get("eps")?.unwrap_or(1e-3),
        })
    }
}

pub fn logits(b: &mut Builder, weights: &Weights, spec: &Spec, x: ValueId) -> Built<ValueId> {
    spec.layers.iter().try_fold(x, |x, text| layer(b, weights, spec, text, x))
}

fn layer(b: &mut Builder, weights: &Weights, spec: &Spec, text: &str, x: ValueId) -> Built<ValueId> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let Some(&name) = words.first() else { return b.fail("an empty layer in the list") };
    // A number behind a name tells layers of a kind apart.
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "conv" => b.scope(name, |b| conv(b, weights, &words[1..], x)),
        "bn" => b.scope(name, |b| batch_norm(b, weights, spec, x)),
        "dense" => weights.dense(b, name, !words.contains(&"no-bias"), x),
        "max_pool" => pool(b, &words, x, Builder::max_pool),
        "avg_pool" => pool(b, &words, x, Builder::avg_pool),
        "global_avg_pool" => b.global_avg_pool(x),
        "flatten" => {
            let Some((&batch, rest)) = b.shape(x).split_first() else { return b.fail("cannot flatten a scalar") };
            let flat = rest.iter().product();
            b.reshape(x, [batch, flat])
        }
        _ => match Unary::ALL.iter().find(|u| u.name() == name) {
            Some(&u) => b.unary(u, x),
            None => b.fail(format!("the layer \"{text}\" is not known")),
        },
    }
}

fn conv(b: &mut Builder, weights: &Weights, words: &[&str], x: ValueId) -> Built<ValueId> {
    let w = weights.param(b, "w")?;
    let (&[_, height, width, _], &[window_h, window_w, ..]) = (b.shape(x), b.shape(w)) else {
        return b.fail(format!("a convolution of {} by {}", b.ty(x), b.ty(w)));
    };
    let mut c = Conv { stride: [1, 1], pad: Pad2::NONE, dilation: [1, 1], groups: 1 };
    if let Some(i) = words.iter().position(|&w| w == "stride") {
        let Some(stride) = words.get(i + 1).and_then(|w| w.parse().ok()) else {
            return b.fail("no number follows \"stride\"");
        };
        c.stride = [stride, stride];
    }
    if words.contains(&"same") {
        c.pad = same_padding([height, width], [window_h, window_w], c.stride, c.dilation);
    }
    let y = b.conv(x, w, c)?;
    if words.contains(&"no-bias") {
        return Ok(y);
    }
    let bias = weights.param(b, "b")?;
    b.add(y, bias)
}

fn batch_norm(b: &mut Builder, weights: &Weights, spec: &Spec, x: ValueId) -> Built<ValueId> {
    let scale = weights.param(b, "scale")?;
    let bias = weights.param(b, "bias")?;
    let [y, mean, var] = b.batch_norm(x, scale, bias, spec.eps)?;
    let statistic = TensorType::f32(b.shape(mean));
    let running_mean = b.state("mean", StateClass::Statistic, statistic.clone(), Init::Constant(0.0))?;
    let running_var = b.state("var", StateClass::Statistic, statistic, Init::Constant(1.0))?;
    let update = Op::BatchUpdate(BatchUpdate { momentum: spec.momentum });
    let updated = b.op_outputs(update, &[running_mean, running_var, mean, var])?;
    b.donate(running_mean, updated[0]);
    b.donate(running_var, updated[1]);
    Ok(y)
}

fn pool(
    b: &mut Builder,
    words: &[&str],
    x: ValueId,
    build: fn(&mut Builder, ValueId, Window) -> Built<ValueId>,
) -> Built<ValueId> {
    let size = words.get(1).and_then(|w| w.split_once('x'));
    let Some((Ok(h), Ok(w))) = size.map(|(h, w)| (h.parse(), w.parse())) else {
        return b.fail(format!("\"{}\" has no size such as 2x2", words.join(" ")));
    };
    build(b, x, Window { size: [h, w], stride: [h, w], pad: Pad2::NONE })
}
