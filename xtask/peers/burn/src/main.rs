//! The peer of `cargo xtask bench-gpu`: the same training steps in burn. `burn-peer (mlp | convnet) STEPS` prints lines of
//! `result KEY VALUE`, as the scripts of the other peers do.
//!
//! A step is what a user writes: a batch is sent to the device, forward, loss, backward, Adam; it ends when all of it has run
//! and its loss is read. Memory is looked at in steps of their own: by a thread that asks the device again and again, and, in
//! every other one, when all gradients are there and the optimizer has not begun. What is seen is at most what there was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};

const BATCH: usize = 32;
const SIDE: usize = 28;
const CLASSES: usize = 10;
const RATE: f64 = 0.001;
/// Shaders are compiled and tuned meanwhile.
const WARM_UP: usize = 20;
/// Steps whose memory is looked at.
const WATCHED: usize = 20;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, steps] = &args[..] else { return Err("usage: burn-peer (mlp | convnet) STEPS".into()) };
    let steps = steps.parse()?;
    match model.as_str() {
        "mlp" => train::<Mlp>(steps),
        "convnet" => train::<Convnet>(steps),
        other => Err(format!("there is no model \"{other}\"").into()),
    }
}

trait Network: Module {
    fn new(device: &Device) -> Self;
    /// From flat images.
    fn logits(&self, images: Tensor<2>) -> Tensor<2>;
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Network for Mlp {
    fn new(device: &Device) -> Mlp {
        let sizes = [SIDE * SIDE, 256, 256, CLASSES];
        Mlp { layers: sizes.windows(2).map(|s| LinearConfig::new(s[0], s[1]).init(device)).collect() }
    }

    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        let last = self.layers.len() - 1;
        let hidden = self.layers[..last].iter().fold(images, |x, layer| relu(layer.forward(x)));
        self.layers[last].forward(hidden)
    }
}

#[derive(Module, Debug)]
struct Convnet {
    convs: Vec<Conv2d>,
    pool: MaxPool2d,
    last: Linear,
}

impl Network for Convnet {
    fn new(device: &Device) -> Convnet {
        let conv = |channels| Conv2dConfig::new(channels, [3, 3]).with_padding(PaddingConfig2d::Same).init(device);
        Convnet {
            convs: [[1, 16], [16, 32]].into_iter().map(conv).collect(),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            last: LinearConfig::new(SIDE / 4 * (SIDE / 4) * 32, CLASSES).init(device),
        }
    }

    fn logits(&self, images: Tensor<2>) -> Tensor<2> {
        let images: Tensor<4> = images.reshape([BATCH, 1, SIDE, SIDE]);
        let features = self.convs.iter().fold(images, |x, conv| self.pool.forward(relu(conv.forward(x))));
        self.last.forward(features.flatten(1, 3))
    }
}

fn train<N: Network>(steps: usize) -> Result<(), Failure> {
    let device = Device::wgpu(Default::default()).autodiff();
    let mut training = Training::<N>::new(device.clone());
    println!("result parameters {}", training.network().num_params());
    let mut timed = || {
        let start = Instant::now();
        let loss = training.step()?;
        Ok::<_, Failure>((start.elapsed().as_secs_f64(), loss))
    };
    let warm_up: Vec<(f64, f32)> = (0..WARM_UP).map(|_| timed()).collect::<Result<_, _>>()?;
    let before = processor_seconds();
    let times: Vec<f64> = (0..steps).map(|_| Ok(timed()?.0)).collect::<Result<_, Failure>>()?;
    let processor = (processor_seconds() - before) / steps as f64;
    println!("result first {}", warm_up[0].0);
    println!("result warm_up {}", warm_up.iter().map(|(seconds, _)| seconds).sum::<f64>());
    println!("result seconds {}", median(times));
    println!("result processor {processor}");
    println!("result first_loss {}", warm_up[0].1);
    println!("result loss {}", warm_up[WARM_UP - 1].1);
    let mut of_gradients = 0;
    let seen = peak(&device, || {
        (0..WATCHED).try_for_each(|i| {
            let mut look = || {
                if i % 2 == 1 {
                    device.sync().map_err(|e| format!("a step failed: {e:?}"))?;
                    of_gradients = of_gradients.max(in_use(&device));
                }
                Ok(())
            };
            training.watched_step(&mut look).map(|_| ())
        })
    })?;
    let usage = device.memory_pool_usage().ok_or("the device does not tell what it holds")?;
    println!("result in_use {}", usage.bytes_in_use);
    println!("result peak {}", seen.max(of_gradients));
    println!("result reserved {}", usage.bytes_reserved);
    println!("result versions burn 0.22.1");
    Ok(())
}

struct Training<N> {
    device: Device,
    /// None while a step has it.
    network: Option<N>,
    optimizer: ModuleOptimizer,
    images: Vec<f32>,
    labels: Vec<i32>,
}

impl<N: Network> Training<N> {
    fn new(device: Device) -> Training<N> {
        let images = (0..BATCH * SIDE * SIDE).map(|i| noise(i as u32)).collect();
        let labels = (0..BATCH as i32).map(|i| i % CLASSES as i32).collect();
        let optimizer = AdamConfig::new().with_epsilon(1e-8).init();
        Training { network: Some(N::new(&device)), device, optimizer, images, labels }
    }

    fn network(&self) -> &N {
        self.network.as_ref().expect("no step is running")
    }

    fn step(&mut self) -> Result<f32, Failure> {
        self.watched_step(&mut || Ok(()))
    }

    /// Looks when the gradients are computed.
    fn watched_step(&mut self, look: &mut dyn FnMut() -> Result<(), Failure>) -> Result<f32, Failure> {
        let network = self.network.take().expect("no step is running");
        let images = TensorData::new(self.images.clone(), [BATCH, SIDE * SIDE]);
        let labels = TensorData::new(self.labels.clone(), [BATCH]);
        let images: Tensor<2> = Tensor::from_data(images, &self.device);
        let labels: Tensor<1, Int> = Tensor::from_data(labels, &self.device);
        let logits = network.logits(images);
        let loss = CrossEntropyLossConfig::new().init(&self.device).forward(logits, labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        look()?;
        self.network = Some(self.optimizer.step(RATE, network, gradients));
        let loss = loss.into_scalar::<f32>();
        self.device.sync().map_err(|e| format!("a step failed: {e:?}"))?;
        Ok(loss)
    }
}

fn in_use(device: &Device) -> u64 {
    device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use)
}

/// The most bytes in use that are seen while something runs.
fn peak(device: &Device, run: impl FnOnce() -> Result<(), Failure>) -> Result<u64, Failure> {
    let (ended, most) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(in_use(device), Ordering::Relaxed);
            }
        });
        let done = run();
        ended.store(true, Ordering::Relaxed);
        done
    })?;
    Ok(most.into_inner())
}

/// Of all threads of this process, in whole hundredths as Linux tells them; not a number elsewhere.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may have spaces.
    let numbers = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = numbers.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
    if ticks.len() == 2 { (ticks[0] + ticks[1]) / 100.0 } else { f64::NAN }
}

/// A number from -1 to 1 that looks like chance.
fn noise(i: u32) -> f32 {
    let mixed = (i.wrapping_mul(0x9e37_79b9) ^ 0x85eb_ca6b).wrapping_mul(0xc2b2_ae35);
    (mixed >> 8) as f32 / (1 << 23) as f32 - 1.0
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
