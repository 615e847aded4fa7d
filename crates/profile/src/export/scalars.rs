//! A profile as scalars and a text of TensorBoard: what was measured of each step, how training went, and the plan in words.

use std::io::{self, Write};

use super::tensorboard::{At, EventWriter, wall_seconds};
use crate::markdown::markdown;
use crate::model::{Profile, StepSample};

/// Writes all of them.
///
/// # Errors
/// Of what is written to.
pub fn write_scalars<W: Write>(profile: &Profile, events: &mut EventWriter<W>) -> io::Result<()> {
    let wall_seconds = wall_seconds();
    events.text("plan", At { step: 0, wall_seconds }, &markdown(profile))?;
    let steps = profile.measured.iter().flat_map(|m| &m.steps);
    for step in steps {
        write_step(profile, step, At { step: step.step.into(), wall_seconds }, events)?;
    }
    for curve in &profile.curves {
        let tag = format!("run/{}", curve.name);
        for &(step, value) in &curve.points {
            events.scalar(&tag, At { step, wall_seconds }, value as f32)?;
        }
    }
    events.flush()
}

fn write_step<W: Write>(profile: &Profile, step: &StepSample, at: At, events: &mut EventWriter<W>) -> io::Result<()> {
    let rate = profile.run.batch as f64 / ((step.ms + step.waited_ms) * 1e-3).max(1e-9);
    let scalars = [
        ("profile/loss", Some(f64::from(step.loss))),
        ("profile/step_ms", Some(step.ms)),
        ("profile/waited_ms", Some(step.waited_ms)),
        ("profile/samples_per_s", Some(rate)),
        ("profile/planned_peak_bytes", Some(profile.memory.peak_bytes as f64)),
        ("profile/arena_resident_bytes", step.arena_resident_bytes.map(|b| b as f64)),
        ("profile/process_bytes", step.process_resident_bytes.map(|b| b as f64)),
        ("profile/pipeline_bytes", step.pipeline_bytes.map(|b| b as f64)),
    ];
    for (tag, value) in scalars.into_iter().filter_map(|(tag, value)| Some((tag, value?))) {
        events.scalar(tag, at, value as f32)?;
    }
    Ok(())
}
