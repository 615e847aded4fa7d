//! The width of a convnet: its channels times a factor, in multiples of 8, as MobileNets and EfficientNets have it.

use super::option;
use crate::error::Result;

/// The largest factor: twice what wide networks have.
const WIDEST: f32 = 8.0;

/// Channels at this width. At 1 they stay what they are.
pub fn scaled(channels: usize, width: f32) -> usize {
    if width == 1.0 { channels } else { divisible_by_8((channels as f32 * width).round() as usize) }
}

/// The nearest multiple of 8, at least 8, but never more than a tenth below.
pub fn divisible_by_8(n: usize) -> usize {
    let rounded = ((n + 4) / 8 * 8).max(8);
    if rounded * 10 < n * 9 { rounded + 8 } else { rounded }
}

/// A width that a network can have.
pub fn checked(width: f32) -> Result<f32> {
    if width > 0.0 && width <= WIDEST {
        return Ok(width);
    }
    option("width", format!("must be above 0 and at most {WIDEST}, for channels are multiplied by it, but is {width}"))
}

#[cfg(test)]
mod tests {
    use super::{checked, divisible_by_8, scaled};

    #[test]
    fn squeezed_channels_are_multiples_of_8_and_at_least_nine_tenths() {
        for (n, expected) in [(4, 8), (18, 24), (24, 24), (30, 32), (36, 40), (60, 64), (72, 72), (168, 168)] {
            assert_eq!(divisible_by_8(n), expected, "{n}");
        }
    }

    #[test]
    fn channels_are_scaled_in_eights_and_stay_as_they_are_at_1() {
        for (n, width, expected) in [(5, 1.0, 5), (64, 0.5, 32), (64, 0.01, 8), (24, 0.75, 24), (512, 1.5, 768)] {
            assert_eq!(scaled(n, width), expected, "{n} · {width}");
        }
        for width in [0.0, -1.0, 8.5, f32::NAN, f32::INFINITY] {
            assert!(checked(width).is_err(), "{width}");
        }
    }
}
