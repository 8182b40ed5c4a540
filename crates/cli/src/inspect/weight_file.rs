//! The contents of a file or folder of weights.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use taper::{
    models::read_config,
    weights::{Value, WeightFile},
};

use super::{Contents, Row};
use crate::error::Outcome;

/// The contents of a file, with the configuration of a folder.
pub(super) fn contents(path: &Path, file: &WeightFile) -> Outcome<Contents> {
    let mut metadata = Vec::new();
    if path.join("config.json").is_file() {
        let config: Map<String, Json> = read_config(path)?;
        metadata.extend(
            config.into_iter().map(|(key, value)| (format!("config.{key}"), value.to_string(), value)),
        );
    }
    leaves("", &file.value(), &mut metadata);
    let tensors = file.tensors().map(|(name, info)| Row {
        name: name.to_string(),
        type_name: info.type_name().to_string(),
        shape: info.shape().dims().to_vec(),
        bytes: info.bytes(),
    });
    Ok(Contents {
        format: file.format().to_string(),
        metadata,
        inputs: Vec::new(),
        outputs: Vec::new(),
        operators: Vec::new(),
        tensors: tensors.collect(),
    })
}

/// The numbers and texts in a value, by their paths. Lists of numbers or texts are one.
fn leaves(path: &str, value: &Value, found: &mut Vec<(String, String, Json)>) {
    let inner = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    if let Some(entries) = value.entries() {
        entries.iter().for_each(|(key, value)| leaves(&inner(&plain(key)), value, found));
    } else if let Some(items) = value.items().filter(|items| items.iter().any(is_nested)) {
        for (index, item) in items.iter().enumerate() {
            leaves(&inner(&index.to_string()), item, found);
        }
    } else if value.as_tensor().is_none() {
        found.push((path.to_string(), plain(value), json(value)));
    }
}

/// Whether a value has others, or is a tensor.
fn is_nested(value: &Value) -> bool {
    value.entries().is_some() || value.items().is_some() || value.as_tensor().is_some()
}

/// A text as it is, or the beginning of another value.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// A value as JSON, without its tensors.
fn json(value: &Value) -> Json {
    match value {
        Value::None | Value::Tensor(_) => Json::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(number) => i64::try_from(*number).map_or_else(|_| json!(number.to_string()), Json::from),
        Value::Float(number) => json!(number),
        Value::Text(text) => json!(**text),
        Value::Bytes(bytes) => json!(**bytes),
        Value::List(items) | Value::Tuple(items) => items.iter().map(json).collect(),
        Value::Dict(entries) => {
            let entries = entries.iter().map(|(key, value)| (plain(key), json(value)));
            Json::Object(entries.collect())
        }
    }
}
