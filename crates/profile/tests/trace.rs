//! What a trace for Perfetto shows is the step of the profile: every kernel, and at every launch what is live.

mod plans;

use std::collections::HashMap;

use memfit_profile::Profile;
use memfit_profile::export::trace::{LIVE_BY_CLASS, LIVE_BYTES, trace_json};
use plans::{digits, on_two_threads, peak_of_step, profiles};
use serde_json::Value;

fn events(profile: &Profile) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&trace_json(profile)).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

fn of_phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |e| e["ph"] == phase)
}

fn counters<'a>(events: &'a [Value], name: &'a str) -> Vec<&'a Value> {
    of_phase(events, "C").filter(|e| e["name"] == name).collect()
}

/// The most that the counter of live bytes ever says.
fn most_live(events: &[Value]) -> u64 {
    counters(events, LIVE_BYTES).iter().map(|e| e["args"]["total"].as_u64().unwrap()).max().unwrap()
}

/// As Perfetto reads a time.
fn nanoseconds(us: &Value) -> u64 {
    (us.as_f64().unwrap() * 1e3) as u64
}

fn check(profile: &Profile) {
    let events = events(profile);
    let launches: usize = profile.programs.iter().map(|p| p.repeats * p.launches.len()).sum();
    assert_eq!(most_live(&events), peak_of_step(profile));
    let (totals, classes) = (counters(&events, LIVE_BYTES), counters(&events, LIVE_BY_CLASS));
    assert_eq!(totals.len(), launches + 1, "one for each launch, and one at the end");
    for (total, by_class) in totals.iter().zip(&classes) {
        let sum: u64 = by_class["args"].as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum();
        assert_eq!(total["args"]["total"], sum);
        assert_eq!(total["ts"], by_class["ts"]);
    }
    let mut ends: HashMap<u64, u64> = HashMap::new();
    for slice in of_phase(&events, "X") {
        let begin = nanoseconds(&slice["ts"]);
        let end = ends.entry(slice["tid"].as_u64().unwrap()).or_default();
        assert!(*end <= begin, "slices of a thread overlap: {slice}");
        *end = begin + nanoseconds(&slice["dur"]);
    }
    let slices = profile.measured.as_ref().map_or(launches, |m| m.slices.len());
    assert_eq!(of_phase(&events, "X").count(), slices);
    let threads = profile.measured.as_ref().map_or(1, |m| m.threads.len());
    assert_eq!(ends.len(), threads);
    assert_eq!(of_phase(&events, "M").filter(|e| e["name"] == "thread_name").count(), threads);
}

#[test]
fn the_counter_of_live_bytes_reaches_the_planned_peak_and_never_more() {
    for profile in profiles() {
        check(&profile);
        check(&on_two_threads(profile));
    }
}

#[test]
fn a_kernel_says_what_it_is() {
    let profile = digits();
    let events = events(&profile);
    let (first, launch) = (of_phase(&events, "X").next().unwrap(), &profile.programs[0].launches[0]);
    assert_eq!(first["args"]["op"], launch.op);
    assert_eq!(first["args"]["layer"], launch.layer);
    assert_eq!(first["args"]["part"], "forward");
    assert_eq!(first["args"]["flops"], launch.flops);
    assert_eq!(first["cat"], "forward");
}

#[test]
fn measured_times_are_exact_to_the_nanosecond() {
    let mut profile = on_two_threads(digits());
    let slices = &mut profile.measured.as_mut().unwrap().slices;
    (slices[0].begin_us, slices[0].end_us) = (0.123_456, 1.001_4);
    let slice = of_phase(&events(&profile), "X").next().unwrap().clone();
    assert_eq!((nanoseconds(&slice["ts"]), nanoseconds(&slice["dur"])), (123, 1001 - 123));
}

#[test]
fn launches_that_were_not_recorded_count_for_what_is_live() {
    let mut profile = on_two_threads(digits());
    let peak = peak_of_step(&profile);
    let slices = &mut profile.measured.as_mut().unwrap().slices;
    let before = slices.len();
    slices.retain(|s| s.launch % 5 == 1);
    assert!(slices.len() < before / 2);
    let events = events(&profile);
    assert_eq!(most_live(&events), peak);
    let times: Vec<u64> = counters(&events, LIVE_BYTES).iter().map(|e| nanoseconds(&e["ts"])).collect();
    assert!(times.is_sorted());
}

#[test]
fn times_that_are_none_are_written_all_the_same() {
    let mut profile = on_two_threads(digits());
    let slices = &mut profile.measured.as_mut().unwrap().slices;
    (slices[0].begin_us, slices[0].end_us) = (f64::NAN, -5.0);
    (slices[1].begin_us, slices[1].end_us) = (1e300, f64::INFINITY);
    assert_eq!(most_live(&events(&profile)), peak_of_step(&profile));
}
