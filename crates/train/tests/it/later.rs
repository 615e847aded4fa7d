//! A device that works on its own: its numbers are looked at a step later, and nothing else is different.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

use crate::common;

use common::{contents, cpu, datasets, digits, folder, options, plan, training};
use memfit_data::{Dataset, Remainder, Tensors};
use memfit_exec::{Arena, Device, ExecError, Executor, Growth, HostMemory, KernelError, TensorView};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::TensorType;
use memfit_plan::{Launch, Place, Program, Target};
use memfit_train::{
    CheckpointKind, Datasets, Event, FitOptions, Flow, Period, Progress, RunDir, Session, TrainError, fit,
};
use memfit_transform::{Half, Precision, Training};

/// The CPU, which keeps numbers as a GPU does.
struct Later {
    cpu: CpuExecutor,
    kept: Mutex<VecDeque<Vec<u32>>>,
}

fn later() -> Later {
    Later { cpu: cpu(), kept: Mutex::default() }
}

impl Executor for Later {
    type Memory = HostMemory;
    type Kernel = <CpuExecutor as Executor>::Kernel;
    type Captured = <CpuExecutor as Executor>::Captured;

    fn target(&self) -> &dyn Target {
        self.cpu.target()
    }

    fn device(&self) -> &Device {
        self.cpu.device()
    }

    fn allocate(&self, holder: &str, bytes: u64, growth: Growth) -> Result<HostMemory, ExecError> {
        self.cpu.allocate(holder, bytes, growth)
    }

    fn compile(&self, program: &Program, launch: &Launch) -> Result<Self::Kernel, ExecError> {
        self.cpu.compile(program, launch)
    }

    fn launch(&self, kernel: &Self::Kernel, arena: &mut Arena<HostMemory>) -> Result<(), KernelError> {
        self.cpu.launch(kernel, arena)
    }

    fn write(&self, memory: &mut HostMemory, place: Place, offset: u64, bytes: &[u8]) {
        self.cpu.write(memory, place, offset, bytes);
    }

    fn read(&self, memory: &HostMemory, place: Place, bytes: &mut [u8]) -> Result<(), ExecError> {
        self.cpu.read(memory, place, bytes)
    }

    fn keep(&self, arena: &mut Arena<HostMemory>, places: &[Place]) -> Result<bool, ExecError> {
        let word = |place: &Place| bytemuck::pod_read_unaligned(&arena.segment(*place).bytes(*place)[..4]);
        let mut kept = self.kept.lock().unwrap();
        kept.push_back(places.iter().map(word).collect());
        assert!(kept.len() <= 2, "no more than two are kept");
        Ok(true)
    }

    fn kept(&self, words: &mut [u32]) -> Result<(), ExecError> {
        words.copy_from_slice(&self.kept.lock().unwrap().pop_front().expect("something was kept"));
        Ok(())
    }

    fn fill(&self, memory: &mut HostMemory, place: Place, byte: u8) {
        self.cpu.fill(memory, place, byte);
    }

    fn wait(&self) -> Result<(), ExecError> {
        self.cpu.wait()
    }
}

/// All that a run told, without times, and how it ended.
#[derive(Debug, PartialEq)]
struct Course {
    events: Vec<String>,
    ended: String,
}

fn word(event: &Event) -> String {
    match event {
        Event::Step { step, epoch, loss, lr, skipped, .. } => format!("{step} {epoch} {loss} {lr} {skipped}"),
        Event::Checkpoint { which, step, .. } => format!("{which:?} at {step}"),
        other => format!("{other:?}"),
    }
}

/// Trains in a folder of this name from its last checkpoint, or from the start. `stop` says at which event it is stopped.
fn train<E: Executor>(
    executor: E,
    at: &Path,
    training: &Training,
    data: &Datasets,
    change: impl FnOnce(&mut FitOptions),
    mut stop: impl FnMut(&Event) -> bool,
) -> Course {
    let (run, mut session, progress) = if at.exists() {
        let (run, saved) = RunDir::resume(at, CheckpointKind::Last).unwrap();
        (run, Session::resume(executor, &saved).unwrap(), saved.checkpoint.progress)
    } else {
        let session = Session::new(executor, plan(digits(), training, 8, None), 3).unwrap();
        (RunDir::create(at, session.plan(), &Default::default()).unwrap(), session, Progress::default())
    };
    let mut options = options(Some(run), progress);
    change(&mut options);
    let mut events = Vec::new();
    let outcome = fit(&mut session, data, &options, &mut |event| {
        // How long data take is nobody's promise.
        if *event != Event::Waiting {
            events.push(word(event));
        }
        if stop(event) { Flow::Stop } else { Flow::Continue }
    });
    let at = at.display().to_string();
    Course { events, ended: outcome.map_or_else(|e| e.to_string().replace(&at, ""), |o| format!("{o:?}")) }
}

/// Batches in order, of which those of these numbers have a pixel that is wrong.
fn with_pixel(batches: &[usize], wrong: f32) -> Datasets {
    let pixel = |batch: usize, pixel: usize| {
        if batches.contains(&batch) && pixel == 5 { wrong } else { ((batch * 31 + pixel * 7) % 11) as f32 / 11.0 }
    };
    let x: Vec<f32> = (0..64 * 80).map(|i| pixel(i / 512, i % 512)).collect();
    let y: Vec<i32> = (0..80).map(|i| i % 10).collect();
    let table = Tensors::new().with("x", TensorType::f32([80, 8, 8, 1]), x).unwrap();
    let table = table.with("y", TensorType::i32([80]), y).unwrap();
    Datasets { train: Dataset::from_tensors(table).unwrap().batch(8, Remainder::Drop), test: datasets(8).test }
}

#[test]
fn a_run_tells_and_leaves_what_it_does_where_every_step_is_looked_at() {
    let f16 = Training { precision: Precision::Mixed(Half::F16), ..training() };
    let cases = [
        ("plain", training(), datasets(8), None),
        ("by steps", training(), datasets(8), Some(Period::Steps(3))),
        ("f16", f16, with_pixel(&[3, 4, 5], f32::MAX), None),
        ("nan", training(), with_pixel(&[5], f32::MAX), None),
        ("bad data", training(), with_pixel(&[5], f32::NAN), None),
        ("bad at a checkpoint", training(), with_pixel(&[3], f32::NAN), None),
        ("bad at the end of an epoch", training(), with_pixel(&[9], f32::NAN), None),
    ];
    for (name, training, data, evaluate) in &cases {
        let folders = ["now", "later"].map(|when| folder(&format!("{when}-{}", name.replace(' ', "-"))));
        let change = |options: &mut FitOptions| options.evaluate = evaluate.unwrap_or(options.evaluate);
        let now = train(cpu(), &folders[0], training, data, change, |_| false);
        let later = train(later(), &folders[1], training, data, change, |_| false);
        assert!(now.events.len() > 3, "{name}: {now:?}");
        assert_eq!(now, later, "{name}");
        let [now, later] = folders.map(|folder| {
            let all = contents(&folder);
            std::fs::remove_dir_all(folder).unwrap();
            all
        });
        assert!(now == later, "{name}: {:?} and {:?}", now.keys(), later.keys());
    }
}

#[test]
fn a_run_that_is_stopped_anywhere_ends_in_the_same_bytes() {
    let whole = folder("later-whole");
    let all = train(later(), &whole, &training(), &datasets(8), |_| {}, |_| false);
    let expected = contents(&whole);
    for at in (0..all.events.len() - 1).step_by(2) {
        let name = folder("later-parts");
        let mut count = 0;
        let stopped = train(
            later(),
            &name,
            &training(),
            &datasets(8),
            |_| {},
            |event| {
                count += usize::from(*event != Event::Waiting);
                count > at
            },
        );
        assert!(stopped.ended.contains("Interrupted"), "at {at}: {}", stopped.ended);
        // One step may have been on its way.
        let is_step = |word: &&String| word.starts_with(|c: char| c.is_ascii_digit());
        assert!(stopped.events[at + 1..].iter().filter(is_step).count() <= 1, "at {at}: {:?}", stopped.events);
        let rest = train(later(), &name, &training(), &datasets(8), |_| {}, |_| false);
        assert!(rest.ended.contains("Done"), "at {at}: {}", rest.ended);
        assert!(contents(&name) == expected, "stopped at {at}");
        std::fs::remove_dir_all(name).unwrap();
    }
    std::fs::remove_dir_all(whole).unwrap();
}

#[test]
fn numbers_are_those_of_the_step_that_was_looked_at() {
    let (x, y) = (vec![0.5; 8 * 64], vec![1; 8]);
    let batch = [("x", TensorView::f32(&[8, 8, 8, 1], &x)), ("y", TensorView::i32(&[8], &y))];
    let mut now = Session::new(cpu(), plan(digits(), &training(), 8, None), 3).unwrap();
    let mut later = Session::new(later(), plan(digits(), &training(), 8, None), 3).unwrap();
    assert!(matches!(later.output("loss"), Err(TrainError::NoNumber { .. })));
    assert!(!later.look().unwrap(), "there was no step");
    let losses: Vec<f32> = (0..4).map(|_| now.step(&batch, 1e-2).unwrap()).collect();
    later.start_step(&batch, 1e-2).unwrap();
    for (i, loss) in losses[..3].iter().enumerate() {
        later.start_step(&batch, 1e-2).unwrap();
        assert!(later.look().unwrap());
        assert_eq!((later.output("loss").unwrap(), later.steps()), (*loss, i as u32 + 2));
    }
    assert_eq!((now.lag(), later.lag()), (0, 1));
    assert!(later.look().unwrap() && !later.look().unwrap());
    assert_eq!(later.output("loss").unwrap(), losses[3]);
    assert_eq!(now.step(&batch, 1e-2).unwrap(), later.step(&batch, 1e-2).unwrap());
    // Of three steps that nobody looks at, the numbers of two are there.
    (0..3).for_each(|_| later.start_step(&batch, 1e-2).unwrap());
    let kept = std::iter::from_fn(|| later.look().unwrap().then(|| later.output("loss").unwrap())).collect::<Vec<_>>();
    let losses: Vec<f32> = (0..3).map(|_| now.step(&batch, 1e-2).unwrap()).collect();
    assert_eq!(kept, losses[1..]);
}
