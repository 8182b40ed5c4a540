//! Folders of adapters in the format of Python's `peft`: `adapter_config.json` and
//! `adapter_model.safetensors`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use nn::{
    Module, StateDict, load_safetensors,
    lora::{self, Lora, LoraBias, LoraConfig, LoraInit, Patterns, Targets},
    save_safetensors,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tensor_core::{
    Error, Generator, Result, Tensor,
    file::{file_error, read_regular_text, write_whole},
};

use crate::ordered::Pairs;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// The prefix of every name in a file: PEFT's two wrappers around the model.
const PREFIX: &str = "base_model.model.";
/// The part in the names of an adapted layer's own tensors: the weights of embeddings and trained biases.
const BASE: &str = ".base_layer.";
/// Parts in the names of a trained module's tensors, which PEFT writes twice if biases are trained as well.
const TWICE: [&str; 2] = [".modules_to_save.", ".original_module."];

/// Fields that do not change what an adapter computes.
const IGNORED: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "task_type",
    "inference_mode",
    "peft_version",
    "megatron_core",
    "qalora_group_size",
    "fan_in_fan_out",
    // The names of the tensors say which layers have an adapter.
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
];

/// Fields that are read.
const READ: &[&str] = &[
    "peft_type",
    "r",
    "lora_alpha",
    "lora_dropout",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "use_dora",
    "bias",
    "lora_bias",
    "modules_to_save",
    "init_lora_weights",
];

/// The values of `bias`.
const BIASES: [(&str, LoraBias); 3] =
    [("none", LoraBias::None), ("all", LoraBias::All), ("lora_only", LoraBias::LoraOnly)];

/// Initial values after which the base weights are still those of the model.
const INITIAL: &[&str] = &["gaussian", "eva", "orthogonal"];

/// Adds the adapter of a folder that PEFT or [`save_peft`] wrote to a model, under `name` or, if that is
/// `None`, "default". The layers are those whose tensors the folder has. The model's own parameters are
/// frozen, and the adapter becomes the active one, as by [`lora::attach`]. `rng` seeds the adapter's dropout.
///
/// ```
/// use nn::{Linear, Module, lora::{self, LoraConfig}};
/// use tensor_core::Generator;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("adapter");
/// #[derive(Module)]
/// struct Net { q_proj: Linear }
///
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let net = Net { q_proj: Linear::new(4, 4, &rng)? };
/// let trained = lora::attach(&net, &LoraConfig::new(2).targets(["q_proj"]), &rng)?;
/// weights::save_peft(&trained, &folder, None)?;
///
/// let other = Net { q_proj: Linear::new(4, 4, &rng)? };
/// let loaded = weights::load_peft(&other, &folder, Some("chat"), &rng)?;
/// assert_eq!(loaded.layers(), ["q_proj"]);
/// # Ok(()) }
/// ```
///
/// Embeddings in PEFT's files come with their own weights (`base_layer.weight`), which are loaded into the
/// model unless its table is in blocks. Biases and modules that were trained with the adapter (`bias`,
/// `modules_to_save`) have their values while it is active, and are trained with it.
///
/// # Errors
/// A `File` error for a file that cannot be read, another method than LoRA (`peft_type`), a field that has
/// a value Taper does not support, by its name, or a tensor that belongs to no layer of the model; tensors
/// that are missing or have other shapes; the errors of [`lora::attach`]. The model has no new adapter then.
#[track_caller]
pub fn load_peft<M: Module + ?Sized>(
    model: &M,
    folder: impl AsRef<Path>,
    name: Option<&str>,
    rng: &Generator,
) -> Result<Lora> {
    let folder = folder.as_ref();
    let path = folder.join(CONFIG);
    let mut config = read_config(&path)?;
    config.name = name.unwrap_or("default").to_string();

    let file = folder.join(TENSORS);
    let parameters: BTreeMap<String, _> = model.named_parameters().into_iter().collect();
    let device = parameters.values().next().map_or_else(|| rng.device().clone(), |first| first.device());
    let mut stored = Stored::default();
    for (full, tensor) in load_safetensors(&file, &device)? {
        let Some(name) = full.strip_prefix(PREFIX) else {
            return Err(file_error(
                &file,
                format!("has \"{full}\", whose name does not begin with {PREFIX}"),
            ));
        };
        let table = name.strip_suffix("weight").and_then(|name| name.strip_suffix(BASE));
        if let Some((layer, _)) = name.split_once(".lora_") {
            stored.layers.insert(layer.to_string());
            stored.tensors.insert(name.to_string(), tensor);
        } else if let Some(layer) = table {
            match parameters.get(&format!("{layer}.weight")) {
                Some(weight) if weight.block_format().is_some() => {}
                Some(weight) if weight.shape() == tensor.shape() => {
                    stored.tables.push((weight.clone(), tensor));
                }
                Some(weight) => {
                    let message = format!(
                        "has \"{full}\" of shape {}; the model has {}",
                        tensor.shape(),
                        weight.shape()
                    );
                    return Err(file_error(&file, message));
                }
                None => {
                    return Err(file_error(&file, format!("has \"{full}\"; the model has no such layer")));
                }
            }
        } else if config.bias == LoraBias::None && config.modules_to_save.is_empty() {
            return Err(file_error(&file, format!("has \"{full}\", which is no tensor of a LoRA adapter")));
        } else if !TWICE.iter().any(|part| name.contains(part)) {
            stored.tensors.insert(name.replace(BASE, "."), tensor);
        }
    }
    let Stored { tensors, tables, layers } = stored;
    config.target_modules = Targets::Names(layers.iter().cloned().collect());
    let lora = lora::attach_to(model, &config, &layers, rng)?;
    if let Err(error) = lora.load_state_dict(&tensors) {
        lora.detach();
        return Err(error);
    }
    for (weight, table) in tables {
        weight.assign(&table.to_dtype(weight.dtype())?)?;
    }
    Ok(lora)
}

/// The fields in which the order of keys counts, which `Map` does not keep.
#[derive(Deserialize)]
struct OrderedFields {
    rank_pattern: Option<Pairs>,
    alpha_pattern: Option<Pairs>,
}

/// The contents of a file of tensors.
#[derive(Default)]
struct Stored {
    /// The adapter's tensors, by their names in the model.
    tensors: StateDict,
    /// The model's tables of embeddings with their values.
    tables: Vec<(Tensor, Tensor)>,
    /// The paths of the layers with an adapter.
    layers: BTreeSet<String>,
}

#[track_caller]
fn read_config(path: &Path) -> Result<LoraConfig> {
    let text = read_regular_text(path)?;
    let fields: Map<String, Value> = match serde_json::from_str(&text) {
        Ok(fields) => fields,
        Err(error) => return Err(file_error(path, format!("is no JSON object: {error}"))),
    };
    let refused = |field: &str, value: &Value, known: &str| {
        Err(file_error(path, format!("has {field} = {value}, which is not supported; {known}")))
    };
    for (field, value) in &fields {
        let known = IGNORED.contains(&field.as_str()) || READ.contains(&field.as_str());
        if !known && !is_unset(value) {
            return refused(field, value, "it has to be null, false or empty");
        }
    }
    let value = |field: &str| fields.get(field).unwrap_or(&Value::Null);
    match value("peft_type") {
        Value::String(kind) if kind == "LORA" => {}
        other => return refused("peft_type", other, "known is \"LORA\""),
    }
    let known_bias = |bias: &str| BIASES.iter().find(|(name, _)| *name == bias).map(|(_, bias)| *bias);
    let bias = match value("bias") {
        Value::Null => LoraBias::None,
        other => match other.as_str().and_then(known_bias) {
            Some(bias) => bias,
            None => return refused("bias", other, "known are \"none\", \"all\" and \"lora_only\""),
        },
    };
    match value("init_lora_weights") {
        Value::Null | Value::Bool(_) => {}
        Value::String(initial) if INITIAL.contains(&initial.as_str()) => {}
        other => {
            return refused("init_lora_weights", other, "the base weights may be others than the model's");
        }
    }
    let number = |field: &str, otherwise: f64| match value(field) {
        Value::Null => Ok(otherwise),
        value => match value.as_f64() {
            Some(number) => Ok(number),
            None => Err(file_error(path, format!("has {field} = {value}, which is no number"))),
        },
    };
    let flag = |field: &str| match value(field) {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        value => Err(file_error(path, format!("has {field} = {value}, which is neither true nor false"))),
    };
    let names = |field: &str| -> Result<Vec<String>> {
        let wrong =
            |value: &Value| file_error(path, format!("has {field} = {value}, which is no list of names"));
        match value(field) {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let text = |item: &Value| item.as_str().map(str::to_string).ok_or_else(|| wrong(item));
                items.iter().map(text).collect()
            }
            other => Err(wrong(other)),
        }
    };
    let ordered: OrderedFields = match serde_json::from_str(&text) {
        Ok(ordered) => ordered,
        Err(error) => return Err(file_error(path, format!("has a pattern that is none: {error}"))),
    };
    let pattern = |field: &str, pairs: Option<Pairs>| -> Result<Patterns<f64>> {
        let entries = pairs.unwrap_or_default().0.into_iter();
        entries.map(|(key, value)| Ok((key, number_of(path, field, &value)?))).collect()
    };
    let rank = number("r", 8.0)?;
    let mut config = LoraConfig::new(rank as usize);
    config.lora_alpha = number("lora_alpha", 8.0)?;
    config.lora_dropout = number("lora_dropout", 0.0)?;
    config.use_rslora = flag("use_rslora")?;
    config.use_dora = flag("use_dora")?;
    config.lora_bias = flag("lora_bias")?;
    config.bias = bias;
    config.modules_to_save = names("modules_to_save")?;
    config.rank_pattern = pattern("rank_pattern", ordered.rank_pattern)?
        .iter()
        .map(|(key, rank)| (key, *rank as usize))
        .collect();
    config.alpha_pattern = pattern("alpha_pattern", ordered.alpha_pattern)?;
    Ok(config)
}

#[track_caller]
fn number_of(path: &Path, field: &str, value: &Value) -> Result<f64> {
    match value.as_f64() {
        Some(number) => Ok(number),
        None => Err(file_error(path, format!("has {value} in {field}, which is no number"))),
    }
}

/// Whether a field has no value.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Writes an adapter to a folder, which is made if it does not exist, as PEFT's `save_pretrained` does:
/// `PeftModel.from_pretrained(model, folder)` loads it. `base_model` is the name or path of the model that it
/// belongs to, for readers of the folder. Each of the two files is written completely or not at all.
///
/// # Errors
/// A `File` error of the file system, or a value that cannot be computed.
#[track_caller]
pub fn save_peft(lora: &Lora, folder: impl AsRef<Path>, base_model: Option<&str>) -> Result<()> {
    let folder = folder.as_ref();
    if let Err(error) = fs::create_dir_all(folder) {
        return Err(file_error(folder, format!("cannot be made: {error}")));
    }
    let layers: BTreeSet<&str> = lora.layers().into_iter().collect();
    let tensors = lora.state_dict().into_iter().map(|(name, tensor)| (stored_name(&name, &layers), tensor));
    save_safetensors(folder.join(TENSORS), &tensors.collect())?;
    let path = folder.join(CONFIG);
    let text = config_of(lora, base_model);
    let failed = |error: io::Error| file_error(&path, format!("cannot be written: {error}"));
    Error::here_in(write_whole(&path, failed, |file| {
        io::Write::write_all(file, text.as_bytes()).map_err(failed)
    }))
}

/// PEFT's name of a tensor: the own bias of a layer with an adapter is behind its wrapper.
fn stored_name(name: &str, layers: &BTreeSet<&str>) -> String {
    match name.rsplit_once('.') {
        Some((layer, last)) if layers.contains(layer) && !last.starts_with("lora_") => {
            format!("{PREFIX}{layer}{BASE}{last}")
        }
        _ => format!("{PREFIX}{name}"),
    }
}

/// The text of the configuration. The order of patterns counts.
fn config_of(lora: &Lora, base_model: Option<&str>) -> String {
    let config = lora.config();
    // Globs are not in PEFT's format, regular expressions differ in details, and its "all-linear" depends on
    // the model's class.
    let (targets, layers) = match &config.target_modules {
        Targets::Names(names) => (names.clone(), config.layers_to_transform.clone()),
        Targets::Glob(_) | Targets::Regex(_) | Targets::AllLinear => {
            (lora.layers().into_iter().map(String::from).collect(), None)
        }
    };
    let alphas = config.alpha_pattern.iter().map(|(name, alpha)| (name.to_string(), whole(*alpha)));
    let ranks = config.rank_pattern.iter().map(|(name, rank)| (name.to_string(), json!(rank)));
    let bias = BIASES.iter().find(|(_, bias)| *bias == config.bias).map(|(name, _)| *name);
    let initial = match config.init_lora_weights {
        LoraInit::Kaiming => json!(true),
        LoraInit::Gaussian => json!("gaussian"),
    };
    let unless_empty = |names: &[String]| if names.is_empty() { Value::Null } else { json!(names) };
    let fields = [
        ("peft_type", json!("LORA").to_string()),
        ("task_type", Value::Null.to_string()),
        ("base_model_name_or_path", json!(base_model).to_string()),
        ("inference_mode", json!(true).to_string()),
        ("r", json!(config.r).to_string()),
        ("lora_alpha", whole(config.lora_alpha).to_string()),
        ("lora_dropout", json!(config.lora_dropout).to_string()),
        ("target_modules", json!(targets).to_string()),
        ("exclude_modules", unless_empty(&config.exclude_modules).to_string()),
        ("layers_to_transform", json!(layers).to_string()),
        ("modules_to_save", unless_empty(&config.modules_to_save).to_string()),
        ("rank_pattern", Pairs(ranks.collect()).to_string()),
        ("alpha_pattern", Pairs(alphas.collect()).to_string()),
        ("use_rslora", json!(config.use_rslora).to_string()),
        ("use_dora", json!(config.use_dora).to_string()),
        ("lora_bias", json!(config.lora_bias).to_string()),
        ("init_lora_weights", initial.to_string()),
        ("bias", json!(bias).to_string()),
        ("fan_in_fan_out", json!(false).to_string()),
    ];
    let lines = fields.map(|(name, value)| format!("  {}: {value}", Value::from(name)));
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// A number, as an integer if it is one: PEFT's α is.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}
