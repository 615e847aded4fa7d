//! The machine that a pickle is a program for, with the instructions that make plain data and no others; those that would make more
//! are written down, where the names are known. It keeps a stack of
//! values, the marks on it, and a memo of values that are taken up again. Every length is held against what is left of the file
//! before anything of that size exists.

use super::opcode as op;
use super::unescape::{unescape_string, unescape_unicode};
use super::{MOST_BYTES, Node, ORDERED_DICT, PickleError, PickleProblem, Span, Value};

/// Collections and decoded texts by number, and what was pickled.
type Parsed = (Vec<Vec<Value>>, Vec<Vec<u8>>, Value);

/// So much of a name or number is repeated in a message.
const MOST_NAME: usize = 80;

pub struct Machine<'a> {
    bytes: &'a [u8],
    /// Where the next byte is.
    at: usize,
    /// Where the instruction is that is followed.
    opcode_at: usize,
    stack: Vec<Value>,
    /// Heights of the stack; nothing below the last is touched.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    /// How many values the memo has.
    memoized: usize,
    nodes: Vec<Vec<Value>>,
    decoded: Vec<Vec<u8>>,
    /// Names of classes and functions.
    known: &'static [&'static str],
}

impl<'a> Machine<'a> {
    pub fn new(bytes: &'a [u8], known: &'static [&'static str]) -> Machine<'a> {
        let (stack, marks, memo, nodes, decoded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Machine { bytes, at: 0, opcode_at: 0, stack, marks, memo, memoized: 0, nodes, decoded, known }
    }

    /// Follows the instructions up to the one that stops.
    pub fn run(mut self) -> Result<Parsed, PickleError> {
        self.look_at_the_whole()?;
        loop {
            self.opcode_at = self.at;
            let opcode = self.byte()?;
            if opcode == op::STOP {
                let root = self.pop("STOP")?;
                return Ok((self.nodes, self.decoded, root));
            }
            let done = self.frame(opcode)?
                || self.atom(opcode)?
                || self.number(opcode)?
                || self.text(opcode)?
                || self.collection(opcode)?
                || self.memo(opcode)?
                || self.global(opcode)?
                || (!self.known.is_empty() && self.object(opcode)?);
            if !done {
                return self.refused(opcode);
            }
        }
    }

    fn look_at_the_whole(&self) -> Result<(), PickleError> {
        if self.bytes.is_empty() {
            return self.fail(PickleProblem::Empty);
        }
        if self.bytes.len() as u64 > MOST_BYTES {
            return self.fail(PickleProblem::TooLarge);
        }
        if self.bytes.starts_with(b"PK\x03\x04") {
            return self.fail(PickleProblem::Archive);
        }
        Ok(())
    }

    /// What says how the rest is written.
    fn frame(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            op::PROTO => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return self.fail(PickleProblem::Protocol(protocol));
                }
            }
            op::FRAME => {
                let wanted = u64::from_le_bytes(self.array()?);
                self.check_left(wanted)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What stands for itself, and the stack.
    fn atom(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            op::NONE => self.stack.push(Value::None),
            op::NEWTRUE => self.stack.push(Value::Bool(true)),
            op::NEWFALSE => self.stack.push(Value::Bool(false)),
            op::MARK => self.marks.push(self.stack.len()),
            op::POP if self.marks.last() == Some(&self.stack.len()) => {
                self.marks.pop();
            }
            op::POP => {
                self.pop("POP")?;
            }
            op::POP_MARK => {
                let start = self.mark("POP_MARK")?;
                self.stack.truncate(start);
            }
            op::DUP => {
                let top = self.top("DUP")?;
                self.stack.push(top);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn number(&mut self, opcode: u8) -> Result<bool, PickleError> {
        let value = match opcode {
            op::BININT => Value::Int(i32::from_le_bytes(self.array()?).into()),
            op::BININT1 => Value::Int(self.byte()?.into()),
            op::BININT2 => Value::Int(u16::from_le_bytes(self.array()?).into()),
            op::LONG1 => {
                let len = self.byte()?;
                long(self.take(len.into())?)
            }
            op::LONG4 => {
                let len = u32::from_le_bytes(self.array()?);
                long(self.take(len.into())?)
            }
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.array()?)),
            op::INT => match self.line()? {
                b"00" => Value::Bool(false),
                b"01" => Value::Bool(true),
                line => self.decimal(line)?,
            },
            op::LONG => {
                let line = self.line()?;
                self.decimal(line.strip_suffix(b"L").unwrap_or(line))?
            }
            op::FLOAT => {
                let line = self.line()?;
                match std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok()) {
                    Some(number) => Value::Float(number),
                    None => return self.fail(PickleProblem::Number(printable(line))),
                }
            }
            _ => return Ok(false),
        };
        self.stack.push(value);
        Ok(true)
    }

    fn decimal(&self, line: &[u8]) -> Result<Value, PickleError> {
        let digits = line.strip_prefix(b"-").unwrap_or(line);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return self.fail(PickleProblem::Number(printable(line)));
        }
        let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
        Ok(number.map_or(Value::Long, Value::Int))
    }

    fn text(&mut self, opcode: u8) -> Result<bool, PickleError> {
        let len: u64 = match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => self.byte()?.into(),
            op::BINUNICODE | op::BINBYTES => u32::from_le_bytes(self.array()?).into(),
            // Its length has a sign; of less than nothing there is always too little.
            op::BINSTRING => i32::from_le_bytes(self.array()?).try_into().unwrap_or(u64::MAX),
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => u64::from_le_bytes(self.array()?),
            op::UNICODE | op::STRING => return self.quoted(opcode).map(|()| true),
            _ => return Ok(false),
        };
        let start = self.at;
        let len = self.take(len)?.len();
        let span = span(start, len);
        let is_bytes = matches!(opcode, op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8);
        self.stack.push(if is_bytes { Value::Bytes(span) } else { Value::Text(span) });
        Ok(true)
    }

    /// A text of protocol 0: a line, and for `STRING` quotes around it.
    fn quoted(&mut self, opcode: u8) -> Result<(), PickleError> {
        let mut start = self.at;
        let mut line = self.line()?;
        if opcode == op::STRING {
            let inner = [b"'", b"\""].into_iter().find_map(|q| line.strip_prefix(q)?.strip_suffix(q));
            let Some(inner) = inner else { return self.fail(PickleProblem::Operand("STRING")) };
            (line, start) = (inner, start + 1);
        }
        let value = if line.contains(&b'\\') {
            let text = if opcode == op::STRING { unescape_string(line) } else { unescape_unicode(line) };
            self.decoded.push(text);
            Value::Decoded((self.decoded.len() - 1) as u32)
        } else {
            Value::Text(span(start, line.len()))
        };
        self.stack.push(value);
        Ok(())
    }

    fn collection(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            op::EMPTY_LIST => self.collect(0, Value::List),
            op::EMPTY_TUPLE => self.collect(0, Value::Tuple),
            op::EMPTY_DICT => self.collect(0, Value::Dict),
            op::EMPTY_SET => self.collect(0, Value::Set),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let len = usize::from(opcode - op::TUPLE1) + 1;
                self.check_height(len, "TUPLE")?;
                self.collect(len, Value::Tuple);
            }
            op::LIST => self.collect_marked("LIST", Value::List)?,
            op::TUPLE => self.collect_marked("TUPLE", Value::Tuple)?,
            op::FROZENSET => self.collect_marked("FROZENSET", Value::Set)?,
            op::DICT => {
                self.check_pairs("DICT")?;
                self.collect_marked("DICT", Value::Dict)?;
            }
            op::APPEND => self.add_last(1, "APPEND", as_list)?,
            op::SETITEM => self.add_last(2, "SETITEM", as_dict)?,
            op::APPENDS => self.add_marked("APPENDS", as_list)?,
            op::ADDITEMS => self.add_marked("ADDITEMS", as_set)?,
            op::SETITEMS => {
                self.check_pairs("SETITEMS")?;
                self.add_marked("SETITEMS", as_dict)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes a collection of the last values of the stack.
    fn collect(&mut self, len: usize, make: fn(Node) -> Value) {
        let items = self.stack.split_off(self.stack.len() - len);
        // No more of them than bytes, which a number of 32 bits counts.
        let node = Node(self.nodes.len() as u32);
        self.nodes.push(items);
        self.stack.push(make(node));
    }

    fn collect_marked(&mut self, name: &'static str, make: fn(Node) -> Value) -> Result<(), PickleError> {
        let start = self.mark(name)?;
        self.collect(self.stack.len() - start, make);
        Ok(())
    }

    /// Adds the last values of the stack to the collection below them.
    fn add_last(&mut self, len: usize, name: &'static str, kind: AsKind) -> Result<(), PickleError> {
        self.check_height(len + 1, name)?;
        self.add(self.stack.len() - len, name, kind)
    }

    fn add_marked(&mut self, name: &'static str, kind: AsKind) -> Result<(), PickleError> {
        let start = self.mark(name)?;
        self.check_height(self.stack.len() - start + 1, name)?;
        self.add(start, name, kind)
    }

    fn add(&mut self, start: usize, name: &'static str, kind: AsKind) -> Result<(), PickleError> {
        let Some(Node(number)) = kind(self.stack[start - 1]) else { return self.fail(PickleProblem::Operand(name)) };
        self.nodes[number as usize].extend(self.stack.drain(start..));
        Ok(())
    }

    fn memo(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            op::MEMOIZE => self.put(self.memoized as u64)?,
            op::BINPUT => {
                let index = self.byte()?;
                self.put(index.into())?;
            }
            op::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.array()?);
                self.put(index.into())?;
            }
            op::PUT => {
                let index = self.index()?;
                self.put(index)?;
            }
            op::BINGET => {
                let index = self.byte()?;
                self.recall(index.into())?;
            }
            op::LONG_BINGET => {
                let index = u32::from_le_bytes(self.array()?);
                self.recall(index.into())?;
            }
            op::GET => {
                let index = self.index()?;
                self.recall(index)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn index(&mut self) -> Result<u64, PickleError> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
        number.map_or_else(|| self.fail(PickleProblem::Number(printable(line))), Ok)
    }

    /// Numbers are given one after the other, so none is as large as the file; else a few bytes could ask for any memory.
    fn put(&mut self, index: u64) -> Result<(), PickleError> {
        let value = self.top("PUT")?;
        if index >= self.bytes.len() as u64 {
            return self.fail(PickleProblem::Memo(index));
        }
        let index = index as usize;
        if self.memo.len() <= index {
            self.memo.resize(index + 1, None);
        }
        if self.memo[index].replace(value).is_none() {
            self.memoized += 1;
        }
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Result<(), PickleError> {
        let value = usize::try_from(index).ok().and_then(|index| *self.memo.get(index)?);
        let Some(value) = value else { return self.fail(PickleProblem::Memo(index)) };
        self.stack.push(value);
        Ok(())
    }

    /// A class or function, if its name is known.
    fn global(&mut self, opcode: u8) -> Result<bool, PickleError> {
        let name = match opcode {
            op::GLOBAL | op::INST => {
                let (module, name) = (printable(self.line()?), printable(self.line()?));
                format!("{module}.{name}")
            }
            op::STACK_GLOBAL => {
                let mut name = || self.stack.pop().and_then(|value| self.name(value));
                match (name(), name()) {
                    (Some(name), Some(module)) => format!("{module}.{name}"),
                    _ => return self.fail(PickleProblem::Call("STACK_GLOBAL")),
                }
            }
            _ => return Ok(false),
        };
        match self.known.iter().position(|known| *known == name) {
            // There are a few dozen names at most.
            Some(number) if opcode != op::INST => self.stack.push(Value::Global(number as u16)),
            _ => return self.fail(PickleProblem::Class(name)),
        }
        Ok(true)
    }

    /// What would be made or fetched is written down.
    fn object(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            op::REDUCE | op::NEWOBJ => {
                self.check_height(2, "REDUCE")?;
                let [maker, arguments] = [self.stack[self.stack.len() - 2], self.stack[self.stack.len() - 1]];
                let (Value::Global(number), Value::Tuple(node)) = (maker, arguments) else {
                    return self.fail(PickleProblem::Operand("REDUCE"));
                };
                if self.known[usize::from(number)] == ORDERED_DICT {
                    if !self.nodes[node.0 as usize].is_empty() {
                        return self.fail(PickleProblem::Operand("REDUCE"));
                    }
                    self.stack.truncate(self.stack.len() - 2);
                    self.collect(0, Value::Dict);
                } else {
                    self.collect(2, Value::Object);
                }
            }
            // Attributes of what is not made: nobody reads them.
            op::BUILD => {
                self.check_height(2, "BUILD")?;
                self.stack.pop();
            }
            op::BINPERSID => {
                self.check_height(1, "BINPERSID")?;
                self.collect(1, Value::Outside);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An instruction that is not followed.
    fn refused<T>(&self, opcode: u8) -> Result<T, PickleError> {
        self.fail(match op::REFUSED.iter().find(|(code, _)| *code == opcode) {
            Some((_, name)) => PickleProblem::Call(name),
            None => PickleProblem::Unknown(opcode),
        })
    }

    fn name(&self, value: Value) -> Option<String> {
        match value {
            Value::Text(Span { start, len }) => {
                self.bytes.get(start as usize..start as usize + len as usize).map(printable)
            }
            Value::Decoded(number) => self.decoded.get(number as usize).map(printable),
            _ => None,
        }
    }

    fn fail<T>(&self, problem: PickleProblem) -> Result<T, PickleError> {
        Err(PickleError { at: self.opcode_at, problem })
    }

    fn check_left(&self, wanted: u64) -> Result<(), PickleError> {
        let left = (self.bytes.len() - self.at) as u64;
        if wanted > left { self.fail(PickleProblem::Truncated { wanted, left }) } else { Ok(()) }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], PickleError> {
        self.check_left(len)?;
        let taken = &self.bytes[self.at..self.at + len as usize];
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.array::<1>()?[0])
    }

    /// Up to the end of the line, without it.
    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        let Some(len) = rest.iter().position(|&b| b == b'\n') else {
            let left = rest.len() as u64;
            return self.fail(PickleProblem::Truncated { wanted: left + 1, left });
        };
        self.at += len + 1;
        let line = &rest[..len];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Whether so many values lie above the last mark.
    fn check_height(&self, wanted: usize, name: &'static str) -> Result<(), PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() < floor + wanted { self.fail(PickleProblem::Operand(name)) } else { Ok(()) }
    }

    fn check_pairs(&self, name: &'static str) -> Result<(), PickleError> {
        let start = self.marks.last().copied().unwrap_or(0);
        let are_pairs = (self.stack.len() - start).is_multiple_of(2);
        if are_pairs { Ok(()) } else { self.fail(PickleProblem::Operand(name)) }
    }

    fn top(&self, name: &'static str) -> Result<Value, PickleError> {
        self.check_height(1, name)?;
        self.stack.last().copied().map_or_else(|| self.fail(PickleProblem::Operand(name)), Ok)
    }

    fn pop(&mut self, name: &'static str) -> Result<Value, PickleError> {
        let top = self.top(name)?;
        self.stack.pop();
        Ok(top)
    }

    /// The height of the stack at the last mark, which is taken away.
    fn mark(&mut self, name: &'static str) -> Result<usize, PickleError> {
        match self.marks.pop() {
            Some(start) => Ok(start),
            None => self.fail(PickleProblem::Operand(name)),
        }
    }
}

/// The collection, where it is of a kind.
type AsKind = fn(Value) -> Option<Node>;

fn as_list(value: Value) -> Option<Node> {
    if let Value::List(node) = value { Some(node) } else { None }
}

fn as_dict(value: Value) -> Option<Node> {
    if let Value::Dict(node) = value { Some(node) } else { None }
}

fn as_set(value: Value) -> Option<Node> {
    if let Value::Set(node) = value { Some(node) } else { None }
}

fn span(start: usize, len: usize) -> Span {
    // The file has no more bytes than a number of 32 bits counts.
    Span { start: start as u32, len: len as u32 }
}

/// An integer in two's complement, the lowest byte first.
fn long(bytes: &[u8]) -> Value {
    let Some(&last) = bytes.last() else { return Value::Int(0) };
    let sign = if last < 0x80 { 0 } else { 0xff };
    if bytes.len() > 8 {
        // Nine bytes may still be few enough: then all beyond the eighth repeat its sign.
        let is_short = bytes[8..].iter().all(|&b| b == sign) && (bytes[7] < 0x80) == (sign == 0);
        if !is_short {
            return Value::Long;
        }
    }
    let mut whole = [sign; 8];
    let len = bytes.len().min(8);
    whole[..len].copy_from_slice(&bytes[..len]);
    Value::Int(i64::from_le_bytes(whole))
}

/// A name or number as a message may repeat it.
fn printable(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let cut = &bytes[..bytes.len().min(MOST_NAME)];
    let mut text: String = String::from_utf8_lossy(cut).chars().filter(|c| !c.is_control()).collect();
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
