//! Many replicas on paper: what one of them holds and how long its step is predicted to take, for links of a stated speed. Nothing
//! is run. `replicas_paper [FILE]` writes the page, docs/replicas-paper.md where no other is named.

use std::fmt::Write;
use std::time::Instant;

use memfit::exec::Executor;
use memfit::nn::optim::Optimizer;
use memfit::nn::zoo::Gpt;
use memfit::plan::bytes::Bytes;
use memfit::plan::{CostModel, Link};
use memfit::simulate::{SimulatedRanks, simulate};
use memfit::transform::{Exchange, Shard};
use memfit::{CpuExecutor, Model, Request, Subject, Training, ZooModel};
use memfit_bench::Failure;

const RANKS: [usize; 4] = [1, 8, 64, 512];
const LINKS: [(&str, Link); 2] =
    [("100 Gbit/s", Link { gbytes: 12.5, message_us: 10.0 }), ("10 Gbit/s", Link { gbytes: 1.25, message_us: 10.0 })];
const PIECES: [usize; 2] = [1 << 20, 64 << 20];

/// A device as fast as a GPU of a data centre: 100 TFLOP/s in products, 2 TB/s of memory.
fn device() -> CostModel {
    CostModel::new("on paper", 100_000.0, 2000.0, 5.0)
}

fn main() -> Result<(), Failure> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "docs/replicas-paper.md".into());
    let mut page = String::from(HEAD);
    let resnet = ZooModel::from_name("resnet50")?;
    let momentum = Training::new(Optimizer::momentum().update);
    let adam = Training::new(Optimizer::adamw().update);
    let gpt = Gpt { layers: 24, width: 2048, heads: 16, sequence: 1024, vocabulary: 50304 };
    table(&mut page, "resnet50, 32 images of 224×224 for each replica, momentum", &resnet, &momentum, 32)?;
    table(&mut page, "gpt of 24 layers, width 2048, 1 sequence of 1024 for each replica, AdamW", &gpt, &adam, 1)?;
    page += TAIL;
    std::fs::write(&path, page)?;
    println!("{path} is written");
    Ok(())
}

fn table(page: &mut String, title: &str, model: &dyn Model, training: &Training, batch: usize) -> Result<(), Failure> {
    writeln!(page, "\n## {title}\n")?;
    writeln!(
        page,
        "| replicas | link | piece | sharded | states | arena | room of an exchange | exchanges | step | of it exchanges |"
    )?;
    writeln!(page, "|---:|---|---:|---|---:|---:|---:|---:|---:|---:|")?;
    let cpu = CpuExecutor::new(1)?;
    for (name, link) in LINKS {
        for (piece, shard) in PIECES.into_iter().flat_map(|p| [(p, Shard::None), (p, Shard::Optimizer)]) {
            let exchange = Exchange { piece, shard, ..Exchange::ALONE };
            let request = Request { exchange, cost_model: Some(device()), ..Request::new(batch) };
            let subject = Subject { model, training, target: cpu.target(), request: &request };
            for ranks in RANKS {
                // One has no link, no pieces and nobody to share with.
                if ranks == 1 && (name, piece, shard) != (LINKS[0].0, PIECES[0], Shard::None) {
                    continue;
                }
                let start = Instant::now();
                let found = simulate(&subject, link, &[ranks])?;
                println!("{title}: {ranks} replicas in {:.1} s", start.elapsed().as_secs_f64());
                found.iter().try_for_each(|s| row(page, s, name, piece, shard))?;
            }
        }
    }
    Ok(())
}

fn row(page: &mut String, s: &SimulatedRanks, link: &str, piece: usize, shard: Shard) -> std::fmt::Result {
    let share = 100.0 * s.exchange_seconds / s.step_seconds;
    let (link, piece) = if s.ranks == 1 { ("", String::new()) } else { (link, Bytes(piece as u64).to_string()) };
    writeln!(
        page,
        "| {} | {link} | {piece} | {} | {} | {} | {} | {} | {:.0} ms | {share:.0} % |",
        s.ranks,
        shard.name(),
        Bytes(s.state_bytes),
        Bytes(s.arena_bytes),
        Bytes(s.exchange_room_bytes),
        s.exchanges,
        s.step_seconds * 1e3,
    )
}

const HEAD: &str = "# Many replicas, on paper

`cargo run --release -p memfit-bench --bin replicas_paper` writes this page. Nothing here was measured: every row is the plan of one
replica, the one that holds the most, and its predicted step, for a device of 100 TFLOP/s and 2 TB/s of memory that nobody has here,
and a link of the stated speed with 10 µs for each message. Each replica has one lane of the batch, which grows with their number.
Exchanges and kernels are counted one after the other, as they run.
";

const TAIL: &str = "
## How it grows

* **Bytes.** Gradients are exchanged as they are made, so a replica holds what one alone does, and the room of an exchange: two pieces, one
  that is sent and one that all others have sent. It does not grow with the number of replicas. With the optimizer's states shared
  out, states fall towards the parameters alone, and not below the slots of the largest tensor, which is dealt whole.
* **Time.** A replica sends and receives (R − 1)/R of all gradients twice, which is little more with 512 replicas than with 8. What grows
  is messages: R − 1 for each piece, twice. With pieces of 1 MiB, 512 replicas have shares of 2 KiB and wait for messages only; so
  pieces should grow with the number of replicas. They change no bit. Larger ones also hold small gradients back until a piece is
  full, which is what the arena of a resnet50 grows by.
* A sharded optimizer hands each parameter out once more: half of what its gradient took, with as many messages as a tree has levels.
* Exchanges stand still for nobody: kernels do not run beside them, and that is most of the step wherever the link is slow. A batch of one
  sequence is the worst case; micro-batches in a lane share one exchange.
";
