//! Values of arguments: by the schema of a parameter, and in notations other than JSON.

use std::str::Chars;

use serde_json::{Map, Number, Value as Json, json};

use super::{Function, cursor::Cursor};

/// The greatest number of references that are followed in a row.
pub(super) const MAX_REFERENCES: usize = 8;
/// The greatest depth of lists and objects in a value that is not JSON.
const MAX_DEPTH: usize = 64;
/// The mark around strings of Gemma 4.
const GEMMA_QUOTE: &str = "<|\"|>";

/// The types that the schema of a parameter allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) text: bool,
    pub(super) null: bool,
    pub(super) boolean: bool,
    pub(super) other: bool,
}

impl Types {
    /// Whether a value is a bare text: it is a string, or null.
    pub(super) fn is_text(self) -> bool {
        self.text && !self.boolean && !self.other
    }

    fn add(&mut self, name: &str) {
        match name {
            "string" => self.text = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            _ => self.other = true,
        }
    }
}

/// The types of a schema, whose references start at the root. A schema that names none allows any.
pub(super) fn types(schema: &Json, root: &Json) -> Types {
    let mut found = Types::default();
    collect(schema, root, MAX_REFERENCES, &mut found);
    match found == Types::default() {
        true => Types { text: true, null: true, boolean: true, other: true },
        false => found,
    }
}

fn collect(schema: &Json, root: &Json, depth: usize, found: &mut Types) {
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(target) = target(schema, root) {
        return collect(target, root, depth, found);
    }
    match schema.get("type") {
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).for_each(|name| found.add(name)),
        Some(name) => found.add(name.as_str().unwrap_or_default()),
        None => {
            let values = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
            values.chain(schema.get("const")).for_each(|value| found.add(type_name(value)));
            let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|field| schema.get(*field));
            let alternatives = alternatives.filter_map(Json::as_array).flatten();
            alternatives.for_each(|schema| collect(schema, root, depth, found));
        }
    }
}

/// The schema that a reference means.
pub(super) fn target<'a>(schema: &Json, root: &'a Json) -> Option<&'a Json> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// The value of a parameter that is written as a bare text. It is a string if the schema allows nothing else
/// than a string or null, and else JSON or a value as Python writes it; a text that is neither stays one.
pub(super) fn converted(function: &Function, key: &str, text: &str) -> Json {
    let (root, schema) = (function.schema(), function.parameter(key));
    let types = types(schema.unwrap_or(&Json::Null), root);
    if types.is_text() {
        let is_null = types.null && matches!(text.trim(), "null" | "None");
        return if is_null { Json::Null } else { json!(text) };
    }
    let read = || {
        let mut cursor = Cursor { rest: text.trim() };
        let value = Literals::new(&mut cursor).value(MAX_DEPTH)?;
        cursor.rest.is_empty().then_some(value)
    };
    serde_json::from_str(text).ok().or_else(read).unwrap_or_else(|| json!(text))
}

/// Values as Python and Gemma write them.
pub(super) struct Literals<'r, 'a> {
    cursor: &'r mut Cursor<'a>,
}

impl<'r, 'a> Literals<'r, 'a> {
    pub(super) fn new(cursor: &'r mut Cursor<'a>) -> Literals<'r, 'a> {
        Literals { cursor }
    }

    /// Keys and values up to a closing character, which stays.
    pub(super) fn pairs(&mut self, assign: char, close: char) -> Option<Map<String, Json>> {
        self.pairs_at(assign, close, MAX_DEPTH)
    }

    fn next(&mut self) -> Option<char> {
        self.cursor.rest = self.cursor.rest.trim_start();
        self.cursor.rest.chars().next()
    }

    fn skip(&mut self, expected: char) -> Option<()> {
        self.next().filter(|c| *c == expected)?;
        self.cursor.rest = &self.cursor.rest[expected.len_utf8()..];
        Some(())
    }

    fn pairs_at(&mut self, assign: char, close: char, depth: usize) -> Option<Map<String, Json>> {
        let mut pairs = Map::new();
        while self.next()? != close {
            let key = match self.string() {
                Some(key) => key,
                None => self.cursor.name()?.to_string(),
            };
            self.skip(assign)?;
            pairs.insert(key, self.value(depth)?);
            self.end_of_item(close)?;
        }
        Some(pairs)
    }

    /// A comma, unless the closing character comes next.
    fn end_of_item(&mut self, close: char) -> Option<()> {
        match self.next()? == close {
            true => Some(()),
            false => self.skip(','),
        }
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        let depth = depth.checked_sub(1)?;
        if let Some(text) = self.string() {
            return Some(json!(text));
        }
        match self.next()? {
            '{' => {
                self.skip('{')?;
                let pairs = self.pairs_at(':', '}', depth)?;
                self.skip('}')?;
                Some(Json::Object(pairs))
            }
            '[' => {
                self.skip('[')?;
                let mut values = Vec::new();
                while self.next()? != ']' {
                    values.push(self.value(depth)?);
                    self.end_of_item(']')?;
                }
                self.skip(']')?;
                Some(Json::Array(values))
            }
            '-' | '0'..='9' => self.number(),
            _ => match self.cursor.name()? {
                "true" | "True" => Some(json!(true)),
                "false" | "False" => Some(json!(false)),
                "null" | "None" => Some(Json::Null),
                _ => None,
            },
        }
    }

    fn number(&mut self) -> Option<Json> {
        let is_other = |c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
        let rest = self.cursor.rest;
        let (number, rest) = rest.split_at(rest.find(is_other).unwrap_or(rest.len()));
        self.cursor.rest = rest;
        serde_json::from_str::<Number>(number).ok().map(Json::Number)
    }

    /// A string in one of the quotes, if one comes next.
    fn string(&mut self) -> Option<String> {
        self.next()?;
        if let Some(rest) = self.cursor.rest.strip_prefix(GEMMA_QUOTE) {
            let (text, rest) = rest.split_once(GEMMA_QUOTE)?;
            self.cursor.rest = rest;
            return Some(text.to_string());
        }
        let mut characters = self.cursor.rest.chars();
        let quote = characters.next().filter(|c| matches!(c, '"' | '\''))?;
        let mut text = String::new();
        loop {
            match characters.next()? {
                '\\' => escaped(&mut characters, &mut text)?,
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.cursor.rest = characters.as_str();
        Some(text)
    }
}

/// Adds the character that an escape in a string means. An escape that is not known stays as it is.
fn escaped(characters: &mut Chars<'_>, text: &mut String) -> Option<()> {
    let plain = match characters.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        c @ ('\\' | '\'' | '"' | '/') => c,
        'x' => char::from_u32(code(characters, 2)?)?,
        'u' => {
            let mut unit = code(characters, 4)?;
            // Two units of UTF-16 are one character.
            if (0xd800..0xdc00).contains(&unit) {
                *characters = characters.as_str().strip_prefix("\\u")?.chars();
                let low = code(characters, 4)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                unit = 0x10000 + ((unit - 0xd800) << 10) + low;
            }
            char::from_u32(unit)?
        }
        c => {
            text.push('\\');
            c
        }
    };
    text.push(plain);
    Some(())
}

/// A number of this many hexadecimal digits.
fn code(characters: &mut Chars<'_>, digits: usize) -> Option<u32> {
    let (number, rest) = characters.as_str().split_at_checked(digits)?;
    *characters = rest.chars();
    u32::from_str_radix(number, 16).ok()
}
