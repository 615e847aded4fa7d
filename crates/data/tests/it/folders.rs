//! Folders of images.

use crate::common;

use common::{Folder, fixture, roomy, says};
use memfit_data::augment::{Crop, Normalise, Prepare};
use memfit_data::sources::{ImageFiles, ImageFolder};
use memfit_data::{BytePool, DataError, Dataset, LoadOptions, Loader, OnBad, Remainder, Source};

#[test]
fn sub_folders_are_classes_in_the_order_of_their_names() {
    let folder = Folder::new();
    folder.file("dog/2.PNG", fixture("rgb.png"));
    folder.file("dog/deep/er/1.JPG", fixture("grey.jpg"));
    folder.file("cat/a.jpeg", fixture("baseline_420.jpg"));
    folder.file("cat/.hidden.jpg", "nothing");
    folder.file("cat/readme.txt", "nothing");
    folder.file(".git/x.png", "nothing");
    folder.file("list.csv", "nothing");
    let pool = roomy();
    let source = ImageFolder::open(&folder.0, &pool).expect("there are images");
    assert_eq!(
        (source.classes(), source.len(), source.other_files()),
        (&["cat".to_string(), "dog".to_string()][..], 3, 1)
    );
    assert!(pool.used() > 0, "the index is charged");
    let used = pool.used();
    for (index, (label, rows)) in [(0, 38), (1, 38), (1, 38)].into_iter().enumerate() {
        let example = source.read_row(index, &pool).expect("it can be read");
        let x = example.get("x").expect("x").ty();
        assert_eq!((x.to_string(), source.label(index)), (format!("u8[{rows},45,3]"), label));
        assert_eq!(example.get("y").expect("y").ty().to_string(), "i32[]");
        assert_eq!(example.get("y").expect("y").bytes(), (label as i32).to_le_bytes());
    }
    assert_eq!(pool.used(), used);
    says(source.read_row(3, &pool), &["row 3", "there are 3"]);
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_its_name() {
    let folder = Folder::new();
    says(ImageFolder::open(folder.0.join("nowhere"), &roomy()), &["nowhere", "no such folder"]);
    says(ImageFolder::open(&folder.0, &roomy()), &["no folder in it", "one sub-folder of images for each class"]);
    let file = folder.file("file.txt", "text");
    says(ImageFolder::open(&file, &roomy()), &["file.txt", "this is a file"]);
    folder.file("cat/notes.txt", "text");
    says(ImageFolder::open(&folder.0, &roomy()), &["cat", "1 other files", "notes.txt", "put .jpg"]);
    folder.file("cat/1.png", fixture("rgb.png"));
    std::fs::create_dir(folder.0.join("dog")).expect("a folder can be made");
    says(ImageFolder::open(&folder.0, &roomy()), &["dog", "empty", "or remove the folder"]);
    std::fs::remove_dir(folder.0.join("dog")).expect("it is empty");
    says(ImageFolder::open(&folder.0, &BytePool::new(20)), &["pool of 20 bytes", "the list of files in"]);
    let bad = folder.file("cat/0.jpg", &fixture("grey.jpg")[..500]);
    let source = ImageFolder::open(&folder.0, &roomy()).expect("there are images");
    says(source.read_row(0, &roomy()), &[&bad.display().to_string(), "cut off"]);
    says(source.read_row(1, &BytePool::new(100)), &["more than the whole pool of 100", "raise the pool's limit"]);
    says(ImageFiles::list(&[folder.0.join("none.png")], &roomy()), &["none.png", "no such file"]);
    says(ImageFiles::list::<&str>(&[], &roomy()), &["empty"]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_back_is_refused() {
    let folder = Folder::new();
    folder.file("cat/1.png", fixture("rgb.png"));
    std::os::unix::fs::symlink(&folder.0, folder.0.join("cat/back")).expect("links can be made");
    let refused = ImageFolder::open(&folder.0, &BytePool::new(1 << 30)).expect_err("it has no end").to_string();
    assert!(refused.contains("link") || refused.contains("os error 40"), "{refused}");
}

#[test]
fn files_come_in_the_order_they_were_given_or_sorted() {
    let folder = Folder::new();
    let b = folder.file("b.jpg", fixture("baseline_420.jpg"));
    let a = folder.file("a.dat", fixture("rgb.png"));
    let pool = roomy();
    let listed = ImageFiles::list(&[&b, &a], &pool).expect("both exist");
    assert_eq!([listed.path(0), listed.path(1), listed.path(2)], [Some(b.clone()), Some(a), None]);
    assert_eq!(listed.read_row(1, &pool).expect("it is a PNG").get("x").expect("x").bytes(), fixture("rgb.raw"));
    let found = ImageFiles::open(&folder.0, &pool).expect("there is one");
    assert_eq!((found.len(), found.other_files(), found.path(0)), (1, 1, Some(b.clone())));
    let encoded = found.encoded().read_row(0, &pool).expect("it can be read");
    assert_eq!(encoded.get("x").expect("x").bytes(), fixture("baseline_420.jpg"));
}

/// The bytes of all batches of an epoch, and how many images were left out.
fn epoch(folder: &Folder, threads: usize, bad: OnBad) -> Result<(Vec<Vec<u8>>, u64), DataError> {
    let pool = BytePool::new(2 << 20);
    let source = ImageFolder::open(&folder.0, &pool)?.encoded();
    let prepare =
        Prepare { crop: Crop::RANDOM, flip: true, normalise: Some(Normalise::imagenet()), ..Prepare::to([12, 10]) };
    let dataset = Dataset::from_source(source).shuffle(20).map(prepare.map()).batch(3, Remainder::Keep);
    let mut loader = Loader::new(&dataset, LoadOptions { threads, seed: 4, bad, ..LoadOptions::new(pool) })?;
    let mut batches = Vec::new();
    while let Some(batch) = loader.next()? {
        batches.push([batch.get("x")?.bytes(), batch.get("y")?.bytes()].concat());
    }
    assert!(loader.pool().high_water() <= 2 << 20);
    Ok((batches, loader.skipped().count))
}

#[test]
fn an_epoch_of_images_is_the_same_for_every_number_of_threads() {
    let folder = Folder::new();
    for (i, name) in
        ["baseline_420.jpg", "progressive.jpg", "rgb.png", "restart.jpg", "cmyk.jpg", "exif_6.jpg"].iter().enumerate()
    {
        folder.file(&format!("class {}/{name}", i % 2), fixture(name));
    }
    let (one, _) = epoch(&folder, 1, OnBad::default()).expect("all are sound");
    let (three, _) = epoch(&folder, 3, OnBad::default()).expect("all are sound");
    assert_eq!((one.len(), one[0].len()), (2, 3 * (12 * 10 * 3 * 4 + 4)));
    assert_eq!(one, three);
    let bad = folder.file("class 0/cut.jpg", &fixture("grey.jpg")[..700]);
    let (batches, skipped) = epoch(&folder, 2, OnBad::Skip).expect("it is left out");
    assert_eq!((batches.len(), skipped), (3, 1));
    says(epoch(&folder, 2, OnBad::default()), &[&bad.display().to_string(), "cut off"]);
}

#[test]
fn a_test_set_has_the_classes_of_the_training_set_by_name() {
    let folder = Folder::new();
    for name in ["test/c/1.png", "test/a/1.png", "test/a/2.png"] {
        folder.file(name, fixture("rgb.png"));
    }
    let classes = ["a", "b", "c"].map(String::from);
    let pool = roomy();
    let test = ImageFolder::open_with(folder.0.join("test"), &classes, &pool).expect("b may be missing");
    assert_eq!(((0..3).map(|i| test.label(i)).collect::<Vec<_>>(), test.classes()), (vec![0, 0, 2], &classes[..]));
    assert_eq!(test.read_row(2, &pool).expect("it is sound").get("y").expect("y").bytes(), 2i32.to_ne_bytes());
    folder.file("test/d/1.png", fixture("rgb.png"));
    says(ImageFolder::open_with(folder.0.join("test"), &classes, &pool), &["\"d\" is no class", "a, b, c"]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_one_bad_sample() {
    let folder = Folder::new();
    for (class, name) in [("a", "rgb.png"), ("b", "baseline_420.jpg"), ("b", "restart.jpg")] {
        folder.file(&format!("{class}/{name}"), fixture(name));
    }
    let gone = folder.0.join("b/gone.jpg");
    std::os::unix::fs::symlink(folder.0.join("nowhere.jpg"), &gone).expect("a link can be made");
    says(epoch(&folder, 2, OnBad::Fail), &[&gone.display().to_string(), "it cannot be read"]);
    let (batches, skipped) = epoch(&folder, 2, OnBad::Skip).expect("it is left out");
    let samples: usize = batches.iter().map(|batch| batch.len() / (12 * 10 * 3 * 4 + 4)).sum();
    assert_eq!((samples, skipped), (3, 1));
}

#[test]
fn a_fingerprint_is_of_what_is_in_the_folder_and_not_of_its_path() {
    let folder = Folder::new();
    folder.file("one/cat/a.png", fixture("rgb.png"));
    folder.file("one/dog/b.png", fixture("rgb.png"));
    let pool = roomy();
    let print = |root: &str| ImageFolder::open(folder.0.join(root), &pool).expect("there are images").fingerprint();
    let before = print("one");
    assert_eq!(print("./one/../one/"), before, "spelt otherwise");
    std::fs::rename(folder.0.join("one"), folder.0.join("two")).expect("it can be moved");
    assert_eq!(print("two"), before, "moved");
    std::fs::rename(folder.0.join("two/cat/a.png"), folder.0.join("two/dog/a.png")).expect("it can be moved");
    folder.file("two/cat/c.png", fixture("rgb.png"));
    assert_ne!(print("two"), before, "another class");
}
