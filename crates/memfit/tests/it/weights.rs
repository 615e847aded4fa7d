//! Weights by name: what is written is read back to the bit, and what does not belong is named.

use std::path::PathBuf;

use memfit::exec::Executor;
use memfit::exec::weights::{Match, WeightsError};
use memfit::ir::op::StateClass;
use memfit::nn::optim::Optimizer;
use memfit::plan::StateSlot;
use memfit::{CpuExecutor, Engine, Options, Request, Training, ZooModel, plan_model};

fn engine(classes: usize, seed: u64) -> Engine<CpuExecutor> {
    let model = ZooModel::from_name("digits").unwrap().with_classes(classes).unwrap();
    let training = Training::new(Optimizer::adam().update);
    let cpu = CpuExecutor::new(1).unwrap();
    let plan = plan_model(&model, &training, cpu.target(), &Request::new(2)).unwrap();
    let mut engine = Engine::new(cpu, plan, Options::default()).unwrap();
    engine.init(seed).unwrap();
    engine
}

/// A file of its own for each test.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("memfit-{}-{name}.safetensors", std::process::id()))
}

fn all(_: &StateSlot) -> bool {
    true
}

fn contents(engine: &Engine<CpuExecutor>) -> Vec<(String, Vec<u8>)> {
    engine.plan().states.iter().map(|s| (s.name.clone(), engine.read_state(&s.name).unwrap())).collect()
}

#[test]
fn what_is_saved_is_loaded_to_the_bit() {
    let path = file("round-trip");
    let saved = engine(10, 1);
    saved.save(&path, all).unwrap();
    let mut loaded = engine(10, 2);
    assert_ne!(contents(&saved), contents(&loaded));
    assert_eq!(loaded.load(&path, Match::Exact, all).unwrap(), saved.plan().states.len());
    assert_eq!(contents(&saved), contents(&loaded));
    std::fs::remove_file(path).unwrap();
}

/// Loads a file that does not fit, and checks the message and that nothing was changed.
fn check_refused(path: &PathBuf, expected: &[&str]) {
    let mut target = engine(10, 2);
    let before = contents(&target);
    let error = target.load(path, Match::Exact, all).unwrap_err();
    let message = error.to_string();
    for part in expected {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(message.contains(&path.display().to_string()), "{message:?} does not name the file");
    assert_eq!(contents(&target), before, "a refused file changed the states");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_missing_tensor_is_named() {
    let path = file("missing");
    engine(10, 1).save(&path, |s| s.name != "conv2/conv/weight").unwrap();
    check_refused(&path, &["missing in the file: \"conv2/conv/weight\""]);
}

#[test]
fn an_extra_tensor_is_named() {
    let path = file("extra");
    engine(10, 1).save(&path, all).unwrap();
    let mut target = engine(10, 2);
    let error = target.load(&path, Match::Exact, |s| s.class != StateClass::Slot).unwrap_err().to_string();
    assert!(error.contains("not in the model") && error.contains("\"optimizer/conv1/"), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn another_shape_is_named_with_both() {
    let path = file("shape");
    engine(7, 1).save(&path, all).unwrap();
    check_refused(&path, &["\"fc/weight\" is f32[1024,7] in the file but f32[1024,10] in the model"]);
}

#[test]
fn transfer_takes_what_is_common() {
    let path = file("common");
    let source = engine(10, 1);
    source.save(&path, |s| s.name.starts_with("conv1/")).unwrap();
    let mut target = engine(10, 2);
    let count = target.load(&path, Match::Common, |s| !s.name.starts_with("optimizer/")).unwrap();
    assert_eq!(count, 5, "weight, scale, bias, mean and var of conv1");
    let name = "conv1/conv/weight";
    assert_eq!(source.read_state(name).unwrap(), target.read_state(name).unwrap());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn damaged_files_are_refused() {
    let path = file("damaged");
    engine(10, 1).save(&path, all).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("empty", Vec::new(), "shorter than its header"),
        ("cut in the header", whole[..100].to_vec(), "shorter than its header"),
        ("cut in the data", whole[..whole.len() - 1].to_vec(), "cut off"),
        ("a header of 2⁶⁴ bytes", vec![0xff; 64], "header would be"),
        ("no JSON", [&8u64.to_le_bytes()[..], b"not json"].concat(), "not a safetensors file"),
    ];
    for (what, bytes, expected) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = engine(10, 2).load(&path, Match::Exact, all).unwrap_err();
        assert!(error.to_string().contains(expected), "{what}: {error}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let path = file("absent");
    let error = engine(10, 1).load(&path, Match::Exact, all).unwrap_err();
    assert!(matches!(error, WeightsError::Io { .. }) && error.to_string().contains("absent"), "{error}");
}
