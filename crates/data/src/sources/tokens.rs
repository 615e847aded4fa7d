//! Tokens for language models: windows of a long row of tokens, with the same row one further as what is to be
//! predicted.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use memfit_ir::TensorType;

use super::{check_row, claimed_buffer, file_bytes, file_fingerprint, io, no_room_is_final, open_file, read_at};
use crate::error::{DataError, Result, counted};
use crate::memory::{Buffer, BytePool, Lease};
use crate::source::Source;
use crate::tensor::{Example, Tensor};

/// How a file stores a token, least significant byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

impl TokenWidth {
    fn bytes(self) -> usize {
        match self {
            TokenWidth::U8 => 1,
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }
}

/// Which windows are rows: window i starts at token i · `stride` and has `sequence` tokens and one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Tokens of a row.
    pub sequence: usize,
    /// Tokens from the start of one window to that of the next.
    pub stride: usize,
}

impl Windows {
    /// Windows side by side: every token is in one of them.
    pub fn non_overlapping(sequence: usize) -> Windows {
        Windows { sequence, stride: sequence }
    }
}

/// Windows of a long sequence of tokens: fields `x` and `y` are i32 `[sequence]`, and `y` is `x` one token further.
///
/// ```
#[doc = include_str!("../doc/files.txt")]
/// let folder = TempDir::new("tokens");
/// let path = folder.write("t.txt", "abcabca");
/// let source = Tokens::characters(path, Windows::non_overlapping(3), &pool)?;
/// assert_eq!((source.len(), source.alphabet()), (2, &['a', 'b', 'c'][..]));
/// let row = source.read_row(0, &pool)?;
/// assert_eq!(row.get("x")?.bytes(), [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
/// assert_eq!(row.get("y")?.bytes(), [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    /// Tokens that were made of characters, with the lease on the alphabet; otherwise they are read from the file.
    in_memory: Option<(Buffer, Lease)>,
    width: TokenWidth,
    count: usize,
    vocabulary: usize,
    alphabet: Vec<char>,
    windows: Windows,
    fingerprint: u64,
}

impl Tokens {
    /// A file of tokens, all of which must be below `vocabulary`. It stays on disk.
    ///
    /// # Errors
    /// [`DataError::Source`] where it is no whole number of tokens, or has none for one window. A token beyond the
    /// vocabulary is [`DataError::Bad`] when it is read.
    pub fn binary(path: impl AsRef<Path>, width: TokenWidth, vocabulary: usize, windows: Windows) -> Result<Tokens> {
        let path = path.as_ref();
        let bytes = file_bytes(path)? as usize;
        if !bytes.is_multiple_of(width.bytes()) {
            let problem = format!(
                "its {bytes} bytes are no whole number of {width:?} tokens; give the width it was written with"
            );
            return Err(DataError::source(path.display(), problem));
        }
        let (count, fingerprint) = (bytes / width.bytes(), file_fingerprint(path)?);
        Tokens {
            path: path.into(),
            in_memory: None,
            width,
            count,
            vocabulary,
            alphabet: Vec::new(),
            windows,
            fingerprint,
        }
        .checked()
    }

    /// Any file, whose bytes are the tokens.
    ///
    /// # Errors
    /// As [`Tokens::binary`].
    pub fn bytes(path: impl AsRef<Path>, windows: Windows) -> Result<Tokens> {
        Tokens::binary(path, TokenWidth::U8, 256, windows)
    }

    /// A text in UTF-8, whose characters in sorted order are the vocabulary. The tokens are held in the pool.
    ///
    /// # Errors
    /// [`DataError::Source`] where it is not UTF-8, or too short for one window; [`DataError::PoolTooSmall`] where the
    /// tokens have no room.
    pub fn characters(path: impl AsRef<Path>, windows: Windows, pool: &BytePool) -> Result<Tokens> {
        Tokens::from_text(path.as_ref(), windows, pool, tokenize(path.as_ref(), None, pool))
    }

    /// A text in the characters of another one, as sorted as [`alphabet`](Tokens::alphabet) gives them: a window with a
    /// character that is not among them is bad.
    ///
    /// # Errors
    /// As [`Tokens::characters`]; [`DataError::Pipeline`] where the alphabet is not sorted.
    pub fn characters_with(
        path: impl AsRef<Path>,
        alphabet: &[char],
        windows: Windows,
        pool: &BytePool,
    ) -> Result<Tokens> {
        if !alphabet.is_sorted_by(|a, b| a < b) {
            return Err(DataError::Pipeline("the characters of an alphabet must be sorted, each once".into()));
        }
        Tokens::from_text(path.as_ref(), windows, pool, tokenize(path.as_ref(), Some(alphabet), pool))
    }

    fn from_text(path: &Path, windows: Windows, pool: &BytePool, text: Result<TokenizedText>) -> Result<Tokens> {
        let what = format!("the tokens of {} (a file of tokens instead stays on disk), which", path.display());
        let TokenizedText { alphabet, tokens, width, count, lease } = no_room_is_final(what, pool, text)?;
        let (vocabulary, in_memory, fingerprint) = (alphabet.len(), Some((tokens, lease)), file_fingerprint(path)?);
        Tokens { path: path.into(), in_memory, width, count, vocabulary, alphabet, windows, fingerprint }.checked()
    }

    /// Checks that all characters of a text are in its alphabet, before any is read.
    ///
    /// # Errors
    /// [`DataError::Bad`] for the first that is not.
    pub fn check_known(&self) -> Result<()> {
        let Some((tokens, _)) = &self.in_memory else { return Ok(()) };
        let unknown = tokens.bytes().chunks_exact(self.width.bytes()).position(|t| token_id(t) >= self.vocabulary);
        unknown.map_or(Ok(()), |at| Err(self.unknown_token(at, self.vocabulary)))
    }

    fn unknown_token(&self, at: usize, token: usize) -> DataError {
        let path = self.path.display();
        if self.in_memory.is_some() {
            let problem = "it is not among the characters of the training text; put it there, or take it out here";
            return DataError::bad(format!("{path}, character {at}"), problem);
        }
        let problem = format!("{token} is not in the vocabulary of {}; give a larger one", self.vocabulary);
        DataError::bad(format!("{path}, token {at}"), problem)
    }

    /// How many tokens there are: all are below.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// What each token stands for, where the tokens are characters.
    pub fn alphabet(&self) -> &[char] {
        &self.alphabet
    }

    fn checked(self) -> Result<Tokens> {
        let Windows { sequence, stride } = self.windows;
        if sequence == 0 || stride == 0 {
            let problem = format!("windows of {sequence} tokens at a stride of {stride}; both must be at least 1");
            return Err(DataError::Pipeline(problem));
        }
        if self.count <= sequence {
            let (found, needed) = (counted(self.count, "token"), sequence + 1);
            let problem = format!("it has {found}, and one window needs {needed}; give a shorter sequence");
            return Err(DataError::source(self.path.display(), problem));
        }
        Ok(self)
    }

    fn read_tokens(&self, from: usize, out: &mut [u8]) -> Result<()> {
        let start = from * self.width.bytes();
        match &self.in_memory {
            Some((tokens, _)) => out.copy_from_slice(&tokens.bytes()[start..][..out.len()]),
            None => read_at(&self.path, start as u64, out)?,
        }
        Ok(())
    }
}

impl Source for Tokens {
    fn len(&self) -> usize {
        (self.count - self.windows.sequence - 1) / self.windows.stride + 1
    }

    fn read_row(&self, index: usize, pool: &BytePool) -> Result<Example> {
        check_row(index, self.len())?;
        let Windows { sequence, stride } = self.windows;
        let mut stored = pool.buffer((sequence + 1) * self.width.bytes())?;
        self.read_tokens(index * stride, stored.bytes_mut())?;
        let mut x = Tensor::zeros(TensorType::i32([sequence]), pool)?;
        let mut y = Tensor::zeros(TensorType::i32([sequence]), pool)?;
        for (i, token) in stored.bytes().chunks_exact(self.width.bytes()).enumerate() {
            let token = token_id(token);
            if token >= self.vocabulary {
                return Err(self.unknown_token(index * stride + i, token));
            }
            let bytes = (token as i32).to_ne_bytes();
            if i < sequence {
                x.bytes_mut()[i * 4..][..4].copy_from_slice(&bytes);
            }
            if i > 0 {
                y.bytes_mut()[(i - 1) * 4..][..4].copy_from_slice(&bytes);
            }
        }
        Ok(Example::default().with("x", x).with("y", y))
    }

    fn location(&self, index: usize) -> String {
        format!("{}, tokens from {}", self.path.display(), index * self.windows.stride)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn token_id(token: &[u8]) -> usize {
    token.iter().rev().fold(0u32, |value, byte| value << 8 | *byte as u32) as usize
}

struct TokenizedText {
    alphabet: Vec<char>,
    tokens: Buffer,
    width: TokenWidth,
    count: usize,
    lease: Lease,
}

/// Twice through the file: which characters there are, then the number of each. One that a given alphabet lacks gets the
/// number behind its last.
fn tokenize(path: &Path, given: Option<&[char]>, pool: &BytePool) -> Result<TokenizedText> {
    let mut seen = pool.buffer(char::MAX as usize / 8 + 1)?;
    let mut count = 0;
    each_character(path, pool, |c| {
        seen.bytes_mut()[c as usize / 8] |= 1 << (c as usize % 8);
        count += 1;
    })?;
    let (alphabet, lease) = match given {
        Some(given) => (given.to_vec(), pool.reserve(size_of_val(given) as u64)?),
        None => alphabet(seen.bytes(), pool)?,
    };
    drop(seen);
    let width = match alphabet.len() + given.is_some() as usize {
        0..=256 => TokenWidth::U8,
        257..=65_536 => TokenWidth::U16,
        _ => TokenWidth::U32,
    };
    let mut tokens = claimed_buffer((count * width.bytes()) as u64, pool)?;
    let mut slots = tokens.bytes_mut().chunks_exact_mut(width.bytes());
    each_character(path, pool, |c| {
        let number = alphabet.binary_search(&c).unwrap_or(alphabet.len()) as u32;
        // A file that grew in between is cut here.
        if let Some(slot) = slots.next() {
            slot.copy_from_slice(&number.to_le_bytes()[..width.bytes()]);
        }
    })?;
    Ok(TokenizedText { alphabet, tokens, width, count, lease })
}

/// The characters whose bits are set.
fn alphabet(seen: &[u8], pool: &BytePool) -> Result<(Vec<char>, Lease)> {
    let present = seen.iter().map(|bits| bits.count_ones() as usize).sum();
    let lease = pool.reserve((present * size_of::<char>()) as u64)?;
    let mut alphabet = Vec::with_capacity(present);
    for (byte, bits) in seen.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        let codes = (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| (byte * 8 + bit) as u32);
        alphabet.extend(codes.filter_map(char::from_u32));
    }
    Ok((alphabet, lease))
}

fn each_character(path: &Path, pool: &BytePool, mut f: impl FnMut(char)) -> Result<()> {
    let file = open_file(path)?;
    let _buffer = pool.reserve(BUFFER as u64)?;
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let (mut at, mut bytes) = (0u64, [0; 4]);
    loop {
        match reader.read(&mut bytes[..1]).map_err(|e| io(path, e))? {
            0 => return Ok(()),
            _ => {
                let length = match bytes[0] {
                    0..=0x7f => 1,
                    0xc0..=0xdf => 2,
                    0xe0..=0xef => 3,
                    _ => 4,
                };
                let whole = reader.read_exact(&mut bytes[1..length]).is_ok();
                let text = std::str::from_utf8(&bytes[..length]).ok().filter(|_| whole);
                let Some(c) = text.and_then(|t| t.chars().next()) else {
                    let problem = "this is not UTF-8; convert the file, or read it as bytes";
                    return Err(DataError::source(format!("{}, byte {at}", path.display()), problem));
                };
                f(c);
                at += length as u64;
            }
        }
    }
}

const BUFFER: usize = 64 * 1024;
