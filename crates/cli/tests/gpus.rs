//! `memfit devices` where it is built with GPUs.
#![cfg(feature = "gpu")]

#[path = "it/common/mod.rs"]
mod common;

use common::events;

/// Set where a missing GPU is a failure, as it is in CI.
const REQUIRED: &str = "MEMFIT_REQUIRE_GPU";

#[test]
fn gpus_are_listed_beside_the_cpu() {
    let (code, devices) = events(&["devices"]);
    assert_eq!((code, &devices[0]["device"]), (0, &"cpu:0".into()));
    for (i, gpu) in devices[1..].iter().enumerate() {
        assert_eq!(gpu["device"], format!("gpu:{i}"), "{gpu}");
        assert!(gpu["name"].as_str().is_some_and(|n| !n.is_empty()), "{gpu}");
        assert!(gpu["largest_operand_bytes"].as_u64() <= gpu["largest_segment_bytes"].as_u64(), "{gpu}");
    }
    assert!(devices.len() > 1 || std::env::var_os(REQUIRED).is_none(), "no GPU is listed: {devices:?}");
}
