//! What a snapshot says of buffers and segments, against what was counted while it was made, and in the cases that go wrong.

use memfit_plan::pack::max_live;
use memfit_profile::torch::{DeviceTrace, FreedAt, Snapshot, TorchError};

/// Plain data, and how it is pickled.
#[derive(Clone)]
enum Data {
    Int(i64),
    Text(&'static str),
    List(Vec<Data>),
    Dict(Vec<(&'static str, Data)>),
}

use Data::{Dict, Int, List, Text};

impl Data {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Int(number) => {
                bytes.extend([0x8a, 8]);
                bytes.extend(number.to_le_bytes());
            }
            Text(text) => {
                bytes.extend([0x8c, text.len() as u8]);
                bytes.extend(text.as_bytes());
            }
            List(items) => {
                bytes.extend(b"](");
                items.iter().for_each(|item| item.write(bytes));
                bytes.push(b'e');
            }
            Dict(entries) => {
                bytes.extend(b"}(");
                for (key, value) in entries {
                    Text(key).write(bytes);
                    value.write(bytes);
                }
                bytes.push(b'u');
            }
        }
    }

    fn pickled(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, 4];
        self.write(&mut bytes);
        bytes.push(b'.');
        bytes
    }
}

fn event((action, address, size): (&'static str, i64, i64)) -> Data {
    Dict(vec![("action", Text(action)), ("addr", Int(address)), ("size", Int(size))])
}

fn block((state, address, size, requested): (&'static str, i64, i64, i64)) -> Data {
    let sizes = [("address", Int(address)), ("size", Int(size)), ("requested_size", Int(requested))];
    Dict([vec![("state", Text(state))], sizes.to_vec()].concat())
}

fn segment(total: i64, blocks: &[(&'static str, i64, i64, i64)]) -> Data {
    let blocks = List(blocks.iter().copied().map(block).collect());
    Dict(vec![("device", Int(0)), ("total_size", Int(total)), ("blocks", blocks)])
}

fn snapshot(events: &[(&'static str, i64, i64)], segments: Vec<Data>) -> Snapshot {
    let trace = List(events.iter().copied().map(event).collect());
    let whole = Dict(vec![("segments", List(segments)), ("device_traces", List(vec![trace]))]);
    Snapshot::parse(whole.pickled()).unwrap_or_else(|e| panic!("{e}"))
}

fn lives(trace: &DeviceTrace) -> Vec<(usize, usize, u64)> {
    trace.buffers.iter().map(|b| (b.lower, b.upper, b.bytes)).collect()
}

#[test]
fn a_snapshot_says_what_was_counted_while_it_was_made() {
    let snapshot = Snapshot::parse(include_bytes!("../data/snapshot.pickle").to_vec()).expect("a snapshot");
    let facts: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../data/snapshot.json")).expect("what was counted");
    for (device, facts) in facts.iter().enumerate() {
        let trace = snapshot.device(Some(device)).expect("a device with events");
        let reserved = trace.reserved.expect("segments and events agree");
        let found = [trace.events, trace.buffers.len(), trace.before, trace.contradictions];
        let counted = ["events", "buffers", "before"].map(|key| facts[key].as_u64().expect("a number") as usize);
        assert_eq!(found[..3], counted);
        assert_eq!(found[3], 0);
        assert_eq!(facts["peak_live"], trace.peak(1).bytes);
        assert_eq!(
            (&facts["peak_reserved"], &facts["reserved"]),
            (&reserved.peak.into(), &reserved.at_snapshot.into())
        );
        assert_eq!(max_live(&trace.items()), Some(trace.peak(1).bytes), "packing sees the same lives");
    }
    assert_eq!(snapshot.device(None).expect("a device").device, 0, "it has the most events");
    assert_eq!(snapshot.events()[2], 0);
    assert!(
        matches!(snapshot.device(Some(2)), Err(TorchError::NoEvents { device: Some(2), others }) if others == [0, 1])
    );
    assert!(matches!(snapshot.device(Some(3)), Err(TorchError::NoDevice { device: 3, devices: 3 })));
}

#[test]
fn a_buffer_is_named_after_the_line_of_the_program_that_asked_for_it() {
    let snapshot = Snapshot::parse(include_bytes!("../data/snapshot.pickle").to_vec()).expect("a snapshot");
    let trace = snapshot.device(None).expect("a device");
    let frames: Vec<_> = trace.live_at(trace.peak(1).time).into_iter().map(|b| (b.lower, trace.frame(b))).collect();
    let named: Vec<String> = frames
        .iter()
        .filter_map(|(_, f)| f.as_ref())
        .map(|f| format!("{}:{} {}", f.file, f.line, f.function))
        .collect();
    // Neither C++ nor the library that called it.
    assert!(named.iter().all(|name| name.starts_with("model.py:")), "{named:?}");
    assert!(
        named.contains(&"model.py:52 mlp".to_string()) && named.contains(&"model.py:91 step".to_string()),
        "{named:?}"
    );
    assert!(frames.iter().all(|(lower, frame)| frame.is_some() == (*lower > 0)), "from before, none is known");
}

#[test]
fn a_buffer_lives_from_its_allocation_until_its_memory_can_be_used_again() {
    let events = [("alloc", 16, 100), ("free_requested", 16, 100), ("alloc", 32, 50), ("free_completed", 16, 100)];
    let snapshot = snapshot(&events, vec![segment(4096, &[("active_allocated", 32, 512, 50)])]);
    let trace = snapshot.device(None).expect("a device");
    assert_eq!(lives(&trace), [(1, 4, 100), (3, 5, 50)]);
    assert_eq!((trace.peak(1).bytes, trace.peak(512).bytes, trace.peak(1).time), (150, 1024, 3));
    assert_eq!(trace.blocks.map(|b| (b.blocks, b.requested, b.bytes)), Some((1, 50, 512)));
    assert_eq!(trace.freed_at, FreedAt::Completed);
}

#[test]
fn what_was_allocated_before_lives_from_the_beginning() {
    // One that is freed, one that waits to be, one that no event speaks of; free blocks do not count.
    let events = [("free_requested", 16, 7), ("free_completed", 16, 7), ("free_requested", 32, 9)];
    let blocks = [("active_pending_free", 32, 512, 9), ("active_allocated", 48, 512, 11), ("inactive", 64, 512, 0)];
    let snapshot = snapshot(&events, vec![segment(4096, &blocks)]);
    let trace = snapshot.device(None).expect("a device");
    assert_eq!(lives(&trace), [(0, 2, 7), (0, 4, 9), (0, 4, 11)]);
    assert_eq!((trace.before, trace.contradictions), (3, 0));
}

#[test]
fn addresses_are_used_again_and_what_cannot_be_is_counted() {
    let alloc_twice = [("alloc", 16, 5), ("alloc", 16, 6), ("free_completed", 16, 6), ("free_completed", 16, 6)];
    let snapshot_of_twice = snapshot(&alloc_twice, vec![]);
    let trace = snapshot_of_twice.device(None).expect("a device");
    assert_eq!((lives(&trace), trace.contradictions), (vec![(1, 2, 5), (2, 3, 6)], 2));
    let again = [("alloc", 16, 5), ("free_completed", 16, 5), ("alloc", 16, 6), ("alloc", 32, 0), ("oom", 0, 99)];
    let snapshot = snapshot(&again, vec![]);
    let trace = snapshot.device(None).expect("a device");
    assert_eq!((lives(&trace), trace.contradictions, trace.empty), (vec![(1, 2, 5), (3, 6, 6)], 0, 1));
    assert_eq!((trace.out_of_memory.events, trace.out_of_memory.largest), (1, 99));
}

#[test]
fn where_only_requests_were_recorded_they_are_the_end() {
    let events =
        [("alloc", 16, 5), ("free_requested", 16, 5), ("alloc", 16, 6), ("free_requested", 16, 6), ("snapshot", 0, 0)];
    let snapshot = snapshot(&events, vec![]);
    let trace = snapshot.device(None).expect("a device");
    assert_eq!((lives(&trace), trace.freed_at), (vec![(1, 2, 5), (3, 4, 6)], FreedAt::Requested));
    assert_eq!(trace.contradictions, 0);
}

#[test]
fn what_was_reserved_is_counted_back_from_the_end() {
    let events = [("segment_free", 0, 100), ("segment_alloc", 0, 30), ("segment_map", 0, 25), ("segment_unmap", 0, 5)];
    let whole = snapshot(&events, vec![segment(80, &[])]);
    let reserved = whole.device(None).expect("a device").reserved.expect("they agree");
    assert_eq!((reserved.peak, reserved.at_snapshot), (130, 80));
    // More was taken than is there at the end, and nothing was given back.
    let contradiction = snapshot(&[("segment_alloc", 0, 30)], vec![segment(20, &[])]);
    assert_eq!(contradiction.device(None).expect("a device").reserved, None);
}

#[test]
fn what_is_no_snapshot_is_told_with_its_place() {
    let whole = |events: Data, segments: Data| Dict(vec![("segments", segments), ("device_traces", events)]);
    let one = |event: Data| whole(List(vec![List(vec![event])]), List(vec![]));
    let good = || List(vec![List(vec![event(("alloc", 1, 1))])]);
    let huge = 1 << 61;
    for (data, part) in [
        (List(vec![]), "the whole is a list, and no dictionary"),
        (Dict(vec![("segments", List(vec![]))]), "has no \"device_traces\""),
        (Dict(vec![("device_traces", List(vec![]))]), "has no \"segments\""),
        (whole(Int(1), List(vec![])), "\"device_traces\" is an integer, and no list"),
        (whole(List(vec![Text("x")]), List(vec![])), "device_traces[0] is a string, and no list"),
        (one(Int(3)), "device_traces[0][0] is an integer, and no dictionary"),
        (one(Dict(vec![])), "device_traces[0][0] has no \"action\""),
        (one(Dict(vec![("action", Text("alloc")), ("size", Int(1))])), "has no \"addr\""),
        (one(event(("alloc", 1, -1))), "has a \"size\" that is no number"),
        (whole(good(), List(vec![Int(1)])), "segments[0] is an integer"),
        (whole(good(), List(vec![Dict(vec![("total_size", Int(1))])])), "segments[0] has no list of \"blocks\""),
        (
            whole(good(), List(vec![segment(1, &[("active_allocated", 1, -1, 1)])])),
            "segments[0][\"blocks\"][0] has a \"size\"",
        ),
        (
            whole(List(vec![List(vec![event(("alloc", 1, huge)), event(("alloc", 2, huge))])]), List(vec![])),
            "any memory",
        ),
        (whole(List(vec![List(vec![]), List(vec![])]), List(vec![])), "no events of any device"),
    ] {
        let read = Snapshot::parse(data.pickled()).and_then(|snapshot| snapshot.device(None).map(|_| ()));
        let error = read.expect_err("it is refused").to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn one_list_of_blocks_does_not_stand_for_many() {
    // A thousand segments that share a thousand blocks, in a few kilobytes.
    let mut bytes = b"}(\x8c\x0ddevice_traces](](".to_vec();
    event(("alloc", 1, 1)).write(&mut bytes);
    bytes.extend(b"ee\x8c\x08segments](}(\x8c\x0atotal_sizeK\x01\x8c\x06blocks](");
    block(("inactive", 1, 1, 1)).write(&mut bytes);
    bytes.extend(b"q\x01");
    bytes.extend(b"h\x01".repeat(1000));
    bytes.extend(b"euq\x02");
    bytes.extend(b"h\x02".repeat(1000));
    bytes.extend(b"eu.");
    let snapshot = Snapshot::parse(bytes).unwrap_or_else(|e| panic!("{e}"));
    let error = snapshot.device(None).expect_err("it is refused").to_string();
    assert!(error.contains("again and again"), "{error}");
}

#[test]
fn blocks_that_were_requested_with_more_bytes_than_there_are_are_refused() {
    let most = i64::MAX;
    let blocks =
        [("active_allocated", 1, 512, most), ("active_allocated", 2, 512, most), ("active_allocated", 3, 512, most)];
    // Events speak of all of them, so that none is a buffer of its requested size.
    let events = [("alloc", 1, 512), ("alloc", 2, 512), ("alloc", 3, 512)];
    let snapshot = snapshot(&events, vec![segment(1536, &blocks)]);
    let error = snapshot.device(None).expect_err("too many bytes");
    assert!(matches!(error, TorchError::TooManyBytes), "{error}");
}
