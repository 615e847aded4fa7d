//! One training step on the clock, which every trace is made of: what ran where, as measured; or where nothing was, as predicted,
//! one kernel after the other on one thread. Times are whole nanoseconds since the step began.

use std::collections::HashMap;

use crate::model::{Class, Profile, Slice};

/// A training step on the clock.
pub struct Timeline<'a> {
    pub profile: &'a Profile,
    /// Names, by the number in a span.
    pub threads: Vec<&'a str>,
    /// In the order of the profile: by their begin.
    pub spans: Vec<Span>,
    /// Every launch of the step in its order, also those that were not recorded: as if they had begun with the one before.
    pub begins: Vec<Begin>,
    /// When the last kernel ended.
    pub end_ns: u64,
    pub is_measured: bool,
}

/// A launch of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchId {
    pub program: usize,
    pub micro_batch: usize,
    pub launch: usize,
}

/// A kernel on a thread.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub id: LaunchId,
    pub thread: usize,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// When a launch began on the first of its threads.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    pub id: LaunchId,
    /// Never before the launch before.
    pub begin_ns: u64,
}

impl<'a> Timeline<'a> {
    pub fn of(profile: &'a Profile) -> Timeline<'a> {
        let measured = profile.measured.as_ref().filter(|m| !m.slices.is_empty());
        let spans = match measured {
            Some(measured) => measured.slices.iter().map(span).collect(),
            None => predicted(profile),
        };
        let threads = match measured {
            Some(measured) => measured.threads.iter().map(String::as_str).collect(),
            None => vec!["predicted"],
        };
        let begins = begins(profile, &spans);
        let end_ns = spans.iter().map(|s| s.end_ns).max().unwrap_or(0);
        Timeline { profile, threads, spans, begins, end_ns, is_measured: measured.is_some() }
    }

    /// For each program and each launch what is live, by class. Programs that are no part of a step have none.
    pub fn live_by_class(&self) -> Vec<Vec<[u64; Class::ALL.len()]>> {
        let launches = |p: usize| match self.profile.programs[p].repeats {
            0 => 0,
            _ => self.profile.programs[p].launches.len(),
        };
        let live = |p: usize| (0..launches(p)).map(|n| self.profile.live_by_class(p, n)).collect();
        (0..self.profile.programs.len()).map(live).collect()
    }
}

fn span(slice: &Slice) -> Span {
    let begin_ns = nanoseconds(slice.begin_us);
    Span {
        id: LaunchId { program: slice.program, micro_batch: slice.micro_batch, launch: slice.launch },
        thread: slice.thread,
        begin_ns,
        end_ns: nanoseconds(slice.end_us).max(begin_ns),
    }
}

/// What is no time counts as none, and 104 days are the longest step: picoseconds of it fit into 64 bits.
fn nanoseconds(us: f64) -> u64 {
    const LONGEST: u64 = 1 << 53;
    ((us * 1e3).round() as u64).min(LONGEST)
}

fn launches(profile: &Profile) -> impl Iterator<Item = LaunchId> {
    profile.step_runs().flat_map(|(program, micro_batch)| {
        (0..profile.programs[program].launches.len()).map(move |launch| LaunchId { program, micro_batch, launch })
    })
}

fn predicted(profile: &Profile) -> Vec<Span> {
    let mut now_us = 0.0;
    let next = |id: LaunchId| {
        let begin_ns = nanoseconds(now_us);
        now_us += profile.programs[id.program].launches[id.launch].predicted_us;
        Span { id, thread: 0, begin_ns, end_ns: nanoseconds(now_us).max(begin_ns) }
    };
    launches(profile).map(next).collect()
}

fn begins(profile: &Profile, spans: &[Span]) -> Vec<Begin> {
    let mut first: HashMap<LaunchId, u64> = HashMap::new();
    for span in spans {
        first.entry(span.id).and_modify(|ns| *ns = span.begin_ns.min(*ns)).or_insert(span.begin_ns);
    }
    let mut now = 0;
    let begin = |id: LaunchId| {
        now = first.get(&id).map_or(now, |ns| now.max(*ns));
        Begin { id, begin_ns: now }
    };
    launches(profile).map(begin).collect()
}
