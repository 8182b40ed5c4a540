//! The fully connected layer.

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, caller_line, default_dtype};

use super::{adapted_weight_and_bias, layer, record, weight_and_bias};
use crate::{
    functions,
    init::{self, Fan, Nonlinearity, settle},
    lora::{Adapters, LayerKind},
};

/// The linear transformation y = x · Wᵀ + b, from `[…, in]` to `[…, out]`. `torch.nn.Linear`.
///
/// `weight` has the shape `[out, in]` and `bias` the shape `[out]`; both are initialized uniformly on
/// (−1/√in, 1/√in), PyTorch's default.
///
/// ```
/// use nn::{Linear, Module};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let layer = Linear::new(3, 2, &Generator::seed(0, &device))?;
/// let y = layer.forward(&Tensor::ones([4, 3], &device)?)?;
/// assert_eq!(y.dims(), [4, 2]);
/// let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["weight", "bias"]);
/// assert_eq!(format!("{layer:?}"), "Linear(in_features=3, out_features=2, bias=true)");
/// # Ok(()) }
/// ```
///
/// A clone shares the parameters; [`Module::deep_copy`](crate::Module::deep_copy) makes new ones.
#[derive(Clone)]
pub struct Linear {
    /// The weight `[out, in]`.
    pub weight: Tensor,
    /// The bias `[out]`, unless the layer has none.
    pub bias: Option<Tensor>,
    /// The adapters beside the weight: none at first. See [`crate::lora`].
    pub adapters: Adapters,
}

/// Options of a [`Linear`] layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearConfig {
    /// Whether there is a bias; there is by default.
    pub bias: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for LinearConfig {
    fn default() -> LinearConfig {
        LinearConfig { bias: true, dtype: default_dtype() }
    }
}

impl Linear {
    /// A layer from `in_features` to `out_features` of the default dtype (f32), on the generator's device.
    ///
    /// # Errors
    /// No features on either side, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize, rng: &Generator) -> Result<Linear> {
        Linear::with_config(in_features, out_features, LinearConfig::default(), rng)
    }

    /// A layer without a bias, or of another dtype.
    ///
    /// # Errors
    /// No features on either side, a dtype that is not floating-point or that the device lacks, or too
    /// little memory.
    #[track_caller]
    pub fn with_config(
        in_features: usize,
        out_features: usize,
        config: LinearConfig,
        rng: &Generator,
    ) -> Result<Linear> {
        let _line = caller_line();
        if in_features == 0 || out_features == 0 {
            return Err(Error::invalid(
                "Linear",
                format!("{in_features} inputs and {out_features} outputs: give at least one of each"),
            ));
        }
        let shape = [out_features, in_features];
        let weight = init::kaiming_uniform(shape, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()), rng)?;
        let bound = 1.0 / (in_features as f64).sqrt();
        let bias = match config.bias {
            true => Some(parameter(Tensor::uniform([out_features], -bound, bound, rng)?, config.dtype)?),
            false => None,
        };
        Ok(Linear::from_weight(parameter(weight, config.dtype)?, bias))
    }

    /// A layer with this weight `[out, in]` and this bias `[out]`, as they are: cells are shared, not copied.
    pub fn from_weight(weight: Tensor, bias: Option<Tensor>) -> Linear {
        Linear { weight, bias, adapters: Adapters::default() }
    }

    /// The size of the last axis of an input.
    pub fn in_features(&self) -> usize {
        self.weight.dims().last().copied().unwrap_or(0)
    }

    /// The size of the last axis of an output.
    pub fn out_features(&self) -> usize {
        self.weight.dims().first().copied().unwrap_or(0)
    }
}

/// A parameter with this initial value, computed immediately so that a failure is reported where the layer
/// is made, except in [`crate::skip_init`].
#[track_caller]
pub(super) fn parameter(value: Tensor, dtype: DType) -> Result<Tensor> {
    let value = value.to_dtype(dtype)?;
    settle(&value)?;
    value.into_cell(true)
}

impl Linear {
    /// The output for an input: `[…, in]` to `[…, out]`.
    ///
    /// # Errors
    /// A last axis of another size, another dtype, or another device.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, self.adapters.linear(input, &self.weight, self.bias.as_ref()))
    }
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs, bias) = (self.in_features(), self.out_features(), self.bias.is_some());
        write!(f, "Linear(in_features={inputs}, out_features={outputs}, bias={bias})")
    }
}

layer!(Linear);

adapted_weight_and_bias!(Linear, |_layer| LayerKind::Linear { transposed: false });

/// The bilinear transformation y = x₁ᵀ · W · x₂ + b of two inputs, from `[…, in1]` and `[…, in2]` to `[…,
/// out]`: [`functional::bilinear`](crate::functional::bilinear). `torch.nn.Bilinear`.
///
/// `weight` has the shape `[out, in1, in2]` and `bias` the shape `[out]`; both are initialized uniformly on
/// (−1/√in1, 1/√in1).
#[derive(Clone)]
pub struct Bilinear {
    /// The weight `[out, in1, in2]`.
    pub weight: Tensor,
    /// The bias `[out]`, unless the layer has none.
    pub bias: Option<Tensor>,
}

impl Bilinear {
    /// A layer of the default dtype (f32), on the generator's device.
    ///
    /// # Errors
    /// No features on any side, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(
        in1_features: usize,
        in2_features: usize,
        out_features: usize,
        rng: &Generator,
    ) -> Result<Bilinear> {
        Bilinear::with_config(in1_features, in2_features, out_features, LinearConfig::default(), rng)
    }

    /// A layer without a bias, or of another dtype.
    ///
    /// # Errors
    /// No features on any side, a dtype that is not floating-point or that the device lacks, or too little
    /// memory.
    #[track_caller]
    pub fn with_config(
        in1_features: usize,
        in2_features: usize,
        out_features: usize,
        config: LinearConfig,
        rng: &Generator,
    ) -> Result<Bilinear> {
        let shape = [out_features, in1_features, in2_features];
        if shape.contains(&0) {
            let message = format!(
                "{in1_features} and {in2_features} inputs, {out_features} outputs: give at least one of each"
            );
            return Err(Error::invalid("Bilinear", message));
        }
        let bound = 1.0 / (in1_features as f64).sqrt();
        let weight = parameter(Tensor::uniform(shape, -bound, bound, rng)?, config.dtype)?;
        let bias = match config.bias {
            true => Some(parameter(Tensor::uniform([out_features], -bound, bound, rng)?, config.dtype)?),
            false => None,
        };
        Ok(Bilinear { weight, bias })
    }

    /// The output for two inputs.
    ///
    /// # Errors
    /// As [`functional::bilinear`](crate::functional::bilinear).
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        record!(self, functions::bilinear(x1, x2, &self.weight, self.bias.as_ref()))
    }
}

impl fmt::Debug for Bilinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |axis: usize| self.weight.dims().get(axis).copied().unwrap_or(0);
        let (out, first, second, bias) = (size(0), size(1), size(2), self.bias.is_some());
        write!(f, "Bilinear(in1_features={first}, in2_features={second}, out_features={out}, bias={bias})")
    }
}

weight_and_bias!(Bilinear);
