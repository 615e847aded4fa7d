//! The arithmetic of a training step on a GPU that need not be here: what is launched for the usual workloads, the work of it,
//! and the least time on cards of stated size. `gpu_arithmetic > docs/gpu.md` writes the page.

use std::collections::BTreeMap;

use memfit::plan::{MicroBatch, Plan, Target};
use memfit::{Phase, Request, plan_model};
use memfit_bench::{Failure, Workload};
use memfit_exec_gpu::adapters::Kind;
use memfit_exec_gpu::call::Takes;
use memfit_exec_gpu::lower::{Step, estimate};
use memfit_exec_gpu::{GpuTarget, Limits};

const MODELS: [&str; 2] = ["resnet50", "gpt"];
/// Rows of a table; the rest is one more.
const ROWS: usize = 20;

/// A card, by what its data sheet says.
struct Card {
    processors: usize,
    tflops: f64,
    gbytes: f64,
}

const CARDS: [Card; 3] = [
    Card { processors: 30, tflops: 13.0, gbytes: 360.0 },
    Card { processors: 80, tflops: 30.0, gbytes: 760.0 },
    Card { processors: 128, tflops: 80.0, gbytes: 1000.0 },
];

/// What one processor of a card (a multiprocessor, a compute unit) holds at once.
mod processor {
    pub const UNITS: usize = 1536;
    pub const WORDS: usize = 65_536;
    pub const SHARED_BYTES: usize = 100 << 10;
    pub const CUBES: usize = 16;
}

/// Of starting a kernel, in microseconds.
const LAUNCH_US: f64 = 5.0;

/// Launches that are alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    op: &'static str,
    kernel: &'static str,
    /// Cubes and units of each; none where cubek decides when it sees the device.
    grid: Option<(usize, usize)>,
    words: usize,
    shared_bytes: usize,
}

/// The work of some launches.
#[derive(Clone, Copy, Default)]
struct Work {
    launches: usize,
    flops: u64,
    bytes: u64,
    /// On each card, at least.
    seconds: [f64; CARDS.len()],
}

impl Work {
    /// Of one launch. Where it has fewer cubes than the card has processors, the others do nothing.
    fn of(step: &Step) -> Work {
        let (flops, bytes) = step.work();
        let least = |card: &Card| {
            let busy = match step {
                Step::Call(call) => (call.grid.cubes as f64 / card.processors as f64).min(1.0),
                Step::Product(_) => 1.0,
            };
            (flops as f64 / (card.tflops * 1e12 * busy)).max(bytes as f64 / (card.gbytes * 1e9))
        };
        Work { launches: 1, flops, bytes, seconds: CARDS.each_ref().map(least) }
    }

    fn plus(self, other: Work) -> Work {
        let mut seconds = self.seconds;
        seconds.iter_mut().zip(other.seconds).for_each(|(sum, more)| *sum += more);
        Work {
            launches: self.launches + other.launches,
            flops: self.flops + other.flops,
            bytes: self.bytes + other.bytes,
            seconds,
        }
    }
}

fn main() -> Result<(), Failure> {
    let limits = Limits { alignment: 256, binding: 2 << 30, buffer: 1 << 40, bindings: 31 };
    let target = GpuTarget { api: "vulkan".into(), kind: Kind::Discrete, limits, has_clock: true };
    print!("{}", head());
    for name in MODELS {
        let workload = Workload::from_name(name)?;
        let plan = plan(workload, &target)?;
        print!("{}", table(workload, &plan, &classes(&plan, &target)));
    }
    Ok(())
}

/// For a card with memory enough: nothing is recomputed, and nothing is cut.
fn plan(workload: &Workload, target: &GpuTarget) -> Result<Plan, Failure> {
    let request = Request { micro_batch: MicroBatch::Off, ..Request::new(workload.batch) };
    Ok(plan_model(&workload.model()?, &workload.training()?, target, &request)?)
}

/// All launches of a step, with those that are alike together; the longest first.
fn classes(plan: &Plan, target: &dyn Target) -> Vec<(Class, Work)> {
    let mut classes: BTreeMap<Class, Work> = BTreeMap::new();
    for program in plan.programs.iter().filter(|p| p.phase == Phase::Step) {
        for launch in &program.launches {
            let op = program.graph.node(launch.group.root()).op.name();
            for step in estimate(&program.graph, &launch.group, target.alignment()).steps {
                let sum = classes.entry(class(op, &step)).or_default();
                *sum = sum.plus(Work::of(&step));
            }
        }
    }
    let mut classes: Vec<(Class, Work)> = classes.into_iter().collect();
    classes.sort_by(|a, b| b.1.seconds[1].total_cmp(&a.1.seconds[1]));
    classes
}

fn class(op: &'static str, step: &Step) -> Class {
    match step {
        Step::Call(call) => {
            let Takes { words, shared_bytes } = call.key.takes();
            Class { op, kernel: call.key.name(), grid: Some((call.grid.cubes, call.grid.units)), words, shared_bytes }
        }
        Step::Product(_) => Class { op, kernel: "product of cubek", grid: None, words: 0, shared_bytes: 0 },
    }
}

/// Cubes that a processor holds at once, at most.
fn resident_cubes(class: &Class, units: usize) -> usize {
    let by_words = processor::WORDS / (class.words.max(1) * units);
    let by_shared = processor::SHARED_BYTES / class.shared_bytes.max(1);
    (processor::UNITS / units).min(by_words).min(by_shared).min(processor::CUBES)
}

fn head() -> String {
    let cards =
        CARDS.each_ref().map(|c| format!("| {} | {:.0} TFLOP/s | {:.0} GB/s |\n", c.processors, c.tflops, c.gbytes));
    format!(
        "# The arithmetic of a step on a GPU

Written by `cargo run --release -p memfit-bench --bin gpu_arithmetic > docs/gpu.md`, which needs no GPU: it plans the step for a card with
memory enough, asks what would be launched, and computes. Nothing here was measured.

| processors | arithmetic | memory |
|---:|---:|---:|
{}
A processor (NVIDIA's multiprocessor, AMD's compute unit) holds {} units, {} words of registers, {} KiB of shared memory and {} cubes at
once. Other cards: scale by their own data sheet.

How to read a row, and hold `memfit profile --device gpu` against it:

- *launches* of one step whose cubes, units and registers are alike; *op* is what the group is named after in a profile.
- *words* are the registers that a unit holds at least, *shared* is the shared memory of a cube. *resident* is the share of a processor's
  units that can be there at once, at most: below a quarter, latency shows.
- *cubes a place*: cubes ÷ places for cubes on each card. Below 1 a part of the card has nothing to hide latency with; a little above a whole number, the last round is nearly empty.
- *GFLOP*, *MB*: arithmetic, and bytes that must move at least. *least ms*: the larger of both over the card's rates, launch by launch, where a
  launch of fewer cubes than the card has processors has the arithmetic of as many.
  A measured time of more than three times that, at high *resident* and many cubes, is a kernel to look at: `roofline` in report.html
  shows the same per kernel against what the card was measured to reach.
- Products of cubek choose cubes and tiles when they see the device, so nothing is said of them here.
- Starting a kernel takes a few microseconds: the last lines say what {LAUNCH_US:.0} µs each would be. `memfit profile` times kernels by the
  card's own clock, and what a step takes beyond their sum is starting them.
",
        cards.concat(),
        processor::UNITS,
        processor::WORDS,
        processor::SHARED_BYTES >> 10,
        processor::CUBES
    )
}

fn table(workload: &Workload, plan: &Plan, classes: &[(Class, Work)]) -> String {
    let all = classes.iter().fold(Work::default(), |sum, (_, work)| sum.plus(*work));
    let (shown, rest) = classes.split_at(ROWS.min(classes.len()));
    let mut out = format!(
        "
## {}, batch {}, {}

{} launches a step, for {} groups of the plan; arena {:.2} GiB.

| op | kernel | launches | cubes × units | words, shared | resident | cubes a place | GFLOP | MB | least ms |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|
",
        workload.name,
        workload.batch,
        workload.optimizer,
        all.launches,
        plan.program(Phase::Step).map_or(0, |p| p.launches.len()),
        plan.arena_bytes() as f64 / (1u64 << 30) as f64,
    );
    for (class, work) in shown {
        out += &format!(
            "| {} | {} | {} | {} | {} |\n",
            class.op,
            class.kernel,
            work.launches,
            shape(class),
            numbers(work)
        );
    }
    let others = rest.iter().fold(Work::default(), |sum, (_, work)| sum.plus(*work));
    out += &format!("| {} others | | {} | | | | | {} |\n", rest.len(), others.launches, numbers(&others));
    out += &format!("| all | | {} | | | | | {} |\n", all.launches, numbers(&all));
    let starting = all.launches as f64 * LAUNCH_US * 1e-3;
    out += &format!("| starting them | | {} | | | | | | | {starting:.1} |\n", all.launches);
    out + &filling(classes, all)
}

/// What of the least time is in launches that leave places empty.
fn filling(classes: &[(Class, Work)], all: Work) -> String {
    let share = |(i, card): (usize, &Card)| {
        let is_small = |class: &Class| {
            let places = |(_, units)| card.processors * resident_cubes(class, units);
            class.grid.is_some_and(|grid| grid.0 < places(grid))
        };
        let small: f64 = classes.iter().filter(|(class, _)| is_small(class)).map(|(_, work)| work.seconds[i]).sum();
        format!("{:.0} %", 100.0 * small / all.seconds[i])
    };
    let shares: Vec<String> = CARDS.iter().enumerate().map(share).collect();
    format!("\nOf the least time {} is in launches with fewer cubes than the card has places.\n", shares.join(" / "))
}

/// Cubes and units, what they take, and how they fill the cards.
fn shape(class: &Class) -> String {
    let Some((cubes, units)) = class.grid else { return "| | |".into() };
    let resident = resident_cubes(class, units);
    let share = 100 * resident * units / processor::UNITS;
    let places = CARDS.each_ref().map(|c| ratio(cubes as f64 / (c.processors * resident.max(1)) as f64));
    let shared = if class.shared_bytes == 0 {
        String::new()
    } else {
        format!(", {:.1} KiB", class.shared_bytes as f64 / 1024.0)
    };
    format!("{cubes} × {units} | {}{shared} | {share} % | {}", class.words, places.join(" / "))
}

fn numbers(work: &Work) -> String {
    let ms = work.seconds.map(|s| format!("{:.2}", s * 1e3));
    format!("{:.2} | {:.1} | {}", work.flops as f64 * 1e-9, work.bytes as f64 * 1e-6, ms.join(" / "))
}

/// With as many digits as say something.
fn ratio(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
