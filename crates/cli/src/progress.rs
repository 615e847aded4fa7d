//! A line on the terminal that says what is being tried, where it takes longer than a second; gone when it is done.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Before this, nobody wonders.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Progress {
    what: &'static str,
    start: Instant,
    shown: bool,
}

impl Progress {
    pub fn new(what: &'static str) -> Progress {
        Progress { what, start: Instant::now(), shown: false }
    }

    pub fn show(&mut self, detail: &str) {
        let mut terminal = std::io::stderr().lock();
        if self.start.elapsed() < PATIENCE || !terminal.is_terminal() {
            return;
        }
        self.shown = true;
        // To the start of the line, and clear it. Whether it could be shown does not matter.
        let _ = write!(terminal, "\r\x1b[K{}: {detail}", self.what).and_then(|()| terminal.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
