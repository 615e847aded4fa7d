//! Sizes as people write them.

use std::fmt;

/// A number of bytes; prints as `1.42 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        match unit {
            0 => write!(f, "{} B", self.0),
            _ if value < 10.0 => write!(f, "{value:.2} {}", UNITS[unit]),
            _ if value < 100.0 => write!(f, "{value:.1} {}", UNITS[unit]),
            _ => write!(f, "{value:.0} {}", UNITS[unit]),
        }
    }
}

/// Two sizes, in as many digits as tell them apart: where both are `1.00 GiB` and are not the same, `1.0003 GiB` and
/// `1.0000 GiB`.
pub fn told_apart(a: u64, b: u64) -> [String; 2] {
    let short = [a, b].map(|bytes| Bytes(bytes).to_string());
    // 1024 MiB are 1.00 GiB too.
    if a == b || parse(&short[0]) != parse(&short[1]) {
        return short;
    }
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, size)| a.max(b) >= *size);
    let in_digits = |digits: usize| {
        let (unit, size) = unit?;
        let texts = [a, b].map(|bytes| format!("{:.digits$} {unit}", bytes as f64 / size as f64));
        (texts[0] != texts[1]).then_some(texts)
    };
    (3..=5).find_map(in_digits).unwrap_or_else(|| [a, b].map(|bytes| format!("{bytes} bytes")))
}

/// The smallest size of three digits that is not less, as a person types it: `1.43GiB`. [`parse`] reads it back.
pub fn rounded_up(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let Some((unit, size)) = UNITS.into_iter().rev().find(|(_, size)| bytes >= *size) else {
        return bytes.to_string();
    };
    let parts: u64 = match bytes / size {
        0..10 => 100,
        10..100 => 10,
        _ => 1,
    };
    // In hundredths, tenths or ones of the unit; exact, so that no rounding can go down.
    let count = (bytes as u128 * parts as u128).div_ceil(size as u128) as u64;
    match parts {
        100 => format!("{}.{:02}{unit}", count / 100, count % 100),
        10 => format!("{}.{}{unit}", count / 10, count % 10),
        _ => format!("{count}{unit}"),
    }
}

/// The smallest size that [`rounded_up`] can write and that is not less, in bytes.
pub fn round_up(bytes: u64) -> u64 {
    parse(&rounded_up(bytes)).map_or(bytes, |rounded| rounded.0)
}

/// A size as a person types it, such that [`parse`] reads exactly this many bytes: in three digits where that can be, as it
/// can for what [`round_up`] gives.
pub fn typed(bytes: u64) -> String {
    // What is typed stands for the nearest whole number of bytes, which may be the next one above.
    let texts = [bytes, bytes.saturating_sub(1)].map(rounded_up);
    let exact = texts.into_iter().find(|text| parse(text) == Ok(Bytes(bytes)));
    exact.unwrap_or_else(|| bytes.to_string())
}

/// Reads `512MiB`, `2GB`, `1.5G`, `64 kB`; a bare number is bytes. `K`, `M`, `G`, `T` alone are powers of 1024.
pub fn parse(text: &str) -> Result<Bytes, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let problem = || format!("\"{text}\" is not a size; write it like 512MiB, 2GB, 1.5G or a number of bytes");
    // Whole bytes exactly: a float holds no more than 2^53 of them.
    if unit.trim().is_empty()
        && let Ok(bytes) = number.parse()
    {
        return Ok(Bytes(bytes));
    }
    let number: f64 = number.parse().map_err(|_| problem())?;
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024f64.powi(2),
        "g" | "gib" => 1024f64.powi(3),
        "t" | "tib" => 1024f64.powi(4),
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(problem()),
    };
    let bytes = number * factor;
    if !bytes.is_finite() || bytes >= 2f64.powi(63) {
        return Err(format!("\"{text}\" is larger than any memory"));
    }
    Ok(Bytes(bytes.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, want) in [
            ("512MiB", 512 << 20),
            ("2GB", 2_000_000_000),
            ("1.5G", 3 << 29),
            ("64 kB", 64_000),
            ("1024", 1024),
            (" 3 tib ", 3 << 40),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Bytes(want)), "{text}");
        }
        for bad in ["", "12 parsecs", "-1G", "GiB", "1e3", "1.2.3M", "999999999T"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_size_rounded_up_is_read_back_as_enough_and_not_much_more() {
        for (bytes, want) in [(0, "0"), (1023, "1023"), (1024, "1.00KiB"), (1025, "1.01KiB"), (10_300, "10.1KiB")] {
            assert_eq!(rounded_up(bytes), want);
        }
        let mut n: u64 = 1;
        while n < 1 << 50 {
            for bytes in [n - 1, n, n + 1, n + n / 7, n + n / 3 + 1, 2 * n - 1] {
                let read = parse(&rounded_up(bytes)).expect("a size").0;
                assert!(read >= bytes && read as f64 <= bytes as f64 * 1.011 + 1.0, "{bytes}: {}", rounded_up(bytes));
            }
            n *= 2;
        }
    }

    #[test]
    fn a_typed_size_is_read_back_to_the_byte() {
        for (bytes, want) in
            [(0, "0"), (1024, "1.00KiB"), (1025, "1025"), (3 << 29, "1.50GiB"), ((3 << 29) + 1, "1610612737")]
        {
            assert_eq!(typed(bytes), want);
        }
        for bytes in (0..60).flat_map(|shift| [(1u64 << shift) + 12_345, 3 << shift, (7 << shift) / 5]) {
            let rounded = round_up(bytes);
            assert_eq!(typed(rounded), rounded_up(bytes), "{bytes}");
            assert_eq!((parse(&typed(bytes)), parse(&typed(rounded))), (Ok(Bytes(bytes)), Ok(Bytes(rounded))));
        }
    }

    #[test]
    fn two_sizes_that_differ_are_never_written_alike() {
        const GIB: u64 = 1 << 30;
        for (a, b, want) in [
            (GIB, GIB, ["1.00 GiB", "1.00 GiB"]),
            (GIB, GIB + GIB / 50, ["1.00 GiB", "1.02 GiB"]),
            (GIB, GIB + GIB / 256, ["1.000 GiB", "1.004 GiB"]),
            (GIB - GIB / 2048, GIB, ["0.9995 GiB", "1.0000 GiB"]),
            (GIB, GIB - 1, ["1073741824 bytes", "1073741823 bytes"]),
            (1000, 1001, ["1000 B", "1001 B"]),
        ] {
            assert_eq!(told_apart(a, b), want, "{a} {b}");
        }
        for n in (0..60).map(|shift| (1u64 << shift) + (1 << shift) / 7) {
            for other in [n + 1, n - 1, n + n / 1000 + 1, n + n / 100_000 + 1] {
                let [a, b] = told_apart(n, other);
                assert_ne!(a, b, "{n} {other}");
            }
        }
    }

    #[test]
    fn sizes_print_with_three_digits() {
        for (bytes, want) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (1 << 20, "1.00 MiB"), (1_524_713_390, "1.42 GiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), want);
        }
    }
}
