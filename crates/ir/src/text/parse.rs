//! From text to a graph. Every error names its line; no input makes it panic.

use super::build::{Fields, build};
use super::types;
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::{Donation, Graph, ValueId};

/// Reads what [`print`](super::print) writes.
pub fn parse(text: &str) -> Result<Graph> {
    let mut graph = Graph::new();
    for (i, line) in text.lines().enumerate() {
        let mut cursor = Cursor { rest: line };
        statement(&mut cursor, &mut graph).map_err(|problem| Error::Parse {
            line: i + 1,
            problem,
            text: line.to_string(),
        })?;
    }
    Ok(graph)
}

type Parsed<T> = Result<T, String>;

fn statement(c: &mut Cursor, graph: &mut Graph) -> Parsed<()> {
    if c.at_end() {
        return Ok(());
    }
    if c.peek('%') {
        return node(c, graph);
    }
    match c.word() {
        "update" => {
            let old = existing(c, graph)?;
            c.expect("->")?;
            let new = existing(c, graph)?;
            c.end()?;
            graph.donations.push(Donation { old, new });
        }
        "output" => {
            let name = c.string()?;
            let value = existing(c, graph)?;
            c.end()?;
            graph.outputs.push((name, value));
        }
        _ => return Err("a line starts with a value such as %0, with update or with output".into()),
    }
    Ok(())
}

fn node(c: &mut Cursor, graph: &mut Graph) -> Parsed<()> {
    let results = c.list(Cursor::value)?;
    c.expect("=")?;
    let name = c.word();
    if name.is_empty() {
        return Err(format!("expected an op, but found {}", c.found()));
    }
    let label = if c.peek('"') { Some(c.string()?) } else { None };
    let mut inputs = Vec::new();
    if c.eat("(") {
        inputs = c.list(Cursor::value)?;
        c.expect(")")?;
    }
    let attrs = if c.eat("{") { attrs(c)? } else { vec![] };
    c.expect(":")?;
    let given = c.list(Cursor::ty)?;
    let scope = if c.eat("@") { c.string()? } else { String::new() };
    c.end()?;

    let next = graph.values().len() as u32;
    if let Some((i, v)) = results.iter().enumerate().find(|&(i, v)| v.0 != next + i as u32) {
        return Err(format!("the next value is %{}, but the line makes %{}", next + i as u32, v.0));
    }
    let op = build(name, Fields { label, attrs, types: given.clone() })?;
    // The node is in the graph before its types are compared; an error drops the whole graph.
    let id = graph.push(op, &inputs, &scope).map_err(|e| e.to_string())?;
    let made = &graph.node(id).outputs;
    if made.len() != results.len() {
        return Err(format!("{name} makes {} values, but the line names {}", made.len(), results.len()));
    }
    let expected: Vec<&TensorType> = made.iter().map(|&v| graph.ty(v)).collect();
    if !expected.iter().copied().eq(&given) {
        return Err(format!("{name} gives {}, but the line says {}", types(expected), types(&given)));
    }
    Ok(())
}

fn attrs(c: &mut Cursor) -> Parsed<Vec<(String, String)>> {
    let mut attrs: Vec<(String, String)> = Vec::new();
    loop {
        let key = c.word();
        if key.is_empty() {
            return Err(format!("expected the name of an attribute, but found {}", c.found()));
        }
        if attrs.iter().any(|(k, _)| k == key) {
            return Err(format!("the attribute \"{key}\" is given twice"));
        }
        c.expect("=")?;
        attrs.push((key.to_string(), c.setting()?.to_string()));
        if !c.eat(",") {
            c.expect("}")?;
            return Ok(attrs);
        }
    }
}

fn existing(c: &mut Cursor, graph: &Graph) -> Parsed<ValueId> {
    let v = c.value()?;
    if v.index() >= graph.values().len() {
        return Err(format!("%{} is not made by any line above", v.0));
    }
    Ok(v)
}

/// What is left of a line. Each method skips blanks first.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&mut self, c: char) -> bool {
        self.skip();
        self.rest.starts_with(c)
    }

    fn at_end(&mut self) -> bool {
        self.skip();
        self.rest.is_empty() || self.rest.starts_with('#')
    }

    fn eat(&mut self, symbol: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The next few characters, for an error.
    fn found(&mut self) -> String {
        if self.at_end() {
            "the end of the line".into()
        } else {
            format!("\"{}\"", self.rest.chars().take(20).collect::<String>())
        }
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.eat(symbol) { Ok(()) } else { Err(format!("expected \"{symbol}\", but found {}", self.found())) }
    }

    fn end(&mut self) -> Parsed<()> {
        if self.at_end() { Ok(()) } else { Err(format!("expected the end of the line, but found {}", self.found())) }
    }

    /// Letters, digits and underscores; maybe none.
    fn word(&mut self) -> &'a str {
        self.skip();
        self.split(self.rest.find(|c: char| !c.is_alphanumeric() && c != '_'))
    }

    /// Takes everything before a position, or all.
    fn split(&mut self, at: Option<usize>) -> &'a str {
        let (taken, rest) = self.rest.split_at(at.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        let word = self.word();
        if word.is_empty() {
            return Err(format!("expected a whole number, but found {}", self.found()));
        }
        word.parse().map_err(|_| format!("\"{word}\" is not a whole number in range"))
    }

    fn value(&mut self) -> Parsed<ValueId> {
        self.expect("%")?;
        self.number().map(ValueId)
    }

    fn ty(&mut self) -> Parsed<TensorType> {
        let name = self.word();
        let dtype = DType::from_name(name)
            .ok_or_else(|| format!("expected a type such as f32[2,3], but found \"{name}\" and {}", self.found()))?;
        self.expect("[")?;
        let dims = if self.peek(']') { vec![] } else { self.list(Self::number)? };
        self.expect("]")?;
        Ok(TensorType::new(dtype, dims))
    }

    /// The text of an attribute: up to a comma or brace outside of brackets.
    fn setting(&mut self) -> Parsed<&'a str> {
        self.skip();
        let mut depth = 0_i32;
        let end = self.rest.find(|c| {
            depth += i32::from(matches!(c, '[' | '(')) - i32::from(matches!(c, ']' | ')'));
            c == '}' || (c == ',' && depth <= 0)
        });
        match self.split(end).trim_end() {
            "" => Err(format!("expected a setting, but found {}", self.found())),
            text => Ok(text),
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next() {
                None => return Err("the string is not closed".into()),
                Some('"') => break,
                Some('\\') => out.push(escape(&mut chars)?),
                Some(c) => out.push(c),
            }
        }
        self.rest = chars.as_str();
        Ok(out)
    }
}

/// The character that stands after a backslash.
fn escape(chars: &mut std::str::Chars) -> Parsed<char> {
    match chars.next() {
        Some(c @ ('"' | '\\')) => Ok(c),
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('u') => {
            let code = chars.as_str().strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((hex, rest)) = code else {
                return Err("\\u needs a number in braces, such as \\u{7f}".into());
            };
            *chars = rest.chars();
            let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
            c.ok_or_else(|| format!("\\u{{{hex}}} is not a character"))
        }
        Some(c) => Err(format!("\\{c} is not an escape; there are \\\" \\\\ \\n \\r \\t and \\u{{hex}}")),
        None => Err("the string is not closed".into()),
    }
}
