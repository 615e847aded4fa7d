//! Random pipelines against a naive, eager, single-threaded reading of the same description, which shares nothing with
//! the engine but the generator of random bits: for several numbers of threads, from any position, in pools that are
//! large or have room for hardly one element.

use std::collections::VecDeque;

use memfit_data::{
    BytePool, Cache, DataError, Dataset, Example, LoadOptions, Loader, OnBad, Position, Prefetch, Remainder, Result,
    Tensor, Tensors,
};
use memfit_ir::TensorType;
use memfit_ir::philox::philox;
use proptest::prelude::*;

/// A pipeline, as a description that shrinks.
#[derive(Clone, Debug)]
enum Verbs {
    Rows(usize, i32),
    Generator(usize),
    Add(Box<Verbs>, i32),
    Noise(Box<Verbs>),
    /// Bad where the first value is a multiple of this.
    Fail(Box<Verbs>, i32),
    Shuffle(Box<Verbs>, usize),
    Batch(Box<Verbs>, usize, bool),
    /// Of batches of so many lanes, of so many rows each, the lanes from one on.
    Lanes(Box<Verbs>, usize, usize, usize),
    Cache(Box<Verbs>, u64),
    Prefetch(Box<Verbs>, usize),
    Repeat(Box<Verbs>, usize),
    /// Without end, but for the first so many.
    Cycle(Box<Verbs>, usize),
    Take(Box<Verbs>, usize),
    Skip(Box<Verbs>, usize),
    Shard(Box<Verbs>, usize, usize),
    /// The fields of the second get other names.
    Zip(Box<Verbs>, Box<Verbs>),
    Interleave(Vec<Verbs>, usize),
}

fn verbs() -> impl Strategy<Value = Verbs> {
    let one = chain(prop_oneof![
        4 => (0..12usize, 0..100).prop_map(|(n, from)| Verbs::Rows(n, from)),
        1 => (0..8usize).prop_map(Verbs::Generator),
    ]);
    let zip = (one.clone(), one.clone()).prop_map(|(v, w)| Verbs::Zip(Box::new(v), Box::new(w)));
    let some = prop::collection::vec(one.clone(), 1..4);
    let interleave = (some, 1..4usize).prop_map(|(v, n)| Verbs::Interleave(v, n));
    prop_oneof![2 => one, 1 => chain(zip), 1 => chain(interleave)]
}

/// A few verbs behind another one.
fn chain(start: impl Strategy<Value = Verbs> + 'static) -> BoxedStrategy<Verbs> {
    let steps = prop::collection::vec((0..18usize, 0..8usize, any::<bool>()), 0..6);
    (start, steps).prop_map(|(start, steps)| steps.into_iter().fold(start, then)).boxed()
}

fn then(verbs: Verbs, (kind, n, keep): (usize, usize, bool)) -> Verbs {
    let v = Box::new(verbs);
    match kind {
        0 => Verbs::Add(v, n as i32 - 4),
        1..3 => Verbs::Noise(v),
        3 => Verbs::Fail(v, n as i32 % 5 + 1),
        4..6 => Verbs::Shuffle(v, n + 1),
        6..9 => Verbs::Batch(v, n % 4 + 1, keep),
        9 => Verbs::Cache(v, [0, 300, u64::MAX][n % 3]),
        10 => Verbs::Prefetch(v, n % 4),
        11 => Verbs::Repeat(v, n % 3 + 1),
        12 => Verbs::Cycle(v, 2 * n),
        13 => Verbs::Take(v, n + 1),
        14 => Verbs::Shard(v, n % 3 + 1, n / 3 % (n % 3 + 1)),
        15 => Verbs::Lanes(v, n % 2 + 1, n / 4 + 1, usize::from(keep).min(n % 2)),
        _ => Verbs::Skip(v, n % 4),
    }
}

// What the engine is given.

fn numbers(example: &mut Example) -> Result<&mut [i32]> {
    let tensor = &mut example.fields[0].1;
    Ok(bytemuck::cast_slice_mut(tensor.bytes_mut()))
}

fn dataset(verbs: &Verbs) -> Dataset {
    match verbs {
        Verbs::Rows(n, from) => {
            let values: Vec<i32> = (0..*n as i32).map(|i| from + i).collect();
            let tensors = Tensors::new().with("x", TensorType::i32([*n]), values).expect("they fit");
            Dataset::from_tensors(tensors).expect("one tensor is a table")
        }
        Verbs::Generator(n) => {
            let n = *n as i32;
            let item = |i| Tensors::new().with("x", TensorType::i32([]), vec![1000 + i]);
            Dataset::from_iter(move || (0..n).map(item))
        }
        Verbs::Add(v, k) => {
            let k = *k;
            dataset(v).map(move |mut e, _| {
                numbers(&mut e)?.iter_mut().for_each(|x| *x = x.wrapping_add(k));
                Ok(e)
            })
        }
        Verbs::Noise(v) => dataset(v).map(|e, context| {
            // Into a new tensor, with some working memory beside.
            let work = context.pool.reserve(24)?;
            let mut copy = Tensor::from_bytes(e.fields[0].1.ty().clone(), e.fields[0].1.bytes(), context.pool)?;
            let noise = context.random(3).below(1 << 20) as i32;
            for x in bytemuck::cast_slice_mut::<u8, i32>(copy.bytes_mut()) {
                *x = x.wrapping_mul(31).wrapping_add(noise);
            }
            drop(work);
            let mut e = e;
            e.fields[0].1 = copy;
            Ok(e)
        }),
        Verbs::Fail(v, k) => {
            let k = *k;
            dataset(v).map(move |mut e, context| match numbers(&mut e)?.first() {
                Some(x) if x % k == 0 => Err(DataError::bad(context.location(), "a multiple")),
                _ => Ok(e),
            })
        }
        Verbs::Shuffle(v, n) => dataset(v).shuffle(*n),
        Verbs::Batch(v, n, keep) => dataset(v).batch(*n, if *keep { Remainder::Keep } else { Remainder::Drop }),
        Verbs::Lanes(v, lanes, lane, first) => dataset(v).batch_rows(lanes * lane, first * lane..lanes * lane, *lane),
        Verbs::Cache(v, spill) => dataset(v).cache(Cache::memory().limit(*spill)),
        Verbs::Prefetch(v, 0) => dataset(v).prefetch(Prefetch::Auto),
        Verbs::Prefetch(v, n) => dataset(v).prefetch(Prefetch::Depth(*n - 1)),
        Verbs::Repeat(v, n) => dataset(v).repeat(Some(*n)),
        Verbs::Cycle(v, n) => dataset(v).repeat(None).take(*n),
        Verbs::Take(v, n) => dataset(v).take(*n),
        Verbs::Skip(v, n) => dataset(v).skip(*n),
        Verbs::Shard(v, count, index) => dataset(v).shard(*count, *index),
        Verbs::Zip(v, w) => {
            let renamed = dataset(w).map(|mut e, _| {
                e.fields.iter_mut().for_each(|(name, _)| *name = format!("{name}'"));
                Ok(e)
            });
            dataset(v).zip(renamed)
        }
        Verbs::Interleave(all, block) => Dataset::interleave(all.iter().map(dataset).collect(), *block),
    }
}

// What the oracle says.

type Fields = Vec<(String, Vec<usize>, Vec<i32>)>;

#[derive(Clone, Debug, PartialEq)]
enum Out {
    Good(Fields),
    Bad,
    /// Something that cannot be left out.
    Fatal,
}

#[derive(Clone, Copy)]
struct Oracle {
    seed: u64,
    skip: bool,
}

impl Oracle {
    fn key(&self, kind: u32, verb: u32, epoch: u64) -> [u32; 2] {
        let seed = [self.seed as u32, (self.seed >> 32) as u32];
        let words = philox([verb, kind, epoch as u32, (epoch >> 32) as u32], seed);
        [words[0], words[1]]
    }

    /// All elements of one epoch. `verb` counts shuffles and maps.
    fn epoch(&self, verbs: &Verbs, epoch: u64, verb: &mut u32) -> Vec<Out> {
        match verbs {
            Verbs::Rows(n, from) => numbered(*n, *from),
            Verbs::Generator(n) => numbered(*n, 1000),
            Verbs::Add(v, k) => {
                let all = self.epoch(v, epoch, verb);
                *verb += 1;
                on_good(all, |_, f| Out::Good(each_number(f, |x| x.wrapping_add(*k))))
            }
            Verbs::Noise(v) => {
                let all = self.epoch(v, epoch, verb);
                noisy(all, self.next_key(0, verb, epoch))
            }
            Verbs::Fail(v, k) => {
                let all = self.epoch(v, epoch, verb);
                *verb += 1;
                on_good(all, |_, f| if f[0].2.first().is_some_and(|x| x % k == 0) { Out::Bad } else { Out::Good(f) })
            }
            Verbs::Shuffle(v, size) => {
                let all = self.epoch(v, epoch, verb);
                shuffled(all, *size, self.next_key(1, verb, epoch))
            }
            Verbs::Batch(v, size, keep) => {
                let all = self.epoch(v, epoch, verb);
                let whole = |chunk: &&[Out]| *keep || chunk.len() == *size;
                all.chunks(*size).filter(whole).map(|chunk| self.stack(chunk, *keep)).collect()
            }
            Verbs::Lanes(v, lanes, lane, first) => {
                let all = self.epoch(v, epoch, verb);
                let whole = all.chunks_exact(lanes * lane);
                whole.map(|batch| self.stack_lanes(&batch[first * lane..], *lane, *lanes)).collect()
            }
            Verbs::Cache(v, _) => self.epoch(v, 0, verb),
            Verbs::Prefetch(v, _) => self.epoch(v, epoch, verb),
            Verbs::Repeat(v, n) => self.repeated(v, *n as u64, epoch, verb),
            Verbs::Cycle(v, n) => self.cycled(v, *n, epoch, verb),
            Verbs::Take(v, n) => self.epoch(v, epoch, verb).into_iter().take(*n).collect(),
            Verbs::Skip(v, n) => self.epoch(v, epoch, verb).into_iter().skip(*n).collect(),
            Verbs::Shard(v, count, index) => {
                self.epoch(v, epoch, verb).into_iter().skip(*index).step_by(*count).collect()
            }
            Verbs::Zip(v, w) => {
                let left = self.epoch(v, epoch, verb);
                let right = self.epoch(w, epoch, verb);
                *verb += 1;
                left.into_iter().zip(right).map(|(a, b)| zipped(a, b)).collect()
            }
            Verbs::Interleave(all, block) => {
                interleaved(all.iter().map(|v| self.epoch(v, epoch, verb).into()).collect(), *block)
            }
        }
    }

    /// The key of a shuffle or a map, which is counted.
    fn next_key(&self, kind: u32, verb: &mut u32, epoch: u64) -> [u32; 2] {
        let key = self.key(kind, *verb, epoch);
        *verb += 1;
        key
    }

    /// Rounds count the same verbs, each in an epoch of its own.
    fn repeated(&self, verbs: &Verbs, rounds: u64, epoch: u64, verb: &mut u32) -> Vec<Out> {
        let (first, mut out) = (*verb, Vec::new());
        for round in 0..rounds {
            *verb = first;
            out.extend(self.epoch(verbs, epoch * rounds + round, verb));
        }
        out
    }

    fn cycled(&self, verbs: &Verbs, count: usize, epoch: u64, verb: &mut u32) -> Vec<Out> {
        let (first, mut out) = (*verb, Vec::new());
        for round in 0.. {
            *verb = first;
            let more = self.epoch(verbs, (epoch << 32) + round, verb);
            if more.is_empty() || out.len() >= count {
                break;
            }
            out.extend(more);
        }
        out.truncate(count);
        out
    }

    fn stack(&self, samples: &[Out], keep: bool) -> Out {
        let like = |f: &Fields| f.iter().map(|(name, dims, _)| (name.clone(), dims.clone())).collect::<Vec<_>>();
        let mut good: Vec<Option<&Fields>> = Vec::new();
        for sample in samples {
            match sample {
                Out::Fatal => return Out::Fatal,
                Out::Bad if !self.skip => return Out::Bad,
                Out::Bad => good.push(None),
                Out::Good(f) if good.iter().flatten().next().is_some_and(|first| like(first) != like(f)) => {
                    return Out::Fatal;
                }
                Out::Good(f) => good.push(Some(f)),
            }
        }
        let n = good.len();
        let rows: Vec<&Fields> = if keep {
            good.iter().flatten().copied().collect()
        } else {
            (0..n).filter_map(|i| (0..n).find_map(|k| good[(i + k) % n])).collect()
        };
        let Some(first) = rows.first() else { return Out::Bad };
        let stacked = |k: usize| {
            let (name, dims, _) = &first[k];
            let dims = [&[rows.len()], &dims[..]].concat();
            (name.clone(), dims, rows.iter().flat_map(|row| row[k].2.clone()).collect())
        };
        Out::Good((0..first.len()).map(stacked).collect())
    }

    /// Lane by lane, and then all of them.
    fn stack_lanes(&self, samples: &[Out], lane: usize, lanes: usize) -> Out {
        let whole = self.stack(samples, false);
        let apart: Vec<Out> = samples.chunks(lane).map(|lane| self.stack(lane, false)).collect();
        if !matches!(whole, Out::Good(_)) || lanes == 1 {
            return if whole == Out::Bad && lanes > 1 && self.skip { Out::Fatal } else { whole };
        }
        let mut all: Option<Fields> = None;
        for lane in apart {
            let Out::Good(lane) = lane else { return Out::Fatal };
            match &mut all {
                None => all = Some(lane),
                Some(all) => all.iter_mut().zip(lane).for_each(|(all, one)| {
                    all.1[0] += one.1[0];
                    all.2.extend(one.2);
                }),
            }
        }
        all.map_or(Out::Bad, Out::Good)
    }

    /// What a loader gives from a position on, with the position behind each, up to the end of an epoch.
    fn run(&self, verbs: &Verbs, start: Position, epochs: u64) -> Vec<(Option<Out>, Position)> {
        let mut expected = Vec::new();
        for epoch in start.epoch..epochs {
            let all = self.epoch(verbs, epoch, &mut 0);
            let from = if epoch == start.epoch { start.element as usize } else { 0 };
            let none_good = from == 0 && !all.is_empty() && all.iter().all(|out| *out == Out::Bad);
            for (element, out) in all.into_iter().enumerate().skip(from) {
                if !(self.skip && out == Out::Bad) {
                    expected.push((Some(out), Position { epoch, element: element as u64 + 1 }));
                }
            }
            let end = if self.skip && none_good { Some(Out::Fatal) } else { None };
            expected.push((end, Position { epoch: epoch + 1, element: 0 }));
        }
        expected
    }
}

fn numbered(count: usize, from: i32) -> Vec<Out> {
    (0..count as i32).map(|i| Out::Good(vec![("x".into(), vec![], vec![from + i])])).collect()
}

/// With other numbers in the first field.
fn each_number(mut fields: Fields, change: impl Fn(i32) -> i32) -> Fields {
    fields[0].2.iter_mut().for_each(|x| *x = change(*x));
    fields
}

fn noisy(all: Vec<Out>, key: [u32; 2]) -> Vec<Out> {
    on_good(all, |i, f| {
        let word = philox([0, 3, i as u32, 0], key)[0];
        let noise = ((word as u64 * (1 << 20)) >> 32) as i32;
        Out::Good(each_number(f, |x| x.wrapping_mul(31).wrapping_add(noise)))
    })
}

/// Drawn from a buffer that is filled up before every draw.
fn shuffled(all: Vec<Out>, size: usize, key: [u32; 2]) -> Vec<Out> {
    let mut input: VecDeque<Out> = all.into();
    let (mut buffer, mut out) = (Vec::new(), Vec::new());
    loop {
        while buffer.len() < size && !input.is_empty() {
            buffer.extend(input.pop_front());
        }
        if buffer.is_empty() {
            return out;
        }
        let words = philox([out.len() as u32, 0, 0, 0], key);
        let bits = (words[0] as u128) << 32 | words[1] as u128;
        out.push(buffer.swap_remove((bits * buffer.len() as u128 / (1 << 64)) as usize));
    }
}

/// A block of each in turn.
fn interleaved(mut rows: Vec<VecDeque<Out>>, block: usize) -> Vec<Out> {
    let mut out = Vec::new();
    while rows.iter().any(|row| !row.is_empty()) {
        for row in &mut rows {
            let n = row.len().min(block);
            out.extend(row.drain(..n));
        }
    }
    out
}

fn on_good(all: Vec<Out>, f: impl Fn(usize, Fields) -> Out) -> Vec<Out> {
    let each = |(i, out)| if let Out::Good(fields) = out { f(i, fields) } else { out };
    all.into_iter().enumerate().map(each).collect()
}

fn zipped(a: Out, b: Out) -> Out {
    let (mut a, b) = match (a, b) {
        (Out::Good(a), Out::Good(b)) => (a, b),
        (Out::Good(_), b) => return b,
        (a, _) => return a,
    };
    for (name, dims, values) in b {
        let name = format!("{name}'");
        if a.iter().any(|(n, ..)| *n == name) {
            return Out::Fatal;
        }
        a.push((name, dims, values));
    }
    Out::Good(a)
}

// The comparison.

fn out(given: Result<Option<Example>>) -> Result<Option<Out>> {
    let field = |(name, tensor): &(String, Tensor)| {
        (name.clone(), tensor.ty().shape.to_vec(), bytemuck::cast_slice(tensor.bytes()).to_vec())
    };
    match given {
        Ok(example) => Ok(example.map(|e| Out::Good(e.fields.iter().map(field).collect()))),
        Err(DataError::PoolTooSmall { limit, needed, what }) => Err(DataError::PoolTooSmall { limit, needed, what }),
        Err(DataError::Bad(_)) => Ok(Some(Out::Bad)),
        Err(DataError::NoRoom(e)) => panic!("{e}"),
        Err(_) => Ok(Some(Out::Fatal)),
    }
}

/// Compares a run with what is expected of it; the error is that of a pool which is too small.
fn compare(dataset: &Dataset, options: LoadOptions, expected: &[(Option<Out>, Position)]) -> Result<()> {
    let start = options.start;
    let mut loader = Loader::new(dataset, options)?;
    assert_eq!(loader.position(), start);
    for (want, behind) in expected {
        let got = out(loader.next())?;
        assert_eq!(&got, want);
        assert_eq!(loader.position(), *behind);
    }
    assert!(loader.pool().high_water() <= loader.pool().limit());
    Ok(())
}

const EPOCHS: u64 = 3;

fn check(verbs: &Verbs, oracle: Oracle, threads: usize, start: Position) {
    let expected = oracle.run(verbs, start, EPOCHS);
    let dataset = dataset(verbs);
    let bad = if oracle.skip { OnBad::Skip } else { OnBad::Fail };
    let options = |bytes| LoadOptions { pool: BytePool::new(bytes), threads, seed: oracle.seed, bad, start };
    compare(&dataset, options(1 << 20), &expected).expect("there is room");
    // The smallest pool is found by what the errors ask for: it grows with each of them, and then it is enough.
    let mut bytes = 0;
    while let Err(error) = compare(&dataset, options(bytes), &expected) {
        let DataError::PoolTooSmall { limit, needed, .. } = error else { panic!("{error}") };
        assert!(limit == bytes && needed > limit, "{needed} bytes were asked for in a pool of {bytes}");
        bytes = needed;
    }
}

fn position(verbs: &Verbs, oracle: Oracle, epoch: u64, part: f64) -> Position {
    let len = oracle.epoch(verbs, epoch, &mut 0).len();
    Position { epoch, element: (part * (len + 1) as f64) as u64 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: memfit_test_effort::cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loader_gives_what_the_oracle_says(
        verbs in verbs(),
        seed in any::<u64>(),
        skip in any::<bool>(),
        threads in prop_oneof![Just(1usize), Just(2), Just(3), Just(8)],
        epoch in 0..EPOCHS,
        part in 0f64..1.0,
    ) {
        let oracle = Oracle { seed, skip };
        check(&verbs, oracle, threads, Position::default());
        check(&verbs, oracle, threads, position(&verbs, oracle, epoch, part));
    }

    #[test]
    fn the_length_is_that_of_an_epoch(verbs in verbs()) {
        let oracle = Oracle { seed: 0, skip: false };
        let len = oracle.epoch(&verbs, 0, &mut 0).len();
        let dataset = dataset(&verbs);
        prop_assert!(dataset.len().is_none_or(|n| n == len), "{:?} instead of {len}", dataset.len());
        let text = format!("{verbs:?}");
        prop_assert!(dataset.len().is_some() || text.contains("Generator"));
        prop_assert!(dataset.is_empty().is_none_or(|empty| empty == (len == 0)));
    }
}

/// Of an element whose first half is bad and whose second is a batch without a good sample, the first fault counts.
#[test]
fn the_first_of_two_faults_counts() {
    let bad = |n| Box::new(Verbs::Fail(Box::new(Verbs::Rows(n, 0)), 1));
    let verbs = Verbs::Zip(bad(2), Box::new(Verbs::Batch(bad(4), 2, true)));
    for threads in [1, 2, 8] {
        check(&verbs, Oracle { seed: 0, skip: true }, threads, Position::default());
        check(&verbs, Oracle { seed: 0, skip: true }, threads, Position { epoch: 0, element: 1 });
    }
}
