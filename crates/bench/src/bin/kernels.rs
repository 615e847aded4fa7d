//! How near the kernels come to the machine, for `cargo xtask bench-kernels` and alone:
//! `kernels [--threads N] [--rounds N] [--part NAME] [--only TEXT] [--each] [--json]` prints tables in Markdown, or an object
//! a line, whose key `part` says what it is about: `contractions`, `streams`, `forks` or `steps`. Each kernel takes turns with
//! a product of 2048×2048 matrices, or with a sum of two long vectors where memory is the limit, so that the shares hold
//! whatever else the machine does.

use memfit::ir::op::MatMul;
use memfit::ir::{Graph, Op};
use memfit_bench::{
    Case, Failure, Gap, Timed, Work, Workload, contractions, fork_cost, median, sgemm, step_forks, stream, streams,
};
use serde_json::{Map, Value, json};

const PARTS: [&str; 4] = ["contractions", "streams", "forks", "steps"];

struct Settings {
    threads: usize,
    rounds: usize,
    /// All where it is empty.
    part: String,
    /// A part of the names of kernels.
    only: String,
    each: bool,
    json: bool,
}

fn main() -> Result<(), Failure> {
    let settings = Settings::parse(std::env::args().skip(1))?;
    let mut report = Report { json: settings.json, part: "", is_new: false };
    for part in PARTS.into_iter().filter(|part| settings.part.is_empty() || settings.part == *part) {
        report.begin(part);
        match part {
            "contractions" => measure_contractions(&settings, &mut report)?,
            "streams" => measure_streams(&settings, &mut report)?,
            "forks" => measure_forks(&settings, &mut report)?,
            _ => measure_steps(&settings, &mut report)?,
        }
    }
    Ok(())
}

impl Settings {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Settings, Failure> {
        let (part, only) = (String::new(), String::new());
        let mut settings = Settings { threads: 2, rounds: 5, part, only, each: false, json: false };
        while let Some(arg) = args.next() {
            let number = |text: Option<String>| {
                let number = text.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                number.ok_or(format!("{arg} needs a number of at least 1"))
            };
            match arg.as_str() {
                "--threads" => settings.threads = number(args.next())?,
                "--rounds" => settings.rounds = number(args.next())?,
                "--part" => {
                    let part = args.next().filter(|p| PARTS.contains(&p.as_str()));
                    settings.part = part.ok_or(format!("--part needs one of {}", PARTS.join(", ")))?;
                }
                "--only" => settings.only = args.next().ok_or("--only needs a part of a name")?,
                "--each" => settings.each = true,
                "--json" => settings.json = true,
                other => return Err(format!("there is no option \"{other}\"").into()),
            }
        }
        Ok(settings)
    }
}

/// The products and convolutions of some models against a square product.
fn measure_contractions(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let mut reference = Reference::new(&sgemm(2048), settings, |w| w.flops)?;
    for name in ["mlp", "resnet18_cifar", "resnet50", "unet", "gpt"] {
        let workload = Workload::from_name(name)?;
        let mut passes =
            [("forward", Rate::default()), ("by the input", Rate::default()), ("by the filter", Rate::default())];
        let mut all = Rate::default();
        for case in contractions(&workload.model()?, workload.batch)? {
            let rate = reference.rate(settings, &case.name(), case.graph()?, case.work()?.flops, case.count)?;
            passes[pass(&case.op)].1.add(rate);
            all.add(rate);
        }
        for (pass, rate) in passes.into_iter().chain([("all", all)]).filter(|(_, rate)| rate.work > 0.0) {
            report.row(&[
                ("model", json!(format!("{name} b{}", workload.batch))),
                ("pass", json!(pass)),
                ("gflops", rounded(1e-9 * rate.each_second(), 1)),
                ("share", rounded(rate.share(), 3)),
            ]);
        }
    }
    report.row(&[
        ("model", json!("matrix product")),
        ("pass", json!("2048")),
        ("gflops", rounded(1e-9 * reference.each_second(), 1)),
        ("share", json!(1)),
    ]);
    Ok(())
}

/// Which of the three products of a layer it is.
fn pass(op: &Op) -> usize {
    match op {
        Op::Conv(_) | Op::MatMul(MatMul { transpose_a: false, transpose_b: false }) => 0,
        Op::ConvTranspose(_) | Op::MatMul(MatMul { transpose_a: false, transpose_b: true }) => 1,
        _ => 2,
    }
}

/// What memory bounds, by family, against the sum of two long vectors.
fn measure_streams(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let mut reference = Reference::new(&stream(), settings, |w| w.bytes)?;
    let mut families: Vec<(&str, Rate)> = Vec::new();
    for s in streams()? {
        let rate = reference.rate(settings, &s.name, s.graph, s.bytes, s.count)?;
        match families.iter_mut().find(|(family, _)| *family == s.family) {
            Some((_, sum)) => sum.add(rate),
            None => families.push((s.family, rate)),
        }
    }
    families.sort_by_key(|(family, _)| *family);
    for (family, rate) in families.into_iter().filter(|(_, rate)| rate.work > 0.0) {
        let gbytes = rounded(1e-9 * rate.each_second(), 2);
        report.row(&[("kernel", json!(family)), ("gbytes", gbytes), ("share", rounded(rate.share(), 3))]);
    }
    let gbytes = rounded(1e-9 * reference.each_second(), 2);
    report.row(&[("kernel", json!("long sum")), ("gbytes", gbytes), ("share", json!(1))]);
    Ok(())
}

/// A fork and its join with nothing to do.
fn measure_forks(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    for threads in 1..=settings.threads {
        // Alone, there is nobody who sleeps.
        let states = [(Gap::None, "awake"), (Gap::Long, "asleep")];
        for &(gap, workers) in &states[..threads.min(2)] {
            let cost = fork_cost(threads, gap)?;
            report.row(&[
                ("threads", json!(threads)),
                ("workers", json!(workers)),
                ("median_ns", rounded(cost.median, 0)),
                ("p99_ns", rounded(cost.p99, 0)),
            ]);
        }
    }
    Ok(())
}

/// How much of a step its forks are.
fn measure_steps(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let names = ["mlp", "resnet18_cifar", "resnet50", "mobilenet_v3_large", "unet", "gpt"];
    for name in names.into_iter().filter(|name| name.contains(&settings.only)) {
        let workload = Workload::from_name(name)?;
        let step = step_forks(workload, settings.threads, settings.rounds)?;
        let share = |gap| -> Result<Value, Failure> {
            let cost = fork_cost(settings.threads, gap)?;
            Ok(rounded(step.forks as f64 * cost.median * 1e-9 / step.seconds, 6))
        };
        report.row(&[
            ("workload", json!(workload.name)),
            ("forks", json!(step.forks)),
            ("seconds", rounded(step.seconds, 4)),
            ("share_awake", share(Gap::None)?),
            ("share_asleep", share(Gap::Long)?),
        ]);
    }
    Ok(())
}

/// What the others are held against, in turns with each of them.
struct Reference {
    timed: Timed,
    work: f64,
    times: Vec<f64>,
}

/// Of some work, what it takes, and its share of the reference's rate as work ÷ share: sums of it weigh by work, not by time,
/// which a disturbance can stretch.
#[derive(Clone, Copy, Default)]
struct Rate {
    work: f64,
    seconds: f64,
    over_share: f64,
}

impl Rate {
    fn add(&mut self, other: Rate) {
        self.work += other.work;
        self.seconds += other.seconds;
        self.over_share += other.over_share;
    }

    fn each_second(&self) -> f64 {
        self.work / self.seconds
    }

    fn share(&self) -> f64 {
        self.work / self.over_share
    }
}

impl Reference {
    fn new(case: &Case, settings: &Settings, of: impl Fn(&Work) -> f64) -> Result<Reference, Failure> {
        let timed = Timed::new(case.graph()?, settings.threads)?;
        Ok(Reference { timed, work: of(&case.work()?), times: Vec::new() })
    }

    /// Nothing where it was not asked for.
    fn rate(
        &mut self,
        settings: &Settings,
        name: &str,
        graph: Graph,
        work: f64,
        count: usize,
    ) -> Result<Rate, Failure> {
        if !name.contains(&settings.only) {
            return Ok(Rate::default());
        }
        let mut timed = Timed::new(graph, settings.threads)?;
        let (mut times, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..settings.rounds {
            let (whole, own) = (self.timed.run()?, timed.run()?);
            self.times.push(whole);
            times.push(own);
            shares.push(work / own / (self.work / whole));
        }
        let (share, seconds) = (median(shares), median(times));
        if settings.each {
            eprintln!("{:5.1} % {count:3} x {:8.4} G {name}", 100.0 * share, work * 1e-9);
        }
        let count = count as f64;
        Ok(Rate { work: count * work, seconds: count * seconds, over_share: count * work / share })
    }

    fn each_second(&self) -> f64 {
        self.work / median(self.times.clone())
    }
}

/// Rows of one part after another.
struct Report {
    json: bool,
    part: &'static str,
    /// Whether the part has no row yet.
    is_new: bool,
}

impl Report {
    fn begin(&mut self, part: &'static str) {
        (self.part, self.is_new) = (part, true);
    }

    /// A table begins with the first row of its part.
    fn row(&mut self, fields: &[(&str, Value)]) {
        if self.json {
            let own = [("part".to_string(), json!(self.part))];
            let fields = fields.iter().map(|(key, value)| (key.to_string(), value.clone()));
            println!("{}", Value::Object(own.into_iter().chain(fields).collect::<Map<_, _>>()));
            return;
        }
        let line = |cells: Vec<String>| println!("| {} |", cells.join(" | "));
        if self.is_new {
            println!();
            line(fields.iter().map(|(key, _)| key.to_string()).collect());
            line(fields.iter().map(|_| "---".to_string()).collect());
            self.is_new = false;
        }
        line(fields.iter().map(|(_, v)| v.as_str().map_or(v.to_string(), str::to_string)).collect());
    }
}

/// Digits that mean something.
fn rounded(value: f64, digits: i32) -> Value {
    let unit = 10f64.powi(digits);
    json!((value * unit).round() / unit)
}
