//! Snapshots that are damaged: read or refused, and nothing panics.

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
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(bytes);
    }

    /// Instructions at random get further than bytes at random.
    #[test]
    fn any_instructions_are_read_or_refused(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                &b"("[..], b"0", b"1", b"2", b"N", b"K\x01", b"I7\n", b"U\x01a", b"]", b")", b"}", b"\x8f", b"a", b"e", b"t", b"l",
                b"d", b"s", b"u", b"\x90", b"\x91", b"\x85", b"\x86", b"\x87", b"\x94", b"q\x01", b"h\x00", b"h\x01", b"p2\n",
                b"g2\n", b"G\x00\x00\x00\x00\x00\x00\x00\x00", b"\x8a\x02\x01\x02", b"Va\\u0041\n", b"S'a'\n",
            ]),
            0..60,
        ),
    ) {
        read_all([pieces.concat(), b".".to_vec()].concat());
    }

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
