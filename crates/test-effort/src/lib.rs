//! How long tests look for what is wrong: the one place that reads `MEMFIT_TEST_EFFORT`. Every test runs with every effort; only
//! the numbers of random cases and repetitions and some sizes differ.

/// `short`, `usual` (as if not set) or `full`.
pub const VARIABLE: &str = "MEMFIT_TEST_EFFORT";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For the same tests again, with other instructions or on a smaller machine.
    Short,
    Usual,
    /// For a machine that has hours.
    Full,
}

impl Effort {
    /// What the variable says. A word that is none of the three is a mistake that must not pass for less work than was asked for.
    pub fn from_env() -> Effort {
        match std::env::var_os(VARIABLE) {
            None => Effort::Usual,
            Some(word) => Effort::from_word(&word.to_string_lossy())
                .unwrap_or_else(|| panic!("{VARIABLE} is {word:?}; it may be short, usual or full")),
        }
    }

    fn from_word(word: &str) -> Option<Effort> {
        match word {
            "short" => Some(Effort::Short),
            "" | "usual" => Some(Effort::Usual),
            "full" => Some(Effort::Full),
            _ => None,
        }
    }

    fn cases(self, usual: u32) -> u32 {
        match self {
            Effort::Short => usual.div_ceil(10),
            Effort::Usual => usual,
            Effort::Full => usual.saturating_mul(10),
        }
    }
}

/// Of so many random cases or repetitions, those that are worth their time now: at least one, if there are any.
pub fn cases(usual: u32) -> u32 {
    Effort::from_env().cases(usual)
}

/// Of a list of like things, such as models, each a test of its own in all but name: all of them, or every fourth where the effort
/// is short.
pub fn some<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    all.into_iter().step_by(if Effort::from_env() == Effort::Short { 4 } else { 1 })
}

/// Of two sizes of the same test, the larger one where there is time for it.
pub fn size<T>(usual: T, full: T) -> T {
    if Effort::from_env() == Effort::Full { full } else { usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_effort_is_more_cases() {
        let cases = |word| Effort::from_word(word).map(|effort| [0, 1, 25].map(|n| effort.cases(n)));
        assert_eq!(cases("short"), Some([0, 1, 3]));
        assert_eq!(cases("usual"), Some([0, 1, 25]));
        assert_eq!(cases("full"), Some([0, 10, 250]));
        assert_eq!(cases(""), cases("usual"));
        assert_eq!(cases("fulll"), None);
    }
}
