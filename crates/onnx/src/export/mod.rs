//! Writes ONNX files: [`export()`] traces a model, and translates the recorded operations.
//!
//! | file | its part |
//! |---|---|
//! | `sample` | the traces of a model at several sizes of its dynamic axes |
//! | `exporter` | the state of an export |
//! | `walk` | the walk from the outputs to the inputs |
//! | `sizes` | shape arithmetic |
//! | `layers`, `recurrent` | functions that are one operator in ONNX |
//! | `elementwise`, `movement`, `reduce`, `index` | recorded operations, by family |
//! | `builder`, `file` | nodes and names; files and external data |

mod builder;
mod elementwise;
mod exporter;
mod file;
mod index;
mod layers;
mod movement;
mod quantized;
mod recurrent;
mod reduce;
mod sample;
mod sizes;
mod walk;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use nn::{Layer, Module, layer_paths};
use tensor_core::{DType, Error, Result, Tensor, Trace, set_grad_enabled};

use crate::{
    Model,
    proto::{
        Dimension, DimensionValue, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto,
        TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto,
    },
};
use exporter::Exporter;
use sample::{Sample, Samples, Size, Twin, fixed};

/// The versions of ONNX's operators that can be written.
const OPSETS: std::ops::RangeInclusive<i64> = 18..=24;

/// How a model is written. The fields have the names of `torch.onnx.export`'s arguments where it has them.
///
/// ```
/// use onnx::{DynamicAxis, Export};
///
/// let options = Export {
///     output_names: vec!["logits".into()],
///     dynamic_axes: vec![DynamicAxis::new("image", 0, "batch")],
///     ..Default::default()
/// };
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Export {
    /// The version of ONNX's operators, from 18 to 24; 20 by default. `opset_version` of PyTorch.
    pub opset: i64,
    /// The names of the outputs, in order. By default those that the model has, or else `output`, or
    /// `output_0`, `output_1` … if there are several.
    pub output_names: Vec<String>,
    /// The axes of inputs that may have another size in each run. All other sizes are fixed.
    pub dynamic_axes: Vec<DynamicAxis>,
    /// The name of the graph.
    pub graph_name: String,
    /// A description of the model.
    pub description: String,
    /// Further metadata by name, which [`ModelInfo`](crate::ModelInfo) has.
    pub metadata: Vec<(String, String)>,
    /// The number of bytes of weights up to which they are in the file itself. With more, they are in
    /// another file beside it, with `.data` after its name. The default, and the most that the format
    /// allows, is just below 2 GiB.
    pub external_data_above: u64,
}

impl Default for Export {
    fn default() -> Export {
        Export {
            opset: 20,
            output_names: Vec::new(),
            dynamic_axes: Vec::new(),
            graph_name: "main_graph".into(),
            description: String::new(),
            metadata: Vec::new(),
            external_data_above: file::LARGEST,
        }
    }
}

/// An axis of an input whose size may differ from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicAxis {
    /// The name of the input.
    pub input: String,
    /// The axis.
    pub axis: usize,
    /// The name of the size. Axes with the same name have equal sizes.
    pub name: String,
}

impl DynamicAxis {
    /// The axis `axis` of the input `input`, under a name for its size, such as `batch`.
    pub fn new(input: impl Into<String>, axis: usize, name: impl Into<String>) -> DynamicAxis {
        DynamicAxis { input: input.into(), axis, name: name.into() }
    }
}

/// A summary of a written model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The number of nodes of each operator.
    pub operators: BTreeMap<String, usize>,
    /// The number of initializers: weights and constants.
    pub initializers: usize,
    /// The number of bytes of the initializers.
    pub bytes: u64,
}

/// A module that can be exported by itself, because its inputs are known from their names: every [`Layer`],
/// and a [`Model`]. Other modules are exported by [`export_with`].
pub trait Exportable: Module {
    /// The outputs for inputs by name, with the names that they have.
    ///
    /// # Errors
    /// Inputs that do not fit.
    fn outputs(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(Option<String>, Tensor)>>;
}

impl<L: Layer> Exportable for L {
    fn outputs(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(Option<String>, Tensor)>> {
        let [(_, input)] = inputs else {
            return Err(invalid(format!(
                "a layer has one input, {} are given; export other modules with export_with",
                inputs.len()
            )));
        };
        Ok(vec![(None, self.forward(input)?)])
    }
}

impl Exportable for Model {
    fn outputs(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(Option<String>, Tensor)>> {
        let outputs = self.run(inputs.iter().map(|(name, tensor)| (*name, tensor)))?;
        let tensors = outputs.tensors()?;
        let names = outputs.iter().map(|(name, _)| Some(name.to_string()));
        Ok(names.zip(tensors).collect())
    }
}

pub(crate) fn invalid(message: String) -> Error {
    Error::invalid("onnx::export", message)
}

/// Writes a model as an ONNX file: `torch.onnx.export`.
///
/// The model is called with the inputs, which have a name each, and its recorded operations are translated;
/// nothing is computed. Control flow is that of this call. Parameters and buffers are initializers under
/// their names in the state dict, and nodes begin with the path of their module. Functions that ONNX has as
/// one operator, such as convolutions, normalizations, attention's softmax or a recurrent layer, are one
/// node; all others are composed. Call `model.eval()` before.
///
/// All sizes are fixed except those of [`Export::dynamic_axes`]. If there are any, the model is called at
/// several sizes, and sizes that differ are written as shape arithmetic.
///
/// ```
/// use nn::{Linear, Relu, Sequential};
/// use onnx::{DynamicAxis, Export, Model};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let model = Sequential::new().add(Linear::new(4, 8, &rng)?).add(Relu).add(Linear::new(8, 2, &rng)?);
/// let x = Tensor::randn([3, 4], &rng)?;
/// # let folder = std::env::temp_dir().join(format!("taper-export-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("model.onnx");
/// let options = Export { dynamic_axes: vec![DynamicAxis::new("x", 0, "batch")], ..Default::default() };
/// let written = onnx::export(&model, [("x", &x)], &path, &options)?;
/// assert_eq!(written.operators["Gemm"], 2);
/// let read = Model::load(&path, rng.device())?;
/// let y = read.run([("x", &Tensor::ones([7, 4], rng.device())?)])?.tensor("output")?;
/// assert_eq!(y.dims(), [7, 2]);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
///
/// # Errors
/// `File` for a file that cannot be written. Operations without a form in ONNX, all of them in one error
/// with the lines that use them; sizes that cannot follow a dynamic axis; a model in training mode, which
/// changes its buffers; names that are used twice; an unknown version of ONNX's operators; and any error of
/// the model.
pub fn export<'a, M: Exportable + ?Sized>(
    model: &M,
    inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    path: impl AsRef<Path>,
    options: &Export,
) -> Result<Exported> {
    let inputs: Vec<(&str, &Tensor)> = inputs.into_iter().collect();
    let proto = translate(model, &|model, given| model.outputs(given), &inputs, options)?;
    file::write(path.as_ref(), proto, options)
}

/// [`export()`] for any module: `forward` calls it with the inputs in their order.
///
/// ```
/// use nn::{Embedding, Linear, Module};
/// use onnx::Export;
/// use tensor_core::{Generator, Result, Tensor};
///
/// #[derive(Module)]
/// struct Net { words: Embedding, head: Linear }
///
/// impl Net {
///     fn forward(&self, words: &Tensor, scale: &Tensor) -> Result<Tensor> {
///         self.head.forward(&self.words.forward(words)?.mean_axis(1, false)?.mul(scale)?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let net = Net { words: Embedding::new(100, 16, &rng)?, head: Linear::new(16, 2, &rng)? };
/// let words = Tensor::zeros([1, 5], rng.device())?.to_dtype(tensor_core::DType::I32)?;
/// let scale = Tensor::ones([1, 16], rng.device())?;
/// # let folder = std::env::temp_dir().join(format!("taper-export-with-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("model.onnx");
/// let forward = |net: &Net, x: &[Tensor]| Ok(vec![net.forward(&x[0], &x[1])?]);
/// onnx::export_with(&net, forward, [("words", &words), ("scale", &scale)], &path, &Export::default())?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`export()`].
pub fn export_with<'a, M: Module + ?Sized>(
    model: &M,
    forward: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>>,
    inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    path: impl AsRef<Path>,
    options: &Export,
) -> Result<Exported> {
    let proto = export_proto(model, forward, inputs, options)?;
    file::write(path.as_ref(), proto, options)
}

/// [`export_with`] as a message, which is not written. All weights are in it.
///
/// # Errors
/// As [`export()`], except for those of files.
pub fn export_proto<'a, M: Module + ?Sized>(
    model: &M,
    forward: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>>,
    inputs: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    options: &Export,
) -> Result<ModelProto> {
    let inputs: Vec<(&str, &Tensor)> = inputs.into_iter().collect();
    let call = |model: &M, given: &[(&str, Tensor)]| {
        let tensors: Vec<Tensor> = given.iter().map(|(_, tensor)| tensor.clone()).collect();
        Ok(forward(model, &tensors)?.into_iter().map(|output| (None, output)).collect())
    };
    translate(model, &call, &inputs, options)
}

/// A function that calls the model.
type Forward<'a, M> = &'a dyn Fn(&M, &[(&str, Tensor)]) -> Result<Vec<(Option<String>, Tensor)>>;

/// The traces of a model, and everything that is known about their values.
struct Traced {
    samples: Samples,
    inputs: Vec<Twin>,
    outputs: Vec<Twin>,
    /// The names of the outputs in the model.
    names: Vec<Option<String>>,
    /// The paths of layers by the ids of their outputs in the first trace.
    paths: HashMap<u64, String>,
}

fn translate<M: Module + ?Sized>(
    model: &M,
    forward: Forward<'_, M>,
    inputs: &[(&str, &Tensor)],
    options: &Export,
) -> Result<ModelProto> {
    check(inputs, options)?;
    let traced = trace(model, forward, inputs, options)?;
    let output_names = output_names(&traced.names, options)?;
    let named = model.named_parameters().into_iter().chain(model.named_buffers());
    let mut weights: HashMap<u64, String> = HashMap::new();
    for (name, tensor) in named {
        weights.entry(sample::key(&tensor)).or_insert(name);
    }
    let Traced { samples, inputs: values, outputs, paths, .. } = traced;
    let mut exporter = Exporter::new(options.opset, samples, weights, paths);
    for ((name, _), value) in inputs.iter().zip(&values) {
        if !exporter.builder.take(name) {
            return Err(invalid(format!(
                "the input \"{name}\" has the name of a weight or of another input"
            )));
        }
        exporter.input(name, value);
    }
    let mut found = Vec::with_capacity(outputs.len());
    for output in &outputs {
        found.push(exporter.add(output)?);
    }
    exporter.verdict()?;
    name_outputs(&mut exporter, found, &output_names)?;
    let symbols = Symbols::new(inputs, &values, options);
    let info = |name: &str, value: &Twin| symbols.info(name, value);
    let (node, initializer) = exporter.builder.finish();
    let graph = GraphProto {
        node,
        initializer,
        name: Some(options.graph_name.clone()),
        input: inputs.iter().zip(&values).map(|((name, _), value)| info(name, value)).collect(),
        output: output_names.iter().zip(&outputs).map(|(name, value)| info(name, value)).collect(),
        ..Default::default()
    };
    let metadata = |(key, value): &(String, String)| StringStringEntryProto {
        key: Some(key.clone()),
        value: Some(value.clone()),
    };
    Ok(ModelProto {
        ir_version: Some(ir_version(options.opset)),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(options.opset) }],
        producer_name: Some("taper".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        doc_string: (!options.description.is_empty()).then(|| options.description.clone()),
        graph: Some(graph),
        metadata_props: options.metadata.iter().map(metadata).collect(),
        ..Default::default()
    })
}

/// The first version of the file format with a version of ONNX's operators.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        23 => 11,
        _ => 12,
    }
}

fn check(inputs: &[(&str, &Tensor)], options: &Export) -> Result<()> {
    if !OPSETS.contains(&options.opset) {
        return Err(invalid(format!(
            "version {} of ONNX's operators: versions from {} to {} can be written",
            options.opset,
            OPSETS.start(),
            OPSETS.end()
        )));
    }
    for DynamicAxis { input, axis, name } in &options.dynamic_axes {
        let Some((_, tensor)) = inputs.iter().find(|(own, _)| own == input) else {
            let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
            return Err(invalid(format!("a dynamic axis of \"{input}\": the inputs are {names:?}")));
        };
        let Some(&size) = tensor.dims().get(*axis) else {
            return Err(invalid(format!("axis {axis} of \"{input}\", whose shape is {}", tensor.shape())));
        };
        let first = options.dynamic_axes.iter().find(|other| other.name == *name);
        let other = first.and_then(|first| {
            let (_, tensor) = inputs.iter().find(|(own, _)| *own == first.input)?;
            tensor.dims().get(first.axis).copied()
        });
        if other.is_some_and(|other| other != size) || size == 0 {
            return Err(invalid(format!(
                "axis {axis} of \"{input}\" has the size {size}; the dynamic size \"{name}\" is {}: give inputs of equal \
                 sizes above 0",
                other.unwrap_or(0)
            )));
        }
    }
    Ok(())
}

/// Multiples of the given sizes at which a model with dynamic axes is called, besides the sizes themselves;
/// a row for each dynamic size in turn. Different rows tell sizes apart.
const MULTIPLES: [[usize; 3]; 6] = [[2, 3, 5], [3, 5, 2], [5, 2, 3], [2, 5, 3], [3, 2, 5], [5, 3, 2]];

/// The sizes of each dynamic axis's name in each sample; a further list is tried if the model refuses one.
fn plans(inputs: &[(&str, &Tensor)], options: &Export) -> Vec<Vec<HashMap<String, usize>>> {
    let mut given: Vec<(String, usize)> = Vec::new();
    for DynamicAxis { input, axis, name } in &options.dynamic_axes {
        let found = inputs.iter().find(|(own, _)| own == input).and_then(|(_, t)| t.dims().get(*axis));
        if let Some(&size) = found
            && !given.iter().any(|(own, _)| own == name)
        {
            given.push((name.clone(), size));
        }
    }
    if given.is_empty() {
        return vec![vec![HashMap::new()]];
    }
    let sample = |size: &dyn Fn(usize, usize) -> usize| -> HashMap<String, usize> {
        given.iter().enumerate().map(|(at, (name, own))| (name.clone(), size(at, *own))).collect()
    };
    let row = |at: usize| MULTIPLES[at % MULTIPLES.len()];
    // An axis of size 1 would look like one to broadcast.
    let multiples = (0..4).map(|k| sample(&|at, own| own.max(2) * if k == 0 { 1 } else { row(at)[k - 1] }));
    let larger = (0..4).map(|k| sample(&|at, own| own.max(2) + if k == 0 { 0 } else { row(at)[k - 1] }));
    let smaller =
        (0..4).map(|k| sample(&|at, own| own.saturating_sub(if k == 0 { 0 } else { row(at)[k - 1] }).max(2)));
    vec![multiples.collect(), larger.collect(), smaller.collect()]
}

/// Calls the model at the sizes of a plan, and at those of the next one if it refuses them.
fn trace<M: Module + ?Sized>(
    model: &M,
    forward: Forward<'_, M>,
    inputs: &[(&str, &Tensor)],
    options: &Export,
) -> Result<Traced> {
    let mut refused = None;
    for plan in plans(inputs, options) {
        match trace_at(model, forward, inputs, options, &plan) {
            Ok(traced) => return Ok(traced),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| invalid("there is nothing to trace".into())))
}

fn trace_at<M: Module + ?Sized>(
    model: &M,
    forward: Forward<'_, M>,
    inputs: &[(&str, &Tensor)],
    options: &Export,
    plan: &[HashMap<String, usize>],
) -> Result<Traced> {
    let mut traces = Vec::with_capacity(plan.len());
    let mut given: Vec<Vec<Tensor>> = Vec::new();
    let mut results: Vec<Vec<(Option<String>, Tensor)>> = Vec::new();
    let mut paths = HashMap::new();
    for (k, sizes) in plan.iter().enumerate() {
        let tensors = at_sizes(inputs, options, sizes)?;
        let named: Vec<(&str, Tensor)> =
            inputs.iter().zip(&tensors).map(|((name, _), tensor)| (*name, tensor.clone())).collect();
        // The first call fills caches, so that both calls do the same.
        unchanged(model, || set_grad_enabled(false, || forward(model, &named)))?;
        let call = || layer_paths(model, || Trace::of(|| set_grad_enabled(false, || forward(model, &named))));
        let mut found = Vec::new();
        let (outputs, trace) = unchanged(model, || {
            let ((outputs, trace), paths) = call();
            found = paths;
            Ok((outputs?, trace))
        })?;
        if k == 0 {
            paths = found.into_iter().collect();
        }
        traces.push(Sample::new(trace));
        given.push(tensors);
        results.push(outputs);
    }
    let counts: HashSet<usize> = results.iter().map(Vec::len).collect();
    if counts.len() > 1 || counts.contains(&0) {
        return Err(invalid("the model has no outputs, or their number depends on a dynamic size".into()));
    }
    let twin =
        |lists: &[Vec<Tensor>], k: usize| Twin::new(lists.iter().map(|list| list[k].clone()).collect());
    let outputs: Vec<Vec<Tensor>> =
        results.iter().map(|list| list.iter().map(|(_, tensor)| tensor.clone()).collect()).collect();
    Ok(Traced {
        samples: Samples(traces),
        inputs: (0..inputs.len()).map(|k| twin(&given, k)).collect(),
        outputs: (0..outputs[0].len()).map(|k| twin(&outputs, k)).collect(),
        names: results[0].iter().map(|(name, _)| name.clone()).collect(),
        paths,
    })
}

/// Runs `f`, restores the model's buffers and random streams, and fails if `f` changed a buffer.
fn unchanged<M: Module + ?Sized, R>(model: &M, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let streams = model.rng_state();
    let buffers: Vec<(String, Tensor, Tensor)> = model
        .named_buffers()
        .into_iter()
        .map(|(name, buffer)| (name, buffer.clone(), buffer.resolve()))
        .collect();
    let result = f();
    model.load_rng_state(&streams)?;
    let mut changed = Vec::new();
    for (name, buffer, before) in &buffers {
        if buffer.resolve().id() != before.id() {
            buffer.assign(before)?;
            changed.push(name.as_str());
        }
    }
    let result = result?;
    if changed.is_empty() {
        return Ok(result);
    }
    Err(invalid(format!(
        "the model changes its buffers {} when it runs: call .eval() on it before the export",
        changed.join(", ")
    )))
}

/// The inputs with other sizes of their dynamic axes: elements are repeated, so that indices stay in range.
fn at_sizes(
    inputs: &[(&str, &Tensor)],
    options: &Export,
    sizes: &HashMap<String, usize>,
) -> Result<Vec<Tensor>> {
    let mut found = Vec::with_capacity(inputs.len());
    for (name, tensor) in inputs {
        let mut tensor = tensor.detach();
        for DynamicAxis { axis, name, .. } in options.dynamic_axes.iter().filter(|axis| axis.input == *name) {
            let (own, wanted) = (tensor.dims()[*axis], sizes.get(name).copied().unwrap_or(0));
            if own != wanted {
                let index: Vec<i32> = (0..wanted).map(|k| (k % own) as i32).collect();
                let index = Tensor::new(index, (DType::I32, &tensor.device()))?;
                tensor = tensor.index_select(*axis, &index)?.detach();
            }
        }
        // A separate tensor, so that one given twice is two inputs.
        let bytes = tensor.read_bytes()?;
        found.push(Tensor::from_bytes_of(tensor.dtype(), &bytes, tensor.shape().clone(), &tensor.device())?);
    }
    Ok(found)
}

/// The names of the outputs.
fn output_names(own: &[Option<String>], options: &Export) -> Result<Vec<String>> {
    let names = &options.output_names;
    if !names.is_empty() && names.len() != own.len() {
        return Err(invalid(format!("{} output names for {} outputs", names.len(), own.len())));
    }
    let name = |(at, own): (usize, &Option<String>)| match (names.get(at), own) {
        (Some(name), _) => name.clone(),
        (None, Some(own)) => own.clone(),
        (None, None) => format!("output_{at}"),
    };
    let names: Vec<String> = match own {
        [None] if names.is_empty() => vec!["output".into()],
        _ => own.iter().enumerate().map(name).collect(),
    };
    let distinct: HashSet<&String> = names.iter().collect();
    if distinct.len() < names.len() {
        return Err(invalid(format!("two outputs have one name: {names:?}")));
    }
    Ok(names)
}

/// Gives the outputs their names. An output that is an input, a weight or another output gets a node.
fn name_outputs(exporter: &mut Exporter, found: Vec<String>, names: &[String]) -> Result<()> {
    let mut renamed: HashMap<String, String> = HashMap::new();
    exporter.builder.scope = String::new();
    for (value, name) in found.into_iter().zip(names) {
        if !exporter.builder.take(name) {
            return Err(invalid(format!("the output \"{name}\" has the name of an input or a weight")));
        }
        let value = match exporter.builder.is_made(&value) && !renamed.contains_key(&value) {
            true => value,
            false => exporter.builder.node("Identity", &[&value], []),
        };
        renamed.insert(value, name.clone());
    }
    exporter.builder.rename(&renamed);
    Ok(())
}

/// The names of dynamic sizes.
struct Symbols(Vec<(Size, String)>);

impl Symbols {
    fn new(inputs: &[(&str, &Tensor)], values: &[Twin], options: &Export) -> Symbols {
        let symbol = |axis: &DynamicAxis| {
            let at = inputs.iter().position(|(name, _)| *name == axis.input)?;
            Some((values[at].size(axis.axis), axis.name.clone()))
        };
        Symbols(options.dynamic_axes.iter().filter_map(symbol).collect())
    }

    /// The type of an input or an output. A dynamic size that is no input's has no name.
    fn info(&self, name: &str, value: &Twin) -> ValueInfoProto {
        let dimension = |size: Size| Dimension {
            value: match fixed(&size) {
                Some(size) => Some(DimensionValue::DimValue(size as i64)),
                None => self
                    .0
                    .iter()
                    .find(|(own, _)| *own == size)
                    .map(|(_, name)| DimensionValue::DimParam(name.clone())),
            },
        };
        let tensor = TensorType {
            elem_type: Some(value.dtype().info().onnx as i32),
            shape: Some(TensorShapeProto { dim: value.shape().into_iter().map(dimension).collect() }),
        };
        ValueInfoProto {
            name: Some(name.into()),
            r#type: Some(TypeProto { value: Some(TypeValue::TensorType(tensor)) }),
            ..Default::default()
        }
    }
}
