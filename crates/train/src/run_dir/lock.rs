//! Whose a folder is, and who writes to it. A folder is a run's if its lock says so, or if it holds a checkpoint; in any
//! other nothing may have a name that a run's file has. Until that is known nothing in the folder is written, truncated,
//! removed, or followed if it is a link.

use std::fs::{File, Metadata, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use memfit_files::{Kind, NotAFile, create_new, open_own_to_write};

use super::failed;
use super::names::{CheckpointKind, LOCK, is_of_a_run};
use super::read::read_json;
use crate::error::{Result, TrainError};

/// What a lock says of the folder that it lies in. Those of older versions are empty.
const MARK: &[u8] = b"memfit run\n";

#[derive(Debug)]
pub(super) struct Lock {
    /// Locked until the process ends, however it ends.
    file: File,
    /// The folder itself, whatever lies under its name later.
    folder: Option<File>,
}

impl Lock {
    /// Of a folder in which a run is to begin: one that is a run's, or that has nothing a run would write over.
    pub(super) fn to_begin(folder: &Path) -> Result<Lock> {
        match Lock::of(folder)? {
            Some((lock, Mark::Whole)) => lock.with_files_checked(folder),
            Some((lock, Mark::Empty)) if has_checkpoint(folder) => lock.with_files_checked(folder)?.marked(folder),
            Some((lock, Mark::Empty)) => {
                check_vacant(folder)?;
                lock.marked(folder)
            }
            None if has_checkpoint(folder) => Err(TrainError::RunExists { folder: folder.into() }),
            None => {
                check_vacant(folder)?;
                Lock::make(folder)
            }
        }
    }

    /// Of a folder whose run goes on. A lock that was lost or is empty is made anew, once `is_run` has found the run.
    pub(super) fn to_go_on(folder: &Path, is_run: impl FnOnce() -> Result<()>) -> Result<Lock> {
        let found = Lock::of(folder)?;
        if let Some((lock, Mark::Whole)) = found {
            return lock.with_files_checked(folder);
        }
        is_run()?;
        match found {
            Some((lock, _)) => lock.with_files_checked(folder)?.marked(folder),
            None => Lock::make(folder)?.with_files_checked(folder),
        }
    }

    /// Whether the folder under this path is still the one that was locked.
    pub(super) fn is_in(&self, folder: &Path) -> bool {
        let own = self.folder.as_ref().and_then(|folder| folder.metadata().ok());
        std::fs::metadata(folder).is_ok_and(|there| own.is_none_or(|own| is_same(&own, &there)))
    }

    /// The one that lies there, if it is one.
    fn of(folder: &Path) -> Result<Option<(Lock, Mark)>> {
        let path = folder.join(LOCK);
        let foreign = |kind| TrainError::Foreign { path: path.clone(), kind };
        let mut file = match open_own_to_write(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(NotAFile::in_error(&e).map_or_else(|| failed(&path, e), foreign)),
        };
        // A byte more than there should be.
        let mut start = Vec::new();
        (&mut file).take(MARK.len() as u64 + 1).read_to_end(&mut start).map_err(|e| failed(&path, e))?;
        let mark = match &start[..] {
            MARK => Mark::Whole,
            [] => Mark::Empty,
            _ => return Err(foreign(Kind::File)),
        };
        Ok(Some((Lock::take(file, folder)?, mark)))
    }

    /// Where there was none.
    fn make(folder: &Path) -> Result<Lock> {
        let path = folder.join(LOCK);
        let file = match create_new(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                // Another process was faster.
                return Err(TrainError::Busy { folder: folder.into() });
            }
            Err(e) => return Err(failed(&path, e)),
        };
        Lock::take(file, folder)?.marked(folder)
    }

    /// One that is empty says from now on whose it is: every folder of a run ends with the same bytes.
    fn marked(mut self, folder: &Path) -> Result<Lock> {
        let written = self.file.write_all(MARK).and_then(|()| self.file.sync_all());
        written.map_err(|e| failed(&folder.join(LOCK), e))?;
        Ok(self)
    }

    fn take(file: File, folder: &Path) -> Result<Lock> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(TrainError::Busy { folder: folder.into() }),
            Err(TryLockError::Error(e)) if e.kind() != ErrorKind::Unsupported => Err(failed(&folder.join(LOCK), e)),
            // A file system without locks keeps nobody out, which is no reason not to train.
            Err(TryLockError::Error(_)) | Ok(()) => {
                // Not every system can open a folder.
                Ok(Lock { file, folder: File::open(folder).ok() })
            }
        }
    }

    /// A run makes regular files only: what is anything else under one of its names is somebody's.
    fn with_files_checked(self, folder: &Path) -> Result<Lock> {
        check_entries(folder, |kind| kind == Kind::File)?;
        Ok(self)
    }
}

/// What a lock that may be ours says.
enum Mark {
    Whole,
    /// Of an older version, or of a process that was killed when it had just begun.
    Empty,
}

fn has_checkpoint(folder: &Path) -> bool {
    CheckpointKind::SINGLE.into_iter().any(|which| read_json(folder, which).is_ok())
}

/// Somebody else's file would be written over, or removed.
fn check_vacant(folder: &Path) -> Result<()> {
    check_entries(folder, |_| false)
}

/// What has a name of a run's file must be of a kind that may be there. The lock is looked at when it is opened.
fn check_entries(folder: &Path, may_be: impl Fn(Kind) -> bool) -> Result<()> {
    let here = |e| failed(folder, e);
    for entry in std::fs::read_dir(folder).map_err(here)? {
        let entry = entry.map_err(here)?;
        if is_of_a_run(&entry.file_name()) {
            let kind = Kind::of(entry.file_type().map_err(|e| failed(&entry.path(), e))?);
            if !may_be(kind) {
                return Err(TrainError::Foreign { path: entry.path(), kind });
            }
        }
    }
    Ok(())
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
