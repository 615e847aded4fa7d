//! Patterns over scopes: which parameters a person means. `layer1` is all that lies in the layer, `layer*/0` the first
//! block of each, `**/bias` every bias. `*` stands for any part of one name, `**` for any number of names.

/// Whether a name such as `layer1/0/conv1/weight` is one of those that the pattern means.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let name: Vec<&str> = name.split('/').collect();
    path(&pattern, &name)
}

/// A pattern that has come to its end means all that lies below.
fn path(pattern: &[&str], name: &[&str]) -> bool {
    match pattern {
        [] => true,
        ["**", rest @ ..] => (0..=name.len()).any(|skip| path(rest, &name[skip..])),
        [first, rest @ ..] => match name {
            [] => false,
            [head, tail @ ..] => word(first.as_bytes(), head.as_bytes()) && path(rest, tail),
        },
    }
}

fn word(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| word(rest, &text[skip..])),
        [first, rest @ ..] => text.first() == Some(first) && word(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_means_what_lies_in_its_layers() {
        for (pattern, name, expected) in [
            ("layer1", "layer1/0/conv1/weight", true),
            ("layer1", "layer10/0/conv1/weight", false),
            ("layer1/0", "layer1/0/conv1/weight", true),
            ("layer1/1", "layer1/0/conv1/weight", false),
            ("layer*", "layer10/0/conv1/weight", true),
            ("layer*/0", "layer2/0/bn1/bias", true),
            ("layer*/0", "layer2/1/bn1/bias", false),
            ("*", "fc/weight", true),
            ("**", "fc/weight", true),
            ("**/bias", "layer2/1/bn1/bias", true),
            ("**/bias", "fc/bias", true),
            ("**/bias", "fc/weight", false),
            ("**/conv*/weight", "a/b/conv3/weight", true),
            ("l*1", "layer1/x", true),
            ("fc/weight/more", "fc/weight", false),
            ("", "fc", false),
            ("é*", "élan/w", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
