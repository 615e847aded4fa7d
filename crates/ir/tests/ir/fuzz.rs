//! Reading never panics, whatever the text; and what it accepts keeps every promise of a graph.

use memfit_ir::op::{Input, Unary};
use memfit_ir::text::{parse, print};
use memfit_ir::{DType, Error, Graph, NodeId, Op, graph_cost, verify};
use proptest::prelude::*;

use crate::generate::{graphs, one_of_each};

/// A change to a text, at a place given as a share of its length.
#[derive(Clone, Debug)]
enum Edit {
    Replace(usize, char),
    Insert(usize, &'static str),
    Delete(usize, usize),
    /// Gives the number after the place another value.
    Number(usize, u128),
    CopyLine(usize, usize),
}

const PIECES: [&str; 14] =
    ["\"", "{", "}", "[", "]", "(", ")", "%", ",", " : ", " @\"s\"", "# ", "\\u{", "relu(%0) : f32[2]"];
const NUMBERS: [u128; 11] =
    [0, 1, 2, 1 << 20, (1 << 20) + 1, 1 << 31, 1 << 40, (1 << 40) + 1, 1 << 63, u64::MAX as u128, 1 << 70];

fn edits() -> impl Strategy<Value = Edit> {
    let at = 0..10_000_usize;
    prop_oneof![
        (at.clone(), any::<char>()).prop_map(|(at, c)| Edit::Replace(at, c)),
        (at.clone(), prop::sample::select(&PIECES[..])).prop_map(|(at, s)| Edit::Insert(at, s)),
        (at.clone(), 1..20_usize).prop_map(|(at, n)| Edit::Delete(at, n)),
        (at.clone(), prop::sample::select(&NUMBERS[..])).prop_map(|(at, n)| Edit::Number(at, n)),
        (at.clone(), at).prop_map(|(from, to)| Edit::CopyLine(from, to)),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let place = |share: usize, len: usize| share * len / 10_000;
    match *edit {
        _ if chars.is_empty() => {}
        Edit::Replace(at, c) => {
            let at = place(at, chars.len());
            chars[at] = c;
        }
        Edit::Insert(at, piece) => {
            let at = place(at, chars.len());
            chars.splice(at..at, piece.chars());
        }
        Edit::Delete(at, n) => {
            let at = place(at, chars.len());
            chars.drain(at..(at + n).min(chars.len()));
        }
        Edit::Number(at, n) => {
            let from = place(at, chars.len());
            let Some(start) = (from..chars.len()).find(|&i| chars[i].is_ascii_digit()) else { return text.into() };
            let end = (start..chars.len()).find(|&i| !chars[i].is_ascii_digit()).unwrap_or(chars.len());
            chars.splice(start..end, n.to_string().chars());
        }
        Edit::CopyLine(from, to) => {
            let mut lines: Vec<&str> = text.lines().collect();
            let (from, to) = (place(from, lines.len()), place(to, lines.len()));
            lines.insert(to, lines[from]);
            return lines.join("\n");
        }
    }
    chars.into_iter().collect()
}

/// The text of a graph that is one node of another, with a new input for each value that it reads.
fn alone(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let mut small = Graph::new();
    let mut inputs = Vec::new();
    for (i, &v) in node.inputs.iter().enumerate() {
        let ty = graph.ty(v).clone();
        // Bits are never given: they are the mask of something that is.
        let bits = ty.dtype == DType::Bit;
        let dtype = if bits { DType::F32 } else { ty.dtype };
        let source = Op::Input(Input { name: i.to_string(), dtype, shape: ty.shape });
        let mut made = small.push(source, &[], "").unwrap();
        if bits {
            made = small.push(Op::Mask(Unary::Relu), &[small.node(made).outputs[0]], "").unwrap();
        }
        inputs.push(small.node(made).outputs[0]);
    }
    small.push(node.op.clone(), &inputs, "").unwrap();
    print(&small)
}

/// Replaces each number that is not the name of a value, given its place among them and its text, by the choice.
fn with_numbers(text: &str, mut choose: impl FnMut(usize, &str) -> Option<u128>) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut place = 0;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |n| start + n);
        let (before, number) = (&rest[..start], &rest[start..end]);
        let mut choice = None;
        if before.ends_with(['[', ',', '=']) {
            choice = choose(place, number);
            place += 1;
        }
        out.push_str(before);
        out.push_str(&choice.map_or(number.to_string(), |n| n.to_string()));
        rest = &rest[end..];
    }
    out + rest
}

/// The text with the types that its last line should have, where only those are wrong.
fn with_types(text: &str) -> String {
    let Err(Error::Parse { problem, .. }) = parse(text) else { return text.into() };
    match problem.split_once(" gives ").and_then(|(_, p)| p.split_once(", but the line says ")) {
        Some((types, given)) => text.replace(&format!(" : {given}\n"), &format!(" : {types}\n")),
        None => text.into(),
    }
}

/// Sizes, strides and costs can be computed, and the text form is stable.
fn keeps_its_promises(graph: &Graph) {
    for value in graph.values() {
        let exact: u128 = value.ty.shape.iter().map(|&d| d as u128).product();
        assert_eq!(value.ty.elements() as u128, exact, "{}", value.ty);
        assert!(value.ty.bytes() <= i64::MAX as u64, "{}", value.ty);
        assert!(value.ty.shape.strides().iter().all(|&s| s <= i64::MAX as usize), "{}", value.ty);
    }
    graph_cost(graph);
    // Whether it is well formed is open; that it can be said is not.
    let _ = verify(graph);
    let text = print(graph);
    assert_eq!(parse(&text).map(|g| print(&g)), Ok(text));
}

#[test]
fn one_or_two_huge_numbers_are_read_or_refused() {
    let graph = one_of_each();
    for id in graph.node_ids() {
        let text = alone(&graph, id);
        let mut places = 0;
        with_numbers(&text, |_, _| {
            places += 1;
            None
        });
        for (first, second) in (0..places).flat_map(|i| (i..places).map(move |j| (i, j))) {
            for n in [1 << 20, 1 << 40, 1 << 63, u64::MAX as u128] {
                let changed = with_numbers(&text, |place, _| (place == first || place == second).then_some(n));
                if let Ok(graph) = parse(&with_types(&changed)) {
                    keeps_its_promises(&graph);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_changed_text_is_read_or_refused(graph in graphs(), edits in prop::collection::vec(edits(), 1..6)) {
        let text = edits.iter().fold(print(&graph), |text, edit| apply(&text, edit));
        if let Ok(graph) = parse(&text) {
            keeps_its_promises(&graph);
        }
    }

    // Equal numbers stay equal, so that extents still fit together.
    #[test]
    fn huge_extents_are_read_or_refused(
        graph in graphs(),
        at in any::<prop::sample::Index>(),
        choices in prop::collection::vec(prop::option::of(prop::sample::select(&NUMBERS[..])), 1..6),
    ) {
        let id = NodeId(at.index(graph.nodes().len()) as u32);
        let text = with_numbers(&alone(&graph, id), |_, n| choices[n.parse::<usize>().unwrap_or(0) % choices.len()]);
        if let Ok(graph) = parse(&with_types(&text)) {
            keeps_its_promises(&graph);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(%[0-9]{1,2}( = )?|[a-z0-9_]{1,8}|[\\[\\](){},:@=>\"\\\\ #\n-]|\\PC){0,60}") {
        if let Ok(graph) = parse(&text) {
            keeps_its_promises(&graph);
        }
    }
}
