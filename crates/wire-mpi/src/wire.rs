//! One process's end of a wire, as the engine uses it: cuts exchanges into rounds, fills rooms for the courier and empties them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memfit_exec::{Farewell, Numbers, Sum, Wire, WireError};

use crate::attendance::between_words;
use crate::cut::{Call, HEADER, Round, ranges};
use crate::desk::{Desk, Job, ROOMS, Room};
use crate::portion::Portion;

/// How long a wire that goes waits until the others are told; they are at once, unless MPI is stuck.
const GOING: Duration = Duration::from_millis(500);

/// One process's end. Whoever drops it without a word is gone for the others: [`WireError::Lost`].
pub struct MpiWire {
    rank: usize,
    size: usize,
    limits: Limits,
    /// How many rounds there were, ...
    rounds: u64,
    /// ... and how many jobs: which room the next one takes.
    jobs: usize,
    desk: Arc<Desk>,
    /// Why this wire is of no use any more.
    failed: Option<WireError>,
}

/// What a wire keeps to.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Who is not there for so long is missing, ...
    pub stall: Duration,
    /// ... and who is and does not come for so long: its courier looks at no round for longer.
    pub patience: Duration,
    /// How much longer it may take to say so: a call of MPI may keep it.
    pub grace: Duration,
    /// Bytes that it moves at once, about.
    pub chunk: usize,
}

impl MpiWire {
    pub(crate) fn new(rank: usize, size: usize, limits: Limits, desk: Arc<Desk>) -> MpiWire {
        MpiWire { rank, size, limits, rounds: 0, jobs: 0, desk, failed: None }
    }

    /// Bytes that it takes at most of host memory beside what is exchanged.
    pub fn room_bytes(&self) -> usize {
        2 * ROOMS * (self.block_limit(self.size) + HEADER) * self.size
    }

    /// Bytes of each block of a round that has so many of them.
    fn block_limit(&self, blocks: usize) -> usize {
        (self.limits.chunk / blocks).next_multiple_of(64).max(64)
    }

    /// Moves a share of so many bytes of each block, in rounds of a few of them. `fill` and `empty` are told which bytes of a share
    /// a room has.
    fn exchange(
        &mut self,
        plan: Plan,
        mut fill: impl FnMut(&Round, usize, &mut Room),
        mut empty: impl FnMut(&Round, usize, &Room),
    ) -> Result<(), WireError> {
        let ranges = ranges(plan.share, self.block_limit(plan.blocks));
        let Plan { call, total, .. } = plan;
        let first = self.rounds;
        self.rounds += ranges.len() as u64;
        let rounds = (first..).zip(ranges).map(|(number, range)| {
            let round = Round { call, number, total, block: range.len() };
            (number, (round, range.start))
        });
        let fill = |(round, start): &(Round, usize), room: &mut Room| {
            fill(round, *start, room);
            Ok(Job::Move(*round))
        };
        self.in_turns(rounds, fill, |(round, start), room| empty(round, *start, room))
    }

    /// Gives jobs to the courier, as many at once as it has rooms for; each has the number of its round.
    fn in_turns<T>(
        &mut self,
        jobs: impl Iterator<Item = (u64, T)>,
        mut fill: impl FnMut(&T, &mut Room) -> Result<Job, WireError>,
        mut empty: impl FnMut(&T, &Room),
    ) -> Result<(), WireError> {
        if let Some(failure) = &self.failed {
            return Err(failure.clone());
        }
        let mut under_way = [const { None }; ROOMS];
        for job in jobs {
            let slot = self.jobs % ROOMS;
            if let Some((number, done)) = under_way[slot].take() {
                self.collect(slot, number, |room| empty(&done, room))?;
            }
            self.give(slot, |room| fill(&job.1, room))?;
            under_way[slot] = Some(job);
            self.jobs += 1;
        }
        for slot in (self.jobs..self.jobs + ROOMS).map(|job| job % ROOMS) {
            if let Some((number, done)) = under_way[slot].take() {
                self.collect(slot, number, |room| empty(&done, room))?;
            }
        }
        Ok(())
    }

    fn give(&mut self, slot: usize, fill: impl FnOnce(&mut Room) -> Result<Job, WireError>) -> Result<(), WireError> {
        let Some(mut room) = self.desk.take(slot) else {
            return Err(self.fail(WireError::Failed("an exchange was broken off before".into())));
        };
        match fill(&mut room) {
            Ok(job) => self.desk.give(slot, job, room),
            Err(failure) => {
                self.desk.put_back(slot, room);
                return Err(failure);
            }
        }
        Ok(())
    }

    fn collect(&mut self, slot: usize, number: u64, empty: impl FnOnce(&Room)) -> Result<(), WireError> {
        let (since, Limits { stall, patience, grace, .. }) = (Instant::now(), self.limits);
        match self.desk.collect(slot, patience + grace) {
            Some(Ok(room)) => {
                empty(&room);
                self.desk.put_back(slot, room);
                Ok(())
            }
            Some(Err(failure)) => Err(self.fail(failure)),
            None => {
                // The courier is stuck inside of MPI: whoever was not heard before that is not known to be there.
                let lately = 2 * between_words(stall) + grace;
                let missing = self.desk.with_attendance(|a| a.missing(number, Instant::now(), lately));
                Err(self.fail(WireError::Stalled { missing, waited: since.elapsed() }))
            }
        }
    }

    fn fail(&mut self, failure: WireError) -> WireError {
        self.failed.get_or_insert(failure).clone()
    }

    /// That a buffer has as many bytes as it must.
    fn check_len(&self, what: &str, len: usize, expected: usize) -> Result<(), WireError> {
        let wrong = || format!("the bytes {what} are {len}, where {} replicas need {expected}", self.size);
        if len == expected { Ok(()) } else { Err(WireError::Failed(wrong())) }
    }
}

/// What an exchange moves.
struct Plan {
    call: Call,
    /// Bytes of the caller's own.
    total: usize,
    /// How many blocks lie beside each other in a round, ...
    blocks: usize,
    /// ... and the bytes of each, over all rounds.
    share: usize,
}

impl Wire for MpiWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// Through the courier's rooms only: they are all that MPI looks at.
    fn sum(&mut self, sum: &Arc<Sum>, numbers: &mut dyn Numbers, _room: &mut [u8]) -> Result<(), WireError> {
        let share = sum.share(self.block_limit(self.size) / sum.rounds);
        let (rank, first, pieces) = (self.rank, self.rounds, sum.pieces(share));
        if pieces.len() > 0 {
            self.rounds += pieces.len() as u64 + 1;
        }
        let portions =
            (first..).zip(pieces).map(|(number, range)| (number, Portion { sum: sum.clone(), range, share, number }));
        // Both look at the same numbers, one after the other.
        let numbers = std::cell::RefCell::new(numbers);
        let fill = |portion: &Portion, room: &mut Room| {
            portion.fill(rank, &mut **numbers.borrow_mut(), room)?;
            Ok(Job::AddUp(portion.clone()))
        };
        self.in_turns(portions, fill, |portion, room| portion.empty(&mut **numbers.borrow_mut(), room))
    }

    fn all_gather(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), WireError> {
        let (size, share) = (self.size, send.len());
        self.check_len("received", receive.len(), share * size)?;
        let plan = Plan { call: Call::AllGather, total: share, blocks: size, share };
        let fill = |round: &Round, start: usize, room: &mut Room| {
            room.reserve(round.stride(), size * round.stride());
            round.begin(&mut room.send[..round.stride()]).copy_from_slice(&send[start..][..round.block]);
        };
        self.exchange(plan, fill, |round, start, room| spread(round, start, room, share, receive))
    }

    fn broadcast(&mut self, owner: usize, bytes: &mut [u8]) -> Result<(), WireError> {
        if owner >= self.size {
            return Err(WireError::Failed(format!("there is no replica {owner} among {}", self.size)));
        }
        let (own, len) = (owner == self.rank, bytes.len());
        let plan = Plan { call: Call::Broadcast { owner }, total: len, blocks: 1, share: len };
        // Both look at the same bytes, one after the other.
        let bytes = std::cell::RefCell::new(bytes);
        let fill = |round: &Round, start: usize, room: &mut Room| {
            room.reserve(0, round.stride());
            if own {
                let block = round.begin(&mut room.receive[..round.stride()]);
                block.copy_from_slice(&bytes.borrow()[start..][..round.block]);
            }
        };
        let empty = |round: &Round, start: usize, room: &Room| {
            if !own {
                bytes.borrow_mut()[start..][..round.block].copy_from_slice(&room.receive[HEADER..round.stride()]);
            }
        };
        self.exchange(plan, fill, empty)
    }

    fn leave(&mut self, why: Farewell) {
        self.go(WireError::Left { rank: self.rank, why });
    }
}

/// Copies what came of each replica to where it belongs.
fn spread(round: &Round, start: usize, room: &Room, share: usize, receive: &mut [u8]) {
    let blocks = receive.len().checked_div(share).unwrap_or(0);
    for (rank, block) in room.receive.chunks_exact(round.stride()).take(blocks).enumerate() {
        receive[rank * share + start..][..round.block].copy_from_slice(&block[HEADER..]);
    }
}

impl MpiWire {
    /// Whoever has failed has told the others why.
    fn go(&mut self, why: WireError) {
        if self.failed.is_none() {
            self.failed = Some(why.clone());
            self.desk.go(why, GOING);
        }
    }
}

impl Drop for MpiWire {
    fn drop(&mut self) {
        self.go(WireError::Lost { rank: self.rank });
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::thread;

    use memfit_ir::Replica;

    use super::*;
    use crate::attendance::Attendance;
    use crate::desk::Task;

    const SECONDS: Duration = Duration::from_secs(60);
    const LIMITS: Limits = Limits { stall: SECONDS, patience: SECONDS, grace: Duration::ZERO, chunk: 1000 };

    fn wires(count: usize, limits: Limits) -> (Vec<MpiWire>, Vec<Arc<Desk>>) {
        let desks: Vec<_> = (0..count).map(|rank| Arc::new(Desk::new(Attendance::new(rank, count)))).collect();
        let wire = |(rank, desk): (usize, &Arc<Desk>)| MpiWire::new(rank, count, limits, desk.clone());
        (desks.iter().enumerate().map(wire).collect(), desks)
    }

    /// Does what all couriers do, without MPI, until the first wire goes. No room may be larger than said.
    fn serve(desks: &[Arc<Desk>], most: usize) {
        let mut rooms = Vec::new();
        loop {
            rooms.clear();
            for desk in desks {
                match desk.next(None).expect("a task") {
                    Task::Do(slot, job, room) => {
                        assert!(ROOMS * (room.send.len() + room.receive.len()) <= most);
                        rooms.push((slot, job, room));
                    }
                    Task::Go(why) => {
                        assert!(matches!(why, WireError::Lost { .. }));
                        let ended = |desk: &Arc<Desk>| desk.end(Ok(()));
                        return desks.iter().for_each(ended);
                    }
                }
            }
            let of_all = match &rooms[0].1 {
                Job::Move(round) => vec![*round],
                Job::AddUp(portion) => vec![portion.scatter(), portion.gather()],
            };
            for round in of_all {
                carry(&mut rooms, round);
                for (rank, (_, job, room)) in rooms.iter_mut().enumerate() {
                    if let (Job::AddUp(portion), Call::Scatter) = (job, round.call) {
                        portion.add_up(rank, room);
                    }
                }
            }
            for (desk, (slot, _, room)) in desks.iter().zip(rooms.drain(..)) {
                desk.done(slot, room);
            }
        }
    }

    fn carry(rooms: &mut [(usize, Job, Room)], round: Round) {
        let (size, stride) = (rooms.len(), round.stride());
        for from in 0..size {
            for to in 0..size {
                let (source, target) = match round.call {
                    Call::Scatter => (to * stride, from * stride),
                    Call::Gather => (from * stride, from * stride),
                    Call::AllGather => (0, from * stride),
                    Call::Broadcast { owner } if owner == from && owner != to => (0, 0),
                    Call::Broadcast { .. } => continue,
                };
                let sent = &rooms[from].2;
                let sent = if let Call::Broadcast { .. } = round.call { &sent.receive } else { &sent.send };
                let block = sent[source..][..stride].to_vec();
                let room = &mut rooms[to].2;
                let received = if round.call == Call::Gather { &mut room.send } else { &mut room.receive };
                received[target..][..stride].copy_from_slice(&block);
            }
        }
        for (_, _, room) in rooms {
            let all_the_same = match round.call {
                Call::Broadcast { owner } => round.check(owner, &room.receive),
                Call::Gather => round.check_all(&room.send, size),
                _ => round.check_all(&room.receive, size),
            };
            all_the_same.expect("all do the same");
        }
    }

    /// A replica's sums, and the sum of all.
    struct Numbered(Vec<Vec<f32>>, Vec<f32>);

    impl Numbers for Numbered {
        fn load(&mut self, round: usize, range: Range<usize>, into: &mut [u8]) -> Result<(), WireError> {
            let whole = self.0.get(round).ok_or(WireError::Failed("there is no such sum".into()))?;
            let bytes = whole.iter().flat_map(|number| number.to_ne_bytes()).skip(range.start);
            into.iter_mut().zip(bytes).for_each(|(byte, own)| *byte = own);
            Ok(())
        }

        fn store(&mut self, range: Range<usize>, from: &[u8]) {
            let numbers = from.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
            self.1[range.start / 4..range.end / 4].iter_mut().zip(numbers).for_each(|(total, number)| *total = number);
        }
    }

    /// In lanes of which some replicas have more, in sums of which some are odd.
    fn add_up(wire: &mut MpiWire, numbers: usize) {
        let (rank, size) = (wire.rank(), wire.size());
        for lanes in [size, 2 * size + 1] {
            let replica = Replica { lanes, count: size, rank };
            let number = |rank: usize, round: usize, i: usize| (1 + i * 7 + rank * 31 + round * 11) as f32 * 1.1;
            let sum = Arc::new(Sum::new(4 * numbers, 1 << 20, replica));
            let own = |round| (0..numbers).map(|i| number(rank, round, i)).collect();
            let mut held = Numbered((0..sum.count(rank)).map(own).collect(), vec![0.0; numbers]);
            wire.sum(&sum, &mut held, &mut []).expect("an exchange");
            for (i, total) in held.1.into_iter().enumerate() {
                let parts = replica.all_subtrees().into_iter();
                let mut sums: Vec<f32> = parts.map(|(_, rank, round)| number(rank, round, i)).collect();
                replica.joins().into_iter().for_each(|(left, right)| sums[left] += sums[right]);
                assert_eq!(total, sums[0], "number {i} in {lanes} lanes of {size}");
            }
        }
    }

    fn exchange(wire: &mut MpiWire, share: usize) {
        let (rank, size) = (wire.rank(), wire.size());
        let bytes = |from: usize, to: usize| (0..share).map(move |i| (i + 7 * from + 13 * to) as u8);
        let mut received = vec![0; share * size];
        wire.all_gather(&bytes(rank, 99).collect::<Vec<_>>(), &mut received).expect("an exchange");
        assert_eq!(received, (0..size).flat_map(|from| bytes(from, 99)).collect::<Vec<_>>());
        add_up(wire, share);
        let mut owned: Vec<u8> = bytes(rank, 5).collect();
        wire.broadcast(size - 1, &mut owned).expect("an exchange");
        assert_eq!(owned, bytes(size - 1, 5).collect::<Vec<_>>());
    }

    #[test]
    fn everybody_gets_what_was_sent_to_it_in_however_many_rounds() {
        for count in 1..=4 {
            let (wires, desks) = wires(count, LIMITS);
            thread::scope(|scope| {
                let most = wires[0].room_bytes();
                scope.spawn(move || serve(&desks, most));
                for mut wire in wires {
                    scope.spawn(move || [0, 1, 300, 5000].into_iter().for_each(|share| exchange(&mut wire, share)));
                }
            });
        }
    }

    #[test]
    fn a_courier_that_is_stuck_is_not_waited_for() {
        let stall = Duration::from_millis(40);
        let (mut wires, desks) = wires(3, Limits { stall, patience: stall, grace: stall / 2, ..LIMITS });
        desks[1].with_attendance(|attendance| attendance.waits(2, 0, Instant::now()));
        let end = wires[1].all_gather(&[1], &mut [0; 3]);
        let Err(WireError::Stalled { missing, waited }) = &end else { panic!("{end:?}") };
        assert_eq!(*missing, [0]);
        assert!(*waited >= stall);
        assert_eq!(wires[1].all_gather(&[1], &mut [0; 3]), end);
    }

    #[test]
    fn what_a_courier_fails_of_is_told_now_and_later() {
        let (mut wires, desks) = wires(2, LIMITS);
        let failure = WireError::Lost { rank: 1 };
        desks[0].end(Err(failure.clone()));
        for _ in 0..2 {
            assert_eq!(wires[0].broadcast(0, &mut [0; 9]), Err(failure.clone()));
        }
    }

    #[test]
    fn buffers_that_do_not_fit_each_other_are_refused() {
        let (mut wires, _desks) = wires(2, Limits { grace: Duration::ZERO, ..LIMITS });
        let wire = &mut wires[0];
        let told = |end: Result<(), WireError>| end.expect_err("it does not fit").to_string();
        let expected = "the bytes received are 2, where 2 replicas need 4";
        assert_eq!(told(wire.all_gather(&[0; 2], &mut [0; 2])), expected);
        assert_eq!(told(wire.broadcast(2, &mut [0; 3])), "there is no replica 2 among 2");
    }
}
