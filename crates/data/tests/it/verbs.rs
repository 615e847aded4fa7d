//! Each verb by a small example. `tests/oracle.rs` runs random pipelines of them.

use std::sync::{Arc, Mutex};

use memfit_data::{
    BytePool, Cache, DataError, Dataset, Example, LoadOptions, Loader, Position, Prefetch, Remainder, Result, Tensor,
    Tensors,
};
use memfit_ir::TensorType;

/// The numbers from `from` on, as elements with the field x.
fn numbers(from: i32, len: usize) -> Dataset {
    let values: Vec<i32> = (from..from + len as i32).collect();
    let tensors = Tensors::new().with("x", TensorType::i32([len]), values).expect("they fit");
    Dataset::from_tensors(tensors).expect("one tensor is a table")
}

fn options() -> LoadOptions {
    LoadOptions { threads: 2, seed: 5, ..LoadOptions::new(BytePool::new(1 << 20)) }
}

fn values(example: &Example) -> Vec<i32> {
    bytemuck::cast_slice(example.get("x").expect("x is there").bytes()).to_vec()
}

/// What the first epochs give, element by element.
fn epochs(dataset: &Dataset, count: usize) -> Vec<Vec<Vec<i32>>> {
    let mut loader = Loader::new(dataset, options()).expect("the pipeline is right");
    (0..count)
        .map(|_| {
            let mut epoch = Vec::new();
            while let Some(example) = loader.next().expect("nothing is wrong") {
                epoch.push(values(&example));
            }
            epoch
        })
        .collect()
}

fn epoch(dataset: &Dataset) -> Vec<Vec<i32>> {
    epochs(dataset, 1).remove(0)
}

fn flat(dataset: &Dataset) -> Vec<i32> {
    epoch(dataset).concat()
}

fn twice(example: Example) -> Result<Example> {
    let mut example = example;
    for x in bytemuck::cast_slice_mut::<u8, i32>(example.get_mut("x")?.bytes_mut()) {
        *x *= 2;
    }
    Ok(example)
}

#[test]
fn rows_come_in_order_and_again_in_every_epoch() {
    assert_eq!(epochs(&numbers(0, 3), 2), [[[0], [1], [2]], [[0], [1], [2]]]);
    assert_eq!(numbers(0, 3).len(), Some(3));
}

#[test]
fn map_batch_take_and_skip() {
    let dataset = numbers(0, 7).map(|e, _| twice(e)).skip(1).take(5);
    assert_eq!(flat(&dataset), [2, 4, 6, 8, 10]);
    assert_eq!(epoch(&dataset.clone().batch(2, Remainder::Keep)), [vec![2, 4], vec![6, 8], vec![10]]);
    assert_eq!(epoch(&dataset.clone().batch(2, Remainder::Drop)), [vec![2, 4], vec![6, 8]]);
    assert_eq!(dataset.clone().batch(2, Remainder::Keep).len(), Some(3));
    assert_eq!(dataset.batch(2, Remainder::Drop).len(), Some(2));
}

#[test]
fn interleave_goes_on_with_the_rest() {
    let dataset = Dataset::interleave(vec![numbers(0, 5), numbers(10, 1), numbers(20, 3)], 2);
    assert_eq!(flat(&dataset), [0, 1, 10, 20, 21, 2, 3, 22, 4]);
    assert_eq!(dataset.len(), Some(9));
}

#[test]
fn zip_ends_with_the_shorter_and_refuses_equal_names() {
    let other = Dataset::from_fn(2, |i, pool| {
        let y = Tensor::from_bytes(TensorType::i32([]), &(i as i32 * 100).to_le_bytes(), pool)?;
        Ok(Example::default().with("y", y))
    });
    let dataset = numbers(1, 5).zip(other);
    let mut loader = Loader::new(&dataset, options()).expect("the pipeline is right");
    let mut seen = Vec::new();
    while let Some(e) = loader.next().expect("nothing is wrong") {
        seen.push((values(&e)[0], e.get("y").expect("y is there").bytes()[0]));
    }
    assert_eq!((seen, dataset.len()), (vec![(1, 0), (2, 100)], Some(2)));
    let error = Loader::new(&numbers(0, 1).zip(numbers(0, 1)), options()).and_then(|mut l| l.next().map(drop));
    assert!(error.expect_err("x is on both sides").to_string().contains("\"x\""));
}

#[test]
fn repeat_makes_epochs_of_its_own() {
    let dataset = numbers(0, 50).shuffle(50).repeat(Some(2));
    let all = flat(&dataset);
    let (a, b) = all.split_at(50);
    assert_ne!(a, b);
    assert_eq!((sorted(a), sorted(b)), ((0..50).collect(), (0..50).collect()));
    assert_eq!(numbers(0, 3).repeat(None).len(), None);
    assert_eq!(flat(&numbers(0, 3).repeat(None).take(7)), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(flat(&numbers(0, 0).repeat(None)), []);
}

fn sorted(values: &[i32]) -> Vec<i32> {
    let mut values = values.to_vec();
    values.sort();
    values
}

#[test]
fn shuffle_reshuffles_every_epoch_and_keeps_to_its_buffer() {
    let [a, b]: [Vec<i32>; 2] = epochs(&numbers(0, 100).shuffle(10), 2)
        .into_iter()
        .map(|e| e.concat())
        .collect::<Vec<_>>()
        .try_into()
        .expect("two epochs");
    assert_ne!(a, b);
    assert_eq!((sorted(&a), sorted(&b)), ((0..100).collect(), (0..100).collect()));
    // The k-th drawn is among the first k + 10.
    assert!(a.iter().enumerate().all(|(k, &x)| x < k as i32 + 10), "{a:?}");
}

#[test]
fn a_cache_freezes_its_input() {
    let shuffled = numbers(0, 20).shuffle(20);
    let [a, b]: [_; 2] = epochs(&shuffled.clone().cache(Cache::memory()), 2).try_into().expect("two epochs");
    assert_eq!(a, b);
    assert_eq!(a, epoch(&shuffled));
}

#[test]
fn a_generator_is_run_for_every_epoch() {
    let item = |i: i32| Tensors::new().with("x", TensorType::i32([]), vec![i]);
    let dataset = Dataset::from_iter(move || (0..4).map(item)).batch(3, Remainder::Keep);
    assert_eq!(epochs(&dataset, 2), [[vec![0, 1, 2], vec![3]], [vec![0, 1, 2], vec![3]]]);
    assert_eq!(dataset.len(), None);
}

#[test]
fn shards_have_every_batch_once_and_produce_no_other() {
    let made = Arc::new(Mutex::new(Vec::new()));
    for (len, size, count) in [(13, 5, 2), (13, 2, 3), (13, 2, 4), (3, 2, 4), (0, 2, 2), (12, 4, 3)] {
        let seen = made.clone();
        let counted = numbers(0, len).map(move |example, _| {
            seen.lock().expect("nobody panics").extend(values(&example));
            Ok(example)
        });
        let batches = counted.batch(size, Remainder::Keep);
        let whole = epoch(&batches);
        for index in 0..count {
            let shard = batches.clone().shard(count, index);
            made.lock().expect("nobody panics").clear();
            let expected: Vec<Vec<i32>> = whole.iter().skip(index).step_by(count).cloned().collect();
            assert_eq!(shard.len(), Some(expected.len()));
            assert_eq!(epoch(&shard), expected, "shard {index} of {count}");
            let rest: Vec<i32> = expected.concat();
            assert!(made.lock().expect("nobody panics").iter().all(|x| rest.contains(x)), "no other is produced");
        }
    }
}

#[test]
fn wrong_numbers_are_errors_of_the_loader() {
    let check = |dataset: Dataset, says: &str| match Loader::new(&dataset, options()) {
        Err(DataError::Pipeline(word)) => assert!(word.contains(says), "{word}"),
        other => panic!("{:?}", other.err()),
    };
    check(numbers(0, 3).batch(0, Remainder::Keep), "batch of 0");
    check(numbers(0, 3).batch_rows(4, 2..2, 2), "no rows 2 to 2");
    check(numbers(0, 3).batch_rows(4, 2..6, 2), "no rows 2 to 6");
    check(numbers(0, 3).batch_rows(4, 0..2, 3), "no whole lanes of 3");
    check(numbers(0, 3).batch_rows(4, 1..3, 2), "rows 1 to 3 of 4 are no whole lanes of 2");
    check(numbers(0, 3).shard(2, 2), "shard 2 of 2");
    check(numbers(0, 3).shuffle(0).prefetch(Prefetch::Auto), "shuffle of 0");
    check(numbers(0, 3).repeat(Some(0)), "repeat of 0");
    check(Dataset::interleave(vec![], 1), "interleave of 0");
    check(Dataset::interleave(vec![numbers(0, 1)], 0), "interleave of 0");
    let beyond = LoadOptions { start: Position { epoch: 1, element: 4 }, ..options() };
    assert!(Loader::new(&numbers(0, 3), beyond).is_err_and(|e| e.to_string().contains("element 5 of epoch 2")));
    assert!(Loader::new(&numbers(0, 3), LoadOptions { threads: 0, ..options() }).is_err());
}
