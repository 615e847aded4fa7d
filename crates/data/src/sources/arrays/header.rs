//! The header of an NPY file: a magic number, a version, and a Python dictionary as text.

use memfit_ir::TensorType;

use super::element::Element;

#[derive(Debug)]
pub(super) struct Header {
    pub element: Element,
    pub fortran: bool,
    pub rows: usize,
    /// The type that one row becomes.
    pub row: TensorType,
}

/// Where the dictionary starts and how long it is.
pub(super) fn extent(head: &[u8]) -> Result<(u64, u64), String> {
    let Some([version, _, rest @ ..]) = head.strip_prefix(b"\x93NUMPY") else {
        return Err("this is no NPY file: it does not start as one".into());
    };
    let (from, length) = match (version, rest) {
        (1, [a, b, ..]) => (10, u16::from_le_bytes([*a, *b]) as u64),
        (2 | 3, [a, b, c, d, ..]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as u64),
        (1..=3, _) => return Err("the file is cut off within its header; copy or write it again".into()),
        _ => return Err(format!("version {version} of NPY is not known; versions 1 to 3 are")),
    };
    if length > 65_536 {
        return Err(format!("its header claims to have {length} bytes; the file is damaged"));
    }
    Ok((from, length))
}

impl Header {
    pub fn parse(text: &[u8]) -> Result<Header, String> {
        let text = as_text(text)?;
        let descr = description(text)?
            .ok_or("its elements are records of several types; save each of them as its own array")?;
        let element = Element::parse(descr).ok_or_else(|| {
            format!(
                "elements of type {descr:?} are not read; f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 and bool are: use astype"
            )
        })?;
        let fortran = match value(text, "fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return Err("its header does not say the order of its elements".into()),
        };
        let shape = shape(value(text, "shape")?)?;
        let [rows, rest @ ..] = &shape[..] else {
            return Err("it is a single number; an array with rows is needed".into());
        };
        let row = TensorType::new(element.dtype(), rest.to_vec());
        Ok(Header { element, fortran, rows: *rows, row })
    }

    /// Of all elements; none where that is beyond what can be addressed, as may be a row once it is converted.
    pub fn bytes(&self) -> Option<u64> {
        let row = self.row.shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent))?;
        row.checked_mul(8)?;
        let all = self.rows.checked_mul(row)?.checked_mul(self.element.bytes())?;
        (all <= isize::MAX as usize).then_some(all as u64)
    }
}

/// The description of the elements, none where they are records, and the shape.
pub(super) fn type_and_shape(text: &[u8]) -> Result<(Option<&str>, Vec<usize>), String> {
    let text = as_text(text)?;
    Ok((description(text)?, shape(value(text, "shape")?)?))
}

fn as_text(text: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(text).map_err(|_| "its header is no text".into())
}

/// `<f4`, `|u1`; none where elements are records.
fn description(text: &str) -> Result<Option<&str>, String> {
    let descr = value(text, "descr")?;
    Ok(descr.strip_prefix(['\'', '"']).and_then(|d| d.split(['\'', '"']).next()))
}

/// What follows a key.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let after =
        [format!("'{key}'"), format!("\"{key}\"")].iter().find_map(|quoted| Some(text.split_once(quoted.as_str())?.1));
    let value = after.and_then(|after| after.trim_start().strip_prefix(':'));
    value.map(str::trim_start).ok_or_else(|| format!("its header has no \"{key}\""))
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.strip_prefix('(').and_then(|t| t.split_once(')')).ok_or("its header has no shape")?.0;
    let extents: Vec<&str> = inner.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
    if extents.len() > 32 {
        return Err(format!("{} axes are more than numpy has", extents.len()));
    }
    extents.iter().map(|t| t.parse().map_err(|_| format!("its shape has an extent of \"{t}\""))).collect()
}
