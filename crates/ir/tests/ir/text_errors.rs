//! What a reader of a wrong text is told.

use memfit_ir::Error;
use memfit_ir::text::parse;

/// `line` stands after two lines that make `%0: f32[2,3]` and `%1: i32[4]`.
fn check(line: &str, expected: &str) {
    let text = format!("%0 = input \"x\" : f32[2,3]\n%1 = input \"clock\" : i32[4]\n{line}\n");
    match parse(&text) {
        Err(Error::Parse { line: number, problem, text }) => {
            assert_eq!((number, problem.as_str(), text.as_str()), (3, expected, line));
        }
        other => panic!("{line}\ngave {other:?}"),
    }
}

#[test]
fn the_error_shows_the_line() {
    let error = parse("\n%0 = input \"x\" : f32[2]\n%1 = rleu(%0) : f32[2]").unwrap_err();
    insta::assert_snapshot!(error, @r#"
    line 3: there is no op "rleu"; the nearest is "relu"
      %1 = rleu(%0) : f32[2]
    "#);
}

#[test]
fn ops_and_attributes() {
    for (given, meant) in [
        ("maxpool", "max_pool"),
        ("conv", "conv2d"),
        ("Relu", "relu"),
        ("layernorm", "layer_norm"),
        ("reduce_men", "reduce_mean"),
    ] {
        let expected = format!("there is no op \"{given}\"; the nearest is \"{meant}\"");
        check(&format!("%2 = {given}(%0) : f32[2]"), &expected);
    }
    check("%2 = zzzzzzzzzzzz(%0) : f32[2]", "there is no op \"zzzzzzzzzzzz\"");
    check("%2 = dropout(%0, %1) {rate=0.5} : f32[2,3]", "dropout: the attribute \"stream\" is missing");
    check("%2 = relu(%0) {slope=0.5} : f32[2,3]", "relu: the attribute \"slope\" is unknown");
    check(
        "%2 = dropout(%0, %1) {rate=half, stream=1} : f32[2,3]",
        "dropout: the attribute \"rate\" must be a number, but is \"half\"",
    );
    check(
        "%2 = dropout(%0, %1) {rate=0.5, stream=4294967296} : f32[2,3]",
        "dropout: the attribute \"stream\" must be a whole number below 2^32, but is \"4294967296\"",
    );
    check(
        "%2 = reduce_sum(%0) {axes=[0, keep=false} : f32[3]",
        "reduce_sum: the attribute \"axes\" must be a list of whole numbers such as [1,2], but is \"[0, keep=false\"",
    );
    check(
        "%2 = state \"w\" {class=weight, init=constant(0)} : f32[3]",
        "state: the attribute \"class\" must be param, slot, statistic or accumulator, but is \"weight\"",
    );
    check("%2 = concat(%0) {axis=0, axis=1} : f32[2,3]", "the attribute \"axis\" is given twice");
    check(
        "%2 = state {class=param, init=constant(0)} : f32[3]",
        "state: the name is missing; it stands in quotes after the op",
    );
    check("%2 = relu \"r\"(%0) : f32[2,3]", "relu: takes no name, but is given \"r\"");
}

#[test]
fn values_and_types() {
    check("%3 = relu(%0) : f32[2,3]", "the next value is %2, but the line makes %3");
    check("%2 = relu(%2) : f32[2,3]", "relu: reads value %2, which does not exist yet");
    check("%2, %3 = relu(%0) : f32[2,3]", "relu makes 1 values, but the line names 2");
    check("%2 = relu(%0) : f32[3,2] @\"head\"", "relu gives f32[2,3], but the line says f32[3,2]");
    check("%2 = relu(%0) : f32[2,3], f32[2,3]", "relu gives f32[2,3], but the line says f32[2,3], f32[2,3]");
    check("%2 = cast(%0) : f16[2]", "cast gives f16[2,3], but the line says f16[2]");
    check("%2 = reshape(%0) : f16[6]", "reshape gives f32[6], but the line says f16[6]");
    check("%2 = reshape(%0) : f32[6], f32[6]", "reshape: has one result, but 2 types are given");
    check("%2 = reshape(%0) : f32[7] @\"head\"", "reshape in layer \"head\": f32[2,3] has 6 elements, but [7] has 7");
    check("%2 = relu(%0) : f64[2,3]", "expected a type such as f32[2,3], but found \"f64\" and \"[2,3]\"");
    check("update %0 -> %2", "%2 is not made by any line above");
    check("output \"y\" %9", "%9 is not made by any line above");
}

#[test]
fn numbers_too_large() {
    check("%2 = input \"y\" : f32[18446744073709551616]", "\"18446744073709551616\" is not a whole number in range");
    check("%4294967296 = relu(%0) : f32[2,3]", "\"4294967296\" is not a whole number in range");
    check(
        "%2 = input \"y\" : f32[1099511627777]",
        "input: the extent 1099511627777 is larger than the limit of 1099511627776",
    );
    check(
        "%2 = fill {value=0} : u8[0,1099511627776,1099511627776]",
        "fill: the shape [0,1099511627776,1099511627776] has more than the limit of 2305843009213693951 elements",
    );
    check(
        "%2 = pad(%0) {pad=[0,0,18446744073709551615,0]} : f32[2,3]",
        "pad: the padding 18446744073709551615 is larger than the limit of 1099511627776",
    );
}

#[test]
fn syntax() {
    check("relu(%0)", "a line starts with a value such as %0, with update or with output");
    check("%2 relu(%0)", "expected \"=\", but found \"relu(%0)\"");
    check("%2 = (%0) : f32[2,3]", "expected an op, but found \"(%0) : f32[2,3]\"");
    check("%2 = relu(%0", "expected \")\", but found the end of the line");
    check("%2 = relu(%0) # : f32[2,3]", "expected \":\", but found the end of the line");
    check("%2 = relu(%0) : f32[2,3] f32", "expected the end of the line, but found \"f32\"");
    check("%2 = relu(%0) {} : f32[2,3]", "expected the name of an attribute, but found \"} : f32[2,3]\"");
    check("%2 = concat(%0) {axis=} : f32[2,3]", "expected a setting, but found \"} : f32[2,3]\"");
    check("%2 = relu(%0) : f32[2,3] @\"head", "the string is not closed");
    check("%2 = relu(%0) : f32[2,3] @\"he\\ad\"", "\\a is not an escape; there are \\\" \\\\ \\n \\r \\t and \\u{hex}");
    check("%2 = relu(%0) : f32[2,3] @\"\\u{d800}\"", "\\u{d800} is not a character");
    check("update %0 - %1", "expected \"->\", but found \"- %1\"");
}
