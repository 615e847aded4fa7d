//! Writing files: whole or not at all. Those of the user, through links to where they point, and never in the place of what
//! is no file; those of a run, in its folder and nowhere else.

use std::io::Write;
use std::path::Path;

use memfit::exec::atomic_file::{AtomicFile, Faults};

use crate::error::{Result, RunError};

/// No text that a run reads has more bytes: run files, names of classes, what is said of data.
pub(crate) const LARGEST_TEXT: u64 = 64 << 20;

/// A file that the user named.
pub fn write(path: &Path, text: &str) -> Result<()> {
    written(path, text).map_err(|source| RunError::Write { path: path.into(), source })
}

/// A file of a run, in its folder, which is known to be a run's: a link in its place is not followed.
pub(crate) fn write_own(path: &Path, text: &str) -> Result<()> {
    replaced(path, text).map_err(|source| RunError::Write { path: path.into(), source })
}

fn written(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        // A terminal, a pipe, a device: it is written to, not replaced.
        Ok(known) if !known.is_file() && !known.is_dir() => {
            return std::fs::File::options().write(true).open(path)?.write_all(text.as_bytes());
        }
        _ => {}
    }
    replaced(&std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()), text)
}

fn replaced(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = AtomicFile::create(path, &Faults::default())?;
    file.write_all(text.as_bytes())?;
    file.commit(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_followed_devices_stay_and_neighbours_are_left_alone() {
        use std::os::unix::fs::FileTypeExt;
        let folder = std::env::temp_dir().join(format!("memfit-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let (real, link, part) = (folder.join("real.json"), folder.join("link.json"), folder.join("real.part"));
        std::fs::write(&real, "old").expect("a file");
        std::fs::write(&part, "mine").expect("a file");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        write(&link, "new").expect("it can be written");
        assert_eq!(std::fs::read_to_string(&real).expect("a file"), "new");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&part).expect("a file"), "mine");
        write(Path::new("/dev/null"), "nothing").expect("it can be written");
        assert!(std::fs::metadata("/dev/null").expect("a device").file_type().is_char_device());
        assert!(write(&folder, "a folder").is_err());
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 3);
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
