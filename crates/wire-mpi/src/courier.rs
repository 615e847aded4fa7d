//! The thread that does all of a wire's MPI: moves rounds and adds up pieces, says that it waits and hears who does, tells the
//! others when this replica goes. It starts calls and looks at them again and again, and waits inside of none.
//!
//! MPI reads and writes the buffers of a call until the call is complete, and a collective call cannot be cancelled. The library
//! has calls live in a scope, which borrows their buffers and waits at its end for all of them. So where a round fails this thread
//! never leaves the scope: it tells the others and the caller, and sleeps with its room until the process ends. What was the
//! caller's own has been copied, and is not touched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrompi::{Request, Scope};
use memfit_exec::WireError;

use crate::attendance::between_words;
use crate::cut::{Call, Round};
use crate::desk::{Desk, Job, Room, Task};
use crate::mpi::Shared;
use crate::pace::{Pace, sleep_precisely};
use crate::portion::Portion;
use crate::post::Post;
use crate::word::{Word, waiting};

/// How long the others' being told is looked at. Words are so short that they are gone at once, also to whoever is stopped.
const TELLING: Duration = Duration::from_millis(200);

/// How often what the others say is looked at while a round goes fast: every so many looks at the round.
const LOOKS_PER_HEARING: u32 = 16;

pub(crate) struct Courier {
    pub post: Post,
    pub desk: Arc<Desk>,
    pub shared: Arc<Shared>,
    pub stall: Duration,
    /// How long others are waited for that are there. Where that is longer, this one answers whoever waits, while it has no round.
    pub patience: Duration,
    /// Rounds.
    pub completed: u64,
}

/// A piece that is on its way.
struct Held {
    slot: usize,
    portion: Portion,
    room: Room,
}

impl Courier {
    pub fn run(mut self) {
        sleep_precisely();
        loop {
            let ended = match self.next_task() {
                Task::Do(slot, Job::Move(round), mut room) => {
                    self.move_round(&round, &mut room);
                    self.desk.done(slot, room);
                    Ok(())
                }
                Task::Do(slot, Job::AddUp(portion), room) => self.sum(Held { slot, portion, room }),
                Task::Go(why) => Err(why),
            };
            if let Err(why) = ended {
                return self.go(why);
            }
        }
    }

    /// Until there is one, answers whoever waits for this process.
    fn next_task(&mut self) -> Task {
        let idle = (self.patience > self.stall).then(|| between_words(self.stall) / 4);
        loop {
            match self.desk.next(idle) {
                Some(task) => return task,
                None => self.answer(),
            }
        }
    }

    /// Returns when all is well, and else never.
    fn move_round(&mut self, round: &Round, room: &mut Room) {
        let word = waiting(round.number);
        let Room { send, receive } = &mut *room;
        self.meet(round.number, |courier, scope| {
            let request = courier.start(scope, round, send, receive)?;
            courier.follow(scope, [Some(request), None], &word, round.number)
        });
        self.go_on(match round.call {
            Call::Broadcast { owner } => round.check(owner, &room.receive),
            _ => round.check_all(&room.receive, self.post.size()),
        });
        self.completed = round.number + 1;
    }

    /// Brings pieces to who adds up what of them, and back, until all have been; or until this replica goes, and why.
    fn sum(&mut self, mut held: Held) -> Result<(), WireError> {
        self.step(None, Some(&mut held));
        loop {
            let is_last = held.portion.range.end == held.portion.sum.total;
            let mut next = if is_last { None } else { Some(self.next_piece()?) };
            self.step(Some(&mut held), next.as_mut());
            self.desk.done(held.slot, held.room);
            match next {
                Some(next) => held = next,
                None => return Ok(()),
            }
        }
    }

    fn next_piece(&mut self) -> Result<Held, WireError> {
        match self.next_task() {
            Task::Do(slot, Job::AddUp(portion), room) => Ok(Held { slot, portion, room }),
            Task::Do(_, Job::Move(_), _) => self.fail(WireError::Failed("a sum was broken off".into())),
            Task::Go(why) => Err(why),
        }
    }

    /// While the shares of one piece are on their way to who adds them up, adds up those of the piece before, and brings that to
    /// all. Returns when all is well, and else never.
    fn step(&mut self, mut before: Option<&mut Held>, mut next: Option<&mut Held>) {
        let scatter = next.as_ref().map(|held| held.portion.scatter());
        let gather = before.as_ref().map(|held| held.portion.gather());
        let Some(number) = scatter.or(gather).map(|round| round.number) else { return };
        let (rank, size, word) = (self.post.rank(), self.post.size(), waiting(number));
        let moved = (before.as_deref_mut(), next.as_deref_mut());
        self.meet(number, |courier, scope| {
            let (before, next) = moved;
            let mut requests = [None, None];
            if let Some((Held { room: Room { send, receive }, .. }, round)) = next.zip(scatter) {
                requests[0] = Some(courier.start(scope, &round, send, receive)?);
            }
            if let Some((Held { room, portion, .. }, round)) = before.zip(gather) {
                portion.add_up(rank, room);
                requests[1] = Some(courier.start(scope, &round, &mut room.send, &mut room.receive)?);
            }
            courier.follow(scope, requests, &word, number)
        });
        let scattered = next.zip(scatter).map_or(Ok(()), |(held, round)| round.check_all(&held.room.receive, size));
        let gathered = before.zip(gather).map_or(Ok(()), |(held, round)| round.check_all(&held.room.send, size));
        self.go_on(scattered.and(gathered));
        self.completed = number + 1;
    }

    /// Has the calls of a round live in a scope, which is left only if all is well.
    fn meet<'env>(
        &mut self,
        number: u64,
        calls: impl for<'s> FnOnce(&mut Courier, &'s Scope<'s, 'env>) -> Result<(), WireError>,
    ) {
        let moved = ferrompi::scope(|scope| match self.concerns(number).and_then(|()| calls(self, scope)) {
            Ok(()) => Ok(()),
            Err(failure) => self.fail(failure),
        });
        self.go_on(moved.map_err(|e| WireError::Failed(e.to_string())));
    }

    fn go_on(&mut self, how: Result<(), WireError>) {
        if let Err(failure) = how {
            self.fail(failure);
        }
    }

    /// Why a round will not end, if somebody has gone before it: whoever has may have sent its part of this one before, and not of
    /// the next.
    fn concerns(&mut self, number: u64) -> Result<(), WireError> {
        self.hear()?;
        self.post.concerns(number)
    }

    fn start<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        round: &Round,
        send: &'s mut [u8],
        receive: &'s mut [u8],
    ) -> Result<Request<'s>, WireError> {
        let (communicator, one) = (&self.post.communicator, round.stride());
        let all = one * self.post.size();
        self.post.line.call(|| match round.call {
            Call::Scatter => communicator.ialltoall(scope, &send[..all], &mut receive[..all]),
            Call::Gather => communicator.iallgather_inplace(scope, &mut send[..all]),
            Call::AllGather => communicator.iallgather(scope, &send[..one], &mut receive[..all]),
            Call::Broadcast { owner } => communicator.ibroadcast(scope, &mut receive[..one], owner as i32),
        })
    }

    /// Looks at calls until they are done, and says and hears who waits when that lasts.
    fn follow<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        mut requests: [Option<Request<'s>>; 2],
        word: &'s [u8],
        number: u64,
    ) -> Result<(), WireError> {
        let (mut since, between) = (Instant::now(), between_words(self.stall));
        let (mut said, mut next_word, mut pace) = (Vec::new(), between, Pace::new());
        let mut last = since;
        for looks in 1u32.. {
            let look = Instant::now();
            let done = self.are_done(&mut requests)?;
            if done && self.post.sent(&mut said) {
                return Ok(());
            }
            let now = Instant::now();
            let asleep = now - std::mem::replace(&mut last, now);
            if asleep > between {
                // This process was stopped: nobody else kept it waiting.
                since += asleep;
            }
            let waited = now - since;
            if !done && looks % LOOKS_PER_HEARING == 0 {
                let somebody_waits = self.hear()?;
                self.post.concerns(number)?;
                // Whoever says so asks who else does; it is told once.
                if somebody_waits && said.is_empty() {
                    next_word = waited;
                }
            }
            if waited >= self.stall {
                // Somebody may have found out earlier, and who it is.
                self.concerns(number)?;
                self.check_attendance(number, waited)?;
            }
            if !done && waited >= next_word {
                self.post.say(scope, word, &mut said);
                next_word = waited + between;
            }
            pace.pause(look.elapsed());
        }
        Ok(())
    }

    fn are_done(&self, requests: &mut [Option<Request<'_>>]) -> Result<bool, WireError> {
        let mut all = true;
        for request in requests.iter_mut().flatten().filter(|request| !request.is_completed()) {
            all &= self.post.line.call(|| request.test())?.is_some();
        }
        Ok(all)
    }

    /// Whether somebody said that it waits.
    fn hear(&mut self) -> Result<bool, WireError> {
        let mut somebody = false;
        let desk = &self.desk;
        self.post.hear(|rank, round| {
            somebody |= round.is_some();
            desk.with_attendance(|attendance| match round {
                Some(round) => attendance.waits(rank, round, Instant::now()),
                None => attendance.works(rank, Instant::now()),
            });
        })?;
        Ok(somebody)
    }

    /// That nobody is missing; and when patience is over, that nobody works at something else.
    fn check_attendance(&self, number: u64, waited: Duration) -> Result<(), WireError> {
        let is_over = waited >= self.patience;
        let is_patient = self.patience > self.stall;
        let lately = if is_over && is_patient { Duration::ZERO } else { 2 * between_words(self.stall) };
        let missing = self.desk.with_attendance(|a| a.missing(number, Instant::now(), lately));
        if !missing.is_empty() {
            return Err(WireError::Stalled { missing, waited });
        }
        let seconds = waited.as_secs();
        let stuck = || WireError::Failed(format!("all replicas wait, but an exchange did not end within {seconds} s"));
        if is_over { Err(stuck()) } else { Ok(()) }
    }

    /// Tells whoever waits that this process is there.
    fn answer(&mut self) {
        // What goes wrong is told with the next round.
        if self.hear() == Ok(true) {
            self.say(&Word::Works.encode(self.post.rank()), WireError::Lost { rank: self.post.rank() });
        }
    }

    /// Ends this thread's work without leaving whatever scope it is in.
    fn fail(&self, why: WireError) -> ! {
        self.shared.is_unwell();
        self.tell(&why);
        self.desk.end(Err(why));
        sleep_for_ever()
    }

    fn go(self, why: WireError) {
        if !matches!(why, WireError::Lost { .. }) {
            self.shared.is_unwell();
        }
        self.tell(&why);
        self.shared.ended(self.post);
        self.desk.end(Ok(()));
    }

    /// Tells all others; returns when they are told, and else never.
    fn tell(&self, why: &WireError) {
        let word = Word::Goes { completed: self.completed, why: why.clone() };
        self.say(&word.encode(self.post.rank()), why.clone());
    }

    /// Returns when all others have been sent a word, and else never: `why` is then what this wire failed with.
    fn say(&self, word: &[u8], why: WireError) {
        let told = ferrompi::scope(|scope| {
            let (mut said, since, mut pace) = (Vec::new(), Instant::now(), Pace::new());
            self.post.say(scope, word, &mut said);
            while !self.post.sent(&mut said) {
                if since.elapsed() >= TELLING {
                    self.shared.is_unwell();
                    self.desk.end(Err(why));
                    sleep_for_ever();
                }
                pace.pause(Duration::ZERO);
            }
            Ok(())
        });
        // Without MPI nobody can be told, and nothing is under way.
        drop(told);
    }
}

/// Keeps what MPI may still touch.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
