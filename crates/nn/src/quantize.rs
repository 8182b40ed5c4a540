//! Weights of a trained model in blocks of few bits: rounding to the nearest, with or without an importance
//! of each input that calibration measured.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use tensor_core::{DType, Error, GgmlType, Result, Tensor};

use crate::{
    Module, VisitorMut,
    layers::lora::{Host, LayerKind, by_pattern, hosts, is_named},
};

const OP: &str = "quantize";

/// Which weights [`quantize`] encodes, and how.
#[derive(Clone, Debug)]
pub struct QuantizeConfig {
    /// The format of weights.
    pub format: GgmlType,
    /// The format of weights whose rows are no whole blocks of `format`: those of 256 elements need a
    /// multiple of 256. `None` keeps such weights as they are. [`GgmlType::Q8_0`] by default.
    pub fallback: Option<GgmlType>,
    /// Other formats of some layers, by the ends of their paths: `q_proj`, `layers.0.mlp.down_proj`. None by
    /// default.
    pub formats: BTreeMap<String, GgmlType>,
    /// Layers that are kept as they are, by the ends of their paths. None by default.
    pub exclude: Vec<String>,
    /// Whether tables of embeddings are encoded too; they are not by default. An output layer that shares
    /// its weight with the table is encoded with it, or kept with it.
    pub embeddings: bool,
    /// Whether weights that are in blocks already are decoded and encoded again; they are kept by default.
    pub requantize: bool,
    /// The importance of each input of some layers, by their paths, as [`Calibration::finish`] gives it.
    /// None by default.
    pub importance: BTreeMap<String, Tensor>,
}

impl QuantizeConfig {
    /// All linear layers in this format.
    #[must_use]
    pub fn new(format: GgmlType) -> QuantizeConfig {
        QuantizeConfig {
            format,
            fallback: Some(GgmlType::Q8_0),
            formats: BTreeMap::new(),
            exclude: Vec::new(),
            embeddings: false,
            requantize: false,
            importance: BTreeMap::new(),
        }
    }

    /// The format for a weight of the layer at `path`, or why it is kept.
    fn choose(&self, host: &Host) -> std::result::Result<GgmlType, &'static str> {
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
        let fits = |format: &GgmlType| columns > 0 && columns.is_multiple_of(format.block_elements());
        let wanted = by_pattern(&self.formats, &host.path).copied().unwrap_or(self.format);
        Some(wanted).into_iter().chain(self.fallback).find(fits).ok_or("rows that are no whole blocks")
    }
}

/// One weight after [`quantize`].
#[derive(Clone, Debug)]
pub struct QuantizedLayer {
    /// The path of the layer.
    pub path: String,
    /// Its format, or why it was kept.
    pub outcome: std::result::Result<GgmlType, &'static str>,
    /// The root mean square of the rounding, as a part of that of the weight; 0 if it was kept.
    pub error: f64,
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
                    let name = tensor_core::BlockFormat::name(&format);
                    writeln!(
                        f,
                        "{:width$}  {name}  {before} to {after} bytes, error {:.2} %",
                        layer.path,
                        100.0 * layer.error
                    )?;
                }
                Err(why) => writeln!(f, "{:width$}  kept: {why}", layer.path)?,
            }
        }
        let [before, after] = self.bytes();
        write!(f, "{before} to {after} bytes")
    }
}

/// Encodes the weights of a model's linear layers in blocks of a format, each number rounded to the nearest.
/// The weights become constants: train [adapters](crate::lora) beside them. Files keep them in their
/// blocks. Weights that several layers share stay shared.
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
/// A weight that is not finite, by its path; an importance of another size than the layer's input; an adapter
/// that is merged; or whatever the device reports. The model is unchanged then.
#[track_caller]
pub fn quantize<M: Module + ?Sized>(model: &mut M, config: &QuantizeConfig) -> Result<Quantized> {
    let mut report = Quantized::default();
    let mut encoded: HashMap<u64, Tensor> = HashMap::new();
    let hosts = hosts(model);
    let tables: Vec<u64> =
        hosts.iter().filter(|host| host.kind == LayerKind::Embedding).map(|host| host.weight.id()).collect();
    for host in &hosts {
        host.require_unmerged()?;
        let weight = &host.weight;
        let size = match weight.block_format() {
            Some(format) => format.bytes(weight.shape())?,
            None => weight.numel() * weight.dtype().size(),
        };
        let mut outcome = config.choose(host);
        if !config.embeddings && tables.contains(&weight.id()) {
            outcome = Err("a table of embeddings");
        }
        let (mut error, mut after) = (0.0, size);
        if let Ok(format) = outcome {
            let blocks = match encoded.get(&weight.id()) {
                Some(blocks) => blocks.clone(),
                None => {
                    let importance = config.importance.get(&host.path);
                    let blocks = weight.detach().dequantize().quantize(format, importance);
                    blocks.map_err(|e| Error::invalid(OP, format!("{}: {e}", host.path)))?
                }
            };
            (error, after) = (relative_error(weight, &blocks)?, blocks.block_bytes()?.len());
            encoded.insert(weight.id(), blocks);
        }
        report.layers.push(QuantizedLayer { path: host.path.clone(), outcome, error, bytes: [size, after] });
    }
    let cells = encoded.into_iter().map(|(id, blocks)| Ok((id, blocks.into_cell(false)?)));
    model.visit_mut(&mut VisitorMut::new(cells.collect::<Result<_>>()?));
    Ok(report)
}

/// The root mean square of the difference, as a part of that of `weight`.
fn relative_error(weight: &Tensor, blocks: &Tensor) -> Result<f64> {
    let weight = &weight.detach().dequantize();
    let square =
        |x: &Tensor| -> Result<f64> { Ok(f64::from(x.to_dtype(DType::F32)?.square().mean().item::<f32>()?)) };
    let size = square(weight)?;
    Ok(if size > 0.0 { (square(&blocks.dequantize().sub(weight)?)? / size).sqrt() } else { 0.0 })
}

/// A measurement of the inputs of a model's linear layers: the mean of the square of each input over what the
/// model is run on meanwhile. Errors of a weight change outputs in proportion to it. llama.cpp's importance
/// matrix.
///
/// ```
/// use nn::{Calibration, Linear, QuantizeConfig, quantize};
/// use tensor_core::{Generator, GgmlType, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut layers = vec![Linear::new(64, 32, &rng)?];
/// let calibration = Calibration::start(&layers);
/// for _ in 0..4 {
///     layers[0].forward(&Tensor::randn([8, 64], &rng)?)?;
/// }
/// let mut config = QuantizeConfig::new(GgmlType::Q4_0);
/// config.importance = calibration.finish()?;
/// assert_eq!(config.importance["0"].dims(), [64]);
/// quantize(&mut layers, &config)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the measurement ends when this is dropped"]
pub struct Calibration {
    hosts: Vec<Host>,
}

impl Calibration {
    /// Begins to measure the inputs of all linear layers of a model, from nothing.
    pub fn start<M: Module + ?Sized>(model: &M) -> Calibration {
        let mut hosts = hosts(model);
        hosts.retain(|host| matches!(host.kind, LayerKind::Linear { .. }));
        hosts.iter().for_each(|host| host.slot.observe(true));
        Calibration { hosts }
    }

    /// The mean squares, by the paths of the layers that were run.
    ///
    /// # Errors
    /// An input that was not finite, by the layer's path.
    #[track_caller]
    pub fn finish(self) -> Result<BTreeMap<String, Tensor>> {
        let mut all = BTreeMap::new();
        for host in &self.hosts {
            let Some(mean) = host.slot.mean_square()? else { continue };
            if !mean.isfinite().all().item::<bool>()? {
                let message = format!("{}: the calibration data give an input that is not finite", host.path);
                return Err(Error::invalid(OP, message));
            }
            all.insert(host.path.clone(), mean);
        }
        Ok(all)
    }
}

impl Drop for Calibration {
    fn drop(&mut self) {
        self.hosts.iter().for_each(|host| host.slot.observe(false));
    }
}
