//! Quantization of weights and activations to 8 bits: observers find the ranges of activations, training or
//! calibration runs with rounding that is simulated, and the weights are then converted to integers.
//!
//! Jacob et al.: Quantization and training of neural networks for efficient integer-arithmetic-only
//! inference, 2018. PyTorch's `torch.ao.quantization`.

use std::sync::Arc;

use tensor_core::{AffineBits, DType, Error, Result, Tensor, set_grad_enabled};

pub use super::observer::{IntegerRange, Observer, ObserverKind};
use super::{
    config::is_named,
    handle::hosts,
    kind::LayerKind,
    simulated::{Simulated, channel_scales},
    weighted_host::Host,
};
use crate::{Module, VisitorMut};

const OP: &str = "qat";

/// How layers are quantized by [`prepare_qat`] and [`prepare`].
#[derive(Clone, Debug, PartialEq)]
pub struct QatConfig {
    /// How the ranges of the layers' inputs are found: moving averages with c = 0.01 by default.
    pub observer: ObserverKind,
    /// The integers of the layers' inputs: [`IntegerRange::U8`] by default.
    pub activations: IntegerRange,
    /// Layers that are kept as they are, by the ends of their paths. None by default.
    pub exclude: Vec<String>,
}

impl Default for QatConfig {
    fn default() -> QatConfig {
        QatConfig {
            observer: ObserverKind::MovingAverage { averaging_constant: 0.01 },
            activations: IntegerRange::U8,
            exclude: Vec::new(),
        }
    }
}

/// The prepared layers of a model. It shares them with the model, and does not borrow it.
#[derive(Debug)]
pub struct Qat {
    layers: Vec<(Host, Arc<Simulated>)>,
}

/// Makes the linear layers and the convolutions of a model round their inputs and weights as 8-bit integers
/// would: inputs with one scale, from an observer, and weights with a scale for each output, symmetric about
/// 0. Gradients pass straight through ([`fake_quantize_per_tensor_affine`]), so that training goes on with
/// the errors of rounding. [`Qat::convert`] then makes the weights integers.
/// `torch.ao.quantization.prepare_qat`.
///
/// The scales of inputs are buffers of the model, `fc1.input_quantizer.scale` and `…zero_point`.
///
/// ```
/// use nn::{Linear, Module, qat::{QatConfig, prepare_qat}};
/// use tensor_core::{Generator, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut layers = vec![Linear::new(16, 8, &rng)?];
/// let qat = prepare_qat(&layers, &QatConfig::default())?;
/// let x = Tensor::randn([4, 16], &rng)?;
/// let simulated = layers[0].forward(&x)?.detach();     // … and steps of an optimizer
/// qat.convert(&mut layers)?;
/// let found = layers[0].forward(&x)?;
/// assert!(found.sub(&simulated)?.abs().max()?.item::<f32>()? < 1e-5);
/// assert_eq!(layers[0].weight.block_format().unwrap().name(), "affine_i8");
/// # Ok(()) }
/// ```
///
/// # Errors
/// No layer to prepare; a layer that is prepared already or whose adapter is merged; too little memory. The
/// model is unchanged then.
///
/// [`fake_quantize_per_tensor_affine`]: crate::functional::fake_quantize_per_tensor_affine
#[track_caller]
pub fn prepare_qat<M: Module + ?Sized>(model: &M, config: &QatConfig) -> Result<Qat> {
    let mut layers = Vec::new();
    for host in hosts(model) {
        let fits = matches!(host.kind, LayerKind::Linear { transposed: false } | LayerKind::Conv { .. });
        let is_excluded = config.exclude.iter().any(|name| is_named(&host.path, name));
        if !fits || is_excluded || host.weight.block_format().is_some() {
            continue;
        }
        host.require_unmerged()?;
        if host.adapters.simulated().is_some() {
            return Err(Error::invalid(OP, format!("{}: the layer is prepared already", host.path)));
        }
        let observer = Observer::new(config.observer);
        let weight = Some(IntegerRange::I8);
        let simulated = Simulated::new(&host.path, config.activations, weight, observer, &host.weight)?;
        layers.push((host, Arc::new(simulated)));
    }
    if layers.is_empty() {
        let message = "the model has no linear layer or convolution to prepare whose weight is not in blocks";
        return Err(Error::invalid(OP, message));
    }
    for (host, simulated) in &layers {
        host.adapters.set_simulated(Some(simulated.clone()));
    }
    Ok(Qat { layers })
}

/// [`prepare_qat`] without rounding: layers compute what they did, and observers look at their inputs while
/// the model runs on calibration data. `torch.ao.quantization.prepare`.
///
/// # Errors
/// As [`prepare_qat`].
#[track_caller]
pub fn prepare<M: Module + ?Sized>(model: &M, config: &QatConfig) -> Result<Qat> {
    let qat = prepare_qat(model, config)?;
    qat.fake_quantize(false);
    Ok(qat)
}

impl Qat {
    /// The paths of the prepared layers.
    pub fn layers(&self) -> Vec<&str> {
        self.layers.iter().map(|(host, _)| host.path.as_str()).collect()
    }

    /// Whether observers look at inputs; they do at first. Training ends with some steps without.
    /// `torch.ao.quantization.disable_observer`.
    pub fn observe(&self, on: bool) {
        self.layers.iter().for_each(|(_, simulated)| simulated.set_observes(on));
    }

    /// Whether inputs and weights are rounded. `torch.ao.quantization.enable_fake_quant`.
    pub fn fake_quantize(&self, on: bool) {
        self.layers.iter().for_each(|(_, simulated)| simulated.set_simulates(on));
    }

    /// The scale and the zero point of the input of the layer at a path; None for another path or before an
    /// input was observed.
    pub fn input_parameters(&self, path: &str) -> Option<(f64, f64)> {
        self.layers.iter().find(|(host, _)| host.path == path)?.1.parameters()
    }

    /// Makes the weights integers of 8 bits with a scale for each output, in blocks, and keeps the rounding
    /// of the inputs, with the scales of now. A file of ONNX then has pairs of `QuantizeLinear` and
    /// `DequantizeLinear`. `torch.ao.quantization.convert`.
    ///
    /// # Errors
    /// By the layer's path: no input was observed, a weight that several layers share or that is not finite,
    /// or whatever the device reports. The model is unchanged then.
    #[track_caller]
    pub fn convert<M: Module + ?Sized>(self, model: &mut M) -> Result<()> {
        let mut cells = Vec::with_capacity(self.layers.len());
        for (host, simulated) in &self.layers {
            let wrong = |message: &str| Error::invalid(OP, format!("{}: {message}", host.path));
            if simulated.parameters().is_none() {
                return Err(wrong(
                    "no input was observed; run the model on data that reach this layer, or exclude it",
                ));
            }
            if self.layers.iter().filter(|(other, _)| other.weight.id() == host.weight.id()).count() > 1 {
                return Err(wrong("several layers share the weight; exclude all of them but one"));
            }
            let Some(integers) = simulated.weight_range() else { continue };
            let blocks = set_grad_enabled(false, || integer_weight(&host.weight, integers))
                .map_err(|e| wrong(&e.to_string()))?;
            cells.push((host.weight.id(), blocks.into_cell(false)?));
        }
        for (host, simulated) in &self.layers {
            host.adapters.set_simulated(Some(Arc::new(simulated.fixed())));
        }
        model.visit_mut(&mut VisitorMut::new(cells.into_iter().collect()));
        Ok(())
    }

    /// Makes the layers compute what they did before, with the weights of now.
    pub fn remove(self) {
        self.layers.iter().for_each(|(host, _)| host.adapters.set_simulated(None));
    }
}

/// A weight as integers of 8 bits with a scale for each position of its first axis.
fn integer_weight(weight: &Tensor, integers: IntegerRange) -> Result<Tensor> {
    let dense = weight.detach().to_dtype(DType::F32)?;
    if !dense.isfinite().all().item::<bool>()? {
        return Err(Error::invalid(OP, "the weight is not finite"));
    }
    let scale = channel_scales(&dense, integers)?;
    let mut shape = vec![1; dense.rank()];
    shape[0] = scale.numel();
    let rounded = dense.mul(&scale.reciprocal().reshape(shape)?)?.round();
    let rounded = rounded.clamp(integers.quant_min as f64, integers.quant_max as f64).to_dtype(DType::I8)?;
    Tensor::affine(&rounded, &scale, None, 0, AffineBits::I8)?.to_dtype(weight.dtype())
}
