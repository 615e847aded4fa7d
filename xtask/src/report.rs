//! Checks with a name, one after the other: what ran, how long it took, and whether it passed.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// What happens when a check fails.
#[derive(Clone, Copy, PartialEq)]
pub enum OnFailure {
    Stop,
    /// The others are run, and the report fails at its end.
    GoOn,
}

pub struct Report {
    on_failure: OnFailure,
    rows: Vec<Row>,
    start: Instant,
}

struct Row {
    name: String,
    seconds: f64,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    Failed,
    /// Why: this machine lacks what it needs.
    NotRun(String),
}

impl Report {
    pub fn new(on_failure: OnFailure) -> Report {
        Report { on_failure, rows: Vec::new(), start: Instant::now() }
    }

    /// Runs a check under a name; an error only where the first failure is the end.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("=== {name}");
        let (result, seconds) = timed(check);
        self.record(name.into(), result, seconds)
    }

    /// Runs checks at the same time, each with its own time.
    pub fn check_side_by_side<C: FnOnce() -> Result<()> + Send>(&mut self, checks: Vec<(String, C)>) -> Result<()> {
        let (names, checks): (Vec<String>, Vec<C>) = checks.into_iter().unzip();
        names.iter().for_each(|name| println!("=== {name}"));
        let results: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = checks.into_iter().map(|check| scope.spawn(|| timed(check))).collect();
            running.into_iter().map(|r| r.join().expect("checks return errors")).collect()
        });
        let recorded =
            names.into_iter().zip(results).map(|(name, (result, seconds))| self.record(name, result, seconds));
        // All of them are in the table, whichever failed.
        recorded.collect::<Vec<_>>().into_iter().collect()
    }

    fn record(&mut self, name: String, result: Result<()>, seconds: f64) -> Result<()> {
        let outcome = if result.is_ok() { Outcome::Passed } else { Outcome::Failed };
        println!("=== {name}: {} after {seconds:.0} s", outcome.word());
        self.rows.push(Row { name, seconds, outcome });
        match result {
            Err(problem) if self.on_failure == OnFailure::Stop => Err(problem),
            Err(problem) => {
                eprintln!("{problem:#}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub fn not_run(&mut self, name: &str, reason: String) {
        println!("=== {name}: not run, because {reason}");
        self.rows.push(Row { name: name.into(), seconds: 0.0, outcome: Outcome::NotRun(reason) });
    }

    /// Prints the table; an error if a check failed.
    pub fn finish(&self) -> Result<()> {
        print!("{}", self.table(self.start.elapsed()));
        let failed = self.rows.iter().filter(|r| matches!(r.outcome, Outcome::Failed)).count();
        if failed > 0 {
            bail!("{failed} of {} checks failed", self.rows.len());
        }
        Ok(())
    }

    fn table(&self, all: Duration) -> String {
        let width = self.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for Row { name, seconds, outcome } in &self.rows {
            text += &format!("{name:<width$}  {seconds:>6.0} s  {}\n", outcome.word());
        }
        text + &format!("{:<width$}  {:>6} s\n", "all", all.as_secs())
    }
}

fn timed(check: impl FnOnce() -> Result<()>) -> (Result<()>, f64) {
    let start = Instant::now();
    let result = check();
    (result, start.elapsed().as_secs_f64())
}

impl Outcome {
    fn word(&self) -> String {
        match self {
            Outcome::Passed => "passed".into(),
            Outcome::Failed => "FAILED".into(),
            Outcome::NotRun(reason) => format!("not run: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn no() -> Result<()> {
        Err(anyhow!("no"))
    }

    #[test]
    fn a_report_that_stops_ends_with_the_first_failure() {
        let mut report = Report::new(OnFailure::Stop);
        assert!(report.check("good", || Ok(())).is_ok());
        assert_eq!(report.check("bad", no).map_err(|e| e.to_string()), Err("no".into()));
        let both = vec![("first".to_string(), no as fn() -> Result<()>), ("second".to_string(), || Ok(()))];
        assert_eq!(report.check_side_by_side(both).map_err(|e| e.to_string()), Err("no".into()));
        assert_eq!(report.rows.len(), 4);
    }

    #[test]
    fn a_report_that_goes_on_tells_all_at_its_end() {
        let mut report = Report::new(OnFailure::GoOn);
        assert!(report.check("bad", no).is_ok());
        assert!(report.check("good", || Ok(())).is_ok());
        report.not_run("absent", "there is none".into());
        let table = "bad          0 s  FAILED\ngood         0 s  passed\nabsent       0 s  not run: there is none\nall          0 s\n";
        assert_eq!(report.table(Duration::ZERO), table);
        assert_eq!(report.finish().map_err(|e| e.to_string()), Err("1 of 3 checks failed".into()));
    }
}
