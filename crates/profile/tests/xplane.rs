//! What TensorBoard's Profile tab is told is the step of the profile: kernels by thread, and memory that comes and goes.

mod plans;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;

use memfit_profile::Profile;
use memfit_profile::export::xplane::{create_xplane, write_xspace};
use plans::{digits, on_two_threads, peak_of_step, profiles};
use wire::Message;

/// The host plane with the names of its metadata.
struct Plane<'a> {
    lines: Vec<Message<'a>>,
    events: HashMap<u64, Message<'a>>,
    stats: HashMap<u64, &'a str>,
}

impl<'a> Plane<'a> {
    fn read(bytes: &'a [u8]) -> Plane<'a> {
        let space = Message::read(bytes);
        assert_eq!(space.string(4), "memfit", "the host");
        let plane = space.message(1).expect("a plane");
        assert_eq!(plane.string(2), "/host:CPU");
        let entries = |field| plane.messages(field).into_iter().map(|e| (e.uint(1), e.message(2).unwrap()));
        Plane {
            lines: plane.messages(3),
            events: entries(4).collect(),
            stats: entries(5).map(|(id, metadata)| (id, metadata.string(2))).collect(),
        }
    }

    fn line(&self, name: &str) -> Vec<Message<'a>> {
        self.lines.iter().find(|l| l.string(2) == name).expect("a line").messages(4)
    }

    fn name(&self, event: &Message) -> &'a str {
        self.events[&event.uint(1)].string(2)
    }

    fn stat(&self, event: &Message<'a>, name: &str) -> Message<'a> {
        let is_named = |stat: &Message| self.stats[&stat.uint(1)] == name;
        event.messages(4).into_iter().find(is_named).unwrap_or_else(|| panic!("no {name}"))
    }

    fn int(&self, event: &Message<'a>, name: &str) -> u64 {
        self.stat(event, name).uint(4)
    }
}

fn xspace(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_xspace(profile, &mut bytes).unwrap();
    bytes
}

/// Follows allocations and deallocations by their address; the most that was live.
fn check_memory(profile: &Profile, plane: &Plane, first_thread: &str) -> u64 {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut bytes, mut most, mut last_ps) = (0, 0, None);
    for event in plane.line(first_thread) {
        let (address, size) = match plane.name(&event) {
            "MemoryAllocation" | "MemoryDeallocation" => {
                (plane.int(&event, "addr"), plane.int(&event, "allocation_bytes"))
            }
            _ => continue,
        };
        if plane.name(&event) == "MemoryAllocation" {
            assert_eq!(live.insert(address, size), None, "two at one address");
            bytes += size;
            let below = live.range(..address).next_back();
            let above = live.range(address + 1..).next();
            assert!(below.is_none_or(|(a, s)| a + s <= address), "blocks overlap");
            assert!(above.is_none_or(|(a, _)| address + size <= *a), "blocks overlap");
        } else {
            assert_eq!(live.remove(&address), Some(size), "what goes has come");
            bytes -= size;
        }
        most = most.max(bytes);
        assert!(last_ps < Some(event.uint(2)), "no two are at the same time");
        last_ps = Some(event.uint(2));
        assert_eq!(plane.int(&event, "bytes_allocated"), bytes);
        assert_eq!(plane.int(&event, "peak_bytes_in_use"), most);
        assert_eq!(plane.int(&event, "bytes_available"), profile.memory.arena_bytes - bytes);
        assert!((0.0..1.0).contains(&plane.stat(&event, "fragmentation").double(2)));
    }
    assert_eq!(bytes, profile.memory.state_bytes, "what is left of a step");
    most
}

fn check(profile: &Profile) {
    let bytes = xspace(profile);
    let plane = Plane::read(&bytes);
    let measured = profile.measured.as_ref();
    let threads = measured.map_or(vec!["predicted"], |m| m.threads.iter().map(String::as_str).collect());
    assert_eq!(check_memory(profile, &plane, threads[0]), peak_of_step(profile));
    let launches: usize = profile.programs.iter().map(|p| p.repeats * p.launches.len()).sum();
    for thread in threads {
        let kernels = plane.line(thread).into_iter().filter(|e| plane.events[&e.uint(1)].bytes(4).is_some());
        assert_eq!(kernels.count(), launches, "kernels of {thread}");
    }
    let counters = plane.line("_counters_");
    let live: Vec<u64> =
        counters.iter().filter(|e| plane.name(e) == "live bytes").map(|e| plane.int(e, "bytes")).collect();
    assert_eq!(live.len(), launches + 1);
    assert_eq!(live.into_iter().max(), Some(peak_of_step(profile)));
}

#[test]
fn memory_comes_and_goes_within_the_arena_and_reaches_the_planned_peak() {
    for profile in profiles() {
        check(&profile);
        check(&on_two_threads(profile));
    }
}

#[test]
fn a_tensor_has_its_type_shape_and_class() {
    let profile = digits();
    let bytes = xspace(&profile);
    let plane = Plane::read(&bytes);
    let line = plane.line("predicted");
    let first = line.iter().find(|e| plane.name(e) == "MemoryAllocation").unwrap();
    let state = &profile.states[0];
    assert_eq!(plane.stat(first, "tf_op").string(5), format!("{} (state)", state.name));
    assert_eq!(plane.stat(first, "region_type").string(5), state.class.name());
    assert_eq!(plane.int(first, "data_type"), 1, "DT_FLOAT");
    assert_eq!(format!("f32{}", plane.stat(first, "shape").string(5)), state.ty);
    assert_eq!(plane.int(first, "requested_bytes"), state.bytes);
}

#[test]
fn a_kernel_has_the_name_that_the_viewer_shows_and_the_one_that_counts_as_an_op() {
    let profile = digits();
    let bytes = xspace(&profile);
    let plane = Plane::read(&bytes);
    let launch = &profile.programs[0].launches[0];
    let shown = format!("{} {}", launch.op, launch.layer);
    let kernel = plane.events.values().find(|e| e.string(4) == shown).expect("the first kernel");
    let (name, kind) = kernel.string(2).split_once(':').unwrap();
    assert_eq!(name, format!("{}/{}", launch.layer, launch.op));
    assert_eq!(kind.to_lowercase(), launch.op);
    assert!(kind.starts_with(char::is_uppercase));
}

#[test]
fn a_file_is_new_and_where_the_plugin_looks_for_it() {
    let logs = std::env::temp_dir().join(format!("memfit-xplane-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&logs);
    let profile = digits();
    let path = create_xplane(&logs, "step 3", &profile).unwrap();
    assert_eq!(path, logs.join("plugins/profile/step 3/memfit.xplane.pb"));
    assert_eq!(std::fs::read(&path).unwrap(), xspace(&profile));
    std::fs::write(&path, "mine").unwrap();
    assert_eq!(create_xplane(&logs, "step 3", &profile).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    for run in ["", ".", "..", "a/b", "/etc", "a/"] {
        assert_eq!(create_xplane(&logs, run, &profile).unwrap_err().kind(), ErrorKind::InvalidInput, "{run:?}");
    }
    std::fs::remove_dir_all(&logs).unwrap();
}
