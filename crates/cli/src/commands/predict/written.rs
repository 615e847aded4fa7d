//! Where predictions go: lines on the screen, JSON lines, or a file in the form that its name says.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::commands::check_writable;
use crate::failure::{bad_data, usage};
use crate::output::outln;

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Words,
    Csv,
    Json,
}

/// Takes predictions one by one. A file is there when all of them are: until then whatever it was before stays.
pub struct Written {
    form: Form,
    file: Option<Unfinished>,
}

/// A file that gets its name when it is whole, and goes away where it never is.
struct Unfinished {
    path: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
}

impl Unfinished {
    fn new(path: &Path) -> Result<Unfinished> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = File::create(&partial).map_err(|e| cannot_write(path, &e))?;
        Ok(Unfinished { path: path.to_path_buf(), partial, file: BufWriter::new(file) })
    }

    fn end(mut self) -> Result<PathBuf> {
        let written = self.file.flush().and_then(|()| std::fs::rename(&self.partial, &self.path));
        written.map_err(|e| cannot_write(&self.path, &e))?;
        Ok(self.path.clone())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Where it has its name it is not there any more.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// A prediction in each of the forms; only the one that is wanted is made.
pub trait Line {
    fn words(&self) -> String;
    fn csv(&self) -> String;
    fn json(&self) -> Value;
}

impl Written {
    /// To a file, where one is named, which is none of the inputs; `usual_csv` is for what is a table by nature.
    pub fn new(out: Option<&Path>, inputs: &[PathBuf], json: bool, usual_csv: bool) -> Result<Written> {
        let Some(path) = out else {
            let form = if json {
                Form::Json
            } else if usual_csv {
                Form::Csv
            } else {
                Form::Words
            };
            return Ok(Written { form, file: None });
        };
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        let form = match ending.as_str() {
            "csv" => Form::Csv,
            "json" | "jsonl" => Form::Json,
            _ => {
                let problem = "its name says no form; end it with .csv, or .jsonl for one JSON object a line";
                return Err(usage(format!("--out {}: {problem}", path.display())));
            }
        };
        check_writable("--out", path)?;
        let same =
            |input: &PathBuf| input.canonicalize().is_ok_and(|input| path.canonicalize().is_ok_and(|out| out == input));
        if inputs.iter().any(same) {
            return Err(usage(format!("--out {} is what is to be predicted; name another file", path.display())));
        }
        Ok(Written { form, file: Some(Unfinished::new(path)?) })
    }

    /// The names of the columns.
    pub fn header(&mut self, columns: &str) -> Result<()> {
        if self.form == Form::Csv { self.put(columns) } else { Ok(()) }
    }

    pub fn line(&mut self, line: &impl Line) -> Result<()> {
        let text = match self.form {
            Form::Words => line.words(),
            Form::Csv => line.csv(),
            Form::Json => line.json().to_string(),
        };
        self.put(&text)
    }

    fn put(&mut self, text: &str) -> Result<()> {
        match &mut self.file {
            Some(Unfinished { path, file, .. }) => writeln!(file, "{text}").map_err(|e| cannot_write(path, &e)),
            None => {
                outln!("{text}");
                Ok(())
            }
        }
    }

    /// Writes what is left, and says where to.
    pub fn end(self) -> Result<Option<PathBuf>> {
        self.file.map(Unfinished::end).transpose()
    }
}

pub fn cannot_write(path: &Path, problem: &std::io::Error) -> anyhow::Error {
    bad_data(format!("{} cannot be written: {problem}", path.display()))
}

/// A text as a cell of a CSV.
pub fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn a_cell_is_quoted_where_it_must_be() {
        for (text, expected) in [("a b", "a b"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("", "")] {
            assert_eq!(cell(text), expected);
        }
    }
}
