//! The weights of a model held against the tensors of a file: which is which, and how its numbers are laid out.

use std::collections::{BTreeMap, BTreeSet};

use memfit::ir::TensorType;
use memfit_files::torch::{Numbers, Tensor};

use super::names::{Convention, Own};
use crate::text::count;

/// A weight of the model that the file has.
#[derive(Debug)]
pub struct Found {
    pub own: String,
    pub ty: TensorType,
    pub tensor: Tensor,
    pub layout: Layout,
    /// Of a batch norm's scale: what makes up for another epsilon.
    pub epsilon: Option<OtherEpsilon>,
}

/// Batch norms divide by the root of variance + epsilon. Where that is another one here, the scale makes up for it, so that what is
/// evaluated is the same.
#[derive(Clone, Debug)]
pub struct OtherEpsilon {
    /// Of the same norm.
    pub variance: Tensor,
    pub there: f64,
    pub here: f64,
}

impl OtherEpsilon {
    /// What a scale beside this variance is to be multiplied by.
    pub fn factor(&self, variance: f32) -> f64 {
        let variance = f64::from(variance).max(0.0);
        ((variance + self.here) / (variance + self.there)).sqrt()
    }
}

/// How the numbers of a tensor lie, seen from the weight that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One after the other, as they are wanted.
    AsIs,
    /// A row for each output, of inputs and taps; wanted are taps, inputs, outputs, the last one innermost.
    Rows { outputs: u64, inputs: u64, taps: u64, row: u64, input: u64, tap: u64 },
}

/// Tensors of the file that the model does not take, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub names: Vec<String>,
    pub reason: String,
}

/// What fits, by one convention.
#[derive(Debug)]
pub struct Fit {
    pub convention: Convention,
    pub found: Vec<Found>,
    /// Of the model, not in the file or of another type or shape there.
    pub missing: Vec<String>,
    pub left_out: Vec<LeftOut>,
}

impl Fit {
    /// By the convention by which most fits.
    pub fn best(own: &Own, tensors: &BTreeMap<String, Tensor>) -> Fit {
        let mut best = Fit::new(Convention::Own, own, tensors);
        for convention in Convention::ALL {
            let fit = Fit::new(convention, own, tensors);
            if fit.found.len() > best.found.len() {
                best = fit;
            }
        }
        best
    }

    fn new(convention: Convention, own: &Own, tensors: &BTreeMap<String, Tensor>) -> Fit {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (mut left_out, mut met) = (Vec::new(), BTreeSet::new());
        for (name, ty) in own.order.iter().map(|&name| (name, own.types[name])) {
            let there = own.name_in(convention, name).and_then(|there| tensors.get_key_value(&there));
            let Some((there, tensor)) = there else {
                missing.push(name.into());
                continue;
            };
            met.insert(there);
            let layout = Layout::of(convention, tensor, ty, own.flattened(name));
            let layout = layout.unwrap_or_else(|| Err(other_shape(own, name, &tensor.shape, &ty.shape, convention)));
            match layout {
                Ok(layout) => {
                    let epsilon = other_epsilon(convention, own, name, ty, tensors);
                    found.push(Found { own: name.into(), ty: ty.clone(), tensor: tensor.clone(), layout, epsilon });
                }
                Err(reason) => {
                    missing.push(name.into());
                    leave_out(&mut left_out, there, reason);
                }
            }
        }
        let is_weight = |tensor: &Tensor| !matches!(tensor.numbers, Numbers::Whole(_));
        for (name, _) in tensors.iter().filter(|(name, tensor)| is_weight(tensor) && !met.contains(name)) {
            leave_out(&mut left_out, name, "not in this model".into());
        }
        Fit { convention, found, missing, left_out }
    }

    /// Kinds of numbers that are no f32, of what was found.
    pub fn converted(&self) -> Vec<&'static str> {
        let kinds = [(Numbers::F16, "f16"), (Numbers::Bf16, "bf16"), (Numbers::F64, "f64")];
        let has = |numbers| self.found.iter().any(|found| found.tensor.numbers == numbers);
        kinds.into_iter().filter(|(numbers, _)| has(*numbers)).map(|(_, name)| name).collect()
    }
}

/// Of a scale, where the variance beside it is in the file too.
fn other_epsilon(
    convention: Convention,
    own: &Own,
    name: &str,
    ty: &TensorType,
    tensors: &BTreeMap<String, Tensor>,
) -> Option<OtherEpsilon> {
    let [there, here] = own.epsilons(convention)?;
    let variance = format!("{}/var", name.strip_suffix("/scale")?);
    let variance = tensors.get(&own.name_in(convention, &variance)?)?;
    let is_whole = matches!(variance.numbers, Numbers::Whole(_));
    let layout = Layout::as_is(variance, &ty.shape).filter(|_| !is_whole)?;
    layout.is_ok().then(|| OtherEpsilon { variance: variance.clone(), there, here })
}

fn leave_out(left_out: &mut Vec<LeftOut>, name: &str, reason: String) {
    match left_out.iter_mut().find(|other| other.reason == reason) {
        Some(other) => other.names.push(name.into()),
        None => left_out.push(LeftOut { names: vec![name.into()], reason }),
    }
}

impl Layout {
    /// Of a tensor that has the numbers of a weight; none if it is of another shape.
    fn of(
        convention: Convention,
        tensor: &Tensor,
        ty: &TensorType,
        flattened: Option<usize>,
    ) -> Option<Result<Layout, String>> {
        if let Numbers::Whole(_) = tensor.numbers {
            return Some(Err("whole numbers".into()));
        }
        match (convention, &ty.shape[..]) {
            (Convention::Own, _) => Layout::as_is(tensor, &ty.shape),
            (_, &[h, w, i, o]) => Layout::rows(tensor, [o, i, h, w]),
            (_, &[i, o]) => match flattened.filter(|&channels| channels > 0 && i.is_multiple_of(channels)) {
                Some(channels) => Layout::dense(tensor, [o, channels, i / channels]),
                None => Layout::dense(tensor, [o, i, 1]),
            },
            (_, shape) => Layout::as_is(tensor, shape),
        }
    }

    /// None is another shape.
    fn as_is(tensor: &Tensor, shape: &[usize]) -> Option<Result<Layout, String>> {
        if tensor.shape != shape {
            return None;
        }
        let mut elements = 1;
        for (&size, &stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            if size != 1 && stride != elements {
                return Some(Err(NOT_CONTIGUOUS.into()));
            }
            elements = elements.saturating_mul(size as u64);
        }
        Some(Ok(Layout::AsIs))
    }

    /// Of a convolution.
    fn rows(tensor: &Tensor, shape: [usize; 4]) -> Option<Result<Layout, String>> {
        if tensor.shape != shape {
            return None;
        }
        let [o, i, h, w] = shape.map(|n| n as u64);
        let [row, input, down, right] = tensor.strides[..] else { return None };
        let tap = if w > 1 { right } else { down };
        if h > 1 && w > 1 && down != w * right {
            return Some(Err(NOT_CONTIGUOUS.into()));
        }
        Some(Layout::compact(o, i, h * w, row, input, tap))
    }

    /// Of a dense layer, also where it is written as a convolution.
    fn dense(tensor: &Tensor, [outputs, inputs, taps]: [usize; 3]) -> Option<Result<Layout, String>> {
        let [o, i, t] = [outputs, inputs, taps].map(|n| n as u64);
        match tensor.shape[..] {
            [rows, columns] if rows == outputs && columns == inputs * taps => {
                let [row, column] = tensor.strides[..] else { return None };
                Some(Layout::compact(o, i, t, row, column * t, column))
            }
            [rows, channels, h, w] if rows == outputs && channels == inputs && h * w == taps => {
                Layout::rows(tensor, [outputs, inputs, h, w])
            }
            _ => None,
        }
    }

    /// The numbers of a row lie together, in whatever order.
    fn compact(outputs: u64, inputs: u64, taps: u64, row: u64, input: u64, tap: u64) -> Result<Layout, String> {
        // What is there once has no stride that counts.
        let [input, tap] = [(inputs, input), (taps, tap)].map(|(n, stride)| if n > 1 { stride } else { 0 });
        let span =
            inputs.saturating_sub(1).saturating_mul(input).saturating_add(taps.saturating_sub(1).saturating_mul(tap));
        if span.checked_add(1) != inputs.checked_mul(taps) || (outputs > 1 && row < span) {
            return Err(NOT_CONTIGUOUS.into());
        }
        Ok(Layout::Rows { outputs, inputs, taps, row, input, tap })
    }
}

const NOT_CONTIGUOUS: &str = "stored in another order; save it with .contiguous()";

/// What a person is told of a tensor of another shape.
fn other_shape(own: &Own, name: &str, there: &[usize], here: &[usize], convention: Convention) -> String {
    let is_theirs = convention != Convention::Own;
    let here: Vec<usize> = match *here {
        [h, w, i, o] if is_theirs => vec![o, i, h, w],
        [i, o] if is_theirs => vec![o, i],
        _ => here.to_vec(),
    };
    let is_head = is_theirs && name.rsplit_once('/').is_some_and(|(layer, _)| layer == own.head);
    match (there, &here[..]) {
        (&[classes, ref rest @ ..], &[wanted, ref same @ ..]) if is_head && rest == same => {
            format!("{} there, {wanted} here", count(classes, "class"))
        }
        _ => format!("{} there, {} here", sizes(there), sizes(&here)),
    }
}

fn sizes(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
