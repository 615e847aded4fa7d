//! How processes end together: each says how it ends and hears how the others do, one of them tells what is wrong, and all leave
//! with its code. Nothing of it depends on how fast anybody is: whoever is there is waited for, and whoever does not come in time is
//! missing. It prints nothing.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use ferrompi::{Communicator, Source};
use memfit_exec::WireError;

use crate::courier::sleep_for_ever;
use crate::line::Line;
use crate::mpi::{GRACE, spawn};
use crate::pace::{Awake, Pace};
use crate::post::{say, sent};
use crate::roll::{End, Roll, Settled, WORD, word};

/// Of these words; the world has no others but those of its meetings.
const TAG: i32 = 2;

/// How long is looked at whether words have gone. They are so short that they have at once, also to whoever is stopped.
const TELLING: Duration = Duration::from_millis(200);

/// A process's part in how all end.
pub struct Ending {
    begin: Sender<Begin>,
}

struct Begin {
    own: End,
    /// Who is not waited for.
    absent: Vec<usize>,
    patience: Duration,
    says: Sender<Said>,
    has_told: Receiver<()>,
}

enum Said {
    /// The caller is to tell what is wrong, and to say when it has.
    Tell,
    Done(Settled),
}

impl Ending {
    pub(crate) fn new(world: Communicator, line: Line) -> Result<Ending, WireError> {
        let (begin, begun) = mpsc::channel::<Begin>();
        spawn("ending", move || {
            if let Ok(begin) = begun.recv() {
                settle(&Post { world, line }, begin);
            }
        })?;
        Ok(Ending { begin })
    }

    /// Says how this process ends, and hears how all others do. The one of them that is to tell what is wrong does it by `tell`, and
    /// none returns before it has. Whoever does not come within `patience` is missing, as those are of whom that is known; where
    /// whoever is to tell goes missing, the next one does.
    pub fn settle(self, own: End, absent: &[usize], patience: Duration, tell: impl FnOnce()) -> Settled {
        let ((says, said), (told, has_told)) = (mpsc::channel(), mpsc::channel());
        let mut tell = Some(tell);
        let begin = Begin { own, absent: absent.to_vec(), patience, says, has_told };
        if self.begin.send(begin).is_ok() {
            // For all to come, and then for one to tell.
            while let Ok(said) = said.recv_timeout(2 * patience + GRACE) {
                match said {
                    Said::Done(settled) => return settled,
                    Said::Tell => {
                        tell.take().into_iter().for_each(|tell| tell());
                        // Its thread waits for that.
                        let _ = told.send(());
                    }
                }
            }
        }
        // MPI keeps the thread: better told twice than not at all.
        tell.filter(|_| own.code > 0).into_iter().for_each(|tell| tell());
        Settled { code: own.code, is_in_order: false }
    }
}

/// The world, as the way of these words.
struct Post {
    world: Communicator,
    line: Line,
}

impl Post {
    /// Takes in what has come.
    fn hear(&self, roll: &mut Roll) {
        let mut bytes = [0u8; WORD];
        // Open MPI answers first and then looks at what has come, so that one question may be one too few.
        let ask = || self.world.iprobe::<u8>(Source::Any, TAG);
        let ask_twice = || ask().and_then(|status| status.map_or_else(ask, |status| Ok(Some(status))));
        while let Ok(Some(status)) = self.line.call(ask_twice) {
            let Ok(word) = self.line.call(|| self.world.recv(&mut bytes, status.source, TAG)) else { return };
            if let Source::Rank(rank) = word.source {
                roll.hear(rank as usize, &bytes[..word.count.unwrap_or(0).min(WORD)]);
            }
        }
    }

    /// Hears until something is so, but not for longer than `patience`; whether it is.
    fn hear_until(&self, roll: &mut Roll, patience: Duration, is_so: impl Fn(&Roll) -> bool) -> bool {
        let (mut awake, mut pace) = (Awake::new(), Pace::new());
        loop {
            self.hear(roll);
            if is_so(roll) {
                return true;
            }
            if awake.time() >= patience {
                return false;
            }
            pace.pause(Duration::ZERO);
        }
    }
}

/// Never returns where a word does not go: MPI may still read it.
fn settle(post: &Post, Begin { own, absent, patience, says, has_told }: Begin) {
    let (rank, size) = (post.world.rank() as usize, post.world.size() as usize);
    let mut roll = Roll::new(rank, size, own, &absent);
    let (comes, tells) = (word(own, false), word(own, true));
    let spoken = ferrompi::scope(|scope| {
        let mut said = Vec::new();
        say(&post.world, &post.line, scope, &comes, TAG, &mut said);
        post.hear_until(&mut roll, patience, Roll::is_complete);
        while let Some(teller) = roll.teller().filter(|_| !roll.has_told()) {
            if teller == rank {
                // Where the caller is gone, so is this process.
                let _ = says.send(Said::Tell);
                let _ = has_told.recv();
                roll.hear(rank, &tells);
                say(&post.world, &post.line, scope, &tells, TAG, &mut said);
            } else if !post.hear_until(&mut roll, patience, Roll::has_told) {
                roll.give_up(teller);
            }
        }
        let (since, mut pace) = (Instant::now(), Pace::new());
        while !sent(&post.line, &mut said) {
            if since.elapsed() >= TELLING {
                let _ = says.send(Said::Done(roll.settled()));
                sleep_for_ever();
            }
            pace.pause(Duration::ZERO);
        }
        Ok(())
    });
    // Without MPI nobody can be told.
    drop(spoken);
    let _ = says.send(Said::Done(roll.settled()));
}
