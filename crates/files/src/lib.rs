//! Opening files that somebody else may have put there: regular files and nothing else. A FIFO would be waited for, a
//! device read for ever; here they are opened without waiting, looked at, and refused. Nothing that exists is truncated.
//!
//! What is in them is read as plain data: [`pickle`]s without running them, [`zip`] archives, and [`torch`]'s files of tensors,
//! which are both.

pub mod pickle;
pub mod torch;
pub mod zip;

use std::fmt;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens a regular file to read it; follows links.
///
/// # Errors
/// Of the system; or of [`ErrorKind::InvalidInput`] with a [`NotAFile`] in it.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, Access::Read, Links::Followed)
}

/// The same where `path` itself must not be a link: a file that only this program puts there.
pub fn open_own(path: &Path) -> io::Result<File> {
    open_as(path, Access::Read, Links::Refused)
}

/// A file of this program that it reads and writes, as it is: it is not made, and not truncated.
pub fn open_own_to_write(path: &Path) -> io::Result<File> {
    open_as(path, Access::ReadWrite, Links::Refused)
}

/// A file that was not there before, nor a link in its place, to be read and written.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// The text of a regular file, if that has no more bytes than `limit`.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(open(path)?, limit)
}

/// The text of a file of this program; see [`open_own`].
pub fn read_own_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(open_own(path)?, limit)
}

/// What is in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    Folder,
    /// A symbolic link, wherever it leads.
    Link,
    /// A named pipe.
    Fifo,
    Socket,
    /// Of characters or blocks.
    Device,
    /// Nothing that has a name here.
    Other,
}

impl Kind {
    /// As the system says it.
    pub fn of(kind: FileType) -> Kind {
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt;
            if kind.is_fifo() {
                return Kind::Fifo;
            }
            if kind.is_socket() {
                return Kind::Socket;
            }
            if kind.is_char_device() || kind.is_block_device() {
                return Kind::Device;
            }
        }
        match kind {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "a file",
            Kind::Folder => "a folder",
            Kind::Link => "a symbolic link",
            Kind::Fifo => "a named pipe (FIFO)",
            Kind::Socket => "a socket",
            Kind::Device => "a device",
            Kind::Other => "something else",
        })
    }
}

/// What was found where a regular file should be: in the [`io::Error`] of who opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAFile(pub Kind);

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "it is {}, not a regular file", self.0)
    }
}

impl std::error::Error for NotAFile {}

impl NotAFile {
    /// What an error of this crate says that was in the place of a file.
    pub fn in_error(error: &io::Error) -> Option<Kind> {
        error.get_ref().and_then(|e| e.downcast_ref::<NotAFile>()).map(|found| found.0)
    }

    fn error(kind: Kind) -> io::Error {
        io::Error::new(ErrorKind::InvalidInput, NotAFile(kind))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    ReadWrite,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Followed,
    Refused,
}

fn open_as(path: &Path, access: Access, links: Links) -> io::Result<File> {
    let file = match open_without_waiting(path, access, links) {
        Ok(file) => file,
        Err(error) => return Err(explained(path, links, error)),
    };
    match Kind::of(file.metadata()?.file_type()) {
        Kind::File => Ok(file),
        other => Err(NotAFile::error(other)),
    }
}

#[cfg(unix)]
fn open_without_waiting(path: &Path, access: Access, links: Links) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags |= if access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
    if links == Links::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let open = |flags| loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            opened => return opened,
        }
    };
    let opened = match open(flags) {
        // Somebody has a lease on a regular file, which the system ends if it may wait.
        Err(rustix::io::Errno::AGAIN) if std::fs::metadata(path)?.is_file() => open(flags - OFlags::NONBLOCK),
        opened => opened,
    };
    Ok(File::from(opened?))
}

#[cfg(not(unix))]
fn open_without_waiting(path: &Path, access: Access, links: Links) -> io::Result<File> {
    let is_link = std::fs::symlink_metadata(path)?.is_symlink();
    if is_link && links == Links::Refused {
        return Err(NotAFile::error(Kind::Link));
    }
    OpenOptions::new().read(true).write(access == Access::ReadWrite).open(path)
}

/// What cannot even be opened may be what it is: a socket, a link where there may be none, a folder to be written.
fn explained(path: &Path, links: Links, error: io::Error) -> io::Error {
    let found = match links {
        Links::Followed => std::fs::metadata(path),
        Links::Refused => std::fs::symlink_metadata(path),
    };
    match found.map(|found| Kind::of(found.file_type())) {
        Ok(Kind::File) | Err(_) => error,
        Ok(other) => NotAFile::error(other),
    }
}

fn text_of(file: File, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    let length = file.take(limit.saturating_add(1)).read_to_string(&mut text)?;
    if length as u64 > limit {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it has more than {limit} bytes")));
    }
    Ok(text)
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("memfit-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    fn found(opened: io::Result<File>) -> Option<Kind> {
        NotAFile::in_error(&opened.expect_err("it is no file"))
    }

    #[test]
    fn what_is_no_regular_file_is_told_without_waiting() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = folder("kinds");
        let (fifo, socket) = (folder.join("fifo"), folder.join("socket"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        // Nobody listens to it: then its path may have any length.
        mknodat(CWD, &socket, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).expect("a socket");
        let zero = Path::new("/dev/zero");
        for open in [open, open_own, open_own_to_write] {
            for (path, kind) in
                [(&*fifo, Kind::Fifo), (&*socket, Kind::Socket), (zero, Kind::Device), (&*folder, Kind::Folder)]
            {
                assert_eq!(found(open(path)), Some(kind), "{}", path.display());
            }
            let absent = open(&folder.join("absent")).expect_err("it is not there");
            assert_eq!(absent.kind(), ErrorKind::NotFound);
        }
        std::fs::remove_dir_all(folder).expect("it was made here");
    }

    #[test]
    fn links_are_followed_only_to_files_of_others() {
        let folder = folder("links");
        let [file, link, lost] = ["file", "link", "lost"].map(|name| folder.join(name));
        std::fs::write(&file, "text").expect("a file");
        for (link, to) in [(&link, &file), (&lost, &folder.join("nowhere"))] {
            std::os::unix::fs::symlink(to, link).expect("a link");
        }
        assert_eq!(read_text(&link, 4).expect("it is followed"), "text");
        assert_eq!(read_own_text(&file, 9).expect("a file"), "text");
        assert_eq!(read_text(&file, 3).expect_err("it is longer").kind(), ErrorKind::InvalidData);
        assert_eq!([found(open_own(&link)), found(open_own_to_write(&lost))], [Some(Kind::Link); 2]);
        for taken in [&file, &link, &lost] {
            assert_eq!(create_new(taken).expect_err("it is there").kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "text");
        std::fs::remove_dir_all(folder).expect("it was made here");
    }
}
