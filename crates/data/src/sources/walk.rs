//! Which files lie in a folder and below. Hidden ones are passed over; the order is by name, on every machine.

use std::fs;
use std::path::{Path, PathBuf};

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
    found.names.sort_by(|name| name);
    Ok(found)
}

/// The folders right inside of a folder, sorted.
pub(super) fn folders(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(root)? {
        let (name, path) = entry?;
        if path.is_dir() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The files right inside of a folder, which lie in none of its folders.
pub(super) fn loose_files(root: &Path) -> Result<Vec<LeftOut>> {
    let mut loose = Vec::new();
    for entry in entries(root)? {
        let (_, path) = entry?;
        if !path.is_dir() {
            left_out::add(&mut loose, &path, 1);
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
        let (name, path) = entry?;
        let relative = if below.is_empty() { name } else { format!("{below}/{name}") };
        // Follows links. One that leads nowhere is listed all the same: reading it says so, at its place.
        let metadata = fs::metadata(&path).ok();
        if metadata.as_ref().is_some_and(fs::Metadata::is_dir) {
            visit(root, &relative, depth + 1, found)?;
        } else if is_image(&path) {
            let print =
                metadata.map_or_else(|| fingerprint(&relative), |metadata| fingerprint_of(&relative, &metadata));
            found.fingerprint = found.fingerprint.wrapping_add(print);
            found.names.push(&relative)?;
        } else {
            left_out::add(&mut found.left_out, &path, 1);
        }
    }
    Ok(())
}

/// What is in a folder and not hidden.
fn entries(folder: &Path) -> Result<impl Iterator<Item = Result<(String, PathBuf)>>> {
    let read = fs::read_dir(folder).map_err(|e| missing(folder, e))?;
    let folder = folder.to_path_buf();
    Ok(read.filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => return Some(Err(io(&folder, e))),
        };
        match entry.file_name().into_string() {
            Ok(name) if name.starts_with('.') => None,
            Ok(name) => Some(Ok((name, entry.path()))),
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
