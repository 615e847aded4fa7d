//! What the system tells a training: to stop, which it does after saving; and that a file would become too large, which is
//! an error of writing and no reason to die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ctrl-C, a polite end, and a terminal that was closed.
#[cfg(unix)]
const STOP: [i32; 3] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const STOP: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// Whether somebody asked to stop.
#[derive(Clone)]
pub struct Signals {
    stop: Arc<AtomicBool>,
}

impl Signals {
    /// Listens from now on. Whoever asks a second time does not want to wait.
    pub fn listen() -> std::io::Result<Signals> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in STOP {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Signals { stop })
    }

    pub fn asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The exit code of a run that was interrupted.
pub const INTERRUPTED: i32 = 130;
