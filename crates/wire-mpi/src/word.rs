//! What replicas say to each other beside the bytes of exchanges: that they wait, and that they go and why. Words as bytes, and
//! back; what comes from outside is trusted in nothing.

use std::time::Duration;

use memfit_exec::{Farewell, WireError};

/// The most bytes of a word. MPI sends so few at once, without waiting for whoever they are for.
pub(crate) const LONGEST: usize = 1024;

/// The most bytes of a text in a word.
const LONGEST_TEXT: usize = LONGEST - 64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// The sender waits in this round.
    Waits { round: u64 },
    /// The sender does something else, and will come.
    Works,
    /// The sender is in no round from this one on, and why.
    Goes { completed: u64, why: WireError },
}

const WAITS: u8 = 0;
const LOST: u8 = 1;
const LEFT: u8 = 2;
const STALLED: u8 = 3;
const FAILED: u8 = 4;
const WORKS: u8 = 5;

/// [`Word::Waits`], as it is said: while rounds are moved nothing is allocated.
pub(crate) fn waiting(round: u64) -> [u8; 9] {
    let mut bytes = [WAITS; 9];
    bytes[1..].copy_from_slice(&round.to_le_bytes());
    bytes
}

impl Word {
    /// At most [`LONGEST`] bytes: a text that is longer loses its end.
    pub fn encode(&self, sender: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONGEST);
        match self {
            Word::Waits { round } => bytes.extend(waiting(*round)),
            Word::Works => put(&mut bytes, WORKS, &[0]),
            Word::Goes { completed, why } => put_reason(&mut bytes, *completed, why, sender),
        }
        bytes
    }

    /// None of bytes that are no word.
    pub fn decode(bytes: &[u8]) -> Option<Word> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let number = number(rest)?;
        match kind {
            WAITS => return Some(Word::Waits { round: number }),
            WORKS => return Some(Word::Works),
            _ => {}
        }
        let why = match kind {
            LOST => WireError::Lost { rank: self::number(rest)? as usize },
            LEFT => {
                let (rank, kind) = (self::number(rest)? as usize, self::number(rest)? as u8);
                WireError::Left { rank, why: Farewell { kind, message: text(rest) } }
            }
            STALLED => {
                let waited = Duration::from_millis(self::number(rest)?);
                let mut missing = Vec::new();
                while let Some(rank) = self::number(rest) {
                    missing.push(rank as usize);
                }
                WireError::Stalled { missing, waited }
            }
            FAILED => WireError::Failed(text(rest)),
            _ => return None,
        };
        Some(Word::Goes { completed: number, why })
    }
}

fn put_reason(bytes: &mut Vec<u8>, completed: u64, why: &WireError, sender: usize) {
    match why {
        WireError::Lost { rank } => put(bytes, LOST, &[completed, *rank as u64]),
        WireError::Left { rank, why } => {
            put(bytes, LEFT, &[completed, *rank as u64, why.kind.into()]);
            put_text(bytes, &why.message);
        }
        WireError::Stalled { missing, waited } => {
            put(bytes, STALLED, &[completed, waited.as_millis() as u64]);
            let told = missing.iter().take(LONGEST_TEXT / 8);
            told.for_each(|rank| bytes.extend((*rank as u64).to_le_bytes()));
        }
        // Of these only the one that sees them can say what they are relative to.
        WireError::Differs { .. } | WireError::Failed(_) => {
            put(bytes, FAILED, &[completed]);
            put_text(bytes, &format!("replica {sender}: {why}"));
        }
    }
}

fn put(bytes: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(&text.as_bytes()[..text.floor_char_boundary(LONGEST_TEXT)]);
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*first))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(message: &str) -> Word {
        let why = Farewell { kind: 4, message: message.into() };
        Word::Goes { completed: 9, why: WireError::Left { rank: 2, why } }
    }

    fn goes(why: WireError) -> Word {
        Word::Goes { completed: u64::MAX, why }
    }

    fn check(word: &Word, expected: &Word) {
        let bytes = word.encode(3);
        assert!(bytes.len() <= LONGEST);
        assert_eq!(Word::decode(&bytes).as_ref(), Some(expected));
    }

    #[test]
    fn words_are_heard_as_they_were_said() {
        let stalled = WireError::Stalled { missing: vec![1, 3], waited: Duration::from_millis(1500) };
        for word in [
            Word::Waits { round: 7 },
            Word::Works,
            left("cat.jpg is no image"),
            goes(WireError::Lost { rank: 3 }),
            goes(stalled),
            goes(WireError::Stalled { missing: Vec::new(), waited: Duration::ZERO }),
        ] {
            check(&word, &word);
        }
    }

    #[test]
    fn what_is_said_relative_to_the_speaker_names_it() {
        let differs = goes(WireError::Differs { rank: 1, expected: 4, given: 8 });
        check(&differs, &goes(WireError::Failed("replica 3: replica 1 exchanges 8 bytes where this one has 4".into())));
        check(&goes(WireError::Failed("no".into())), &goes(WireError::Failed("replica 3: no".into())));
    }

    #[test]
    fn a_long_message_loses_its_end_and_no_half_of_a_letter_stays() {
        let message = "ä".repeat(2000);
        let bytes = left(&message).encode(3);
        let heard = Word::decode(&bytes).expect("a word");
        assert!(bytes.len() <= LONGEST);
        assert_eq!(heard, left(&message[..LONGEST_TEXT]));
        let many = WireError::Stalled { missing: (0..5000).collect(), waited: Duration::ZERO };
        assert!(goes(many).encode(3).len() <= LONGEST);
    }

    #[test]
    fn what_is_no_word_is_not_heard() {
        for bytes in [&[][..], &[WAITS], &[WAITS, 1, 2], &[99, 0, 0, 0, 0, 0, 0, 0, 0], &[LOST, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(Word::decode(bytes), None, "{bytes:?}");
        }
    }
}
