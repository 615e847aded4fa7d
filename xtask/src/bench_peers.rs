//! `bench-peers`: training steps of memfit and of other frameworks on the same workloads, in turns, each in a process of
//! its own, and what the machine could do at best. The measuring is done by a program of `memfit-bench` and by the scripts in
//! `peers/`; this runs them and writes down what they say.

mod options;
mod table;

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Result, anyhow};

use crate::page;
use crate::peers::{Memfit, Python};
use crate::process::{Results, Runner};
use options::Options;
use table::{Machine, Measured, Rates, Row, Sample};

/// A way to run a framework.
pub struct Peer {
    pub framework: &'static str,
    variant: &'static str,
    label: &'static str,
    /// Whether it says something about models of images only.
    images_only: bool,
}

#[rustfmt::skip]
const PEERS: [Peer; 7] = [
    Peer { framework: "torch", variant: "eager", label: "PyTorch eager", images_only: false },
    Peer { framework: "torch", variant: "eager_channels_last", label: "PyTorch eager, channels-last", images_only: true },
    Peer { framework: "torch", variant: "compiled", label: "PyTorch compiled", images_only: false },
    Peer { framework: "torch", variant: "compiled_channels_last", label: "PyTorch compiled, channels-last", images_only: true },
    Peer { framework: "tensorflow", variant: "graph", label: "TensorFlow graph", images_only: false },
    Peer { framework: "tensorflow", variant: "xla", label: "TensorFlow XLA", images_only: false },
    Peer { framework: "jax", variant: "jit", label: "JAX jit", images_only: false },
];

pub struct Workload {
    pub name: &'static str,
    images: bool,
    /// About how long one process takes on two cores with AVX-512, for the estimate.
    seconds: u64,
}

/// In the order of the page.
const WORKLOADS: [Workload; 6] = [
    Workload { name: "mlp", images: false, seconds: 12 },
    Workload { name: "resnet18_cifar", images: true, seconds: 50 },
    Workload { name: "resnet50", images: true, seconds: 55 },
    Workload { name: "mobilenet_v3_large", images: true, seconds: 30 },
    Workload { name: "unet", images: true, seconds: 45 },
    Workload { name: "gpt", images: false, seconds: 25 },
];

/// A variant that takes more than so many times as long as the best one in the first alternation is not run again: it is
/// what makes a whole run long, and never the best peer.
pub const HOPELESS: f64 = 2.0;
/// Unless its steps are shorter than so many seconds: these cost little, and a short disturbance can double them.
const SHORT: f64 = 1.0;

pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let mut session = Session::new(&options)?;
    println!("about {} minutes on two cores", estimate(&options).div_ceil(60));
    let start = Instant::now();
    let mut measured: Vec<Measured> = options.only.iter().map(|w| session.blank(w)).collect();
    for round in 0..options.alternations {
        session.round = round;
        for (workload, measured) in options.only.iter().zip(&mut measured) {
            session.measure(workload, measured)?;
        }
        // After each, so that a run which is stopped has not been in vain.
        let machine = Machine::new(&options, round + 1);
        let text = table::page(&page::read("bench-peers")?, &machine, &measured);
        page::write("bench-peers", &text)?;
        println!("{} of {} after {:.0} minutes", round + 1, options.alternations, start.elapsed().as_secs_f64() / 60.0);
    }
    let machine = Machine::new(&options, options.alternations);
    print!("\n{}", table::page("", &machine, &measured));
    Ok(())
}

/// In seconds: all variants once, and those that are not hopeless, about three quarters, in the other alternations.
fn estimate(options: &Options) -> u64 {
    let all: u64 = options.only.iter().map(|w| w.seconds * (1 + options.peers(w).count() as u64)).sum();
    all * (3 * options.alternations as u64 + 1) / 4
}

struct Session<'a> {
    options: &'a Options,
    interpreters: HashMap<&'static str, Python>,
    memfit: Memfit,
    runner: Runner,
    /// Of the alternations, counted from 0.
    round: usize,
}

impl<'a> Session<'a> {
    /// Installs what is missing and builds what is run.
    fn new(options: &'a Options) -> Result<Session<'a>> {
        let mut interpreters = HashMap::new();
        for &framework in &options.frameworks {
            interpreters.insert(framework, Python::install(framework)?);
        }
        let memfit = Memfit::build("steps")?;
        Ok(Session { options, interpreters, memfit, runner: Runner::new(options.timeout)?, round: 0 })
    }

    fn blank(&self, workload: &Workload) -> Measured {
        Measured::new(workload.name, self.options.peers(workload).map(|p| Row::new(p.label)).collect())
    }

    /// Every other alternation goes backwards, so that a machine that gets slower favours nobody.
    fn measure(&self, workload: &Workload, measured: &mut Measured) -> Result<()> {
        let backwards = self.round % 2 == 1;
        if !backwards {
            self.measure_memfit(workload, measured)?;
        }
        let peers: Vec<&Peer> = self.options.peers(workload).collect();
        let mut order: Vec<usize> = (0..peers.len()).collect();
        if backwards {
            order.reverse();
        }
        let best = measured.best().and_then(|best| best.first());
        for i in order {
            let row = &mut measured.peers[i];
            let hopeless =
                matches!((row.first(), best), (Some(first), Some(best)) if first > SHORT && first > HOPELESS * best);
            if row.failure.is_some() || hopeless {
                row.samples.push(None);
                continue;
            }
            self.measure_peer(workload, peers[i], row);
        }
        if backwards {
            self.measure_memfit(workload, measured)?;
        }
        measured.compare_parameters();
        Ok(())
    }

    fn measure_memfit(&self, workload: &Workload, measured: &mut Measured) -> Result<()> {
        let results = self.memfit(workload.name)?;
        measured.describe(&results).map_err(|e| anyhow!("steps {}: {e}", workload.name))?;
        let sample = Sample::new(&results).map_err(|e| anyhow!("steps {}: {e}", workload.name))?;
        self.tell(workload.name, "memfit", &Ok(&sample));
        measured.memfit.samples.push(Some(sample));
        measured.rates.push(self.rates());
        Ok(())
    }

    /// None without PyTorch, which measures them.
    fn rates(&self) -> Option<Rates> {
        self.interpreters.get("torch")?;
        let rates = self.script("torch", "torch_limits.py", "-", "rates").and_then(|r| Rates::new(&r));
        rates.inspect_err(|problem| println!("the machine's rates: {problem}")).ok()
    }

    fn measure_peer(&self, workload: &Workload, peer: &Peer, row: &mut Row) {
        let script = format!("{}_steps.py", peer.framework);
        let sample = self.script(peer.framework, &script, workload.name, peer.variant).and_then(|r| Sample::new(&r));
        self.tell(workload.name, peer.label, &sample.as_ref());
        match sample {
            Ok(sample) => row.samples.push(Some(sample)),
            Err(problem) => {
                row.samples.push(None);
                row.failure = Some(problem);
            }
        }
    }

    fn memfit(&self, what: &str) -> Result<Results> {
        let mut command = self.memfit.command();
        command.arg(what).args(self.numbers());
        self.runner.run(&mut command).map_err(|e| anyhow!("steps {what}: {e}"))
    }

    fn script(&self, framework: &str, script: &str, workload: &str, variant: &str) -> Result<Results, String> {
        let interpreter = self.interpreters.get(framework).ok_or_else(|| format!("{framework} is not installed"))?;
        let mut command = interpreter.script(script);
        command.args([workload, variant]).args(self.numbers());
        // Kernels that one process compiled are found again by the next.
        command.env("TORCHINDUCTOR_CACHE_DIR", self.runner.folder.join("inductor"));
        self.runner.run(&mut command)
    }

    fn numbers(&self) -> [String; 2] {
        [self.options.threads.to_string(), self.options.steps.to_string()]
    }

    fn tell(&self, workload: &str, label: &str, sample: &Result<&Sample, &String>) {
        let place = format!("{}/{} {workload}, {label}", self.round + 1, self.options.alternations);
        match sample {
            Ok(s) => println!("{place}: {:.3} s a step, loss {:.4}, of step 3 {:.4}", s.seconds, s.first_loss, s.loss),
            Err(problem) => println!("{place}: {problem}"),
        }
    }
}
