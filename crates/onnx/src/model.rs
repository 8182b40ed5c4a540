//! [`Model`]: an ONNX file as a module.

use std::{collections::BTreeMap, fmt, path::Path, sync::Mutex};

use autograd::is_grad_enabled;
use bytes::Bytes;
use nn::{Module, Visitor, VisitorMut};
use prost::Message;
use tensor_core::{
    Call, CallMode, Device, Error, Replay, Result, Tensor,
    autocast::autocast_dtype,
    file::{file_error, read_regular},
    refuse_later,
};

use crate::{
    budget::{Budget, measure},
    compile::{Compiler, opsets},
    context::Run,
    cut::{cut, value_names},
    data::External,
    execute::run_graph,
    graph::{Graph, Input},
    proto::ModelProto,
    registry::Registry,
    rewrite::{Rewrites, Rewriting},
    value::{DataType, Value, on_device},
    value_info::{Size, ValueInfo, describe},
    weights::{Weight, WeightRole},
};

/// The supported versions of ONNX's own operators.
const NEWEST_OPSET: i64 = 28;

/// The network of an ONNX file, which runs, trains and moves as any module does.
///
/// Floating-point initializers, and constants of more than one element, are parameters under their names in
/// the file; running means and variances, and large integer tensors, are buffers. Small integers stay on the
/// host: they are shapes and axes, with which the model computes on the host too.
///
/// ```no_run
/// use nn::Module;
/// use onnx::Model;
/// use tensor_core::Tensor;
///
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let net = Model::load("digits.onnx", &device)?;
/// println!("{net}"); // its inputs and outputs
/// let out = net.run([("x", Tensor::zeros((1, 1, 28, 28), &device)?)])?;
/// println!("{}", out.tensor("logits")?);
/// println!("{} parameters", net.num_parameters());
/// # Ok(()) }
/// ```
///
/// Gradients flow through [`Model::run`] to inputs and parameters. A clone shares parameters, as a clone of
/// a layer does.
#[derive(Clone)]
pub struct Model {
    graph: std::sync::Arc<Graph>,
    weights: Vec<Weight>,
    /// The device that the model was loaded to, on which it runs if it has no weights.
    device: Device,
    info: ModelInfo,
    rewritten: BTreeMap<&'static str, usize>,
    budget: Budget,
    file_bytes: u64,
    value_names: std::sync::Arc<[String]>,
    /// Runs for inputs of a form that was seen before.
    repeated: Repeats,
}

/// The [`Repeated`] runs of a model. A clone, whose weights may become others, has its own.
#[derive(Default)]
struct Repeats(Mutex<Repeated>);

impl Clone for Repeats {
    fn clone(&self) -> Repeats {
        Repeats::default()
    }
}

/// Later runs of a model: what a run for inputs of one form does is captured and repeated.
#[derive(Default)]
struct Repeated {
    replay: Replay<Vec<Option<Value>>>,
    /// The ids of the weights with which the model has run before: a first run keeps what it computes once.
    weights: Option<Vec<u64>>,
}

/// How a file is loaded. A [`Registry`], [`Rewrites`] or a [`Budget`] alone converts to options with defaults
/// for the others.
///
/// ```
/// use onnx::{LoadOptions, Rewrites};
///
/// let plain = LoadOptions { rewrites: Rewrites::none(), ..Default::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The known operators.
    pub registry: Registry,
    /// The rewrites of the graph.
    pub rewrites: Rewrites,
    /// Bounds of the memory that the file may ask for.
    pub budget: Budget,
    /// The values that a run returns, by name: inner values too, such as the features before a classifier.
    /// [`Model::value_names`] lists them. The nodes, weights and inputs that they do not need are dropped.
    /// Empty, the default, for the file's own outputs.
    ///
    /// ```no_run
    /// use onnx::{LoadOptions, Model};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let options = LoadOptions { outputs: vec!["features".into()], ..Default::default() };
    /// let body = Model::load_with("classifier.onnx", &device, options)?;
    /// assert_eq!(body.output_names().collect::<Vec<_>>(), ["features"]);
    /// # Ok(()) }
    /// ```
    pub outputs: Vec<String>,
}

impl From<Registry> for LoadOptions {
    fn from(registry: Registry) -> LoadOptions {
        LoadOptions { registry, ..LoadOptions::default() }
    }
}

impl From<&Registry> for LoadOptions {
    fn from(registry: &Registry) -> LoadOptions {
        registry.clone().into()
    }
}

impl From<Rewrites> for LoadOptions {
    fn from(rewrites: Rewrites) -> LoadOptions {
        LoadOptions { rewrites, ..LoadOptions::default() }
    }
}

impl From<Budget> for LoadOptions {
    fn from(budget: Budget) -> LoadOptions {
        LoadOptions { budget, ..LoadOptions::default() }
    }
}

/// A file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelInfo {
    /// The version of the file format.
    pub ir_version: i64,
    /// The versions of operators by domain; ONNX's own domain has the empty name.
    pub opsets: Vec<(String, i64)>,
    /// The program that wrote the file, and its version.
    pub producer: String,
    /// A description.
    pub description: String,
    /// Other metadata, by name.
    pub metadata: Vec<(String, String)>,
}

fn invalid(message: String) -> Error {
    Error::invalid("onnx", message)
}

impl Model {
    /// Loads the model in a file to `device`. External data is read from the file's folder only.
    ///
    /// # Errors
    /// `File` for a file that cannot be read. A file that is no ONNX model, or has unknown operators (all of
    /// them are named), unknown element types, names that are used twice or made by no node, cycles, or
    /// tensors without data. Memory beyond the [`Budget`] of a file of this size, or too little of it on the
    /// device.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Model> {
        Model::load_with(path, device, LoadOptions::default())
    }

    /// [`Model::load`] with options: a [`Registry`] with your own operators, or [`Rewrites`].
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn load_with(
        path: impl AsRef<Path>,
        device: &Device,
        options: impl Into<LoadOptions>,
    ) -> Result<Model> {
        let path = path.as_ref();
        let bytes = read_regular(path)?;
        let options = options.into();
        let meter = options.budget.meter(bytes.len() as u64);
        Model::new(bytes.into(), &External::beside(path, meter), device, &options)
            .map_err(|error| file_error(path, error.to_string()))
    }

    /// Loads the model in `bytes` to `device`.
    ///
    /// # Errors
    /// As [`Model::load`], and a model with external data.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>, device: &Device) -> Result<Model> {
        Model::from_bytes_with(bytes, device, LoadOptions::default())
    }

    /// [`Model::from_bytes`] with options, as [`Model::load_with`] takes them.
    ///
    /// # Errors
    /// As [`Model::from_bytes`].
    pub fn from_bytes_with(
        bytes: impl Into<Vec<u8>>,
        device: &Device,
        options: impl Into<LoadOptions>,
    ) -> Result<Model> {
        let (bytes, options) = (bytes.into(), options.into());
        let external = External::nowhere(options.budget.meter(bytes.len() as u64));
        Model::new(bytes.into(), &external, device, &options)
    }

    fn new(bytes: Bytes, external: &External, device: &Device, options: &LoadOptions) -> Result<Model> {
        let file_bytes = bytes.len() as u64;
        measure(&bytes, &external.meter)?;
        let proto =
            ModelProto::decode(bytes).map_err(|error| invalid(format!("this is no ONNX model: {error}")))?;
        let Some(graph) = &proto.graph else {
            return Err(invalid("this is no ONNX model: it has no graph".into()));
        };
        let opsets = opsets(&proto.opset_import);
        if let Some(version) = opsets.get("").filter(|&&version| version > NEWEST_OPSET) {
            return Err(invalid(format!(
                "it needs version {version} of ONNX's operators; versions up to {NEWEST_OPSET} are known"
            )));
        }
        let value_names = value_names(graph).into();
        let cut_graph = if options.outputs.is_empty() { None } else { Some(cut(graph, &options.outputs)?) };
        let graph = cut_graph.as_ref().unwrap_or(graph);
        let mut rewriting = Rewriting::new(&options.rewrites);
        let mut compiler = Compiler::new(&options.registry, &mut rewriting, &proto.functions, external)?;
        let compiled = compiler.model(graph, opsets.clone())?;
        let weights = compiler.weights.upload(device)?;
        let rewritten = rewriting.counts;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut opsets: Vec<(String, i64)> = opsets.into_iter().collect();
        opsets.sort();
        let producer = format!("{} {}", text(&proto.producer_name), text(&proto.producer_version));
        let info = ModelInfo {
            ir_version: proto.ir_version.unwrap_or(0),
            opsets,
            producer: producer.trim().to_string(),
            description: text(&proto.doc_string),
            metadata: proto.metadata_props.iter().map(|p| (text(&p.key), text(&p.value))).collect(),
        };
        let budget = options.budget;
        let graph = compiled.into();
        let device = device.clone();
        let repeated = Default::default();
        Ok(Model { graph, weights, device, info, rewritten, budget, file_bytes, value_names, repeated })
    }

    /// The file's metadata.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// How many places of the graph each rewrite has changed, by its name in [`Rewrites`].
    pub fn rewritten(&self) -> &BTreeMap<&'static str, usize> {
        &self.rewritten
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<ValueInfo> {
        let info = |input: &Input| describe(&input.name, input.r#type.as_ref(), input.has_default);
        self.graph.inputs.iter().map(info).collect()
    }

    /// The names of the outputs, in order.
    pub fn output_names(&self) -> impl Iterator<Item = &str> {
        self.graph.outputs.iter().map(|output| output.name.as_str())
    }

    /// The names of all values of the file's graph that can be outputs: its inputs, and then the results of
    /// its nodes in their order. See [`LoadOptions::outputs`].
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.value_names.iter().map(String::as_str)
    }

    /// Runs the model on inputs by name, and returns its outputs.
    ///
    /// The values may be tensors (by value or by reference) or [`Value`]s: sequences, texts. All tensors
    /// must be on the device of the model's weights.
    ///
    /// # Errors
    /// A name that is no input, a missing input, a dtype or shape that differs from the file's; and errors
    /// of operators, with the node's name.
    #[track_caller]
    pub fn run<N: AsRef<str>, V: Into<Value>>(
        &self,
        inputs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Outputs> {
        let mut given: Vec<Option<Value>> = vec![None; self.graph.inputs.len()];
        for (name, value) in inputs {
            let name = name.as_ref();
            let Some(at) = self.graph.inputs.iter().position(|input| input.name == name) else {
                return Err(invalid(format!("there is no input \"{name}\"; {}", self.wants())));
            };
            given[at] = Some(value.into());
        }
        let device = self.device_of(&given);
        for (input, value) in self.graph.inputs.iter().zip(&given) {
            match value {
                None if input.has_default => {}
                None => {
                    return Err(invalid(format!(
                        "the input \"{}\" is not given; {}",
                        input.name,
                        self.wants()
                    )));
                }
                Some(value) => self.check(input, value, &device)?,
            }
        }
        let weights: Vec<Tensor> = self.weights.iter().map(|weight| weight.tensor.clone()).collect();
        let meter = self.budget.meter(self.file_bytes);
        given.iter().flatten().for_each(|value| meter.allow(value.text_bytes()));
        let run = Run { device: &device, weights: &weights, meter: &meter, run_graph };
        let values = self.run_or_repeat(&run, given)?;
        let names = self.graph.outputs.iter().map(|output| output.name.clone());
        Ok(Outputs { list: names.zip(values).collect(), device })
    }

    /// Runs the graph. From the second run for inputs of one form on, the operations of an earlier run are
    /// repeated, where that is possible: the inputs are tensors, nothing is recorded for gradients, and the
    /// graph's path does not depend on values.
    fn run_or_repeat(&self, run: &Run<'_>, given: Vec<Option<Value>>) -> Result<Vec<Value>> {
        let tensors: Vec<Tensor> = given.iter().flatten().filter_map(Value::as_tensor).cloned().collect();
        let is_tracked = |tensor: &Tensor| tensor.is_tracked();
        let recorded =
            is_grad_enabled() && (run.weights.iter().any(is_tracked) || tensors.iter().any(is_tracked));
        // Runs of several threads at a time go on independently.
        let repeated = self.repeated.0.try_lock().ok();
        let repeated = repeated.filter(|_| tensors.len() == given.iter().flatten().count() && !recorded);
        let Some(mut repeated) = repeated else { return run_graph(run, &self.graph, given, &[]) };
        let weights: Vec<u64> = run.weights.iter().map(Tensor::id).collect();
        if repeated.weights.as_ref() != Some(&weights) {
            *repeated = Repeated { weights: Some(weights), ..Repeated::default() };
            return run_graph(run, &self.graph, given, &[]);
        }
        let mut made = None;
        let mut function = |tensors: &[Tensor]| {
            let mut tensors = tensors.iter().cloned();
            let given =
                given.iter().map(|value| value.as_ref().and_then(|_| tensors.next()).map(Value::from));
            let values = run_graph(run, &self.graph, given.collect(), &[])?;
            if values.iter().any(|value| matches!(value, Value::Sequence(_))) {
                refuse_later("run", "return a sequence");
            }
            let results = values.iter().filter_map(Value::as_tensor).cloned().collect();
            // Values of the host depend on the form of the inputs alone: no tensor was read.
            let others = values.iter().map(|value| value.as_tensor().is_none().then(|| value.clone()));
            let others = others.collect();
            made = Some(values);
            Ok((results, others))
        };
        let mode = CallMode { strict: false, autocast: autocast_dtype(), records: false };
        let (results, call) = repeated.replay.call(&tensors, mode, &mut function)?;
        Ok(match (call, made) {
            (Call::Replayed(others), _) => {
                let mut results = results.into_iter().map(Value::from);
                let all = others.iter().map(|other| other.clone().or_else(|| results.next()));
                all.map(|value| value.unwrap_or(Value::Nothing)).collect()
            }
            (Call::Captured | Call::Ran(_), Some(values)) => values,
            (Call::Captured | Call::Ran(_), None) => Vec::new(),
        })
    }

    /// The device of the inputs, or else of the weights.
    fn device_of(&self, given: &[Option<Value>]) -> Device {
        let tensor = |value: &Value| match value {
            Value::Tensor(tensor) => Some(tensor.device()),
            Value::Host(_) | Value::Sequence(_) | Value::Nothing => None,
        };
        let of_inputs = given.iter().flatten().find_map(tensor);
        let used = |weight: &&Weight| weight.role != WeightRole::Unused;
        let of_weights = || self.weights.iter().find(used).map(|weight| weight.tensor.device());
        of_inputs.or_else(of_weights).unwrap_or_else(|| self.device.clone())
    }

    /// The inputs, for an error message.
    fn wants(&self) -> String {
        let list: Vec<String> = self.inputs().iter().map(ValueInfo::to_string).collect();
        format!("the model's inputs are {}", list.join(", "))
    }

    fn check(&self, input: &Input, value: &Value, device: &Device) -> Result<()> {
        let info = describe(&input.name, input.r#type.as_ref(), input.has_default);
        let (Some(dims), Some(found)) = (value.dims(), value.data_type()) else { return Ok(()) };
        let fits_type = info.data_type.is_none_or(|wanted| {
            let held = wanted.dtype().map(|dtype| DataType::Tensor(on_device(dtype, device)));
            wanted == found || held == Some(found)
        });
        let fits_shape = info.shape.as_ref().is_none_or(|shape| {
            let fits = |(size, &dim): (&Size, &usize)| match size {
                Size::Known(size) => *size == dim,
                Size::Symbolic(_) => true,
            };
            shape.len() == dims.len() && shape.iter().zip(dims).all(fits)
        });
        if fits_type && fits_shape {
            return Ok(());
        }
        Err(invalid(format!("the input \"{}\" is {}; {}", input.name, value.summary(), self.wants())))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<String> = self.inputs().iter().map(ValueInfo::to_string).collect();
        let outputs: Vec<String> = self.output_names().map(|name| format!("\"{name}\"")).collect();
        write!(f, "{} -> {}", inputs.join(", "), outputs.join(", "))
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({self}, {} weights)", self.weights.len())
    }
}

impl Module for Model {
    fn visit(&self, visitor: &mut Visitor) {
        for Weight { name, tensor, role } in &self.weights {
            match role {
                WeightRole::Parameter => visitor.parameter(name, tensor),
                WeightRole::Buffer => visitor.buffer(name, tensor),
                WeightRole::Unused => {}
            }
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        for Weight { name, tensor, role } in &mut self.weights {
            match role {
                WeightRole::Parameter => visitor.parameter(name, tensor),
                WeightRole::Buffer => visitor.buffer(name, tensor),
                WeightRole::Unused => {}
            }
        }
    }
}

/// The outputs of a run, in the model's order.
#[derive(Clone, Debug)]
pub struct Outputs {
    list: Vec<(String, Value)>,
    device: Device,
}

impl Outputs {
    /// An output by name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.list.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// An output by name as a tensor.
    ///
    /// # Errors
    /// No such output, or one that is no tensor.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let Some(value) = self.get(name) else {
            let names: Vec<&str> = self.list.iter().map(|(name, _)| name.as_str()).collect();
            return Err(invalid(format!("there is no output \"{name}\"; the model's outputs are {names:?}")));
        };
        value.to_tensor(&self.device)
    }

    /// The outputs' tensors, in order.
    ///
    /// # Errors
    /// An output that is no tensor.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        self.list.iter().map(|(_, value)| value.to_tensor(&self.device)).collect()
    }

    /// The names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.list.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
