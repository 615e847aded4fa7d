//! Who stands in a stack of calls. A snapshot has the frames of C++ and of libraries too, the innermost first; a person looks for
//! the line of their own program.

use memfit_files::pickle::{Pickle, Value};

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The name of its file, without folders.
    pub file: String,
    /// Counted from 1; 0 where it is not known.
    pub line: i64,
    /// The function.
    pub function: String,
}

/// So many frames are looked at, and so much of a name is kept.
const MOST_FRAMES: usize = 512;
const MOST_NAME: usize = 64;

/// Folders of what is installed and not written by whoever runs it.
const INSTALLED: [&str; 4] = ["/site-packages/", "/dist-packages/", "/lib/python3", "/torchinductor_"];

/// The innermost frame of the program itself; else of any Python; else none that says anything.
pub fn user_frame(pickle: &Pickle, frames: Value) -> Option<Frame> {
    let frames = pickle.elements(frames)?.iter().take(MOST_FRAMES);
    let mut of_python = frames.filter_map(|&frame| python_frame(pickle, frame)).peekable();
    let innermost = of_python.peek().cloned();
    let own = of_python.find(|(path, _)| !INSTALLED.iter().any(|folder| path.contains(folder)));
    own.or(innermost).map(|(_, frame)| frame)
}

/// The frame and the path of its file, where that is Python's.
fn python_frame(pickle: &Pickle, frame: Value) -> Option<(String, Frame)> {
    let text = |key: &str| pickle.text(pickle.get(frame, key)?);
    let path = text("filename")?.replace('\\', "/");
    let is_python = path.ends_with(".py") || path.starts_with("<ipython");
    if !is_python {
        return None;
    }
    let file = printable(path.rsplit('/').next().unwrap_or(&path));
    let function = printable(&text("name").unwrap_or_default());
    let line = pickle.get(frame, "line").and_then(Value::int).unwrap_or(0);
    Some((path, Frame { file, line, function }))
}

/// A name without anything that a terminal would obey.
fn printable(name: &str) -> String {
    let mut characters = name.chars().filter(|c| !c.is_control());
    let mut text: String = characters.by_ref().take(MOST_NAME).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}
