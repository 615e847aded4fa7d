//! Records in a file. A file for a run alone has no name; one for later runs gets its name when it is whole:
//!
//! ```text
//! "memfitc1"  records …  a table of offsets, 8 bytes for each element (0: not there)  a trailer
//! ```
//!
//! Nothing in a file is trusted: the table is under the trailer's checksum, each record under its own.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_files::{Kind, NotAFile};

use super::checksum;

const MAGIC: [u8; 8] = *b"memfitc1";

pub(super) struct CacheFile {
    file: File,
    /// Where it lies, if it has a name: to remove it if it is never finished.
    name: Option<PathBuf>,
    /// Where the next record goes.
    pub end: u64,
}

/// What a finished file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub fingerprint: u64,
    pub seed: u64,
    /// Whether what is in it depends on the seed.
    pub random: bool,
    pub count: u64,
}

/// Fingerprint, seed, random, count, where the table begins, checksum, magic.
const TRAILER: u64 = 7 * 8;

impl CacheFile {
    /// A file that is gone with the process, however that ends (where the system allows it).
    pub(super) fn temporary() -> io::Result<CacheFile> {
        let (file, name) = create(&std::env::temp_dir(), "memfit-cache")?;
        // Elsewhere than on unix an open file cannot be removed; it is when it is dropped.
        let name = if cfg!(unix) && fs::remove_file(&name).is_ok() { None } else { Some(name) };
        CacheFile::begin(file, name)
    }

    /// A file that may be finished as `path`, beside which it lies. What dead runs left of such files is removed.
    pub(super) fn partial(path: &Path) -> io::Result<CacheFile> {
        let (folder, stem) = (folder(path), stem(path));
        for entry in fs::read_dir(folder)?.flatten() {
            if is_partial(&entry.file_name(), &stem) && is_dead(&entry.path()) {
                // If it cannot be removed it only takes space.
                let _ = fs::remove_file(entry.path());
            }
        }
        let (file, name) = create(folder, &stem)?;
        file.try_lock().map_err(|e| io::Error::other(e.to_string()))?;
        CacheFile::begin(file, Some(name))
    }

    fn begin(file: File, name: Option<PathBuf>) -> io::Result<CacheFile> {
        let mut file = CacheFile { file, name, end: 0 };
        file.append(&MAGIC)?;
        Ok(file)
    }

    /// A finished file and its table, if it is there and whole.
    pub(super) fn open(path: &Path) -> io::Result<Option<(CacheFile, Trailer, Vec<u64>)>> {
        let file = match memfit_files::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let file = CacheFile { file, name: None, end: 0 };
        // What cannot be read is not whole: it is made anew.
        Ok(file.read_table().ok().flatten().map(|(trailer, table)| (file, trailer, table)))
    }

    /// What is in the way of a cache at `path`, if it would be overwritten and is none: an empty file is not.
    pub(super) fn foreign_file(path: &Path) -> io::Result<Option<&'static str>> {
        let file = match memfit_files::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return match NotAFile::in_error(&e) {
                    Some(Kind::Folder) => {
                        Ok(Some("this is a folder, and a cache is one file; give the cache a name in it"))
                    }
                    Some(_) => Ok(Some("this is no regular file, and a cache is one; give the cache another name")),
                    None => Err(e),
                };
            }
        };
        let mut start = [0; MAGIC.len()];
        let ours = file.metadata()?.len() == 0 || (read_at(&file, &mut start, 0).is_ok() && start == MAGIC);
        Ok((!ours).then_some("this file is no cache and would be overwritten; give the cache another name"))
    }

    fn read_table(&self) -> io::Result<Option<(Trailer, Vec<u64>)>> {
        let len = self.file.metadata()?.len();
        let mut words = [0u8; TRAILER as usize];
        self.read_exact_at(&mut words, len.checked_sub(TRAILER).ok_or(ErrorKind::UnexpectedEof)?)?;
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| words[8 * i + k]));
        let trailer = Trailer { fingerprint: word(0), seed: word(1), random: word(2) != 0, count: word(3) };
        let start = word(4);
        let whole = trailer.count.checked_mul(8).and_then(|t| t.checked_add(start)).is_some_and(|t| t + TRAILER == len);
        if !whole || words[48..] != MAGIC {
            return Ok(None);
        }
        let mut bytes = vec![0; 8 * trailer.count as usize];
        self.read_exact_at(&mut bytes, start)?;
        if checksum(checksum(0, &bytes), &words[..40]) != word(5) {
            return Ok(None);
        }
        let table = bytes.chunks_exact(8).map(|b| u64::from_le_bytes(std::array::from_fn(|k| b[k]))).collect();
        Ok(Some((trailer, table)))
    }

    /// Writes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_at(&self.file, bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        read_at(&self.file, bytes, offset)
    }

    /// A second handle, to read without waiting for who writes.
    pub(super) fn reader(&self) -> io::Result<CacheFile> {
        Ok(CacheFile { file: self.file.try_clone()?, name: None, end: 0 })
    }

    /// Gives it its name: from now on later runs find it.
    pub(super) fn finish(&mut self, path: &Path, trailer: Trailer, table: impl Iterator<Item = u64>) -> io::Result<()> {
        let start = self.end;
        let bytes: Vec<u8> = table.flat_map(u64::to_le_bytes).collect();
        let words = [trailer.fingerprint, trailer.seed, trailer.random as u64, trailer.count, start];
        let words: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let sum = checksum(checksum(0, &bytes), &words);
        for part in [&bytes[..], &words, &sum.to_le_bytes(), &MAGIC] {
            self.append(part)?;
        }
        self.file.sync_all()?;
        if let Some(foreign_file) = CacheFile::foreign_file(path)? {
            return Err(io::Error::new(ErrorKind::AlreadyExists, foreign_file));
        }
        if let Some(name) = &self.name {
            fs::rename(name, path)?;
            self.name = None;
        }
        // So that the name too survives a power cut; not every system can open a folder.
        File::open(folder(path)).and_then(|folder| folder.sync_all()).or(Ok(()))
    }
}

impl Drop for CacheFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If it cannot be removed it only takes space.
            let _ = fs::remove_file(name);
        }
    }
}

const PARTIAL: &str = ".partial";

fn create(folder: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = folder.join(format!("{stem}.{process}-{number}{PARTIAL}"));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&name) {
            Ok(file) => return Ok((file, name)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether it is called as [`create`] calls a file: the stem, the numbers of the process and of the file, `.partial`.
fn is_partial(name: &OsStr, stem: &str) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(PARTIAL));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    rest.and_then(|rest| rest.split_once('-')).is_some_and(|(process, file)| is_number(process) && is_number(file))
}

/// Whether a file was begun as a cache, and nobody writes it any more: whoever does has it locked.
fn is_dead(path: &Path) -> bool {
    matches!(CacheFile::foreign_file(path), Ok(None))
        && memfit_files::open_own(path).is_ok_and(|file| file.try_lock().is_ok())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn stem(path: &Path) -> String {
    path.file_name().map_or_else(|| "memfit-cache".to_string(), |name| name.to_string_lossy().into_owned())
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => (bytes, offset) = (&mut bytes[n..], offset + n as u64),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        (bytes, offset) = (&bytes[n..], offset + n as u64);
    }
    Ok(())
}
