//! What is live at the fullest instant, and what it would cost to compute it a second time instead of keeping it.

use std::collections::HashSet;

use memfit_ir::ValueId;
use memfit_plan::report::peak_launch;
use memfit_plan::{Plan, storage};

use crate::model::{Class, Peak, PeakEntry, Profile};

/// The fullest instant of a plan, of which this is the profile so far. `seconds` are those of a launch of the program in which it
/// is.
pub fn at_peak(plan: &Plan, profile: &Profile, seconds: &dyn Fn(usize, usize) -> f64) -> Peak {
    let Some((program, launch)) = peak_launch(plan) else { return Peak::default() };
    let index = plan.programs.iter().position(|p| std::ptr::eq(p, program)).unwrap_or(0);
    let recompute = Recompute::new(program, launch);
    let seconds = |launch: usize| seconds(index, launch);
    let shown = &profile.programs[index];
    let state = |(s, bytes): (&crate::model::State, u64)| PeakEntry {
        buffer: None,
        layer: s.name.clone(),
        op: "state".into(),
        ty: s.ty.clone(),
        class: s.class,
        bytes,
        recompute_ms: None,
    };
    let mut live: Vec<PeakEntry> = profile.padded_states().map(state).collect();
    if shown.accumulator_bytes > 0 {
        live.extend(profile.states.iter().filter(|s| s.class == Class::Accumulators).map(|s| state((s, s.bytes))));
    }
    for (i, b) in shown.buffers.iter().enumerate().filter(|(_, b)| b.first <= launch && launch < b.end) {
        let launches = (b.class == Class::Activations).then(|| recompute.launches(ValueId(b.value))).flatten();
        live.push(PeakEntry {
            buffer: Some(i),
            layer: b.layer.clone(),
            op: b.op.clone(),
            ty: b.ty.clone(),
            class: b.class,
            bytes: b.bytes,
            recompute_ms: launches.map(|needed| needed.into_iter().map(seconds).sum::<f64>() * 1e3),
        });
    }
    let at = &shown.launches[launch];
    if at.scratch_bytes > 0 {
        live.push(PeakEntry {
            buffer: None,
            layer: at.layer.clone(),
            op: "scratch".into(),
            ty: format!("u8[{}]", at.scratch_bytes),
            class: Class::Scratch,
            bytes: at.scratch_bytes,
            recompute_ms: None,
        });
    }
    live.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.layer.cmp(&b.layer)));
    Peak { program: index, launch, live }
}

/// Computing values a second time out of what is live during a launch.
struct Recompute<'a> {
    program: &'a memfit_plan::Program,
    storage: Vec<ValueId>,
    /// By value: the launch that makes it.
    maker: Vec<Option<usize>>,
    /// By value: whether it is there while the launch runs.
    is_there: Vec<bool>,
}

impl<'a> Recompute<'a> {
    fn new(program: &'a memfit_plan::Program, launch: usize) -> Recompute<'a> {
        let graph = &program.graph;
        let mut maker = vec![None; graph.values().len()];
        for (i, l) in program.launches.iter().enumerate() {
            l.group.writes.iter().for_each(|v| maker[v.index()] = Some(i));
        }
        let mut is_there = vec![false; graph.values().len()];
        graph.states().for_each(|(_, v)| is_there[v.index()] = true);
        let buffers = memfit_plan::report::buffers(program);
        buffers.iter().filter(|b| b.is_live(launch)).for_each(|b| is_there[b.value.index()] = true);
        Recompute { program, storage: storage(graph), maker, is_there }
    }

    /// All launches that are needed to make a value again, in their order; none where something is gone for good that they would
    /// read.
    fn launches(&self, value: ValueId) -> Option<Vec<usize>> {
        let mut needed = HashSet::new();
        let mut open = vec![value];
        while let Some(v) = open.pop() {
            let maker = self.maker[v.index()]?;
            if !needed.insert(maker) {
                continue;
            }
            for read in &self.program.launches[maker].group.reads {
                let source = self.storage[read.index()];
                if source == value || !self.is_there[source.index()] {
                    open.push(source);
                }
            }
        }
        let mut needed: Vec<usize> = needed.into_iter().collect();
        needed.sort_unstable();
        Some(needed)
    }
}
