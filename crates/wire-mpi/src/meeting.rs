//! Meetings of all processes where they make wires and end: each says what it is about to do. Whoever waits says so, and whoever is
//! not heard of is named.

use std::time::{Duration, Instant};

use ferrompi::{Communicator, Request, Scope, Source};
use memfit_exec::WireError;

use crate::attendance::{Attendance, between_words};
use crate::courier::sleep_for_ever;
use crate::line::Line;
use crate::pace::{Awake, Pace};
use crate::post::{say, sent};

/// Of words that say that somebody waits; the world has no others but those of the end.
const TAG: i32 = 3;

pub(crate) struct Meetings {
    world: Communicator,
    line: Line,
    attendance: Attendance,
    /// How many there were.
    count: u64,
}

impl Meetings {
    pub fn new(world: Communicator, line: Line) -> Meetings {
        let attendance = Attendance::new(world.rank() as usize, world.size() as usize);
        Meetings { world, line, attendance, count: 0 }
    }

    /// What each process says, when all have come. Where somebody does not come within `patience` this fails, and never returns: MPI
    /// may write what they say as long as the process lives.
    pub fn meet(&mut self, says: u8, patience: Duration, fails: impl FnOnce(WireError)) -> Result<Vec<u8>, WireError> {
        let (own, mut all) = ([says], vec![0; self.world.size() as usize]);
        let number = self.count;
        self.count += 1;
        let word = [number];
        let met = ferrompi::scope(|scope| {
            let started = self.line.call(|| self.world.iallgather(scope, &own, &mut all));
            let mut said = Vec::new();
            let followed = started.and_then(|request| self.follow(scope, request, &word, &mut said, patience));
            if let Err(failure) = followed {
                fails(failure);
                sleep_for_ever();
            }
            Ok(())
        });
        met.map_err(|e| WireError::Failed(e.to_string()))?;
        Ok(all)
    }

    fn follow<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        mut request: Request<'s>,
        word: &'s [u64; 1],
        said: &mut Vec<Request<'s>>,
        patience: Duration,
    ) -> Result<(), WireError> {
        let (mut awake, mut pace, between) = (Awake::new(), Pace::new(), between_words(patience));
        let mut next_word = between;
        while !(self.line.call(|| request.test())?.is_some() && sent(&self.line, said)) {
            let waited = awake.time();
            // Whoever says so asks who else does; it is told once.
            if self.hear()? && said.is_empty() {
                next_word = waited;
            }
            if waited >= patience {
                let missing = self.attendance.missing(word[0], Instant::now(), 2 * between);
                let stuck = || format!("all replicas wait, but did not meet within {} s", waited.as_secs());
                return Err(match missing.is_empty() {
                    true => WireError::Failed(stuck()),
                    false => WireError::Stalled { missing, waited },
                });
            }
            if waited >= next_word {
                say(&self.world, &self.line, scope, word, TAG, said);
                next_word = waited + between;
            }
            pace.pause(Duration::ZERO);
        }
        self.hear().map(drop)
    }

    /// Whether somebody said that it waits.
    fn hear(&mut self) -> Result<bool, WireError> {
        let (mut somebody, mut number) = (false, [0u64]);
        // Open MPI answers first and then looks at what has come, so that one question may be one too few.
        let ask = || self.world.iprobe::<u64>(Source::Any, TAG);
        let ask_twice = || ask().and_then(|status| status.map_or_else(ask, |status| Ok(Some(status))));
        while let Some(status) = self.line.call(ask_twice)? {
            let word = self.line.call(|| self.world.recv(&mut number, status.source, TAG))?;
            if let Source::Rank(rank) = word.source {
                self.attendance.waits(rank as usize, number[0], Instant::now());
                somebody = true;
            }
        }
        Ok(somebody)
    }
}
