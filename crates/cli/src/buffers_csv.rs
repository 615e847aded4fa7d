//! Tables of buffers: comma-separated, with a header that names the columns `id`, `lower`, `upper` and `size` in any
//! order. Other columns are kept as they are. Whatever is wrong is told with its line, its column and the cure.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use memfit::plan::pack::Item;

use crate::failure::bad_data;
use memfit_run::config::parse_size;
use memfit_run::text::count;

pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// In the order of the rows.
    pub items: Vec<Item>,
}

/// Sizes may not add up to this, so that no offset does.
const TOO_MANY_BYTES: u64 = 1 << 62;

impl Table {
    pub fn read(path: &Path) -> Result<Table> {
        let mut bytes = Vec::new();
        let read = memfit_files::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|e| bad_data(format!("{} cannot be read: {e}", path.display())))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count();
            bad_data(format!("{}, line {line}: this is not text; save the table as UTF-8", path.display()))
        })?;
        parse(&text).map_err(|problem| bad_data(format!("{}, {problem}", path.display())))
    }

    /// The table with the column `offset`.
    pub fn with_offsets(&self, offsets: &[u64]) -> String {
        let at = self.header.iter().position(|name| name == "offset").unwrap_or(self.header.len());
        let line = |fields: &[String], offset: &str| {
            let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            fields.truncate(self.header.len());
            match fields.get_mut(at) {
                Some(field) => *field = offset,
                None => fields.push(offset),
            }
            fields.join(",") + "\n"
        };
        let mut text = line(&self.header, "offset");
        for (row, offset) in self.rows.iter().zip(offsets) {
            text += &line(row, &offset.to_string());
        }
        text
    }
}

const HEADER: &str = "id,lower,upper,size";

/// What is wrong is told from the line on.
fn parse(text: &str) -> Result<Table, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, l)| !l.trim().is_empty());
    let first = lines.next().ok_or(format!("line 1: the file is empty; begin it with the header {HEADER}"))?;
    let header = fields(first.0, first.1)?;
    let columns = Columns::find(&header).map_err(|problem| format!("line {}: {problem}", first.0))?;
    let mut table = Table { header, rows: Vec::new(), items: Vec::new() };
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut total = 0u64;
    for (number, line) in lines {
        let row = fields(number, line)?;
        let (found, wanted) = (row.len(), table.header.len());
        if found != wanted {
            let (found, wanted) = (count(found, "field"), count(wanted, "column"));
            return Err(format!("line {number}: it has {found}, but {wanted} to fill; give each column one"));
        }
        let id = &row[columns.id];
        if let Some(before) = seen.insert(id.clone(), number) {
            return Err(format!(
                "line {number}, column \"id\": \"{id}\" is in line {before} too; name each buffer once"
            ));
        }
        let item = columns.item(&row).map_err(|problem| format!("line {number}, {problem}"))?;
        total = total.checked_add(item.size).filter(|&t| t < TOO_MANY_BYTES).ok_or(format!(
            "line {number}, column \"size\": with {} the sizes add up to more than any memory; are these bytes?",
            row[columns.size]
        ))?;
        table.items.push(item);
        table.rows.push(row);
    }
    if table.items.is_empty() {
        return Err(format!("line {}: there are no buffers below the header; write one a line", first.0));
    }
    Ok(table)
}

/// Where the columns stand.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
}

impl Columns {
    fn find(header: &[String]) -> Result<Columns, String> {
        if let Some(twice) = (1..header.len()).find(|&i| header[..i].contains(&header[i])) {
            return Err(format!("the column \"{}\" is there twice; leave one out", header[twice]));
        }
        let find = |name: &str| {
            let at = header.iter().position(|h| h == name);
            at.ok_or(format!("the column \"{name}\" is missing; begin the file with the header {HEADER}"))
        };
        Ok(Columns { id: find("id")?, lower: find("lower")?, upper: find("upper")?, size: find("size")? })
    }

    fn item(&self, row: &[String]) -> Result<Item, String> {
        let lower = step("lower", &row[self.lower])?;
        let upper = step("upper", &row[self.upper])?;
        let size = parse_size(&row[self.size]).map_err(|problem| format!("column \"size\": {problem}"))?;
        if upper <= lower {
            return Err(format!(
                "column \"upper\": a life from {lower} to before {upper} is empty; upper must be the first step at which \
                 the buffer is not needed any more"
            ));
        }
        Ok(Item { lower, upper, size })
    }
}

fn fields(number: usize, line: &str) -> Result<Vec<String>, String> {
    if line.contains('"') {
        return Err(format!("line {number}: quotes are not understood; write fields without quotes and commas"));
    }
    Ok(line.split(',').map(|field| field.trim().to_string()).collect())
}

fn step(column: &str, text: &str) -> Result<usize, String> {
    let problem = |_| format!("column \"{column}\": \"{text}\" is not a step; write a whole number, 0 or more");
    text.parse().map_err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_any_order_and_others_are_kept() {
        let table = parse("\u{feff}size, note ,id,upper,lower\r\n4KiB,an activation,a,3,1\r\n\r\n7,,b,2,0\r\n")
            .unwrap_or_else(|problem| panic!("{problem}"));
        let item = |lower, upper, size| Item { lower, upper, size };
        assert_eq!(table.items, [item(1, 3, 4096), item(0, 2, 7)]);
        let want = "size,note,id,upper,lower,offset\n4KiB,an activation,a,3,1,0\n7,,b,2,0,4096\n";
        assert_eq!(table.with_offsets(&[0, 4096]), want);
    }

    #[test]
    fn offsets_from_before_are_replaced() {
        let table = parse("id,offset,lower,upper,size\n0,99,0,1,8\n").unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(table.with_offsets(&[64]), "id,offset,lower,upper,size\n0,64,0,1,8\n");
    }

    #[test]
    fn large_sizes_are_read_exactly() {
        let table =
            parse("id,lower,upper,size\n0,0,1,9007199254740993\n").unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(table.items[0].size, (1 << 53) + 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let with_header = |rows: &str| format!("id,lower,upper,size\n{rows}");
        for (text, parts) in [
            (String::new(), ["line 1", "empty"]),
            ("0,1,2,3\n".into(), ["line 1", "\"id\" is missing"]),
            ("id,lower,upper,bytes\n".into(), ["line 1", "\"size\" is missing"]),
            ("id,lower,lower,upper,size\n".into(), ["line 1", "\"lower\" is there twice"]),
            (with_header(""), ["line 1", "no buffers"]),
            (with_header("0,1,2\n"), ["line 2", "3 fields, but 4 columns"]),
            (with_header("0,1,2,3\n\n1,-1,2,3\n"), ["line 4, column \"lower\"", "\"-1\""]),
            (with_header("0,0,1.5,3\n"), ["line 2, column \"upper\"", "whole number"]),
            (with_header("0,0,1,3 parsecs\n"), ["line 2, column \"size\"", "3 parsecs"]),
            (with_header("0,0,1,\n"), ["line 2, column \"size\"", "512MiB"]),
            (with_header("0,4,4,3\n"), ["line 2, column \"upper\"", "first step"]),
            (with_header("7,0,1,3\n7,0,1,3\n"), ["line 3, column \"id\"", "line 2 too"]),
            (with_header("0,0,1,5000000000000000000\n"), ["line 2, column \"size\"", "any memory"]),
            (with_header("\"0\",0,1,5\n"), ["line 2", "quotes"]),
        ] {
            let problem = parse(&text).err().unwrap_or_else(|| panic!("{text} was read"));
            assert!(parts.iter().all(|part| problem.contains(part)), "{text}: {problem}");
        }
    }
}
