//! MPI, one call at a time, whatever thread it comes from. No call that is made through it waits for another process.

use std::sync::{Arc, Mutex, PoisonError};

use memfit_exec::WireError;

#[derive(Clone, Default)]
pub(crate) struct Line(Arc<Mutex<()>>);

impl Line {
    pub fn call<T>(&self, call: impl FnOnce() -> ferrompi::Result<T>) -> Result<T, WireError> {
        let _held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call().map_err(|e| WireError::Failed(e.to_string()))
    }
}
