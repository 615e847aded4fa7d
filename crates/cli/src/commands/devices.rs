//! `memfit devices`: what this machine computes on.

use crate::say::say;
use anyhow::Result;
use memfit::cpu::isa::Isa;
use serde_json::json;

pub fn devices(as_json: bool) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let sets: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    if as_json {
        say!("{}", json!({ "device": "cpu", "threads": cores, "instructions": sets }));
    } else {
        say!("cpu  {cores} threads, instructions: {} (of {})", sets[0], sets.join(", "));
    }
    Ok(())
}
