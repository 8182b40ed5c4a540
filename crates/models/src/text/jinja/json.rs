//! Values as JSON in the form of Python's `json.dumps`: a space behind commas and colons, keys in their
//! order.

use super::{
    Fault,
    floats::float_text,
    value::{Budget, Value},
};

struct Writer<'b> {
    out: String,
    ascii: bool,
    sort: bool,
    indent: Option<String>,
    comma: String,
    colon: String,
    budget: &'b Budget,
}

/// A value as JSON. With `ascii`, other characters are escaped; with `sort`, keys are in alphabetical order.
pub(super) fn write(
    value: &Value,
    [ascii, sort]: [bool; 2],
    indent: Option<Value>,
    separators: Option<Value>,
    budget: &Budget,
) -> Result<Value, Fault> {
    let indent = match indent {
        Some(Value::Text(text)) => Some(text.to_string()),
        Some(size) => Some(budget.repeated(" ", size.size("the indent")?)?),
        None => None,
    };
    let (mut comma, mut colon) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some(separators) = separators {
        let separators = separators.items(budget)?;
        let [first, second] = &separators.items[..] else {
            return Err(Fault::new("separators are two texts"));
        };
        (comma, colon) = (first.text(budget)?.to_string(), second.text(budget)?.to_string());
    }
    let mut writer = Writer { out: String::new(), ascii, sort, indent, comma, colon, budget };
    writer.value(value, 0)?;
    budget.text(writer.out)
}

impl Writer<'_> {
    fn push(&mut self, text: &str) -> Result<(), Fault> {
        self.budget.bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// The beginning of an element, or of the end of a list.
    fn line(&mut self, depth: usize) -> Result<(), Fault> {
        if let Some(indent) = &self.indent {
            let line = ["\n", &self.budget.repeated(indent, depth)?].concat();
            self.push(&line)?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Fault> {
        self.budget.steps(1)?;
        match value {
            Value::None => self.push("null"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Float(value) => self.push(&match value {
                value if value.is_nan() => "NaN".into(),
                value if value.is_infinite() => if *value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
                value => float_text(*value),
            }),
            Value::Text(text) => self.quoted(text),
            Value::List(items) | Value::Tuple(items) => {
                self.push("[")?;
                for (k, item) in items.items.iter().enumerate() {
                    self.separate(k, depth)?;
                    self.value(item, depth + 1)?;
                }
                self.close(items.items.is_empty(), depth, "]")
            }
            Value::Dict(dict) => {
                let mut pairs: Vec<&(Value, Value)> = dict.pairs.iter().collect();
                if self.sort {
                    pairs.sort_by(|a, b| a.0.as_text().cmp(&b.0.as_text()));
                }
                self.push("{")?;
                for (k, (key, value)) in pairs.into_iter().enumerate() {
                    self.separate(k, depth)?;
                    match key {
                        Value::Text(text) => self.quoted(text)?,
                        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                            self.push("\"")?;
                            self.value(key, depth)?;
                            self.push("\"")?;
                        }
                        other => return Err(Fault::new(format!("a {} is no key in JSON", other.kind()))),
                    }
                    let colon = self.colon.clone();
                    self.push(&colon)?;
                    self.value(value, depth + 1)?;
                }
                self.close(dict.pairs.is_empty(), depth, "}")
            }
            Value::Undefined(_)
            | Value::Function(_)
            | Value::Method(_)
            | Value::Macro(_)
            | Value::Namespace(_)
            | Value::Loop(_) => Err(Fault::new(format!("a {} is no JSON", value.kind()))),
        }
    }

    fn separate(&mut self, k: usize, depth: usize) -> Result<(), Fault> {
        if k > 0 {
            let comma = self.comma.clone();
            self.push(&comma)?;
        }
        self.line(depth + 1)
    }

    fn close(&mut self, is_empty: bool, depth: usize, end: &str) -> Result<(), Fault> {
        if !is_empty {
            self.line(depth)?;
        }
        self.push(end)
    }

    fn quoted(&mut self, text: &str) -> Result<(), Fault> {
        let mut out = String::with_capacity(text.len() + 2);
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if u32::from(c) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out += &format!("\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        self.push(&out)
    }
}
