//! [`Pattern`]: a part of a graph as text, such as `Mul(x, Sigmoid(x))`.
//!
//! | text | matches |
//! |---|---|
//! | `Add(a, b)` | a node of ONNX's own domain; `Add` and `Mul` in either order of their inputs |
//! | `n:Conv(x, w)` | the same, and `n` names the node and its output |
//! | `x` | any value; the same name is the same value |
//! | `b?` | a last input that may be absent |
//! | `0.5` | a constant of one element that is this number, up to rounding |
//! | `#scale` | any constant of one element |
//! | `A \| B` | one of the two, the first if both match |

use std::iter::Peekable;

/// A pattern. All names are those of the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    Value(&'static str),
    Optional(&'static str),
    Number(f64),
    AnyNumber(&'static str),
    Node { name: Option<&'static str>, op_type: &'static str, inputs: Vec<Pattern> },
    Either(Vec<Pattern>),
}

impl Pattern {
    /// The pattern that a text describes.
    ///
    /// # Panics
    /// The text is no pattern; a test reads all of them.
    pub(super) fn read(text: &'static str) -> Pattern {
        let mut words = Words { text }.peekable();
        let pattern = alternatives(&mut words);
        assert!(words.next().is_none(), "the pattern {text} goes on after its end");
        pattern
    }

    /// The operators of the nodes that can be the pattern's last one.
    pub(super) fn roots(&self) -> Vec<&'static str> {
        match self {
            Pattern::Node { op_type, .. } => vec![op_type],
            Pattern::Either(list) => list.iter().flat_map(Pattern::roots).collect(),
            Pattern::Value(_) | Pattern::Optional(_) | Pattern::Number(_) | Pattern::AnyNumber(_) => {
                Vec::new()
            }
        }
    }
}

/// Names, numbers and single signs of a text.
struct Words {
    text: &'static str,
}

impl Iterator for Words {
    type Item = &'static str;

    fn next(&mut self) -> Option<&'static str> {
        self.text = self.text.trim_start();
        let of_name = |c: char| c.is_ascii_alphanumeric() || "_.-#".contains(c);
        let first = self.text.chars().next()?;
        let end = match of_name(first) {
            true => self.text.find(|c| !of_name(c)).unwrap_or(self.text.len()),
            false => first.len_utf8(),
        };
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        Some(word)
    }
}

fn alternatives(words: &mut Peekable<Words>) -> Pattern {
    let mut list = vec![single(words)];
    while words.next_if_eq(&"|").is_some() {
        list.push(single(words));
    }
    if list.len() > 1 { Pattern::Either(list) } else { list.swap_remove(0) }
}

#[allow(clippy::panic)] // a bad pattern is a bug in the table, which a test reads
fn single(words: &mut Peekable<Words>) -> Pattern {
    let Some(word) = words.next() else { panic!("a pattern ends too early") };
    if let Ok(number) = word.parse() {
        return Pattern::Number(number);
    }
    if let Some(name) = word.strip_prefix('#') {
        return Pattern::AnyNumber(name);
    }
    if words.next_if_eq(&"?").is_some() {
        return Pattern::Optional(word);
    }
    if words.next_if_eq(&":").is_some() {
        let Some(op_type) = words.next() else { panic!("a pattern ends after the name {word}") };
        return Pattern::Node { name: Some(word), op_type, inputs: inputs(words) };
    }
    if words.peek() == Some(&"(") {
        return Pattern::Node { name: None, op_type: word, inputs: inputs(words) };
    }
    Pattern::Value(word)
}

#[allow(clippy::panic)]
fn inputs(words: &mut Peekable<Words>) -> Vec<Pattern> {
    assert!(words.next() == Some("("), "a node's inputs begin with (");
    let mut list = vec![alternatives(words)];
    loop {
        match words.next() {
            Some(",") => list.push(alternatives(words)),
            Some(")") => return list,
            other => panic!("a node's inputs end with ), not {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_pattern() {
        let node = |name, op_type, inputs| Pattern::Node { name, op_type, inputs };
        let x = Pattern::Value("x");
        assert_eq!(
            Pattern::read("Mul(x, s:Sigmoid(x | #c), -0.5, b?)"),
            node(
                None,
                "Mul",
                vec![
                    x.clone(),
                    node(Some("s"), "Sigmoid", vec![Pattern::Either(vec![x, Pattern::AnyNumber("c")])]),
                    Pattern::Number(-0.5),
                    Pattern::Optional("b"),
                ]
            )
        );
        assert_eq!(Pattern::read("Add(a, b) | Mul(a, b)").roots(), ["Add", "Mul"]);
    }
}
