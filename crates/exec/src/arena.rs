//! The memory that a plan runs in: a segment of states that belongs to one model, and a transient segment that several models
//! may take turns in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memfit_plan::{Place, Segment};

use crate::error::ExecError;
use crate::executor::Executor;
use crate::host_memory::Growth;

/// Both segments, for as long as somebody works on them.
pub struct Arena<'a, M> {
    pub state: &'a mut M,
    pub transient: &'a mut M,
}

impl<M> Arena<'_, M> {
    /// The segment that a place is in.
    pub fn segment(&self, place: Place) -> &M {
        match place.segment {
            Segment::State => self.state,
            Segment::Transient => self.transient,
        }
    }

    /// The same, to be changed.
    pub fn segment_mut(&mut self, place: Place) -> &mut M {
        match place.segment {
            Segment::State => self.state,
            Segment::Transient => self.transient,
        }
    }
}

/// A transient segment. Copies are the same memory: engines that have it run one after the other, and what one of them left
/// there is gone when another one runs.
pub struct Transient<M>(Arc<Shared<M>>);

struct Shared<M> {
    bytes: u64,
    tenancy: Mutex<Tenancy<M>>,
}

/// The memory, and who ran in it last.
pub(crate) struct Tenancy<M> {
    pub memory: M,
    pub last: Option<Tenant>,
}

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant(u64);

impl Tenant {
    pub fn new() -> Tenant {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Tenant(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl<M> Clone for Transient<M> {
    fn clone(&self) -> Self {
        Transient(self.0.clone())
    }
}

impl<M> Transient<M> {
    /// Takes so many bytes for a holder of this name.
    pub fn new<E: Executor<Memory = M>>(
        executor: &E,
        holder: &str,
        bytes: u64,
        growth: Growth,
    ) -> Result<Self, ExecError> {
        let memory = executor.allocate(holder, bytes, growth)?;
        Ok(Transient(Arc::new(Shared { bytes, tenancy: Mutex::new(Tenancy { memory, last: None }) })))
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Waits for its turn.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Tenancy<M>> {
        self.0.tenancy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the memory while nobody runs in it.
    pub fn look<T>(&self, look: impl FnOnce(&M) -> T) -> T {
        look(&self.lock().memory)
    }
}
