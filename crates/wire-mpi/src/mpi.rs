//! MPI as a process has it: begun once, ended at most once. A thread of its own begins and ends it and makes wires; whoever asks
//! for that waits for the thread, and not for ever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferrompi::{Communicator, ThreadLevel};
use memfit_exec::WireError;

use crate::attendance::Attendance;
use crate::courier::Courier;
use crate::desk::Desk;
use crate::ending::Ending;
use crate::launched::launched;
use crate::line::Line;
use crate::meeting::Meetings;
use crate::pace::{Awake, Pace};
use crate::post::Post;
use crate::siblings::{self, COMES, GivesUp, Sibling};
use crate::wire::{Limits, MpiWire};

/// Bytes of a block that one process sends to another, if nothing else is asked for: so few that what is under way between two
/// processes stays in their caches, ...
const BLOCK: usize = 256 << 10;

/// ... and the most that a wire moves at once then, between however many.
const MOST_AT_ONCE: usize = 1 << 20;

/// How much longer than asked for somebody waits for a thread, which keeps to that itself unless a call of MPI keeps it.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// How often it is looked at what other processes show.
const LOOK: Duration = Duration::from_millis(20);

/// Waits are cut into these.
const NAP: Duration = Duration::from_millis(250);

/// How long whoever gives up waits for the others to do so too, so that they have heard why before a launcher ends them.
const PARTING: Duration = Duration::from_secs(1);

/// How long MPI may take to end when nothing is under way. MPICH 4.0 over TCP was seen to hang there.
const ENDING: Duration = Duration::from_secs(10);

/// This process among those that a launcher started. Dropping it gives MPI up: nothing is waited for.
pub struct Mpi {
    asks: Mutex<Sender<Ask>>,
    begun: Begun,
    stall: Duration,
}

/// What is known when MPI has begun.
struct Begun {
    rank: usize,
    size: usize,
    resident_bytes_taken: u64,
    library: String,
}

/// Why MPI did not begin.
pub struct NotBegun {
    pub why: WireError,
    /// Whether this process tells it, of those on its machine for which it did not begin.
    pub tells: bool,
}

impl NotBegun {
    /// Waits a moment for the others: for the one that tells to have told, or for those that are told to have seen it. As soon as one
    /// ends a launcher ends all.
    pub fn leave(&self) {
        if self.tells {
            GivesUp::HasTold.show()
        } else {
            GivesUp::Leaves.show()
        }
        let own = std::process::id();
        let is_waited_for = |other: &Sibling| other.has_come && other.pid != own && other.gives_up.is_none();
        let has_told = |other: &Sibling| other.has_come && other.gives_up == Some(GivesUp::HasTold);
        let mut awake = Awake::new();
        while awake.time() < GRACE {
            let all = siblings::siblings();
            let is_over = match self.tells {
                true => !all.iter().any(is_waited_for),
                false => all.iter().any(has_told),
            };
            if is_over {
                return;
            }
            thread::sleep(LOOK);
        }
    }
}

/// What all wires of a process share.
pub(crate) struct Shared {
    pub line: Line,
    /// Wires that are in use.
    live: AtomicUsize,
    unwell: AtomicBool,
    /// Of wires that are gone: others' words may still come there.
    ended: Mutex<Vec<Post>>,
}

/// What the thread is asked to do, with whom to answer.
enum Ask {
    Wire {
        limits: Limits,
        answer: Answer<MpiWire>,
    },
    Ending {
        answer: Answer<Ending>,
    },
    Communicator {
        answer: Answer<Communicator>,
    },
    /// Answered when all agree; then the other one is told when MPI has ended.
    Finish {
        answer: Answer<()>,
        ended: Sender<()>,
    },
    Abandon {
        answer: Answer<()>,
    },
}

type Answer<T> = Sender<Result<T, WireError>>;

impl Mpi {
    /// Begins MPI. All processes do, and each of them waits at most `stall` for the others, here and where they make wires and
    /// end. Once in a process.
    pub fn init(stall: Duration) -> Result<Mpi, NotBegun> {
        let (asks, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let begun = spawn(COMES, move || serve(answer, asked, stall)).and_then(|()| match heard(answered, stall) {
            Some(begun) => begun,
            None => Err(WireError::Failed(String::new())),
        });
        match begun {
            Ok(begun) => Ok(Mpi { asks: Mutex::new(asks), begun, stall }),
            Err(WireError::Failed(why)) if why.is_empty() => Err(not_begun(stall)),
            // Of this process alone.
            Err(why) => Err(NotBegun { why, tells: true }),
        }
    }

    pub fn rank(&self) -> usize {
        self.begun.rank
    }

    pub fn size(&self) -> usize {
        self.begun.size
    }

    /// Bytes of memory by which this process grew when MPI began; none where that cannot be found out.
    pub fn resident_bytes_taken(&self) -> u64 {
        self.begun.resident_bytes_taken
    }

    /// The library's name and version, as it says them.
    pub fn library(&self) -> &str {
        &self.begun.library
    }

    /// A wire between all processes; they make their wires in the same order. A round of an exchange that does not end within
    /// `stall` fails.
    pub fn wire(&self, stall: Duration) -> Result<MpiWire, WireError> {
        self.wire_of_chunks(stall, self.chunk())
    }

    /// The same, which moves so many bytes at once, about: the same number in all processes. It changes what an exchange takes of
    /// memory and time, and nothing else.
    pub fn wire_of_chunks(&self, stall: Duration, chunk: usize) -> Result<MpiWire, WireError> {
        self.wire_within(Limits { stall, patience: stall, grace: GRACE, chunk })
    }

    /// One for processes that do other things between its exchanges, and longer than others wait: whoever is there is waited for up
    /// to `patience`, and only whoever is gone or stopped is missing after `stall`.
    pub fn patient_wire(&self, stall: Duration, patience: Duration) -> Result<MpiWire, WireError> {
        self.wire_within(Limits { stall, patience: patience.max(stall), grace: GRACE, chunk: self.chunk() })
    }

    fn chunk(&self) -> usize {
        (BLOCK * self.size()).min(MOST_AT_ONCE)
    }

    fn wire_within(&self, limits: Limits) -> Result<MpiWire, WireError> {
        self.ask(self.stall + GRACE, |answer| Ask::Wire { limits, answer })
    }

    /// This process's part in how all end. It waits for nobody.
    pub fn ending(&self) -> Result<Ending, WireError> {
        self.ask(self.stall + GRACE, |answer| Ask::Ending { answer })
    }

    /// Ends MPI when all processes do and all is well with their wires, which are dropped before. Else nothing is ended, and this
    /// is an error; so it is where MPI does not come to its end, which harms nothing that was done before.
    pub fn finish(self) -> Result<(), WireError> {
        let (ended, has_ended) = mpsc::channel();
        self.ask(self.stall + GRACE, |answer| Ask::Finish { answer, ended })?;
        let late = |_| WireError::Failed(format!("MPI does not end within {} s", ENDING.as_secs()));
        has_ended.recv_timeout(ENDING).map_err(late)
    }

    /// Gives MPI up without ending it, and waits a moment for the others to do so too. The process should end soon: MPI is not
    /// told that it does, and launchers call that a failure.
    pub fn abandon(self) {
        // Nothing can be done about a failure here.
        let _ = self.ask(PARTING + GRACE, |answer| Ask::Abandon { answer });
    }

    /// For what is measured beside wires, while these are not in use.
    #[doc(hidden)]
    pub fn communicator(&self) -> Result<Communicator, WireError> {
        self.ask(self.stall + GRACE, |answer| Ask::Communicator { answer })
    }

    fn ask<T>(&self, patience: Duration, ask: impl FnOnce(Answer<T>) -> Ask) -> Result<T, WireError> {
        let (answer, answered) = mpsc::channel();
        // Held until it is answered: processes must ask in one order.
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        asks.send(ask(answer)).map_err(|_| WireError::Failed("MPI has ended".into()))?;
        wait(answered, patience)
    }
}

impl Shared {
    /// Something failed: MPI cannot be ended in order any more.
    pub fn is_unwell(&self) {
        self.unwell.store(true, Ordering::SeqCst);
    }

    /// A wire has gone in order.
    pub fn ended(&self, post: Post) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(post);
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), WireError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(run);
    spawned.map(drop).map_err(|e| WireError::Failed(format!("there is no thread for MPI: {e}")))
}

fn wait<T>(answered: Receiver<Result<T, WireError>>, patience: Duration) -> Result<T, WireError> {
    let late = || Err(WireError::Failed(format!("MPI does not answer within {} s", patience.as_secs())));
    heard(answered, patience).unwrap_or_else(late)
}

/// An answer, unless it does not come in time. Time in which this process was stopped is none.
fn heard<T>(answered: Receiver<Result<T, WireError>>, patience: Duration) -> Option<Result<T, WireError>> {
    let mut awake = Awake::new();
    loop {
        let left = patience.saturating_sub(awake.time());
        match answered.recv_timeout(left.min(NAP)) {
            Ok(answer) => return Some(answer),
            Err(_) if left.is_zero() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Who of this machine keeps MPI from beginning.
fn not_begun(waited: Duration) -> NotBegun {
    let siblings = siblings::siblings();
    let launched = launched();
    let missing = siblings::missing(&siblings, launched.and_then(|l| l.size.filter(|_| l.are_all_here)));
    let seconds = waited.as_secs();
    let why = match missing.is_empty() {
        true => WireError::Failed(format!(
            "not all replicas came within {seconds} s: those that were started on this machine did, so it is others that did not"
        )),
        false => WireError::Stalled { missing, waited },
    };
    let tells = siblings::teller(&siblings).is_none_or(|teller| teller.pid == std::process::id());
    NotBegun { why, tells }
}

/// The thread of MPI. What it holds of MPI is never dropped but where it ends in order, since that would wait for the others.
fn serve(answer: Answer<Begun>, asked: Receiver<Ask>, stall: Duration) {
    let before = resident_bytes();
    let mpi = match begin() {
        Ok(mpi) => mpi,
        Err(failure) => return drop(answer.send(Err(failure))),
    };
    let taken = resident_bytes().saturating_sub(before);
    let world = mpi.world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let library = ferrompi::Mpi::library_version().unwrap_or_default();
    let library = library.lines().next().unwrap_or_default().to_string();
    // Whoever asked may have given up.
    let _ = answer.send(Ok(Begun { rank, size, resident_bytes_taken: taken, library }));
    let shared = Shared { line: Line::default(), live: 0.into(), unwell: false.into(), ended: Mutex::default() };
    let meetings = Meetings::new(mpi.world(), shared.line.clone());
    let mut office = Office { mpi, world, meetings, shared: Arc::new(shared), stall };
    while let Ok(ask) = asked.recv() {
        match ask {
            Ask::Wire { limits, answer } => {
                let communicator = office.communicator(&answer);
                let _ = answer.send(communicator.and_then(|c| office.wire(c, limits)));
            }
            Ask::Ending { answer } => {
                let _ = answer.send(Ending::new(office.mpi.world(), office.shared.line.clone()));
            }
            Ask::Communicator { answer } => drop(answer.send(office.communicator(&answer))),
            Ask::Finish { answer, ended } => return office.finish(answer, ended),
            Ask::Abandon { answer } => {
                let _ = office.agree(Intent::Abandon, PARTING, &answer);
                let _ = answer.send(Ok(()));
                break;
            }
        }
    }
    std::mem::forget(office);
}

fn begin() -> Result<ferrompi::Mpi, WireError> {
    let mpi = ferrompi::Mpi::init_thread(ThreadLevel::Serialized).map_err(|e| WireError::Failed(e.to_string()))?;
    if mpi.thread_level() < ThreadLevel::Serialized {
        std::mem::forget(mpi);
        return Err(WireError::Failed("this MPI library takes calls of one thread only".into()));
    }
    Ok(mpi)
}

/// What the thread of MPI has.
struct Office {
    mpi: ferrompi::Mpi,
    world: Communicator,
    meetings: Meetings,
    shared: Arc<Shared>,
    stall: Duration,
}

/// What a process is about to do with all others.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Intent {
    NewCommunicator = 1,
    Finish = 2,
    Abandon = 3,
}

impl Intent {
    fn name(number: u8) -> &'static str {
        match number {
            1 => "makes a wire",
            2 => "ends",
            _ => "gives up",
        }
    }
}

impl Office {
    /// A duplicate of the world. Making one waits inside of MPI; so all come together first, and nobody waits long.
    fn communicator<T>(&mut self, answer: &Answer<T>) -> Result<Communicator, WireError> {
        self.agree(Intent::NewCommunicator, self.stall, answer)?;
        self.shared.line.call(|| self.world.duplicate())
    }

    fn wire(&self, communicator: Communicator, limits: Limits) -> Result<MpiWire, WireError> {
        let post = Post::new(communicator, self.shared.line.clone());
        let (rank, size) = (post.rank(), post.size());
        let desk = Arc::new(Desk::new(Attendance::new(rank, size)));
        let Limits { stall, patience, .. } = limits;
        let courier = Courier { post, desk: desk.clone(), shared: self.shared.clone(), stall, patience, completed: 0 };
        spawn("wire", move || courier.run())?;
        self.shared.live.fetch_add(1, Ordering::SeqCst);
        Ok(MpiWire::new(rank, size, limits, desk))
    }

    fn finish(mut self, answer: Answer<()>, ended: Sender<()>) {
        let (live, unwell) = (self.shared.live.load(Ordering::SeqCst), self.shared.unwell.load(Ordering::SeqCst));
        let well = live == 0 && !unwell;
        let agreed = self.agree(if well { Intent::Finish } else { Intent::Abandon }, self.stall, &answer);
        let own = match (unwell, live) {
            (true, _) => Err(WireError::Failed("MPI cannot be ended after a failure".into())),
            (_, 1..) => Err(WireError::Failed(format!("MPI cannot be ended while {live} wires are in use"))),
            _ => Ok(()),
        };
        let ending = own.and(agreed);
        let may_end = ending.is_ok();
        let _ = answer.send(ending);
        if !may_end {
            return std::mem::forget(self);
        }
        self.hear_all();
        drop(self.mpi);
        let _ = ended.send(());
    }

    /// What was said on wires that are gone: MPI ends when no message is under way. Their communicators are not freed, which is one
    /// meeting less.
    fn hear_all(&self) {
        let mut posts = std::mem::take(&mut *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner));
        let (since, mut pace) = (Instant::now(), Pace::new());
        for post in &mut posts {
            while !post.all_others_gone() && since.elapsed() < PARTING && post.hear(|_, _| ()).is_ok() {
                pace.pause(Duration::ZERO);
            }
        }
        std::mem::forget(posts);
    }

    /// Comes together with all others, and sees that they are about to do the same. Where they do not come this never returns, but
    /// it answers: MPI may write what they say as long as the process lives.
    fn agree<T>(&mut self, intent: Intent, patience: Duration, answer: &Answer<T>) -> Result<(), WireError> {
        let all = self.meetings.meet(intent as u8, patience, |failure| drop(answer.send(Err(failure))))?;
        let other = all.iter().position(|said| *said != intent as u8);
        let told = |rank: usize| {
            format!("replica {rank} {} where this one {}", Intent::name(all[rank]), Intent::name(intent as u8))
        };
        other.map_or(Ok(()), |rank| Err(WireError::Failed(told(rank))))
    }
}

/// Of this process, as the system counts them; 0 where it does not.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
