//! Processes that train and are killed (SIGKILL) at any moment, or find the disk full: their folder always holds a run
//! to go on with, and in the end it holds the same bytes as the folder of a run that nobody touched.
//!
//! Started as `kill child FOLDER [STEPS]` this binary is that process.

#[path = "it/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use common::{contents, cpu, folder, images, options, plan, training};
use memfit_data::{BytePool, Dataset, Remainder};
use memfit_ir::philox;
use memfit_nn::zoo::Mlp;
use memfit_train::{
    CheckpointKind, Datasets, Event, Feed, Flow, Period, Progress, Result, RunDir, SaveEvery, Session, TrainError, fit,
    run_dir,
};

/// Of a process, as often as this.
const KILLS: u32 = 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("child") => match child(Path::new(&args[2]), args.get(3).map(|n| n.parse().unwrap())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        },
        _ => {
            let untouched = untouched();
            killed_at_any_moment(&untouched);
            full_disk(&untouched);
            ExitCode::SUCCESS
        }
    }
}

// ---- the process ----------------------------------------------------------------------------------------------------

/// Starts the run of a folder, or goes on with it, and saves every step; stops before a number of steps.
fn child(folder: &Path, stop_at: Option<u32>) -> Result<()> {
    let (run, mut session, progress) = match RunDir::resume(folder, CheckpointKind::Last) {
        Ok((run, saved)) => (run, Session::resume(cpu(), &saved)?, saved.checkpoint.progress),
        Err(TrainError::NoRun { .. }) => {
            let model = Mlp::new(64, &[96], 10);
            let plan = plan(&model, &training(), 8, None);
            (RunDir::create(folder, &plan, &Default::default())?, Session::new(cpu(), plan, 7)?, Progress::default())
        }
        Err(e) => return Err(e),
    };
    let mut options = options(Some(run), progress);
    options.length = Period::Epochs(4);
    options.feed = Feed { pool: BytePool::new(1 << 20), test_pool: BytePool::new(1 << 20), ..common::feed(1) };
    options.save = SaveEvery { steps: Some(1), ..SaveEvery::default() };
    let flat = |tensors| {
        Dataset::from_tensors(tensors).unwrap().map(|mut example, context| {
            let image = example.get("x")?;
            let ty = memfit_ir::TensorType::f32([64]);
            let flat = memfit_data::Tensor::from_bytes(ty, image.bytes(), context.pool)?;
            *example.get_mut("x")? = flat;
            Ok(example)
        })
    };
    let train = flat(images(44, 1)).shuffle(44).batch(8, Remainder::Drop);
    let data = Datasets { train, test: Some(flat(images(13, 2)).batch(5, Remainder::Keep)) };
    let mut observer = |event: &Event| match event {
        Event::Step { step, .. } if Some(step + 1) == stop_at => Flow::Stop,
        _ => Flow::Continue,
    };
    fit(&mut session, &data, &options, &mut observer).map(|_| ())
}

// ---- the test -------------------------------------------------------------------------------------------------------

struct Untouched {
    left: std::collections::BTreeMap<String, Vec<u8>>,
    seconds: f64,
}

fn start(folder: &Path) -> Child {
    let this = std::env::current_exe().unwrap();
    Command::new(this).arg("child").arg(folder).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(folder: &Path) {
    let output = start(folder).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn untouched() -> Untouched {
    let folder = folder("kill-untouched");
    let start = Instant::now();
    finish(&folder);
    let seconds = start.elapsed().as_secs_f64();
    let left = contents(&folder);
    std::fs::remove_dir_all(folder).unwrap();
    Untouched { left, seconds }
}

fn assert_same(folder: &Path, untouched: &Untouched) {
    let here = contents(folder);
    let names = |c: &std::collections::BTreeMap<String, Vec<u8>>| c.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&here), names(&untouched.left));
    assert!(here == untouched.left, "a file has other bytes");
}

fn killed_at_any_moment(untouched: &Untouched) {
    let start_time = Instant::now();
    let folder = folder("kill");
    let (mut kills, mut runs, mut steps) = (0, 1, Vec::new());
    let wanted = memfit_test_effort::cases(KILLS);
    // The same moments every time, as far as a clock can.
    let mut moments = philox::uniform(3, "moments", 100_000).map(|x| f64::from(x + 1.0) / 2.0);
    while kills < wanted {
        let mut process = start(&folder);
        std::thread::sleep(Duration::from_secs_f64(moments.next().unwrap() * untouched.seconds * 0.5));
        // Only the process that was started here; if it has ended, nobody else has its number before it is waited for.
        process.kill().unwrap();
        let output = process.wait_with_output().unwrap();
        if output.status.success() {
            assert_same(&folder, untouched);
            std::fs::remove_dir_all(&folder).unwrap();
            runs += 1;
            continue;
        }
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
        kills += 1;
        match run_dir::read(&folder, CheckpointKind::Last) {
            Ok(saved) => steps.push(saved.checkpoint.step),
            Err(TrainError::NoRun { .. }) => assert!(!folder.join("best.json").exists()),
            Err(e) => panic!("after {kills} kills: {e}"),
        }
    }
    finish(&folder);
    assert_same(&folder, untouched);
    std::fs::remove_dir_all(folder).unwrap();
    steps.sort_unstable();
    steps.dedup();
    // Of the 20 that there are.
    assert!(steps.len() > (wanted as usize / 10).min(10), "the kills hit only the steps {steps:?}");
    println!(
        "killed {kills} times in {runs} runs, at {} different steps, in {:.1} s",
        steps.len(),
        start_time.elapsed().as_secs_f64()
    );
}

/// A limit on the size of files stands for a full disk: the error names the file, and nothing is lost.
#[cfg(unix)]
fn full_disk(untouched: &Untouched) {
    let folder = folder("kill-full");
    let this = std::env::current_exe().unwrap();
    let limited = |limit: &str, steps: &str| {
        let script = format!("trap '' XFSZ; {limit} exec \"$0\" child \"$1\" {steps}");
        Command::new("sh").args(["-c", &script]).arg(&this).arg(&folder).output().unwrap()
    };
    assert!(limited("", "7").status.success());
    let before = run_dir::read(&folder, CheckpointKind::Last).unwrap();
    let output = limited("ulimit -f 60;", "");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in ["cannot save", "step-00000008.safetensors: File too large", "what was saved before is untouched"] {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(run_dir::read(&folder, CheckpointKind::Last).unwrap() == before);
    finish(&folder);
    assert_same(&folder, untouched);
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(not(unix))]
fn full_disk(_: &Untouched) {
    println!("skipped: a limit on the size of files needs a Unix shell");
}
