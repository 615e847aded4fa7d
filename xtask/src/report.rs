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
        Report { on_failure, rows: Vec::new() }
    }

    /// Runs a check under a name; an error only where the first failure is the end.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("=== {name}");
        let start = Instant::now();
        let result = check();
        let seconds = start.elapsed().as_secs_f64();
        let outcome = if result.is_ok() { Outcome::Passed } else { Outcome::Failed };
        println!("=== {name}: {} after {seconds:.0} s", outcome.word());
        self.rows.push(Row { name: name.into(), seconds, outcome });
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
        print!("{}", self.table());
        let failed = self.rows.iter().filter(|r| matches!(r.outcome, Outcome::Failed)).count();
        if failed > 0 {
            bail!("{failed} of {} checks failed", self.rows.len());
        }
        Ok(())
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for Row { name, seconds, outcome } in &self.rows {
            text += &format!("{name:<width$}  {seconds:>6.0} s  {}\n", outcome.word());
        }
        let all = Duration::from_secs_f64(self.rows.iter().map(|r| r.seconds).sum());
        text + &format!("{:<width$}  {:>6} s\n", "all", all.as_secs())
    }
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
    }

    #[test]
    fn a_report_that_goes_on_tells_all_at_its_end() {
        let mut report = Report::new(OnFailure::GoOn);
        assert!(report.check("bad", no).is_ok());
        assert!(report.check("good", || Ok(())).is_ok());
        report.not_run("absent", "there is none".into());
        let table = "bad          0 s  FAILED\ngood         0 s  passed\nabsent       0 s  not run: there is none\nall          0 s\n";
        assert_eq!(report.table(), table);
        assert_eq!(report.finish().map_err(|e| e.to_string()), Err("1 of 3 checks failed".into()));
    }
}
