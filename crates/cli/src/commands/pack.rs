//! `memfit pack`: the packer alone, on a table of buffers; in `torch`, on those of a snapshot.

mod torch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memfit::plan::bytes::Bytes;
use memfit::plan::pack::{Item, Limits, Outcome, Packing, default_nodes, pack_within, solve};
use serde_json::json;

use crate::args::PackArgs;
use crate::buffers_csv::Table;
use crate::commands::check_writable;
use crate::failure::{NoRoom, usage};
use crate::output::outln;
use memfit_run::config::parse_size;
use memfit_run::file;
use memfit_run::text::count;

/// How far to search.
#[derive(Clone, Copy)]
enum Search {
    /// As far as takes no time worth naming.
    Short,
    Nodes(u64),
    Seconds(Duration),
}

impl Search {
    fn new(timeout: Option<f64>, nodes: Option<u64>) -> Result<Search> {
        let seconds = |given: f64| {
            let out_of_range = |_| usage(format!("--timeout must be a number of seconds, 0 or more, but is {given}"));
            Duration::try_from_secs_f64(given).map(Search::Seconds).map_err(out_of_range)
        };
        match (timeout, nodes) {
            (Some(timeout), _) => seconds(timeout),
            (None, Some(nodes)) => Ok(Search::Nodes(nodes)),
            (None, None) => Ok(Search::Short),
        }
    }

    /// A deadline beyond all time is none.
    fn limits(self, items: usize, start: Instant) -> Limits {
        match self {
            Search::Short => Limits { nodes: Some(default_nodes(items as u64)), deadline: None },
            Search::Nodes(nodes) => Limits { nodes: Some(nodes), deadline: None },
            Search::Seconds(timeout) => Limits { nodes: None, deadline: start.checked_add(timeout) },
        }
    }

    /// "600 s", "8000 nodes".
    fn words(self, items: usize) -> String {
        match self {
            Search::Short => count(default_nodes(items as u64), "node"),
            Search::Nodes(nodes) => count(nodes, "node"),
            Search::Seconds(timeout) => format!("{} s", timeout.as_secs_f64()),
        }
    }
}

/// A packing whose numbers are in range.
struct Packer {
    file: PathBuf,
    /// Bytes.
    capacity: Option<u64>,
    search: Search,
    out: Option<PathBuf>,
    json: bool,
}

impl Packer {
    fn new(file: &Path, args: &PackArgs, json: bool) -> Result<Packer> {
        let search = Search::new(args.timeout, args.nodes)?;
        if let Some(path) = &args.out {
            check_writable("--out", path)?;
        }
        let capacity = args.capacity.as_deref().map(parse_size).transpose().map_err(usage).context("--capacity")?;
        Ok(Packer { file: file.into(), capacity, search, out: args.out.clone(), json })
    }
}

pub fn pack(args: PackArgs, json: bool) -> Result<()> {
    match (&args.file, &args.torch) {
        (_, Some(snapshot)) => torch::pack(&Packer::new(snapshot, &args, json)?, args.device),
        (Some(file), None) => pack_table(&Packer::new(file, &args, json)?),
        (None, None) => Err(usage("give a table of buffers, FILE.csv, or --torch SNAPSHOT.pickle")),
    }
}

fn pack_table(run: &Packer) -> Result<()> {
    let table = Table::read(&run.file)?;
    let live = fullest(&table.items);
    let start = Instant::now();
    let limits = run.search.limits(table.items.len(), start);
    let mut greedy_bytes = None;
    let packing = match run.capacity {
        None => pack_within(&table.items, 1, limits, &mut |greedy| {
            greedy_bytes = Some(greedy.capacity);
            print_greedy(run, greedy, live, start);
        }),
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
    print(run, &table, live, &packing, greedy_bytes, seconds);
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

/// Why there is no packing, as a person and as a machine reads it.
fn no_room(run: &Packer, items: &[Item], capacity: u64, live: Live, proved: bool) -> anyhow::Error {
    let Live { bytes, step } = live;
    // What a short search finds is enough, whether or not less would be.
    let enough = pack_within(items, 1, Search::Short.limits(items.len(), Instant::now()), &mut |_| {}).capacity;
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
            "no packing of {file} into {asked} was found in {}; there may be one, as no more than {} live at once; \
             search longer with --timeout, or ask for {}, which are enough",
            run.search.words(items.len()),
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

/// What is known before a search that somebody asked for, and may not want to wait for.
fn print_greedy(run: &Packer, greedy: &Packing, live: Live, start: Instant) {
    if run.json || matches!(run.search, Search::Short) || greedy.capacity == live.bytes {
        return;
    }
    outln!(
        "{}: {} so far, in {:.1} ms by {}; searching on for {}",
        run.file.display(),
        exact(greedy.capacity),
        start.elapsed().as_secs_f64() * 1e3,
        greedy.method,
        run.search.words(0)
    );
}

fn print(run: &Packer, table: &Table, live: Live, packing: &Packing, greedy_bytes: Option<u64>, seconds: f64) {
    let items = table.items.len();
    if run.json {
        let event = json!({
            "event": "pack", "file": run.file.display().to_string(), "items": items, "max_live_bytes": live.bytes,
            "capacity_bytes": packing.capacity, "asked_bytes": run.capacity,
            "greedy_bytes": greedy_bytes, "optimal": packing.optimal,
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
    let grade = grade(packing, live.bytes);
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

/// How good a packing is, of what lives at once so many bytes.
fn grade(packing: &Packing, live: u64) -> String {
    if packing.capacity <= live {
        "optimal: no more than live at once".into()
    } else if packing.optimal {
        "optimal: less was searched and is proved not to be enough".into()
    } else {
        let over = (packing.capacity - live) as f64 / live as f64;
        format!("{:.2} % above what lives at once; not proved to be optimal", over * 100.0)
    }
}

/// Bytes to the last one, and as people read them.
fn exact(bytes: u64) -> String {
    match bytes {
        0..1024 => count(bytes, "byte"),
        _ => format!("{bytes} bytes ({})", Bytes(bytes)),
    }
}
