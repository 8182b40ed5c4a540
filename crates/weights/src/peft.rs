//! Folders of adapters in the format of Python's `peft`: `adapter_config.json` and
//! `adapter_model.safetensors`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use nn::{
    Module, StateDict, load_safetensors,
    lora::{self, Lora, LoraConfig, LoraInit, Targets},
    save_safetensors,
};
use serde_json::{Map, Value, json};
use tensor_core::{Generator, Result, file::file_error};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// The prefix of every name in a file: PEFT's two wrappers around the model.
const PREFIX: &str = "base_model.model.";
/// The weights of adapted embeddings themselves, which PEFT also stores.
const BASE: &str = ".base_layer.weight";

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
    "init_lora_weights",
];

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
/// model unless its table is in blocks.
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
    let (mut tensors, mut tables, mut layers) = (StateDict::new(), Vec::new(), BTreeSet::new());
    for (full, tensor) in load_safetensors(&file, &device)? {
        let Some(name) = full.strip_prefix(PREFIX) else {
            return Err(file_error(
                &file,
                format!("has \"{full}\", whose name does not begin with {PREFIX}"),
            ));
        };
        if let Some(layer) = name.strip_suffix(BASE) {
            match parameters.get(&format!("{layer}.weight")) {
                Some(weight) if weight.block_format().is_some() => {}
                Some(weight) if weight.shape() == tensor.shape() => tables.push((weight.clone(), tensor)),
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
            continue;
        }
        let Some((layer, _)) = name.split_once(".lora_") else {
            return Err(file_error(&file, format!("has \"{full}\", which is no tensor of a LoRA adapter")));
        };
        layers.insert(layer.to_string());
        tensors.insert(name.to_string(), tensor);
    }
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

#[track_caller]
fn read_config(path: &Path) -> Result<LoraConfig> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Err(file_error(path, format!("cannot be read: {error}"))),
    };
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
    match value("bias") {
        Value::Null => {}
        Value::String(bias) if bias == "none" => {}
        other => return refused("bias", other, "known is \"none\""),
    }
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
    let pattern = |field: &str| -> Result<BTreeMap<String, f64>> {
        let Value::Object(entries) = value(field) else { return Ok(BTreeMap::new()) };
        entries
            .iter()
            .map(|(key, value)| Ok((plain_pattern(path, field, key)?, number_of(path, field, value)?)))
            .collect()
    };
    let rank = number("r", 8.0)?;
    let mut config = LoraConfig::new(rank as usize);
    config.lora_alpha = number("lora_alpha", 8.0)?;
    config.lora_dropout = number("lora_dropout", 0.0)?;
    config.use_rslora = flag("use_rslora")?;
    config.use_dora = flag("use_dora")?;
    config.rank_pattern =
        pattern("rank_pattern")?.into_iter().map(|(key, rank)| (key, rank as usize)).collect();
    config.alpha_pattern = pattern("alpha_pattern")?;
    Ok(config)
}

#[track_caller]
fn number_of(path: &Path, field: &str, value: &Value) -> Result<f64> {
    match value.as_f64() {
        Some(number) => Ok(number),
        None => Err(file_error(path, format!("has {value} in {field}, which is no number"))),
    }
}

/// A name of layers in a pattern. PEFT reads it as a regular expression, in which only plain names are
/// supported here, perhaps after `^`.
#[track_caller]
fn plain_pattern(path: &Path, field: &str, key: &str) -> Result<String> {
    let name = key.strip_prefix('^').unwrap_or(key);
    match name.contains(|c| "*+?[](){}|\\^$".contains(c)) {
        false => Ok(name.to_string()),
        true => Err(file_error(path, format!("has {key:?} in {field}: only names of layers are supported"))),
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
/// belongs to, for readers of the folder.
///
/// # Errors
/// A `File` error of the file system, or a value that cannot be computed.
#[track_caller]
pub fn save_peft(lora: &Lora, folder: impl AsRef<Path>, base_model: Option<&str>) -> Result<()> {
    let folder = folder.as_ref();
    if let Err(error) = fs::create_dir_all(folder) {
        return Err(file_error(folder, format!("cannot be made: {error}")));
    }
    let tensors = lora.state_dict().into_iter().map(|(name, tensor)| (format!("{PREFIX}{name}"), tensor));
    save_safetensors(folder.join(TENSORS), &tensors.collect())?;
    let path = folder.join(CONFIG);
    let text = format!("{:#}\n", config_of(lora, base_model));
    fs::write(&path, text).map_err(|error| file_error(&path, format!("cannot be written: {error}")))
}

fn config_of(lora: &Lora, base_model: Option<&str>) -> Value {
    let config = lora.config();
    // Globs are not in PEFT's format, regular expressions differ in details, and its "all-linear" depends on
    // the model's class.
    let (targets, layers) = match &config.target_modules {
        Targets::Names(names) => (names.clone(), config.layers_to_transform.clone()),
        Targets::Glob(_) | Targets::Regex(_) | Targets::AllLinear => {
            (lora.layers().into_iter().map(String::from).collect(), None)
        }
    };
    let alphas: Map<String, Value> =
        config.alpha_pattern.iter().map(|(name, alpha)| (name.clone(), whole(*alpha))).collect();
    let initial = match config.init_lora_weights {
        LoraInit::Kaiming => json!(true),
        LoraInit::Gaussian => json!("gaussian"),
    };
    json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": base_model,
        "inference_mode": true,
        "r": config.r,
        "lora_alpha": whole(config.lora_alpha),
        "lora_dropout": config.lora_dropout,
        "target_modules": targets,
        "exclude_modules": if config.exclude_modules.is_empty() { Value::Null } else { json!(config.exclude_modules) },
        "layers_to_transform": layers,
        "rank_pattern": config.rank_pattern,
        "alpha_pattern": alphas,
        "use_rslora": config.use_rslora,
        "use_dora": config.use_dora,
        "init_lora_weights": initial,
        "bias": "none",
        "fan_in_fan_out": false,
    })
}

/// A number, as an integer if it is one: PEFT's α is.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}
