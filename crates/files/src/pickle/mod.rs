//! A pickle as plain data: none, booleans, numbers, texts, bytes, lists, tuples, dictionaries and sets, of the protocols 0 to 5.
//! A pickle is a program; here nothing in it is ever called. Whatever asks for a class or a function is refused by its name, unless
//! who reads it knows that name: then it is written down what should have been made of what, and nothing is made.
//!
//! Texts stay where they are in the file, and collections are told apart by number: what a pickle refers to twice is there once,
//! nesting of any depth takes no stack, and all of it takes a few times the bytes of the file.

mod machine;
mod opcode;
mod unescape;

use std::borrow::Cow;
use std::fmt;

use machine::Machine;

/// A file may not have more bytes than this.
pub const MOST_BYTES: u64 = u32::MAX as u64;

/// A value. What it holds is in its [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer of more than 64 bits, which nobody here needs to know.
    Long,
    /// A number.
    Float(f64),
    /// A text as it stands in the file.
    Text(Span),
    /// A text that had to be decoded, by its number.
    Decoded(u32),
    /// Bytes.
    Bytes(Span),
    /// A list.
    List(Node),
    /// A tuple.
    Tuple(Node),
    /// A dictionary: keys and values by turns.
    Dict(Node),
    /// A set.
    Set(Node),
    /// A class or function, by its number among the names that are known.
    Global(u16),
    /// What a class or function should have made: which one, and of what.
    Object(Node),
    /// What lies outside of the pickle: what says where.
    Outside(Node),
}

/// The dictionary that remembers an order, which all do here: one is made of it, if its name is known.
pub const ORDERED_DICT: &str = "collections.OrderedDict";

impl Value {
    /// What it is, with its article.
    pub fn kind(self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Long => "an integer",
            Value::Float(_) => "a float",
            Value::Text(_) | Value::Decoded(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) => "a dictionary",
            Value::Set(_) => "a set",
            Value::Global(_) => "a class",
            Value::Object(_) => "an object",
            Value::Outside(_) => "something outside of the pickle",
        }
    }

    /// The integer, where it is one that is no more than 64 bits long.
    pub fn int(self) -> Option<i64> {
        if let Value::Int(value) = self { Some(value) } else { None }
    }

    fn node(self) -> Option<Node> {
        match self {
            Value::List(node) | Value::Tuple(node) | Value::Dict(node) | Value::Set(node) => Some(node),
            Value::Object(node) | Value::Outside(node) => Some(node),
            _ => None,
        }
    }
}

/// Where something stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

/// A collection, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u32);

/// What a pickle says.
#[derive(Debug)]
pub struct Pickle {
    bytes: Vec<u8>,
    /// By number.
    nodes: Vec<Vec<Value>>,
    decoded: Vec<Vec<u8>>,
    root: Value,
}

impl Pickle {
    /// Reads a pickle.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(bytes: Vec<u8>) -> Result<Pickle, PickleError> {
        Pickle::parse_knowing(bytes, &[])
    }

    /// The same where some classes and functions are known, as "module.name"; what they would make is an [`Value::Object`].
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse_knowing(bytes: Vec<u8>, known: &'static [&'static str]) -> Result<Pickle, PickleError> {
        let (nodes, decoded, root) = Machine::new(&bytes, known).run()?;
        let pickle = Pickle { bytes, nodes, decoded, root };
        if pickle.is_cyclic() {
            return Err(PickleError { at: pickle.bytes.len(), problem: PickleProblem::Cycle });
        }
        Ok(pickle)
    }

    /// What was pickled.
    pub fn root(&self) -> Value {
        self.root
    }

    /// Bytes of the file.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the file has no bytes; then it is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The elements of a list or tuple.
    pub fn elements(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(node) | Value::Tuple(node) => Some(self.items(node)),
            _ => None,
        }
    }

    /// Keys and values of a dictionary, by turns.
    pub fn entries(&self, value: Value) -> Option<&[Value]> {
        if let Value::Dict(node) = value { Some(self.items(node)) } else { None }
    }

    /// Of an object, by which of the known names it should have been made and of what.
    pub fn object(&self, value: Value) -> Option<(u16, &[Value])> {
        let Value::Object(node) = value else { return None };
        match *self.items(node) {
            [Value::Global(maker), arguments] => Some((maker, self.elements(arguments)?)),
            _ => None,
        }
    }

    /// What says where something outside lies.
    pub fn outside(&self, value: Value) -> Option<Value> {
        if let Value::Outside(node) = value { self.items(node).first().copied() } else { None }
    }

    /// What a dictionary has under a key.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        // Of a key that is there twice, the last one counts.
        let mut pairs = self.entries(dict)?.chunks_exact(2).rev();
        pairs.find(|pair| self.raw(pair[0]) == Some(key.as_bytes())).map(|pair| pair[1])
    }

    /// A text; what is no Unicode in it is replaced.
    pub fn text(&self, value: Value) -> Option<Cow<'_, str>> {
        self.raw(value).map(String::from_utf8_lossy)
    }

    /// The bytes of a text.
    pub fn raw(&self, value: Value) -> Option<&[u8]> {
        match value {
            Value::Text(Span { start, len }) => self.bytes.get(start as usize..start as usize + len as usize),
            Value::Decoded(number) => self.decoded.get(number as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    fn items(&self, node: Node) -> &[Value] {
        self.nodes.get(node.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a collection that can be reached holds itself.
    fn is_cyclic(&self) -> bool {
        #[derive(Clone, Copy, PartialEq)]
        enum Visit {
            Not,
            Open,
            Done,
        }
        let mut visits = vec![Visit::Not; self.nodes.len()];
        // Collections on the way, with how many of their items were looked at.
        let mut path: Vec<(Node, usize)> = self.root.node().map(|node| (node, 0)).into_iter().collect();
        while let Some((node, looked_at)) = path.last_mut() {
            let number = node.0 as usize;
            visits[number] = Visit::Open;
            let rest = &self.nodes[number][*looked_at..];
            let Some(next) = rest.iter().position(|item| item.node().is_some()) else {
                visits[number] = Visit::Done;
                path.pop();
                continue;
            };
            *looked_at += next + 1;
            if let Some(inner) = rest[next].node() {
                match visits[inner.0 as usize] {
                    Visit::Open => return true,
                    Visit::Not => path.push((inner, 0)),
                    Visit::Done => {}
                }
            }
        }
        false
    }
}

/// Why something is no pickle that is read here, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, at byte {at}")]
pub struct PickleError {
    /// The byte at which the instruction stands that is wrong; of a whole that is wrong, its end.
    pub at: usize,
    /// What is wrong.
    pub problem: PickleProblem,
}

/// What can be wrong with a pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickleProblem {
    /// There is not one byte.
    Empty,
    /// It is a ZIP archive, as `torch.save` writes one.
    Archive,
    /// It ends before it should.
    Truncated {
        /// Bytes that should follow.
        wanted: u64,
        /// Bytes that do.
        left: u64,
    },
    /// There is no such instruction.
    Unknown(u8),
    /// It is of a protocol that is not known.
    Protocol(u8),
    /// It asks for a class or function, of this name.
    Class(String),
    /// It asks for something to be called or made, by this instruction.
    Call(&'static str),
    /// An instruction finds nothing to work on, or something else than it needs.
    Operand(&'static str),
    /// It takes up again what was never put down under this number.
    Memo(u64),
    /// A number that is none.
    Number(String),
    /// A collection holds itself.
    Cycle,
    /// It has more bytes than are read.
    TooLarge,
}

impl fmt::Display for PickleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PickleProblem::Empty => f.write_str("the file is empty"),
            PickleProblem::Archive => f.write_str("it is a ZIP archive, as torch.save writes one, and no pickle"),
            PickleProblem::Truncated { wanted, left } => {
                write!(f, "it is cut off: {wanted} bytes should follow, and {left} do")
            }
            PickleProblem::Unknown(opcode) => write!(f, "it is no pickle: there is no instruction 0x{opcode:02x}"),
            PickleProblem::Protocol(protocol) => write!(f, "it is of protocol {protocol}, and 0 to 5 are known"),
            PickleProblem::Class(name) => {
                let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                write!(f, "it wants to make {article} {name}, and only plain data is read: nothing in it was run")
            }
            PickleProblem::Call(opcode) => {
                write!(f, "it wants to make an object ({opcode}), and only plain data is read: nothing in it was run")
            }
            PickleProblem::Operand(opcode) => write!(f, "it is damaged: {opcode} finds nothing that it could work on"),
            PickleProblem::Memo(index) => {
                write!(f, "it is damaged: it refers to its value {index}, which it does not have")
            }
            PickleProblem::Number(text) => write!(f, "it is damaged: \"{text}\" is no number"),
            PickleProblem::Cycle => f.write_str("something in it holds itself"),
            PickleProblem::TooLarge => write!(f, "it has more than {MOST_BYTES} bytes"),
        }
    }
}
