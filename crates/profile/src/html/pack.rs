//! JSON made small for a page, without knowing what it says: `unpack` in `js/data.js` is the way back.
//!
//! A list of objects with the same keys becomes a list a key, `{"#": {key: [..]}}`; a list of strings that repeat becomes the
//! different ones and their numbers, `{"=": [..], "@": [..]}`. Numbers with a fraction keep six digits.

use std::collections::HashMap;

use serde_json::{Map, Number, Value, json};

/// The same data in fewer characters.
pub fn pack(value: Value) -> Value {
    match value {
        Value::Array(items) => pack_list(items),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, pack(value))).collect()),
        Value::Number(n) => Value::Number(rounded(n)),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

/// JSON as the text of a script element: nothing in it begins a tag or a comment.
pub fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn pack_list(items: Vec<Value>) -> Value {
    if let Some(keys) = common_keys(&items) {
        return columns(items, &keys);
    }
    if let Some((words, numbers)) = dictionary(&items) {
        return json!({ "=": words, "@": numbers });
    }
    Value::Array(items.into_iter().map(pack).collect())
}

/// The keys that all of several objects have.
fn common_keys(items: &[Value]) -> Option<Vec<String>> {
    let keys: Vec<String> = items.first()?.as_object()?.keys().cloned().collect();
    let is_alike = |item: &Value| item.as_object().is_some_and(|o| o.keys().eq(&keys));
    (items.len() > 1 && items.iter().all(is_alike)).then_some(keys)
}

fn columns(items: Vec<Value>, keys: &[String]) -> Value {
    let mut columns: Vec<Vec<Value>> = keys.iter().map(|_| Vec::with_capacity(items.len())).collect();
    for item in items {
        let Value::Object(object) = item else { continue };
        columns.iter_mut().zip(object).for_each(|(column, (_, value))| column.push(value));
    }
    let packed: Map<String, Value> = keys.iter().cloned().zip(columns.into_iter().map(pack_list)).collect();
    json!({ "#": packed })
}

/// The different strings of a list and their numbers, where that is shorter.
fn dictionary(items: &[Value]) -> Option<(Vec<&str>, Vec<usize>)> {
    let mut numbers_of = HashMap::new();
    let mut words = Vec::new();
    let mut numbers = Vec::with_capacity(items.len());
    for item in items {
        let word = item.as_str()?;
        numbers.push(*numbers_of.entry(word).or_insert_with(|| {
            words.push(word);
            words.len() - 1
        }));
    }
    (!words.is_empty() && words.len() * 2 <= items.len()).then_some((words, numbers))
}

fn rounded(n: Number) -> Number {
    let Some(value) = n.as_f64().filter(|_| n.is_f64()) else { return n };
    let short = format!("{value:.5e}").parse().ok().and_then(Number::from_f64);
    short.unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_like_objects_become_columns_and_repeated_words_numbers() {
        let list = json!([{ "a": "x", "b": 1.23456789 }, { "a": "x", "b": 2 }, { "a": "y", "b": null }, { "a": "x", "b": 0.5 }]);
        let expected = json!({ "#": { "a": { "=": ["x", "y"], "@": [0, 0, 1, 0] }, "b": [1.23457, 2, null, 0.5] } });
        assert_eq!(pack(list), expected);
    }

    #[test]
    fn what_does_not_repeat_stays_as_it_is() {
        for value in
            [json!([{ "a": 1 }]), json!([{ "a": 1 }, { "b": 1 }]), json!(["x", "y"]), json!([1, "x"]), json!([])]
        {
            assert_eq!(pack(value.clone()), value);
        }
    }

    #[test]
    fn sizes_keep_every_digit() {
        assert_eq!(pack(json!(u64::MAX)), json!(u64::MAX));
    }

    #[test]
    fn no_tag_begins_in_the_text_of_a_script() {
        let text = json!({ "layer": "</script><!--<script>" }).to_string();
        let safe = script_safe(&text);
        assert!(!safe.contains('<'));
        assert_eq!(serde_json::from_str::<Value>(&safe).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
    }
}
