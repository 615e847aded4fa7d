//! `memfit models`: what can be named, and how large it is.

use crate::output::outln;
use anyhow::Result;
use memfit::nn::Mode;
use memfit::{Model, ZooModel};
use serde_json::json;

pub fn models(as_json: bool) -> Result<()> {
    if !as_json {
        outln!("{:<22} {:>12}  input", "model", "parameters");
    }
    for name in ZooModel::names() {
        let graph = ZooModel::from_name(name)?.build(1, Mode::Train)?.graph;
        let input = graph.input("x").map(|v| graph.ty(v).clone());
        let size = input.map_or(String::new(), |t| format!("{} {}", t.dtype, sizes(&t.shape[1..])));
        if as_json {
            outln!("{}", json!({ "event": "model", "model": name, "parameters": graph.param_count(), "input": size }));
        } else {
            outln!("{name:<22} {:>12}  {size}", graph.param_count());
        }
    }
    Ok(())
}

fn sizes(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
