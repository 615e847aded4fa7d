//! The loops of elementwise chains: one function per number of inputs, compiled for each instruction set. A loop reads 16
//! elements, computes them and writes them, so that a result may lie where an input lay; the rest of a tile goes through
//! the same code, so that an element's bits do not depend on its position.

use memfit_ir::op::{Binary, Compare, Unary};
use memfit_ir::{DType, philox};

use crate::isa::{fma, simd};
use crate::math::*;

/// Elements computed at once.
pub(super) const W: usize = 16;

/// A lane: f32 or i32; or 16 bits on their way to one.
pub(super) trait Lane: Copy + Default {}
impl Lane for f32 {}
impl Lane for i32 {}
impl Lane for u16 {}

/// Elements `at..n`, but no more than W; zeros behind them.
///
/// # Safety
/// There are n elements at `p`, and `at` is at most n.
#[inline(always)]
pub(super) unsafe fn load<T: Lane>(p: *const T, at: usize, n: usize) -> [T; W] {
    // SAFETY: of the n elements, W or n − at are left.
    unsafe {
        if n - at >= W {
            p.add(at).cast::<[T; W]>().read_unaligned()
        } else {
            let mut v = [T::default(); W];
            std::ptr::copy_nonoverlapping(p.add(at), v.as_mut_ptr(), n - at);
            v
        }
    }
}

/// Elements `at..n`, but no more than W.
///
/// # Safety
/// There is room for n elements at `p`, and `at` is at most n.
#[inline(always)]
pub(super) unsafe fn store<T: Lane>(p: *mut T, at: usize, n: usize, v: [T; W]) {
    // SAFETY: of the n elements, W or n − at are left.
    unsafe {
        if n - at >= W {
            p.add(at).cast::<[T; W]>().write_unaligned(v);
        } else {
            std::ptr::copy_nonoverlapping(v.as_ptr(), p.add(at), n - at);
        }
    }
}

/// Runs the body for `W` elements after the other, of `n`: it loads and stores `at..end`, and the last may be fewer. These have a
/// copy of the body of their own: the compiler would else store all of them by a call that copies any number of bytes.
macro_rules! by_vectors {
    ($n:expr, |$at:ident, $end:ident| $body:expr) => {{
        let n: usize = $n;
        let mut $at = 0;
        while $at + W <= n {
            let $end = $at + W;
            $body;
            // The compiler would else run 16 of these at a time, and put their elements together one by one.
            std::hint::black_box(());
            $at = $end;
        }
        if $at < n {
            let $end = n;
            $body;
        }
    }};
}

pub(super) use by_vectors;

/// `y[i] = body` for every lane, with one input. A macro and not a function of a closure: a closure that is not inlined
/// loses the instruction set, and its FMA becomes a call.
macro_rules! map1 {
    ($a:expr, $y:expr, $n:expr, |$x:ident| $body:expr) => {{
        let (a, y) = ($a, $y);
        by_vectors!($n, |at, end| {
            let a = load(a, at, end);
            let mut r = [Default::default(); W];
            for i in 0..W {
                let $x = a[i];
                r[i] = $body;
            }
            store(y, at, end, r);
        });
    }};
}

pub(super) use map1;

/// As [`map1`], with two inputs.
macro_rules! map2 {
    ($a:expr, $b:expr, $y:expr, $n:expr, |$x:ident, $z:ident| $body:expr) => {{
        let (a, b, y) = ($a, $b, $y);
        by_vectors!($n, |at, end| {
            let (a, b) = (load(a, at, end), load(b, at, end));
            let mut r = [Default::default(); W];
            for i in 0..W {
                let ($x, $z) = (a[i], b[i]);
                r[i] = $body;
            }
            store(y, at, end, r);
        });
    }};
}

const SQRT_2_OVER_PI: f32 = 0.797_884_6;
const GELU_CUBIC: f32 = 0.044_715;

simd! {
    /// y = u(x)
    ///
    /// # Safety
    /// The pointers cover n lanes each, of which nobody else writes any; what is written is apart from each input, or lies where
    /// that lies.
    pub(super) unsafe fn unary<FMA>(isa, u: Unary, x: *const f32, y: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match u {
                Unary::Neg => map1!(x, y, n, |x| -x),
                Unary::Abs => map1!(x, y, n, |x| x.abs()),
                Unary::Exp => map1!(x, y, n, |x| exp::<FMA>(x)),
                Unary::Log => map1!(x, y, n, |x| log::<FMA>(x)),
                Unary::Sqrt => map1!(x, y, n, |x| x.sqrt()),
                Unary::Rsqrt => map1!(x, y, n, |x| 1.0 / x.sqrt()),
                Unary::Tanh => map1!(x, y, n, |x| tanh::<FMA>(x)),
                Unary::Sigmoid => map1!(x, y, n, |x| sigmoid::<FMA>(x)),
                // A NaN stays one: what hides it hides a fault.
                Unary::Relu => map1!(x, y, n, |x| if x < 0.0 { 0.0 } else { x }),
                Unary::Relu6 => map1!(x, y, n, |x| x.clamp(0.0, 6.0)),
                Unary::LeakyRelu(s) => map1!(x, y, n, |x| if x > 0.0 { x } else { s * x }),
                Unary::Elu(a) => map1!(x, y, n, |x| if x > 0.0 { x } else { a * expm1::<FMA>(x) }),
                Unary::Softplus => map1!(x, y, n, |x| softplus::<FMA>(x)),
                Unary::HardSigmoid => map1!(x, y, n, |x| fma::<FMA>(x, 1.0 / 6.0, 0.5).clamp(0.0, 1.0)),
                Unary::HardSwish => map1!(x, y, n, |x| x * (x + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0)),
                Unary::Silu => map1!(x, y, n, |x| x * sigmoid::<FMA>(x)),
                Unary::GeluTanh => map1!(x, y, n, |x| 0.5 * x * (1.0 + tanh::<FMA>(gelu_inner::<FMA>(x)))),
                Unary::GeluErf => map1!(x, y, n, |x| 0.5 * x * (1.0 + erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2))),
            }
        }
    }
}

#[inline(always)]
fn gelu_inner<const FMA: bool>(x: f32) -> f32 {
    SQRT_2_OVER_PI * fma::<FMA>(GELU_CUBIC * x * x, x, x)
}

simd! {
    /// dx from what the gradient reads (x or y) and dy
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn unary_grad<FMA>(isa, u: Unary, s: *const f32, dy: *const f32, dx: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match u {
                Unary::Neg => map1!(dy, dx, n, |d| -d),
                Unary::Abs => map2!(s, dy, dx, n, |x, d| if x > 0.0 { d } else if x < 0.0 { -d } else { 0.0 }),
                Unary::Exp => map2!(s, dy, dx, n, |y, d| d * y),
                Unary::Log => map2!(s, dy, dx, n, |x, d| d / x),
                Unary::Sqrt => map2!(s, dy, dx, n, |y, d| 0.5 * d / y),
                Unary::Rsqrt => map2!(s, dy, dx, n, |y, d| -0.5 * d * y * y * y),
                Unary::Tanh => map2!(s, dy, dx, n, |y, d| d * fma::<FMA>(-y, y, 1.0)),
                Unary::Sigmoid => map2!(s, dy, dx, n, |y, d| d * y * (1.0 - y)),
                Unary::Relu => map2!(s, dy, dx, n, |y, d| if y > 0.0 { d } else { 0.0 }),
                Unary::Relu6 => map2!(s, dy, dx, n, |y, d| if y > 0.0 && y < 6.0 { d } else { 0.0 }),
                // A product on both sides: of d alone or of a product the compiler would take either, and they differ where d
                // is subnormal, which only a product makes 0.
                Unary::LeakyRelu(slope) => map2!(s, dy, dx, n, |y, d| d * if y > 0.0 { 1.0 } else { slope }),
                Unary::Elu(a) => map2!(s, dy, dx, n, |y, d| d * if y > 0.0 { 1.0 } else { y + a }),
                Unary::Softplus => map2!(s, dy, dx, n, |x, d| d * sigmoid::<FMA>(x)),
                Unary::HardSigmoid => map2!(s, dy, dx, n, |y, d| if y > 0.0 && y < 1.0 { d * (1.0 / 6.0) } else { 0.0 }),
                Unary::HardSwish => map2!(s, dy, dx, n, |x, d| {
                    let inner = fma::<FMA>(x, 1.0 / 3.0, 0.5);
                    if x <= -3.0 { 0.0 } else { d * if x >= 3.0 { 1.0 } else { inner } }
                }),
                Unary::Silu => map2!(s, dy, dx, n, |x, d| {
                    let q = sigmoid::<FMA>(x);
                    d * q * fma::<FMA>(x, 1.0 - q, 1.0)
                }),
                Unary::GeluTanh => map2!(s, dy, dx, n, |x, d| {
                    let t = tanh::<FMA>(gelu_inner::<FMA>(x));
                    let inner = SQRT_2_OVER_PI * fma::<FMA>(3.0 * GELU_CUBIC * x, x, 1.0);
                    d * 0.5 * fma::<FMA>(x * inner, fma::<FMA>(-t, t, 1.0), 1.0 + t)
                }),
                Unary::GeluErf => map2!(s, dy, dx, n, |x, d| {
                    let cdf = 0.5 * (1.0 + erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2));
                    let pdf = 0.398_942_3 * exp::<FMA>(-0.5 * x * x);
                    d * fma::<FMA>(x, pdf, cdf)
                }),
            }
        }
    }
}

simd! {
    /// y = b(a, b)
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn binary<FMA>(isa, op: Binary, a: *const f32, b: *const f32, y: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match op {
                Binary::Add => map2!(a, b, y, n, |a, b| a + b),
                Binary::Sub => map2!(a, b, y, n, |a, b| a - b),
                Binary::Mul => map2!(a, b, y, n, |a, b| a * b),
                Binary::Div => map2!(a, b, y, n, |a, b| a / b),
                // A NaN on either side stays one.
                Binary::Min => map2!(a, b, y, n, |a, b| if b < a || b.is_nan() { b } else { a }),
                Binary::Max => map2!(a, b, y, n, |a, b| if b > a || b.is_nan() { b } else { a }),
                Binary::Pow => map2!(a, b, y, n, |a, b| pow(a, b)),
                Binary::SigmoidCrossEntropy => map2!(a, b, y, n, |x, z| {
                    fma::<FMA>(-x, z, x.max(0.0)) + log1p::<FMA>(exp::<FMA>(-x.abs()))
                }),
            }
        }
    }
}

simd! {
    /// The arithmetic that integers have; it wraps around.
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn binary_int<FMA>(isa, op: Binary, a: *const i32, b: *const i32, y: *mut i32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match op {
                Binary::Add => map2!(a, b, y, n, |a, b| a.wrapping_add(b)),
                Binary::Sub => map2!(a, b, y, n, |a, b| a.wrapping_sub(b)),
                Binary::Mul => map2!(a, b, y, n, |a, b| a.wrapping_mul(b)),
                Binary::Min => map2!(a, b, y, n, |a, b| a.min(b)),
                Binary::Max => map2!(a, b, y, n, |a, b| a.max(b)),
                // The type rules refuse these on integers.
                Binary::Div | Binary::Pow | Binary::SigmoidCrossEntropy => unreachable!("{} on integers", op.name()),
            }
        }
    }
}

simd! {
    /// Neg and Abs of integers; the type rules refuse the others.
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn unary_int<FMA>(isa, negate: bool, x: *const i32, y: *mut i32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            if negate {
                map1!(x, y, n, |x| x.wrapping_neg())
            } else {
                map1!(x, y, n, |x| x.wrapping_abs())
            }
        }
    }
}

simd! {
    /// 1 where it holds
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn compare<FMA>(isa, c: Compare, a: *const f32, b: *const f32, y: *mut i32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match c {
                Compare::Eq => map2!(a, b, y, n, |a, b| (a == b) as i32),
                Compare::Ne => map2!(a, b, y, n, |a, b| (a != b) as i32),
                Compare::Lt => map2!(a, b, y, n, |a, b| (a < b) as i32),
                Compare::Le => map2!(a, b, y, n, |a, b| (a <= b) as i32),
                Compare::Gt => map2!(a, b, y, n, |a, b| (a > b) as i32),
                Compare::Ge => map2!(a, b, y, n, |a, b| (a >= b) as i32),
            }
        }
    }
}

simd! {
    /// 1 where it holds
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn compare_int<FMA>(isa, c: Compare, a: *const i32, b: *const i32, y: *mut i32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match c {
                Compare::Eq => map2!(a, b, y, n, |a, b| (a == b) as i32),
                Compare::Ne => map2!(a, b, y, n, |a, b| (a != b) as i32),
                Compare::Lt => map2!(a, b, y, n, |a, b| (a < b) as i32),
                Compare::Le => map2!(a, b, y, n, |a, b| (a <= b) as i32),
                Compare::Gt => map2!(a, b, y, n, |a, b| (a > b) as i32),
                Compare::Ge => map2!(a, b, y, n, |a, b| (a >= b) as i32),
            }
        }
    }
}

simd! {
    /// a where the condition is not 0, else b; of any kind of lane
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn select<FMA>(isa, c: *const i32, a: *const i32, b: *const i32, y: *mut i32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        by_vectors!(n, |at, end| unsafe {
            let (c, a, b) = (load(c, at, end), load(a, at, end), load(b, at, end));
            let mut r = [0; W];
            for i in 0..W {
                r[i] = if c[i] != 0 { a[i] } else { b[i] };
            }
            store(y, at, end, r);
        });
    }
}

simd! {
    /// Lanes of one kind as lanes of another: truncated towards zero and saturated, as Rust's `as`.
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn convert<FMA>(isa, from_float: bool, to: DType, x: *const f32, y: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        unsafe {
            match (from_float, to) {
                (true, DType::F32 | DType::F16 | DType::BF16) => map1!(x, y, n, |x| x),
                (true, DType::I32) => map1!(x, y.cast::<i32>(), n, |x| x as i32),
                (_, DType::Bit) => unreachable!("the type rules refuse a cast to bits"),
                (true, DType::U8) => map1!(x, y.cast::<i32>(), n, |x| x as u8 as i32),
                (false, DType::F32 | DType::F16 | DType::BF16) => map1!(x.cast::<i32>(), y, n, |x| x as f32),
                (false, DType::I32) => map1!(x.cast::<i32>(), y.cast::<i32>(), n, |x| x),
                (false, DType::U8) => map1!(x.cast::<i32>(), y.cast::<i32>(), n, |x| x.clamp(0, 255)),
            }
        }
    }
}

simd! {
    /// (x − mean)·factor + bias
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn batch_apply<FMA>(isa, x: *const f32, mean: *const f32, factor: *const f32, bias: *const f32, y: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        by_vectors!(n, |at, end| unsafe {
            let (x, m, f, b) = (load(x, at, end), load(mean, at, end), load(factor, at, end), load(bias, at, end));
            let mut r = [0f32; W];
            for i in 0..W {
                r[i] = fma::<FMA>(x[i] - m[i], f[i], b[i]);
            }
            store(y, at, end, r);
        });
    }
}

/// The vectors of [`batch_grad_input`], each repeated over the tile.
#[derive(Clone, Copy)]
pub(super) struct GradVectors {
    pub(super) mean: *const f32,
    /// Of dy.
    pub(super) a: *const f32,
    /// Of x − mean.
    pub(super) b: *const f32,
    pub(super) c: *const f32,
}

simd! {
    /// a·dy + b·(x − mean) + c
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn batch_grad_input<FMA>(isa, x: *const f32, dy: *const f32, v: GradVectors, dx: *mut f32, n: usize) {
        // SAFETY: loads and stores end at n, and W lanes are read before they are written.
        by_vectors!(n, |at, end| unsafe {
            let (x, dy, m) = (load(x, at, end), load(dy, at, end), load(v.mean, at, end));
            let (a, b, c) = (load(v.a, at, end), load(v.b, at, end), load(v.c, at, end));
            let mut r = [0f32; W];
            for i in 0..W {
                r[i] = fma::<FMA>(a[i], dy[i], fma::<FMA>(b[i], x[i] - m[i], c[i]));
            }
            store(dx, at, end, r);
        });
    }
}

/// What the mask of a dropout depends on: the clock's numbers and the op's.
#[derive(Clone, Copy)]
pub(super) struct DropoutMask {
    pub(super) seed: [u32; 2],
    pub(super) step: u32,
    pub(super) first_sample: u32,
    pub(super) stream: u32,
    pub(super) rate: f32,
    /// Elements of a sample.
    pub(super) per_sample: usize,
}

simd! {
    /// Elements `e0..e0+n` of the whole tensor, each kept or dropped by its own random word.
    ///
    /// # Safety
    /// As for [`unary`].
    pub(super) unsafe fn dropout<FMA>(isa, m: &DropoutMask, e0: usize, x: *const f32, y: *mut f32, n: usize) {
        let keep = 1.0 / (1.0 - m.rate);
        let mut at = 0;
        while at < n {
            let (sample, element) = ((e0 + at) / m.per_sample, (e0 + at) % m.per_sample);
            // One block of four words serves the elements that share element ÷ 4.
            let run = (4 - element % 4).min(n - at).min(m.per_sample - element);
            let counter = [(element >> 2) as u32, m.first_sample.wrapping_add(sample as u32), m.step, m.stream];
            let words = philox::philox(counter, m.seed);
            for i in 0..run {
                // SAFETY: at + i is below n.
                unsafe {
                    let kept = philox::unit(words[element % 4 + i]) >= m.rate;
                    *y.add(at + i) = if kept { *x.add(at + i) * keep } else { 0.0 };
                }
            }
            at += run;
        }
    }
}
