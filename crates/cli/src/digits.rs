//! The built-in data: 1,797 handwritten digits of 8×8 pixels, from the UCI "Optical Recognition of Handwritten Digits"
//! data set (E. Alpaydin, C. Kaynak; CC BY 4.0). 64 pixels of 0…16 and a label each.

const FILE: &[u8] = include_bytes!("../data/digits.bin");
const PIXELS: usize = 64;

pub struct Digits {
    /// Pixels in 0…1.
    pub images: Vec<f32>,
    pub labels: Vec<i32>,
}

impl Digits {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    fn push(&mut self, row: &[u8]) {
        self.images.extend(row[..PIXELS].iter().map(|&p| p as f32 / 16.0));
        self.labels.push(row[PIXELS] as i32);
    }

    /// Copies the samples `picked` into a batch.
    pub fn batch(&self, picked: &[usize], images: &mut [f32], labels: &mut [i32]) {
        for (slot, &i) in picked.iter().enumerate() {
            images[slot * PIXELS..][..PIXELS].copy_from_slice(&self.images[i * PIXELS..][..PIXELS]);
            labels[slot] = self.labels[i];
        }
    }
}

/// Training and test set: every fifth digit is held out.
pub fn load() -> (Digits, Digits) {
    let mut sets = [(); 2].map(|()| Digits { images: Vec::new(), labels: Vec::new() });
    for (i, row) in FILE.chunks_exact(PIXELS + 1).enumerate() {
        sets[(i % 5 == 0) as usize].push(row);
    }
    sets.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_held_out_and_every_class_is_there() {
        let (train, test) = load();
        assert_eq!((train.len(), test.len()), (1437, 360));
        for set in [&train, &test] {
            assert!((0..10).all(|c| set.labels.iter().filter(|&&l| l == c).count() > 20));
            assert!(set.images.iter().all(|p| (0.0..=1.0).contains(p)));
        }
    }
}
