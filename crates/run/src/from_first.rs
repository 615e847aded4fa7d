//! What the first of several processes reads, and all others are given: run files, what a run's folder says of it, what it goes on
//! from. No other needs to have any of these, and what they have under the same names is not looked at.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use memfit::exec::{Checksum, ExecError, WireError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::{RunConfig, RunText};
use crate::error::{Result, RunError};
use crate::replicas::Peers;
use crate::train::peers::{lost, meet, started_with};

/// The most bytes that are given at once: of a few texts, none of them large.
const MOST: usize = 256 << 20;

/// So often whoever works says that it is there.
const BEAT: Duration = Duration::from_secs(5);

/// The runs that a process is started with.
pub struct StartedRuns {
    /// One that says nothing where there is neither file nor folder.
    pub configs: Vec<RunConfig>,
    /// Where paths begin that do not say it, where that is not here.
    folder: Option<PathBuf>,
}

/// Those of files and folders, as the first process has them.
#[derive(Serialize, Deserialize)]
struct Texts {
    runs: Vec<RunText>,
    folder: Option<PathBuf>,
}

impl StartedRuns {
    /// Reads run files and folders of runs; of several processes, which all are started with the same, the first does.
    pub fn read(files: &[PathBuf], resume: &[PathBuf], peers: Option<&dyn Peers>) -> Result<StartedRuns> {
        peers.map_or(Ok(()), |peers| meet(peers, &[started_with(files, resume)]))?;
        let folder = std::env::current_dir().ok();
        let Texts { runs, folder: of_first } = from_first(peers, || {
            let files = files.iter().map(|file| RunText::of_file(file));
            let runs = files.chain(resume.iter().map(|path| RunText::of_run(path))).collect::<Result<_>>()?;
            Ok(Texts { runs, folder: folder.clone() })
        })?;
        let mut configs = runs.into_iter().map(RunConfig::of_text).collect::<Result<Vec<_>>>()?;
        if configs.is_empty() {
            configs.push(RunConfig::default());
        }
        Ok(StartedRuns { configs, folder: of_first.filter(|first| folder.as_ref() != Some(first)) })
    }

    /// When all is said that a process may say itself: paths mean what they mean to the first process.
    pub fn settled(mut self) -> Vec<RunConfig> {
        for config in &mut self.configs {
            self.folder.iter().for_each(|folder| config.take_paths_from(folder));
        }
        self.configs
    }
}

/// What is read by the first process, and by no other. All have to call it.
pub(crate) fn from_first<T: Serialize + DeserializeOwned + Send>(
    peers: Option<&dyn Peers>,
    read: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    match peers {
        None => read(),
        Some(peers) if peers.rank() == 0 => {
            let read = work_among(peers, read)?;
            give(peers, &read)?;
            Ok(read)
        }
        Some(peers) => {
            wait_for_all(peers)?;
            take(peers)
        }
    }
}

/// What the first of several processes does, and nobody else; the others wait however long it takes, and have nothing of it.
pub fn by_first<T: Send>(peers: &dyn Peers, work: impl FnOnce() -> T + Send) -> Result<Option<T>> {
    if peers.rank() == 0 { work_among(peers, || Ok(Some(work()))) } else { wait_for_all(peers).map(|()| None) }
}

/// Works as long as it takes, while all others hear that this process is there; they work too, or wait: see [`wait_for_all`]. Whoever
/// fails does not come any more, and is to leave.
pub(crate) fn work_among<T: Send>(peers: &dyn Peers, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let (working, ended) = channel::<()>();
        let worker = thread::Builder::new().spawn_scoped(scope, move || {
            let _working = working;
            work()
        });
        let worker = worker.map_err(|source| ExecError::Threads { threads: 1, source })?;
        while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            are_all_done(peers, false)?;
        }
        let done = worker.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        wait_for_all(peers)?;
        Ok(done)
    })
}

/// Waits until all others have done their work. All processes have to call this, or [`work_among`].
pub(crate) fn wait_for_all(peers: &dyn Peers) -> Result<()> {
    while !are_all_done(peers, true)? {}
    Ok(())
}

fn are_all_done(peers: &dyn Peers, is_done: bool) -> Result<bool> {
    let all = peers.gather(&[u8::from(is_done)]).map_err(lost)?;
    Ok(all.iter().all(|said| said[..] == [1]))
}

fn give<T: Serialize>(peers: &dyn Peers, value: &T) -> Result<()> {
    let mut words = serde_json::to_vec(value).map_err(|e| RunError::conflict(e.to_string()))?;
    if words.len() > MOST {
        let problem =
            format!("what all processes need of the run's files has {} bytes, and may have {MOST}", words.len());
        return Err(RunError::conflict(problem));
    }
    let mut head = [words.len() as u64, Checksum::of_bytes(&words)];
    peers.hand_out(bytemuck::cast_slice_mut(&mut head)).map_err(lost)?;
    peers.hand_out(&mut words).map_err(lost)
}

fn take<T: DeserializeOwned>(peers: &dyn Peers) -> Result<T> {
    let wrong = |problem: String| lost(WireError::Failed(format!("what replica 0 gives cannot be read: {problem}")));
    let mut head = [0u64; 2];
    peers.hand_out(bytemuck::cast_slice_mut(&mut head)).map_err(lost)?;
    let length = usize::try_from(head[0]).ok().filter(|length| *length <= MOST);
    let length = length.ok_or_else(|| wrong(format!("it has {} bytes", head[0])))?;
    let mut words = vec![0; length];
    peers.hand_out(&mut words).map_err(lost)?;
    if Checksum::of_bytes(&words) != head[1] {
        return Err(wrong("its checksum is another".into()));
    }
    serde_json::from_slice(&words).map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use memfit::exec::{Farewell, ThreadWire, Wire, gather_words, thread_wires};

    use super::*;
    use crate::neighbours::Neighbours;

    /// Threads in place of processes.
    struct Threads {
        wire: Mutex<ThreadWire>,
        /// Which byte of what is handed out arrives changed.
        damages: Option<usize>,
    }

    impl Threads {
        fn with_wire<T>(&self, exchange: impl FnOnce(&mut ThreadWire) -> T) -> T {
            exchange(&mut self.wire.lock().expect("no panic"))
        }
    }

    impl Peers for Threads {
        fn rank(&self) -> usize {
            self.with_wire(|wire| wire.rank())
        }

        fn size(&self) -> usize {
            self.with_wire(|wire| wire.size())
        }

        fn neighbours(&self) -> Neighbours {
            Neighbours::NONE
        }

        fn resident_bytes_taken(&self) -> u64 {
            0
        }

        fn gather(&self, words: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
            self.with_wire(|wire| gather_words(wire, words))
        }

        fn hand_out(&self, bytes: &mut [u8]) -> Result<(), WireError> {
            self.with_wire(|wire| wire.broadcast(0, bytes))?;
            if let Some(at) = self.damages.filter(|_| self.rank() > 0) {
                let at = at % bytes.len();
                bytes[at] ^= 0x40;
            }
            Ok(())
        }

        fn wire(&self, _: Duration) -> Result<Box<dyn Wire>, WireError> {
            Err(WireError::Lost { rank: 0 })
        }
    }

    /// What three processes make of the same. Whoever fails leaves.
    fn together<T: Send>(damages: Option<usize>, each: impl Fn(&Threads) -> Result<T> + Sync) -> Vec<Result<T>> {
        let run = |wire| {
            let peers = Threads { wire: Mutex::new(wire), damages };
            each(&peers).inspect_err(|e| {
                let why = Farewell { kind: 4, message: e.to_string() };
                peers.with_wire(|wire| wire.leave(why));
            })
        };
        thread::scope(|scope| {
            let wires = thread_wires(3, Duration::from_secs(60)).into_iter();
            let threads: Vec<_> = wires.map(|wire| scope.spawn(|| run(wire))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    fn words(ends: Vec<Result<Vec<String>>>) -> Vec<String> {
        ends.into_iter().map(|end| end.map_or_else(|e| e.to_string(), |words| words.join(" "))).collect()
    }

    #[test]
    fn what_the_first_reads_all_have_and_nobody_else_reads() {
        let ends = together(None, |peers| {
            let rank = peers.rank();
            from_first(Some(peers), || {
                assert_eq!(rank, 0);
                Ok(vec!["a\n\"b\"".to_string(), "é".to_string()])
            })
        });
        assert_eq!(words(ends), ["a\n\"b\" é"; 3]);
        assert_eq!(from_first(None, || Ok(7)).expect("there are no others"), 7);
    }

    #[test]
    fn what_the_first_does_alone_the_others_wait_for() {
        let done = Mutex::new(Vec::new());
        let ends = together(None, |peers| {
            let work = || done.lock().expect("no panic").push(peers.rank());
            let had = by_first(peers, work)?.is_some();
            assert_eq!(*done.lock().expect("no panic"), [0], "nobody goes on before it is done");
            Ok(vec![had.to_string()])
        });
        assert_eq!(words(ends), ["true", "false", "false"]);
    }

    #[test]
    fn what_the_first_cannot_read_all_hear_of() {
        let read = || RunText::of_file(Path::new("nowhere.toml")).map(|_| Vec::new());
        let ends = together(None, |peers| from_first(Some(peers), read));
        for (rank, said) in words(ends).into_iter().enumerate() {
            assert!(said.contains("nowhere.toml"), "{said}");
            assert_eq!(said.contains("replica 0: "), rank > 0, "{said}");
        }
    }

    #[test]
    fn what_arrives_otherwise_than_it_was_given_is_refused() {
        for damages in [3, 7, 12] {
            let ends = together(Some(damages), |peers| from_first(Some(peers), || Ok(vec!["words".to_string()])));
            let said = words(ends);
            assert!(said[1..].iter().all(|said| said.contains("what replica 0 gives cannot be read")), "{said:?}");
        }
    }

    #[test]
    fn files_are_those_of_the_first_process_and_named_alike_by_all() {
        let folder = std::env::temp_dir().join(format!("memfit-from-first-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let file = folder.join("run.toml");
        std::fs::write(&file, "[data]\ntrain = \"photos\"\n[train]\nbatch = 7\n").expect("a file");
        let read = |peers: &Threads, files: &[PathBuf]| {
            let runs = StartedRuns::read(files, &[], Some(peers))?.settled();
            Ok(runs.iter().map(|run| format!("{:?} {:?}", run.train.batch, run.data.train)).collect())
        };
        let expected = format!("Some(7) {:?}", Some(folder.join("photos")));
        assert_eq!(words(together(None, |peers| read(peers, std::slice::from_ref(&file)))), [&*expected; 3]);
        let other = |peers: &Threads| if peers.rank() == 2 { "other.toml".into() } else { file.clone() };
        for said in words(together(None, |peers| read(peers, &[other(peers)]))) {
            assert!(said.contains("replica 2 differs from replica 0 in its run file: other.toml"), "{said}");
        }
        std::fs::remove_dir_all(folder).expect("it was made here");
    }
}
