//! Initial values of weights: the schemes of Kaiming and Xavier, with PyTorch's formulas.
//!
//! Each returns a fresh f32 tensor on the generator's device. To fill a parameter that exists already, assign
//! it: `layer.weight.assign(&init::xavier_uniform([10, 5], 1.0, &rng)?)?`.

use std::cell::Cell;

use tensor_core::{Error, Generator, OnDrop, Result, Scalar, Shape, Tensor, TensorOptions, caller_line};

thread_local! {
    /// Whether initial values wait until they are read. See [`skip_init`].
    static SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// Makes modules whose initial values are not computed until they are read: never, if a file replaces them
/// first. `torch.nn.utils.skip_init`, `torch.device("meta")`.
///
/// Such a module takes no memory before it is loaded, and no time for random numbers. If nothing is loaded,
/// its values are those that it would have had. It applies to the modules that `build` makes on its thread;
/// a failure to compute an initial value is reported by the first operation that reads it.
///
/// ```
/// use nn::{Linear, Module, StateDict, skip_init};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let weight = ("weight".into(), Tensor::ones([512, 512], &device)?);
/// let dict = StateDict::from([weight, ("bias".into(), Tensor::zeros(512, &device)?)]);
/// let layer = skip_init(|| Linear::new(512, 512, &Generator::seed(0, &device)))?;
/// layer.load_state_dict(&dict)?; // or layer.load("model.pt")?
/// # Ok(()) }
/// ```
pub fn skip_init<R>(build: impl FnOnce() -> R) -> R {
    let before = SKIPPED.replace(true);
    let _restore = OnDrop::new(|| SKIPPED.set(before));
    build()
}

/// Computes an initial value, so that a failure is reported where the module is made, except in
/// [`skip_init`].
#[track_caller]
pub(crate) fn settle(value: &Tensor) -> Result<()> {
    if SKIPPED.get() { Ok(()) } else { value.eval() }
}

/// The pass in which the variance of signals is preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fan {
    /// The forward pass: uses the number of inputs.
    #[default]
    In,
    /// The backward pass: uses the number of outputs.
    Out,
}

/// The function that follows a layer, which sets the gain of its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Nonlinearity {
    /// No nonlinearity, or a convolution without one.
    Linear,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// tanh x.
    Tanh,
    /// max(x, 0).
    Relu,
    /// x for x > 0, and this slope times x otherwise.
    LeakyRelu(f64),
    /// The self-normalizing SELU.
    Selu,
}

impl Nonlinearity {
    /// The recommended gain of weights before this function. `torch.nn.init.calculate_gain`.
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::Relu => 2f64.sqrt(),
            Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::Selu => 0.75,
        }
    }
}

/// The numbers of inputs and outputs of a weight of shape `[out, in, …]`: `in` and `out`, times the sizes of
/// the axes after them (the window of a convolution).
///
/// # Errors
/// Fewer than two axes, or numbers that do not fit into `usize`.
#[track_caller]
pub fn fans(shape: &Shape) -> Result<(usize, usize)> {
    let _line = caller_line();
    match *shape.dims() {
        [outputs, inputs, ref window @ ..] => {
            let times = |count: usize| window.iter().try_fold(count, |fan, side| fan.checked_mul(*side));
            match (times(inputs), times(outputs)) {
                (Some(inputs), Some(outputs)) => Ok((inputs, outputs)),
                _ => Err(Error::invalid("init", format!("shape {shape} is too large"))),
            }
        }
        _ => Err(Error::invalid(
            "init",
            format!("shape {shape} has no fan in and fan out: a weight has the two axes [out, in] or more"),
        )),
    }
}

/// Kaiming initialization, uniform on (−b, b) with b = gain · √(3 / fan). `torch.nn.init.kaiming_uniform_`.
///
/// He, Zhang, Ren, Sun: Delving deep into rectifiers (2015).
///
/// # Errors
/// Fewer than two axes, or a fan of 0.
#[track_caller]
pub fn kaiming_uniform(
    shape: impl Into<Shape>,
    fan: Fan,
    nonlinearity: Nonlinearity,
    rng: &Generator,
) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3f64.sqrt() * kaiming_std("kaiming_uniform", &shape, fan, nonlinearity)?;
    Tensor::uniform(shape, -bound, bound, rng)
}

/// Kaiming initialization, normal with mean 0 and standard deviation gain / √fan.
/// `torch.nn.init.kaiming_normal_`.
///
/// # Errors
/// Fewer than two axes, or a fan of 0.
#[track_caller]
pub fn kaiming_normal(
    shape: impl Into<Shape>,
    fan: Fan,
    nonlinearity: Nonlinearity,
    rng: &Generator,
) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming_std("kaiming_normal", &shape, fan, nonlinearity)?;
    normal(shape, 0.0, std, rng)
}

#[track_caller]
fn kaiming_std(op: &'static str, shape: &Shape, fan: Fan, nonlinearity: Nonlinearity) -> Result<f64> {
    let (inputs, outputs) = fans(shape)?;
    let fan = if fan == Fan::In { inputs } else { outputs };
    scale(op, shape, nonlinearity.gain(), fan as f64)
}

/// Xavier initialization, uniform on (−b, b) with b = gain · √(6 / (fan in + fan out)).
/// `torch.nn.init.xavier_uniform_`.
///
/// Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks (2010).
///
/// # Errors
/// Fewer than two axes, a fan of 0, or a gain that is not finite.
#[track_caller]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64, rng: &Generator) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3f64.sqrt() * xavier_std("xavier_uniform", &shape, gain)?;
    Tensor::uniform(shape, -bound, bound, rng)
}

/// Xavier initialization, normal with mean 0 and standard deviation gain · √(2 / (fan in + fan out)).
/// `torch.nn.init.xavier_normal_`.
///
/// # Errors
/// Fewer than two axes, a fan of 0, or a gain that is not finite.
#[track_caller]
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64, rng: &Generator) -> Result<Tensor> {
    let shape = shape.into();
    let std = xavier_std("xavier_normal", &shape, gain)?;
    normal(shape, 0.0, std, rng)
}

#[track_caller]
fn xavier_std(op: &'static str, shape: &Shape, gain: f64) -> Result<f64> {
    let (inputs, outputs) = fans(shape)?;
    scale(op, shape, gain, (inputs + outputs) as f64 / 2.0)
}

/// gain / √fan.
#[track_caller]
fn scale(op: &'static str, shape: &Shape, gain: f64, fan: f64) -> Result<f64> {
    if fan == 0.0 {
        return Err(Error::invalid(
            op,
            format!("a weight of shape {shape} connects nothing: sizes must not be 0"),
        ));
    }
    if !(gain.is_finite() && gain >= 0.0) {
        return Err(Error::invalid(op, format!("gain {gain}: give a finite one that is not negative")));
    }
    Ok(gain / fan.sqrt())
}

/// Values uniform on [low, high). `torch.nn.init.uniform_`.
///
/// # Errors
/// Bounds that are not finite or out of order.
#[track_caller]
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, rng: &Generator) -> Result<Tensor> {
    Tensor::uniform(shape, low, high, rng)
}

/// Normal values with this mean and standard deviation. `torch.nn.init.normal_`.
///
/// # Errors
/// A mean or deviation that is not finite, or a negative deviation.
#[track_caller]
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64, rng: &Generator) -> Result<Tensor> {
    if !(mean.is_finite() && std.is_finite() && std >= 0.0) {
        return Err(Error::invalid(
            "normal",
            format!(
                "mean {mean}, deviation {std}: give finite numbers, and a deviation that is not negative"
            ),
        ));
    }
    Ok(Tensor::randn(shape, rng)?.mul_scalar(std).add_scalar(mean))
}

/// Normal values with this mean and standard deviation, truncated to [low, high].
/// `torch.nn.init.trunc_normal_`, whose default bounds are −2 and 2.
///
/// # Errors
/// As [`Tensor::truncated_normal`].
#[track_caller]
pub fn trunc_normal(
    shape: impl Into<Shape>,
    mean: f64,
    std: f64,
    low: f64,
    high: f64,
    rng: &Generator,
) -> Result<Tensor> {
    Tensor::truncated_normal(shape, mean, std, low, high, rng)
}

/// A constant. `torch.nn.init.constant_`.
///
/// # Errors
/// A dtype that the device lacks, or too little memory.
#[track_caller]
pub fn constant(
    shape: impl Into<Shape>,
    value: impl Into<Scalar>,
    options: impl Into<TensorOptions>,
) -> Result<Tensor> {
    Tensor::full(shape, value, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_count_the_window() {
        assert_eq!(fans(&Shape::from([10, 5])).unwrap(), (5, 10));
        assert_eq!(fans(&Shape::from([8, 3, 5, 5])).unwrap(), (75, 200));
        assert!(fans(&Shape::from([3])).is_err());
    }

    #[test]
    fn gains_are_pytorchs() {
        assert_eq!(Nonlinearity::Linear.gain(), 1.0);
        assert_eq!(Nonlinearity::Relu.gain(), std::f64::consts::SQRT_2);
        assert_eq!(Nonlinearity::LeakyRelu(0.2).gain(), 1.3867504905630728);
        // The default of torch.nn.Linear: a uniform bound of 1 / √fan in.
        let bound = 3f64.sqrt()
            * scale("", &Shape::default(), Nonlinearity::LeakyRelu(5f64.sqrt()).gain(), 49.0).unwrap();
        assert!((bound - 1.0 / 7.0).abs() < 1e-15);
    }
}
