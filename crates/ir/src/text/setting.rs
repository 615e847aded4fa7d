//! How one attribute is written and read: a [`Setting`] for each type that an attribute may have. It knows no op.

use crate::op::{Init, Pad2, StateClass, Unary, UpsampleMode};

/// A type of attribute. `read(write(x))` is `x`.
pub trait Setting: Sized {
    /// What a reader is told that was expected.
    const EXPECTED: &'static str;
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl Setting for usize {
    const EXPECTED: &'static str = "a whole number";
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for u32 {
    const EXPECTED: &'static str = "a whole number below 2^32";
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Setting for f32 {
    const EXPECTED: &'static str = "a number";
    /// `{:?}` is the shortest text that reads back as the same number; a NaN other than the usual needs its bits.
    fn write(&self) -> String {
        if self.is_nan() && self.to_bits() != f32::NAN.to_bits() {
            return format!("nan({:#x})", self.to_bits());
        }
        format!("{self:?}")
    }
    fn read(text: &str) -> Option<Self> {
        match call(text) {
            Some(("nan", bits)) => {
                let x = f32::from_bits(u32::from_str_radix(bits.strip_prefix("0x")?, 16).ok()?);
                x.is_nan().then_some(x)
            }
            Some(_) => None,
            None => text.parse().ok(),
        }
    }
}

impl Setting for Vec<usize> {
    const EXPECTED: &'static str = "a list of whole numbers such as [1,2]";
    fn write(&self) -> String {
        let items: Vec<String> = self.iter().map(usize::to_string).collect();
        format!("[{}]", items.join(","))
    }
    fn read(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
        if inner.is_empty() {
            return Some(Vec::new());
        }
        inner.split(',').map(|item| item.trim().parse().ok()).collect()
    }
}

impl Setting for [usize; 2] {
    const EXPECTED: &'static str = "two whole numbers such as [1,1]";
    fn write(&self) -> String {
        self.to_vec().write()
    }
    fn read(text: &str) -> Option<Self> {
        Vec::read(text)?.try_into().ok()
    }
}

impl Setting for Pad2 {
    const EXPECTED: &'static str = "four whole numbers: [top,bottom,left,right]";
    fn write(&self) -> String {
        vec![self.top, self.bottom, self.left, self.right].write()
    }
    fn read(text: &str) -> Option<Self> {
        let [top, bottom, left, right] = Vec::read(text)?.try_into().ok()?;
        Some(Pad2 { top, bottom, left, right })
    }
}

impl Setting for Vec<(usize, usize)> {
    const EXPECTED: &'static str = "two whole numbers for each axis, before and after";
    fn write(&self) -> String {
        self.iter().flat_map(|&(before, after)| [before, after]).collect::<Vec<_>>().write()
    }
    fn read(text: &str) -> Option<Self> {
        let flat: Vec<usize> = Vec::read(text)?;
        let pairs = flat.chunks_exact(2);
        pairs.remainder().is_empty().then(|| pairs.map(|p| (p[0], p[1])).collect())
    }
}

impl Setting for StateClass {
    const EXPECTED: &'static str = "param, slot, statistic or accumulator";
    fn write(&self) -> String {
        self.name().to_string()
    }
    fn read(text: &str) -> Option<Self> {
        StateClass::ALL.into_iter().find(|c| c.name() == text)
    }
}

impl Setting for UpsampleMode {
    const EXPECTED: &'static str = "nearest or bilinear";
    fn write(&self) -> String {
        self.name().to_string()
    }
    fn read(text: &str) -> Option<Self> {
        UpsampleMode::ALL.into_iter().find(|m| m.name() == text)
    }
}

/// The name alone; a parameter stands beside it as a setting of its own.
impl Setting for Unary {
    const EXPECTED: &'static str = "an op such as relu";
    fn write(&self) -> String {
        self.name().to_string()
    }
    fn read(text: &str) -> Option<Self> {
        Unary::ALL.into_iter().find(|u| u.name() == text)
    }
}

impl Setting for Init {
    const EXPECTED: &'static str = "constant(x), normal(std) or uniform(limit)";
    fn write(&self) -> String {
        match self {
            Init::Constant(x) => format!("constant({})", x.write()),
            Init::Normal { std } => format!("normal({})", std.write()),
            Init::Uniform { limit } => format!("uniform({})", limit.write()),
        }
    }
    fn read(text: &str) -> Option<Self> {
        let (name, x) = call(text)?;
        let x = f32::read(x)?;
        match name {
            "constant" => Some(Init::Constant(x)),
            "normal" => Some(Init::Normal { std: x }),
            "uniform" => Some(Init::Uniform { limit: x }),
            _ => None,
        }
    }
}

/// `name(argument)` in its two parts.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('(')?;
    Some((name.trim(), rest.strip_suffix(')')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_float_keeps_its_bits(bits: u32) {
            let x = f32::from_bits(bits);
            prop_assert_eq!(f32::read(&x.write()).map(f32::to_bits), Some(bits), "{}", x.write());
        }
    }

    #[test]
    fn unusual_floats_keep_their_bits() {
        for x in [-0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::from_bits(1), f32::MAX] {
            assert_eq!(f32::read(&x.write()).map(f32::to_bits), Some(x.to_bits()), "{}", x.write());
        }
        assert_eq!(f32::read("nan(0x0)"), None);
    }

    #[test]
    fn lists_of_the_wrong_length_are_refused() {
        assert_eq!(<[usize; 2]>::read("[1,2,3]"), None);
        assert_eq!(Pad2::read("[1,2]"), None);
        assert_eq!(Vec::<(usize, usize)>::read("[1,2,3]"), None);
        assert_eq!(Vec::<usize>::read("[ ]"), Some(vec![]));
        assert_eq!(Vec::<usize>::read("[1,]"), None);
    }
}
