//! The built-in data: 1,797 handwritten digits of 8×8 pixels, from the UCI "Optical Recognition of Handwritten Digits"
//! data set (E. Alpaydin, C. Kaynak; CC BY 4.0). 64 pixels of 0…16 and a label each.

use std::sync::Arc;

use memfit::data::sources::hold_out;
use memfit::data::{BytePool, DataError, Example, Result, Source, Tensor};
use memfit::ir::TensorType;

use crate::data::{DataFacts, DataSources, DataSurvey, Kind, Schema, SeenClasses, TestFrom, Unit};

const FILE: &[u8] = include_bytes!("../../data/digits.bin");
const PIXELS: usize = 64;
/// The largest value of a pixel.
const WHITE: f32 = 16.0;
/// Every fifth is held out.
const HELD_OUT: f64 = 0.2;

/// Training and test set, for a model of this name.
pub fn open(model: String) -> Result<DataSources> {
    let (train, test) = hold_out(Arc::new(Digits), HELD_OUT)?;
    Ok(DataSources {
        kind: Kind::Digits,
        model,
        train: Arc::new(train),
        test: Some(Arc::new(test)),
        test_from: TestFrom::HeldOut { share: HELD_OUT as f32, is_said: false },
        test_arrays: None,
        facts: DataFacts { sample: Some(vec![8, 8, 1]), classes: Some(10), values: None },
        schema: Schema { classes: (0..10).map(|n| n.to_string()).collect(), ..Schema::default() },
        survey: DataSurvey { classes: Some(classes()), ..DataSurvey::default() },
        unused: Vec::new(),
    })
}

/// How many there are of each.
fn classes() -> SeenClasses {
    let mut rows = vec![0; 10];
    FILE.chunks_exact(PIXELS + 1).for_each(|row| rows[usize::from(row[PIXELS])] += 1);
    SeenClasses { count: 10, rows: Some(rows), unit: Unit::Samples }
}

/// Field `x` is f32 `[8, 8, 1]` from 0 to 1, `y` is the digit.
struct Digits;

impl Source for Digits {
    fn len(&self) -> usize {
        FILE.len() / (PIXELS + 1)
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        let row = FILE.chunks_exact(PIXELS + 1).nth(index);
        let row = row.ok_or_else(|| DataError::bad(self.location(index), "there is no such digit"))?;
        let mut x = Tensor::zeros(TensorType::f32([8, 8, 1]), pool)?;
        x.f32s_mut().iter_mut().zip(&row[..PIXELS]).for_each(|(to, pixel)| *to = f32::from(*pixel) / WHITE);
        let y = Tensor::from_bytes(TensorType::i32([]), &i32::from(row[PIXELS]).to_le_bytes(), pool)?;
        Ok(Example::default().with("x", x).with("y", y))
    }

    fn location(&self, index: usize) -> String {
        format!("built-in digit {index}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_held_out_and_every_class_is_there() {
        let opened = open("digits".into()).expect("it is built in");
        let test = opened.test.expect("a fifth");
        assert_eq!((opened.train.len(), test.len()), (1438, 359));
        let pool = BytePool::new(1 << 20);
        for set in [&opened.train, &test] {
            let mut counts = [0; 10];
            for i in 0..set.len() {
                let example = set.read_row(i, &pool).expect("it is built in");
                assert!(example.get("x").expect("x").f32s().iter().all(|p| (0.0..=1.0).contains(p)));
                counts[example.get("y").expect("y").bytes()[0] as usize] += 1;
            }
            assert!(counts.iter().all(|n| *n > 20), "{counts:?}");
        }
    }
}
