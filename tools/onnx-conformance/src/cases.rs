//! The cases of ONNX's package: a model, and files with its inputs and outputs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use onnx::{
    DataType, Model, Value,
    proto::{GraphProto, ModelProto, OptionalProto, SequenceProto, TensorProto, TypeProto, TypeValue},
    testing::{read_optional, read_sequence, read_tensor},
};
use prost::Message;
use taper::prelude::*;

use crate::compare::compare;

/// The groups, each a folder of folders, except `light`.
const GROUPS: &[&str] = &["node", "simple", "pytorch-operator", "pytorch-converted"];

/// Numbers of `TensorProto.DataType`.
const BFLOAT16: i32 = 16;
const UINT16: i32 = 4;

/// One test case.
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) operators: BTreeSet<String>,
    /// The version of ONNX's operators.
    pub(crate) version: i64,
    model: PathBuf,
    /// The folder with inputs and outputs, or the file with the output of a network whose input is arange(n)
    /// / n.
    data: PathBuf,
}

/// All cases below a folder.
pub(crate) fn find(data: &Path) -> Result<Vec<Case>, String> {
    let places = ["onnx/backend/test/data", "backend/test/data", "."];
    let root = places.iter().map(|place| data.join(place)).find(|root| root.join("node").is_dir());
    let root = root.ok_or_else(|| {
        format!(
            "{} holds no cases: `pip download --no-deps onnx==1.17.0`, unpack the wheel (it is a zip), and name its folder",
            data.display()
        )
    })?;
    let mut cases = Vec::new();
    for group in GROUPS {
        for folder in entries(&root.join(group))? {
            let model = folder.join("model.onnx");
            if model.is_file() {
                cases.push(Case::new(group, &folder, model, folder.clone())?);
            }
        }
    }
    for file in entries(&root.join("light"))? {
        if file.extension().is_some_and(|extension| extension == "onnx") {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let output = file.with_file_name(format!("{stem}_output_0.pb"));
            cases.push(Case::new("light", &file.with_extension(""), file.clone(), output)?);
        }
    }
    Ok(cases)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let Ok(list) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths = list
        .map(|entry| {
            entry.map(|entry| entry.path()).map_err(|error| format!("{}: {error}", folder.display()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Case {
    fn new(group: &str, named: &Path, model: PathBuf, data: PathBuf) -> Result<Case, String> {
        let name = named.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let proto =
            ModelProto::decode(read(&model)?.as_slice()).map_err(|error| format!("{name}: {error}"))?;
        let mut operators = BTreeSet::new();
        proto.graph.iter().for_each(|graph| note_operators(graph, &mut operators));
        let own =
            proto.opset_import.iter().filter(|import| import.domain.as_deref().unwrap_or("").is_empty());
        let version = own.filter_map(|import| import.version).max().unwrap_or(0);
        Ok(Case { group: group.into(), name, operators, version, model, data })
    }

    /// Runs the case on a device; the error describes the failure.
    pub(crate) fn run(&self, device: &Device) -> Result<(), String> {
        let text = |error: taper::Error| error.to_string();
        let net = Model::load(&self.model, device).map_err(text)?;
        let proto = ModelProto::decode(read(&self.model)?.as_slice()).map_err(|error| error.to_string())?;
        let graph = proto.graph.as_ref().ok_or("no graph")?;
        if self.group == "light" {
            return self.run_network(&net, graph, device);
        }
        let mut sets = 0;
        for set in entries(&self.data)? {
            if !set.is_dir() {
                continue;
            }
            sets += 1;
            // Initializers that are listed as inputs are not passed.
            let own: BTreeSet<&str> =
                graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
            let mut inputs = Vec::new();
            for (at, info) in graph.input.iter().enumerate() {
                let name = info.name.as_deref().unwrap_or("");
                let file = set.join(format!("input_{at}.pb"));
                if !file.is_file() {
                    if own.contains(name) {
                        continue;
                    }
                    return Err(format!("{} is missing", file.display()));
                }
                let value = value(&file, info.r#type.as_ref())?;
                inputs.push((name, on_device(value, device)?));
            }
            let outputs = net.run(inputs).map_err(text)?;
            for (at, (info, (name, found))) in graph.output.iter().zip(outputs.iter()).enumerate() {
                let wanted = value(&set.join(format!("output_{at}.pb")), info.r#type.as_ref())?;
                compare(found, &wanted, device).map_err(|message| format!("output \"{name}\": {message}"))?;
            }
        }
        if sets == 0 { Err("there is no data".into()) } else { Ok(()) }
    }

    /// A whole network, whose input is arange(n) / n.
    fn run_network(&self, net: &Model, graph: &GraphProto, device: &Device) -> Result<(), String> {
        let text = |error: taper::Error| error.to_string();
        let inputs = net.inputs();
        let info = inputs.iter().find(|input| !input.optional).ok_or("no input")?;
        let sizes: Vec<usize> = info
            .shape
            .iter()
            .flatten()
            .map(|size| match size {
                onnx::Size::Known(size) => *size,
                onnx::Size::Symbolic(_) => 1,
            })
            .collect();
        let count: usize = sizes.iter().product();
        let x = Tensor::arange(0.0, count as f64, 1.0, device).map_err(text)?.div_scalar(count as f64);
        let x = x.reshape(sizes).map_err(text)?;
        let outputs = net.run([(info.name.as_str(), x)]).map_err(text)?;
        let found = outputs.iter().next().ok_or("no output")?.1;
        let wanted = value(&self.data, graph.output.first().and_then(|info| info.r#type.as_ref()))?;
        compare(found, &wanted, device)
    }
}

fn note_operators(graph: &GraphProto, operators: &mut BTreeSet<String>) {
    for node in &graph.node {
        let op_type = node.op_type.as_deref().unwrap_or("");
        operators.insert(match node.domain.as_deref().unwrap_or("") {
            "" | "ai.onnx" => op_type.to_string(),
            domain => format!("{domain}::{op_type}"),
        });
        node.attribute
            .iter()
            .filter_map(|attribute| attribute.g.as_ref())
            .for_each(|g| note_operators(g, operators));
    }
}

/// The value in a file, by the type that the model declares.
fn value(file: &Path, r#type: Option<&TypeProto>) -> Result<Value, String> {
    let bytes = read(file)?;
    let text = |error: taper::Error| format!("{}: {error}", file.display());
    let wrong = |error: prost::DecodeError| format!("{}: {error}", file.display());
    match r#type.and_then(|r#type| r#type.value.as_ref()) {
        Some(TypeValue::SequenceType(_)) => {
            read_sequence(&SequenceProto::decode(bytes.as_slice()).map_err(wrong)?).map_err(text)
        }
        Some(TypeValue::OptionalType(_)) => {
            read_optional(&OptionalProto::decode(bytes.as_slice()).map_err(wrong)?).map_err(text)
        }
        Some(TypeValue::TensorType(declared)) => {
            let mut tensor = TensorProto::decode(bytes.as_slice()).map_err(wrong)?;
            // The files of bf16 tensors declare u16, because NumPy has no bf16.
            if (declared.elem_type, tensor.data_type) == (Some(BFLOAT16), Some(UINT16)) {
                tensor.data_type = declared.elem_type;
            }
            read_tensor(&tensor).map_err(text)
        }
        Some(TypeValue::MapType(_) | TypeValue::SparseTensorType(_)) | None => {
            read_tensor(&TensorProto::decode(bytes.as_slice()).map_err(wrong)?).map_err(text)
        }
    }
}

/// Numeric tensors are on the device; texts and numbers of types that tensors lack are on the host.
fn on_device(value: Value, device: &Device) -> Result<Value, String> {
    match &value {
        Value::Host(host) if matches!(host.data_type(), DataType::Tensor(_)) => {
            Ok(host.to_tensor(device).map_err(|error| error.to_string())?.into())
        }
        Value::Sequence(list) => {
            let list =
                list.iter().map(|value| on_device(value.clone(), device)).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::Sequence(list.into()))
        }
        Value::Host(_) | Value::Tensor(_) | Value::Nothing => Ok(value),
    }
}
