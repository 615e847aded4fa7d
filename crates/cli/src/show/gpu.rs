//! GPUs as `memfit devices` lists them. What a driver does not say is unknown, and stands so.

use memfit::gpu::{CardMemory, Features, Gpu, GpuTarget};
use memfit::plan::bytes::Bytes;
use serde_json::{Value, json};

use crate::output::outln;

pub fn event(gpu: &Gpu, is_visible: bool, cost_model: Value) -> Value {
    json!({
        "event": "device", "device": gpu.id, "name": gpu.name, "kind": gpu.target.kind.name(), "api": gpu.target.api,
        "driver": gpu.driver, "compiler": gpu.compiler, "visible": is_visible,
        "memory_bytes": gpu.memory.total, "used_bytes": gpu.memory.used, "available_bytes": available(gpu.memory),
        "alignment_bytes": gpu.target.limits.alignment, "largest_operand_bytes": gpu.target.limits.binding,
        "largest_segment_bytes": gpu.target.limits.buffer, "operands": gpu.target.limits.bindings,
        "f16": gpu.features.f16, "int64": gpu.features.int64, "subgroup_sizes": gpu.features.subgroups,
        "timestamps": gpu.features.timestamps,
        "profile": cost_model,
    })
}

pub fn print(gpu: &Gpu, hidden: &str) {
    let Gpu { id, name, driver, target, memory, compiler, .. } = gpu;
    let GpuTarget { api, kind, limits, .. } = target;
    let driver = if driver.is_empty() { "unknown" } else { driver };
    outln!("{id}    {name}: {}, {api}, driver {driver}, kernels as {compiler}{hidden}", kind.name());
    outln!("memory   {}", memory_words(*memory));
    let (operand, segment) = (Bytes(limits.binding), Bytes(limits.buffer));
    outln!("largest  tensor {operand}, segment of an arena {segment}; at most {} tensors a kernel", limits.bindings);
    outln!("features {}", feature_words(gpu.features));
}

fn available(memory: CardMemory) -> Option<u64> {
    Some(memory.total?.saturating_sub(memory.used?))
}

fn memory_words(memory: CardMemory) -> String {
    match (memory.total, memory.used) {
        (None, _) => {
            "unknown: its driver does not say; a run asks once for what its fastest plan takes, or gives a --budget"
                .into()
        }
        (Some(total), None) => format!("{}, of which what others use is unknown", Bytes(total)),
        (Some(total), Some(used)) => {
            let free = Bytes(total.saturating_sub(used));
            format!("{}, of which {} are used and {free} are available", Bytes(total), Bytes(used))
        }
    }
}

fn feature_words(features: Features) -> String {
    let Features { f16, int64, subgroups, timestamps } = features;
    let subgroups = subgroups.map(|sizes| match sizes {
        [least, most] if least == most => format!("subgroups of {least}"),
        [least, most] => format!("subgroups of {least} to {most}"),
    });
    let named = |is: bool, name: &str| is.then(|| name.to_string());
    let all = [named(f16, "f16"), named(int64, "int64"), subgroups, named(timestamps, "timestamps")];
    let all: Vec<String> = all.into_iter().flatten().collect();
    if all.is_empty() { "none of f16, int64, subgroups, timestamps".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        let words = |total, used| memory_words(CardMemory { total, used });
        assert!(words(None, None).starts_with("unknown"));
        assert_eq!(words(Some(8 << 30), None), "8.00 GiB, of which what others use is unknown");
        assert_eq!(
            words(Some(8 << 30), Some(1 << 30)),
            "8.00 GiB, of which 1.00 GiB are used and 7.00 GiB are available"
        );
        assert_eq!(available(CardMemory { total: Some(1), used: None }), None);
        let none = Features { f16: false, int64: false, subgroups: None, timestamps: false };
        assert!(feature_words(none).starts_with("none"));
        let some = Features { f16: true, subgroups: Some([8, 32]), timestamps: true, ..none };
        assert_eq!(feature_words(some), "f16, subgroups of 8 to 32, timestamps");
    }
}
