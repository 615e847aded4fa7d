//! Where a wire's caller and its courier meet: rooms filled with what is to be moved go over it, and come back with what came.
//! Knows nothing of MPI; nothing is allocated when a room changes hands.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memfit_exec::WireError;

use crate::attendance::Attendance;
use crate::cut::Round;
use crate::portion::Portion;

/// So many jobs are given to a courier at once. Of a sum it has two at a time: while it brings the shares of one piece, it adds up
/// and brings back those of the piece before; meanwhile the caller empties and fills the third.
pub(crate) const ROOMS: usize = 3;

/// A wait is cut into naps, and none counts for much longer than it is: a process that was stopped has not waited meanwhile.
const NAP: Duration = Duration::from_millis(250);

/// Buffers that hold a round. Only the thread that has them looks at them.
#[derive(Default)]
pub(crate) struct Room {
    pub send: Vec<u8>,
    pub receive: Vec<u8>,
}

impl Room {
    /// Makes it large enough; smaller rounds leave it as large as it is.
    pub fn reserve(&mut self, send: usize, receive: usize) {
        for (buffer, len) in [(&mut self.send, send), (&mut self.receive, receive)] {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
        }
    }
}

pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    slots: [Slot; ROOMS],
    /// Which slot the courier looks at next.
    next: usize,
    /// What the courier is to tell the others before it ends.
    going: Option<WireError>,
    /// Whether it has ended, and why it failed if it did.
    ended: Option<Result<(), WireError>>,
    attendance: Attendance,
}

/// What a courier is to do with a room.
pub(crate) enum Job {
    /// Moves it.
    Move(Round),
    /// Adds it up. The pieces of a sum follow each other.
    AddUp(Portion),
}

enum Slot {
    Free(Room),
    Given(Job, Room),
    /// Somebody has it.
    Taken,
    Done(Room),
}

pub(crate) enum Task {
    Do(usize, Job, Room),
    Go(WireError),
}

impl Desk {
    pub fn new(attendance: Attendance) -> Desk {
        let slots = std::array::from_fn(|_| Slot::Free(Room::default()));
        let state = State { slots, next: 0, going: None, ended: None, attendance };
        Desk { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The caller takes an empty room. None if it has not given back what it had, which is its own error.
    pub fn take(&self, slot: usize) -> Option<Room> {
        let mut state = self.state();
        match std::mem::replace(&mut state.slots[slot], Slot::Taken) {
            Slot::Free(room) => Some(room),
            other => {
                state.slots[slot] = other;
                None
            }
        }
    }

    pub fn give(&self, slot: usize, job: Job, room: Room) {
        self.state().slots[slot] = Slot::Given(job, room);
        self.changed.notify_all();
    }

    /// The room of a job that is done; the courier's failure; or nothing, when that has taken too long.
    pub fn collect(&self, slot: usize, patience: Duration) -> Option<Result<Room, WireError>> {
        let mut state = self.state();
        let mut left = patience;
        loop {
            match std::mem::replace(&mut state.slots[slot], Slot::Taken) {
                Slot::Done(room) => return Some(Ok(room)),
                other => state.slots[slot] = other,
            }
            if let Some(Err(failure)) = &state.ended {
                return Some(Err(failure.clone()));
            }
            if left.is_zero() {
                return None;
            }
            let (nap, since) = (left.min(NAP), Instant::now());
            state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            left = left.saturating_sub(since.elapsed().min(2 * nap));
        }
    }

    pub fn put_back(&self, slot: usize, room: Room) {
        self.state().slots[slot] = Slot::Free(room);
    }

    /// Has the courier tell the others that this replica goes, and waits until it has, but not for long.
    pub fn go(&self, why: WireError, patience: Duration) {
        let mut state = self.state();
        state.going.get_or_insert(why);
        self.changed.notify_all();
        let wait = self.changed.wait_timeout_while(state, patience, |state| state.ended.is_none());
        drop(wait);
    }

    /// What the courier does next; nothing for some time, where it is to look at something else meanwhile.
    pub fn next(&self, idle: Option<Duration>) -> Option<Task> {
        let mut state = self.state();
        loop {
            let slot = state.next;
            match std::mem::replace(&mut state.slots[slot], Slot::Taken) {
                Slot::Given(job, room) => {
                    state.next = (slot + 1) % ROOMS;
                    return Some(Task::Do(slot, job, room));
                }
                other => state.slots[slot] = other,
            }
            if let Some(why) = state.going.clone() {
                return Some(Task::Go(why));
            }
            let Some(idle) = idle else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (woken, waited) = self.changed.wait_timeout(state, idle).unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                return None;
            }
            state = woken;
        }
    }

    pub fn done(&self, slot: usize, room: Room) {
        self.state().slots[slot] = Slot::Done(room);
        self.changed.notify_all();
    }

    /// The courier moves nothing any more.
    pub fn end(&self, how: Result<(), WireError>) {
        self.state().ended.get_or_insert(how);
        self.changed.notify_all();
    }

    pub fn with_attendance<T>(&self, look: impl FnOnce(&mut Attendance) -> T) -> T {
        look(&mut self.state().attendance)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
