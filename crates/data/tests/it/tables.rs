//! CSV, arrays of numpy, tokens, and pairs of images and masks.

use crate::common;

use common::{Folder, fixture, fixture_path, roomy, says};
use memfit_data::sources::{
    Arrays, ClassLabels, Column, Csv, CsvLayout, FirstLine, Label, Masks, SegmentationPairs, TokenWidth, Tokens,
    Windows,
};
use memfit_data::{BytePool, DataError, Example, OnBad, Source};
use memfit_ir::DType;

/// The type and the values of a field.
fn values(example: &Example, name: &str) -> (String, Vec<f64>) {
    let tensor = example.get(name).unwrap_or_else(|e| panic!("{e}"));
    let values = match tensor.ty().dtype {
        DType::F32 => tensor.f32s().iter().map(|v| *v as f64).collect(),
        DType::I32 => bytemuck::cast_slice::<u8, i32>(tensor.bytes()).iter().map(|v| *v as f64).collect(),
        _ => tensor.bytes().iter().map(|v| *v as f64).collect(),
    };
    (tensor.ty().to_string(), values)
}

fn class(name: &str) -> CsvLayout {
    CsvLayout { label: Some(Label::Class(Column::Name(name.into()))), ..CsvLayout::default() }
}

#[test]
fn a_csv_is_rows_of_numbers() {
    let folder = Folder::new();
    let text = "\u{feff}a, \"the \"\"class\"\"\",b\r\n1.5,2,-3e2\r\n\r\n \"4\" ,0,+5\n\n7,1,8";
    let source = Csv::open(folder.file("t.csv", text), class("the \"class\""), &roomy()).expect("it is a CSV");
    assert_eq!((source.len(), source.columns()[2].as_str()), (3, "b"));
    for (row, x, y) in [(0, [1.5, -300.0], 2.0), (1, [4.0, 5.0], 0.0), (2, [7.0, 8.0], 1.0)] {
        let example = source.read_row(row, &roomy()).expect("it can be read");
        assert_eq!(values(&example, "x"), ("f32[2]".into(), x.to_vec()));
        assert_eq!(values(&example, "y"), ("i32[]".into(), vec![y]));
    }
    let bare = CsvLayout { header: false, separator: b';', label: Some(Label::Value(Column::Number(0))), weight: None };
    let source = Csv::open(folder.file("u.csv", "0.5;1\n2.5;3\n"), bare, &roomy()).expect("it is a CSV");
    let example = source.read_row(1, &roomy()).expect("it can be read");
    assert_eq!((values(&example, "y"), values(&example, "x").1), (("f32[]".into(), vec![2.5]), vec![3.0]));
    assert_eq!(source.len(), 2);
}

#[test]
fn a_quoted_line_end_is_part_of_a_cell() {
    let folder = Folder::new();
    let source =
        Csv::open(folder.file("t.csv", "\"a\nb\",c\n1,2\n3,x\n"), CsvLayout::default(), &roomy()).expect("a CSV");
    assert_eq!((source.columns()[0].as_str(), source.len()), ("a\nb", 2));
    says(source.read_row(1, &roomy()), &["t.csv, line 4", "column \"c\"", "\"x\"", "not a number"]);
}

#[test]
fn what_is_wrong_in_a_csv_is_said_with_its_line() {
    let folder = Folder::new();
    let open = |text: &str, layout| Csv::open(folder.file("t.csv", text), layout, &roomy());
    let read = |text: &str, row| open(text, class("y")).expect("it can be opened").read_row(row, &roomy());
    says(open("", class("y")), &["t.csv", "empty"]);
    says(open("\n\n", class("y")), &["t.csv", "empty"]);
    says(open("x,y\n", class("y")), &["a header and no row"]);
    says(open("x,z\n1,2\n", class("y")), &["\"y\"", "\"x\", \"z\""]);
    says(open("y\n1\n", class("y")), &["only column"]);
    says(open("x,y\n1,\"2\n3,4\n", class("y")), &["t.csv, line 2", "never closed"]);
    let ragged = read("x,y\n1,2\n3\n", 1);
    assert!(matches!(ragged, Err(DataError::Bad(_))));
    says(ragged, &["t.csv, line 3", "1 column,", "has 2"]);
    says(read("x,y\n1,2,3\n", 0), &["line 2", "3 columns"]);
    says(read("x,y\n1,two\n", 0), &["line 2", "column \"y\"", "\"two\""]);
    says(read("x,y\n,2\n", 0), &["line 2", "column \"x\" is empty"]);
    says(read("x,y\nnan,2\n", 0), &["\"nan\"", "not a number"]);
    says(read("x,y\n1,2.5\n", 0), &["\"2.5\"", "class"]);
    says(Csv::open(folder.0.join("none.csv"), class("y"), &roomy()), &["none.csv"]);
    says(Csv::open(folder.file("t.csv", "x,y\n1,2\n"), class("y"), &BytePool::new(100)), &["pool"]);
}

/// The array of `make.py`, row by row.
fn table(row: usize) -> Vec<f64> {
    (0..6).map(|i| ((row * 6 + i) * 5) as f64 - 20.0).collect()
}

#[test]
fn arrays_of_every_type_are_what_numpy_saved() {
    for name in [
        "le_f4", "be_f4", "le_f8", "be_f8", "le_f2", "be_f2", "i1", "le_i2", "be_i2", "le_i4", "be_i4", "le_i8",
        "be_i8", "u1", "le_u2", "bool",
    ] {
        let source =
            Arrays::npy(&[("x", fixture_path(&format!("c_{name}.npy")))], &roomy()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(source.len(), 4, "{name}");
        for row in 0..4 {
            let (ty, got) = values(&source.read_row(row, &roomy()).expect("it can be read"), "x");
            let want: Vec<f64> = match name {
                "bool" => table(row).iter().map(|v| (v % 3.0 == 0.0) as u8 as f64).collect(),
                "u1" | "le_u2" => table(row).iter().map(|v| v.abs()).collect(),
                _ => table(row),
            };
            let element = match name {
                "u1" | "bool" => "u8",
                name if name.contains('f') => "f32",
                _ => "i32",
            };
            assert_eq!((ty, got), (format!("{element}[3,2]"), want), "{name}");
        }
    }
}

#[test]
fn order_version_and_archive_change_nothing() {
    let pool = roomy();
    let open = |name: &str| {
        if name.ends_with("npz") {
            Arrays::npz(fixture_path(name), &[("x", "x")], &pool)
        } else {
            Arrays::npy(&[("x", fixture_path(name))], &pool)
        }
    };
    for (name, held) in [("fortran.npy", true), ("version2.npy", false), ("stored.npz", false), ("deflated.npz", true)]
    {
        let before = pool.used();
        let source = open(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(pool.used() - before >= 96, held || name.ends_with("npz"), "{name} holds {}", pool.used() - before);
        for row in 0..4 {
            let example = source.read_row(row, &pool).expect("it can be read");
            assert_eq!(values(&example, "x"), ("f32[3,2]".into(), table(row)), "{name}");
        }
    }
    let both = Arrays::npz(fixture_path("deflated.npz"), &[], &pool).expect("it is an NPZ");
    let example = both.read_row(2, &pool).expect("it can be read");
    assert_eq!((values(&example, "x").1, values(&example, "y")), (table(2), ("i32[]".into(), vec![2.0])));
    let renamed = Arrays::npz(fixture_path("stored.npz"), &[("label", "y")], &pool).expect("it is an NPZ");
    assert_eq!(values(&renamed.read_row(3, &pool).expect("it can be read"), "label").1, [3.0]);
}

#[test]
fn what_is_wrong_with_an_array_is_said() {
    let folder = Folder::new();
    let npy = |bytes: &[u8]| Arrays::npy(&[("x", folder.file("a.npy", bytes))], &roomy());
    let npz = |bytes: &[u8]| Arrays::npz(folder.file("a.npz", bytes), &[], &roomy());
    let array = fixture("c_le_f4.npy");
    says(npy(&array[..array.len() - 1]), &["a.npy", "needs 96 bytes", "95", "cut off"]);
    says(npy(&array[..40]), &["cut off within its header"]);
    says(npy(b"PK"), &["no NPY file"]);
    says(npy(&fixture("text.npy")), &["<U1", "astype"]);
    let changed = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&array[10..128]).replace(from, to);
        [&array[..10], &text.as_bytes()[..118], &array[128..]].concat()
    };
    says(npy(&changed("(4, 3, 2)", "()       ")), &["single number"]);
    says(npy(&changed("(4, 3, 2)", "(0, 3, 2)")), &["no rows"]);
    says(
        npy(&changed("(4, 3, 2), }                   ", "(4, 30000000000, 20000000000), }")),
        &["more elements than any memory"],
    );
    says(npy(&changed("shape", "shipe")), &["no \"shape\""]);
    let wide = changed(
        "'<f4', 'fortran_order': False, 'shape': (4, 3, 2)",
        "'<i8', 'fortran_order': False, 'shape': (1, 3, 2)",
    );
    says(npy(&wide).expect("it is long enough").read_row(0, &roomy()), &["a.npy, row 0", "does not fit into an i32"]);

    says(Arrays::npz(fixture_path("uneven.npz"), &[], &roomy()), &["\"y\" has 5 rows", "\"x\" 4"]);
    says(Arrays::npz(fixture_path("stored.npz"), &[("x", "z")], &roomy()), &["no array \"z\"", "x, y"]);
    let archive = fixture("deflated.npz");
    says(npz(&archive[..archive.len() - 30]), &["no NPZ file"]);
    let mut damaged = archive.clone();
    damaged[90] ^= 0x40;
    says(npz(&damaged), &["a.npz, array \"x\"", "damaged"]);
    says(Arrays::npz(fixture_path("deflated.npz"), &[], &BytePool::new(5_000)), &["pool", "np.savez"]);
    let small = BytePool::new(300);
    says(Arrays::npy(&[("x", fixture_path("fortran.npy"))], &BytePool::new(200)), &["pool", "ascontiguousarray"]);
    assert!(Arrays::npy(&[("x", fixture_path("c_le_f4.npy"))], &small).is_ok());
}

#[test]
fn tokens_come_in_windows_with_what_follows() {
    let folder = Folder::new();
    let windows = Windows { sequence: 3, stride: 2 };
    let tokens: Vec<u32> = (0..10).map(|i| i * 11).collect();
    for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
        let bytes: Vec<u8> = match width {
            TokenWidth::U8 => tokens.iter().map(|t| *t as u8).collect(),
            TokenWidth::U16 => tokens.iter().flat_map(|t| (*t as u16).to_le_bytes()).collect(),
            TokenWidth::U32 => tokens.iter().flat_map(|t| t.to_le_bytes()).collect(),
        };
        let source = Tokens::binary(folder.file("t.bin", bytes), width, 100, windows).expect("there are tokens");
        assert_eq!(source.len(), 4);
        let last = source.read_row(3, &roomy()).expect("it can be read");
        assert_eq!(values(&last, "x"), ("i32[3]".into(), vec![66.0, 77.0, 88.0]));
        assert_eq!(values(&last, "y"), ("i32[3]".into(), vec![77.0, 88.0, 99.0]));
        let narrow = Tokens::binary(folder.0.join("t.bin"), width, 90, windows).expect("there are tokens");
        assert!(narrow.read_row(2, &roomy()).is_ok());
        says(narrow.read_row(3, &roomy()), &["t.bin, token 9", "99", "vocabulary of 90"]);
    }
    let path = folder.file("t.bin", [1; 7]);
    says(Tokens::binary(&path, TokenWidth::U16, 100, windows), &["7 bytes", "U16"]);
    says(Tokens::binary(&path, TokenWidth::U8, 100, Windows::non_overlapping(7)), &["7 tokens", "needs 8", "shorter"]);
    assert_eq!(
        Tokens::bytes(&path, Windows::non_overlapping(6)).map(|t| (t.len(), t.vocabulary())).ok(),
        Some((1, 256))
    );
    says(Tokens::bytes(&path, Windows { sequence: 0, stride: 1 }), &["at least 1"]);
}

#[test]
fn characters_are_numbered_in_their_order() {
    let folder = Folder::new();
    let pool = roomy();
    let source =
        Tokens::characters(folder.file("t.txt", "baß ü\nab€"), Windows::non_overlapping(2), &pool).expect("it is text");
    assert_eq!(source.alphabet(), ['\n', ' ', 'a', 'b', 'ß', 'ü', '€']);
    assert_eq!((source.len(), source.vocabulary()), (4, 7));
    let all: Vec<f64> =
        (0..4).flat_map(|i| values(&source.read_row(i, &pool).expect("it can be read"), "x").1).collect();
    assert_eq!(all, [3., 2., 4., 1., 5., 0., 2., 3.]);
    assert_eq!(values(&source.read_row(3, &pool).expect("it can be read"), "y").1, [3., 6.]);
    says(
        Tokens::characters(folder.file("t.txt", b"ab\xffcd"), Windows::non_overlapping(2), &pool),
        &["t.txt, byte 2", "not UTF-8"],
    );
    says(Tokens::characters(folder.file("t.txt", "abc"), Windows::non_overlapping(2), &BytePool::new(1000)), &["pool"]);
}

#[test]
fn the_classes_of_a_table_are_its_numbers_or_its_words() {
    let (folder, pool) = (Folder::new(), roomy());
    let classes = |text: &str, mixed| {
        let mut csv = Csv::open(folder.file("t.csv", text), class("y"), &pool)?;
        csv.find_classes(mixed, &pool).map(|count| (count, csv.classes().join(" ")))
    };
    let check = |text: &str, count: usize, words: &str| {
        for mixed in [OnBad::Fail, OnBad::Skip] {
            let found = classes(text, mixed).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(found, (count, words.to_string()), "{text}");
        }
    };
    check("x,y\n1,0\n2,2\n\n3,1\n", 3, "");
    check("x,y\n1,dog\n2,cat\n3, \"dog\" \n4,'cat'\n", 3, "'cat' cat dog");
    check("x,y\n1,b\n2,a\n3\n4,\n5,é", 3, "a b é");
    check("x,y\n1,0\n2\n3,\n4,4", 5, "");
    check("x,y\n1,\"a \"\"b\"\", c\"\n2,\"\"\n", 1, "a \"b\", c");
    let mixed = "x,y\n1,1\n2,0\n3,many\n";
    says(
        classes(mixed, OnBad::Fail),
        &["t.csv", "numbers, such as \"1\" in line 2", "\"many\" in line 4", "all words"],
    );
    assert_eq!(classes(mixed, OnBad::Skip).ok(), Some((2, String::new())), "words are fewer");
    assert_eq!(classes("x,y\n1,0\n2,a\n3,b\n", OnBad::Skip).ok(), Some((2, "a b".into())), "numbers are fewer");
    says(classes("x,y\n1,\n2\n", OnBad::Skip), &["t.csv", "no row has a label in column \"y\""]);
    let long = format!("x,y\n1,a\n2,{}\n", "long ".repeat(60));
    says(classes(&long, OnBad::Fail), &["t.csv, line 3", "column \"y\" is a text of 299 bytes", "no class"]);
    assert_eq!(classes(&long, OnBad::Skip).ok(), Some((1, "a".into())));
}

#[test]
fn a_column_of_many_different_words_is_not_taken_for_classes() {
    let folder = Folder::new();
    let find = |words: usize, rows: usize, pool: &BytePool| {
        let rows: String = (0..rows).map(|i| format!("{i},word {}\n", i % words)).collect();
        Csv::open(folder.file("t.csv", format!("x,y\n{rows}")), class("y"), pool)?.find_classes(OnBad::Skip, pool)
    };
    let pool = roomy();
    assert_eq!(find(1000, 1000, &pool).ok(), Some(1000));
    assert_eq!(find(1001, 2002, &pool).ok(), Some(1001));
    let expected = ["t.csv", "column \"y\" has 1001 different words", "2001 rows", "\"word 1000\"", "CsvLayout::label"];
    says(find(1001, 2001, &pool), &expected);
    assert_eq!(pool.used(), 0, "what was found is given back with the table");
    // The index of 1000 rows takes 24 KB while it grows, and the longest row and a buffer 64 KB.
    says(find(900, 1000, &BytePool::new(90_000)), &["pool", "the classes in", "t.csv"]);
}

#[test]
fn a_second_table_is_read_in_the_classes_of_the_first() {
    let (folder, pool) = (Folder::new(), roomy());
    let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let open = |text: &str, classes: &[&str]| {
        let mut csv = Csv::open(folder.file("t.csv", text), class("y"), &pool).expect("it is a CSV");
        csv.set_classes(&names(classes), &pool).expect("there is room");
        csv
    };
    // Whatever the order, which is not always the sorted one.
    let source = open("x,y\n1,dog\n2,\"ant\"\n3,dog\n", &["cat", "dog", "ant"]);
    let labels: Vec<f64> = (0..3).flat_map(|i| values(&source.read_row(i, &pool).expect("a row"), "y").1).collect();
    assert_eq!((labels, source.check_classes(1000, &pool).is_ok()), (vec![1., 2., 1.], true));
    assert_eq!(source.classes(), names(&["cat", "dog", "ant"]));
    let source = open("x,y\n1,dog\n\n2,cow\n3,1\n4,\n", &["cat", "dog"]);
    assert!(source.read_row(0, &pool).is_ok());
    let unknown = ["t.csv, line 4", "column \"y\" is \"cow\"", "no class of the training set", "there are cat, dog"];
    says(source.read_row(1, &pool), &unknown);
    says(source.check_classes(1000, &pool), &unknown);
    says(source.read_row(2, &pool), &["line 5", "\"1\", which is no class"]);
    says(source.read_row(3, &pool), &["line 6", "column \"y\" is empty"]);
    // Where the first has numbers, so has the second.
    let source = open("x,y\n1,0\n2,cow\n", &[]);
    says(source.check_classes(1000, &pool), &["t.csv, line 3", "\"cow\", which is not a number"]);
    let mut source = Csv::open(folder.file("t.csv", b"x,y\n1,cow\n2,\xe9\n"), class("y"), &pool).expect("it is a CSV");
    assert_eq!(source.find_classes(OnBad::Fail, &pool).ok(), Some(1));
    says(source.read_row(1, &pool), &["t.csv, line 3", "not UTF-8", "save the file as UTF-8"]);
}

#[test]
fn a_second_text_is_read_in_the_characters_of_the_first() {
    let (folder, pool) = (Folder::new(), roomy());
    let open = |text: &str, alphabet: &[char]| {
        Tokens::characters_with(folder.file("t.txt", text), alphabet, Windows::non_overlapping(2), &pool)
    };
    let source = open("cacac", &['a', 'b', 'c']).expect("it lacks a b");
    assert_eq!((source.vocabulary(), source.check_known().is_ok()), (3, true));
    assert_eq!(values(&source.read_row(0, &pool).expect("it can be read"), "x").1, [2., 0.]);
    let source = open("cacaxac", &['a', 'b', 'c']).expect("it is bad at one place");
    assert!(source.read_row(0, &pool).is_ok());
    says(source.read_row(1, &pool), &["t.txt, character 4", "characters of the training text"]);
    says(source.check_known(), &["t.txt, character 4"]);
    says(open("abc", &['b', 'a']), &["sorted"]);
}

#[test]
fn images_and_masks_are_pairs_by_name() {
    let folder = Folder::new();
    folder.file("images/b/2.jpg", fixture("baseline_420.jpg"));
    folder.file("images/a-1.jpg", fixture("baseline_444.jpg"));
    folder.file("images/a.jpg", fixture("baseline_444.jpg"));
    folder.file("masks/b/2.png", fixture("bits.png"));
    folder.file("masks/a.png", fixture("palette.png"));
    folder.file("masks/a-1.png", fixture("bits.png"));
    let grey = SegmentationPairs::open(&folder.0, Masks::Grey, &roomy()).expect("they are pairs");
    let example = grey.read_row(2, &roomy()).expect("it can be read");
    let (ty, y) = values(&example, "y");
    assert_eq!((ty.as_str(), grey.len()), ("f32[38,45,1]", 3));
    assert!(y.iter().zip(fixture("bits.raw")).all(|(y, raw)| *y == raw as f64 / 255.0));
    assert_eq!(values(&example, "x").0, "u8[38,45,3]");
    let classes = SegmentationPairs::open(&folder.0, Masks::Classes { count: 13 }, &roomy()).expect("they are pairs");
    let (ty, y) = values(&classes.read_row(0, &roomy()).expect("it can be read"), "y");
    assert_eq!(ty, "i32[38,45]");
    assert!(y.iter().zip(fixture("palette_classes.raw")).all(|(y, raw)| *y == raw as f64));
    let few = SegmentationPairs::open(&folder.0, Masks::Classes { count: 3 }, &roomy()).expect("they are pairs");
    says(few.read_row(0, &roomy()), &["a.png, row ", "is not one of 0 to 2"]);

    folder.file("masks/a.png", fixture("grey16.png"));
    folder.file("images/a.jpg", fixture("exif_1.jpg"));
    says(grey.read_row(0, &roomy()), &["a.png", "38×45", "a.jpg", "16×24"]);
    folder.file("masks/b/10.png", fixture("bits.png"));
    says(SegmentationPairs::open(&folder.0, Masks::Grey, &roomy()), &["masks/b/10.png", "no b/10.*", "images"]);
    folder.file("images/b/10.PNG", fixture("rgb.png"));
    folder.file("images/c.png", fixture("rgb.png"));
    says(SegmentationPairs::open(&folder.0, Masks::Grey, &roomy()), &["images/c.png", "no c.*", "masks"]);
    folder.file("images/c.jpg", fixture("grey.jpg"));
    says(SegmentationPairs::open(&folder.0, Masks::Grey, &roomy()), &["c.", "same name"]);
    says(SegmentationPairs::open(folder.0.join("images"), Masks::Grey, &roomy()), &["images", "no such folder"]);
}

#[test]
fn a_second_table_has_the_features_of_the_first_by_name() {
    let (folder, pool) = (Folder::new(), roomy());
    let open = |text: &str| Csv::open(folder.file("t.csv", text), class("y"), &pool).expect("it is a CSV");
    let first = open("a,y,b,c\n1,0,2,3\n");
    let features: Vec<String> = first.feature_columns().map(str::to_string).collect();
    assert_eq!((&features[..], first.label_column()), (&["a", "b", "c"].map(String::from)[..], Some("y")));
    let mut second = open("y,c,a,b\n1,30,10,20\n");
    second.arrange(&features, &pool).expect("it has the same columns");
    let row = second.read_row(0, &pool).expect("a row");
    assert_eq!((values(&row, "x").1, values(&row, "y").1), (vec![10., 20., 30.], vec![1.]));
    says(open("y,c,a\n1,30,10\n").arrange(&features, &pool), &["t.csv", "no column \"b\"", "add it"]);
    let other = open("y,c,q,a,b\n1,30,5,10,20\n").arrange(&features, &pool);
    says(other, &["t.csv", "the training set has no column \"q\"", "\"a\", \"b\", \"c\"", "remove"]);
}

#[test]
fn a_column_is_found_by_its_name_first_and_by_its_number_then() {
    let (folder, pool) = (Folder::new(), roomy());
    let open = |text: &str, label: &str| Csv::open(folder.file("t.csv", text), class(label), &pool);
    let label = |text: &str, label: &str| open(text, label).expect("it is a CSV").label_column().map(str::to_string);
    assert_eq!(label("1,0\n5,6\n", "0").as_deref(), Some("0"), "the second column");
    assert_eq!(label("a,b\n5,6\n", "1").as_deref(), Some("b"));
    let many: Vec<String> = (0..12).map(|n| format!("c{n}")).collect();
    let text = format!("{}\n{}\n", many.join(","), ["1"; 12].join(","));
    says(open(&text, "y"), &["no column \"y\" for the label", "\"c9\" and 2 others", "CsvLayout::label"]);
    says(open("5.1,3.5,0\n4.9,3.0,1\n", "y"), &["CsvLayout::header"]);
    says(open("a;b;y\n1;2;0\n", "y"), &["CsvLayout::separator"]);
    says(open("a,b,a\n1,2,0\n", "b"), &["two columns are called \"a\"", "rename one"]);
}

#[test]
fn labels_are_held_against_the_classes_before_anything_is_read() {
    let (folder, pool) = (Folder::new(), roomy());
    let csv = Csv::open(folder.file("t.csv", "x,y\n1,0\n2,3\n"), class("y"), &pool).expect("it is a CSV");
    assert!(csv.check_classes(4, &pool).is_ok());
    says(csv.check_classes(3, &pool), &["t.csv, line 3", "column \"y\" is 3", "0..3", "OnBad::Skip"]);
    let npy = |shape: &str, descr: &str, bytes: &[u8]| {
        let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (head.len() as u16).to_le_bytes();
        [&b"\x93NUMPY\x01\x00"[..], &length, head.as_bytes(), bytes].concat()
    };
    let labels: Vec<u8> = (0..5000i64).flat_map(|n| (n % 7).to_le_bytes()).collect();
    let path = folder.file("y.npy", npy("(5000,)", "<i8", &labels));
    let arrays = Arrays::npy(&[("y", &path)], &pool).expect("it is an array");
    assert!(arrays.check_classes(7, &pool).is_ok());
    let mut labels = labels;
    labels[4999 * 8] = 9;
    let path = folder.file("y.npy", npy("(5000,)", "<i8", &labels));
    let arrays = Arrays::npy(&[("y", &path)], &pool).expect("it is an array");
    says(arrays.check_classes(7, &pool), &["y.npy, row 4999", "the label is 9", "0..7"]);
}

#[test]
fn the_first_line_is_names_or_a_row_by_how_it_looks() {
    let (folder, pool) = (Folder::new(), roomy());
    let layout = || CsvLayout { header: false, ..CsvLayout::default() };
    for (text, expected, words) in [
        ("1,2\n3,4\n", FirstLine::Numbers, None),
        ("1,,nan\n3,4,5\n", FirstLine::Numbers, None),
        ("a,b\n3,4\n", FirstLine::WordsAboveNumbers, None),
        (",a,b\n0,3,4\n", FirstLine::WordsAboveNumbers, None),
        ("a,b,kind\n3,4,cat\n", FirstLine::WordsAboveNumbers, Some(2)),
        ("kind,1,2\ncat,3,4\n", FirstLine::LikeOthers, Some(0)),
        ("y,1,2\ncat,3,4\n", FirstLine::Named, Some(0)),
        ("\" y \",1990\n\"0\",\"3\"\n", FirstLine::WordsAboveNumbers, None),
        ("a,b\nc,d\n", FirstLine::Words, None),
        ("a,b\n,\nNA,2\n", FirstLine::WordsAboveNumbers, None),
        ("5.1,rose\n", FirstLine::LikeOthers, Some(1)),
        ("5.1,rose\n4,2\n5,iris\n", FirstLine::LikeOthers, Some(1)),
    ] {
        let csv = Csv::open(folder.file("t.csv", text), layout(), &pool).expect("it is a CSV");
        let seen = csv.first_lines(&["y"], &pool).expect("it can be read");
        assert_eq!((seen.first, seen.word_column), (expected, words), "{text:?}");
    }
    let csv = Csv::open(folder.file("t.csv", "y,b\n3,4\n"), layout(), &pool).expect("it is a CSV");
    assert_eq!(csv.len(), 2);
    let csv = csv.with_layout(class("y"), &pool).expect("it has a header");
    assert_eq!((csv.len(), csv.label_column()), (1, Some("y")));
}

#[test]
fn numbers_that_are_no_classes_are_told_or_left_out() {
    let (folder, pool) = (Folder::new(), roomy());
    let find = |text: &str, bad: OnBad| {
        let mut csv = Csv::open(folder.file("t.csv", text), class("y"), &pool).expect("it is a CSV");
        csv.find_classes(bad, &pool)
    };
    says(find("x,y\n1,0\n2,-1\n", OnBad::Fail), &["t.csv: line 3", "column \"y\" is \"-1\"", "0, 1, …"]);
    says(find("x,y\n1,2.5\n", OnBad::Skip), &["t.csv: line 2", "\"2.5\"", "Label::Value"]);
    assert_eq!(find("x,y\n1,1\n2,-1\n", OnBad::Skip).expect("one is a class"), 2);
}

/// An NPY file of one byte an element, in the order that is said.
fn bytes_array(shape: &str, fortran: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '|u1', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    [&b"\x93NUMPY\x01\x00"[..], &(head.len() as u16).to_le_bytes(), head.as_bytes(), bytes].concat()
}

#[test]
fn one_hot_rows_are_classes_in_either_order() {
    let (folder, pool) = (Folder::new(), roomy());
    // Rows of classes 2, 0, 2.
    for (fortran, bytes) in [("False", [0, 0, 1, 1, 0, 0, 0, 0, 1]), ("True", [0, 1, 0, 0, 0, 0, 1, 0, 1])] {
        let path = folder.file("y.npy", bytes_array("(3, 3)", fortran, &bytes));
        let mut arrays = Arrays::npy(&[("y", &path)], &pool).expect("it is an array");
        let (labels, counts) = arrays.read_as_classes("y", OnBad::Fail, &pool).expect("classes").expect("a field");
        assert_eq!((labels, counts.rows()), (ClassLabels::OneHot, Some(&[1, 0, 2][..])), "{fortran}");
        assert_eq!(values(&arrays.read_row(0, &pool).expect("a row"), "y"), ("i32[]".into(), vec![2.0]));
        says(arrays.check_classes(2, &pool), &["y.npy, row 0", "the label is 2", "0..2"]);
    }
    let path = folder.file("y.npy", bytes_array("(2, 2)", "False", &[1, 1, 0, 1]));
    let mut arrays = Arrays::npy(&[("y", &path)], &pool).expect("it is an array");
    says(arrays.read_as_classes("y", OnBad::Fail, &pool), &["y.npy, row 0", "2 numbers", "one-hot"]);
    assert!(arrays.read_as_classes("y", OnBad::Skip, &pool).is_ok());
    says(arrays.read_row(0, &pool), &["y.npy, row 0", "one-hot"]);
    assert_eq!(values(&arrays.read_row(1, &pool).expect("a row"), "y").1, [1.0]);
}
