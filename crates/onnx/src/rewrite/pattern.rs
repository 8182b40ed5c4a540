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
    /// The pattern that a text describes, if it is one.
    pub(super) fn read(text: &'static str) -> Option<Pattern> {
        let mut words = Words { text }.peekable();
        let pattern = alternatives(&mut words)?;
        words.next().is_none().then_some(pattern)
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

fn alternatives(words: &mut Peekable<Words>) -> Option<Pattern> {
    let mut list = vec![single(words)?];
    while words.next_if_eq(&"|").is_some() {
        list.push(single(words)?);
    }
    Some(if list.len() > 1 { Pattern::Either(list) } else { list.swap_remove(0) })
}

fn single(words: &mut Peekable<Words>) -> Option<Pattern> {
    let word = words.next()?;
    if let Ok(number) = word.parse() {
        return Some(Pattern::Number(number));
    }
    if let Some(name) = word.strip_prefix('#') {
        return Some(Pattern::AnyNumber(name));
    }
    if words.next_if_eq(&"?").is_some() {
        return Some(Pattern::Optional(word));
    }
    if words.next_if_eq(&":").is_some() {
        let op_type = words.next()?;
        return Some(Pattern::Node { name: Some(word), op_type, inputs: inputs(words)? });
    }
    if words.peek() == Some(&"(") {
        return Some(Pattern::Node { name: None, op_type: word, inputs: inputs(words)? });
    }
    Some(Pattern::Value(word))
}

/// The inputs of a node, in brackets.
fn inputs(words: &mut Peekable<Words>) -> Option<Vec<Pattern>> {
    words.next_if_eq(&"(")?;
    let mut list = vec![alternatives(words)?];
    while words.next_if_eq(&",").is_some() {
        list.push(alternatives(words)?);
    }
    words.next_if_eq(&")")?;
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_pattern() {
        let node = |name, op_type, inputs| Pattern::Node { name, op_type, inputs };
        let x = Pattern::Value("x");
        assert_eq!(
            Pattern::read("Mul(x, s:Sigmoid(x | #c), -0.5, b?)").unwrap(),
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
        assert_eq!(Pattern::read("Mul(x, Add(x, y)"), None);
        assert_eq!(Pattern::read("Mul(x, y))"), None);
        assert_eq!(Pattern::read("Add(a, b) | Mul(a, b)").unwrap().roots(), ["Add", "Mul"]);
    }
}
