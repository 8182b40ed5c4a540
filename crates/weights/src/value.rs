//! [`Value`]: the values in a file beside and around its tensors.

use std::{fmt, sync::Arc};

use crate::TensorInfo;

/// A value in a file: a number, a text, a list, a dict, or a tensor that is read on demand.
///
/// Clones share their contents.
#[derive(Clone, Debug)]
pub enum Value {
    /// Python's `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list or a set.
    List(Arc<[Value]>),
    /// A tuple, or a `torch.Size`.
    Tuple(Arc<[Value]>),
    /// A dict, in its order.
    Dict(Arc<[(Value, Value)]>),
    /// A tensor, for [`WeightFile::read`](crate::WeightFile::read).
    Tensor(Arc<TensorInfo>),
}

impl Value {
    /// The value under a key of a dict, or at an index of a list or tuple. Keys are texts, or integers in
    /// decimal.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Dict(entries) => {
                entries.iter().find(|(name, _)| name.key().as_deref() == Some(key)).map(|(_, value)| value)
            }
            Value::List(items) | Value::Tuple(items) => items.get(key.parse::<usize>().ok()?),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => None,
            Value::Bytes(_) | Value::Tensor(_) => None,
        }
    }

    /// The value at a path of keys joined by dots, such as `param_groups.0.lr`. Keys may have dots
    /// themselves: if several match, the first that leads to a value is used.
    pub fn at(&self, path: &str) -> Option<&Value> {
        if path.is_empty() {
            return Some(self);
        }
        if let Some(value) = self.get(path) {
            return Some(value);
        }
        let splits = path.match_indices('.').map(|(at, _)| (&path[..at], &path[at + 1..]));
        splits.filter_map(|(key, rest)| self.get(key)?.at(rest)).next()
    }

    /// The text of this value as a key of a path: the text itself, an integer in decimal, True or False.
    pub(crate) fn key(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Value::Text(text) => Some((&**text).into()),
            Value::Int(number) => Some(number.to_string().into()),
            Value::Bool(truth) => Some((if *truth { "True" } else { "False" }).into()),
            Value::None | Value::Float(_) | Value::Bytes(_) | Value::List(_) | Value::Tuple(_) => None,
            Value::Dict(_) | Value::Tensor(_) => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// An integer, if it fits an i64.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(number) => i64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A floating-point number, or an integer converted to one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            Value::Int(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// A text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a dict, in its order.
    pub fn entries(&self) -> Option<&[(Value, Value)]> {
        match self {
            Value::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// A tensor that has not been read.
    pub fn as_tensor(&self) -> Option<&TensorInfo> {
        match self {
            Value::Tensor(info) => Some(info),
            _ => None,
        }
    }

    /// The kind of value, by its Python name.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Tensor(_) => "tensor",
        }
    }
}

/// The number of printed items of a list or dict; the limits of characters of a text and of levels follow.
const PRINTED_ITEMS: usize = 16;
const PRINTED_CHARS: usize = 200;
const PRINTED_DEPTH: usize = 6;

/// Formats the value in Python's notation, shortened if it is long.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f, PRINTED_DEPTH)
    }
}

fn write_value(value: &Value, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    if depth == 0 {
        return f.write_str("…");
    }
    let list = |f: &mut fmt::Formatter<'_>, items: &[Value]| {
        for (k, item) in items.iter().take(PRINTED_ITEMS).enumerate() {
            f.write_str(if k > 0 { ", " } else { "" })?;
            write_value(item, f, depth - 1)?;
        }
        f.write_str(if items.len() > PRINTED_ITEMS { ", …" } else { "" })
    };
    match value {
        Value::None => f.write_str("None"),
        Value::Bool(truth) => f.write_str(if *truth { "True" } else { "False" }),
        Value::Int(number) => write!(f, "{number}"),
        Value::Float(number) => write!(f, "{number:?}"),
        Value::Text(text) => match text.char_indices().nth(PRINTED_CHARS) {
            Some((end, _)) => write!(f, "{:?}…", &text[..end]),
            None => write!(f, "{text:?}"),
        },
        Value::Bytes(bytes) => write!(f, "<{} bytes>", bytes.len()),
        Value::List(items) => {
            f.write_str("[")?;
            list(f, items)?;
            f.write_str("]")
        }
        Value::Tuple(items) => {
            f.write_str("(")?;
            list(f, items)?;
            f.write_str(if items.len() == 1 { ",)" } else { ")" })
        }
        Value::Dict(entries) => {
            f.write_str("{")?;
            for (k, (key, value)) in entries.iter().take(PRINTED_ITEMS).enumerate() {
                f.write_str(if k > 0 { ", " } else { "" })?;
                write_value(key, f, depth - 1)?;
                f.write_str(": ")?;
                write_value(value, f, depth - 1)?;
            }
            f.write_str(if entries.len() > PRINTED_ITEMS { ", …}" } else { "}" })
        }
        Value::Tensor(info) => write!(f, "<tensor {} {}>", info.type_name(), info.shape()),
    }
}
