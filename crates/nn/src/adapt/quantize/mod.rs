//! Weights of a trained model in blocks of few bits: rounding to the nearest, with or without an importance
//! of each input that calibration measured, and the methods GPTQ and AWQ.
//!
//! | file | contents |
//! |---|---|
//! | this file | [`quantize`], its configuration and its report |
//! | `calibration` | [`Calibration`]: statistics of the inputs of layers |
//! | `gptq` | rounding column by column |
//! | `awq` | scales of inputs that are searched before rounding |

mod awq;
mod calibration;
mod gptq;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

pub use awq::{AwqFold, AwqOptions};
pub use calibration::Calibration;
pub use gptq::GptqOptions;
use tensor_core::{DType, Error, GgmlType, IntegerGroups, Result, Tensor, WeightFormat};

use super::{
    config::{by_pattern, is_named},
    handle::hosts,
    kind::LayerKind,
    statistics::InputStatistics,
    weighted_host::Host,
};
use crate::{Module, VisitorMut};

const OP: &str = "quantize";

/// How the numbers of a weight are chosen.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum QuantizeMethod {
    /// Each number is rounded to the nearest.
    #[default]
    Nearest,
    /// GPTQ, in layers whose format is [`WeightFormat::Integers`]; others are rounded to the nearest.
    Gptq(GptqOptions),
    /// AWQ: scales of the inputs are searched, and numbers are then rounded to the nearest.
    Awq(AwqOptions),
}

/// Which weights [`quantize`] encodes, and how.
#[derive(Clone, Debug)]
pub struct QuantizeConfig {
    /// The format of weights.
    pub format: WeightFormat,
    /// The format of weights whose rows are no whole blocks of a format of GGUF files: those of 256 elements
    /// need a multiple of 256. `None` keeps such weights as they are. [`GgmlType::Q8_0`] by default. Groups
    /// of integers that do not divide a row are an error.
    pub fallback: Option<WeightFormat>,
    /// Other formats of some layers, by the ends of their paths: `q_proj`, `layers.0.mlp.down_proj`. None by
    /// default.
    pub formats: BTreeMap<String, WeightFormat>,
    /// Layers that are kept as they are, by the ends of their paths. None by default.
    pub exclude: Vec<String>,
    /// Whether tables of embeddings are encoded too; they are not by default. An output layer that shares
    /// its weight with the table is encoded with it, or kept with it.
    pub embeddings: bool,
    /// Whether weights that are in blocks already are decoded and encoded again; they are kept by default.
    pub requantize: bool,
    /// The importance of each input of some layers, by their paths, as [`Calibration::finish`] gives it.
    /// Not used by GPTQ and AWQ. None by default.
    pub importance: BTreeMap<String, Tensor>,
    /// How numbers are chosen: rounded to the nearest by default.
    pub method: QuantizeMethod,
    /// The statistics of the inputs of layers, as [`Calibration::statistics`] gives them, with products: GPTQ
    /// and AWQ need them for all layers that they encode. None by default.
    pub inputs: BTreeMap<String, InputStatistics>,
}

impl QuantizeConfig {
    /// All linear layers in this format, rounded to the nearest.
    #[must_use]
    pub fn new(format: impl Into<WeightFormat>) -> QuantizeConfig {
        QuantizeConfig {
            format: format.into(),
            fallback: Some(GgmlType::Q8_0.into()),
            formats: BTreeMap::new(),
            exclude: Vec::new(),
            embeddings: false,
            requantize: false,
            importance: BTreeMap::new(),
            method: QuantizeMethod::Nearest,
            inputs: BTreeMap::new(),
        }
    }

    /// The configuration with GPTQ or AWQ, and the statistics that they need.
    #[must_use]
    pub fn method(self, method: QuantizeMethod, inputs: BTreeMap<String, InputStatistics>) -> QuantizeConfig {
        QuantizeConfig { method, inputs, ..self }
    }

    /// The format for a weight of a layer, or why it is kept.
    fn choose(&self, host: &Host) -> std::result::Result<WeightFormat, &'static str> {
        match host.kind {
            LayerKind::Linear { transposed: false } => {}
            LayerKind::Embedding if self.embeddings => {}
            LayerKind::Embedding => return Err("a table of embeddings"),
            LayerKind::Linear { transposed: true } => return Err("a transposed weight"),
            LayerKind::Conv { .. } => return Err("a convolution"),
        }
        if self.exclude.iter().any(|name| is_named(&host.path, name)) {
            return Err("excluded");
        }
        if host.weight.block_format().is_some() && !self.requantize {
            return Err("in blocks already");
        }
        let columns = host.weight.shape().last().copied().unwrap_or(0);
        let wanted = by_pattern(&self.formats, &host.path).copied().unwrap_or(self.format);
        if let WeightFormat::Integers(_) = wanted {
            return Ok(wanted); // groups that do not divide a row are an error
        }
        let fits = |format: &WeightFormat| format.fits(columns);
        Some(wanted).into_iter().chain(self.fallback).find(fits).ok_or("rows that are no whole blocks")
    }
}

/// One weight after [`quantize`].
#[derive(Clone, Debug)]
pub struct QuantizedLayer {
    /// The path of the layer.
    pub path: String,
    /// Its format, or why it was kept.
    pub outcome: std::result::Result<WeightFormat, &'static str>,
    /// The root mean square of the change of the weight, as a part of that of the weight; 0 if it was kept.
    /// AWQ's scales count as part of the weight.
    pub error: f64,
    /// The root mean square of the change of the layer's outputs on the calibration data, as a part of that
    /// of the outputs, if the configuration has the products of the layer's inputs and the weight is
    /// encoded.
    pub output_error: Option<f64>,
    /// The bytes of the weight before and after.
    pub bytes: [usize; 2],
}

/// The weights after [`quantize`]; printed, a table of them.
#[derive(Clone, Debug, Default)]
pub struct Quantized {
    /// All layers with a weight that could be encoded, in the model's order.
    pub layers: Vec<QuantizedLayer>,
}

impl Quantized {
    /// The bytes of these layers' weights before and after.
    #[must_use]
    pub fn bytes(&self) -> [usize; 2] {
        [0, 1].map(|k| self.layers.iter().map(|layer| layer.bytes[k]).sum())
    }
}

impl fmt::Display for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.layers.iter().map(|layer| layer.path.len()).max().unwrap_or(0);
        for layer in &self.layers {
            let [before, after] = layer.bytes;
            match layer.outcome {
                Ok(format) => {
                    let error = 100.0 * layer.error;
                    write!(
                        f,
                        "{:width$}  {format}  {before} to {after} bytes, error {error:.2} %",
                        layer.path
                    )?;
                    match layer.output_error {
                        Some(error) => writeln!(f, ", of outputs {:.2} %", 100.0 * error)?,
                        None => writeln!(f)?,
                    }
                }
                Err(why) => writeln!(f, "{:width$}  kept: {why}", layer.path)?,
            }
        }
        let [before, after] = self.bytes();
        write!(f, "{before} to {after} bytes")
    }
}

/// Encodes the weights of a model's linear layers in blocks of a format, by [`QuantizeConfig::method`].
/// The weights become constants: train [adapters](crate::lora) beside them. Files keep them in their
/// blocks. Weights that several layers share stay shared, and are rounded to the nearest.
///
/// GPTQ measures all layers on the model as it was. (The paper's program measures each block after those
/// before it were rounded.) AWQ changes the layers that [`AwqOptions::folds`] names, and layers without a
/// fold get a buffer `input_scale`, by which they divide their input.
///
/// ```
/// use nn::{Linear, Module, QuantizeConfig, quantize};
/// use tensor_core::{Generator, GgmlType, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut layers = vec![Linear::new(64, 32, &rng)?, Linear::new(32, 10, &rng)?];
/// let x = Tensor::randn([1, 64], &rng)?;
/// let before = layers[0].forward(&x)?;
/// let report = quantize(&mut layers, &QuantizeConfig::new(GgmlType::Q8_0))?;
/// assert_eq!(report.bytes(), [4 * (64 * 32 + 32 * 10), (64 * 32 + 32 * 10) / 32 * 34]);
/// let change = layers[0].forward(&x)?.sub(&before)?.abs().max()?.item::<f32>()?;
/// assert!(change < 0.05);
/// # Ok(()) }
/// ```
///
/// # Errors
/// By the layer's path: a weight that is not finite; an importance of another size than the layer's input;
/// groups that do not divide a row; an adapter that is merged; for GPTQ and AWQ a layer without statistics or
/// without products, products that are not positive definite, or a fold that does not fit. Or whatever the
/// device reports. The model is unchanged then.
#[track_caller]
pub fn quantize<M: Module + ?Sized>(model: &mut M, config: &QuantizeConfig) -> Result<Quantized> {
    let hosts = hosts(model);
    let plan = plan(&hosts, config)?;
    let scaled = match &config.method {
        QuantizeMethod::Awq(options) => {
            let chosen = plan.iter().filter(|layer| layer.alone);
            let chosen: Vec<_> =
                chosen.filter_map(|layer| layer.outcome.ok().map(|format| (layer.host, format))).collect();
            awq::awq(model, &chosen, &config.inputs, options)?
        }
        QuantizeMethod::Nearest | QuantizeMethod::Gptq(_) => awq::Scaled::default(),
    };
    let mut report = Quantized::default();
    let mut encoded: HashMap<u64, Tensor> = HashMap::new();
    for layer in &plan {
        let (host, weight) = (layer.host, &layer.host.weight);
        let size = match weight.block_format() {
            Some(format) => format.bytes(weight.shape())?,
            None => weight.numel() * weight.dtype().size(),
        };
        let mut row = QuantizedLayer {
            path: host.path.clone(),
            outcome: layer.outcome,
            error: 0.0,
            output_error: None,
            bytes: [size, size],
        };
        if let Ok(format) = layer.outcome {
            let value = scaled.values.get(&weight.id()).cloned();
            let value = value.unwrap_or_else(|| weight.detach().dequantize()).to_dtype(weight.dtype())?;
            let blocks = match encoded.get(&weight.id()) {
                Some(blocks) => blocks.clone(),
                None => named(host, encode(layer, format, &value, config))?,
            };
            row.error = relative_error(&value, &blocks)?;
            row.bytes[1] = blocks.block_bytes()?.len();
            row.output_error = named(host, output_error(host, &value, &blocks, &scaled, config))?;
            encoded.insert(weight.id(), blocks);
        }
        report.layers.push(row);
    }
    for cell in scaled.cells.iter().filter(|cell| !encoded.contains_key(&cell.id())) {
        cell.assign(&scaled.values[&cell.id()].to_dtype(cell.dtype())?)?;
    }
    for (host, scale) in &scaled.divided {
        host.adapters.set_input_scale(Some(scale))?;
    }
    let cells = encoded.into_iter().map(|(id, blocks)| Ok((id, blocks.into_cell(false)?)));
    model.visit_mut(&mut VisitorMut::new(cells.collect::<Result<_>>()?));
    Ok(report)
}

/// One layer before it is encoded.
struct Planned<'a> {
    host: &'a Host,
    outcome: std::result::Result<WeightFormat, &'static str>,
    /// Whether the layer alone has its weight, so that its inputs say how to round it.
    alone: bool,
}

/// The formats of all layers.
fn plan<'a>(hosts: &'a [Host], config: &QuantizeConfig) -> Result<Vec<Planned<'a>>> {
    let mut users: HashMap<u64, usize> = HashMap::new();
    hosts.iter().for_each(|host| *users.entry(host.weight.id()).or_default() += 1);
    let tables: Vec<u64> =
        hosts.iter().filter(|host| host.kind == LayerKind::Embedding).map(|host| host.weight.id()).collect();
    let mut plan = Vec::with_capacity(hosts.len());
    for host in hosts {
        host.require_unmerged()?;
        let mut outcome = config.choose(host);
        if !config.embeddings && tables.contains(&host.weight.id()) {
            outcome = Err("a table of embeddings");
        }
        let alone = users[&host.weight.id()] == 1 && host.kind != LayerKind::Embedding;
        plan.push(Planned { host, outcome, alone });
    }
    Ok(plan)
}

/// The blocks of one weight.
fn encode(
    layer: &Planned<'_>,
    format: WeightFormat,
    value: &Tensor,
    config: &QuantizeConfig,
) -> Result<Tensor> {
    match (&config.method, format) {
        (QuantizeMethod::Gptq(options), WeightFormat::Integers(groups)) if layer.alone => {
            encode_gptq(layer.host, groups, value, *options, config)
        }
        (QuantizeMethod::Nearest, _) => value.quantize(format, config.importance.get(&layer.host.path)),
        (QuantizeMethod::Gptq(_) | QuantizeMethod::Awq(_), _) => value.quantize(format, None),
    }
}

fn encode_gptq(
    host: &Host,
    groups: IntegerGroups,
    value: &Tensor,
    options: GptqOptions,
    config: &QuantizeConfig,
) -> Result<Tensor> {
    let products = products(host, inputs_of(host, &config.inputs)?)?.to_f64_vec()?;
    let columns = value.dims().last().copied().unwrap_or(0);
    let numbers = value.to_dtype(DType::F32)?.to_f64_vec()?;
    if let Some(at) = numbers.iter().position(|x| !x.is_finite()) {
        let message = format!("element {at} is {}: integers with scales hold finite numbers", numbers[at]);
        return Err(Error::invalid(OP, message));
    }
    let rounded = gptq::gptq(numbers, columns, products, groups, options)?;
    let (format, bytes) = groups.pack(value.shape(), &rounded.integers, &rounded.scales)?;
    Tensor::from_blocks(format, value.shape(), value.dtype(), &bytes, &value.device())
}

/// An error with the path of its layer.
fn named<T>(host: &Host, result: Result<T>) -> Result<T> {
    result.map_err(|e| Error::invalid(OP, format!("{}: {e}", host.path)))
}

/// The statistics of a layer's inputs.
fn inputs_of<'a>(host: &Host, inputs: &'a BTreeMap<String, InputStatistics>) -> Result<&'a InputStatistics> {
    inputs.get(&host.path).ok_or_else(|| {
        let message =
            "the calibration never ran this layer; run the model on data that reach it, or exclude it";
        Error::invalid(OP, message)
    })
}

/// The mean products of a layer's inputs, on the weight's device.
fn products(host: &Host, inputs: &InputStatistics) -> Result<Tensor> {
    let Some(products) = &inputs.mean_products else {
        let message =
            "the statistics have no products of inputs; measure them with Calibration::with_products";
        return Err(Error::invalid(OP, message));
    };
    let columns = host.weight.dims().last().copied().unwrap_or(0);
    if products.dims() != [columns, columns] {
        let shape = products.shape();
        let message = format!("{columns} inputs, and statistics of the shape {shape}");
        return Err(Error::invalid(OP, message));
    }
    products.to(&host.weight.device())
}

/// The sum over a weight's rows w of w · P · wᵀ: the mean square of their outputs, for inputs with the mean
/// products P.
fn output_square(weight: &Tensor, products: &Tensor) -> Result<f64> {
    Ok(f64::from(weight.matmul(products)?.mul(weight)?.sum().item::<f32>()?))
}

/// The root mean square of the change of a layer's outputs, as a part of that of the outputs.
fn output_error(
    host: &Host,
    value: &Tensor,
    blocks: &Tensor,
    scaled: &awq::Scaled,
    config: &QuantizeConfig,
) -> Result<Option<f64>> {
    let inputs = config.inputs.get(&host.path).filter(|inputs| inputs.mean_products.is_some());
    let Some(inputs) = inputs.filter(|_| matches!(host.kind, LayerKind::Linear { .. })) else {
        return Ok(None);
    };
    let products = products(host, inputs)?;
    let wide = |x: &Tensor| x.dequantize().to_dtype(DType::F32);
    let (value, blocks) = (wide(value)?, wide(blocks)?);
    let mut change = blocks.sub(&value)?;
    let mut whole = value;
    if let Some(scale) = scaled.scale_of(&host.path) {
        (change, whole) = (change.div(scale)?, whole.div(scale)?);
    }
    let [change, whole] = [output_square(&change, &products)?, output_square(&whole, &products)?];
    Ok(Some(if whole > 0.0 { (change.max(0.0) / whole).sqrt() } else { 0.0 }))
}

/// The root mean square of the difference, as a part of that of `weight`.
fn relative_error(weight: &Tensor, blocks: &Tensor) -> Result<f64> {
    let weight = &weight.detach().dequantize();
    let square =
        |x: &Tensor| -> Result<f64> { Ok(f64::from(x.to_dtype(DType::F32)?.square().mean().item::<f32>()?)) };
    let size = square(weight)?;
    Ok(if size > 0.0 { (square(&blocks.dequantize().sub(weight)?)? / size).sqrt() } else { 0.0 })
}
