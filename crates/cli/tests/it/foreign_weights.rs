//! Weights of other programs: what is taken of them is said, and what cannot be read or got is refused with the cure.

use crate::common::{Scratch, check_error, events, memfit};
use crate::files::{labels, npy, npz};

/// As PyTorch wrote it: `xtask/oracle/foreign_weights.py`.
fn written(name: &str) -> String {
    format!("{}/../run/tests/weights/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A training of a mobilenet_v3_small for two classes.
fn training(scratch: &Scratch, out: &str, weights: &str) -> Vec<String> {
    let pictures: Vec<u8> = (0..8 * 32 * 32 * 3).map(|i| (i % 251) as u8).collect();
    let classes = labels(&[0, 1, 0, 1, 0, 1, 0, 1]);
    let data = scratch.write("data.npz", npz(&[("x", npy("|u1", &[8, 32, 32, 3], &pictures)), ("y", classes)]));
    let out = scratch.path(out);
    let options = [
        "--model",
        "mobilenet_v3_small",
        "--batch",
        "2",
        "--steps",
        "1",
        "--seed",
        "3",
        "--data",
        &data,
        "--out",
        &out,
    ];
    ["train"].into_iter().chain(options).chain(["--weights", weights]).map(String::from).collect()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn a_checkpoint_of_torch_is_taken_and_what_is_left_out_is_said() {
    let scratch = Scratch::new("torch-weights");
    let checkpoint = written("checkpoint.pth");
    let output = memfit(&words(&training(&scratch, "run", &checkpoint)));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "weights        6 of 210 tensors from ",
        "(torchvision's names); f16 and bf16 and f64 made f32; left out classifier.3.bias: 1000 classes there, 2 here",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let again = training(&scratch, "again", &checkpoint);
    let (code, events) = events(&words(&again));
    let event = events.iter().find(|event| event["event"] == "weights").expect("weights");
    assert_eq!((code, &event["names"], &event["taken"]), (0, &"torchvision".into(), &6.into()));
    assert_eq!(event["left_out"][0]["tensors"][0], "classifier.3.bias");
    assert_eq!(event["missing"].as_array().map(Vec::len), Some(204));
}

/// Each of two replicas is handed what the first one lays out.
#[test]
fn replicas_start_from_the_same_foreign_weights_as_one() {
    let scratch = Scratch::new("torch-weights-replicas");
    let checkpoint = written("checkpoint.pth");
    let ends = ["1", "2"].map(|replicas| {
        let mut training = training(&scratch, replicas, &checkpoint);
        training.extend(["--replicas", replicas, "--lanes", "2", "--threads", "1"].map(String::from));
        let output = memfit(&words(&training));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(scratch.path(&format!("{replicas}/weights.safetensors"))).expect("the weights")
    });
    assert!(ends[0] == ends[1]);
}

#[test]
fn weights_that_cannot_be_read_or_got_are_refused_with_the_cure() {
    let scratch = Scratch::new("refused-weights");
    let refused = |weights: &str, code: i32, expected: &[&str]| {
        check_error(&words(&training(&scratch, "run", weights)), code, expected);
    };
    refused(&written("legacy.pth"), 4, &["legacy.pth", "before 1.6", "weights_only=True"]);
    refused(&written("module.pth"), 4, &["torch.nn.modules.linear.Linear", "nothing in it was run"]);
    let got = ["nothing is downloaded", "torchvision.models.mobilenet_v3_small", "timm/mobilenetv3_small_100"];
    refused("imagenet", 2, &got);
    let own = ["weights of a digits", "RUN_DIR/weights.safetensors"];
    check_error(&["train", "--steps", "1", "--weights", "imagenet"], 2, &own);
    check_error(
        &["train", "--steps", "1", "--weights", &written("checkpoint.pth")],
        2,
        &["has no weight of this model"],
    );
    assert!(!std::path::Path::new(&scratch.path("run")).exists());
}
