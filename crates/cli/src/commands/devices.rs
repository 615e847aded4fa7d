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
    gpus(as_json);
    Ok(())
}

#[cfg(not(feature = "gpu"))]
fn gpus(_: bool) {}

/// A GPU that cannot be opened is listed with the reason.
#[cfg(feature = "gpu")]
fn gpus(as_json: bool) {
    use memfit::plan::bytes::Bytes;

    for found in memfit::gpu::devices() {
        match found {
            Ok(gpu) if as_json => say!(
                "{}",
                json!({
                    "device": gpu.id, "name": gpu.name, "kind": gpu.kind.name(), "api": gpu.api,
                    "alignment_bytes": gpu.limits.alignment, "largest_operand_bytes": gpu.limits.binding,
                    "largest_segment_bytes": gpu.limits.buffer,
                })
            ),
            Ok(gpu) => say!(
                "{}  {} ({}, {}); operands up to {}, segments up to {}",
                gpu.id,
                gpu.name,
                gpu.kind.name(),
                gpu.api,
                Bytes(gpu.limits.binding),
                Bytes(gpu.limits.buffer)
            ),
            Err(e) if as_json => say!("{}", json!({ "device": "gpu", "error": e.to_string() })),
            Err(e) => say!("{e}"),
        }
    }
}
