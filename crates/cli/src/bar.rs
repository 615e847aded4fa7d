//! One line on the terminal that follows a training; nothing where nobody looks.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use memfit::plan::bytes::Bytes;

/// Fast enough for an eye, slow enough to cost nothing.
const PAUSE: Duration = Duration::from_millis(100);
const WIDTH: usize = 20;

/// The line itself, and when it was drawn.
pub struct Line {
    is_terminal: bool,
    drawn: Option<Instant>,
}

impl Line {
    pub fn new() -> Line {
        Line { is_terminal: std::io::stderr().is_terminal(), drawn: None }
    }

    /// Shows what is given, if it is time for it.
    pub fn draw(&mut self, text: impl FnOnce() -> String) {
        if !self.is_terminal || self.drawn.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.drawn = Some(Instant::now());
        // Whether it could be shown does not matter.
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}", text()).and_then(|()| std::io::stderr().flush());
    }

    /// Makes room for a line that stays.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How far a training is.
pub struct Bar {
    /// Steps of the whole run.
    steps: u64,
    done: u64,
    batch: usize,
    planned: u64,
    budget: Option<u64>,
    /// Since when, and how many steps there were then.
    since: (Instant, u64),
    loss: f64,
    /// Of the last evaluation, in words.
    score: Option<String>,
}

impl Bar {
    pub fn new(steps: u64, first: u64, batch: usize, planned: u64, budget: Option<u64>) -> Bar {
        Bar { steps, done: first, batch, planned, budget, since: (Instant::now(), first), loss: f64::NAN, score: None }
    }

    /// After a step; `done` counts it.
    pub fn step(&mut self, done: u64, loss: f32) {
        // Follows the last few dozen steps.
        self.loss = if self.loss.is_nan() { loss.into() } else { 0.95 * self.loss + 0.05 * f64::from(loss) };
        self.done = done;
    }

    pub fn evaluated(&mut self, score: String) {
        self.score = Some(score);
    }

    /// All there is to say, with what the process has.
    pub fn line(&self, resident: Option<u64>) -> String {
        self.line_after(self.since.0.elapsed().as_secs_f64(), resident)
    }

    /// One of several.
    pub fn short(&self, label: &str) -> String {
        let score = self.score.as_ref().map_or(String::new(), |s| format!("  {s}"));
        format!("{label} {}/{}  loss {:.4}{score}", self.done, self.steps, self.loss)
    }

    fn line_after(&self, seconds: f64, resident: Option<u64>) -> String {
        let done = self.done;
        let filled = (done.min(self.steps) as usize * WIDTH) / self.steps.max(1) as usize;
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
        let rate = (done - self.since.1.min(done)) as f64 * self.batch as f64 / seconds.max(1e-9);
        let score = self.score.as_ref().map_or(String::new(), |s| format!("  {s}"));
        let now = resident.map_or(String::new(), |bytes| format!("{} resident, ", Bytes(bytes)));
        let budget = self.budget.map_or(String::new(), |b| format!(" of {}", Bytes(b)));
        format!(
            "{bar} {done}/{}  loss {:.4}{score}  {rate:.0} samples/s  memory {now}{} planned{budget}",
            self.steps,
            self.loss,
            Bytes(self.planned)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_progress_loss_speed_and_memory() {
        let mut bar = Bar::new(40, 0, 32, 2 << 20, Some(3 << 20));
        bar.step(10, 0.5);
        bar.evaluated("accuracy 97.50 %".into());
        assert_eq!(
            bar.line_after(2.0, Some(20 << 20)),
            "█████░░░░░░░░░░░░░░░ 10/40  loss 0.5000  accuracy 97.50 %  160 samples/s  memory 20.0 MiB resident, \
             2.00 MiB planned of 3.00 MiB"
        );
        assert_eq!(bar.short("a"), "a 10/40  loss 0.5000  accuracy 97.50 %");
        bar.step(50, 0.5);
        assert!(bar.line_after(0.0, None).starts_with("████████████████████ 50/40"));
    }
}
