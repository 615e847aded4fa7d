//! The loader under stress: pools that are too small, faults, panics, early ends, many threads.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memfit_data::{
    BadSample, BytePool, DataError, Dataset, Example, LoadOptions, Loader, OnBad, Position, Prefetch, Remainder,
    Result, Tensor,
};
use memfit_ir::TensorType;

/// Elements x = [i, i, …] of `width` numbers, which take `work` bytes more while they are made.
fn rows(len: usize, width: usize, work: u64) -> Dataset {
    Dataset::from_fn(len, move |i, pool| {
        let _work = pool.reserve(work)?;
        let mut x = Tensor::zeros(TensorType::f32([width]), pool)?;
        x.f32s_mut().fill(i as f32);
        Ok(Example::default().with("x", x))
    })
}

fn options(bytes: u64, threads: usize) -> LoadOptions {
    LoadOptions { threads, seed: 3, ..LoadOptions::new(BytePool::new(bytes)) }
}

fn loader(dataset: &Dataset, bytes: u64, threads: usize) -> Loader {
    Loader::new(dataset, options(bytes, threads)).expect("the pipeline is right")
}

fn firsts(example: &Example, width: usize) -> Vec<f32> {
    example.get("x").expect("x is there").f32s().iter().step_by(width).copied().collect()
}

/// An epoch in which the consumer holds no element while it asks for the next.
fn epoch(loader: &mut Loader, width: usize) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::new();
    while let Some(example) = loader.next()? {
        all.push(firsts(&example, width));
    }
    Ok(all)
}

#[test]
fn a_pool_with_room_for_one_batch_is_enough_and_one_byte_less_is_told() {
    // A batch of 4 × 64 bytes; beside it one sample of 64 bytes, whose making takes 40 more.
    let (width, need) = (16, 4 * 64 + 64 + 40);
    let dataset = rows(20, width, 40).batch(4, Remainder::Drop).prefetch(Prefetch::Depth(3));
    for threads in [1, 2, 3, 8] {
        let mut tight = loader(&dataset, need, threads);
        for _ in 0..2 {
            let all = epoch(&mut tight, width).expect("it fits");
            assert_eq!(all.concat(), (0..20).map(|i| i as f32).collect::<Vec<_>>());
        }
        assert_eq!(tight.pool().high_water(), need);
        match loader(&dataset, need - 1, threads).next() {
            Err(DataError::PoolTooSmall { limit, needed, what }) => {
                assert_eq!((limit, needed, what.as_str()), (need - 1, need, "element 1 of epoch 1"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_the_consumer_holds_is_counted_and_may_come_back() {
    let dataset = rows(8, 16, 0).batch(4, Remainder::Drop);
    let mut tight = loader(&dataset, 2 * 256 + 63, 2);
    let first = tight.next().expect("it fits");
    let error = tight.next().expect_err("there is no room beside the first");
    assert!(matches!(error, DataError::PoolTooSmall { needed: 576, .. }), "{error}");
    assert!(error.to_string().contains("256 bytes that others hold"), "{error}");
    assert_eq!(tight.position(), Position { epoch: 0, element: 1 });
    drop(first);
    let second = tight.next().expect("it fits now").expect("the epoch has two");
    assert_eq!(firsts(&second, 16), [4., 5., 6., 7.]);
}

#[test]
fn an_element_that_finds_no_room_beside_younger_ones_drops_them() {
    for threads in [2, 3, 8] {
        let (tries, younger) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let made = younger.clone();
        let dataset = Dataset::from_fn(8, move |i, pool| {
            // The fourth waits until another is made behind it, and then needs all of the pool.
            while i == 3 && tries.load(Ordering::SeqCst) == 0 && made.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            tries.fetch_add((i == 3) as usize, Ordering::SeqCst);
            let x = Tensor::zeros(TensorType::f32([if i == 3 { 250 } else { 10 }]), pool)?;
            made.fetch_add((i > 3) as usize, Ordering::SeqCst);
            Ok(Example::default().with("x", x))
        })
        .prefetch(Prefetch::Depth(8));
        let mut tight = loader(&dataset, 1000, threads);
        let lens: Vec<usize> = epoch(&mut tight, 1).expect("it fits").iter().map(Vec::len).collect();
        assert_eq!(lens, [10, 10, 10, 250, 10, 10, 10, 10]);
        assert!(younger.load(Ordering::SeqCst) > 4, "what was made too early is made again");
    }
}

#[test]
fn items_of_a_generator_that_stand_in_the_way_are_let_go_and_made_again() {
    let (runs, tries, behind) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, pulled) = (runs.clone(), behind.clone());
    let dataset = Dataset::from_iter(move || {
        count.fetch_add(1, Ordering::SeqCst);
        let pulled = pulled.clone();
        (0..6).map(move |i| {
            pulled.fetch_max(i, Ordering::SeqCst);
            memfit_data::Tensors::new().with("x", TensorType::f32([10]), vec![i as f32; 10])
        })
    })
    .map(move |e, context| {
        // The third waits until the generator has gone on, and then needs all but what it is made of.
        while context.element() == 2 && tries.load(Ordering::SeqCst) == 0 && behind.load(Ordering::SeqCst) < 4 {
            std::thread::yield_now();
        }
        tries.fetch_add((context.element() == 2) as usize, Ordering::SeqCst);
        let _work = context.pool.reserve(if context.element() == 2 { 920 } else { 0 })?;
        Ok(e)
    })
    .prefetch(Prefetch::Depth(4));
    let mut tight = loader(&dataset, 1000, 2);
    let all = epoch(&mut tight, 10).expect("it fits").concat();
    assert_eq!(all, [0., 1., 2., 3., 4., 5.]);
    assert!(runs.load(Ordering::SeqCst) >= 2, "it was run again");
}

#[test]
fn a_shuffle_buffer_is_charged_to_the_pool() {
    let dataset = rows(1000, 1, 0).shuffle(600);
    match Loader::new(&dataset, options(9_599, 1)) {
        Err(DataError::PoolTooSmall { needed, what, .. }) => {
            assert!(needed == 9_600 && what.contains("9600"), "{needed} {what}")
        }
        other => panic!("{:?}", other.err()),
    }
    let enough = loader(&dataset, 10_000, 1);
    assert!(enough.pool().high_water() >= 9_600);
}

#[test]
fn the_same_bits_for_every_number_of_threads_and_from_every_position() {
    let dataset = rows(37, 8, 8)
        .map(|mut e, context| {
            let mut random = context.random(0);
            e.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x += random.uniform() + random.normal());
            Ok(e)
        })
        .shuffle(20)
        .batch(5, Remainder::Keep)
        .prefetch(Prefetch::Auto);
    let run = |threads, start: Position| -> Vec<Vec<u8>> {
        let options = LoadOptions { start, ..options(1 << 20, threads) };
        let mut loader = Loader::new(&dataset, options).expect("the pipeline is right");
        let mut all = Vec::new();
        while loader.position().epoch < 2 {
            if let Some(e) = loader.next().expect("nothing is wrong") {
                all.push(e.get("x").expect("x is there").bytes().to_vec());
            }
        }
        all
    };
    let whole = run(1, Position::default());
    assert_eq!(whole.len(), 16);
    assert_ne!(whole[..8], whole[8..]);
    for threads in [1, 2, 3, 8] {
        for element in 0..=8 {
            let part = run(threads, Position { epoch: 0, element });
            assert_eq!(part, whole[element as usize..], "{threads} threads from element {element}");
        }
    }
}

/// Fails for the given rows.
fn failing(len: usize, bad: &'static [usize]) -> Dataset {
    Dataset::from_fn(len, move |i, pool| {
        if bad.contains(&i) {
            return Err(DataError::bad(format!("file {i}"), "it is torn"));
        }
        Ok(Example::default().with("x", Tensor::from_bytes(TensorType::f32([]), &(i as f32).to_ne_bytes(), pool)?))
    })
}

#[test]
fn errors_come_at_their_places() {
    for threads in [1, 2, 3, 8] {
        let dataset = failing(10, &[2, 5, 6]).prefetch(Prefetch::Depth(6));
        let mut loader = loader(&dataset, 1000, threads);
        for i in 0..10 {
            match loader.next() {
                Ok(Some(e)) => assert_eq!(firsts(&e, 1), [i as f32]),
                Err(DataError::Bad(BadSample { location, .. })) => {
                    assert!([2, 5, 6].contains(&i) && location == format!("file {i}"))
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(loader.position(), Position { epoch: 0, element: i + 1 });
        }
        assert!(matches!(loader.next(), Ok(None)));
    }
}

#[test]
fn of_several_bad_samples_in_a_batch_the_first_is_told() {
    for threads in [1, 2, 3, 8] {
        let dataset = failing(12, &[5, 7, 6]).batch(4, Remainder::Keep);
        let mut loader = loader(&dataset, 1000, threads);
        assert_eq!(firsts(&loader.next().expect("all good").expect("it is there"), 1), [0., 1., 2., 3.]);
        assert_eq!(
            loader.next().expect_err("5 is bad").to_string(),
            "file 5: it is torn; or leave bad samples out: OnBad::Skip"
        );
        assert_eq!(firsts(&loader.next().expect("all good").expect("it is there"), 1), [8., 9., 10., 11.]);
    }
}

#[test]
fn bad_samples_are_left_out_and_listed() {
    for threads in [1, 2, 3, 8] {
        let check = |dataset: Dataset, expected: &[&[f32]], bad: &[usize]| {
            let options = LoadOptions { bad: OnBad::Skip, ..options(1000, threads) };
            let mut loader = Loader::new(&dataset, options).expect("the pipeline is right");
            for _ in 0..2 {
                assert_eq!(epoch(&mut loader, 1).expect("they are left out"), expected);
            }
            let first = bad.iter().map(|i| BadSample::new(format!("file {i}"), "it is torn"));
            assert_eq!(loader.skipped().first, first.collect::<Vec<_>>());
            assert_eq!(loader.skipped().count, bad.len() as u64, "each is counted once");
        };
        check(failing(4, &[0, 2]), &[&[1.], &[3.]], &[0, 2]);
        check(failing(6, &[0, 4]).batch(3, Remainder::Keep), &[&[1., 2.], &[3., 5.]], &[0, 4]);
        check(failing(6, &[1, 4, 5]).batch(3, Remainder::Drop), &[&[0., 2., 2.], &[3., 3., 3.]], &[1, 4, 5]);
        // A batch without a good sample is left out as a whole.
        check(failing(6, &[2, 3]).batch(2, Remainder::Keep), &[&[0., 1.], &[4., 5.]], &[2, 3]);
        check(failing(6, &[4, 5]).batch(2, Remainder::Drop), &[&[0., 1.], &[2., 3.]], &[4, 5]);
        let nested = failing(8, &[0, 1, 6]).batch(2, Remainder::Drop).batch(2, Remainder::Keep);
        check(nested, &[&[2., 3.], &[4., 5., 7., 7.]], &[0, 1, 6]);
    }
}

#[test]
fn bad_samples_are_replaced_alike_for_every_number_of_replicas() {
    // Four lanes of three: of the first batch some are bad in three of them.
    let dataset = || failing(30, &[1, 5, 8, 6, 11, 13, 14]);
    let skip = |threads| LoadOptions { bad: OnBad::Skip, ..options(1000, threads) };
    let expected = [0., 2., 2., 3., 4., 3., 7., 7., 7., 9., 10., 9.];
    for threads in [1, 2, 8] {
        for starts in [&[0, 12][..], &[0, 6, 12], &[0, 3, 6, 12], &[0, 3, 6, 9, 12]] {
            let mut left_out = 0;
            for rows in starts.windows(2).map(|ends| ends[0]..ends[1]) {
                let own = dataset().batch_rows(12, rows.clone(), 3);
                let mut loader = Loader::new(&own, skip(threads)).expect("the pipeline is right");
                let epoch = epoch(&mut loader, 1).expect("every lane has a good one");
                assert_eq!(epoch[0], expected[rows.clone()], "rows {rows:?}");
                assert_eq!(epoch.len(), 2);
                left_out += loader.skipped().count;
            }
            assert_eq!(left_out, 7, "each is counted by whoever has it");
        }
    }
    // A lane without a good one is no batch to leave out: the others have the rest of it.
    let torn = failing(12, &[0, 3, 4, 5]);
    for rows in [0..12, 3..6, 3..12] {
        let own = torn.clone().batch_rows(12, rows, 3);
        let mut loader = Loader::new(&own, skip(2)).expect("the pipeline is right");
        match loader.next() {
            Err(DataError::BadLane { first, rows: 3 }) => assert_eq!(first.location, "file 3"),
            other => panic!("{other:?}"),
        }
    }
    let mut good = Loader::new(&torn.batch_rows(12, 6..12, 3), skip(2)).expect("the pipeline is right");
    assert_eq!(epoch(&mut good, 1).expect("it is good"), [[6., 7., 8., 9., 10., 11.]]);
}

#[test]
fn nothing_good_is_an_error_even_where_bad_ones_are_left_out() {
    let skip = || LoadOptions { bad: OnBad::Skip, ..options(1000, 2) };
    for dataset in [failing(2, &[0, 1]), failing(2, &[0, 1]).batch(2, Remainder::Keep)] {
        let mut loader = Loader::new(&dataset, skip()).expect("the pipeline is right");
        let error = loader.next().expect_err("none is good").to_string();
        assert_eq!(error, "epoch 1: nothing in it is good; the first that is bad: file 0: it is torn");
    }
    let mut endless = Loader::new(&failing(2, &[0, 1]).repeat(None), skip()).expect("the pipeline is right");
    assert!(endless.next().is_err());
}

#[test]
fn samples_that_differ_are_named_with_their_shapes() {
    let dataset = Dataset::from_fn(8, |i, pool| {
        Ok(Example::default().with("x", Tensor::zeros(TensorType::f32([if i < 5 { 2 } else { 3 }]), pool)?))
    })
    .batch(8, Remainder::Drop);
    for threads in [1, 2, 3, 8] {
        let error = loader(&dataset, 1000, threads).next().expect_err("they differ").to_string();
        assert!(error.contains("row 0 has x f32[2], row 5 has x f32[3]") && error.contains("resize"), "{error}");
    }
}

#[test]
fn a_panic_in_a_function_is_an_error_at_its_place() {
    for threads in [1, 2, 8] {
        let dataset = rows(6, 1, 0)
            .map(|e, context| if context.element() == 4 { panic!("no fours") } else { Ok(e) })
            .batch(2, Remainder::Drop);
        let mut all = loader(&dataset, 1000, threads);
        assert!(all.next().is_ok() && all.next().is_ok());
        let error = all.next().expect_err("it panicked").to_string();
        assert_eq!(error, "row 4: a function of the pipeline panicked: no fours");
        assert!(matches!(all.next(), Ok(None)));
    }
    let generator = Dataset::from_iter(|| (0..3).map(|i: i32| if i == 1 { panic!("no ones") } else { item(i) }));
    let mut all = loader(&generator, 1000, 2);
    assert!(all.next().is_ok());
    assert_eq!(
        all.next().expect_err("it panicked").to_string(),
        "item 1 of the generator: a function of the pipeline panicked: no ones"
    );
}

fn item(i: i32) -> Result<memfit_data::Tensors> {
    memfit_data::Tensors::new().with("x", TensorType::f32([]), vec![i as f32])
}

#[test]
fn a_generator_waits_for_room_and_is_not_run_twice_for_that() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let dataset = Dataset::from_iter(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        (0..100).map(item)
    })
    .batch(10, Remainder::Drop)
    .prefetch(Prefetch::Depth(4));
    // Ten items of 4 bytes, a batch of 40 and a sample of 8.
    let mut tight = loader(&dataset, 40 + 40 + 8, 2);
    let all = epoch(&mut tight, 1).expect("it fits");
    assert_eq!(all.concat(), (0..100).map(|i| i as f32).collect::<Vec<_>>());
    assert!(runs.load(Ordering::Relaxed) <= 2, "once for each epoch, of which the second may have begun");
}

#[test]
fn a_loader_that_is_dropped_in_the_middle_ends_its_threads_and_returns_all_bytes() {
    let running = Arc::new(AtomicUsize::new(0));
    for threads in [1, 2, 8] {
        for taken in 0..4 {
            let alive = running.clone();
            let dataset = rows(1000, 16, 0)
                .map(move |e, _| {
                    alive.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    alive.fetch_sub(1, Ordering::SeqCst);
                    Ok(e)
                })
                .batch(10, Remainder::Drop)
                .prefetch(Prefetch::Depth(3));
            let pool = BytePool::new(1 << 16);
            let mut all =
                Loader::new(&dataset, LoadOptions { threads, ..LoadOptions::new(pool.clone()) }).expect("right");
            for _ in 0..taken {
                all.next().expect("it fits");
            }
            drop(all);
            assert_eq!((running.load(Ordering::SeqCst), pool.used()), (0, 0));
        }
    }
}

#[test]
fn work_goes_on_while_the_consumer_computes() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let dataset = rows(100, 1, 0)
        .map(move |e, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(e)
        })
        .prefetch(Prefetch::Depth(5));
    let mut all = loader(&dataset, 1000, 2);
    let first = all.next().expect("it fits");
    // Five more are made without being asked for, and no sixth.
    while made.load(Ordering::SeqCst) < 6 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(made.load(Ordering::SeqCst), 6);
    drop(first);
}

#[test]
fn the_next_epoch_is_begun_before_it_is_asked_for() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let dataset = rows(2, 1, 0).map(move |e, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(e)
    });
    let mut all = loader(&dataset, 1000, 1);
    assert!(all.next().is_ok_and(|e| e.is_some()) && all.next().is_ok_and(|e| e.is_some()));
    while made.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    assert_eq!(all.position(), Position { epoch: 0, element: 2 });
    assert!(all.next().is_ok_and(|e| e.is_none()));
    assert_eq!(all.position(), Position { epoch: 1, element: 0 });
}

#[test]
fn a_shuffle_of_everything_gives_every_order_with_equal_chances() {
    let dataset = rows(4, 1, 0).shuffle(4);
    let mut all = loader(&dataset, 10_000, 1);
    let mut counts = std::collections::HashMap::new();
    const EPOCHS: usize = 4_800;
    for _ in 0..EPOCHS {
        let order: Vec<u32> = epoch(&mut all, 1).expect("it fits").concat().iter().map(|x| *x as u32).collect();
        *counts.entry(order).or_insert(0usize) += 1;
    }
    // Of 24 orders with 200 expected of each; χ² with 23 degrees of freedom is beyond 64 once in 100,000 seeds.
    let chi: f64 = counts.values().map(|&n| (n as f64 - 200.0).powi(2) / 200.0).sum();
    assert!(counts.len() == 24 && chi < 64.0, "{} orders, χ² {chi}", counts.len());
}

#[test]
fn a_pause_returns_what_was_made_ahead_and_loses_nothing() {
    let pool = BytePool::new(3 * 256 + 2 * 64);
    let dataset = rows(16, 16, 0).batch(4, Remainder::Drop).prefetch(Prefetch::Depth(2));
    let options = || LoadOptions { threads: 2, ..LoadOptions::new(pool.clone()) };
    let mut train = Loader::new(&dataset, options()).expect("the pipeline is right");
    let first = train.next().expect("it fits").expect("the epoch has four");
    train.pause();
    assert_eq!((firsts(&first, 16), pool.used()), (vec![0., 1., 2., 3.], 256));
    // Another loader has the pool meanwhile.
    let mut test = Loader::new(&dataset, options()).expect("the pipeline is right");
    assert_eq!(epoch(&mut test, 16).expect("it fits").len(), 4);
    drop((test, first));
    assert_eq!(epoch(&mut train, 16).expect("it fits").concat(), (4..16).map(|i| i as f32).collect::<Vec<_>>());
}

#[test]
fn a_loader_can_be_moved_to_another_thread() {
    let mut all = loader(&rows(3, 1, 0), 1000, 2);
    let got = std::thread::spawn(move || epoch(&mut all, 1).map(|e| e.concat())).join().expect("it ends");
    assert_eq!(got.expect("it fits"), [0., 1., 2.]);
}

#[test]
fn a_number_that_is_not_finite_is_found_again_by_its_place() {
    let (folder, pool) = (common::Folder::new(), BytePool::new(1 << 20));
    let row = |n: usize| format!("{n},{n}\n");
    let path = folder.file("t.csv", format!("a,b\n{}", (0..20).map(row).collect::<String>()));
    let csv = memfit_data::sources::Csv::open(&path, Default::default(), &pool).expect("a table");
    let spoil = |mut example: Example, _: &memfit_data::Context| {
        let x = example.get_mut("x")?.f32s_mut();
        x.iter_mut().filter(|x| **x == 13.0).for_each(|x| *x = f32::NAN);
        Ok(example)
    };
    let data = Dataset::from_source(csv).map(spoil).shuffle(20).batch(5, Remainder::Drop);
    let mut loader = Loader::new(&data, LoadOptions { seed: 3, ..LoadOptions::new(pool) }).expect("a loader");
    let mut found = Vec::new();
    for element in 0.. {
        let Some(batch) = loader.next().expect("it is sound") else { break };
        let told = loader.find_non_finite(Position { epoch: 0, element });
        assert_eq!(told.is_none(), batch.fields.iter().all(|(_, tensor)| tensor.is_finite()));
        found.extend(told);
    }
    assert_eq!(found, [(format!("{}, row 13", path.display()), "x".to_string())]);
}
