//! Files of `torch.save`: what is read of them, and what is refused.

use std::io::Cursor;

use memfit_files::torch::{Numbers, Tensor, TorchFileError, is_pickled, tensors};
use proptest::prelude::*;

/// `xtask/oracle/foreign_weights.py` has PyTorch write it.
const CHECKPOINT: &[u8] = include_bytes!("../../run/tests/weights/checkpoint.pth");

fn read(bytes: &[u8]) -> Result<Vec<Tensor>, TorchFileError> {
    tensors(&mut Cursor::new(bytes))
}

fn check_refused(bytes: &[u8], words: &[&str]) {
    let error = read(bytes).expect_err("it is refused").to_string();
    assert!(words.iter().all(|word| error.contains(word)) && error.len() < 400, "{error}");
}

/// A ZIP archive of stored members.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let (len, name_len) = ((content.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        let sizes = [&[0; 4][..], &len, &len, &name_len, &[0; 2]].concat();
        let offset = (bytes.len() as u32).to_le_bytes();
        directory.extend([b"PK\x01\x02", &[0; 12][..], &sizes, &[0; 10], &offset, name.as_bytes()].concat());
        bytes.extend([b"PK\x03\x04", &[0; 10][..], &sizes, name.as_bytes(), content].concat());
    }
    let (start, len) = (bytes.len() as u32, directory.len() as u32);
    bytes.extend([&directory, &b"PK\x05\x06"[..], &[0; 8], &len.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat());
    bytes
}

/// A dictionary with one tensor "w" of these sizes, from this number on of a storage of f32.
fn pickle(offset: u32, sizes: &[u32], strides: &[u32]) -> Vec<u8> {
    let number = |n: &u32| [b"J", &n.to_le_bytes()[..]].concat();
    let tuple = |numbers: &[u32]| [b"(".to_vec(), numbers.iter().flat_map(number).collect(), b"t".to_vec()].concat();
    let storage = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x04tQ";
    let rest = b"\x89ccollections\nOrderedDict\n)RtRs.";
    let start = b"\x80\x02}U\x01wctorch._utils\n_rebuild_tensor_v2\n(";
    [&start[..], storage, &number(&offset), &tuple(sizes), &tuple(strides), rest].concat()
}

fn file(pickle: &[u8]) -> Vec<u8> {
    archive(&[("a/data.pkl", pickle), ("a/byteorder", b"little"), ("a/data/0", &[7; 16])])
}

#[test]
fn tensors_of_a_checkpoint_are_told_with_their_places() {
    let found = read(CHECKPOINT).expect("PyTorch wrote it");
    let names: Vec<&str> = found.iter().map(|tensor| tensor.name.trim_start_matches("module.features.")).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    assert_eq!(names[..3], ["0.0.weight", "0.1.weight", "0.1.running_var"]);
    let stem = &found[0];
    assert_eq!((&stem.shape[..], &stem.strides[..]), (&[16, 3, 3, 3][..], &[27, 1, 9, 3][..]));
    let kinds: Vec<Numbers> = found.iter().map(|tensor| tensor.numbers).collect();
    use Numbers::{Bf16, F16, F32, F64, Whole};
    assert_eq!(kinds, [F32, Bf16, F64, Whole(8), F32, F16, F16, F32]);
    let at = found[2].start as usize + 8 * 5;
    assert_eq!(CHECKPOINT[at..at + 8], (5.0f64 / 64.0).to_le_bytes());
}

#[test]
fn a_part_of_a_storage_is_a_tensor() {
    let bytes = file(&pickle(1, &[3], &[1]));
    let found = read(&bytes).expect("a tensor");
    assert_eq!((&*found[0].name, &found[0].shape[..]), ("w", &[3][..]));
    assert_eq!(bytes[found[0].start as usize..][..12], [7; 12]);
}

#[test]
fn sizes_that_no_storage_has_are_refused() {
    for (offset, sizes, strides) in [
        (2, &[3][..], &[1][..]),
        (0, &[u32::MAX >> 1; 4], &[u32::MAX >> 1; 4]),
        (u32::MAX >> 1, &[1], &[1]),
        (0, &[2, 2], &[4, 1]),
        // All of these would be the same number.
        (0, &[1 << 30], &[0]),
        (0, &[2, 2], &[1]),
    ] {
        check_refused(&file(&pickle(offset, sizes, strides)), &["tensor \"w\"", "damaged"]);
    }
    check_refused(&file(&pickle(0, &[1; 20], &[1; 20])), &["tensor \"w\"", "shape"]);
    check_refused(&file(&pickle(0, &[u32::MAX], &[1])), &["tensor \"w\"", "shape"]);
}

#[test]
fn whatever_else_is_named_is_refused_by_its_name_and_not_run() {
    for (name, pickle) in [
        ("posix.system", &b"\x80\x02cposix\nsystem\nU\x04true\x85R."[..]),
        ("torch.nn.modules.linear.Linear", b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81}b."),
        ("builtins.eval", b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93."),
        ("torch._utils._rebuild_tensor_v2x", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2x\n."),
    ] {
        check_refused(&file(pickle), &[name, "nothing in it was run", "torch.save(model.state_dict(), FILE)"]);
    }
    // A name that is known makes nothing of what is no tuple, and a dictionary of nothing.
    check_refused(&file(b"\x80\x02ccollections\nOrderedDict\nK\x01R."), &["REDUCE"]);
    check_refused(&file(b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R."), &["REDUCE"]);
    check_refused(&file(b"\x80\x02ccollections\nOrderedDict\n]\x85R."), &["REDUCE"]);
    check_refused(&file(b"\x80\x02(iposix\nsystem\n."), &["posix.system"]);
}

#[test]
fn archives_that_are_no_files_of_torch_are_refused() {
    let small = pickle(0, &[1], &[1]);
    check_refused(&archive(&[("x.npy", b"1")]), &["no data.pkl"]);
    check_refused(&archive(&[("a/data.pkl", &small), ("b/data.pkl", &small)]), &["data.pkl"]);
    check_refused(&archive(&[("a/data.pkl", &small)]), &["\"data/0\"", "damaged"]);
    check_refused(
        &archive(&[("a/data.pkl", &small), ("a/byteorder", b"big"), ("a/data/0", &[0; 4])]),
        &["highest byte"],
    );
    check_refused(&file(b"]."), &["a list", "no state dict"]);
    check_refused(&file(b"}U\x05epochK\x03s."), &["\"epoch\"", "state dict"]);
    check_refused(b"\x80\x02}.", &["is a pickle"]);
    check_refused(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", &["before 1.6", "torch.load("]);
    assert!(is_pickled(b"PK\x03\x04") && is_pickled(b"\x80\x02") && !is_pickled(b"\x80\x0b\x00\x00\x00\x00\x00\x00{"));

    // Compressed, over another, or beyond the end.
    let whole = file(&small);
    let entry = whole.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[entry + at] = byte;
        read(&bytes).expect_err("it is refused").to_string()
    };
    assert!(changed(10, 8).contains("compressed"));
    assert!(changed(20, 255).contains("lies over another"));
    assert!(changed(42, 40).contains("lies over another") || changed(42, 40).contains("outside"));
}

#[test]
fn many_tensors_of_one_long_name_take_no_more_than_their_file() {
    // A name of 1 MiB, and the same again for every four bytes.
    let name = [b"X".to_vec(), (1u32 << 20).to_le_bytes().to_vec(), vec![b'n'; 1 << 20], b"q\x00".to_vec()].concat();
    let tensor = pickle(0, &[1], &[1]);
    let tensor = &tensor[6..tensor.len() - 2];
    let again = b"h\x00h\x01".repeat(1 << 18);
    let bytes = [b"\x80\x02}(", &name[..], tensor, b"q\x01", &again, b"u."].concat();
    check_refused(&file(&bytes), &["no tensors by name"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(memfit_test_effort::cases(2000)))]

    #[test]
    fn a_file_with_other_bytes_in_it_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = CHECKPOINT.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        for tensor in read(&bytes).unwrap_or_default() {
            let reach: u64 = tensor.shape.iter().zip(&tensor.strides).map(|(&n, &s)| (n as u64).saturating_sub(1) * s).sum();
            let end = tensor.start + (reach + 1) * tensor.numbers.bytes();
            prop_assert!(tensor.shape.contains(&0) || end <= bytes.len() as u64, "{tensor:?}");
        }
    }

    /// Instructions at random get further than bytes at random.
    #[test]
    fn any_instructions_are_read_or_refused(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                &b"("[..], b"0", b"2", b"N", b"K\x01", b"U\x01a", b"]", b")", b"}", b"a", b"e", b"t", b"s", b"u", b"\x85", b"\x86",
                b"q\x01", b"h\x01", b"R", b"Q", b"b", b"\x81", b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n",
                b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nSize\n",
            ]),
            0..60,
        ),
    ) {
        let _ = read(&file(&[pieces.concat(), b".".to_vec()].concat()));
    }
}
