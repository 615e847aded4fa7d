//! Pickles as plain data: what Python writes is read, what would run something is refused, and nothing panics.

use memfit_files::pickle::{Pickle, PickleProblem, Value};
use proptest::prelude::*;

/// A value as Python would write it.
fn show(pickle: &Pickle, value: Value) -> String {
    let list = |values: &[Value]| values.iter().map(|&v| show(pickle, v)).collect::<Vec<_>>().join(" ");
    match value {
        Value::List(_) => format!("[{}]", list(pickle.elements(value).expect("a list"))),
        Value::Tuple(_) => format!("({})", list(pickle.elements(value).expect("a tuple"))),
        Value::Dict(_) => format!("{{{}}}", list(pickle.entries(value).expect("a dictionary"))),
        Value::Text(_) | Value::Decoded(_) => format!("{:?}", pickle.text(value).expect("a text")),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.kind().into(),
    }
}

fn check(bytes: &[u8], expected: &str) {
    let pickle = Pickle::parse(bytes.to_vec()).unwrap_or_else(|e| panic!("{}: {e}", bytes.escape_ascii()));
    assert_eq!(show(&pickle, pickle.root()), expected);
}

fn check_refused(bytes: &[u8], at: usize, problem: PickleProblem) {
    let error = Pickle::parse(bytes.to_vec()).expect_err("it is refused");
    assert_eq!((error.at, &error.problem), (at, &problem), "{}: {error}", bytes.escape_ascii());
}

/// What Python 3.11 writes of one dictionary, in each protocol.
const PROTOCOLS: [&[u8]; 6] = [
    b"(dp0\nVa\np1\n(lp2\nI0\naI-2\naI300\naI70000\naI-70000\naL1099511627776L\naL-1099511627776L\naL92233\
      72036854775807L\naL1180591620717411303424L\naF1.5\naNaI01\naI00\naVcaf\xe9 \\u005c line\\u000aend\np\
      3\na(ta(I1\ntp4\na(I1\nI2\ntp5\na(I1\nI2\nI3\ntp6\na(I1\nI2\nI3\nI4\ntp7\nasVb\np8\n(dp9\nsVc\np10\n\
      (lp11\ng9\nas.",
    b"}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x00J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00J\x90\xee\xfe\xffL109\
      9511627776L\nL-1099511627776L\nL9223372036854775807L\nL1180591620717411303424L\nG?\xf8\x00\x00\x00\
      \x00\x00\x00NI01\nI00\nX\x10\x00\x00\x00caf\xc3\xa9 \\ line\nendq\x03)(K\x01tq\x04(K\x01K\x02tq\x05(\
      K\x01K\x02K\x03tq\x06(K\x01K\x02K\x03K\x04tq\x07eX\x01\x00\x00\x00bq\x08}q\x09X\x01\x00\x00\x00cq\n]\
      q\x0bh\x09au.",
    b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x00J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00J\x90\xee\xfe\
      \xff\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\x8a\x08\xff\xff\xff\xff\xff\xff\
      \xff\x7f\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@G?\xf8\x00\x00\x00\x00\x00\x00N\x88\x89X\x10\x00\
      \x00\x00caf\xc3\xa9 \\ line\nendq\x03)K\x01\x85q\x04K\x01K\x02\x86q\x05K\x01K\x02K\x03\x87q\x06(K\
      \x01K\x02K\x03K\x04tq\x07eX\x01\x00\x00\x00bq\x08}q\x09X\x01\x00\x00\x00cq\n]q\x0bh\x09au.",
    b"\x80\x03}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x00J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00J\x90\xee\xfe\
      \xff\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\x8a\x08\xff\xff\xff\xff\xff\xff\
      \xff\x7f\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@G?\xf8\x00\x00\x00\x00\x00\x00N\x88\x89X\x10\x00\
      \x00\x00caf\xc3\xa9 \\ line\nendq\x03)K\x01\x85q\x04K\x01K\x02\x86q\x05K\x01K\x02K\x03\x87q\x06(K\
      \x01K\x02K\x03K\x04tq\x07eX\x01\x00\x00\x00bq\x08}q\x09X\x01\x00\x00\x00cq\n]q\x0bh\x09au.",
    b"\x80\x04\x95\x92\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x00J\xfe\xff\xff\xffM,\x01Jp\
      \x11\x01\x00J\x90\xee\xfe\xff\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\x8a\
      \x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@G?\xf8\x00\x00\x00\x00\
      \x00\x00N\x88\x89\x8c\x10caf\xc3\xa9 \\ line\nend\x94)K\x01\x85\x94K\x01K\x02\x86\x94K\x01K\x02K\x03\
      \x87\x94(K\x01K\x02K\x03K\x04t\x94e\x8c\x01b\x94}\x94\x8c\x01c\x94]\x94h\x09au.",
    b"\x80\x05\x95\x92\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x00J\xfe\xff\xff\xffM,\x01Jp\
      \x11\x01\x00J\x90\xee\xfe\xff\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff\x8a\
      \x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@G?\xf8\x00\x00\x00\x00\
      \x00\x00N\x88\x89\x8c\x10caf\xc3\xa9 \\ line\nend\x94)K\x01\x85\x94K\x01K\x02\x86\x94K\x01K\x02K\x03\
      \x87\x94(K\x01K\x02K\x03K\x04t\x94e\x8c\x01b\x94}\x94\x8c\x01c\x94]\x94h\x09au.",
];

#[test]
fn what_python_writes_is_the_same_in_every_protocol() {
    let expected = "{\"a\" [0 -2 300 70000 -70000 1099511627776 -1099511627776 9223372036854775807 an integer 1.5 None true \
                    false \"café \\\\ line\\nend\" () (1) (1 2) (1 2 3) (1 2 3 4)] \"b\" {} \"c\" [{}]}";
    for bytes in PROTOCOLS {
        check(bytes, expected);
    }
    let python_2 = b"(dp0\nS'a'\np1\n(lp2\nI1\naL5L\naS'it\\'s'\naI01\nas.";
    check(python_2, "{\"a\" [1 5 \"it's\" true]}");
    // Sets, bytes and a bytearray.
    check(
        b"\x80\x05\x952\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01s\x94\x8f\x94(K\x01K\x02\x90\x8c\x01f\x94(K\
          \x03\x91\x94\x8c\x01y\x94C\x02xy\x94\x8c\x01z\x94\x96\x01\x00\x00\x00\x00\x00\x00\x00q\x94u.",
        "{\"s\" a set \"f\" a set \"y\" bytes \"z\" bytes}",
    );
    // What follows the end does not count; of a key that is there twice, the last does.
    check(b"N.garbage", "None");
    let twice = Pickle::parse(b"}(U\x01aK\x01U\x01aK\x02u.".to_vec()).expect("a dictionary");
    assert_eq!(twice.get(twice.root(), "a"), Some(Value::Int(2)));
}

#[test]
fn a_class_is_refused_by_its_name_and_nothing_is_run() {
    // eval("1+1") in each protocol.
    for (bytes, at, name) in [
        (&b"(lp0\nc__builtin__\neval\np1\n(V1+1\np2\ntp3\nRp4\na."[..], 5, "__builtin__.eval"),
        (&b"]q\x00c__builtin__\neval\nq\x01(X\x03\x00\x00\x001+1q\x02tq\x03Rq\x04a."[..], 3, "__builtin__.eval"),
        (
            &b"\x80\x02]q\x00c__builtin__\neval\nq\x01X\x03\x00\x00\x001+1q\x02\x85q\x03Rq\x04a."[..],
            5,
            "__builtin__.eval",
        ),
        (&b"\x80\x03]q\x00cbuiltins\neval\nq\x01X\x03\x00\x00\x001+1q\x02\x85q\x03Rq\x04a."[..], 5, "builtins.eval"),
        (
            &b"\x80\x04\x95\"\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x94\x8c\x031\
          +1\x94\x85\x94R\x94a."[..],
            31,
            "builtins.eval",
        ),
        (
            &b"\x80\x05\x95\"\x00\x00\x00\x00\x00\x00\x00]\x94\x8c\x08builtins\x94\x8c\x04eval\x94\x93\x94\x8c\x031\
          +1\x94\x85\x94R\x94a."[..],
            31,
            "builtins.eval",
        ),
    ] {
        check_refused(bytes, at, PickleProblem::Class(name.into()));
    }
    let error = Pickle::parse(b"cbuiltins\neval\n.".to_vec()).expect_err("it is refused");
    let words = "it wants to make a builtins.eval, and only plain data is read: nothing in it was run, at byte 0";
    assert_eq!(error.to_string(), words);
    check_refused(b"(ios\nsystem\n.", 1, PickleProblem::Class("os.system".into()));
    let calls = [
        (&b"R"[..], "REDUCE"),
        (b"b", "BUILD"),
        (b"o", "OBJ"),
        (b"\x81", "NEWOBJ"),
        (b"\x92", "NEWOBJ_EX"),
        (b"P1\n", "PERSID"),
        (b"Q", "BINPERSID"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"),
        (b"\x84\x01\x00\x00\x00", "EXT4"),
        (b"\x97", "NEXT_BUFFER"),
        (b"\x98", "READONLY_BUFFER"),
        (b"\x93", "STACK_GLOBAL"),
    ];
    for (bytes, name) in calls {
        check_refused(&[b"NN", bytes, b"."].concat(), 2, PickleProblem::Call(name));
    }
}

#[test]
fn a_name_in_a_message_obeys_no_terminal_and_is_short() {
    let name = "x".repeat(10_000);
    let error = Pickle::parse(format!("c\x1b[2Jos\n{name}\n.").into_bytes()).expect_err("it is refused").to_string();
    assert!(error.contains("[2Jos.xxx") && error.len() < 300 && !error.contains('\x1b'), "{error}");
}

#[test]
fn what_is_damaged_is_told_with_its_place() {
    let truncated = |wanted, left| PickleProblem::Truncated { wanted, left };
    for (bytes, at, problem) in [
        (&b""[..], 0, PickleProblem::Empty),
        (b"PK\x03\x04 and so on", 0, PickleProblem::Archive),
        (b"\x80\x06N.", 0, PickleProblem::Protocol(6)),
        (b"{}", 0, PickleProblem::Unknown(b'{')),
        (b"N", 1, truncated(1, 0)),
        (b"J\x01\x02", 0, truncated(4, 2)),
        (b"I12", 0, truncated(3, 2)),
        // Lengths that no file has are no reason to take memory.
        (b"X\xff\xff\xff\xffab.", 0, truncated(0xffff_ffff, 3)),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", 0, truncated(u64::MAX, 3)),
        (b"T\xff\xff\xff\xffab.", 0, truncated(u64::MAX, 3)),
        (b"\x8b\xff\xff\xff\x7f\x01.", 0, truncated(0x7fff_ffff, 2)),
        (b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", 0, truncated(u64::MAX, 2)),
        (b"Nr\xff\xff\xff\xff.", 1, PickleProblem::Memo(0xffff_ffff)),
        (b"Np99999999999\n.", 1, PickleProblem::Memo(99_999_999_999)),
        (b"h\x03.", 0, PickleProblem::Memo(3)),
        (b"Ix7\n.", 0, PickleProblem::Number("x7".into())),
        (b"Fnone\n.", 0, PickleProblem::Number("none".into())),
        (b".", 0, PickleProblem::Operand("STOP")),
        (b"Nt.", 1, PickleProblem::Operand("TUPLE")),
        (b"NNa.", 2, PickleProblem::Operand("APPEND")),
        (b"](a.", 2, PickleProblem::Operand("APPEND")),
        (b"}(Nu.", 3, PickleProblem::Operand("SETITEMS")),
        (b"(Nd.", 2, PickleProblem::Operand("DICT")),
        (b"K\x01\x87.", 2, PickleProblem::Operand("TUPLE")),
        (b"Sno quotes\n.", 0, PickleProblem::Operand("STRING")),
    ] {
        check_refused(bytes, at, problem);
    }
}

#[test]
fn deep_nesting_takes_no_stack() {
    const DEPTH: usize = 1_000_000;
    let mut lists = vec![b']'; DEPTH];
    lists.extend(vec![b'a'; DEPTH - 1]);
    lists.push(b'.');
    let pickle = Pickle::parse(lists).expect("lists within lists");
    let mut depth = 0;
    let mut value = pickle.root();
    while let Some([inner]) = pickle.elements(value) {
        (value, depth) = (*inner, depth + 1);
    }
    assert_eq!(depth, DEPTH - 1);
    let tuples = [vec![b')'], vec![0x85; DEPTH], vec![b'.']].concat();
    assert!(Pickle::parse(tuples).is_ok());
    let marks = [vec![b'('; DEPTH], vec![b't'; DEPTH], vec![b'.']].concat();
    assert!(Pickle::parse(marks).is_ok());
}

#[test]
fn what_is_referred_to_twice_is_there_once_and_nothing_holds_itself() {
    // A tuple of the last one twice, again and again: 2 to the power of 1000 if it were written out.
    let bomb = [&b")q\x00"[..], &b"h\x00\x86q\x00".repeat(1000), b"."].concat();
    assert!(Pickle::parse(bomb).is_ok());
    for cyclic in [&b"]q\x00h\x00a."[..], b"]q\x00(}q\x01U\x01ah\x00se.", b"}q\x00U\x01a(]h\x00ats."] {
        let error = Pickle::parse(cyclic.to_vec()).expect_err("it holds itself");
        assert_eq!(error.problem, PickleProblem::Cycle, "{}", cyclic.escape_ascii());
    }
}

/// Everything that is ever asked of a pickle.
fn read_all(bytes: Vec<u8>) {
    let Ok(pickle) = Pickle::parse(bytes) else { return };
    assert!(pickle.elements(pickle.root()).is_none() || pickle.entries(pickle.root()).is_none());
    let _ = (pickle.text(pickle.root()), pickle.get(pickle.root(), "a"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(memfit_test_effort::cases(500)))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(bytes);
    }

    /// Instructions at random get further than bytes at random.
    #[test]
    fn any_instructions_are_read_or_refused(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                &b"("[..], b"0", b"1", b"2", b"N", b"K\x01", b"I7\n", b"U\x01a", b"]", b")", b"}", b"\x8f", b"a", b"e", b"t", b"l",
                b"d", b"s", b"u", b"\x90", b"\x91", b"\x85", b"\x86", b"\x87", b"\x94", b"q\x01", b"h\x00", b"h\x01", b"p2\n",
                b"g2\n", b"G\x00\x00\x00\x00\x00\x00\x00\x00", b"\x8a\x02\x01\x02", b"Va\\u0041\n", b"S'a'\n",
            ]),
            0..60,
        ),
    ) {
        read_all([pieces.concat(), b".".to_vec()].concat());
    }
}
