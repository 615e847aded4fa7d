//! Files that become visible whole or not at all: written beside their place, made durable, renamed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::Checksum;
use crate::{machine, process};

/// What the name of a file that is not finished ends with; whoever finds one that nobody writes may remove it.
pub const UNFINISHED: &str = ".tmp";

/// A file on its way to its place. Dropped before [`AtomicFile::commit`], it is removed again.
pub struct AtomicFile {
    file: File,
    /// Where it lies until then.
    temporary: PathBuf,
    sum: Checksum,
    faults: Faults,
    done: bool,
    to_sync: ToSync,
}

impl AtomicFile {
    /// In the folder of `path`, which is not touched.
    pub fn create(path: &Path, faults: &Faults) -> io::Result<AtomicFile> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}{UNFINISHED}", std::process::id()));
        let temporary = PathBuf::from(temporary);
        faults.pass()?;
        let file = File::create(&temporary)?;
        let (sum, faults) = (Checksum::default(), faults.clone());
        Ok(AtomicFile { file, temporary, sum, faults, done: false, to_sync: ToSync::new() })
    }

    /// Of what was written so far, with its length.
    pub fn checksum(&self) -> &Checksum {
        &self.sum
    }

    /// Moves the file to `path`, in the same folder; what was there before is there until then.
    pub fn commit(mut self, path: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.file.sync_all()?;
        self.faults.pass()?;
        std::fs::rename(&self.temporary, path)?;
        self.done = true;
        self.faults.pass()?;
        sync_folder(path)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.faults.pass()?;
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.to_sync.wrote(&self.file, written as u64)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.done && self.faults.pass().is_ok() {
            // What went wrong before is the error that counts.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// What was written and is not on the disk yet counts for the control group of the process, where there is one; if that has
/// not much left, the pages are handed to the disk as they come.
struct ToSync {
    /// Bytes since the last time; none where there is memory enough.
    written: Option<u64>,
}

impl ToSync {
    fn new() -> ToSync {
        ToSync { written: machine::group_free().filter(|&free| free < process::PLENTY).map(|_| 0) }
    }

    fn wrote(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        let Some(written) = &mut self.written else { return Ok(()) };
        *written += bytes;
        if *written < process::SYNC_AFTER {
            return Ok(());
        }
        *written = 0;
        file.sync_data()?;
        // Where the advice is not taken, the pages go when something else is wanted.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }
}

/// Makes what happened to a name durable, where folders can be synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Lets a test stop the world after a number of file operations: from then on each of them fails, as if the process
/// were dead. None ever fails by default.
#[derive(Clone, Debug, Default)]
pub struct Faults(Option<Arc<AtomicU64>>);

impl Faults {
    pub fn after(operations: u64) -> Faults {
        Faults(Some(Arc::new(AtomicU64::new(operations))))
    }

    /// To be asked before each operation.
    pub fn pass(&self) -> io::Result<()> {
        let less = |left: u64| left.checked_sub(1);
        match &self.0 {
            Some(left) if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() => {
                Err(io::Error::other("a test stopped it"))
            }
            _ => Ok(()),
        }
    }
}
