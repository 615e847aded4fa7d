//! What arrays there are, by their headers alone: for who has to say which of them is meant. Elements are not looked at.

use std::path::Path;

use super::element::Element;
use super::header::{extent, type_and_shape};
use super::zip::members;
use super::{Arrays, Bytes};
use crate::error::{DataError, Result};
use crate::memory::BytePool;
use crate::sources::{file_bytes, no_room_is_final};

/// An array of numpy, as numpy would name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayInfo {
    /// In its file; of an NPY file, the file's own.
    pub name: String,
    /// `float32`, `uint8`, `<U3`.
    pub dtype: String,
    /// Of all of it, rows first.
    pub shape: Vec<usize>,
    /// Whether elements of this type can be read.
    pub is_readable: bool,
}

/// Of a header, which is mostly 118 bytes long.
pub(super) const HEAD: usize = 4096;

impl Arrays {
    /// The arrays of an `.npz` file, in its order. Of compressed ones no more than the header is decompressed.
    ///
    /// # Errors
    /// [`DataError::Source`] where the file is none, or one of its headers is not one.
    ///
    /// ```
    #[doc = include_str!("../../doc/files.txt")]
    /// let arrays = Arrays::list_npz("tests/fixtures/stored.npz", &pool)?;
    /// assert!(arrays.iter().all(|array| array.is_readable));
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_npz(path: impl AsRef<Path>, pool: &BytePool) -> Result<Vec<ArrayInfo>> {
        let path = path.as_ref();
        let listed = members(path, pool).and_then(|(members, _lease)| {
            let info = |member: &super::Member| {
                let location = format!("{}, array \"{}\"", path.display(), member.array());
                of_head(member.array(), &member.head(path, pool)?, location)
            };
            members.iter().map(info).collect()
        });
        no_room_is_final(format!("the list of arrays in {}", path.display()), pool, listed)
    }

    /// The array of an `.npy` file.
    ///
    /// # Errors
    /// [`DataError::Source`] where the file is none.
    pub fn describe_npy(path: impl AsRef<Path>) -> Result<ArrayInfo> {
        let path = path.as_ref();
        let length = file_bytes(path)?;
        let mut head = vec![0; length.min(HEAD as u64) as usize];
        Bytes::File { path: path.to_path_buf(), start: 0, length }.read_at(0, &mut head)?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        of_head(&name, &head, path.display().to_string())
    }
}

fn of_head(name: &str, head: &[u8], location: String) -> Result<ArrayInfo> {
    let bad = |problem: String| DataError::source(&location, problem);
    let (from, length) = extent(head).map_err(bad)?;
    let text = head.get(from as usize..(from + length) as usize);
    let text = text.ok_or_else(|| bad("its header is longer than one of an array of numbers".into()))?;
    let (descr, shape) = type_and_shape(text).map_err(bad)?;
    let is_readable = descr.is_some_and(|descr| Element::parse(descr).is_some());
    Ok(ArrayInfo { name: name.into(), dtype: descr.map_or("records".into(), numpy_name), shape, is_readable })
}

/// What numpy calls a type: `<f4` is `float32`. What has no such name is called as it is described.
fn numpy_name(descr: &str) -> String {
    let (kind, size) = (descr.get(1..2), descr.get(2..).and_then(|size| size.parse::<usize>().ok()));
    let word = match (kind, size) {
        (Some("b"), Some(1)) => return "bool".into(),
        (Some("O"), _) => return "object".into(),
        (Some("f"), _) => "float",
        (Some("i"), _) => "int",
        (Some("u"), _) => "uint",
        (Some("c"), _) => "complex",
        _ => return descr.into(),
    };
    size.and_then(|size| size.checked_mul(8)).map_or_else(|| descr.into(), |bits| format!("{word}{bits}"))
}

#[cfg(test)]
mod tests {
    use super::numpy_name;

    #[test]
    fn types_are_called_as_numpy_calls_them() {
        for (descr, name) in [
            ("<f4", "float32"),
            ("|u1", "uint8"),
            (">i8", "int64"),
            ("|b1", "bool"),
            ("|O", "object"),
            ("<U3", "<U3"),
            ("", ""),
            ("<f99999999999999999999", "<f99999999999999999999"),
            ("é", "é"),
        ] {
            assert_eq!(numpy_name(descr), name);
        }
    }
}
