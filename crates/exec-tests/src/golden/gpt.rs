//! A decoder-only transformer with pre-layer-norm blocks. Its sizes are those of its weights.

use memfit_ir::op::Unary;
use memfit_ir::{Builder, Result as Built, ValueId};

use super::Attrs;
use super::run::Weights;
use crate::error::Result;

pub struct Spec {
    heads: usize,
    eps: f32,
    activation: Unary,
}

impl Spec {
    pub fn read(spec: &Attrs) -> Result<Spec> {
        let block: String = spec.get("block")?.unwrap_or_default();
        let words: Vec<&str> = block.split([' ', ';', ',']).collect();
        let after = |word: &str| words.iter().position(|w| *w == word).and_then(|i| words.get(i + 1));
        let eps = match after("eps") {
            None => 1e-5,
            Some(e) => {
                e.parse().map_err(|_| spec.wrong("block", format!("has \"{e}\" where the number of eps belongs")))?
            }
        };
        let activation = match after("gelu") {
            Some(&"tanh") | None => Unary::GeluTanh,
            Some(_) => Unary::GeluErf,
        };
        let heads = spec.required("heads")?;
        if heads == 0 {
            return Err(spec.wrong("heads", "is 0".into()));
        }
        Ok(Spec { heads, eps, activation })
    }
}

/// From token ids of batch, sequence to logits of batch, sequence, vocabulary.
pub fn logits(b: &mut Builder, weights: &Weights, spec: &Spec, ids: ValueId) -> Built<ValueId> {
    let &[_, sequence] = b.shape(ids) else { return b.fail(format!("the ids are {}", b.ty(ids))) };
    let tokens = weights.param(b, "tok")?;
    let positions = weights.param(b, "pos")?;
    let &[_, width] = b.shape(positions) else { return b.fail(format!("pos is {}", b.ty(positions))) };
    let positions = b.slice(positions, &[0, 0], &[sequence, width])?;
    let rows = b.gather(tokens, ids)?;
    let mut x = b.add(rows, positions)?;
    for i in 0.. {
        let name = format!("block{i}");
        if !weights.has(&format!("{name}/qkv/w")) {
            break;
        }
        x = b.scope(name, |b| block(b, weights, spec, x))?;
    }
    let x = layer_norm(b, weights, spec, "ln_f", x)?;
    weights.dense(b, "head", weights.has("head/b"), x)
}

fn block(b: &mut Builder, weights: &Weights, spec: &Spec, x: ValueId) -> Built<ValueId> {
    let normal = layer_norm(b, weights, spec, "ln1", x)?;
    let qkv = weights.dense(b, "qkv", true, normal)?;
    let mixed = attention(b, spec, qkv)?;
    let mixed = weights.dense(b, "proj", true, mixed)?;
    let x = b.add(x, mixed)?;

    let normal = layer_norm(b, weights, spec, "ln2", x)?;
    let hidden = weights.dense(b, "fc1", true, normal)?;
    let hidden = b.unary(spec.activation, hidden)?;
    let hidden = weights.dense(b, "fc2", true, hidden)?;
    b.add(x, hidden)
}

/// From the columns [q|k|v], in each of which the heads stand side by side.
fn attention(b: &mut Builder, spec: &Spec, qkv: ValueId) -> Built<ValueId> {
    let [batch, sequence, columns] = [b.shape(qkv)[0], b.shape(qkv)[1], b.shape(qkv)[2]];
    let width = columns / 3;
    let qkv = b.reshape(qkv, [batch, sequence, 3, spec.heads, width / spec.heads])?;
    let mixed = b.attention(qkv, true)?;
    b.reshape(mixed, [batch, sequence, width])
}

fn layer_norm(b: &mut Builder, weights: &Weights, spec: &Spec, name: &str, x: ValueId) -> Built<ValueId> {
    b.scope(name, |b| {
        let scale = weights.param(b, "scale")?;
        let bias = weights.param(b, "bias")?;
        b.layer_norm(x, scale, bias, spec.eps)
    })
}
