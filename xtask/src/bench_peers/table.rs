//! What was measured, as Markdown: a section for each workload, so that a run of a few replaces only theirs. Measures
//! nothing itself.

use super::{HOPELESS, Options, WORKLOADS};
use crate::process::Results;
use crate::{machine, median};

const HEAD: &str = "\
## Against other frameworks

Made by `cargo xtask bench-peers`.

Whole training steps in f32 (forward, loss, backward, optimizer) on synthetic data that is in memory, each framework in a
process of its own, in turns. A time is the median of the steps of a process after two to warm up (of three steps where one
takes more than 5 s), and then the median over the alternations; a ratio is the median of the ratios within each alternation.
Resident memory is the most that a process had at once, its libraries and its compiling included. PyTorch uses its fused
optimizers.

All do the same work: the same layers, batch, loss, dropout, running statistics and optimizer settings, on data and labels of
the same distributions. memfit and PyTorch also start from weights of the same distributions, drawn apart, so that their
losses of the third step are alike but not equal (most apart for mlp, which overshoots at first: 6.4 to 8.8 for five seeds of
PyTorch); TensorFlow and JAX start as their layers do by themselves.

The limit is flops ÷ the rate of PyTorch's matrix product (MKL) of 2048×2048 + compulsory bytes ÷ the bandwidth of a copy
or triad of 256 MiB, whichever is better, measured in the same alternation. Flops are all of the step without anything
recomputed, a multiply-add counting 2. Compulsory bytes are, in memfit's fastest plan: parameters, optimizer state and running
statistics, each read once and written once; gradients of parameters, written once and read once; values that the forward
pass leaves in memory for the backward pass, written once and read once; and the batch, read once. Values within either
pass count nothing, as if caches held them. A convolution of 3×3 taps counts as it is defined; where memfit makes it with
fewer multiplications, a step may take less than this limit.

";

/// One process.
pub struct Sample {
    pub seconds: f64,
    pub first_loss: f64,
    /// Of the third step, the first that is timed.
    pub loss: f64,
    resident: Option<u64>,
    parameters: u64,
    versions: String,
}

impl Sample {
    pub fn new(results: &Results) -> Result<Sample, String> {
        let loss = results.number("loss")?;
        if !f64::is_finite(loss) {
            return Err(format!("the loss is {loss}"));
        }
        Ok(Sample {
            seconds: results.number("seconds")?,
            first_loss: results.number("first_loss")?,
            loss,
            resident: results.number("resident").ok(),
            parameters: results.number("parameters")?,
            versions: results.text("versions")?.to_string(),
        })
    }
}

/// The processes of one framework, by alternation.
pub struct Row {
    pub label: &'static str,
    pub samples: Vec<Option<Sample>>,
    pub failure: Option<String>,
}

impl Row {
    pub fn new(label: &'static str) -> Row {
        Row { label, samples: Vec::new(), failure: None }
    }

    /// Seconds in the first alternation.
    pub fn first(&self) -> Option<f64> {
        Some(self.samples.first()?.as_ref()?.seconds)
    }

    fn seconds(&self) -> Vec<Option<f64>> {
        self.samples.iter().map(|s| Some(s.as_ref()?.seconds)).collect()
    }

    /// Processes start alike, so that one stands for all.
    fn loss(&self) -> Option<f64> {
        self.samples.iter().flatten().next().map(|s| s.loss)
    }

    /// Whether it was given up as hopeless.
    fn ran_once(&self, machine: &Machine) -> bool {
        machine.alternations > 1 && self.failure.is_none() && self.samples.iter().flatten().count() == 1
    }

    fn resident(&self) -> Option<f64> {
        let bytes = self.samples.iter().flatten().filter_map(|s| s.resident);
        median(bytes.map(|b| b as f64 / 1048576.0).collect())
    }
}

/// What the machine does in one alternation, in flops and bytes per second.
pub struct Rates {
    flops: f64,
    bytes: f64,
}

impl Rates {
    pub fn new(results: &Results) -> Result<Rates, String> {
        let seconds: f64 = results.number("product_2048")?;
        Ok(Rates { flops: 2.0 * 2048f64.powi(3) / seconds, bytes: results.number("bandwidth")? })
    }
}

/// All of one workload.
pub struct Measured {
    name: &'static str,
    /// Batch and optimizer.
    what: String,
    pub memfit: Row,
    pub peers: Vec<Row>,
    pub rates: Vec<Option<Rates>>,
    flops: f64,
    bytes: f64,
}

impl Measured {
    pub fn new(name: &'static str, peers: Vec<Row>) -> Measured {
        Measured {
            name,
            what: String::new(),
            memfit: Row::new("memfit"),
            peers,
            rates: Vec::new(),
            flops: 0.0,
            bytes: 0.0,
        }
    }

    /// Takes from memfit's results what is the same in each.
    pub fn describe(&mut self, results: &Results) -> Result<(), String> {
        self.what = results.text("workload")?.to_string();
        self.flops = results.number("flops")?;
        self.bytes = results.number("bytes")?;
        Ok(())
    }

    /// The fastest of the peers.
    pub fn best(&self) -> Option<&Row> {
        let timed = self.peers.iter().filter_map(|r| Some((median_known(&r.seconds())?, r)));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
    }

    /// Another number of parameters is another model, and its times say nothing.
    pub fn compare_parameters(&mut self) {
        let Some(ours) = self.memfit.samples.iter().flatten().next().map(|s| s.parameters) else { return };
        for row in &mut self.peers {
            let other = row.samples.iter().flatten().map(|s| s.parameters).find(|&n| n != ours);
            if let Some(theirs) = other {
                row.failure = Some(format!("its model has {theirs} parameters, memfit's has {ours}"));
                row.samples.iter_mut().for_each(|s| *s = None);
            }
        }
    }

    fn limits(&self) -> Vec<Option<f64>> {
        let limit = |r: &Rates| self.flops / r.flops + self.bytes / r.bytes;
        self.rates.iter().map(|r| r.as_ref().map(limit)).collect()
    }

    fn section(&self, machine: &Machine) -> String {
        let title = format!("### {} {}", self.name, self.what);
        let mut paragraphs = vec![title, format!("{machine}; {}.", self.versions()), self.table(machine)];
        let summary = [self.best_text(), self.limit_text()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        paragraphs.extend((!summary.is_empty()).then_some(summary));
        for row in &self.peers {
            let failure = row.failure.as_ref().map(|f| format!("{}: {f}", row.label));
            paragraphs.extend(failure);
        }
        if self.peers.iter().any(|r| r.ran_once(machine)) {
            paragraphs.push(format!("\\* Once only: more than {HOPELESS} times the time of the best."));
        }
        paragraphs.join("\n\n") + "\n\n"
    }

    fn table(&self, machine: &Machine) -> String {
        let memfit = self.memfit.seconds();
        let head = "| | seconds a step | memfit ÷ it | resident MiB | loss of step 3 |\n|---|---|---|---|---|";
        let mut lines = vec![head.to_string(), line("memfit", median_known(&memfit), None, Some(&self.memfit))];
        for row in &self.peers {
            let seconds = row.seconds();
            let label = format!("{}{}", row.label, if row.ran_once(machine) { " \\*" } else { "" });
            lines.push(line(&label, median_known(&seconds), ratio(&memfit, &seconds), Some(row)));
        }
        let limits = self.limits();
        lines.push(line("the machine's limit", median_known(&limits), ratio(&memfit, &limits), None));
        lines.join("\n")
    }

    fn versions(&self) -> String {
        let mut all: Vec<&str> = Vec::new();
        for row in [&self.memfit].into_iter().chain(&self.peers) {
            all.extend(row.samples.iter().flatten().map(|s| s.versions.as_str()).next());
        }
        all.dedup();
        all.join("; ")
    }

    fn best_text(&self) -> Option<String> {
        let best = self.best()?;
        let ratio = ratio(&self.memfit.seconds(), &best.seconds())?;
        Some(format!("memfit ÷ best peer ({}): **{ratio:.2}**.", best.label))
    }

    fn limit_text(&self) -> Option<String> {
        let of = |rate: fn(&Rates) -> f64| median(self.rates.iter().flatten().map(rate).collect());
        Some(format!(
            "Limit: {:.1} Gflop at {:.0} Gflop/s and {:.0} MB at {:.1} GB/s.",
            self.flops / 1e9,
            of(|r| r.flops)? / 1e9,
            self.bytes / 1e6,
            of(|r| r.bytes)? / 1e9
        ))
    }
}

/// With a row's memory and loss, where there is a row.
fn line(label: &str, seconds: Option<f64>, ratio: Option<f64>, row: Option<&Row>) -> String {
    let seconds = seconds.map_or("-".to_string(), |s| format!("{s:.3}"));
    let ratio = ratio.map_or(String::new(), |r| format!("{r:.2}"));
    let resident = row.and_then(Row::resident).map_or(String::new(), |r| format!("{r:.0}"));
    let loss = row.and_then(Row::loss).map_or(String::new(), |l| format!("{l:.3}"));
    format!("| {label} | {seconds} | {ratio} | {resident} | {loss} |")
}

/// Where and how it was measured, as a sentence.
pub struct Machine {
    pub alternations: usize,
    text: String,
}

impl Machine {
    pub fn new(options: &Options, alternations: usize) -> Machine {
        let text = format!(
            "{} threads on {}; at least {} steps in each of {alternations} alternation{}",
            options.threads,
            machine::describe(),
            options.steps,
            if alternations == 1 { "" } else { "s" }
        );
        Machine { alternations, text }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The whole part: new sections in the place of old ones of the same name, others as they were.
pub fn page(old: &str, machine: &Machine, measured: &[Measured]) -> String {
    let new: Vec<String> = measured.iter().map(|m| m.section(machine)).collect();
    merged(old, &new)
}

fn merged(old: &str, new: &[String]) -> String {
    let starts: Vec<usize> = old.match_indices("\n### ").map(|(i, _)| i + 1).chain([old.len()]).collect();
    let old = || starts.windows(2).map(|w| &old[w[0]..w[1]]);
    let mut text = HEAD.to_string();
    for name in WORKLOADS.iter().map(|w| w.name) {
        let is_it = |section: &&str| section.split_whitespace().nth(1) == Some(name);
        text += new.iter().map(String::as_str).find(is_it).or_else(|| old().find(is_it)).unwrap_or_default();
    }
    text
}

/// The median of the ratios of alternations that have both.
fn ratio(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Option<f64> {
    median(ours.iter().zip(theirs).filter_map(|(a, b)| Some((*a)? / (*b)?)).collect())
}

fn median_known(values: &[Option<f64>]) -> Option<f64> {
    median(values.iter().copied().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::results;

    fn sample(seconds: f64) -> Option<Sample> {
        let versions = "memfit 1".to_string();
        Some(Sample { seconds, first_loss: 2.0, loss: 1.0, resident: Some(3 << 20), parameters: 7, versions })
    }

    fn row(label: &'static str, samples: Vec<Option<Sample>>) -> Row {
        Row { label, samples, failure: None }
    }

    fn measured() -> Measured {
        let peers = vec![
            row("Slow", vec![sample(9.0), None, None]),
            row("Fast", vec![sample(4.0), sample(2.0), sample(4.0)]),
            Row { failure: Some("ValueError: a|b".into()), ..row("Broken", vec![None, None, None]) },
        ];
        let mut m = Measured::new("mlp", peers);
        m.memfit.samples = vec![sample(2.0), sample(2.0), sample(1.0)];
        m.describe(&results("result workload b2 adam\nresult flops 1e9\nresult bytes 2e6")).expect("all is there");
        let rates = results("result product_2048 8.589934592\nresult bandwidth 4e6");
        m.rates = (0..3).map(|_| Some(Rates::new(&rates).expect("all is there"))).collect();
        m
    }

    #[test]
    fn a_section_says_times_ratios_and_failures() {
        let machine = Machine { alternations: 3, text: "2 threads".into() };
        let expected = "\
### mlp b2 adam

2 threads; memfit 1.

| | seconds a step | memfit ÷ it | resident MiB | loss of step 3 |
|---|---|---|---|---|
| memfit | 2.000 |  | 3 | 1.000 |
| Slow \\* | 9.000 | 0.22 | 3 | 1.000 |
| Fast | 4.000 | 0.50 | 3 | 1.000 |
| Broken | - |  |  |  |
| the machine's limit | 1.000 | 2.00 |  |  |

memfit ÷ best peer (Fast): **0.50**. Limit: 1.0 Gflop at 2 Gflop/s and 2 MB at 0.0 GB/s.

Broken: ValueError: a|b

\\* Once only: more than 2 times the time of the best.

";
        assert_eq!(measured().section(&machine), expected);
    }

    #[test]
    fn another_model_is_a_failure() {
        let mut m = measured();
        m.peers[1].samples[0].as_mut().expect("it has one").parameters = 8;
        m.compare_parameters();
        assert_eq!(m.peers[1].failure.as_deref(), Some("its model has 8 parameters, memfit's has 7"));
        assert_eq!(m.best().map(|r| r.label), Some("Slow"));
    }

    #[test]
    fn losses_must_be_numbers() {
        let text = |loss: &str| {
            format!("result seconds 1\nresult first_loss 2\nresult loss {loss}\nresult parameters 7\nresult versions A")
        };
        assert_eq!(Sample::new(&results(&text("nan"))).err().as_deref(), Some("the loss is NaN"));
        assert_eq!(Sample::new(&results(&text("0.5"))).map(|s| s.loss), Ok(0.5));
    }

    #[test]
    fn a_run_of_some_workloads_leaves_the_sections_of_others() {
        let old = merged("", &["### gpt b8 x\n\nold\n\n".into(), "### mlp b2 x\n\nold\n\n".into()]);
        assert_eq!(old, format!("{HEAD}### mlp b2 x\n\nold\n\n### gpt b8 x\n\nold\n\n"));
        let new = merged(&old, &["### mlp b4 x\n\nnew\n\n".into()]);
        assert_eq!(new, format!("{HEAD}### mlp b4 x\n\nnew\n\n### gpt b8 x\n\nold\n\n"));
    }
}
