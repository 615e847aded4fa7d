//! The columns of a table: what they are called, which of them is the label, and in which order the rest are features.

use std::collections::{HashMap, HashSet};

use super::{Column, Csv, Label, NONE, text};
use crate::error::{CsvProblem, DataError, Result, counted};
use crate::memory::BytePool;
use crate::sources::no_room_is_final;

/// Of columns that an error lists.
const LISTED: usize = 10;

impl Csv {
    /// The names of the columns, or their numbers.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The name of the column that is the label, if there is one; of several, the first.
    pub fn label_column(&self) -> Option<&str> {
        self.label_columns().next()
    }

    /// The names of all columns that are labels, in their order.
    pub fn label_columns(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().filter_map(|label| self.columns.get(*label)).map(String::as_str)
    }

    /// The names of the columns that are features, in the order in which they stand in the file.
    pub fn feature_columns(&self) -> impl Iterator<Item = &str> {
        let is_feature = |(i, _): &(usize, &String)| self.is_feature(*i);
        self.columns.iter().enumerate().filter(is_feature).map(|(_, name)| name.as_str())
    }

    /// Gives the features in the order that another table has them in, by their names.
    ///
    /// # Errors
    /// [`DataError::Source`] where it has not the same ones.
    pub fn arrange(&mut self, features: &[String], pool: &BytePool) -> Result<()> {
        if self.feature_columns().eq(features.iter().map(String::as_str)) {
            return Ok(());
        }
        let lease = pool.reserve((self.columns.len() * size_of::<u32>()) as u64).map_err(DataError::from);
        let lease = no_room_is_final(format!("the columns of {}", self.path.display()), pool, lease)?;
        let known: HashMap<&str, u32> = features.iter().map(String::as_str).zip(0..).collect();
        let other = |problem: String| DataError::source(self.path.display(), problem);
        let mut order = Vec::with_capacity(self.columns.len());
        for (i, name) in self.columns.iter().enumerate() {
            match known.get(name.as_str()) {
                _ if !self.is_feature(i) => order.push(0),
                Some(at) => order.push(*at),
                None => {
                    let known = listed(features);
                    return Err(other(format!(
                        "the training set has no column \"{name}\"; it has {known}; rename or remove this one"
                    )));
                }
            }
        }
        let own: HashSet<&str> = self.feature_columns().collect();
        if let Some(missing) = features.iter().find(|name| !own.contains(name.as_str())) {
            return Err(other(format!("there is no column \"{missing}\", which the training set has; add it")));
        }
        self.order = Some((order, lease));
        Ok(())
    }

    /// Reads these columns as features, in this order, and no others: to predict, a table needs no label and may have more.
    ///
    /// # Errors
    /// [`DataError::Source`] where one of them is not there.
    pub fn select(&mut self, features: &[String], pool: &BytePool) -> Result<()> {
        let lease = pool.reserve((self.columns.len() * size_of::<u32>()) as u64).map_err(DataError::from);
        let lease = no_room_is_final(format!("the columns of {}", self.path.display()), pool, lease)?;
        let known: HashMap<&str, u32> = features.iter().map(String::as_str).zip(0..).collect();
        let order: Vec<u32> =
            self.columns.iter().map(|name| known.get(name.as_str()).copied().unwrap_or(NONE)).collect();
        let own: HashSet<&str> = self.columns.iter().map(String::as_str).collect();
        if let Some(missing) = features.iter().find(|name| !own.contains(name.as_str())) {
            let problem = format!(
                "there is no column \"{missing}\", which the training set has; it has {}; add it",
                listed(&self.columns)
            );
            return Err(DataError::source(self.path.display(), problem));
        }
        (self.order, self.selected) = (Some((order, lease)), Some(features.len()));
        Ok(())
    }

    pub(super) fn read_columns(&mut self, pool: &BytePool) -> Result<()> {
        let (count, bytes) = self.with_row(0, pool, |row| (self.cells(row).count(), row.len()))?;
        let names = pool.reserve((count * 2 * size_of::<String>() + bytes) as u64)?;
        let columns: Vec<String> = self.with_row(0, pool, |row| {
            if self.layout.header {
                self.cells(row).map(text).collect()
            } else {
                (0..count).map(|i| i.to_string()).collect()
            }
        })?;
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|name| !seen.insert(name.as_str())) {
            let problem =
                CsvProblem::DuplicateColumn { name: twice.clone(), numbers_as_names: looks_like_a_row(&columns) };
            return Err(DataError::Csv { path: self.path.clone(), problem });
        }
        (self.columns, self.names) = (columns, names);
        Ok(())
    }

    /// The columns of label and weight, as the layout says them.
    pub(super) fn find_labels(&mut self) -> Result<()> {
        let labels = self.layout.label.as_ref().map_or(&[][..], Label::columns);
        let labels: Vec<usize> = labels.iter().map(|column| self.find_label(column)).collect::<Result<_>>()?;
        let weight = self.layout.weight.as_ref().map(|column| self.find_weight(column)).transpose()?;
        let mut all = labels.iter().chain(&weight).enumerate();
        if let Some((_, twice)) = all.find(|(i, column)| labels[..*i.min(&labels.len())].contains(column)) {
            let name = &self.columns[*twice];
            let problem = format!("column \"{name}\" is named twice, as a label or weight; name each column once");
            return Err(DataError::source(self.path.display(), problem));
        }
        (self.labels, self.weight) = (labels, weight);
        Ok(())
    }

    fn find_weight(&self, column: &Column) -> Result<usize> {
        self.find_column(column).ok_or_else(|| {
            let problem = CsvProblem::NoWeightColumn { column: column.clone(), known: listed(&self.columns) };
            DataError::Csv { path: self.path.clone(), problem }
        })
    }

    fn find_column(&self, column: &Column) -> Option<usize> {
        let by_number = |n: &usize| *n < self.columns.len();
        match column {
            Column::Name(name) => {
                let by_name = self.columns.iter().position(|known| known == name);
                by_name.or_else(|| name.parse().ok().filter(by_number))
            }
            Column::Number(number) => Some(*number).filter(by_number),
        }
    }

    fn find_label(&self, column: &Column) -> Result<usize> {
        self.find_column(column).ok_or_else(|| {
            let problem = CsvProblem::NoLabelColumn {
                column: column.clone(),
                known: listed(&self.columns),
                numbers_as_names: self.layout.header && looks_like_a_row(&self.columns),
                other_separator: self.columns.iter().any(|name| name.contains([';', '\t', '|'])),
            };
            DataError::Csv { path: self.path.clone(), problem }
        })
    }
}

/// Whether names look rather like numbers.
fn looks_like_a_row(names: &[String]) -> bool {
    names.iter().any(|name| name.parse::<f32>().is_ok())
}

/// "a, b, c and 3 more".
fn listed(names: &[String]) -> String {
    let first = names.iter().take(LISTED).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {}", counted(more, "other")),
    }
}
