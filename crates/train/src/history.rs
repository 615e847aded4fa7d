//! What a run keeps of its course in its folder: `history.csv`, a table of losses, scores, speeds and bytes, and `events.jsonl`, all
//! that happened, a JSON object a line. Both go on when a run is resumed: what was written behind the checkpoint from which it goes
//! on is taken back first, for it happens again.
//!
//! Every step is kept at first and fewer and fewer later, by their number alone: about 500 in each doubling.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memfit_exec::atomic_file::{AtomicFile, Faults};
use memfit_exec::process;
use memfit_files::{open_own_to_write, read_own_text};
use serde_json::{Value, json};

use crate::checkpoint::Progress;
use crate::fit::Event;
use crate::metrics::{Metric, Scores};
use crate::run_dir::{EVENTS, HISTORY};

/// Columns of the table behind `kind`, `step` and `epoch`; the last ones are those of [`Metric::ALL`]. Tables of runs that
/// predict no numbers end before the root mean squared error.
pub const COLUMNS: [&str; 15] = [
    "loss",
    "learning_rate",
    "samples_per_s",
    "step_ms",
    "waited_ms",
    "live_peak_bytes",
    "process_bytes",
    "test_loss",
    "test_accuracy",
    "test_top5",
    "test_mean_iou",
    "test_perplexity",
    "test_mae",
    "test_rmse",
    "test_r2",
];
/// How many of them a table has of a run that predicts no numbers, ...
const WITHOUT_VALUES: usize = 13;
/// ... and what the last of these was called before there were others.
const LAST_WITHOUT_VALUES: &str = "test_mean_absolute_error";
/// Where the test set's begin.
const TEST: usize = COLUMNS.len() - Metric::ALL.len();
/// No file of ours has more bytes.
const LARGEST: u64 = 1 << 30;
/// Whoever looks while a run goes on sees what is older than this.
const SEEN: Duration = Duration::from_secs(1);
/// Steps in each doubling that are kept.
const KEPT: u32 = 512;

/// What a line of the table is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A step.
    Step,
    /// An evaluation.
    Eval,
    /// An epoch: its mean loss, and the scores at its end.
    Epoch,
}

impl RowKind {
    const ALL: [RowKind; 3] = [RowKind::Step, RowKind::Eval, RowKind::Epoch];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::Step => "step",
            RowKind::Eval => "eval",
            RowKind::Epoch => "epoch",
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is of.
    pub kind: RowKind,
    /// How many steps there were.
    pub step: u32,
    /// The epoch that it is in, from 1.
    pub epoch: u64,
    /// In the order of [`COLUMNS`].
    pub values: [Option<f64>; COLUMNS.len()],
}

impl Row {
    fn new(kind: RowKind, step: u32, epoch: u64) -> Row {
        Row { kind, step, epoch, values: [None; COLUMNS.len()] }
    }

    fn with_scores(mut self, scores: &Scores) -> Row {
        for (value, metric) in self.values[TEST..].iter_mut().zip(Metric::ALL) {
            *value = scores.get(metric);
        }
        self
    }

    /// The value of a column; none where it has none.
    pub fn get(&self, column: &str) -> Option<f64> {
        self.values[COLUMNS.iter().position(|c| *c == column)?]
    }

    /// Of a table of so many columns.
    fn to_line(&self, columns: usize) -> String {
        let mut line = format!("{},{},{}", self.kind.name(), self.step, self.epoch);
        for value in &self.values[..columns] {
            line += &value.map_or(",".into(), |v| format!(",{v}"));
        }
        line + "\n"
    }

    fn from_line(line: &str, columns: usize) -> Option<Row> {
        let mut cells = line.split(',');
        let name = cells.next()?;
        let kind = RowKind::ALL.into_iter().find(|k| k.name() == name)?;
        let mut row = Row::new(kind, cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        for value in &mut row.values[..columns] {
            let cell = cells.next()?;
            *value = if cell.is_empty() { None } else { Some(cell.parse().ok()?) };
        }
        cells.next().is_none().then_some(row)
    }

    /// Whether it happened before a checkpoint, and does not happen again.
    fn is_before(&self, step: u32, progress: &Progress) -> bool {
        let evaluated = progress.evaluation.as_ref().map(|e| e.step);
        match self.kind {
            RowKind::Step => self.step <= step,
            RowKind::Eval => self.step < step || (self.step == step && evaluated == Some(step)),
            RowKind::Epoch => self.epoch <= progress.epoch,
        }
    }
}

/// The table of a run's folder, in the order of time; empty where a run has none. Lines at its end that were not brought to theirs,
/// as when the power fails, count for nothing.
///
/// # Errors
/// Of the system, and where the file is no such table.
pub fn read(folder: &Path) -> io::Result<Vec<Row>> {
    let path = folder.join(HISTORY);
    let text = match read_own_text(&path, LARGEST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let bad = |number: usize| foreign_line(number, "history");
    let known = [WITHOUT_VALUES, COLUMNS.len()];
    let Some(columns) = known.into_iter().find(|columns| text.starts_with(&header(*columns))) else {
        let is_cut_off = known.into_iter().any(|columns| header(columns).starts_with(&text));
        return if is_cut_off { Ok(Vec::new()) } else { Err(bad(1)) };
    };
    let whole_row = |line: &str| Row::from_line(line.strip_suffix('\n')?, columns);
    let rows: Vec<Option<Row>> = text.split_inclusive('\n').skip(1).map(whole_row).collect();
    let end = rows.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    rows.into_iter().take(end).enumerate().map(|(i, row)| row.ok_or_else(|| bad(i + 2))).collect()
}

fn foreign_line(number: usize, of: &str) -> io::Error {
    let problem = format!("line {number} is not one of a run's {of}; move the file away, and a new one is begun");
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Of a table of so many columns.
fn header(columns: usize) -> String {
    let mut names = COLUMNS[..columns].to_vec();
    if columns == WITHOUT_VALUES {
        names[columns - 1] = LAST_WITHOUT_VALUES;
    }
    format!("kind,step,epoch,{}\n", names.join(","))
}

/// Whether a step is kept that is the so-manieth.
pub fn is_kept(step: u32) -> bool {
    let every = (step / KEPT).max(1);
    let power = 1 << (u32::BITS - 1 - every.leading_zeros());
    step.is_multiple_of(power)
}

/// Both files of a run, open to be written.
pub(crate) struct History {
    table: Journal,
    /// Of the table.
    columns: usize,
    events: Journal,
    batch: usize,
    peak_bytes: u64,
    flushed: Instant,
}

/// A file that lines are added to.
struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
}

/// What could not be written where.
pub(crate) type Failed = (PathBuf, io::Error);

impl History {
    /// Goes on behind what is there of the first so many steps, and takes back what is beyond. A run that predicts numbers has
    /// columns for their errors.
    pub fn open(
        folder: &Path,
        has_values: bool,
        step: u32,
        progress: &Progress,
        batch: usize,
        peak_bytes: u64,
    ) -> Result<History, Failed> {
        let rows = read(folder).map_err(|e| (folder.join(HISTORY), e))?;
        let columns = if has_values { COLUMNS.len() } else { WITHOUT_VALUES };
        let kept: String = rows.iter().filter(|r| r.is_before(step, progress)).map(|r| r.to_line(columns)).collect();
        let table = Journal::open(folder.join(HISTORY), &(header(columns) + &kept))?;
        let path = folder.join(EVENTS);
        let kept = events_before(&path, step, progress).map_err(|e| (path.clone(), e))?;
        let events = Journal::open(path, &kept)?;
        Ok(History { table, columns, events, batch, peak_bytes, flushed: Instant::now() })
    }

    /// Writes down what happened; `step` is how many steps there were.
    pub fn add(&mut self, event: &Event, step: u32, epoch: u64) -> Result<(), Failed> {
        let (row, data) = match event {
            Event::Step { step: number, epoch, loss, lr, seconds, waited, skipped, .. } => {
                if !is_kept(number + 1) {
                    return Ok(());
                }
                let mut row = Row::new(RowKind::Step, number + 1, epoch + 1);
                let resident = process::resident().map(|bytes| bytes as f64);
                row.values[..TEST].copy_from_slice(&[
                    Some(shortest(*loss)),
                    Some(shortest(*lr)),
                    Some(rounded(self.batch as f64 / (seconds + waited).max(1e-9))),
                    Some(rounded(seconds * 1e3)),
                    Some(rounded(waited * 1e3)),
                    Some(self.peak_bytes as f64),
                    resident,
                ]);
                (
                    Some(row),
                    json!({ "event": "step", "loss": loss, "lr": lr, "ms": seconds * 1e3,
                                    "waited_ms": waited * 1e3, "skipped": skipped, "process_bytes": resident }),
                )
            }
            Event::Evaluated(evaluation) => {
                let row = Row::new(RowKind::Eval, evaluation.step, epoch + 1).with_scores(&evaluation.scores);
                (Some(row), json!({ "event": "eval", "scores": evaluation.scores }))
            }
            Event::Epoch { epoch, loss, scores } => {
                let mut row = Row::new(RowKind::Epoch, step, epoch + 1);
                row.values[0] = Some(*loss);
                let row = scores.as_ref().map_or(row.clone(), |scores| row.with_scores(scores));
                (Some(row), json!({ "event": "epoch", "epoch": epoch + 1, "loss": loss, "scores": scores }))
            }
            Event::Checkpoint { which, .. } => (None, json!({ "event": "checkpoint", "which": which.name() })),
            Event::Stopped(_) | Event::Waiting | Event::Evaluating { .. } => return Ok(()),
        };
        if let Some(row) = &row {
            self.table.add(&row.to_line(self.columns))?;
        }
        self.events.add(&line(data, step, epoch))?;
        if self.flushed.elapsed() > SEEN { self.flush() } else { Ok(()) }
    }

    /// Hands all to the system: what a checkpoint has seen is never behind it.
    pub fn flush(&mut self) -> Result<(), Failed> {
        self.flushed = Instant::now();
        self.table.flush()?;
        self.events.flush()
    }
}

impl Journal {
    /// With this text and no other, of which what is there already may be a part.
    fn open(path: PathBuf, text: &str) -> Result<Journal, Failed> {
        let open = || -> io::Result<File> {
            let is_there = read_own_text(&path, LARGEST).is_ok_and(|there| there == text);
            if !is_there {
                let mut file = AtomicFile::create(&path, &Faults::default())?;
                file.write_all(text.as_bytes())?;
                file.commit(&path)?;
            }
            let mut file = open_own_to_write(&path)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Journal { path, file: BufWriter::new(file) }),
            Err(e) => Err((path, e)),
        }
    }

    fn add(&mut self, line: &str) -> Result<(), Failed> {
        self.file.write_all(line.as_bytes()).map_err(|e| (self.path.clone(), e))
    }

    fn flush(&mut self) -> Result<(), Failed> {
        self.file.flush().map_err(|e| (self.path.clone(), e))
    }
}

/// An event with when it happened: after so many steps, and by the clock.
fn line(mut data: Value, step: u32, epoch: u64) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
    data["step"] = step.into();
    if data.get("epoch").is_none() {
        data["epoch"] = (epoch + 1).into();
    }
    data["time"] = time.into();
    format!("{data}\n")
}

/// The lines of what happened before a checkpoint; none where there is no file. A last line that was not brought to its end counts
/// for nothing; any other that is no event is somebody else's.
fn events_before(path: &Path, step: u32, progress: &Progress) -> io::Result<String> {
    let text = match read_own_text(path, LARGEST) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        text => text?,
    };
    let mut kept = String::new();
    for (i, line) in text.split_inclusive('\n').enumerate() {
        match event_row(line) {
            Some(row) if row.is_before(step, progress) => {
                kept += line.trim_end_matches('\n');
                kept.push('\n');
            }
            None if line.ends_with('\n') => return Err(foreign_line(i + 1, "events")),
            Some(_) | None => {}
        }
    }
    Ok(kept)
}

/// What a line of events is of, and when it happened.
fn event_row(line: &str) -> Option<Row> {
    let event: Value = serde_json::from_str(line).ok()?;
    let kind = match event["event"].as_str()? {
        "eval" => RowKind::Eval,
        "epoch" => RowKind::Epoch,
        _ => RowKind::Step,
    };
    let step = u32::try_from(event["step"].as_u64()?).unwrap_or(u32::MAX);
    Some(Row::new(kind, step, event["epoch"].as_u64()?))
}

/// The shortest number that is this one in 32 bits.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(x.into())
}

/// A measured number, of which more digits mean nothing.
fn rounded(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_kept_at_first_and_a_few_hundred_of_each_doubling_later() {
        assert!((1..=1024).all(is_kept));
        let kept = |range: std::ops::Range<u32>| range.filter(|s| is_kept(*s)).count();
        for power in 10..24 {
            assert_eq!(kept(1 << power..2 << power), 512);
        }
        assert!(is_kept(0) && (0..=u32::MAX).step_by(1 << 22).all(is_kept));
    }

    #[test]
    fn what_a_lost_machine_left_at_the_end_counts_for_nothing() {
        let folder = std::env::temp_dir().join(format!("memfit-history-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let row = Row::new(RowKind::Step, 1, 1);
        let check = |rest: &str, expected: Option<usize>| {
            for columns in [WITHOUT_VALUES, COLUMNS.len()] {
                let rest = rest.replace("ROW", row.to_line(columns).trim_end());
                std::fs::write(folder.join(HISTORY), header(columns) + &row.to_line(columns) + &rest).unwrap();
                assert_eq!(read(&folder).ok().map(|rows| rows.len()), expected, "{rest:?}");
            }
        };
        check("", Some(1));
        check("step,2", Some(1));
        check("\0\0\0\n\0\0", Some(1));
        check("\0\nROW\n", None);
        check("ROW", Some(1));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_line_reads_back_to_the_same() {
        let mut row = Row::new(RowKind::Step, 7, 2);
        row.values[0] = Some(shortest(0.1));
        row.values[12] = Some(1e-300);
        for columns in [WITHOUT_VALUES, COLUMNS.len()] {
            assert_eq!(Row::from_line(row.to_line(columns).trim_end(), columns), Some(row.clone()));
            assert!(row.to_line(columns).starts_with("step,7,2,0.1,,"));
        }
        for bad in ["", "step", "step,7,2", "stop,7,2,,,,,,,,,,,,,", "step,x,2,,,,,,,,,,,,,", "step,7,2,,,,,,,,,,,,,,"]
        {
            assert_eq!(Row::from_line(bad, WITHOUT_VALUES), None, "{bad}");
        }
    }
}
