//! Files that become visible whole or not at all: written beside their place, made durable, renamed.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
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
    /// In the folder of `path`, which is not touched; nor is anything else that is there.
    pub fn create(path: &Path, faults: &Faults) -> io::Result<AtomicFile> {
        faults.pass()?;
        for number in 0.. {
            let temporary = temporary(path, number);
            match memfit_files::create_new(&temporary) {
                // A process of the same number left it, in another container or long ago.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                file => {
                    let (file, sum, faults) = (file?, Checksum::default(), faults.clone());
                    return Ok(AtomicFile { file, temporary, sum, faults, done: false, to_sync: ToSync::new() });
                }
            }
        }
        unreachable!("there are enough numbers")
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

/// The file's name, the process's number and, where that is taken, another.
fn temporary(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    if number > 0 {
        name.push(format!("-{number}"));
    }
    name.push(UNFINISHED);
    PathBuf::from(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_has_the_name_of_a_file_on_its_way_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("memfit-atomic-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let (path, mine) = (folder.join("a.json"), folder.join("mine"));
        std::fs::write(&mine, "mine").expect("a file");
        std::os::unix::fs::symlink(&mine, temporary(&path, 0)).expect("a link");
        std::fs::write(temporary(&path, 1), "mine too").expect("a file");
        let mut file = AtomicFile::create(&path, &Faults::default()).expect("it has another name");
        file.write_all(b"new").and_then(|()| file.commit(&path)).expect("it can be written");
        let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
        assert_eq!([read(&path), read(&mine), read(&temporary(&path, 1))], ["new", "mine", "mine too"]);
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
