//! What follows a training: one line on the terminal that is drawn over and over, and where there is none, in the log of a job,
//! a line of its own now and then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use memfit::Plan;
use memfit::plan::bytes::Bytes;

/// Fast enough for an eye, slow enough to cost nothing.
const PAUSE: Duration = Duration::from_millis(100);
const WIDTH: usize = 20;
/// After so many steps, what is left is told from them alone, and no more from what was predicted.
const TOLD: u64 = 10;

/// Between the lines of a log, where nobody says it.
pub const LOG_EVERY: Duration = Duration::from_secs(10);
/// Before the first of them: by then one wonders whether it runs at all.
const FIRST: Duration = Duration::from_secs(3);

/// The line itself, and when it was drawn.
pub struct Line {
    is_terminal: bool,
    drawn: Option<Instant>,
    log_every: Duration,
    /// When the next line of a log is due.
    due: Instant,
}

impl Line {
    pub fn new(log_every: Duration) -> Line {
        let due = Instant::now() + FIRST.min(log_every);
        Line { is_terminal: std::io::stderr().is_terminal(), drawn: None, log_every, due }
    }

    /// Whether a line of a log is due; then the next one is later.
    pub fn is_log_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = !self.is_terminal && now >= self.due;
        if is_due {
            self.due = now + self.log_every;
        }
        is_due
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
    /// Seconds of a step.
    predicted: f64,
    budget: Option<u64>,
    /// Since when, and how many steps there were then.
    since: (Instant, u64),
    loss: f64,
    /// Since the last line of a log: the losses of so many steps.
    logged: (f64, u32),
    /// From 0.
    epoch: u64,
    /// What is done besides steps, in words.
    doing: Option<String>,
    /// Of the last evaluation, in words.
    score: Option<String>,
}

impl Bar {
    pub fn new(steps: u64, first: u64, plan: &Plan, budget: Option<u64>) -> Bar {
        Bar {
            steps,
            done: first,
            batch: plan.batch,
            planned: plan.device_bytes(),
            predicted: plan.predicted_step_seconds,
            budget,
            since: (Instant::now(), first),
            loss: f64::NAN,
            logged: (0.0, 0),
            epoch: 0,
            doing: None,
            score: None,
        }
    }

    /// After a step; `done` counts it.
    pub fn step(&mut self, done: u64, epoch: u64, loss: f32) {
        (self.epoch, self.doing) = (epoch, None);
        self.logged = (self.logged.0 + f64::from(loss), self.logged.1 + 1);
        // Follows the last few dozen steps.
        self.loss = if self.loss.is_nan() { loss.into() } else { 0.95 * self.loss + 0.05 * f64::from(loss) };
        self.done = done;
    }

    pub fn evaluated(&mut self, score: String) {
        (self.score, self.doing) = (Some(score), None);
    }

    /// What it does until the next step.
    pub fn doing(&mut self, what: String) {
        self.doing = Some(what);
    }

    /// For a log: the mean loss since the last time, and what is left.
    pub fn log(&mut self, label: &str) -> String {
        self.log_after(label, self.since.0.elapsed().as_secs_f64())
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

    /// Steps since it began to look.
    fn here(&self) -> u64 {
        self.done - self.since.1.min(self.done)
    }

    /// Until the last step, as it looks after so many seconds: as predicted at first, and more and more as the first steps were.
    fn seconds_left(&self, seconds: f64) -> f64 {
        let here = self.here();
        let measured = seconds / here.max(1) as f64;
        let trust = here.min(TOLD) as f64 / TOLD as f64;
        (self.steps - self.done.min(self.steps)) as f64 * (trust * measured + (1.0 - trust) * self.predicted)
    }

    fn log_after(&mut self, label: &str, seconds: f64) -> String {
        let (sum, steps) = std::mem::take(&mut self.logged);
        let loss = if steps == 0 { String::new() } else { format!("  loss {:.4}", sum / f64::from(steps)) };
        let doing = self.doing.as_ref().map_or(String::new(), |what| format!("  {what}"));
        let pace = match self.here() {
            0 => String::new(),
            _ => format!("  {:.0} samples/s, {} left", self.rate(seconds), duration(self.seconds_left(seconds))),
        };
        format!("{label}step {}/{}  epoch {}{loss}{pace}{doing}", self.done, self.steps, self.epoch + 1)
    }

    /// Samples in a second.
    fn rate(&self, seconds: f64) -> f64 {
        self.here() as f64 * self.batch as f64 / seconds.max(1e-9)
    }

    fn line_after(&self, seconds: f64, resident: Option<u64>) -> String {
        let done = self.done;
        let filled = (done.min(self.steps) as usize * WIDTH) / self.steps.max(1) as usize;
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
        let rate = self.rate(seconds);
        let left = duration(self.seconds_left(seconds));
        let score = self.score.as_ref().map_or(String::new(), |s| format!("  {s}"));
        let now = resident.map_or(String::new(), |bytes| format!("{} resident, ", Bytes(bytes)));
        let budget = self.budget.map_or(String::new(), |b| format!(" of {}", Bytes(b)));
        format!(
            "{bar} {done}/{}  loss {:.4}{score}  {rate:.0} samples/s, {left} left  memory {now}{} planned{budget}",
            self.steps,
            self.loss,
            Bytes(self.planned)
        )
    }
}

/// In the two largest units.
fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(steps: u64) -> Bar {
        let (since, loss) = ((Instant::now(), 0), f64::NAN);
        let (planned, budget) = (2 << 20, Some(3 << 20));
        let (logged, epoch, doing) = ((0.0, 0), 0, None);
        Bar {
            steps,
            done: 0,
            batch: 32,
            planned,
            predicted: 1.0,
            budget,
            since,
            loss,
            logged,
            epoch,
            doing,
            score: None,
        }
    }

    #[test]
    fn the_first_ten_steps_correct_the_time_that_is_left() {
        let mut bar = bar(110);
        // Each takes three seconds instead of one.
        for (done, left) in [(0, 110.0), (1, 109.0 * 1.2), (5, 105.0 * 2.0), (10, 300.0), (60, 150.0), (110, 0.0)] {
            bar.step(done, 0, 0.5);
            let told = bar.seconds_left(3.0 * done as f64);
            assert!((told - left).abs() < 1e-6, "{told} and not {left} after {done}");
        }
        for (seconds, text) in [(0.4, "0 s"), (59.6, "1 min 00 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 05 min")] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn the_line_tells_progress_loss_speed_and_memory() {
        let mut bar = bar(40);
        bar.step(10, 0, 0.5);
        bar.evaluated("accuracy 97.50 %".into());
        assert_eq!(
            bar.line_after(2.0, Some(20 << 20)),
            "█████░░░░░░░░░░░░░░░ 10/40  loss 0.5000  accuracy 97.50 %  160 samples/s, 6 s left  memory 20.0 MiB resident, \
             2.00 MiB planned of 3.00 MiB"
        );
        assert_eq!(bar.short("a"), "a 10/40  loss 0.5000  accuracy 97.50 %");
        bar.step(50, 1, 0.5);
        assert!(bar.line_after(0.0, None).starts_with("████████████████████ 50/40"));
    }

    #[test]
    fn a_log_tells_the_mean_loss_since_its_last_line_and_what_else_is_done() {
        let mut bar = bar(40);
        assert_eq!(bar.log_after("", 3.0), "step 0/40  epoch 1");
        (1..=10).for_each(|step| bar.step(step, 0, step as f32));
        assert_eq!(bar.log_after("", 2.0), "step 10/40  epoch 1  loss 5.5000  160 samples/s, 6 s left");
        bar.step(11, 1, 2.0);
        bar.doing("evaluating, 3 batches".into());
        let line = "a  step 11/40  epoch 2  loss 2.0000  160 samples/s, 6 s left  evaluating, 3 batches";
        assert_eq!(bar.log_after("a  ", 2.2), line);
    }
}
