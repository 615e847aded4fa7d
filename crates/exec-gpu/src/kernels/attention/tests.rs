//! Attention over views that no op has today: layouts apart, other lengths of queries and keys, masks.

use memfit_ir::{DType, philox};
use memfit_plan::{Place, Segment};

use crate::device::Gpu;
use crate::launch::run;
use crate::lower::attention::{Heads, MaskView, Saved, Sizes, View, forward, key_grad, query_grad};

/// The number of a buffer as a place.
fn place(number: usize) -> Place {
    Place { segment: Segment::Transient, offset: number as u64, size: 0 }
}

fn view(number: usize, [offset, batch, head, position]: [usize; 4]) -> View {
    View { place: place(number), dtype: DType::F32, offset, batch, head, position }
}

/// Element (batch, head, position, d) of a view.
fn at(view: &View, [b, h, t, d]: [usize; 4]) -> usize {
    view.offset + b * view.batch + h * view.head + t * view.position + d
}

struct Case {
    heads: Heads,
    saved: Saved,
    gradients: [View; 3],
    /// By number.
    buffers: Vec<Vec<u32>>,
}

/// The numbers of buffers.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const MASK: usize = 3;
const Y: usize = 4;
const LSE: usize = 5;
const DY: usize = 6;
const DELTA: usize = 7;
const DQ: usize = 8;
const DK: usize = 9;
const DV: usize = 10;

impl Case {
    /// Keys as (batch, position, head, dim) behind a few other numbers, values as (head, batch, position, dim), all else as
    /// (batch, head, position, dim).
    fn new(sizes: Sizes, mask: Option<DType>) -> Case {
        let Sizes { batch, heads, queries, keys, dim, .. } = sizes;
        let rows = |number, length| view(number, [0, heads * length * dim, length * dim, dim]);
        let by_query = |number| view(number, [0, heads * queries, queries, 1]);
        let k = view(K, [7, keys * heads * dim, dim, heads * dim]);
        let v = view(V, [0, keys * dim, batch * keys * dim, dim]);
        // One for all heads.
        let mask = mask.map(|dtype| {
            let (batch, head, query, key) = (queries * keys, 0, keys, 1);
            MaskView { place: place(MASK), dtype, offset: 0, batch, head, query, key }
        });
        let floats = |name: &str, n: usize| philox::uniform(3, name, n).map(f32::to_bits).collect::<Vec<u32>>();
        let (over_queries, over_keys) = (batch * heads * queries * dim, batch * heads * keys * dim);
        let poison = |n: usize| vec![f32::NAN.to_bits(); n];
        let pairs = batch * queries * keys;
        let mask_words = match mask {
            Some(MaskView { dtype: DType::Bit, .. }) => floats("mask", pairs.div_ceil(32)),
            _ => floats("mask", pairs),
        };
        let lse = batch * heads * queries;
        let buffers = vec![
            floats("q", over_queries),
            floats("k", 7 + over_keys),
            floats("v", over_keys),
            mask_words,
            poison(over_queries),
            poison(lse),
            floats("dy", over_queries),
            poison(lse),
            poison(over_queries),
            poison(over_keys + 7),
            poison(over_keys),
        ];
        Case {
            heads: Heads { sizes, q: rows(Q, queries), k, v, mask },
            saved: Saved { y: rows(Y, queries), lse: by_query(LSE), dy: rows(DY, queries), delta: by_query(DELTA) },
            gradients: [rows(DQ, queries), View { place: place(DK), ..k }, View { place: place(DV), ..v }],
            buffers,
        }
    }

    /// All buffers after forward and backward pass.
    fn on_device(&self, gpu: &Gpu) -> Vec<Vec<f32>> {
        let _alone = gpu.alone();
        let [dq, dk, dv] = self.gradients;
        let made = |words: &Vec<u32>| gpu.client.create_from_slice(bytemuck::cast_slice(words));
        let handles: Vec<_> = self.buffers.iter().map(made).collect();
        let calls = [
            forward(&self.heads, self.saved.y, self.saved.lse),
            query_grad(&self.heads, &self.saved, dq),
            key_grad(&self.heads, &self.saved, dk, dv),
        ];
        for call in &calls {
            let slice = |p: &Place| {
                let number = p.offset as usize;
                (handles[number].clone(), 4 * self.buffers[number].len() as u64)
            };
            run(&gpu.client, call, 0, call.operands.iter().map(slice));
        }
        let read = |handle| gpu.client.read_one(handle).expect("a read");
        handles.into_iter().map(|handle| bytemuck::pod_collect_to_vec(&read(handle))).collect()
    }

    fn number(&self, view: &View, index: [usize; 4]) -> f64 {
        f64::from(f32::from_bits(self.buffers[view.place.offset as usize][at(view, index)]))
    }

    /// The score of a key that a query sees.
    fn score(&self, [b, h, query]: [usize; 3], key: usize) -> Option<f64> {
        let (sizes, pair) = (&self.heads.sizes, (b * self.heads.sizes.queries + query) * self.heads.sizes.keys + key);
        let words = &self.buffers[MASK];
        let (seen, bias) = match self.heads.mask.map(|m| m.dtype) {
            Some(DType::Bit) => (words[pair / 32] >> (pair % 32) & 1 == 1, 0.0),
            Some(_) => (true, f64::from(f32::from_bits(words[pair]))),
            None => (true, 0.0),
        };
        let both = |d: usize| self.number(&self.heads.q, [b, h, query, d]) * self.number(&self.heads.k, [b, h, key, d]);
        let product: f64 = (0..sizes.dim).map(both).sum();
        (seen && key < query + sizes.reach).then_some(product * f64::from(sizes.scale) + bias)
    }

    /// The same in f64, each by the definition.
    fn expected(&self) -> Vec<Vec<f64>> {
        let Sizes { batch, heads, queries, keys, dim, scale, .. } = self.heads.sizes;
        let mut all: Vec<Vec<f64>> = self.buffers.iter().map(|b| vec![0.0; b.len()]).collect();
        let [dq, dk, dv] = &self.gradients;
        let add = |all: &mut Vec<Vec<f64>>, view: &View, index: [usize; 4], x: f64| {
            all[view.place.offset as usize][at(view, index)] += x;
        };
        for row in 0..batch * heads * queries {
            let [b, h, query] = [row / queries / heads, row / queries % heads, row % queries];
            let scores: Vec<Option<f64>> = (0..keys).map(|key| self.score([b, h, query], key)).collect();
            let lse = scores.iter().flatten().map(|s| s.exp()).sum::<f64>().ln();
            add(&mut all, &self.saved.lse, [b, h, query, 0], lse);
            let dy = |d: usize| self.number(&self.saved.dy, [b, h, query, d]);
            let weights: Vec<f64> = scores.iter().map(|s| s.map_or(0.0, |s| (s - lse).exp())).collect();
            let value = |key: usize, d: usize| self.number(&self.heads.v, [b, h, key, d]);
            let slopes: Vec<f64> = (0..keys).map(|key| (0..dim).map(|d| dy(d) * value(key, d)).sum()).collect();
            let delta: f64 = weights.iter().zip(&slopes).map(|(w, s)| w * s).sum();
            for (key, (w, slope)) in weights.iter().zip(&slopes).enumerate() {
                let dscore = w * (slope - delta) * f64::from(scale);
                for d in 0..dim {
                    add(&mut all, &self.saved.y, [b, h, query, d], w * value(key, d));
                    add(&mut all, dv, [b, h, key, d], w * dy(d));
                    add(&mut all, dq, [b, h, query, d], dscore * self.number(&self.heads.k, [b, h, key, d]));
                    add(&mut all, dk, [b, h, key, d], dscore * self.number(&self.heads.q, [b, h, query, d]));
                }
            }
        }
        all
    }
}

#[test]
fn views_apart_of_any_lengths_and_masks_agree_with_the_definition() {
    let gpu = match crate::device::open(0) {
        Ok(gpu) => gpu,
        Err(e) if std::env::var_os("MEMFIT_REQUIRE_GPU").is_some() => panic!("{e}"),
        Err(e) => {
            eprintln!("skipped, {e}");
            return;
        }
    };
    let sizes = |[batch, heads, queries, keys, dim, reach]: [usize; 6]| Sizes {
        batch,
        heads,
        queries,
        keys,
        dim,
        reach,
        scale: 0.7,
    };
    let cases = [
        (sizes([2, 2, 70, 131, 20, 131]), None),
        (sizes([1, 2, 66, 90, 5, 25]), None),
        (sizes([1, 2, 130, 40, 130, 40]), None),
        (sizes([2, 1, 3, 100, 33, 100]), Some(DType::Bit)),
        (sizes([1, 3, 65, 65, 16, 1]), Some(DType::F32)),
    ];
    for (sizes, mask) in cases {
        let case = Case::new(sizes, mask);
        let (given, expected) = (case.on_device(&gpu), case.expected());
        for (number, name) in [(Y, "y"), (LSE, "lse"), (DQ, "dq"), (DK, "dk"), (DV, "dv")] {
            for (i, (&g, &e)) in given[number].iter().zip(&expected[number]).enumerate() {
                // What lies before the keys belongs to nobody.
                let untouched = number == DK && i < 7;
                let close = (f64::from(g) - e).abs() <= 1e-5 * (1.0 + e.abs());
                assert!(close || untouched && g.is_nan(), "{name}[{i}] is {g}, expected {e} ({sizes:?}, {mask:?})");
            }
        }
    }
}
