//! What an executor should give for a graph, and how far rounding may take it from there.

use std::collections::HashMap;

use memfit_ir::{DType, Graph};

use crate::compare::check_close;
use crate::error::{Error, Result};
use crate::reference::{Rounding, Values, apply_donations, evaluate, evaluate_rounded};
use crate::runner::RunResult;
use crate::tensor::Tensor;

type Tensors = HashMap<String, Tensor>;

/// The random roundings whose effect is looked at, and how many times that effect is still rounding: kernels round to 32
/// bits more often than the reference is made to, and with less luck.
const SAMPLES: [(Rounding, u32, f64); 3] =
    [(Rounding::Single, 0, 32.0), (Rounding::Single, 1, 32.0), (Rounding::Half, 2, 2.0)];

pub struct Expected {
    result: RunResult,
    /// How far rounding may take each output and state.
    noise: [HashMap<String, f64>; 2],
}

impl Expected {
    pub fn new(graph: &Graph, inputs: &Tensors, states: &Tensors) -> Result<Expected> {
        let result = collect(graph, &evaluate(graph, inputs, states)?, states);
        let mut noise = [HashMap::new(), HashMap::new()];
        for (rounding, seed, times) in SAMPLES {
            let rounded = collect(graph, &evaluate_rounded(graph, inputs, states, rounding, seed)?, states);
            widen(&mut noise[0], &result.outputs, &rounded.outputs, times);
            widen(&mut noise[1], &result.states, &rounded.states, times);
        }
        Ok(Expected { result, noise })
    }

    /// Everything that was expected is there and close; gives the largest error, as in [`check_close`].
    pub fn check(&self, given: &RunResult) -> Result<f64> {
        let mut worst = 0.0f64;
        let kinds = [("output", &self.result.outputs, &given.outputs), ("state", &self.result.states, &given.states)];
        for ((kind, expected, given), noise) in kinds.into_iter().zip(&self.noise) {
            for (name, expected) in expected {
                let missing = || Error::NotGiven { kind, name: name.clone(), ty: expected.ty.clone() };
                let given = given.get(name).ok_or_else(missing)?;
                let largest = largest(&expected.data).max(f64::MIN_POSITIVE);
                let tolerance = tolerance(expected.ty.dtype) + noise[name] / largest;
                worst = worst.max(check_close(name, expected, given, tolerance)?);
            }
        }
        Ok(worst)
    }
}

/// Of one op, as a share of the largest magnitude. Of 16 bits, the last may differ; integers are exact.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::I32 | DType::U8 | DType::Bit => 0.0,
    }
}

fn largest(data: &[f64]) -> f64 {
    data.iter().fold(0.0, |m, x| if x.is_finite() { m.max(x.abs()) } else { m })
}

fn collect(graph: &Graph, values: &Values, states: &Tensors) -> RunResult {
    let outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), values[*v].clone())).collect();
    RunResult { outputs, states: apply_donations(graph, values, states) }
}

fn widen(noise: &mut HashMap<String, f64>, exact: &Tensors, rounded: &Tensors, times: f64) {
    for (name, exact) in exact {
        let effect = exact.data.iter().zip(&rounded[name].data).map(|(a, b)| (a - b).abs());
        let effect = effect.fold(0.0, |m, e| if e.is_finite() { f64::max(m, e) } else { m });
        let known = noise.entry(name.clone()).or_insert(0.0);
        *known = known.max(times * effect);
    }
}
