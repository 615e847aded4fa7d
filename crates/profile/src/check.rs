//! Whether a profile that somebody gives holds together: what everybody else takes for granted is looked at here, and nowhere else.

use crate::error::ProfileError;
use crate::model::{FORMAT, KernelTimes, Profile, Program, Slice};

/// The sizes of a profile may not add up to this, so that no sum of some of them is too large for 64 bits.
const TOO_MANY_BYTES: u128 = 1 << 62;
/// No time is longer, in whatever unit it is given: thirty years in microseconds.
const LONGEST: f64 = 1e15;

impl Profile {
    /// A file may say anything: what everybody else takes for granted is looked at here.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let wrong = |what: String| Err(ProfileError::Contradiction(what));
        if self.format != FORMAT {
            return wrong(format!("its format is {:?} and not {FORMAT:?}", self.format));
        }
        for (i, program) in self.programs.iter().enumerate() {
            let count = program.launches.len();
            for b in &program.buffers {
                if b.first >= b.end || b.end > count || b.last_read.is_some_and(|n| n >= count) {
                    return wrong(format!("value {} of program {i} lives outside of its {count} launches", b.value));
                }
            }
            if program.repeats > 1 << 20 {
                return wrong(format!("program {i} runs {} times in a step", program.repeats));
            }
        }
        if self.all_bytes() >= TOO_MANY_BYTES {
            return wrong("its sizes add up to more bytes than there are".into());
        }
        if self.times().any(|time| !(0.0..=LONGEST).contains(&time)) {
            return wrong("a time in it is negative, or longer than anything takes".into());
        }
        let is_launch = |p: usize, n: usize| self.programs.get(p).is_some_and(|program| n < program.launches.len());
        let launches = self.programs.iter().map(|p| p.launches.len()).sum::<usize>();
        if launches > 0 && !is_launch(self.peak.program, self.peak.launch) {
            return wrong("its peak is in no launch".into());
        }
        let buffers = self.programs.get(self.peak.program).map_or(0, |p| p.buffers.len());
        if self.peak.live.iter().any(|e| e.buffer.is_some_and(|b| b >= buffers)) {
            return wrong("its peak names a buffer that it has not".into());
        }
        if let Some(measured) = &self.measured {
            let shape = |kernels: &[Vec<KernelTimes>]| kernels.iter().map(Vec::len).collect::<Vec<_>>();
            if shape(&measured.kernels) != self.programs.iter().map(|p| p.launches.len()).collect::<Vec<_>>() {
                return wrong("its measured kernels are not those of its programs".into());
            }
            let is_bad = |s: &Slice| !is_launch(s.program, s.launch) || s.thread >= measured.threads.len();
            if measured.slices.iter().any(is_bad) {
                return wrong("it measured a kernel that it has not".into());
            }
        }
        Ok(())
    }

    /// Every time that is shown or added up, each in its own unit.
    fn times(&self) -> impl Iterator<Item = f64> {
        let launches = self.programs.iter().flat_map(|p| &p.launches).map(|l| l.predicted_us);
        let steps = self.measured.iter().flat_map(|m| &m.steps).flat_map(|s| [s.ms, s.waited_ms]);
        let kernels =
            self.measured.iter().flat_map(|m| m.kernels.iter().flatten()).flat_map(|k| [k.mean_us, k.median_us]);
        let slices = self.measured.iter().flat_map(|m| &m.slices).flat_map(|s| [s.begin_us, s.end_us]);
        let waits = self.pipeline.iter().flat_map(|p| [p.step_waited_ms, p.data_waited_ms]);
        let predicted = [self.memory.predicted_step_ms, self.memory.fastest_step_ms];
        launches.chain(steps).chain(kernels).chain(slices).chain(waits).chain(predicted)
    }

    /// All sizes that anybody adds up, together.
    fn all_bytes(&self) -> u128 {
        let states = self.padded_states().map(|(_, bytes)| bytes).chain(self.states.iter().map(|s| s.bytes));
        let of_program = |p: &Program| {
            let buffers = p.buffers.iter().map(|b| u128::from(b.bytes));
            let launches = p.launches.iter().map(|l| u128::from(l.scratch_bytes) + u128::from(l.live_bytes));
            buffers.chain(launches).sum::<u128>() + u128::from(p.accumulator_bytes)
        };
        let peak = self.peak.live.iter().map(|e| u128::from(e.bytes));
        states.map(u128::from).chain(self.programs.iter().map(of_program)).chain(peak).sum()
    }
}
