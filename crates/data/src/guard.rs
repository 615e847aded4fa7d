//! A panic in somebody's function becomes an error at its place.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{DataError, Result};

/// Runs `f`, and tells where it panicked if it does. What `f` borrows is thrown away after a panic.
pub(crate) fn guarded<T>(place: impl FnOnce() -> String, f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let (place, word) = (place(), word(&*panic));
        Err(DataError::Pipeline(format!("{place}: a function of the pipeline panicked: {word}")))
    })
}

fn word(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(word), _) => word,
        (_, Some(word)) => word,
        _ => "without a word",
    }
}
