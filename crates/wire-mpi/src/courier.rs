//! The thread that does all of a wire's MPI: moves rounds, says that it waits and hears who does, tells the others when this
//! replica goes. It starts calls and looks at them again and again, and waits inside of none.
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
use crate::desk::{Desk, Room, Task};
use crate::mpi::Shared;
use crate::pace::{Pace, sleep_precisely};
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

impl Courier {
    pub fn run(mut self) {
        sleep_precisely();
        let idle = (self.patience > self.stall).then(|| between_words(self.stall) / 4);
        loop {
            let Some(task) = self.desk.next(idle) else {
                self.answer();
                continue;
            };
            match task {
                Task::Move(slot, round, mut room) => {
                    self.move_round(&round, &mut room);
                    self.completed += 1;
                    self.desk.done(slot, room);
                }
                Task::Go(why) => return self.go(why),
            }
        }
    }

    /// Returns when all is well, and else never.
    fn move_round(&mut self, round: &Round, room: &mut Room) {
        let word = waiting(round.number);
        let (send, receive) = (&room.send, &mut room.receive);
        let moved = ferrompi::scope(|scope| {
            // Whoever has gone may have sent its part before: the round would end, and the next one would not.
            let heard = self.hear().and_then(|_| self.post.concerns(round.number));
            let started = heard.and_then(|()| self.start(scope, round, send, receive));
            match started.and_then(|request| self.follow(scope, request, round, &word)) {
                Ok(()) => Ok(()),
                Err(failure) => self.fail(failure),
            }
        });
        let checked = moved.map_err(|e| WireError::Failed(e.to_string())).and_then(|()| self.check(round, room));
        if let Err(failure) = checked {
            self.fail(failure);
        }
    }

    fn start<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        round: &Round,
        send: &'s [u8],
        receive: &'s mut [u8],
    ) -> Result<Request<'s>, WireError> {
        let (communicator, one) = (&self.post.communicator, round.stride());
        let all = one * self.post.size();
        self.post.line.call(|| match round.call {
            Call::AllToAll => communicator.ialltoall(scope, &send[..all], &mut receive[..all]),
            Call::AllGather => communicator.iallgather(scope, &send[..one], &mut receive[..all]),
            Call::Broadcast { owner } => communicator.ibroadcast(scope, &mut receive[..one], owner as i32),
        })
    }

    /// Looks at a round until it is done, and says and hears who waits when that lasts.
    fn follow<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        mut request: Request<'s>,
        round: &Round,
        word: &'s [u8],
    ) -> Result<(), WireError> {
        let (mut since, between) = (Instant::now(), between_words(self.stall));
        let (mut said, mut next_word, mut pace) = (Vec::new(), between, Pace::new());
        let mut last = since;
        for looks in 1u32.. {
            let look = Instant::now();
            let done = self.post.line.call(|| request.test())?.is_some();
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
                self.post.concerns(round.number)?;
                // Whoever says so asks who else does; it is told once.
                if somebody_waits && said.is_empty() {
                    next_word = waited;
                }
            }
            if waited >= self.stall {
                // Somebody may have found out earlier, and who it is.
                self.hear()?;
                self.post.concerns(round.number)?;
                self.check_attendance(round, waited)?;
            }
            if !done && waited >= next_word {
                self.post.say(scope, word, &mut said);
                next_word = waited + between;
            }
            pace.pause(look.elapsed());
        }
        Ok(())
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
    fn check_attendance(&self, round: &Round, waited: Duration) -> Result<(), WireError> {
        let is_over = waited >= self.patience;
        let is_patient = self.patience > self.stall;
        let lately = if is_over && is_patient { Duration::ZERO } else { 2 * between_words(self.stall) };
        let missing = self.desk.with_attendance(|a| a.missing(round.number, Instant::now(), lately));
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

    /// That all did the same.
    fn check(&self, round: &Round, room: &Room) -> Result<(), WireError> {
        if let Call::Broadcast { owner } = round.call {
            return round.check(owner, &room.receive);
        }
        let mut blocks = room.receive.chunks_exact(round.stride()).take(self.post.size()).enumerate();
        blocks.try_for_each(|(rank, block)| round.check(rank, block))
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
