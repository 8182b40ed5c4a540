//! [`calls`]: the calls at the start of a text.

use serde_json::{Map, Value as Json};

use super::{
    Call, Function,
    cursor::Cursor,
    format::{ArgumentMarks, Body, CallFormat},
    values::{Literals, converted},
};

/// The mark of a part behind a name that Mistral's models write, and that has no meaning here.
const CALL_NUMBER: &str = "[CALL_ID]";

/// The calls at the start of a text, and the text behind them.
pub(super) fn calls<'a>(format: &CallFormat, functions: &[Function], text: &'a str) -> (Vec<Call>, &'a str) {
    let mut cursor = Cursor { rest: text };
    let mut found = Vec::new();
    let mut is_inside = format.around.0.is_empty();
    loop {
        let start = cursor.rest;
        cursor.separators();
        is_inside |= cursor.eat(format.around.0);
        let next = if is_inside { cursor.call(format, functions) } else { None };
        let Some(calls) = next else {
            cursor.rest = start;
            break;
        };
        found.extend(calls);
        cursor.separators();
        is_inside = format.around.1.is_empty() || !cursor.eat(format.around.1);
    }
    (found, cursor.rest)
}

/// A call in JSON, as `{"name": …, "arguments": …}` or with `parameters`.
fn object(value: &Json, functions: &[Function]) -> Option<Call> {
    let name = value.get("name")?.as_str()?;
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Null) | None => "{}".to_string(),
        Some(other) => other.to_string(),
    };
    let function = functions.iter().find(|function| function.name == name)?;
    Some(Call { name: function.name.clone(), arguments })
}

impl<'a> Cursor<'a> {
    /// The next call, or the next list of calls.
    fn call(&mut self, format: &CallFormat, functions: &[Function]) -> Option<Vec<Call>> {
        let is_object = matches!(format.body, Body::Object(_) | Body::Objects(_));
        let is_marked = format.begin.iter().any(|mark| format.open.is_empty() && is_object && self.eat(mark));
        if !(self.eat(format.open) || is_marked || format.is_bare) {
            return None;
        }
        if is_object {
            // Granite 3.1 writes another mark than 3.0.
            for mark in format.begin {
                self.eat(mark);
            }
            let value = self.json()?;
            self.close(format.close);
            return match value {
                Json::Array(all) => all.iter().map(|value| object(value, functions)).collect(),
                value => Some(vec![object(&value, functions)?]),
            };
        }
        let name = self.name()?;
        let function = functions.iter().find(|function| function.name == name)?;
        let after_name = format.after_name.trim();
        if !after_name.is_empty() {
            let between = self.until(after_name)?.trim();
            if !(between.is_empty() || between.starts_with(CALL_NUMBER)) {
                return None;
            }
        }
        let arguments = match format.body {
            Body::Object(_) | Body::Objects(_) | Body::Channels => return None,
            Body::Json => self.json()?.as_object()?.clone(),
            Body::Marked(marks) => self.marked(function, &marks, format.close)?,
            Body::Python => Literals::new(self).pairs('=', ')')?,
            Body::Gemma => {
                let is_open = self.eat("{");
                is_open.then(|| Literals::new(self).pairs(':', '}'))??
            }
        };
        if matches!(format.body, Body::Gemma) && !self.eat("}") {
            return None;
        }
        self.close(format.close)?;
        let arguments = Json::Object(arguments).to_string();
        Some(vec![Call { name: name.to_string(), arguments }])
    }

    /// Arguments between marks, up to the closing mark of the call.
    fn marked(
        &mut self,
        function: &Function,
        marks: &ArgumentMarks,
        close: &str,
    ) -> Option<Map<String, Json>> {
        let mut arguments = Map::new();
        while self.eat(marks.key_open) {
            let key = self.until(marks.key_close.trim())?.trim();
            if !self.eat(marks.value_open) {
                return None;
            }
            let mut value = self.value(marks, close)?;
            if marks.own_lines {
                value = value.strip_prefix('\n').unwrap_or(value);
                value = value.strip_suffix('\n').unwrap_or(value);
            }
            arguments.insert(key.to_string(), converted(function, key, value));
        }
        Some(arguments)
    }

    /// A value up to its closing mark. A text may have this mark too: it ends where another argument or the
    /// end of the call follows.
    fn value(&mut self, marks: &ArgumentMarks, close: &str) -> Option<&'a str> {
        let (whole, mark) = (self.rest, marks.value_close.trim());
        whole.match_indices(mark).find_map(|(at, _)| {
            let rest = &whole[at + mark.len()..];
            let mut next = Cursor { rest };
            let ends = next.eat(marks.key_open) || next.close(close).is_some();
            ends.then(|| {
                self.rest = rest;
                &whole[..at]
            })
        })
    }
}
