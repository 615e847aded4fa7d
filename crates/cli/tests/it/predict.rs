//! `memfit predict` for every kind of model, each trained here in a few seconds; what a training names in its last line works.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Scratch, check_error, command, events, memfit, stdout};
use crate::draw;
use crate::files::{npy, npz};

/// Trains, and gives what the last line says: the commands that can be typed next.
fn trained(args: &[&str]) -> String {
    let output = memfit(&[&["train"], args].concat());
    let told = stdout(&output);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    told.lines().last().expect("a last line").to_string()
}

/// Runs the command of a last line that begins with these words, with this in place of its example.
fn next(line: &str, command: &str, example: &str, own: &[&str]) -> String {
    let commands = line.rsplit_once('(').expect("commands").1.trim_end_matches(')');
    let typed = commands.split(", ").find(|c| c.starts_with(command)).unwrap_or_else(|| panic!("{command}: {line}"));
    let typed = typed.strip_suffix(example).unwrap_or_else(|| panic!("{typed} ends with no {example}"));
    let args: Vec<&str> = typed.split_whitespace().skip(1).chain(own.iter().copied()).collect();
    let output = memfit(&args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

fn predictions(args: &[&str]) -> Vec<Value> {
    let (code, events) = events(&[&["predict"], args].concat());
    assert_eq!(code, 0, "{args:?}: {events:?}");
    events.into_iter().filter(|e| e["event"] == "prediction").collect()
}

#[test]
fn pictures_by_themselves_and_in_folders() {
    let scratch = Scratch::new("predict-pictures");
    for (class, n) in ["bar", "disc", "ring"].into_iter().flat_map(|class| (0..6).map(move |n| (class, n))) {
        let (image, _) = draw::picture(draw::Shape::from_name(class).expect("a shape"), 16, &format!("{class}{n}"));
        let path = scratch.write(&format!("data/{class}/{n}.png"), "");
        draw::write_png(Path::new(&path), &image, 16, 3).expect("a picture");
    }
    scratch.write("data/disc/notes.txt", "no picture");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    let line = trained(&[
        "--model",
        "mobilenet_v3_small",
        "--data",
        &data,
        "--batch",
        "4",
        "--epochs",
        "1",
        "--image-size",
        "32",
        "--out",
        &run,
    ]);
    let picture = scratch.path("data/disc/3.png");
    assert_eq!(next(&line, "memfit predict", "photo.jpg", &[&picture]).lines().count(), 1);
    assert!(next(&line, "memfit eval", "", &[]).contains("accuracy"));

    let all = predictions(&[&run, &data, "--top", "2"]);
    assert_eq!(all.len(), 18);
    let files: Vec<&str> = all.iter().filter_map(|p| p["file"].as_str()).collect();
    assert!(files.is_sorted() && files[0] == scratch.path("data/bar/0.png"), "{files:?}");
    let alone = &predictions(&[&run, &picture])[0];
    let same = all.iter().find(|p| p["file"] == alone["file"]).expect("it is in the folder");
    assert_eq!((&same["class"], &same["probability"]), (&alone["class"], &alone["probability"]));
    let top = same["top"].as_array().expect("two classes");
    assert_eq!((top.len(), &top[0]["class"]), (2, &alone["class"]));
    assert!(top[0]["probability"].as_f64() >= top[1]["probability"].as_f64());

    let csv = scratch.path("said.csv");
    let told = stdout(&memfit(&["predict", &run, &data, &picture, "--top", "3", "--out", &csv]));
    assert!(told.contains("19 predictions in"), "{told}");
    let text = fs::read_to_string(&csv).expect("the file");
    assert_eq!(text.lines().next(), Some("file,class,probability,class_2,probability_2,class_3,probability_3"));
    assert_eq!(text.lines().count(), 20);
    let of = |line: &str, cell: usize| line.split(',').nth(cell).and_then(|p| p.parse::<f64>().ok()).expect("a number");
    assert!(text.lines().skip(1).all(|line| (of(line, 2) + of(line, 4) + of(line, 6) - 1.0).abs() < 1e-5));

    check_error(&["predict", &run, &data, "--top", "4"], 2, &["--top 4", "1 to 3"]);
    check_error(&["predict", &run, &picture, "--out", &scratch.path("said.xls")], 2, &["said.xls", ".csv"]);
    check_error(&["predict", &run, &picture, "--prompt", "a"], 2, &["--prompt", "models of text"]);
    check_error(&["predict", &run, &picture, "--overlay"], 2, &["--overlay", "masks"]);
    check_error(&["predict", &run], 2, &["photo.jpg"]);
}

fn decoded(path: &str) -> (u32, u32, png::ColorType, Vec<u8>) {
    let file = std::io::BufReader::new(fs::File::open(path).expect("it was written"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("its pixels");
    (info.width, info.height, info.color_type, bytes)
}

#[test]
fn masks_are_written_beside_their_pictures_and_over_them() {
    let scratch = Scratch::new("predict-masks");
    for n in 0..48 {
        let (image, mask) = draw::picture(draw::Shape::ALL[n % 5], 32, &format!("shape/{n}"));
        for (part, pixels, channels) in [("images", image, 3), ("masks", mask, 1)] {
            let path = scratch.write(&format!("data/{part}/{n}.png"), "");
            draw::write_png(Path::new(&path), &pixels, 32, channels).expect("a picture");
        }
    }
    let (image, truth) = draw::picture(draw::Shape::ALL[0], 48, "new");
    let picture = scratch.write("new.png", "");
    draw::write_png(Path::new(&picture), &image, 48, 3).expect("a picture");
    let (data, run) = (scratch.path("data"), scratch.path("run"));
    let line = trained(&["--data", &data, "--image-size", "32", "--batch", "8", "--epochs", "4", "--out", &run]);
    assert!(next(&line, "memfit predict", "photo.jpg", &[&picture]).contains("foreground"));
    assert!(!Path::new(&scratch.path("new_overlay.png")).exists());

    let folder = scratch.path("said");
    let said = predictions(&[&run, &picture, "--out", &folder, "--overlay"]);
    assert_eq!(said[0]["mask"], format!("{folder}/new_mask.png"));
    let (width, height, colour, mask) = decoded(&format!("{folder}/new_mask.png"));
    assert_eq!((width, height, colour), (48, 48, png::ColorType::Grayscale));
    assert_eq!(mask, decoded(&scratch.path("new_mask.png")).3, "wherever it lies");
    assert!(mask.iter().all(|pixel| [0, 255].contains(pixel)));
    let share = mask.iter().filter(|pixel| **pixel == 255).count() as f64 / (48.0 * 48.0);
    assert!((said[0]["shares"][0].as_f64().expect("a share") - share).abs() < 1e-9);
    let right = mask.iter().zip(&truth).filter(|(a, b)| (**a > 127) == (**b > 127)).count();
    assert!(right as f64 > 0.8 * 48.0 * 48.0, "{right} of {} pixels are right", 48 * 48);
    let (_, _, colour, overlay) = decoded(&format!("{folder}/new_overlay.png"));
    assert_eq!(colour, png::ColorType::Rgb);
    for (at, pixel) in mask.iter().enumerate() {
        let [is, was] = [&overlay, &image].map(|of| &of[3 * at..3 * at + 3]);
        assert_eq!(is == was, *pixel == 0 || was == [128, 0, 0], "pixel {at}: {was:?} {is:?}");
    }
    check_error(&["predict", &run, &picture, "--top", "2"], 2, &["--top", "classes"]);
    // Again, in a folder where masks lie by now; and two pictures of one name.
    let few = scratch.path("few");
    fs::create_dir(&few).expect("a folder");
    fs::copy(&picture, scratch.path("few/new.png")).expect("a copy");
    for _ in 0..2 {
        assert_eq!(predictions(&[&run, &few, "--overlay"]).len(), 1);
    }
    assert_eq!(fs::read_dir(&few).expect("the folder").count(), 3);
    check_error(
        &["predict", &run, &few, &picture, "--out", &folder],
        2,
        &["few/new.png", "would both be", "new_mask.png"],
    );
    check_error(&["predict", &run, &scratch.write("t.csv", "a\n1\n")], 2, &["t.csv", "name pictures"]);
}

/// Rows of two numbers, whose class is which of them is larger.
fn rows() -> Vec<([f32; 2], &'static str)> {
    let number = |i: usize, k: usize| ((i * k + 3) % 17) as f32 / 8.0 - 1.0;
    (0..120).map(|i| [number(i, 5), number(i, 11)]).map(|x| (x, if x[0] > x[1] { "up" } else { "down" })).collect()
}

#[test]
fn each_row_of_a_table_with_its_class_behind_it() {
    let scratch = Scratch::new("predict-table");
    let table = |with: &dyn Fn(usize, &[f32; 2], &str) -> String| -> String {
        rows().iter().enumerate().map(|(i, (x, class))| with(i, x, class) + "\n").collect()
    };
    let data = scratch.write("t.csv", format!("a,b,label\n{}", table(&|_, [a, b], class| format!("{a},{b},{class}"))));
    let run = scratch.path("run");
    let line = trained(&["--data", &data, "--batch", "8", "--epochs", "20", "--out", &run]);
    // Columns in another order, one more, and no label.
    let new = scratch.write("new.csv", format!("id,b,a\n{}", table(&|i, [a, b], _| format!("no {i},{b},{a}"))));
    let said = next(&line, "memfit predict", "rows.csv", &[&new]);
    let class = |line: &str, cell: usize| line.split(',').nth(cell).expect("a class").to_string();
    assert_eq!(said.lines().next(), Some("row,class,probability"));
    let classes: Vec<String> = said.lines().skip(1).map(|line| class(line, 1)).collect();
    let right = classes.iter().zip(rows()).filter(|(said, (_, class))| said == class).count();
    assert!(classes.len() == 120 && right > 110, "{right} are right");

    let out = scratch.path("said.csv");
    assert!(memfit(&["predict", &run, &new, "--out", &out]).status.success());
    let text = fs::read_to_string(&out).expect("the file");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,b,a,class,probability"));
    let first = lines.next().expect("a row");
    let ([a, b], _) = rows()[0];
    assert!(first.starts_with(&format!("no 0,{b},{a},{}", classes[0])), "{first}");
    assert!(lines.map(|line| class(line, 3)).eq(classes.iter().skip(1).cloned()));

    check_error(&["predict", &run, &new, "--out", &new], 2, &["is what is to be predicted", "another file"]);
    let bad = scratch.write("bad.csv", "a,b\n1,2\nx,3\n");
    check_error(&["predict", &run, &bad, "--out", &out], 4, &["bad.csv, line 3"]);
    assert_eq!(fs::read_to_string(&out).expect("the file"), text, "what was there before stays");
    let beside = |name: &std::ffi::OsStr| name.to_string_lossy().contains("partial");
    assert!(!fs::read_dir(scratch.path("")).expect("the folder").flatten().any(|entry| beside(&entry.file_name())));

    // With the label, which is not looked at.
    let labelled = predictions(&[&run, &data]);
    assert!(labelled.iter().map(|p| p["class"].as_str().unwrap_or_default()).eq(classes.iter().map(String::as_str)));
    check_error(&["predict", &run, &scratch.write("less.csv", "a,c\n1,2\n")], 4, &["less.csv", "\"b\"", "add it"]);
    check_error(&["predict", &run, &new, &data], 2, &["one file of rows at a time"]);
    check_error(&["predict", &run, &scratch.write("x.png", "")], 2, &["x.png", "rows.csv"]);
}

#[test]
fn tables_without_names_and_arrays() {
    let scratch = Scratch::new("predict-rows");
    let numbers: Vec<f32> = rows().iter().flat_map(|(x, _)| *x).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let classes: Vec<u8> = rows().iter().map(|(_, class)| u8::from(*class == "up")).collect();
    let (x, y) = (npy("<f4", &[120, 2], &bytes), npy("|u1", &[120], &classes));
    let data = scratch.write("rows.npz", npz(&[("x", x.clone()), ("y", y)]));
    let run = scratch.path("run");
    trained(&["--data", &data, "--batch", "8", "--epochs", "20", "--out", &run]);
    let all = predictions(&[&run, &data]);
    let right = all.iter().zip(&classes).filter(|(p, class)| p["index"] == **class).count();
    assert!(all.len() == 120 && right > 110, "{right} are right");
    assert_eq!(predictions(&[&run, &scratch.write("new.npz", npz(&[("other", x.clone())]))]), all, "the only array");
    assert_eq!(predictions(&[&run, &scratch.write("new.npy", x)]), all);

    let table = |label: bool| -> String {
        let line = |x: &[f32; 2], class: u8| {
            let label = if label { format!("{class},") } else { String::new() };
            format!("{label}{},{}\n", x[0], x[1])
        };
        rows().iter().zip(&classes).map(|((x, _), class)| line(x, *class)).collect()
    };
    let data = scratch.write("t.csv", table(true));
    let run = scratch.path("table");
    trained(&["--data", &data, "--batch", "8", "--epochs", "20", "--out", &run]);
    let all = predictions(&[&run, &data]);
    let right = all.iter().zip(&classes).filter(|(p, class)| p["index"] == **class).count();
    assert!(all.len() == 120 && right > 110, "{right} are right");
    let new = scratch.write("new.csv", table(false));
    assert_eq!(predictions(&[&run, &new]), all);
    let out = scratch.path("said.csv");
    assert!(memfit(&["predict", &run, &new, "--out", &out]).status.success());
    let text = fs::read_to_string(&out).expect("the file");
    assert_eq!(text.lines().next(), Some("0,1,class,probability"));
    let wide = scratch.write("wide.csv", "1,2,3,4\n1,2,3,4\n");
    check_error(&["predict", &run, &wide], 4, &["4 columns", "the model reads 2"]);
}

#[test]
fn a_text_goes_on_from_a_prompt() {
    let scratch = Scratch::new("predict-text");
    let line = "the quick brown fox jumps over the lazy dog\n";
    let data = scratch.write("t.txt", line.repeat(120));
    let run = scratch.path("run");
    let file = scratch.write(
        "run.toml",
        format!(
            "[model]\nname = \"gpt\"\nlayers = 1\nwidth = 32\nheads = 2\nsequence = 16\n[data]\ntrain = {data:?}\n[train]\n\
             batch = 16\nepochs = 12\nlr = 0.01\nout = {run:?}\n"
        ),
    );
    let last = trained(&[&file]);
    let said =
        next(&last, "memfit predict", "--prompt TEXT", &["--prompt", "the qu", "--tokens", "20", "--temperature", "0"]);
    assert!(said.starts_with("the quick brown ") && said.ends_with('\n'), "{said}");
    assert_eq!(said.chars().count(), 6 + 20 + 1, "more than what the model sees at once");
    let draw = |seed: &str| {
        let (code, told) =
            events(&["predict", &run, "--prompt", "dog", "--tokens", "40", "--temperature", "3", "--seed", seed]);
        assert_eq!((code, told.len(), &told[0]["prompt"]), (0, 1, &"dog".into()));
        told[0]["text"].as_str().expect("a text").to_string()
    };
    assert_eq!((draw("1"), draw("1").chars().count()), (draw("1"), 40));
    assert_ne!(draw("1"), draw("2"));
    let likeliest = |option: &[&str]| events(&[&["predict", &run, "--tokens", "5"], option].concat()).1.remove(0);
    let told = likeliest(&["--top-k", "1"]);
    assert_eq!((&told["prompt"], &told), (&"\n".into(), &likeliest(&["--temperature", "0"])));
    check_error(&["predict", &run, "--prompt", "ÄB"], 2, &["'Ä'", "the training text has not"]);
    check_error(&["predict", &run, "--prompt", ""], 2, &["--prompt is empty"]);
    check_error(&["predict", &run, "--top-p", "1.5"], 2, &["--top-p 1.5", "up to 1"]);
    check_error(&["predict", &run, "--temperature", "-1"], 2, &["--temperature"]);
    check_error(&["predict", &run, "a.jpg"], 2, &["--prompt"]);
    let mut head =
        command(&["predict", &run, "--tokens", "300"]).stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    drop(head.stdout.take());
    assert!(head.wait().expect("it ends").success(), "a reader that goes away is no error");
}
