//! What was seen of the training data when they were opened, as plain numbers.

use memfit::data::sources::{ClassCounts, ClassLabels, FirstLine, LeftOut};

use super::arrays::ArrayNames;

#[derive(Clone, Debug, Default)]
pub struct DataSurvey {
    pub classes: Option<SeenClasses>,
    /// One more than the largest of a test set by itself, where that was looked at.
    pub test_classes: Option<usize>,
    pub masks: Option<SeenMasks>,
    /// Of pictures; of an image and its mask, which have one size.
    pub pictures: Option<SizeRange>,
    pub left_out: Vec<LeftOut>,
    /// Of an NPZ file.
    pub arrays: Option<ArrayNames>,
    /// How the labels of an array are stored.
    pub labels: Option<ClassLabels>,
    /// What the pictures of an array are stored as, where their channels stand first and are turned.
    pub channels_first: Option<Vec<usize>>,
    /// Of a table of which nobody said whether it has a header.
    pub first_line: Option<FirstLine>,
}

impl DataSurvey {
    /// What is done to the rows of arrays while they are read; empty where that is nothing.
    pub fn turned(&self) -> String {
        let labels = self.labels.filter(|labels| *labels != ClassLabels::Integers);
        match (&self.channels_first, labels) {
            (None, None) => String::new(),
            turned => format!("{turned:?}"),
        }
    }

    /// Adds what was left out of another set.
    pub fn also_left_out(&mut self, others: Vec<LeftOut>) {
        for other in others {
            match self.left_out.iter_mut().find(|one| one.ending == other.ending) {
                Some(one) => one.count += other.count,
                None => self.left_out.push(other),
            }
        }
    }
}

/// Classes that are in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClasses {
    /// One more than the largest.
    pub count: usize,
    /// How many there are of each, where that was counted; of a binary mask, background and foreground.
    pub rows: Option<Vec<u64>>,
    pub unit: Unit,
}

/// What is of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Samples,
    Pixels,
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Samples => "samples",
            Unit::Pixels => "pixels",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenMasks {
    /// Whether the run says what they are.
    pub is_said: bool,
    pub looked_at: usize,
    pub of: usize,
}

/// Heights and widths; each axis by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    pub smallest: [usize; 2],
    pub largest: [usize; 2],
    pub looked_at: usize,
    pub of: usize,
}

impl SeenClasses {
    pub fn of_samples(counts: &ClassCounts) -> SeenClasses {
        SeenClasses { count: counts.classes(), rows: counts.rows().map(<[u64]>::to_vec), unit: Unit::Samples }
    }
}
