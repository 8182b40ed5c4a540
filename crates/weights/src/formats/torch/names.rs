//! The names of the tensors in a tree of values.

use std::{collections::BTreeMap, sync::Arc};

use crate::{TensorInfo, Value};

/// The number of visited nodes of a tree, per byte of its pickle, when tensors are named: lists that occur
/// several times are visited each time.
const VISITS_PER_BYTE: u64 = 16;

/// The name of a tensor that is the whole object.
const WHOLE: &str = "tensor";

/// The tensors of a tree by their paths.
pub(super) fn names_of(
    value: &Value,
    bytes: u64,
) -> std::result::Result<BTreeMap<String, Arc<TensorInfo>>, String> {
    let budget = bytes.saturating_mul(VISITS_PER_BYTE).saturating_add(1 << 16);
    let mut names = Names { tensors: BTreeMap::new(), budget };
    if let Value::Tensor(info) = value {
        names.tensors.insert(WHOLE.into(), info.clone());
    } else {
        names.visit("", value)?;
    }
    Ok(names.tensors)
}

struct Names {
    tensors: BTreeMap<String, Arc<TensorInfo>>,
    /// The remaining number of visits and bytes of names.
    budget: u64,
}

impl Names {
    fn visit(&mut self, path: &str, value: &Value) -> std::result::Result<(), String> {
        let children = match value {
            Value::Dict(entries) => entries.len(),
            Value::List(items) | Value::Tuple(items) => items.len(),
            _ => 0,
        };
        let cost = 1 + path.len() as u64 + children as u64;
        self.budget =
            self.budget.checked_sub(cost).ok_or("holds the same lists and dicts in too many places")?;
        let under = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        match value {
            Value::Tensor(info) => {
                if self.tensors.insert(path.to_string(), info.clone()).is_some() {
                    return Err(format!("has two tensors at \"{path}\", by keys with dots"));
                }
            }
            Value::Dict(entries) => {
                for (key, value) in entries.iter() {
                    // A tensor under another kind of key has no name, and can be reached through the tree
                    // only.
                    if let (Some(key), true) = (key.key(), holds_more(value)) {
                        self.visit(&under(&key), value)?;
                    }
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                for (k, value) in items.iter().enumerate() {
                    if holds_more(value) {
                        self.visit(&under(&k.to_string()), value)?;
                    }
                }
            }
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
            Value::Bytes(_) => {}
        }
        Ok(())
    }
}

/// Whether a value is a tensor or may hold some.
fn holds_more(value: &Value) -> bool {
    matches!(value, Value::Tensor(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_))
}
