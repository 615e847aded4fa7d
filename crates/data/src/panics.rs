//! A panic in somebody's function becomes an error that says where.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{DataError, Result};

/// Runs `f`, and tells where it panicked if it does. What `f` borrows is thrown away after a panic.
pub(crate) fn catch_panic<T>(location: impl FnOnce() -> String, f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let (location, message) = (location(), message(&*panic));
        Err(DataError::Pipeline(format!("{location}: a function of the pipeline panicked: {message}")))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(message), _) => message,
        (_, Some(message)) => message,
        _ => "without a word",
    }
}
