//! What was measured, as Markdown. Measures nothing itself.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::{MIB, Workload};
use crate::process::Results;
use crate::{machine, median};

const HEAD: &str = "\
## Two processes beside PyTorch's

Made by `cargo xtask bench-replicas`.

Whole training steps in f32 by two processes that share every batch, in turns: PyTorch's over gloo on the loopback device, memfit's
over Open MPI. A time is the median of the steps of a process after two to warm up, and then the median over the alternations; the
least is that of all steps; a ratio is the median of the ratios within each alternation. Bytes are those of the process that has the
most: its peak in resident memory less what it had before there was a model. For PyTorch that is when it is loaded and all
processes have met; for memfit it is the peak of a process that MPI has begun in and that is then refused, since it has no run
file. So libraries count in neither. PyTorch has its data in memory and its gradients as views of DDP's buckets; memfit reads its
data from a file, and writes a checkpoint at the end. Nothing is evaluated.

With `--lanes 2` one process computes the same bits as two.

";

const SUM_HEAD: &str = "\
### The ordered sum of exchanges beside MPI_Allreduce

25 million numbers of two processes in shared memory, medians of 15 rounds in turns in a process, and then over the alternations.

| | piece | ordered ms | MPI_Allreduce ms | ratio |
|---|---|---|---|---|
";

/// One run.
pub struct Sample {
    /// By step.
    pub ms: Vec<f64>,
    /// Bytes.
    pub net: u64,
}

impl Sample {
    pub fn of_script(results: &Results) -> Result<Sample, String> {
        let ms = results.text("milliseconds")?.split(' ').map(|ms| ms.parse().map_err(|e| format!("{ms}: {e}")));
        Ok(Sample { ms: ms.collect::<Result<_, _>>()?, net: results.number("net")? })
    }

    pub fn milliseconds(&self) -> Option<f64> {
        median(self.ms.clone())
    }
}

/// All of a workload, by side and alternation.
pub struct Measured<'a> {
    workload: &'a Workload,
    pub samples: Vec<Vec<Sample>>,
}

impl Measured<'_> {
    pub fn new(workload: &Workload) -> Measured<'_> {
        Measured { workload, samples: workload.sides.iter().map(|_| Vec::new()).collect() }
    }

    fn section(&self) -> Result<String> {
        let mut text = format!("### {}\n\n| | ms a step | least | MiB |\n|---|---|---|---|\n", self.workload.title);
        for (side, samples) in self.workload.sides.iter().zip(&self.samples) {
            let [ms, bytes] = [milliseconds, net].map(|of| median(samples.iter().map(of).collect()));
            let least = samples.iter().flat_map(|s| s.ms.iter().copied()).reduce(f64::min);
            let (ms, least, bytes) = (ms.context("no steps")?, least.context("no steps")?, bytes.context("no bytes")?);
            writeln!(text, "| {} | {ms:.0} | {least:.0} | {:.0} |", side.label, bytes / MIB)?;
        }
        text += "\n| | time | least time | bytes |\n|---|---|---|---|\n";
        for [one, other] in self.workload.ratios {
            let (one_of, other_of) = (self.of(one)?, self.of(other)?);
            let ratio =
                |of: fn(&Sample) -> f64| median(one_of.iter().zip(other_of).map(|(a, b)| of(a) / of(b)).collect());
            let [time, least, bytes] = [milliseconds, fastest, net].map(|of| ratio(of).unwrap_or(f64::NAN));
            writeln!(text, "| {one} ÷ {other} | **{time:.2}** | {least:.2} | **{bytes:.2}** |")?;
        }
        Ok(text + "\n")
    }

    fn of(&self, label: &str) -> Result<&[Sample]> {
        let at = self.workload.sides.iter().position(|side| side.label == label).context("a side that is not there")?;
        Ok(&self.samples[at])
    }
}

fn milliseconds(sample: &Sample) -> f64 {
    sample.milliseconds().unwrap_or(f64::NAN)
}

fn fastest(sample: &Sample) -> f64 {
    sample.ms.iter().copied().fold(f64::NAN, f64::min)
}

fn net(sample: &Sample) -> f64 {
    sample.net as f64
}

/// Of a library in pieces of one size: ordered and MPI_Allreduce, by alternation.
pub struct Sums {
    library: &'static str,
    piece: usize,
    pub milliseconds: Vec<[f64; 2]>,
}

impl Sums {
    pub fn new(library: &'static str, piece: usize) -> Sums {
        Sums { library, piece, milliseconds: Vec::new() }
    }

    fn line(&self) -> String {
        let of = |f: fn(&[f64; 2]) -> f64| median(self.milliseconds.iter().map(f).collect()).unwrap_or(f64::NAN);
        let (ordered, reduced, ratio) = (of(|ms| ms[0]), of(|ms| ms[1]), of(|ms| ms[0] / ms[1]));
        format!("| {} | {} MiB | {ordered:.0} | {reduced:.0} | **{ratio:.2}** |\n", self.library, self.piece >> 20)
    }
}

pub fn page(steps: usize, alternations: usize, measured: &[Measured], sums: &[Sums]) -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let mut text = format!(
        "{HEAD}Measured on {}; {steps} steps in each of {alternations} alternations; load average at the end {load}.\n\n",
        machine::describe()
    );
    for workload in measured {
        text += &workload.section()?;
    }
    text += SUM_HEAD;
    sums.iter().for_each(|sum| text += &sum.line());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::WORKLOADS;
    use super::*;

    #[test]
    fn ratios_are_taken_within_alternations() {
        let mut measured = Measured::new(&WORKLOADS[1]);
        for (side, samples) in measured.samples.iter_mut().enumerate() {
            for round in [1.0, 3.0, 10.0] {
                samples.push(Sample { ms: vec![round * 9.0, round * (side + 1) as f64, round], net: 1 << (20 + side) });
            }
        }
        let text = measured.section().expect("all was measured");
        assert!(text.contains("| memfit, 2 processes × 1 thread | 6 | 1 | 2 |"), "{text}");
        let ratio =
            "| memfit, 2 processes × 1 thread ÷ PyTorch DDP, 2 processes × 1 thread | **2.00** | 1.00 | **2.00** |";
        assert!(text.contains(ratio), "{text}");
    }

    #[test]
    fn a_script_says_the_time_of_each_step() {
        let said = crate::process::results("result milliseconds 3.5 1.5 2.5\nresult net 77\n");
        let sample = Sample::of_script(&said).expect("all is there");
        assert_eq!((sample.milliseconds(), sample.net), (Some(2.5), 77));
    }
}
