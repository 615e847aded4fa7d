//! Against a naive convolution in f64, on every instruction set and several numbers of threads.

use std::ops::Range;
use std::sync::Mutex;

use memfit_ir::op::{Conv, Pad2};
use proptest::prelude::*;

use super::*;
use crate::Cpu;
use crate::gemm::{Micro, Operands, Prologue, Source};
use crate::isa::Isa;
use crate::kernels::check::{check, cpu, nans, random};

fn shape(batch: usize, image: [usize; 2], channels: [usize; 2], pad: Pad2) -> ConvShape {
    let out = [image[0] + pad.top + pad.bottom - 2, image[1] + pad.left + pad.right - 2];
    let conv = Conv { stride: [1, 1], pad, dilation: [1, 1], groups: 1 };
    ConvShape { batch, image, channels_in: channels[0], channels_out: channels[1], filter: [3, 3], out, conv }
}

/// Sizes of x, w and y.
fn sizes(s: &ConvShape) -> [usize; 3] {
    let image = |[h, w]: [usize; 2], c: usize| s.batch * h * w * c;
    [image(s.image, s.channels_in), 9 * s.channels_in * s.channels_out, image(s.out, s.channels_out)]
}

/// y, x and w, each from the other two.
fn naive(s: &ConvShape, x: &[f32], w: &[f32], y: &[f32]) -> [Vec<f64>; 3] {
    let mut made = [vec![0.0; y.len()], vec![0.0; x.len()], vec![0.0; w.len()]];
    let (ci, co) = (s.channels_in, s.channels_out);
    for n in 0..s.batch {
        for (oy, ox) in (0..s.out[0]).flat_map(|oy| (0..s.out[1]).map(move |ox| (oy, ox))) {
            for tap in 0..9 {
                let iy = (oy + tap / 3).wrapping_sub(s.conv.pad.top);
                let ix = (ox + tap % 3).wrapping_sub(s.conv.pad.left);
                if iy >= s.image[0] || ix >= s.image[1] {
                    continue;
                }
                let x0 = ((n * s.image[0] + iy) * s.image[1] + ix) * ci;
                let y0 = ((n * s.out[0] + oy) * s.out[1] + ox) * co;
                for i in 0..ci {
                    for o in 0..co {
                        let at = (tap * ci + i) * co + o;
                        made[0][y0 + o] += x[x0 + i] as f64 * w[at] as f64;
                        made[1][x0 + i] += y[y0 + o] as f64 * w[at] as f64;
                        made[2][at] += x[x0 + i] as f64 * y[y0 + o] as f64;
                    }
                }
            }
        }
    }
    made
}

/// Gives what is in memory.
struct Memory<'a>(&'a [f32]);

impl Prologue for Memory<'_> {
    unsafe fn compute(&self, _: usize, elements: Range<usize>, to: *mut f32) {
        let from = &self.0[elements];
        // SAFETY: the caller has room for them.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }
}

/// How often each element of a result was finished.
struct Finished {
    columns: usize,
    times: Mutex<Vec<usize>>,
}

impl Finished {
    fn new(elements: usize, columns: usize) -> Finished {
        Finished { columns, times: Mutex::new(vec![0; elements]) }
    }

    fn add(&self, rows: Range<usize>, columns: Range<usize>) {
        let mut times = self.times.lock().unwrap();
        for row in rows {
            times[row * self.columns..][columns.clone()].iter_mut().for_each(|n| *n += 1);
        }
    }

    fn check(self, g: &Geometry) {
        assert!(self.times.into_inner().unwrap().iter().all(|&n| n == 1), "{g:?}: all is finished once");
    }
}

/// Operands of which some are computed.
fn operands<'a>(a: &'a Memory, b: &'a Memory, computed: [bool; 2], c: &mut [f32]) -> Operands<'a> {
    let source = |computed: bool, x: &'a Memory| {
        if computed { Source::Prologue { chain: x, first: 0 } } else { Source::Memory(x.0.as_ptr()) }
    };
    Operands { a: source(computed[0], a), b: source(computed[1], b), c: c.as_mut_ptr() }
}

/// Runs a pass, and checks that every pixel and column is finished once.
fn pass(cpu: &Cpu, g: &Geometry, from: &[f32], filter: &[f32], n: usize, computed: [bool; 2]) -> Vec<f32> {
    let (a, b) = (Memory(from), Memory(filter));
    let mut to = nans(n);
    let operands = operands(&a, &b, computed, &mut to);
    let mut scratch = nans(scratch_len(&Micro::new(cpu.isa), g, computed, cpu.pool.threads()));
    let finished = Finished::new(n, g.columns);
    // SAFETY: everything has the length that it is asked to have.
    unsafe { run(cpu, g, operands, 1, scratch.as_mut_ptr(), &|_, r, c| finished.add(r, c)) };
    finished.check(g);
    to
}

/// Makes a gradient by the filter, and checks that every row and column is finished once.
fn by_filter(cpu: &Cpu, g: &Geometry, image: &[f32], gradient: &[f32], n: usize, computed: [bool; 2]) -> Vec<f32> {
    let (a, b) = (Memory(image), Memory(gradient));
    let mut to = nans(n);
    let operands = operands(&a, &b, computed, &mut to);
    let mut scratch = nans(filter_scratch_len(&Micro::new(cpu.isa), g, computed, cpu.pool.threads()));
    let finished = Finished::new(n, g.columns);
    // SAFETY: everything has the length that it is asked to have.
    unsafe { run_filter(cpu, g, operands, scratch.as_mut_ptr(), &|_, r, c| finished.add(r, c)) };
    finished.check(g);
    to
}

fn check_shape(s: &ConvShape) {
    let [x, w, y] = sizes(s).map(|n| random(n, n as u64));
    let want = naive(s, &x, &w, &y);
    let (forward, back) = (Geometry::of(s, Product::Forward), Geometry::of(s, Product::Transposed));
    let all = |cpu: &Cpu, computed: [bool; 2]| {
        vec![
            pass(cpu, &forward, &x, &w, y.len(), computed),
            pass(cpu, &back, &y, &w, x.len(), computed),
            by_filter(cpu, &forward, &x, &y, w.len(), computed),
        ]
    };
    let plain = |cpu: &Cpu| all(cpu, [false; 2]);
    let name = format!("{s:?}");
    // A sum of n products of such numbers is about √n ÷ 3 large: this allows 100 roundings of that, since the transforms of tiles
    // make numbers larger that cancel in the end. 64 were seen.
    let longest = (9 * s.channels_in.max(s.channels_out)).max(s.batch * s.out[0] * s.out[1]);
    check(&name, 2e-6 * (longest as f64).sqrt(), &want, plain);
    for isa in Isa::available() {
        let bits = |v: Vec<Vec<f32>>| v.into_iter().flatten().map(f32::to_bits).collect::<Vec<_>>();
        let one = bits(plain(&cpu(isa, 1)));
        assert!(one == bits(plain(&cpu(isa, 8))), "{name} on {}: 8 threads give other bits", isa.name());
        for computed in [[true, false], [false, true], [true, true]] {
            let other = bits(all(&cpu(isa, 2), computed));
            assert!(one == other, "{name} on {}: prologues {computed:?} give other bits", isa.name());
        }
    }
}

const LOPSIDED: Pad2 = Pad2 { top: 2, bottom: 0, left: 0, right: 1 };

#[test]
fn passes_are_convolutions() {
    for (batch, image, channels, pad) in [
        (1, [1, 1], [1, 1], Pad2::all(1)),
        (1, [1, 1], [5, 3], Pad2::all(2)),
        (3, [1, 7], [16, 17], Pad2::all(1)),
        (2, [8, 8], [16, 32], Pad2::all(1)),
        (2, [9, 7], [19, 33], Pad2::all(1)),
        (1, [12, 11], [70, 40], Pad2::NONE),
        (2, [6, 5], [33, 130], Pad2::all(2)),
        (1, [10, 40], [24, 16], LOPSIDED),
        (9, [4, 4], [40, 65], Pad2::all(1)),
        (2, [36, 33], [18, 31], Pad2::all(1)),
        (20, [3, 2], [17, 16], Pad2::all(1)),
        (1, [5, 4], [300, 20], Pad2::all(1)),
        (1, [4, 6], [20, 530], Pad2::all(1)),
        (2, [3, 3], [16, 16], Pad2::all(4)),
        // Of all that were drawn, the most rounding.
        (3, [10, 11], [24, 24], Pad2::all(1)),
    ] {
        check_shape(&shape(batch, image, channels, pad));
    }
}

/// More filters than are transformed at once, and sums in several products.
#[test]
fn passes_with_many_channels() {
    check_shape(&shape(1, [4, 3], [530, 280], Pad2::all(1)));
}

#[test]
fn an_empty_batch_makes_nothing() {
    let s = shape(0, [8, 8], [16, 16], Pad2::all(1));
    check_shape(&s);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_geometry(
        batch in 1usize..5,
        image in [1usize..14, 1usize..14],
        channels in [1usize..50, 1usize..50],
        pad in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
    ) {
        let [top, bottom, left, right] = pad;
        prop_assume!(image[0] + top + bottom >= 3 && image[1] + left + right >= 3);
        check_shape(&shape(batch, image, channels, Pad2 { top, bottom, left, right }));
    }
}

/// An infinity may become no number on the way, but not in results that do not read it. Of a filter's gradient all taps of a
/// channel may be lost with one.
#[test]
fn an_infinity_reaches_the_results_that_read_it_and_no_others() {
    let s = shape(2, [5, 6], [3, 4], LOPSIDED);
    let (forward, back) = (Geometry::of(&s, Product::Forward), Geometry::of(&s, Product::Transposed));
    let (cpu, computed) = (cpu(Isa::best(), 2), [false; 2]);
    let whole = sizes(&s).map(|n| random(n, n as u64));
    for (which, at) in [0, 2].into_iter().flat_map(|i| (0..whole[i].len()).map(move |at| (i, at))) {
        let mut broken = whole.clone();
        broken[which][at] = f32::INFINITY;
        let [x, w, y] = &broken;
        let given = [pass(&cpu, &forward, x, w, y.len(), computed), pass(&cpu, &back, y, w, x.len(), computed)];
        for (given, want) in given.iter().zip(naive(&s, x, w, y)) {
            let same = given.iter().zip(&want).all(|(g, w)| g.is_finite() == w.is_finite());
            assert!(same, "element {at} of tensor {which}");
        }
    }
}

/// What takes it and what does not.
#[test]
fn small_images_few_channels_and_other_filters_go_another_way() {
    let takes = |s: ConvShape| Geometry::new(&s, Product::Forward).is_some();
    assert!(takes(shape(1, [8, 8], [64, 64], Pad2::all(1))));
    assert!(takes(shape(1, [7, 7], [64, 64], Pad2::all(1))));
    assert!(!takes(shape(1, [1, 9], [64, 64], Pad2::all(1))));
    assert!(!takes(shape(1, [3, 3], [64, 64], Pad2::all(1))));
    assert!(!takes(shape(1, [8, 8], [3, 64], Pad2::all(1))));
    let s = shape(1, [8, 8], [64, 64], Pad2::all(1));
    for conv in [
        Conv { stride: [2, 2], ..s.conv },
        Conv { stride: [1, 2], ..s.conv },
        Conv { dilation: [2, 2], ..s.conv },
        Conv { groups: 2, ..s.conv },
    ] {
        assert!(!takes(ConvShape { conv, ..s }));
    }
    assert!(!takes(ConvShape { filter: [3, 5], ..s }));
}

/// The same whatever the batch, so that no micro-batch changes how a sum is made.
#[test]
fn the_batch_has_no_say() {
    for image in [[8, 8], [7, 7], [3, 3], [4, 1]] {
        for product in [Product::Forward, Product::Transposed, Product::Filter] {
            let takes = |batch| Geometry::new(&shape(batch, image, [32, 32], Pad2::all(1)), product).is_some();
            assert!((1..40).all(|batch| takes(batch) == takes(1)), "{image:?}");
        }
    }
}
