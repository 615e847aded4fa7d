//! A loop over the channels of a pixel in whole vectors. The last vector overlaps the one before where the channels are no
//! multiple of the lanes: it computes some channels twice, to the same bits. Bodies therefore only write, never add.

/// `for_channels!(channels, |L, c| { … })` runs the body for each vector of `L` channels that starts at `c`; `L` is a
/// constant. Less than a vector of channels goes one by one.
macro_rules! for_channels {
    ($channels:expr, |$lanes:ident, $c:ident| $body:block) => {{
        let channels: usize = $channels;
        if channels >= $crate::math::LANES {
            const $lanes: usize = $crate::math::LANES;
            let mut next = 0;
            while next < channels {
                let $c = next.min(channels - $lanes);
                $body
                next += $lanes;
            }
        } else {
            const $lanes: usize = 1;
            for $c in 0..channels {
                $body
            }
        }
    }};
}
pub(crate) use for_channels;
