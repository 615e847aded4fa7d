//! A run never trains or evaluates on something else than its user thinks without a word: what was taken for what is said, and
//! what can only be a mistake is refused with its place and a cure.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, events, memfit, stdout};
use crate::files::{Pixels, npy, npz, write_png};

/// Pictures of two classes, as a folder has them.
fn photos(scratch: &Scratch, each: u8) -> String {
    for class in ["cat", "dog"] {
        for n in 0..each {
            let path = scratch.write(&format!("photos/{class}/{n}.png"), "");
            write_png(&path, [8, 8], &Pixels::Rgb(&[20 * n; 8 * 8 * 3]));
        }
    }
    scratch.path("photos")
}

/// The event of this name.
fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name}: {events:?}"))
}

#[test]
fn a_run_without_a_model_has_the_usual_one_of_its_data_and_says_so() {
    let scratch = Scratch::new("usual-model");
    photos(&scratch, 2);
    for n in 0..4 {
        for folder in ["images", "masks"] {
            let path = scratch.write(&format!("cells/{folder}/{n}.png"), "");
            write_png(&path, [8, 8], &Pixels::Grey(&[if n % 2 == 0 { 0 } else { 255 }; 64]));
        }
    }
    scratch.write("rows.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n9,0,0\n");
    scratch.write("poem.txt", "the quick brown fox jumps over the lazy dog, and again ".repeat(100));
    let y = npy("|u1", &[4], &[0, 1, 0, 1]);
    scratch.write("rows.npz", npz(&[("x", npy("|u1", &[4, 6], &[7; 24])), ("y", y.clone())]));
    scratch.write("pictures.npz", npz(&[("x", npy("|u1", &[4, 8, 8, 3], &[7; 4 * 8 * 8 * 3])), ("y", y)]));
    for (name, model) in [
        ("photos", "resnet18"),
        ("cells", "unet"),
        ("rows.csv", "mlp"),
        ("poem.txt", "gpt"),
        ("rows.npz", "mlp"),
        ("pictures.npz", "resnet18"),
    ] {
        let data = scratch.path(name);
        let (code, told) = events(&["plan", "--data", &data, "--batch", "2"]);
        assert_eq!((code, &find(&told, "plan")["model"]), (0, &model.into()), "{name}: {told:?}");
        assert_eq!(find(&told, "data")["assumed"]["model.name"], model, "{name}");
        let file = scratch.path(&format!("{name}.toml"));
        assert!(memfit(&["init", &file, "--data", &data]).status.success());
        let text = fs::read_to_string(&file).expect("a run file");
        assert!(text.contains(&format!("\nname = \"{model}\"")), "{name}: {text}");
    }
    let text = stdout(&memfit(&["plan"]));
    assert!(text.contains("digits"), "{text}");
}
