//! Files of a run that are not as they were written: the error names the file and what to do.

use crate::common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{cpu, datasets, digits, folder, options, plan, training};
use memfit_exec_cpu::CpuExecutor;
use memfit_train::{
    CheckpointKind, Datasets, Flow, Period, Progress, RunDir, SaveEvery, Session, TrainError, fit, run_dir,
};

/// A run of two epochs whose best checkpoint is not its last.
fn finished(name: &str) -> PathBuf {
    let folder = folder(name);
    let plan = plan(digits(), &training(), 8, None);
    let run = RunDir::create(&folder, &plan, &Default::default()).unwrap();
    let mut session = Session::new(cpu(), plan, 7).unwrap();
    let mut options = options(Some(run), Progress::default());
    options.length = Period::Steps(8);
    options.evaluate = Period::Steps(5);
    let mut evaluated = false;
    fit(&mut session, &datasets(8), &options, &mut |event| {
        evaluated |= matches!(event, memfit_train::Event::Evaluated(_));
        if evaluated && matches!(event, memfit_train::Event::Step { .. }) { Flow::Stop } else { Flow::Continue }
    })
    .unwrap();
    drop(options);
    let step = |which| run_dir::read(&folder, which).unwrap().checkpoint.step;
    assert_eq!((step(CheckpointKind::Last), step(CheckpointKind::Best)), (6, 5));
    folder
}

fn tensors(folder: &Path, which: CheckpointKind) -> PathBuf {
    folder.join(run_dir::read(folder, which).unwrap().checkpoint.tensors.name)
}

/// Changes one file, checks both what reading and resuming say, and puts it back.
#[track_caller]
fn check(path: &Path, change: impl FnOnce(&mut Vec<u8>), expected: &[&str]) {
    let whole = std::fs::read(path).unwrap();
    let mut bytes = whole.clone();
    change(&mut bytes);
    if bytes.is_empty() {
        std::fs::remove_file(path).unwrap()
    } else {
        std::fs::write(path, &bytes).unwrap()
    }
    let folder = path.parent().unwrap();
    let files = || std::fs::read_dir(folder).unwrap().count();
    let before = files();
    for error in [run_dir::read(folder, CheckpointKind::Last).err(), RunDir::resume(folder, CheckpointKind::Last).err()]
    {
        let message = error.expect("it is damaged").to_string();
        for part in expected {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        assert!(message.contains(path.to_str().unwrap()), "{message:?} does not name {}", path.display());
    }
    assert_eq!(files(), before, "what is damaged is never cleaned up");
    std::fs::write(path, whole).unwrap();
}

#[test]
fn every_damage_is_named_with_its_cure() {
    let folder = finished("damage");
    let best = format!("best.json (step 5) is intact: resume {}/best.json", folder.display());
    let best = best.as_str();
    let json = folder.join("last.json");
    check(&json, |b| b.truncate(b.len() / 2), &["it is no checkpoint: EOF", best]);
    check(&json, |b| b.clear(), &["it is not there", best]);
    check(&json, |b| *b = b"\xff\xfe".to_vec(), &["valid UTF-8", best]);
    check(&json, |b| *b = vec![b' '; 2 << 20], &["it has more than 1048576 bytes", best]);
    let replace = |from: &'static str, to: &'static str| {
        move |b: &mut Vec<u8>| *b = String::from_utf8(b.clone()).unwrap().replacen(from, to, 1).into_bytes()
    };
    check(&json, replace("\"step\": 6", "\"step\": 7"), &["it was changed since it was written", best]);
    check(&json, replace("\"format\": 1", "\"format\": 9"), &["it has format 9, but this memfit reads format 1", best]);
    let last = tensors(&folder, CheckpointKind::Last);
    let flip = |b: &mut Vec<u8>| {
        let at = b.len() / 2;
        b[at] ^= 1;
    };
    check(&last, flip, &["its checksum is another", best]);
    check(&last, |b| b.truncate(100), &["it has 100 bytes, but was written with", best]);
    check(&last, |b| b.clear(), &["No such file", best]);
    let plan = folder.join("plan.json");
    check(&plan, flip, &["its checksum is another", "start anew in another folder"]);
    check(&plan, |b| b.clear(), &["No such file", "start anew in another folder"]);
    // Both are gone.
    std::fs::write(folder.join("best.json"), "{}").unwrap();
    check(&json, |b| b.truncate(3), &["it is no checkpoint", "start anew in another folder"]);
    // The last is put back, but without the best a run would end without its weights.
    let error = RunDir::resume(&folder, CheckpointKind::Last).unwrap_err().to_string();
    assert!(error.contains("best.json: it is no checkpoint") && error.contains("move best.json away"), "{error}");
    std::fs::remove_file(folder.join("best.json")).unwrap();
    let (_, saved) = RunDir::resume(&folder, CheckpointKind::Last).unwrap();
    assert_eq!(saved.checkpoint.progress.best, None, "the next one is the best");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_run_goes_on_from_its_best_while_its_last_is_damaged() {
    let folder = finished("damage-best");
    std::fs::write(folder.join("last.json"), "{}").unwrap();
    let (run, saved) = RunDir::resume(&folder, CheckpointKind::Best).unwrap();
    let mut session = Session::resume(cpu(), &saved).unwrap();
    let mut options = options(Some(run), saved.checkpoint.progress);
    options.length = Period::Steps(9);
    fit(&mut session, &datasets(8), &options, &mut |_| Flow::Continue).unwrap();
    assert_eq!(run_dir::read(&folder, CheckpointKind::Last).unwrap().checkpoint.step, 9);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_empty_folder_is_no_run() {
    let folder = folder("damage-empty");
    std::fs::create_dir_all(&folder).unwrap();
    for which in CheckpointKind::SINGLE {
        assert!(matches!(RunDir::resume(&folder, which), Err(TrainError::NoRun { .. })));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_run_goes_on_with_as_many_threads_as_it_had() {
    let folder = finished("damage-threads");
    let saved = run_dir::read(&folder, CheckpointKind::Last).unwrap();
    let more = CpuExecutor::new(2).unwrap();
    let error = Session::resume(more, &saved).err().expect("its scratch is for one thread").to_string();
    assert!(
        error.contains("bytes of scratch on this device") && error.contains("with as many threads, as it had"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn who_looks_while_a_run_saves_always_finds_a_checkpoint() {
    let folder = finished("damage-looks");
    let (run, saved) = RunDir::resume(&folder, CheckpointKind::Last).unwrap();
    let mut session = Session::resume(cpu(), &saved).unwrap();
    let done = AtomicBool::new(false);
    let look = || {
        while !done.load(Ordering::Relaxed) {
            // Not an assertion on the way: the others would wait for ever.
            run_dir::read(&folder, CheckpointKind::Last)?;
        }
        Ok::<(), TrainError>(())
    };
    std::thread::scope(|scope| {
        let looks: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
        let mut options = options(Some(run), saved.checkpoint.progress.clone());
        options.length = Period::Steps(200);
        options.save = SaveEvery { steps: Some(1), ..SaveEvery::default() };
        fit(&mut session, &Datasets { test: None, ..datasets(8) }, &options, &mut |_| Flow::Continue).unwrap();
        done.store(true, Ordering::Relaxed);
        looks.into_iter().for_each(|look| look.join().unwrap().expect("there is always one"));
    });
    std::fs::remove_dir_all(folder).unwrap();
}
