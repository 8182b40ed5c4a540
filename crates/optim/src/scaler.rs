//! Scales the loss, so that gradients in f16 neither underflow nor overflow.

use autograd::no_grad;
use tensor_core::{DType, Error, Result, State, Stateful, Tensor, caller_line};

use crate::{Optimizer, saved::count};

const OP: &str = "GradScaler";
/// The least scale that non-finite gradients lead to: 2⁻²⁴, the smallest f16 number above 0. Gradients that
/// overflow at this scale do so at any scale.
const MIN_SCALE: f32 = 1.0 / (1 << 24) as f32;

/// The settings of a [`GradScaler`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerConfig {
    /// The initial scale. 65,536 by default.
    pub init_scale: f64,
    /// The factor of the scale after `growth_interval` consecutive steps with finite gradients. 2 by
    /// default.
    pub growth_factor: f64,
    /// The factor of the scale after a step with non-finite gradients; the scale stays at 2⁻²⁴ or above. ½
    /// by default.
    pub backoff_factor: f64,
    /// The number of consecutive steps with finite gradients before the scale grows. 2,000 by default.
    pub growth_interval: u64,
    /// Whether scaling is on. If not, [`GradScaler::scale`] returns the loss itself and [`GradScaler::step`]
    /// always steps. On by default.
    pub enabled: bool,
}

impl Default for GradScalerConfig {
    fn default() -> GradScalerConfig {
        GradScalerConfig {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            enabled: true,
        }
    }
}

/// Scales the loss so that gradients in f16 do not underflow, skips steps with non-finite gradients, and
/// adapts the scale. `torch.amp.GradScaler`. bf16 has the range of f32 and needs no scaler.
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{GradScaler, GradScalerConfig, Optimizer, Sgd, SgdConfig, clip_grad_norm};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let w = Tensor::new([4.0f32], &backend_cpu::cpu())?.requires_grad();
/// let mut sgd = Sgd::new([w.clone()], SgdConfig { lr: 0.25, ..Default::default() });
/// let mut scaler = GradScaler::new(GradScalerConfig::default())?;
/// for _ in 0..2 {
///     sgd.zero_grad();
///     let loss = w.powi(2).sum(); // within autocast(DType::F16, || …)?
///     scaler.scale(&loss).backward()?;
///     scaler.unscale(&sgd)?; // only needed for clipping: step unscales otherwise
///     clip_grad_norm(&[&w], 100.0)?;
///     scaler.step(&mut sgd)?;
///     scaler.update()?;
/// }
/// assert_eq!(w.item::<f32>()?, 1.0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct GradScaler {
    config: GradScalerConfig,
    /// f32, as in PyTorch.
    scale: f32,
    growth_tracker: u64,
    /// The optimizers that were unscaled or stepped since the last update.
    seen: Vec<Seen>,
}

/// An optimizer, identified by its parameters.
#[derive(Debug)]
struct Seen {
    parameters: Vec<u64>,
    /// Whether a gradient was not finite: a 0-d bool.
    found: Tensor,
    stepped: bool,
}

impl GradScaler {
    /// A scaler that has seen no step.
    ///
    /// # Errors
    /// A scale below 2⁻¹²⁶ or not finite in f32, a growth factor that is not above 1, a backoff factor that
    /// is not between 0 and 1, an interval of 0.
    #[track_caller]
    pub fn new(config: GradScalerConfig) -> Result<GradScaler> {
        let _line = caller_line();
        let GradScalerConfig { init_scale, growth_factor, backoff_factor, growth_interval, enabled } = config;
        let scale = init_scale as f32;
        let fits = is_scale(scale);
        let wrong = match check_factors(growth_factor, backoff_factor, growth_interval) {
            Ok(()) if fits => None,
            Ok(()) => Some(format!("init_scale {init_scale}: give a number from 2^-126 on that f32 holds")),
            Err(message) => Some(message),
        };
        if let Some(message) = wrong.filter(|_| enabled) {
            return Err(Error::invalid(OP, message).here());
        }
        Ok(GradScaler { config, scale, growth_tracker: 0, seen: Vec::new() })
    }

    /// The loss times the scale; its gradients are scaled as well.
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        match self.config.enabled {
            true => loss.mul_scalar(f64::from(self.scale)),
            false => loss.clone(),
        }
    }

    /// Divides the gradients of an optimizer's parameters by the scale, and records whether one is not
    /// finite. Only needed if gradients are read before the step, as for clipping. `unscale_`.
    ///
    /// # Errors
    /// A second call for the optimizer before [`GradScaler::update`], or a call after its step; parameters
    /// without any gradient; a gradient in f16, which loses the range that the scale was for: keep
    /// parameters in f32 and compute in f16 by autocast. Nothing has changed then.
    #[track_caller]
    pub fn unscale(&mut self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        let _line = caller_line();
        if !self.config.enabled {
            return Ok(());
        }
        let parameters = optimizer.parameters();
        let ids: Vec<u64> = parameters.iter().map(Tensor::id).collect();
        if let Some(seen) = self.seen.iter().find(|seen| seen.parameters == ids) {
            let what = if seen.stepped { "stepped" } else { "had its gradients unscaled" };
            let message =
                format!("this optimizer has {what} since the last update(): call unscale once, before step");
            return Err(Error::invalid(OP, message).here());
        }
        let gradients: Vec<(&Tensor, Tensor)> =
            parameters.iter().filter_map(|parameter| Some((parameter, parameter.grad()?))).collect();
        let Some((_, first)) = gradients.first() else {
            let message =
                "no parameter of this optimizer has a gradient: call backward on scale(&loss) first";
            return Err(Error::invalid(OP, message).here());
        };
        let device = first.device();
        let inverse = f64::from((1.0 / f64::from(self.scale)) as f32);
        let (found, unscaled) = no_grad(|| -> Result<(Tensor, Vec<Tensor>)> {
            let (mut infinite, mut unscaled) = (Vec::new(), Vec::new());
            for (parameter, gradient) in &gradients {
                if gradient.dtype() == DType::F16 {
                    let message = format!(
                        "the gradient of a parameter {} is in f16, where it loses what the scale is for: keep the parameters in \
                         f32 and compute in f16 by autocast",
                        parameter.shape()
                    );
                    return Err(Error::invalid(OP, message));
                }
                infinite.push(gradient.isfinite().all().logical_not().to(&device)?);
                unscaled.push(gradient.mul_scalar(inverse));
            }
            Ok((Tensor::stack(&infinite, 0)?.any(), unscaled))
        })?;
        for ((parameter, _), gradient) in gradients.into_iter().zip(unscaled) {
            parameter.set_grad(Some(gradient));
        }
        self.seen.push(Seen { parameters: ids, found, stepped: false });
        Ok(())
    }

    /// Steps the optimizer unless a gradient is not finite; parameters and the optimizer's state stay as
    /// they are then. Unscales first, unless [`GradScaler::unscale`] was called. Returns whether it stepped.
    ///
    /// # Errors
    /// A second step of the optimizer before [`GradScaler::update`]; the errors of [`GradScaler::unscale`]
    /// and of the optimizer's step.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut (impl Optimizer + ?Sized)) -> Result<bool> {
        if !self.config.enabled {
            optimizer.step()?;
            return Ok(true);
        }
        let ids: Vec<u64> = optimizer.parameters().iter().map(Tensor::id).collect();
        let place = self.seen.iter().position(|seen| seen.parameters == ids);
        let place = match place {
            Some(place) if self.seen[place].stepped => {
                let message =
                    "this optimizer has stepped since the last update(): call update() after each step";
                return Err(Error::invalid(OP, message).here());
            }
            Some(place) => place,
            None => {
                self.unscale(optimizer)?;
                self.seen.len() - 1
            }
        };
        let finite = !self.seen[place].found.item::<bool>()?;
        if finite {
            optimizer.step()?;
        }
        self.seen[place].stepped = true;
        Ok(finite)
    }

    /// Sets the scale for the next step: less after non-finite gradients, more after `growth_interval` steps
    /// with finite ones. It does not go below 2⁻²⁴, unless the given scale was less. (PyTorch's becomes 0,
    /// if all gradients are NaN, after some 165 such steps.) A scale of 2⁻²⁴ indicates that the loss itself
    /// is not finite.
    ///
    /// # Errors
    /// No step and no unscaling since the last update.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _line = caller_line();
        if !self.config.enabled {
            return Ok(());
        }
        if self.seen.is_empty() {
            let message =
                "no gradients were looked at since the last update(): call step(&mut optimizer) before";
            return Err(Error::invalid(OP, message).here());
        }
        let mut found = false;
        for seen in &self.seen {
            found |= seen.found.item::<bool>()?;
        }
        let times = |factor: f64| (f64::from(self.scale) * factor) as f32;
        if found {
            // A scale that was given below the minimum stays.
            self.scale = times(self.config.backoff_factor).max(MIN_SCALE.min(self.scale));
            self.growth_tracker = 0;
        } else if self.growth_tracker + 1 < self.config.growth_interval {
            self.growth_tracker += 1;
        } else {
            let grown = times(self.config.growth_factor);
            // The scale stays if it would overflow f32.
            self.scale = if grown.is_finite() { grown } else { self.scale };
            self.growth_tracker = 0;
        }
        self.seen.clear();
        Ok(())
    }

    /// Sets the scale by hand, in place of [`GradScaler::update`]. PyTorch's `update(new_scale)`.
    ///
    /// # Errors
    /// A scale below 2⁻¹²⁶ or not finite in f32; nothing has changed then.
    #[track_caller]
    pub fn set_scale(&mut self, scale: f64) -> Result<()> {
        let new = scale as f32;
        if !is_scale(new) {
            let message = format!("a scale of {scale}: give a number from 2^-126 on that f32 holds");
            return Err(Error::invalid(OP, message).here());
        }
        self.scale = new;
        self.seen.clear();
        Ok(())
    }

    /// The scale; 1 if scaling is off. `get_scale`.
    pub fn get_scale(&self) -> f64 {
        if self.config.enabled { f64::from(self.scale) } else { 1.0 }
    }

    /// The number of consecutive steps with finite gradients since the scale last changed.
    pub fn growth_tracker(&self) -> u64 {
        self.growth_tracker
    }

    /// The settings.
    pub fn config(&self) -> GradScalerConfig {
        self.config
    }
}

/// Whether a scale and its reciprocal are positive normal numbers in f32.
fn is_scale(scale: f32) -> bool {
    (f32::MIN_POSITIVE..=f32::MAX).contains(&scale)
}

/// The error of invalid factors or of an invalid interval.
fn check_factors(growth: f64, backoff: f64, interval: u64) -> Result<(), String> {
    if !(growth > 1.0 && growth.is_finite()) {
        return Err(format!("growth_factor {growth}: give a number above 1"));
    }
    if !(backoff > 0.0 && backoff < 1.0) {
        return Err(format!("backoff_factor {backoff}: give a number between 0 and 1"));
    }
    if interval == 0 {
        return Err("growth_interval 0: give at least 1".into());
    }
    Ok(())
}

/// PyTorch's names. Unscaled or stepped optimizers since the last update are not saved: take the state after
/// [`GradScaler::update`].
impl Stateful for GradScaler {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        if self.config.enabled {
            state.insert("scale", self.get_scale());
            state.insert("growth_factor", self.config.growth_factor);
            state.insert("backoff_factor", self.config.backoff_factor);
            state.insert("growth_interval", self.config.growth_interval);
            state.insert("_growth_tracker", self.growth_tracker);
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        if !self.config.enabled {
            return state.reader().finish();
        }
        let mut reader = state.reader();
        let [scale, growth, backoff] =
            ["scale", "growth_factor", "backoff_factor"].map(|name| reader.float(name));
        let [interval, tracker] = ["growth_interval", "_growth_tracker"].map(|name| count(&mut reader, name));
        reader.finish()?;
        let wrong = |message: String| Err(Error::invalid(OP, format!("load_state_dict: {message}")));
        if !is_scale(scale as f32) {
            return wrong(format!("scale {scale}: a number from 2^-126 on that f32 holds is needed"));
        }
        check_factors(growth, backoff, interval).or_else(wrong)?;
        self.config = GradScalerConfig {
            growth_factor: growth,
            backoff_factor: backoff,
            growth_interval: interval,
            ..self.config
        };
        (self.scale, self.growth_tracker) = (scale as f32, tracker);
        self.seen.clear();
        Ok(())
    }
}
