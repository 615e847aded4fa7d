//! Replicas that are threads of one process: each shows the others what it sends, and they copy it, or add it up where it is.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Farewell, Numbers, Part, Sum, Wire, WireError};

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
    start: *mut u8,
    len: usize,
}

// SAFETY: it is looked at only between two meetings, while the thread whose bytes they are leaves them alone.
unsafe impl Send for Shown {}

impl Shown {
    const NOTHING: Shown = Shown { start: std::ptr::null_mut(), len: 0 };

    /// For others to read.
    fn new(bytes: &[u8]) -> Shown {
        Shown { start: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// For others to change, too.
    fn open(bytes: &mut [u8]) -> Shown {
        Shown { start: bytes.as_mut_ptr(), len: bytes.len() }
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
        let _parting = Parting(self);
        self.check_same(show.len)?;
        for rank in ranks {
            let Shown { start, len } = self.state().shown[rank];
            // SAFETY: all have met, and none goes on before all part; until then nobody changes what it shows.
            copy(rank, unsafe { std::slice::from_raw_parts(start, len) });
        }
        Ok(())
    }

    /// That all who have met show as many bytes: else all are told.
    fn check_same(&self, expected: usize) -> Result<(), WireError> {
        let state = self.state();
        let differs = state.shown.iter().position(|shown| shown.len != expected);
        differs.map_or(Ok(()), |rank| Err(WireError::Differs { rank, expected, given: state.shown[rank].len }))
    }

    /// Adds this replica's share of a piece up, where the others show it: nobody else looks at that share of any sum. Then lets
    /// `take` look at the sum of the piece, with the shares of all.
    fn add_up(&self, sum: &Sum, share: usize, room: &mut [u8], take: impl FnOnce(&[u8])) -> Result<(), WireError> {
        let (show, piece) = (Shown::open(room), share * self.count);
        self.meet(show)?;
        let _all_have_taken = Parting(self);
        let all_have_added = Parting(self);
        self.check_same(show.len)?;
        let at = |part: Part, start: usize| {
            let shown = self.state().shown[part.rank].start;
            // SAFETY: what all show has as many bytes, which are a piece for each round.
            unsafe { shown.add(part.round * piece + self.rank * share + start) }
        };
        sum.add_up(share, |[left, right], range, add| {
            let (left, right, len) = (at(left, range.start), at(right, range.start), range.len());
            // SAFETY: all have met, and none goes on before all part; until then only this thread looks at its share of the
            // pieces, of which these are two.
            unsafe { add(std::slice::from_raw_parts_mut(left, len), std::slice::from_raw_parts(right, len)) }
        });
        drop(all_have_added);
        let total = self.state().shown[Part::FIRST.rank].start;
        // SAFETY: all have added up their shares, and nobody changes anything before all part again.
        take(unsafe { std::slice::from_raw_parts(total, piece) });
        Ok(())
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

    fn sum(&mut self, sum: &Arc<Sum>, numbers: &mut dyn Numbers, room: &mut [u8]) -> Result<(), WireError> {
        let share = sum.share(usize::MAX);
        let piece = share * self.count;
        let room = &mut room[..sum.rounds * piece];
        for range in sum.pieces(share) {
            for (round, own) in room.chunks_exact_mut(piece).enumerate().take(sum.count(self.rank)) {
                let (filled, rest) = own.split_at_mut(range.len());
                numbers.load(round, range.clone(), filled)?;
                // What is only there to make the shares equal is nobody's.
                rest.fill(0);
            }
            self.add_up(sum, share, room, |total| numbers.store(range.clone(), &total[..range.len()]))?;
        }
        Ok(())
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
    use memfit_ir::Replica;

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
                let (mut all, mut owned) = (vec![0; count], [rank; 3]);
                for _ in 0..50 {
                    wire.all_gather(&[rank], &mut all).expect("an exchange");
                    wire.broadcast(count - 1, &mut owned).expect("an exchange");
                }
                (all, owned)
            });
            for (all, owned) in received {
                assert_eq!(all, (0..count as u8).collect::<Vec<_>>());
                assert_eq!(owned, [count as u8 - 1; 3]);
            }
        }
    }

    /// A replica's sums, and the sum of all.
    struct Held {
        own: Vec<Vec<u8>>,
        total: Vec<u8>,
    }

    impl Numbers for Held {
        fn load(&mut self, round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
            into.copy_from_slice(&self.own[round][range]);
            Ok(())
        }

        fn store(&mut self, range: Range<usize>, from: &[u8]) {
            self.total[range].copy_from_slice(from);
        }
    }

    /// Number i of a sum: of many sizes, so that an order shows, and some subnormal.
    fn number(part: (usize, usize), i: usize) -> f32 {
        let seed = (i * 37 + part.0 * 101 + part.1 * 59) % 97;
        if i.is_multiple_of(5) {
            f32::from_bits(seed as u32)
        } else {
            (seed as f32 + 0.3) * 1.7f32.powi(seed as i32 % 40)
        }
    }

    fn zero_if_subnormal(x: f32) -> f32 {
        if x.is_subnormal() { 0.0 } else { x }
    }

    #[test]
    fn numbers_are_added_up_in_the_order_of_the_tree_however_they_are_cut() {
        const NUMBERS: usize = 5003;
        for (lanes, count) in [(1, 1), (2, 2), (5, 2), (3, 3), (7, 3), (4, 4), (11, 4)] {
            let replica = |rank| Replica { lanes, count, rank };
            let parts: Vec<_> = replica(0).all_subtrees().iter().map(|(_, rank, round)| (*rank, *round)).collect();
            let expected: Vec<f32> = (0..NUMBERS)
                .map(|i| {
                    let mut sums: Vec<f32> = parts.iter().map(|part| zero_if_subnormal(number(*part, i))).collect();
                    replica(0).joins().into_iter().for_each(|(l, r)| sums[l] = zero_if_subnormal(sums[l] + sums[r]));
                    sums[0]
                })
                .collect();
            for piece in [1, 100, 4096, 1 << 20] {
                let totals = together(count, STALL, |mut wire| {
                    let sum = Arc::new(Sum::new(4 * NUMBERS, piece, replica(wire.rank())));
                    let own =
                        |round| (0..NUMBERS).flat_map(|i| number((wire.rank(), round), i).to_ne_bytes()).collect();
                    let mut held =
                        Held { own: (0..sum.count(wire.rank())).map(own).collect(), total: vec![0; sum.total] };
                    let mut room = vec![0xff; sum.rounds * sum.share(usize::MAX) * count];
                    wire.sum(&sum, &mut held, &mut room).expect("all are here");
                    held.total
                });
                let same = |(total, expected): (&[u8; 4], &f32)| {
                    // A sum of one is not added to anything.
                    count == 1 || f32::from_ne_bytes(*total).to_bits() == expected.to_bits()
                };
                let is_right = |total: &Vec<u8>| total.as_chunks().0.iter().zip(&expected).all(same);
                assert!(totals.iter().all(is_right), "{lanes} lanes, {count} replicas, pieces of {piece}");
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
            wire.all_gather(&vec![0; len], &mut vec![0; 2 * len]).expect_err("sizes differ").to_string()
        });
        assert_eq!(
            ends,
            ["replica 1 exchanges 8 bytes where this one has 4", "replica 0 exchanges 4 bytes where this one has 8"]
        );
    }
}
