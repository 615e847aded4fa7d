//! Caches: what is kept is not made again, and what comes out is the same wherever it was kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memfit_data::{
    BytePool, Cache, DataError, Dataset, Example, LoadOptions, Loader, OnBad, Remainder, Result, Tensor,
};
use memfit_ir::TensorType;

/// Elements of 64 numbers, and how many of them were made so far.
fn counted(len: usize) -> (Dataset, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let dataset = Dataset::from_fn(len, move |i, pool| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut x = Tensor::zeros(TensorType::f32([64]), pool)?;
        x.f32s_mut().iter_mut().enumerate().for_each(|(k, x)| *x = (i * 64 + k) as f32);
        Ok(Example::default().with("x", x))
    });
    (dataset, made)
}

fn noisy(dataset: Dataset) -> Dataset {
    dataset.map(|mut e, context| {
        let mut random = context.random(0);
        e.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x += random.uniform());
        Ok(e)
    })
}

/// The bytes of some epochs, one after the other.
fn epochs(dataset: &Dataset, bytes: u64, seed: u64, count: usize) -> Result<Vec<Vec<u8>>> {
    let options = LoadOptions { threads: 3, seed, ..LoadOptions::new(BytePool::new(bytes)) };
    let mut loader = Loader::new(dataset, options)?;
    let mut all = Vec::new();
    for _ in 0..count {
        while let Some(e) = loader.next()? {
            all.push(e.get("x")?.bytes().to_vec());
        }
    }
    assert!(loader.pool().high_water() <= bytes);
    Ok(all)
}

const LARGE: u64 = 1 << 20;
/// For a batch of four (1 KiB), a sample, and an index; not for the 25 KiB that there are.
const SMALL: u64 = 6 << 10;

#[test]
fn what_is_in_memory_or_in_the_temporary_file_is_not_made_again() {
    for (bytes, spill, again) in [(LARGE, 0, false), (SMALL, u64::MAX, false), (SMALL, 0, true)] {
        let (dataset, made) = counted(100);
        let plain = epochs(&noisy(dataset.clone()).batch(4, Remainder::Drop), LARGE, 1, 1).expect("it fits");
        made.store(0, Ordering::SeqCst);
        let cached = noisy(dataset).cache(Cache::memory().limit(spill)).batch(4, Remainder::Drop);
        let all = epochs(&cached, bytes, 1, 3).expect("it fits");
        assert_eq!(all, [&plain[..], &plain, &plain].concat(), "pool {bytes}, spill {spill}");
        let made = made.load(Ordering::SeqCst);
        // What found no room at first is made once more.
        assert_eq!(made > 150, again, "{made} were made with a pool of {bytes} and a spill of {spill}");
        assert!(made >= 100);
    }
}

#[test]
fn a_cached_batch_is_kept_as_a_whole() {
    let (dataset, made) = counted(40);
    let cached = dataset.shuffle(7).batch(4, Remainder::Drop).cache(Cache::memory());
    let all = epochs(&cached, LARGE, 1, 3).expect("it fits");
    assert_eq!((all[..10].to_vec(), all[10..20].to_vec()), (all[10..20].to_vec(), all[20..].to_vec()));
    assert_eq!(made.load(Ordering::SeqCst), 40);
}

#[test]
fn a_cache_returns_its_memory_to_work_that_needs_it() {
    // Small elements fill what is left of the pool; then comes one that needs nearly all of it.
    let small = Dataset::from_fn(50, |i, pool| {
        let mut x = Tensor::zeros(TensorType::f32([16]), pool)?;
        x.f32s_mut()[0] = i as f32;
        Ok(Example::default().with("x", x))
    });
    let large =
        Dataset::from_fn(1, |_, pool| Ok(Example::default().with("x", Tensor::zeros(TensorType::f32([4_500]), pool)?)));
    let dataset = Dataset::interleave(vec![small.cache(Cache::memory()), large], 50);
    let lens: Vec<usize> = epochs(&dataset, 20_000, 1, 3).expect("it fits").iter().map(Vec::len).collect();
    let one: Vec<usize> = std::iter::repeat_n(64, 50).chain([18_000]).collect();
    assert_eq!(lens, [&one[..], &one, &one].concat());
}

#[test]
fn a_cache_of_a_paused_loader_returns_its_memory_to_another_one() {
    let pool = BytePool::new(20_000);
    let options = || LoadOptions { threads: 2, ..LoadOptions::new(pool.clone()) };
    for spill in [u64::MAX, 0] {
        let (dataset, made) = counted(100);
        let mut train = Loader::new(&dataset.cache(Cache::memory().limit(spill)), options()).expect("it is right");
        let mut first = Vec::new();
        while let Some(e) = train.next().expect("it fits") {
            first.push(e.get("x").expect("x").bytes().to_vec());
        }
        train.pause();
        assert!(pool.used() > 5_000, "the cache holds {}", pool.used());
        let large = Dataset::from_fn(2, |_, pool| {
            Ok(Example::default().with("x", Tensor::zeros(TensorType::f32([4_000]), pool)?))
        });
        let mut test = Loader::new(&large, options()).expect("it is right");
        for _ in 0..2 {
            assert!(test.next().expect("the cache gives way").is_some(), "spill {spill}");
        }
        drop(test);
        let before = made.load(Ordering::SeqCst);
        for expected in &first {
            let e = train.next().expect("it goes on").expect("as many as before");
            assert_eq!(e.get("x").expect("x").bytes(), expected);
        }
        assert_eq!(made.load(Ordering::SeqCst) > before, spill == 0, "what was spilt is not made again");
    }
}

/// A folder of its own for a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("memfit-data-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there").flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn on_disk(dataset: Dataset, path: &Path) -> Dataset {
    dataset.cache(Cache::disk(path)).batch(4, Remainder::Keep)
}

#[test]
fn a_file_serves_later_runs_when_it_is_whole() {
    let folder = Folder::new("later");
    let path = folder.0.join("cache");
    let (dataset, made) = counted(30);
    let dataset = on_disk(dataset, &path);
    let options = || LoadOptions { threads: 2, ..LoadOptions::new(BytePool::new(SMALL)) };
    let mut loader = Loader::new(&dataset, options()).expect("the pipeline is right");
    for _ in 0..5 {
        loader.next().expect("it fits");
    }
    drop(loader);
    assert_eq!(folder.files(), Vec::<String>::new(), "what was not finished is gone");
    let first = epochs(&dataset, SMALL, 1, 2).expect("it fits");
    assert_eq!(folder.files(), ["cache"]);
    made.store(0, Ordering::SeqCst);
    // No random number was drawn: it serves every seed.
    assert_eq!(epochs(&dataset, SMALL, 2, 2).expect("it fits"), first);
    assert_eq!(made.load(Ordering::SeqCst), 0);
}

#[test]
fn a_file_of_another_pipeline_or_seed_is_made_anew() {
    let folder = Folder::new("anew");
    let path = folder.0.join("cache");
    let check = |dataset: Dataset, made: &AtomicUsize, seed: u64, anew: bool| {
        made.store(0, Ordering::SeqCst);
        let got = epochs(&on_disk(dataset.clone(), &path), LARGE, seed, 1).expect("it fits");
        assert_eq!(made.load(Ordering::SeqCst) > 0, anew);
        assert_eq!(got, epochs(&dataset.batch(4, Remainder::Keep), LARGE, seed, 1).expect("it fits"));
    };
    let (dataset, made) = counted(12);
    check(dataset.clone(), &made, 1, true);
    check(dataset.clone(), &made, 1, false);
    check(dataset.clone().take(11), &made, 1, true);
    check(noisy(dataset.clone()), &made, 1, true);
    check(noisy(dataset.clone()), &made, 1, false);
    check(noisy(dataset.clone()), &made, 2, true);
    let times = |factor: f32| {
        dataset.clone().map_keyed(factor.to_bits().into(), move |mut e, _| {
            e.get_mut("x")?.f32s_mut().iter_mut().for_each(|x| *x *= factor);
            Ok(e)
        })
    };
    check(times(2.0), &made, 1, true);
    check(times(2.0), &made, 1, false);
    check(times(3.0), &made, 1, true);
    check(dataset.shuffle(4), &made, 2, true);
}

#[test]
fn a_damaged_file_is_never_trusted() {
    let folder = Folder::new("damaged");
    let path = folder.0.join("cache");
    let (dataset, _) = counted(5);
    let dataset = on_disk(noisy(dataset), &path);
    let good = epochs(&dataset, LARGE, 1, 1).expect("it fits");
    let whole = fs::read(&path).expect("the file is there");
    let check = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).expect("it is written");
        assert_eq!(epochs(&dataset, LARGE, 1, 2).expect("it fits"), [&good[..], &good].concat(), "{what}");
    };
    // The first eight bytes say that it is a cache: without them it is somebody else's file.
    for byte in (8..whole.len()).step_by(7) {
        let mut flipped = whole.clone();
        flipped[byte] ^= 0x41;
        check(&flipped, &format!("byte {byte}"));
    }
    for len in (0..whole.len()).step_by(97) {
        check(&whole[..len], &format!("{len} bytes"));
    }
    assert_eq!(folder.files(), ["cache"]);
}

#[test]
fn a_limit_bounds_the_file_and_the_rest_is_made_each_time() {
    let folder = Folder::new("limit");
    let path = folder.0.join("cache");
    let (dataset, made) = counted(20);
    let cached = dataset.clone().cache(Cache::disk(&path).limit(2_000)).batch(4, Remainder::Keep);
    let plain = epochs(&dataset.batch(4, Remainder::Keep), LARGE, 1, 1).expect("it fits");
    assert_eq!(epochs(&cached, LARGE, 1, 2).expect("it fits"), [&plain[..], &plain].concat());
    // The table stands behind the elements.
    assert!(fs::metadata(&path).expect("the file is there").len() < 2_000 + 20 * 8 + 100);
    made.store(0, Ordering::SeqCst);
    assert_eq!(epochs(&cached, LARGE, 1, 1).expect("it fits"), plain);
    assert!((1..20).contains(&made.load(Ordering::SeqCst)));
}

#[test]
fn a_cache_with_bad_samples_is_finished_without_them() {
    let folder = Folder::new("bad");
    let path = folder.0.join("cache");
    let dataset = Dataset::from_fn(6, |i, pool| match i {
        2 => Err(DataError::bad("file 2", "it is torn")),
        _ => Ok(Example::default().with("x", Tensor::zeros(TensorType::f32([1]), pool)?)),
    });
    let dataset = on_disk(dataset, &path);
    for _ in 0..2 {
        let options = LoadOptions { bad: OnBad::Skip, threads: 2, ..LoadOptions::new(BytePool::new(LARGE)) };
        let mut loader = Loader::new(&dataset, options).expect("the pipeline is right");
        while loader.next().expect("it is left out").is_some() {}
        assert_eq!((loader.skipped().count, folder.files()), (1, vec!["cache".to_string()]));
    }
}

#[test]
fn what_a_dead_run_left_is_removed_and_what_a_living_one_writes_is_not() {
    let folder = Folder::new("dead");
    let path = folder.0.join("cache");
    fs::write(folder.0.join("cache.1-0.partial"), b"memfitc1 half").expect("it is written");
    let (dataset, _) = counted(30);
    let dataset = on_disk(dataset, &path);
    let options = || LoadOptions { threads: 2, ..LoadOptions::new(BytePool::new(LARGE)) };
    let living = Loader::new(&dataset, options()).expect("the pipeline is right");
    assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
    let second = Loader::new(&dataset, options()).expect("the pipeline is right");
    assert_eq!(folder.files().len(), 2, "{:?}", folder.files());
    drop((living, second));
    assert_eq!(folder.files().len(), 0);
}

#[test]
fn what_others_call_partial_is_left_alone() {
    let folder = Folder::new("partial");
    let others = [
        "cache.partial",
        "cache.old.partial",
        "cache.1.partial",
        "cache.1-.partial",
        "cache.1-x.partial",
        "cache.1-0.partial.old",
        "cache2.1-0.partial",
        "my.cache.1-0.partial",
    ];
    others.iter().for_each(|name| fs::write(folder.0.join(name), b"memfitc1 half").expect("it is written"));
    // Called as ours is, by chance.
    fs::write(folder.0.join("cache.1-0.partial"), b"a download").expect("it is written");
    epochs(&on_disk(counted(3).0, &folder.0.join("cache")), LARGE, 1, 1).expect("it is cached");
    let mut expected: Vec<String> =
        others.iter().chain(&["cache", "cache.1-0.partial"]).map(|n| n.to_string()).collect();
    let mut files = folder.files();
    expected.sort_unstable();
    files.sort_unstable();
    assert_eq!(files, expected);
}

#[test]
fn a_file_that_is_no_cache_is_never_overwritten() {
    let folder = Folder::new("stranger");
    let path = folder.0.join("notes.txt");
    let load = |path: &Path| {
        let loaded = epochs(&on_disk(counted(3).0, path), LARGE, 1, 1);
        loaded.map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    };
    for text in ["short", "a year of measurements"] {
        fs::write(&path, text).expect("it is written");
        let error = load(&path);
        assert!(error.contains("notes.txt") && error.contains("give the cache another name"), "{error}");
        assert_eq!((fs::read_to_string(&path).ok().as_deref(), folder.files().len()), (Some(text), 1));
    }
    let error = load(&folder.0);
    assert!(error.contains("this is a folder"), "{error}");
    fs::write(&path, "").expect("it is written");
    assert_eq!(load(&path), "", "there is nothing to lose in an empty file");
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let path = std::env::temp_dir().join("memfit-data-no-such-folder").join("cache");
    let error = Loader::new(&on_disk(counted(3).0, &path), LoadOptions::new(BytePool::new(LARGE)));
    match error {
        Err(DataError::Io { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{:?}", other.err()),
    }
}
