//! Weights of samples and classes by the program: in the loss of training, and nowhere else.

use serde_json::Value;

use crate::common::{Scratch, events};
use crate::values::{SCORES, TABLE, course, find, message, numbers, train};

/// The numbers with a column of weights behind them.
fn weighted(weight: impl Fn(usize) -> String) -> String {
    let rows = numbers();
    let row = |(i, row): (usize, &str)| format!("{row},{}\n", if i == 0 { "w".into() } else { weight(i) });
    rows.lines().enumerate().map(row).collect()
}

#[test]
fn weights_of_one_change_no_bit_and_others_do() {
    let scratch = Scratch::new("weights-of-one");
    scratch.write("bare.csv", numbers());
    scratch.write("ones.csv", weighted(|_| "1".into()));
    scratch.write("others.csv", weighted(|i| ["0", "0.5", "2"][i % 3].into()));
    let of = |file: &str, rest: &[&str]| {
        let (code, told) = train(&scratch, file, &[&["--label", "price", "--standardise-targets"], rest].concat());
        assert_eq!(code, 0, "{told:?}");
        course(&told)
    };
    let bare = of("bare.csv", &[]);
    assert_eq!(of("ones.csv", &["--sample-weight", "w"]), bare);
    assert_ne!(of("others.csv", &["--sample-weight", "w"]).0, bare.0);
}

#[test]
fn replicas_have_the_same_weighted_losses_and_scores() {
    let scratch = Scratch::new("weights-replicas");
    scratch.write("table.csv", weighted(|i| ["0", "0.5", "2"][i % 3].into()));
    let of = |replicas: &str| {
        let rest =
            ["--label", "price,area", "--sample-weight", "w", "--lanes", "4", "--replicas", replicas, "--threads", "4"];
        let (code, told) = train(&scratch, "table.csv", &rest);
        assert_eq!(code, 0, "{told:?}");
        course(&told)
    };
    let alone = of("1");
    assert_eq!(of("2"), alone);
    assert_eq!(of("4"), alone);
}

#[test]
fn balanced_classes_weigh_as_scikit_learn_has_it() {
    let scratch = Scratch::new("weights-balanced");
    scratch.write("table.csv", TABLE);
    let expected: Value = serde_json::from_str(SCORES).expect("what the oracle wrote");
    let (code, told) = train(&scratch, "table.csv", &["--label", "kind", "--class-weight", "balanced"]);
    let weights = find(&told, "data")["weights"]["of_classes"].as_array().expect("a list").clone();
    assert_eq!((code, weights.len()), (0, 3), "{told:?}");
    for (weight, class) in weights.iter().zip(["cat", "dog", "owl"]) {
        let expected = expected["class_weights"][class].as_f64().expect("a number");
        assert!((weight.as_f64().expect("a number") - expected).abs() < 1e-6, "{class}: {weight} {expected}");
    }
    let bare = course(&train(&scratch, "table.csv", &["--label", "kind"]).1);
    let of = |said: &str| course(&train(&scratch, "table.csv", &["--label", "kind", "--class-weight", said]).1);
    assert_eq!(of("cat=1,dog=1"), bare, "weights of 1 change no bit");
    assert_ne!(of("cat=0.5,2=3").0, bare.0);
    // A run file says it as a table, and the folder of the run has it.
    let file = "[data]\ntrain = \"table.csv\"\nlabel = \"kind\"\n[train]\nclass_weight = { cat = 0.5, owl = 3 }\nbatch = 8\nsteps = 2\n";
    let (run, out) = (scratch.write("run.toml", file), scratch.path("by-file"));
    let (code, told) = events(&["train", &run, "--out", &out]);
    assert_eq!((code, course(&told)), (0, of("cat=0.5,2=3")));
    let (code, _) = events(&["train", "--resume", &out, "--steps", "3"]);
    assert_eq!(code, 0);
}

#[test]
fn weights_that_are_none_are_refused_with_their_place() {
    let scratch = Scratch::new("weights-refused");
    scratch.write("table.csv", TABLE);
    scratch.write("minus.csv", weighted(|i| if i == 4 { "-1".into() } else { "1".into() }));
    scratch.write("nan.csv", weighted(|i| if i == 7 { "NaN".into() } else { "1".into() }));
    let sample = ["--label", "price", "--sample-weight", "w"];
    for (file, rest, words) in [
        ("minus.csv", &sample[..], "minus.csv, line 5: column \"w\" is \"-1\", and weights are 0 or more"),
        ("nan.csv", &sample, "nan.csv, line 8: column \"w\" is \"NaN\", which is not a number"),
        ("minus.csv", &["--label", "price", "--sample-weight", "v"], "there is no column \"v\" for the weights"),
        ("table.csv", &["--label", "kind", "--class-weight", "dgo=2"], "did you mean \"dog\"?"),
        ("table.csv", &["--label", "kind", "--class-weight", "dog=-2"], "--class-weight must be"),
        ("table.csv", &["--label", "kind", "--class-weight", "much"], "--class-weight must be"),
    ] {
        let (code, told) = train(&scratch, file, rest);
        assert!(code != 0 && message(&told).contains(words), "{rest:?}: {told:?}");
    }
}

#[test]
fn the_plan_counts_the_weights() {
    let bytes = |rest: &[&str]| {
        let (code, told) = events(&[&["plan", "--model", "mlp", "--batch", "64"], rest].concat());
        assert_eq!(code, 0, "{told:?}");
        find(&told, "plan")["input_bytes"].as_u64().expect("a number")
    };
    assert_eq!(bytes(&["--class-weight", "0=2"]), bytes(&[]) + 64 * 4);
}
