//! Golden vectors: cases that another framework computed, read from a directory into plain structs, each of which can
//! build the graph that it describes. Reading knows nothing of executors; [`check`] holds a [`crate::Runner`] against a
//! case.

mod attrs;
mod check;
mod gpt;
mod ops;
mod optimizer;
mod run;
mod sequential;
mod slack;
mod tensors;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

pub use attrs::Attrs;
pub use check::check;
pub use ops::OpCase;
pub use optimizer::OptimizerCase;
pub use run::RunCase;

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use tensors::TensorFile;

/// Tensors by their name within a case.
pub type Named = BTreeMap<String, Tensor>;

#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub kind: CaseKind,
}

#[derive(Clone, Debug)]
pub enum CaseKind {
    Op(OpCase),
    Optimizer(OptimizerCase),
    Run(RunCase),
}

/// The cases that come with this crate.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A place in the list, whether or not its case could be read.
#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub case: Result<Case>,
}

/// Reads `golden.json` and `golden.safetensors` of a directory. A case that is malformed or lacks a tensor does not
/// hinder the others.
pub fn load(directory: &Path) -> Result<Vec<Entry>> {
    let path = directory.join("golden.json");
    let text = fs::read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let list: CaseList = serde_json::from_slice(&text).map_err(|source| Error::CaseList { path, source })?;
    let tensors = TensorFile::read(&directory.join("golden.safetensors"))?;
    Ok(list.cases.into_iter().enumerate().map(|(i, listed)| entry(i, listed, &tensors)).collect())
}

fn entry(position: usize, listed: Value, tensors: &TensorFile) -> Entry {
    let name = listed.get("case").and_then(Value::as_str).map_or(format!("case {position}"), String::from);
    let malformed = |e: serde_json::Error| Error::Case { case: name.clone(), problem: e.to_string() };
    let case = Listed::deserialize(listed).map_err(malformed).and_then(|l| l.resolve(tensors));
    Entry { name, case }
}

#[derive(Deserialize)]
struct CaseList {
    cases: Vec<Value>,
}

/// A case as it stands in the list, before its tensors are found.
#[derive(Deserialize)]
struct Listed {
    case: String,
    op: String,
    #[serde(default)]
    attrs: Map<String, Value>,
    #[serde(default)]
    inputs: BTreeMap<String, Vec<usize>>,
    #[serde(default)]
    grads: Vec<String>,
    steps: Option<usize>,
    #[serde(default)]
    spec: Map<String, Value>,
    #[serde(default)]
    losses: Vec<f64>,
}

impl Listed {
    fn resolve(self, tensors: &TensorFile) -> Result<Case> {
        let kind = match (self.op.as_str(), self.steps) {
            ("run", _) => CaseKind::Run(self.run(tensors)?),
            (_, Some(steps)) => CaseKind::Optimizer(self.optimizer(steps, tensors)?),
            (_, None) => CaseKind::Op(self.op(tensors)?),
        };
        Ok(Case { name: self.case, kind })
    }

    fn op(&self, tensors: &TensorFile) -> Result<OpCase> {
        let case = &self.case;
        let named = |folder: &str, names: &mut dyn Iterator<Item = &String>| -> Result<Named> {
            names.map(|n| Ok((n.clone(), tensors.get(&format!("{case}/{folder}/{n}"))?))).collect()
        };
        Ok(OpCase {
            name: case.clone(),
            op: self.op.clone(),
            attrs: Attrs::new(case, self.attrs.clone()),
            inputs: named("in", &mut self.inputs.keys())?,
            out: tensors.get(&format!("{case}/out"))?,
            // What has no gradients needs no cotangent.
            cotangent: if self.grads.is_empty() { None } else { Some(tensors.get(&format!("{case}/ct"))?) },
            grads: named("grad", &mut self.grads.iter())?,
        })
    }

    fn optimizer(&self, steps: usize, tensors: &TensorFile) -> Result<OptimizerCase> {
        let case = &self.case;
        let attrs = Attrs::new(case, self.attrs.clone());
        let numbered = |prefix: &str| -> Result<Vec<Tensor>> {
            (0..steps).map(|i| tensors.get(&format!("{case}/{prefix}{i}"))).collect()
        };
        Ok(OptimizerCase {
            name: case.clone(),
            update: optimizer::update(&self.op, &attrs)?,
            lr: attrs.required("lr")?,
            start: tensors.get(&format!("{case}/in/p"))?,
            gradients: numbered("in/g")?,
            after: numbered("p")?,
        })
    }

    fn run(&self, tensors: &TensorFile) -> Result<RunCase> {
        let case = &self.case;
        let spec = Attrs::new(case, self.spec.clone());
        let (kind, optimizer) = optimizer::parse(case, &spec.required::<String>("optimizer")?)?;
        let steps = spec.get("steps")?.unwrap_or(self.losses.len());
        if steps == 0 || steps != self.losses.len() {
            let problem = format!("{} losses are listed for {steps} steps", self.losses.len());
            return Err(Error::Case { case: case.clone(), problem });
        }
        let batch = |i: usize| Ok((tensors.get(&format!("{case}/x{i}"))?, tensors.get(&format!("{case}/y{i}"))?));
        Ok(RunCase {
            name: case.clone(),
            spec,
            update: optimizer::update(&kind, &optimizer)?,
            lr: optimizer.required("lr")?,
            init: tensors.under(&format!("{case}/init/")),
            batches: (0..steps).map(batch).collect::<Result<_>>()?,
            losses: self.losses.clone(),
            weights_after: tensors.under(&format!("{case}/final/")),
            statistics_after: tensors.under(&format!("{case}/state/")),
        })
    }
}
