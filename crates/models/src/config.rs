//! Configurations: `config.json` as the reference wrote it, and the names of activations.

use std::{collections::BTreeMap, path::Path};

use nn::{Layer, Module};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tensor_core::{
    Error, Result, Tensor,
    file::{file_error, read_regular_text},
};

/// Reads a configuration: a JSON file, or the `config.json` of a folder.
///
/// # Errors
/// A `File` error that names the file and the field if it cannot be read or a field has another type.
#[track_caller]
pub fn read_config<C: DeserializeOwned>(path: impl AsRef<Path>) -> Result<C> {
    let path = path.as_ref();
    let path = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
    let text = read_regular_text(&path)?;
    match serde_json::from_str(&text) {
        Ok(config) => Ok(config),
        Err(error) => Err(file_error(&path, format!("is no configuration of this model: {error}"))),
    }
}

/// The largest number in a configuration, so that products of two of them fit into `usize`.
const MAX_COUNT: usize = i32::MAX as usize;

/// Fails if a number of a configuration is 0 or above [`MAX_COUNT`].
#[track_caller]
pub(crate) fn check_counts(model: &'static str, counts: &[(&str, usize)]) -> Result<()> {
    match counts.iter().find(|(_, count)| !(1..=MAX_COUNT).contains(count)) {
        None => Ok(()),
        Some((name, 0)) => Err(Error::invalid(model, format!("{name} is 0: give at least 1"))),
        Some((name, count)) => {
            Err(Error::invalid(model, format!("{name} is {count}: give at most {MAX_COUNT}")))
        }
    }
}

/// The fields of a configuration that name classes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LabelFields {
    /// transformers: labels by number.
    id2label: BTreeMap<String, String>,
    /// timm: a short name of each class.
    label_names: Vec<String>,
    /// timm: a description of each short name.
    label_descriptions: BTreeMap<String, String>,
}

/// The labels of a model's classes in a configuration: transformers' `id2label`, or timm's `label_names`
/// with their descriptions. The list is empty if the file has no labels; a number without a label is its
/// own.
///
/// # Errors
/// As [`read_config`].
#[track_caller]
pub fn read_labels(path: impl AsRef<Path>) -> Result<Vec<String>> {
    let LabelFields { id2label, label_names, label_descriptions } = read_config(path)?;
    if id2label.is_empty() {
        let described = |name: String| label_descriptions.get(&name).cloned().unwrap_or(name);
        return Ok(label_names.into_iter().map(described).collect());
    }
    let numbered: BTreeMap<usize, &String> =
        id2label.iter().filter_map(|(id, label)| Some((id.parse().ok()?, label))).collect();
    let count = numbered.keys().last().map_or(0, |last| last.saturating_add(1));
    // A file may name any number; labels with large gaps make no list.
    if count > 4 * numbered.len() + 16 {
        return Ok(Vec::new());
    }
    let label = |id: usize| numbered.get(&id).map_or_else(|| id.to_string(), |label| (*label).clone());
    Ok((0..count).map(label).collect())
}

/// An activation, with the names of `transformers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Module)]
pub enum Activation {
    /// x · Φ(x).
    #[serde(rename = "gelu")]
    Gelu,
    /// The approximation of GELU by tanh.
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh", alias = "gelu_fast", alias = "gelu_accurate")]
    GeluTanh,
    /// x · σ(1.702 x).
    #[serde(rename = "quick_gelu")]
    QuickGelu,
    /// min(max(x + 3, 0), 6) / 6.
    #[serde(rename = "hardsigmoid")]
    Hardsigmoid,
    /// x · min(max(x + 3, 0), 6) / 6.
    #[serde(rename = "hardswish")]
    Hardswish,
    /// max(x, 0).
    #[serde(rename = "relu")]
    Relu,
    /// min(max(x, 0), 6).
    #[serde(rename = "relu6")]
    Relu6,
    /// 1 / (1 + e⁻ˣ).
    #[serde(rename = "sigmoid")]
    Sigmoid,
    /// x · σ(x).
    #[default]
    #[serde(rename = "silu", alias = "swish")]
    Silu,
    /// tanh x.
    #[serde(rename = "tanh")]
    Tanh,
}

impl Activation {
    /// The activation of each element.
    pub fn activate(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::QuickGelu => x * x.mul_scalar(1.702).sigmoid(),
            Activation::Hardsigmoid => x.hardsigmoid(),
            Activation::Hardswish => x.hardswish(),
            Activation::Relu => x.relu(),
            Activation::Relu6 => x.relu6(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
        }
    }
}

impl Layer for Activation {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(self.activate(input))
    }
}
