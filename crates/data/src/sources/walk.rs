//! Which files lie in a folder and below. Hidden ones are passed over; the order is by name, on every machine.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::Builder;

use memfit_ir::fingerprint;

use super::left_out::{self, LeftOut};
use super::pool_vec::StringList;
use super::{fingerprint_of, io, no_room_is_final};
use crate::error::{DataError, Result};
use crate::memory::BytePool;

/// The image files below a folder, as paths relative to it, sorted.
#[derive(Debug)]
pub(super) struct Images {
    pub names: StringList,
    /// Files that are no JPEG or PNG by their names.
    pub left_out: Vec<LeftOut>,
    /// Of names, sizes and times, in whatever order the folder gives them.
    pub fingerprint: u64,
}

/// Deeper than this there is a link that leads back.
const DEPTH: usize = 32;

pub(super) fn images(root: &Path, pool: &BytePool) -> Result<Images> {
    let mut found = Images { names: StringList::new(pool)?, left_out: Vec::new(), fingerprint: 0 };
    let listed = visit(root, "", 0, &mut found);
    no_room_is_final(format!("the list of files in {}", root.display()), pool, listed)?;
    // In the order of the folder, in which disks are quickest.
    found.fingerprint = fingerprints(root, &found.names);
    found.names.sort_by(|name| name);
    Ok(found)
}

/// The folders right inside of a folder, sorted.
pub(super) fn folders(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(root)? {
        let entry = entry?;
        if entry.is_folder() {
            names.push(entry.name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The files right inside of a folder, which lie in none of its folders.
pub(super) fn loose_files(root: &Path) -> Result<Vec<LeftOut>> {
    let mut loose = Vec::new();
    for entry in entries(root)? {
        let entry = entry?;
        if !entry.is_folder() {
            left_out::add(&mut loose, &entry.path, 1);
        }
    }
    Ok(loose)
}

pub(super) fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    ["jpg", "jpeg", "png"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

fn visit(root: &Path, below: &str, depth: usize, found: &mut Images) -> Result<()> {
    let folder = root.join(below);
    if depth > DEPTH {
        let problem = format!("it lies more than {DEPTH} folders deep; is there a link that leads back? Remove it");
        return Err(DataError::source(folder.display(), problem));
    }
    for entry in entries(&folder)? {
        let entry = entry?;
        let (is_folder, path) = (entry.is_folder(), entry.path);
        let relative = if below.is_empty() { entry.name } else { format!("{below}/{}", entry.name) };
        if is_folder {
            visit(root, &relative, depth + 1, found)?;
        } else if is_image(&path) {
            // A link that leads nowhere is listed all the same: reading it says so, at its place.
            found.names.push(&relative)?;
        } else {
            left_out::add(&mut found.left_out, &path, 1);
        }
    }
    Ok(())
}

/// Threads that look at files: the system answers several at once, and mostly waits for a disk.
const LOOKERS: usize = 8;
/// Fewer files a thread are not worth it.
const FEW: usize = 100;
/// Bytes of their stacks: a path and what the system says of it.
const STACK: usize = 256 << 10;

/// The sum of the numbers of all files, so that their order does not matter.
fn fingerprints(root: &Path, names: &StringList) -> u64 {
    let of = |name: &str| match fs::metadata(root.join(name)) {
        Ok(metadata) => fingerprint_of(name, &metadata),
        Err(_) => fingerprint(name),
    };
    let sum = |first: usize, step: usize| {
        (first..names.len()).step_by(step).filter_map(|i| names.get(i)).map(of).fold(0, u64::wrapping_add)
    };
    let (sum, parts) = (&sum, (names.len() / FEW).clamp(1, LOOKERS));
    std::thread::scope(|scope| {
        let start = |i| (i, Builder::new().stack_size(STACK).spawn_scoped(scope, move || sum(i, parts)));
        let threads: Vec<_> = (1..parts).map(start).collect();
        let own = sum(0, parts);
        threads.into_iter().fold(own, |total, (i, thread)| {
            // What found no thread is done here.
            let part = thread.map_or_else(|_| sum(i, parts), |t| t.join().unwrap_or_else(|e| resume_unwind(e)));
            total.wrapping_add(part)
        })
    })
}

/// What is in a folder.
struct Entry {
    name: String,
    path: PathBuf,
    /// What the folder says of it; none where it does not.
    kind: Option<fs::FileType>,
}

impl Entry {
    /// Follows links. The system is asked only where the folder itself does not say it.
    fn is_folder(&self) -> bool {
        match self.kind {
            Some(kind) if !kind.is_symlink() => kind.is_dir(),
            Some(_) | None => self.path.is_dir(),
        }
    }
}

/// What is in a folder and not hidden.
fn entries(folder: &Path) -> Result<impl Iterator<Item = Result<Entry>>> {
    let read = fs::read_dir(folder).map_err(|e| missing(folder, e))?;
    let folder = folder.to_path_buf();
    Ok(read.filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => return Some(Err(io(&folder, e))),
        };
        match entry.file_name().into_string() {
            Ok(name) if name.starts_with('.') => None,
            Ok(name) => Some(Ok(Entry { name, path: entry.path(), kind: entry.file_type().ok() })),
            Err(_) => Some(Err(DataError::source(entry.path().display(), "its name is not UTF-8; rename it"))),
        }
    }))
}

fn missing(folder: &Path, error: std::io::Error) -> DataError {
    match error.kind() {
        std::io::ErrorKind::NotFound => DataError::source(folder.display(), "there is no such folder; check the path"),
        std::io::ErrorKind::NotADirectory => {
            DataError::source(folder.display(), "this is a file; give the folder it lies in")
        }
        _ => io(folder, error),
    }
}
