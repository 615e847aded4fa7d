//! Snapshots that are damaged: read or refused, and nothing panics. Pickles of any bytes are `memfit-files`' matter.

use memfit_profile::torch::Snapshot;
use proptest::prelude::*;

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let whole = include_bytes!("../data/snapshot.pickle");
    for len in (0..whole.len() - 1).step_by(7).chain([whole.len() - 1]) {
        assert!(Snapshot::parse(whole[..len].to_vec()).is_err(), "{len} bytes are enough");
    }
}

/// Everything that is ever asked of a snapshot.
fn read_all(bytes: Vec<u8>) {
    let Ok(snapshot) = Snapshot::parse(bytes) else { return };
    for device in [None, Some(0), Some(1), Some(2), Some(9)] {
        let Ok(trace) = snapshot.device(device) else { continue };
        let peak = trace.peak(512);
        assert!(peak.bytes >= trace.peak(1).bytes);
        assert!(trace.buffers.iter().all(|b| b.lower < b.upper && b.upper <= trace.events + 1));
        for buffer in trace.live_at(peak.time) {
            let _ = trace.frame(buffer);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(memfit_test_effort::cases(500)))]

    #[test]
    fn a_snapshot_with_other_bytes_in_it_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = include_bytes!("../data/snapshot.pickle").to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(bytes);
    }
}
