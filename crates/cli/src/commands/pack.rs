//! `memfit pack`: the packer alone, on a table of buffers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memfit::plan::bytes::Bytes;
use memfit::plan::pack::{Item, Limits, Outcome, Packing, pack_within, solve};
use serde_json::json;

use crate::args::PackArgs;
use crate::buffers_csv::Table;
use crate::commands::check_writable;
use crate::failure::{NoRoom, usage};
use crate::output::outln;
use memfit_run::config::parse_size;
use memfit_run::file;
use memfit_run::text::count;

/// A packing whose numbers are in range.
struct Packer {
    file: PathBuf,
    /// Bytes.
    capacity: Option<u64>,
    timeout: Duration,
    out: Option<PathBuf>,
    json: bool,
}

impl Packer {
    fn new(args: PackArgs, json: bool) -> Result<Packer> {
        let timeout = Duration::try_from_secs_f64(args.timeout)
            .map_err(|_| usage(format!("--timeout must be a number of seconds, 0 or more, but is {}", args.timeout)))?;
        if let Some(path) = &args.out {
            check_writable("--out", path)?;
        }
        let capacity = args.capacity.as_deref().map(parse_size).transpose().map_err(usage).context("--capacity")?;
        Ok(Packer { file: args.file, capacity, timeout, out: args.out, json })
    }
}

pub fn pack(args: PackArgs, json: bool) -> Result<()> {
    let run = &Packer::new(args, json)?;
    let table = Table::read(&run.file)?;
    let live = fullest(&table.items);
    let start = Instant::now();
    // A deadline beyond all time is none.
    let limits = Limits { nodes: None, deadline: start.checked_add(run.timeout) };
    let packing = match run.capacity {
        None => pack_within(&table.items, 1, limits),
        Some(capacity) => match solve(&table.items, 1, capacity, limits) {
            Outcome::Packed(packing) => packing,
            Outcome::Infeasible => return Err(no_room(run, &table.items, capacity, live, true)),
            Outcome::GaveUp => return Err(no_room(run, &table.items, capacity, live, false)),
        },
    };
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &run.out {
        file::write(path, &table.with_offsets(&packing.offsets))?;
    }
    print(run, &table, live, &packing, seconds);
    Ok(())
}

/// The most that lives at once, and when it first does.
#[derive(Clone, Copy)]
struct Live {
    bytes: u64,
    step: usize,
}

fn fullest(items: &[Item]) -> Live {
    let mut births: Vec<(usize, u64)> = items.iter().map(|i| (i.lower, i.size)).collect();
    let mut deaths: Vec<(usize, u64)> = items.iter().map(|i| (i.upper, i.size)).collect();
    births.sort_unstable();
    deaths.sort_unstable();
    let mut dead = deaths.into_iter().peekable();
    let (mut bytes, mut most) = (0, Live { bytes: 0, step: 0 });
    for (step, size) in births {
        while let Some((_, size)) = dead.next_if(|d| d.0 <= step) {
            bytes -= size;
        }
        bytes += size;
        if bytes > most.bytes {
            most = Live { bytes, step };
        }
    }
    most
}

/// Nodes of a search that takes no time worth naming.
const SHORT: u64 = 1 << 16;

/// Why there is no packing, as a person and as a machine reads it.
fn no_room(run: &Packer, items: &[Item], capacity: u64, live: Live, proved: bool) -> anyhow::Error {
    let Live { bytes, step } = live;
    // A short search: what it finds is enough, whether or not less would be.
    let enough = pack_within(items, 1, Limits { nodes: Some(SHORT), deadline: None }).capacity;
    let (file, asked) = (run.file.display(), exact(capacity));
    let message = if bytes > capacity {
        format!(
            "{file} does not fit into {asked}, which is proved: at step {step}, {} live at once, {} too many; ask for \
             at least that capacity",
            exact(bytes),
            exact(bytes - capacity)
        )
    } else if proved {
        format!(
            "{file} does not fit into {asked}, which is proved by search: no more than {} live at once, but they cannot \
             be placed; {} are enough",
            exact(bytes),
            exact(enough)
        )
    } else {
        format!(
            "no packing of {file} into {asked} was found in {} s; there may be one, as no more than {} live at once; \
             search longer with --timeout, or ask for {}, which are enough",
            run.timeout.as_secs_f64(),
            exact(bytes),
            exact(enough)
        )
    };
    let certificate = json!({
        "capacity_bytes": capacity, "max_live_bytes": bytes, "step": step, "proved": proved,
        "sufficient_bytes": enough,
    });
    NoRoom { message, certificate }.into()
}

fn print(run: &Packer, table: &Table, live: Live, packing: &Packing, seconds: f64) {
    let items = table.items.len();
    if run.json {
        let event = json!({
            "event": "pack", "file": run.file.display().to_string(), "items": items, "max_live_bytes": live.bytes,
            "capacity_bytes": packing.capacity, "asked_bytes": run.capacity, "optimal": packing.optimal,
            "method": packing.method.to_string(), "ms": seconds * 1e3,
            "out": run.out.as_ref().map(|p| p.display().to_string()),
        });
        outln!("{event}");
        return;
    }
    outln!("{}, {}", run.file.display(), count(items, "buffer"));
    outln!(
        "  max live   {:>10}  {}, first at step {}",
        Bytes(live.bytes).to_string(),
        count(live.bytes, "byte"),
        live.step
    );
    let grade = if packing.capacity == live.bytes {
        "optimal: no more than live at once".into()
    } else if packing.optimal {
        "optimal: less was searched and is proved not to be enough".into()
    } else {
        let over = (packing.capacity - live.bytes) as f64 / live.bytes as f64;
        format!("{:.2} % above what lives at once; not proved to be optimal", over * 100.0)
    };
    outln!("  capacity   {:>10}  {}; {grade}", Bytes(packing.capacity).to_string(), count(packing.capacity, "byte"));
    if let Some(asked) = run.capacity {
        outln!(
            "  asked for  {:>10}  {}, {} of them free",
            Bytes(asked).to_string(),
            count(asked, "byte"),
            asked - packing.capacity
        );
    }
    outln!("  found in   {:>7.1} ms  by {}", seconds * 1e3, packing.method);
    if let Some(path) = &run.out {
        outln!("  written to {}", path.display());
    }
}

/// Bytes to the last one, and as people read them.
fn exact(bytes: u64) -> String {
    match bytes {
        0..1024 => count(bytes, "byte"),
        _ => format!("{bytes} bytes ({})", Bytes(bytes)),
    }
}
