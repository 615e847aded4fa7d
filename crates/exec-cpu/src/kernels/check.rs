//! What the kernels' tests share: random numbers, and a run of one kernel on every instruction set and several numbers
//! of threads.

use crate::Cpu;
use crate::isa::Isa;
use crate::pool::Pool;

/// Numbers between −1 and 1, a function of the seed.
pub(crate) fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..n).map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Integers in `0..limit`.
pub(crate) fn random_ids(n: usize, limit: usize, seed: u64) -> Vec<i32> {
    random(n, seed).iter().map(|r| (((r + 1.0) * 0.5 * limit as f32) as i32).min(limit as i32 - 1)).collect()
}

pub(crate) fn nans(n: usize) -> Vec<f32> {
    vec![f32::NAN; n]
}

pub(crate) fn cpu(isa: Isa, threads: usize) -> Cpu {
    Cpu { pool: Pool::new(threads).unwrap(), isa }
}

/// Runs the kernel on each instruction set with 1, 2 and 3 threads: the same bits for any number of threads, and each
/// output within `tolerance` of what is wanted, relative to the larger of 1 and the wanted value.
#[track_caller]
pub(crate) fn check(name: &str, tolerance: f64, want: &[Vec<f64>], kernel: impl Fn(&Cpu) -> Vec<Vec<f32>>) {
    for isa in Isa::available() {
        let one = kernel(&cpu(isa, 1));
        assert_eq!(one.len(), want.len(), "{name}: number of outputs");
        for (o, (got, want)) in one.iter().zip(want).enumerate() {
            assert_eq!(got.len(), want.len(), "{name}: length of output {o}");
            for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
                let error = (g as f64 - w).abs() / w.abs().max(1.0);
                let same = g as f64 == w || error <= tolerance;
                assert!(same, "{name} on {}: output {o} at {i} is {g}, want {w}", isa.name());
            }
        }
        for threads in [2, 3] {
            let more = kernel(&cpu(isa, threads));
            let bits = |v: &[Vec<f32>]| v.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&one) == bits(&more), "{name} on {}: {threads} threads give other bits", isa.name());
        }
    }
}
