//! What becomes of each value by itself: tables of 256, for a whole image or for each of its channels.

/// What becomes of each value.
pub(super) type Table = [u8; 256];

pub(super) fn each(pixels: &mut [u8], table: &Table) {
    pixels.iter_mut().for_each(|value| *value = table[*value as usize]);
}

/// A table for each channel, made of how often it has each value; none where it stays as it is.
pub(super) fn of_channels(pixels: &mut [u8], channels: usize, table: fn(&[u64; 256]) -> Option<Table>) {
    for channel in 0..channels {
        let mut counts = [0; 256];
        pixels.iter().skip(channel).step_by(channels).for_each(|value| counts[*value as usize] += 1);
        if let Some(table) = table(&counts) {
            let own = pixels.iter_mut().skip(channel).step_by(channels);
            own.for_each(|value| *value = table[*value as usize]);
        }
    }
}

/// From the least and the most that there is to 0 and 255.
pub(super) fn stretched(counts: &[u64; 256]) -> Option<Table> {
    let least = counts.iter().position(|count| *count > 0)?;
    let most = counts.iter().rposition(|count| *count > 0)?;
    let scale = 255.0 / (most - least) as f32;
    // Where all are one value there is nothing to stretch.
    (most > least).then(|| std::array::from_fn(|v| ((v as f32 - least as f32) * scale + 0.5) as u8))
}

/// As PIL has it: every value becomes the share of pixels below it, in steps that leave out the largest value.
pub(super) fn equalized(counts: &[u64; 256]) -> Option<Table> {
    let largest = counts.iter().rposition(|count| *count > 0)?;
    let step = counts[..largest].iter().sum::<u64>() / 255;
    if step == 0 {
        return None;
    }
    let mut below = step / 2;
    Some(std::array::from_fn(|v| {
        let value = below / step;
        below += counts[v];
        value.min(255) as u8
    }))
}

pub(super) fn posterized(bits: u32) -> Table {
    let kept = !(0xffu16 >> bits.min(8)) as u8;
    std::array::from_fn(|v| v as u8 & kept)
}

pub(super) fn solarized(from: u16) -> Table {
    std::array::from_fn(|v| if v >= from as usize { 255 - v as u8 } else { v as u8 })
}
