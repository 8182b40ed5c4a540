//! The values of a template: those of Python that JSON has, and what templates add.

use std::{cell::Cell, cmp::Ordering, rc::Rc};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Fault, Limits, floats::float_text};

/// How deep lists and dictionaries may be nested.
const MAX_NESTING: usize = 160;

/// The steps and bytes that are left of a rendering.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    steps: Cell<u64>,
    bytes: Cell<u64>,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget { limits, steps: Cell::new(limits.steps), bytes: Cell::new(limits.bytes) }
    }

    /// Takes some steps, one for each operation and each element that it looks at.
    pub(super) fn steps(&self, count: usize) -> Result<(), Fault> {
        match self.steps.get().checked_sub(count as u64) {
            Some(left) => self.steps.set(left),
            None => {
                return Err(Fault::new(format!(
                    "it takes more than {} steps; ChatTemplate::set_limits raises the limit",
                    self.limits.steps
                )));
            }
        }
        Ok(())
    }

    /// Takes the bytes of a new text or list.
    pub(super) fn bytes(&self, count: usize) -> Result<(), Fault> {
        match self.bytes.get().checked_sub(count as u64) {
            Some(left) => self.bytes.set(left),
            None => {
                return Err(Fault::new(format!(
                    "it makes more than {} bytes of texts and lists; ChatTemplate::set_limits raises the limit",
                    self.limits.bytes
                )));
            }
        }
        Ok(())
    }

    /// A new text.
    pub(super) fn text(&self, text: impl Into<Rc<str>>) -> Result<Value, Fault> {
        let text = text.into();
        self.bytes(text.len())?;
        Ok(Value::Text(text))
    }

    /// A text `count` times.
    pub(super) fn repeated(&self, text: &str, count: usize) -> Result<String, Fault> {
        self.bytes(text.len().saturating_mul(count))?;
        Ok(text.repeat(count))
    }

    /// A new list.
    pub(super) fn list(&self, items: Vec<Value>) -> Result<Value, Fault> {
        Ok(Value::List(self.sequence(items)?))
    }

    /// The elements of a new list or tuple.
    pub(super) fn sequence(&self, items: Vec<Value>) -> Result<Rc<Sequence>, Fault> {
        self.steps(items.len())?;
        self.bytes(items.len() * size_of::<Value>())?;
        Sequence::new(items).map(Rc::new)
    }

    /// A new dictionary; of equal keys, the last has the value.
    pub(super) fn dict(&self, pairs: Vec<(Value, Value)>) -> Result<Value, Fault> {
        self.bytes(pairs.len() * 2 * size_of::<Value>())?;
        let mut unique: Vec<(Value, Value)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            if let Value::List(_) | Value::Dict(_) = key {
                return Err(Fault::new(format!("a {} is no key of a dictionary", key.kind())));
            }
            match position(&unique, &key, self)? {
                Some(at) => unique[at].1 = value,
                None => unique.push((key, value)),
            }
        }
        Ok(Value::Dict(Rc::new(Dict::new(unique)?)))
    }
}

fn position(pairs: &[(Value, Value)], key: &Value, budget: &Budget) -> Result<Option<usize>, Fault> {
    for (at, (known, _)) in pairs.iter().enumerate() {
        if known.equals(key, budget)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The elements of a list or tuple.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    pub(super) items: Vec<Value>,
    nesting: usize,
}

impl Sequence {
    fn new(items: Vec<Value>) -> Result<Sequence, Fault> {
        let nesting = nesting(items.iter())?;
        Ok(Sequence { items, nesting })
    }
}

/// The pairs of a dictionary in their order.
#[derive(Debug, Default)]
pub(super) struct Dict {
    pub(super) pairs: Vec<(Value, Value)>,
    nesting: usize,
}

impl Dict {
    fn new(pairs: Vec<(Value, Value)>) -> Result<Dict, Fault> {
        let nesting = nesting(pairs.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Dict { pairs, nesting })
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &Value, budget: &Budget) -> Result<Option<Value>, Fault> {
        Ok(position(&self.pairs, key, budget)?.map(|at| self.pairs[at].1.clone()))
    }

    /// The value of a name.
    pub(super) fn named(&self, name: &str, budget: &Budget) -> Result<Option<Value>, Fault> {
        budget.steps(self.pairs.len())?;
        let is_named = |key: &Value| matches!(key, Value::Text(text) if **text == *name);
        Ok(self.pairs.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value.clone()))
    }
}

/// The nesting of a collection of these values.
fn nesting<'v>(values: impl Iterator<Item = &'v Value>) -> Result<usize, Fault> {
    let inner = values.map(|value| match value {
        Value::List(items) | Value::Tuple(items) => items.nesting,
        Value::Dict(dict) => dict.nesting,
        _ => 0,
    });
    match inner.max().unwrap_or(0) + 1 {
        deep if deep > MAX_NESTING => {
            Err(Fault::new(format!("lists and dictionaries are nested deeper than {MAX_NESTING}")))
        }
        nesting => Ok(nesting),
    }
}

/// The `loop` of a loop's body.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) items: Rc<Sequence>,
    pub(super) index: usize,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Nothing of this name.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Rc<str>),
    List(Rc<Sequence>),
    Tuple(Rc<Sequence>),
    Dict(Rc<Dict>),
    /// A function that every template has.
    Function(&'static str),
    /// A method of a value.
    Method(Rc<(Value, Rc<str>)>),
    /// A macro of the renderer, by its number.
    Macro(usize),
    /// A namespace of the renderer, by its number.
    Namespace(usize),
    Loop(Rc<Loop>),
}

impl Value {
    /// The name of the type in Python.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Function(_) | Value::Method(_) => "function",
            Value::Macro(_) => "Macro",
            Value::Namespace(_) => "Namespace",
            Value::Loop(_) => "LoopContext",
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.items.is_empty(),
            Value::Dict(dict) => !dict.pairs.is_empty(),
            Value::Function(_)
            | Value::Method(_)
            | Value::Macro(_)
            | Value::Namespace(_)
            | Value::Loop(_) => true,
        }
    }

    /// A whole number; `bool` is one too.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(value) => Some(i128::from(*value)),
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A number.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            other => other.as_int().map(|value| value as f64),
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number that an operation needs.
    pub(super) fn int(&self, of: &str) -> Result<i128, Fault> {
        self.as_int().ok_or_else(|| Fault::new(format!("{of} is a whole number, not {}", self.kind())))
    }

    /// A size that an operation needs; negative ones are 0.
    pub(super) fn size(&self, of: &str) -> Result<usize, Fault> {
        Ok(usize::try_from(self.int(of)?.max(0)).unwrap_or(usize::MAX))
    }

    /// The elements: those of a list, the keys of a dictionary, the characters of a text.
    pub(super) fn items(&self, budget: &Budget) -> Result<Rc<Sequence>, Fault> {
        match self {
            Value::List(items) | Value::Tuple(items) => Ok(items.clone()),
            Value::Undefined(_) => Ok(Rc::default()),
            Value::Dict(dict) => budget.sequence(dict.pairs.iter().map(|(key, _)| key.clone()).collect()),
            Value::Text(text) => {
                budget.steps(text.len())?;
                budget.bytes(text.len() * size_of::<Value>())?;
                let mut buffer = [0; 4];
                let items = text.chars().map(|c| Value::Text(Rc::from(&*c.encode_utf8(&mut buffer))));
                Sequence::new(items.collect()).map(Rc::new)
            }
            other => Err(Fault::new(format!("a {} has no elements", other.kind()))),
        }
    }

    /// Whether two values are equal, as Python compares them.
    pub(super) fn equals(&self, other: &Value, budget: &Budget) -> Result<bool, Fault> {
        budget.steps(1)?;
        Ok(match (self, other) {
            (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
            (Value::Text(a), Value::Text(b)) => {
                budget.steps(a.len().min(b.len()) / 64)?;
                a == b
            }
            (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
                if a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Dict(a), Value::Dict(b)) => {
                if a.pairs.len() != b.pairs.len() {
                    return Ok(false);
                }
                for (key, value) in &a.pairs {
                    match b.get(key, budget)? {
                        Some(other) if value.equals(&other, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Value::Function(a), Value::Function(b)) => a == b,
            (Value::Macro(a), Value::Macro(b)) | (Value::Namespace(a), Value::Namespace(b)) => a == b,
            (a, b) => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
                (Some(a), Some(b), ..) => a == b,
                (.., Some(a), Some(b)) => a == b,
                _ => false,
            },
        })
    }

    /// The order of two values, if they have one.
    pub(super) fn order(&self, other: &Value, budget: &Budget) -> Result<Ordering, Fault> {
        budget.steps(1)?;
        let order = match (self, other) {
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return a.order(b, budget);
                    }
                }
                Some(a.items.len().cmp(&b.items.len()))
            }
            (a, b) => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
                (Some(a), Some(b), ..) => Some(a.cmp(&b)),
                (.., Some(a), Some(b)) => Some(a.partial_cmp(&b).unwrap_or(Ordering::Equal)),
                _ => None,
            },
        };
        order.ok_or_else(|| Fault::new(format!("{} and {} have no order", self.kind(), other.kind())))
    }

    /// Whether a value is an element, a key, or a part of a text.
    pub(super) fn contains(&self, item: &Value, budget: &Budget) -> Result<bool, Fault> {
        match self {
            Value::Text(text) => match item {
                Value::Text(part) => {
                    budget.steps(text.len() / 64)?;
                    Ok(text.contains(&**part))
                }
                other => Err(Fault::new(format!("a text has no {} in it", other.kind()))),
            },
            Value::Dict(dict) => Ok(dict.get(item, budget)?.is_some()),
            other => {
                for value in &other.items(budget)?.items {
                    if value.equals(item, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// The text that Python prints, `str(value)`.
    pub(super) fn text(&self, budget: &Budget) -> Result<Rc<str>, Fault> {
        if let Value::Text(text) = self {
            return Ok(text.clone());
        }
        let mut text = String::new();
        self.write(&mut text, budget)?;
        Ok(text.into())
    }

    /// Adds the text that Python prints.
    pub(super) fn write(&self, out: &mut String, budget: &Budget) -> Result<(), Fault> {
        match self {
            Value::Undefined(_) => Ok(()),
            Value::Text(text) => {
                budget.bytes(text.len())?;
                out.push_str(text);
                Ok(())
            }
            other => other.write_quoted(out, budget),
        }
    }

    /// Adds the text of a value in a list, `repr(value)`.
    pub(super) fn write_quoted(&self, out: &mut String, budget: &Budget) -> Result<(), Fault> {
        budget.steps(1)?;
        let start = out.len();
        let mut charged = 0;
        match self {
            Value::Undefined(_) => out.push_str("Undefined"),
            Value::None => out.push_str("None"),
            Value::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
            Value::Int(value) => *out += &value.to_string(),
            Value::Float(value) => *out += &float_text(*value),
            Value::Text(text) => quote(text, out),
            Value::List(items) | Value::Tuple(items) => {
                let is_tuple = matches!(self, Value::Tuple(_));
                out.push(if is_tuple { '(' } else { '[' });
                for (k, item) in items.items.iter().enumerate() {
                    out.push_str(if k > 0 { ", " } else { "" });
                    let before = out.len();
                    item.write_quoted(out, budget)?;
                    charged += out.len() - before;
                }
                out.push_str(if is_tuple && items.items.len() == 1 { "," } else { "" });
                out.push(if is_tuple { ')' } else { ']' });
            }
            Value::Dict(dict) => {
                out.push('{');
                for (k, (key, value)) in dict.pairs.iter().enumerate() {
                    out.push_str(if k > 0 { ", " } else { "" });
                    let before = out.len();
                    key.write_quoted(out, budget)?;
                    out.push_str(": ");
                    value.write_quoted(out, budget)?;
                    charged += out.len() - before;
                }
                out.push('}');
            }
            Value::Function(name) => *out += &format!("<function {name}>"),
            Value::Method(method) => *out += &format!("<method {}>", method.1),
            Value::Macro(_) => out.push_str("<Macro>"),
            Value::Namespace(_) => out.push_str("<Namespace>"),
            Value::Loop(state) => {
                *out += &format!("<LoopContext {}/{}>", state.index + 1, state.items.items.len());
            }
        }
        budget.bytes(out.len() - start - charged)
    }
}

/// Characters that have no form of their own: marks of direction, joiners, and those of private use.
const INVISIBLE: &[std::ops::RangeInclusive<char>] = &[
    '\u{ad}'..='\u{ad}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{e000}'..='\u{f8ff}',
    '\u{feff}'..='\u{feff}',
    '\u{fff0}'..='\u{fffb}',
    '\u{e0000}'..='\u{10ffff}',
];

/// A text between quotes, as Python shows it.
fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control()
                || (c.is_whitespace() && c != ' ')
                || INVISIBLE.iter().any(|of| of.contains(&c)) =>
            {
                *out += &match u32::from(c) {
                    code @ 0..=0xff => format!("\\x{code:02x}"),
                    code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A value from JSON, with dictionaries in the order of the text.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        struct Json;

        impl<'de> Visitor<'de> for Json {
            type Value = Value;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::None)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Int(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Int(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = access.next_element()? {
                    items.push(item);
                }
                Ok(Value::List(Rc::new(
                    Sequence::new(items).map_err(|fault| de::Error::custom(fault.message))?,
                )))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    pairs.push((Value::Text(key.into()), value));
                }
                Ok(Value::Dict(Rc::new(Dict::new(pairs).map_err(|fault| de::Error::custom(fault.message))?)))
            }
        }
        deserializer.deserialize_any(Json)
    }
}
