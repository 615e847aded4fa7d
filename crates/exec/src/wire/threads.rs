//! Replicas that are threads of one process: each shows the others what it sends, and copies what it is sent.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Farewell, Wire, WireError};

/// The ends of a connection between so many threads, in the order of their ranks. A thread that does not come within `stall` is
/// named to the others.
pub fn thread_wires(count: usize, stall: Duration) -> Vec<ThreadWire> {
    let meeting = Arc::new(Meeting {
        state: Mutex::new(State {
            round: 0,
            arrived: vec![false; count],
            shown: vec![Shown::NOTHING; count],
            gone: vec![false; count],
            failed: None,
        }),
        changed: Condvar::new(),
    });
    (0..count).map(|rank| ThreadWire { rank, count, stall, meeting: meeting.clone() }).collect()
}

/// One thread's end. Whoever drops it is gone for the others.
pub struct ThreadWire {
    rank: usize,
    count: usize,
    stall: Duration,
    meeting: Arc<Meeting>,
}

struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Counts how often all have met.
    round: u64,
    arrived: Vec<bool>,
    /// By rank, what is sent.
    shown: Vec<Shown>,
    /// Who never comes again: what it showed may be no more.
    gone: Vec<bool>,
    /// Why the first of them went, which is why all others do.
    failed: Option<WireError>,
}

impl State {
    /// Begins the next round if nobody is missing.
    fn go_on(&mut self, changed: &Condvar) {
        if self.arrived.iter().zip(&self.gone).all(|(arrived, gone)| *arrived || *gone) {
            self.arrived.fill(false);
            self.round += 1;
            changed.notify_all();
        }
    }

    fn leave(&mut self, rank: usize, why: WireError, changed: &Condvar) {
        (self.arrived[rank], self.gone[rank]) = (false, true);
        self.failed.get_or_insert(why);
        changed.notify_all();
    }
}

/// Bytes of another thread, which it leaves alone until all have met again.
#[derive(Clone, Copy)]
struct Shown {
    start: *const u8,
    len: usize,
}

// SAFETY: it is read only between two meetings, while the thread whose bytes they are waits and changes nothing.
unsafe impl Send for Shown {}

impl Shown {
    const NOTHING: Shown = Shown { start: std::ptr::null(), len: 0 };

    fn new(bytes: &[u8]) -> Shown {
        Shown { start: bytes.as_ptr(), len: bytes.len() }
    }
}

impl ThreadWire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.meeting.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all are here; `show` is what they see of this one until they part. Whoever fails is gone for the others, and
    /// shows nothing any more.
    fn meet(&self, show: Shown) -> Result<(), WireError> {
        let since = Instant::now();
        let mut state = self.state();
        let round = state.round;
        (state.shown[self.rank], state.arrived[self.rank]) = (show, true);
        loop {
            if state.failed.is_none() {
                state.go_on(&self.meeting.changed);
            }
            if state.round != round {
                return Ok(());
            }
            let waited = since.elapsed();
            let missing = || (0..self.count).filter(|&rank| !state.arrived[rank]).collect();
            let stalled = || (waited >= self.stall).then(|| WireError::Stalled { missing: missing(), waited });
            if let Some(failure) = state.failed.clone().or_else(stalled) {
                state.leave(self.rank, failure.clone(), &self.meeting.changed);
                return Err(failure);
            }
            let left = self.stall - waited;
            state = self.meeting.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all have seen what they came for. They have all come, so that none is waited for longer than it copies; and
    /// nobody leaves before, not even where another is gone: what is shown must stay.
    fn part(&self) {
        let mut state = self.state();
        let round = state.round;
        state.arrived[self.rank] = true;
        loop {
            state.go_on(&self.meeting.changed);
            if state.round != round {
                return;
            }
            state = self.meeting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets `copy` look at what some replicas show, one after the other, while none of them goes on.
    fn look(&self, show: Shown, ranks: Range<usize>, mut copy: impl FnMut(usize, &[u8])) -> Result<(), WireError> {
        self.meet(show)?;
        let parting = Parting(self);
        let shown = |rank: usize| self.state().shown[rank];
        // Of all, so that all are told of it.
        let differs = (0..self.count).find(|&rank| shown(rank).len != show.len);
        let given = differs.map(|rank| shown(rank).len);
        for rank in ranks.filter(|_| differs.is_none()) {
            let Shown { start, len } = shown(rank);
            // SAFETY: all have met, and none goes on before all part; until then nobody changes what it shows.
            copy(rank, unsafe { std::slice::from_raw_parts(start, len) });
        }
        drop(parting);
        match (differs, given) {
            (Some(rank), Some(given)) => Err(WireError::Differs { rank, expected: show.len, given }),
            _ => Ok(()),
        }
    }
}

/// Parts at its end, also where copying panics: what others look at would be gone with the thread that shows it.
struct Parting<'a>(&'a ThreadWire);

impl Drop for Parting<'_> {
    fn drop(&mut self) {
        self.0.part();
    }
}

impl Drop for ThreadWire {
    fn drop(&mut self) {
        self.state().leave(self.rank, WireError::Lost { rank: self.rank }, &self.meeting.changed);
    }
}

impl Wire for ThreadWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.count
    }

    fn all_to_all(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), WireError> {
        let share = send.len() / self.count;
        self.look(Shown::new(send), 0..self.count, |rank, sent| {
            receive[rank * share..][..share].copy_from_slice(&sent[self.rank * share..][..share]);
        })
    }

    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), WireError> {
        self.look(Shown::new(send), 0..self.count, |rank, sent| {
            receive[rank * sent.len()..][..sent.len()].copy_from_slice(sent);
        })
    }

    fn broadcast(&mut self, owner: usize, bytes: &mut [u8]) -> Result<(), WireError> {
        if owner == self.rank {
            return self.look(Shown::new(bytes), 0..0, |_, _| {});
        }
        // Nobody looks at what is written meanwhile.
        let show = Shown { len: bytes.len(), ..Shown::NOTHING };
        self.look(show, owner..owner + 1, |_, sent| bytes.copy_from_slice(sent))
    }

    fn leave(&mut self, why: Farewell) {
        let rank = self.rank;
        self.state().leave(rank, WireError::Left { rank, why }, &self.meeting.changed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather_words;
    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    /// What each of so many threads makes of its end of a connection.
    fn together<T: Send>(count: usize, stall: Duration, each: impl Fn(ThreadWire) -> T + Sync) -> Vec<T> {
        let each = &each;
        std::thread::scope(|scope| {
            let wires = thread_wires(count, stall);
            let threads: Vec<_> = wires.into_iter().map(|wire| scope.spawn(move || each(wire))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of the test")).collect()
        })
    }

    #[test]
    fn everybody_gets_what_was_sent_to_it() {
        for count in 1..=4 {
            let received = together(count, STALL, |mut wire| {
                let rank = wire.rank() as u8;
                let send: Vec<u8> = (0..count as u8).flat_map(|to| [rank, to]).collect();
                let (mut parts, mut all, mut owned) = (vec![0; 2 * count], vec![0; count], [rank; 3]);
                for _ in 0..50 {
                    wire.all_to_all(&send, &mut parts).expect("an exchange");
                    wire.all_gather(&[rank], &mut all).expect("an exchange");
                    wire.broadcast(count - 1, &mut owned).expect("an exchange");
                }
                (parts, all, owned)
            });
            for (rank, (parts, all, owned)) in received.into_iter().enumerate() {
                assert_eq!(parts, (0..count as u8).flat_map(|from| [from, rank as u8]).collect::<Vec<_>>());
                assert_eq!(all, (0..count as u8).collect::<Vec<_>>());
                assert_eq!(owned, [count as u8 - 1; 3]);
            }
        }
    }

    #[test]
    fn whoever_leaves_is_named_and_nobody_waits_for_it() {
        // The last one comes when another has gone because of the first.
        let has_gone = std::sync::Barrier::new(2);
        let ends = together(3, STALL, |mut wire| {
            let rank = wire.rank();
            if rank == 1 {
                return Ok(());
            }
            if rank == 2 {
                has_gone.wait();
            }
            let end = wire.all_gather(&[0], &mut [0; 3]);
            drop(wire);
            if rank == 0 {
                has_gone.wait();
            }
            end
        });
        assert_eq!(ends, [Err(WireError::Lost { rank: 1 }), Ok(()), Err(WireError::Lost { rank: 1 })]);
    }

    #[test]
    fn words_of_any_length_are_gathered() {
        for words in [["", "", ""], ["a", "", "cde"], ["one", "two", "six"]] {
            let ends = together(3, STALL, |mut wire| {
                let own = words[wire.rank()].as_bytes();
                gather_words(&mut wire, own).expect("all are here")
            });
            assert!(
                ends.iter().all(|all| all.iter().zip(words).all(|(said, word)| said == word.as_bytes())),
                "{ends:?}"
            );
        }
    }

    #[test]
    fn whoever_leaves_with_a_word_is_heard_by_all() {
        let why = Farewell { kind: 4, message: "cat.jpg is no image".into() };
        let ends = together(3, STALL, |mut wire| {
            if wire.rank() == 1 {
                wire.leave(why.clone());
                return Ok(());
            }
            wire.all_gather(&[0], &mut [0; 3])
        });
        let left = || Err(WireError::Left { rank: 1, why: why.clone() });
        assert_eq!(ends, [left(), Ok(()), left()]);
        assert_eq!(left().unwrap_err().to_string(), "replica 1: cat.jpg is no image");
    }

    #[test]
    fn whoever_does_not_come_is_named() {
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (tell, told) = (Mutex::new(Some(tell)), Mutex::new(told));
        let ends = together(2, Duration::from_millis(20), |mut wire| {
            if wire.rank() == 1 {
                // Until the other one has given up.
                let _ = told.lock().expect("no panic").recv();
                return String::new();
            }
            let end = wire.all_gather(&[0], &mut [0; 2]);
            drop(tell.lock().expect("no panic").take());
            end.expect_err("nobody came").to_string()
        });
        assert_eq!(ends[0], "replica 1 did not come within 0 s");
    }

    /// Its bytes are freed when it unwinds, so it must not before the others have copied them; nor may they wait for it forever.
    #[test]
    fn whoever_panics_while_it_copies_stays_until_all_have_copied() {
        let ends = together(3, STALL, |mut wire| {
            let (rank, mut wire) = (wire.rank(), std::panic::AssertUnwindSafe(&mut wire));
            let ended = std::panic::catch_unwind(move || {
                let (send, mut received) = (vec![rank as u8; 1 << 16], vec![0; if rank == 1 { 1 } else { 3 << 16 }]);
                wire.all_gather(&send, &mut received).map(|()| received)
            });
            ended.map(|received| received.expect("all have come"))
        });
        let all: Vec<u8> = (0..3).flat_map(|rank| vec![rank; 1 << 16]).collect();
        assert!(ends[1].is_err());
        assert!([0, 2].iter().all(|&rank| ends[rank].as_ref().is_ok_and(|received| *received == all)));
    }

    #[test]
    fn different_sizes_are_told_to_all() {
        let ends = together(2, STALL, |mut wire| {
            let len = 4 * (1 + wire.rank());
            wire.all_to_all(&vec![0; len], &mut vec![0; len]).expect_err("sizes differ").to_string()
        });
        assert_eq!(
            ends,
            ["replica 1 exchanges 8 bytes where this one has 4", "replica 0 exchanges 4 bytes where this one has 8"]
        );
    }
}
