//! Saturation and hue, of pixels with three channels; one with another number of them has neither.

use crate::simd::multiversion;

/// Each pixel between its grey, at 0, and itself, at 1; beyond at more.
pub(super) fn saturate(pixels: &mut [u8], channels: usize, factor: f32) {
    if channels == 3 {
        saturate_rgb(pixels, factor);
    }
}

multiversion! {
    fn saturate_rgb(pixels: &mut [u8], factor: f32) {
        for pixel in pixels.as_chunks_mut::<3>().0 {
            let [r, g, b] = pixel.map(f32::from);
            let grey = 0.299 * r + 0.587 * g + 0.114 * b;
            *pixel = [r, g, b].map(|value| (grey + (value - grey) * factor + 0.5) as u8);
        }
    }
}

/// Turns the hue of each pixel by a share of the circle: 1/3 makes red green, green blue, and blue red.
pub(super) fn turn(pixels: &mut [u8], channels: usize, share: f32) {
    let sixths = share.rem_euclid(1.0) * 6.0;
    if channels != 3 || sixths == 0.0 || !sixths.is_finite() {
        return;
    }
    for pixel in pixels.as_chunks_mut::<3>().0 {
        *pixel = turned(*pixel, sixths);
    }
}

/// By so many sixths of the circle, from 0 to 6: largest and smallest value stay, and so do saturation and value.
fn turned(pixel: [u8; 3], sixths: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(f32::from);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    if range == 0.0 {
        return pixel;
    }
    let hue = if r == most {
        (g - b) / range
    } else if g == most {
        2.0 + (b - r) / range
    } else {
        4.0 + (r - g) / range
    };
    let hue = hue + sixths;
    // Of each colour: all of it around its own place on the circle, nothing on the other side, and a slope between.
    let value = |place: f32| {
        let apart = (hue - place).rem_euclid(6.0);
        let apart = apart.min(6.0 - apart);
        (least + range * (2.0 - apart).clamp(0.0, 1.0) + 0.5) as u8
    };
    [value(0.0), value(2.0), value(4.0)]
}
