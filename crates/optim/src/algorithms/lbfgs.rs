//! L-BFGS, step for step as PyTorch computes it.

use autograd::{enable_grad, no_grad};
use tensor_core::{Device, Error, Result, State, StateReader, Stateful, Tensor};

use crate::{
    Choice, Optimizer, Setting,
    algorithms::line_search::{Point, strong_wolfe},
    groups::{check_grad, check_parameters, compute},
    rules::not_negative,
    saved::{count, load_settings, required, save_settings, settled},
};

/// The line search of [`Lbfgs`], which finds the length of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSearch {
    /// A search for a length that meets the strong Wolfe conditions.
    StrongWolfe,
}

impl Choice for Option<LineSearch> {
    fn number(&self) -> u64 {
        match self {
            None => 0,
            Some(LineSearch::StrongWolfe) => 1,
        }
    }

    fn choose(&mut self, number: u64) -> bool {
        *self = (number == 1).then_some(LineSearch::StrongWolfe);
        number <= 1
    }
}

/// The settings of [`Lbfgs`], with PyTorch's names and defaults.
///
/// [`Lbfgs::step`] checks them: a rate or tolerance that is negative, NaN or infinite is an error there, and
/// so are 0 iterations, 0 evaluations and a history of 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LbfgsConfig {
    /// The learning rate: the length of a step without a line search, its first guess with one. 1 by
    /// default.
    pub lr: f64,
    /// The greatest number of iterations of a step. 20 by default.
    pub max_iter: u64,
    /// The greatest number of evaluations of a step. `max_iter` · 5 / 4 by default.
    pub max_eval: Option<u64>,
    /// A step ends when no element of the gradient exceeds this in magnitude. 10⁻⁷ by default.
    pub tolerance_grad: f64,
    /// A step ends when the function, or every element of the parameters, changes by less. 10⁻⁹ by default.
    pub tolerance_change: f64,
    /// The number of past changes of the gradient that are kept. 100 by default.
    pub history_size: u64,
    /// The line search; without one, the default, steps have length `lr`.
    pub line_search_fn: Option<LineSearch>,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for LbfgsConfig {
    fn default() -> LbfgsConfig {
        LbfgsConfig {
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            line_search_fn: None,
            maximize: false,
        }
    }
}

impl LbfgsConfig {
    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", Setting::Float(&mut self.lr)),
            ("max_iter", Setting::Count(&mut self.max_iter)),
            ("max_eval", Setting::OptionalCount(&mut self.max_eval)),
            ("tolerance_grad", Setting::Float(&mut self.tolerance_grad)),
            ("tolerance_change", Setting::Float(&mut self.tolerance_change)),
            ("history_size", Setting::Count(&mut self.history_size)),
            ("line_search_fn", Setting::Choice(&mut self.line_search_fn)),
            ("maximize", Setting::Bool(&mut self.maximize)),
        ]
    }

    fn max_eval(&self) -> u64 {
        self.max_eval.unwrap_or_else(|| self.max_iter.saturating_mul(5) / 4)
    }

    fn check(&self) -> Result<()> {
        let LbfgsConfig { lr, tolerance_grad, tolerance_change, .. } = *self;
        not_negative(
            OP,
            [("lr", lr), ("tolerance_grad", tolerance_grad), ("tolerance_change", tolerance_change)],
        )?;
        let counts =
            [("max_iter", self.max_iter), ("max_eval", self.max_eval()), ("history_size", self.history_size)];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(Error::invalid(OP, format!("{name} 0: give at least 1"))),
            None => Ok(()),
        }
    }
}

const OP: &str = "Lbfgs";

/// The state between steps, for all parameters concatenated.
#[derive(Clone, Debug, Default)]
struct Memory {
    func_evals: u64,
    n_iter: u64,
    /// The last direction, and the step length along it.
    d: Option<Tensor>,
    t: f64,
    /// The changes of the gradient, the changes of the parameters, and the reciprocals of their products;
    /// the oldest first.
    old_dirs: Vec<Tensor>,
    old_stps: Vec<Tensor>,
    ro: Vec<f64>,
    /// The initial estimate of the inverse Hessian, as a factor of the identity.
    h_diag: f64,
    prev_flat_grad: Option<Tensor>,
    prev_loss: f64,
}

/// The limited-memory method of Broyden, Fletcher, Goldfarb and Shanno. It suits few parameters and a
/// function that is deterministic. `torch.optim.LBFGS`.
///
/// A step has up to `max_iter` iterations. Each moves along −H·g, with the gradient g and an estimate H of
/// the inverse Hessian from the last `history_size` changes of gradient and parameters; by the length `lr`,
/// or the one that the line search finds.
///
/// A step evaluates the function several times, so [`Lbfgs::step`] takes a closure that computes it. All
/// parameters are in one group, on one device and of one dtype. Missing gradients count as zeros.
///
/// Liu, Nocedal: On the limited memory BFGS method for large scale optimization (1989).
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{Lbfgs, LbfgsConfig, LineSearch};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([-1.0f32, 2.0], &backend_cpu::cpu())?.requires_grad();
/// let config = LbfgsConfig { line_search_fn: Some(LineSearch::StrongWolfe), ..Default::default() };
/// let mut lbfgs = Lbfgs::new([x.clone()], config);
/// lbfgs.step(|| {
///     // (x − 3)⁴, summed.
///     let loss = (&x - 3.0).powi(4).sum();
///     loss.backward()?;
///     Ok(loss)
/// })?;
/// assert!((x.to_vec::<f32>()?[0] - 3.0).abs() < 0.1);
/// # Ok(()) }
/// ```
#[doc(alias = "LBFGS")]
#[derive(Debug)]
pub struct Lbfgs {
    /// The settings, which may be changed between steps.
    pub config: LbfgsConfig,
    parameters: Vec<Tensor>,
    memory: Memory,
    parameters_checked: bool,
}

impl Lbfgs {
    /// An optimizer of these parameters. [`Optimizer::checked`] reports wrong settings or parameters at
    /// once, and [`Lbfgs::step`] before it changes anything.
    pub fn new(parameters: impl IntoIterator<Item = Tensor>, config: LbfgsConfig) -> Lbfgs {
        let parameters = parameters.into_iter().collect();
        Lbfgs { config, parameters, memory: Memory::default(), parameters_checked: false }
    }

    /// One step. `closure` computes the function, calls `backward` and returns the loss; it is called up to
    /// `max_eval` times, and gradients are cleared before each call. Returns the loss before the step, as a
    /// number.
    ///
    /// # Errors
    /// Invalid settings or parameters, an error of the closure, a loss of more than one element, a closure
    /// that leaves no gradient, or a failure to compute. No parameter and no state has changed then.
    #[track_caller]
    pub fn step(&mut self, mut closure: impl FnMut() -> Result<Tensor>) -> Result<f64> {
        Error::here_in(self.check_once())?;
        let before = self.values();
        let mut memory = match no_grad(|| self.memory.on(&self.parameters[0].device())) {
            Ok(memory) => memory,
            Err(error) => return Err(error.here()),
        };
        match self.iterate(&mut memory, &mut closure) {
            Ok(loss) => {
                self.memory = memory;
                Ok(loss)
            }
            Err(error) => {
                for (parameter, value) in self.parameters.iter().zip(&before) {
                    parameter.assign(value)?;
                }
                Err(error.here())
            }
        }
    }

    /// The check of a step; it compares the identities of the parameters only once.
    fn check_once(&mut self) -> Result<()> {
        self.config.check()?;
        if !self.parameters_checked {
            check_parameters(OP, std::iter::once(self.parameters.as_slice()))?;
            self.parameters_checked = true;
        }
        self.check_places()
    }

    fn check_places(&self) -> Result<()> {
        // The parameters may have moved since.
        let first = &self.parameters[0];
        for parameter in &self.parameters {
            if parameter.device() != first.device() || parameter.dtype() != first.dtype() {
                let message = format!(
                    "parameters {} on {} and {} on {}: give those of one dtype, on one device",
                    first.dtype(),
                    first.device(),
                    parameter.dtype(),
                    parameter.device()
                );
                return Err(Error::invalid(OP, message));
            }
        }
        Ok(())
    }

    fn iterate(&self, memory: &mut Memory, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<f64> {
        let config = self.config;
        let (mut loss, mut grad) = self.evaluate(closure)?;
        let first_loss = if config.maximize { -loss } else { loss };
        let mut evaluations = 1;
        memory.func_evals += 1;
        if greatest(&grad)? <= config.tolerance_grad {
            return Ok(first_loss);
        }
        for n in 1..=config.max_iter {
            memory.n_iter += 1;
            let d = no_grad(|| memory.direction(&grad, config.history_size as usize))?;
            d.eval()?;
            let mut t = config.lr;
            if memory.n_iter == 1 {
                t *= (1.0 / no_grad(|| grad.abs().sum()).item_f64()?).min(1.0);
            }
            (memory.d, memory.t) = (Some(d.clone()), t);
            (memory.prev_flat_grad, memory.prev_loss) = (Some(grad.clone()), loss);
            let slope = dot(&grad, &d)?;
            if slope > -config.tolerance_change {
                break;
            }
            let x = self.values();
            let mut used = 0;
            match config.line_search_fn {
                Some(LineSearch::StrongWolfe) => {
                    let start = Point { t: 0.0, loss, grad, slope };
                    let at = |t: f64| {
                        self.move_to(&x, t, &d)?;
                        let (loss, grad) = self.evaluate(closure)?;
                        Ok(Point { t, loss, slope: dot(&grad, &d)?, grad })
                    };
                    let steps = config.max_eval().saturating_sub(evaluations);
                    let (found, evaluated) = strong_wolfe(start, t, greatest(&d)?, steps, at)?;
                    (t, loss, grad, used) = (found.t, found.loss, found.grad, evaluated);
                    memory.t = t;
                    self.move_to(&x, t, &d)?;
                }
                None => {
                    self.move_to(&x, t, &d)?;
                    if n != config.max_iter {
                        (loss, grad) = self.evaluate(closure)?;
                        used = 1;
                    }
                }
            }
            evaluations += used;
            memory.func_evals += used;
            if evaluations >= config.max_eval()
                || greatest(&grad)? <= config.tolerance_grad
                || greatest(&d)? * t <= config.tolerance_change
                || (loss - memory.prev_loss).abs() < config.tolerance_change
            {
                break;
            }
        }
        Ok(first_loss)
    }

    /// The loss and all gradients concatenated, negated if `maximize` is set.
    fn evaluate(&self, closure: &mut dyn FnMut() -> Result<Tensor>) -> Result<(f64, Tensor)> {
        self.zero_grad();
        let loss = enable_grad(closure)?;
        if loss.numel() != 1 {
            let message = format!("a loss of shape {}: the closure returns a single number", loss.shape());
            return Err(Error::invalid(OP, message));
        }
        if self.parameters.iter().all(|parameter| parameter.grad().is_none()) {
            let message = "no parameter has a gradient: call loss.backward() in the closure";
            return Err(Error::invalid(OP, message));
        }
        let grad = no_grad(|| {
            let mut parts = Vec::with_capacity(self.parameters.len());
            for parameter in &self.parameters {
                let grad = match parameter.grad() {
                    Some(grad) => grad,
                    None => parameter.zeros_like(),
                };
                check_grad(OP, parameter, &grad)?;
                parts.push(grad.to_dtype(grad.dtype().compute())?.flatten_all());
            }
            let flat = Tensor::concat(&parts, 0)?;
            Ok::<Tensor, Error>(if self.config.maximize { flat.neg() } else { flat })
        })?;
        compute(std::slice::from_ref(&grad))?;
        let loss = loss.detach().item_f64()?;
        Ok((if self.config.maximize { -loss } else { loss }, grad))
    }

    fn values(&self) -> Vec<Tensor> {
        self.parameters.iter().map(Tensor::detach).collect()
    }

    /// Sets the parameters to x + t·d.
    fn move_to(&self, x: &[Tensor], t: f64, d: &Tensor) -> Result<()> {
        let next = no_grad(|| {
            let mut start = 0;
            let moved = x.iter().map(|x| {
                let end = start + x.numel();
                let part = d.slice(0, start..end)?.reshape(x.dims())?;
                start = end;
                x.to_dtype(d.dtype())?.add(&part.mul_scalar(t))?.to_dtype(x.dtype())
            });
            moved.collect::<Result<Vec<Tensor>>>()
        })?;
        compute(&next)?;
        self.parameters.iter().zip(&next).try_for_each(|(parameter, value)| parameter.assign(value))
    }
}

impl Memory {
    /// A copy on the device of the parameters.
    fn on(&self, device: &Device) -> Result<Memory> {
        let mut memory = self.clone();
        let Memory { d, prev_flat_grad, old_dirs, old_stps, .. } = &mut memory;
        for tensor in d.iter_mut().chain(prev_flat_grad).chain(old_dirs).chain(old_stps) {
            *tensor = tensor.to(device)?;
        }
        Ok(memory)
    }

    /// −H·g, not computed yet, after H takes in the last change.
    fn direction(&mut self, grad: &Tensor, history: usize) -> Result<Tensor> {
        let (Some(last), Some(last_grad)) = (&self.d, &self.prev_flat_grad) else {
            self.h_diag = 1.0;
            return Ok(grad.neg());
        };
        let change = grad.sub(last_grad)?;
        let step = last.mul_scalar(self.t);
        let curvature = dot(&change, &step)?;
        if curvature > 1e-10 {
            let surplus = (self.old_dirs.len() + 1).saturating_sub(history);
            self.old_dirs.drain(..surplus);
            self.old_stps.drain(..surplus);
            self.ro.drain(..surplus);
            self.h_diag = curvature / dot(&change, &change)?;
            self.old_dirs.push(change);
            self.old_stps.push(step);
            self.ro.push(1.0 / curvature);
        }
        // The two loops of Nocedal and Wright, algorithm 7.4. Their coefficients stay on the device.
        let mut q = grad.neg();
        let mut alphas = Vec::with_capacity(self.ro.len());
        let changes = || self.old_dirs.iter().zip(&self.old_stps).zip(&self.ro);
        for ((y, s), ro) in changes().rev() {
            let alpha = s.mul(&q)?.sum().mul_scalar(*ro);
            q = q.sub(&y.mul(&alpha)?)?;
            alphas.push(alpha);
        }
        let mut r = q.mul_scalar(self.h_diag);
        for (((y, s), ro), alpha) in changes().zip(alphas.iter().rev()) {
            let beta = y.mul(&r)?.sum().mul_scalar(*ro);
            r = r.add(&s.mul(&alpha.sub(&beta)?)?)?;
        }
        Ok(r)
    }
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    no_grad(|| a.mul(b))?.sum().item_f64()
}

/// The greatest magnitude of an element; 0 if there is none.
fn greatest(x: &Tensor) -> Result<f64> {
    if x.numel() == 0 { Ok(0.0) } else { no_grad(|| x.abs().max())?.item_f64() }
}

impl Optimizer for Lbfgs {
    /// # Errors
    /// Always: a step needs a closure. Call [`Lbfgs::step`] with one.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let message =
            "a step evaluates the function several times: call Lbfgs::step with a closure that computes it";
        Err(Error::invalid(OP, message))
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        Error::here_in(self.config.check())?;
        Error::here_in(check_parameters(OP, std::iter::once(self.parameters.as_slice())))?;
        Error::here_in(self.check_places())
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.parameters.clone()
    }

    fn learning_rates(&self) -> Vec<f64> {
        vec![self.config.lr]
    }

    fn set_learning_rates(&mut self, rates: &[f64]) {
        if let [rate, ..] = rates {
            self.config.lr = *rate;
        }
    }
}

/// PyTorch's names: the settings are `param_groups.0.lr` and so on, and the state is that of parameter 0:
/// `state.0.n_iter`, `state.0.old_dirs.2`.
impl Stateful for Lbfgs {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        let mut config = self.config;
        save_settings(&mut state, 0, config.settings(), self.parameters.len());
        let Memory { d, old_dirs, old_stps, ro, prev_flat_grad, .. } = &self.memory;
        state.insert("state.0.func_evals", self.memory.func_evals);
        state.insert("state.0.n_iter", self.memory.n_iter);
        state.insert("state.0.t", self.memory.t);
        state.insert("state.0.H_diag", self.memory.h_diag);
        state.insert("state.0.prev_loss", self.memory.prev_loss);
        for (name, tensor) in [("d", d), ("prev_flat_grad", prev_flat_grad)] {
            if let Some(tensor) = tensor {
                state.insert(format!("state.0.{name}"), tensor.clone());
            }
        }
        for (i, ((y, s), ro)) in old_dirs.iter().zip(old_stps).zip(ro).enumerate() {
            state.insert(format!("state.0.old_dirs.{i}"), y.clone());
            state.insert(format!("state.0.old_stps.{i}"), s.clone());
            state.insert(format!("state.0.ro.{i}"), *ro);
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let mut config = self.config;
        load_settings(&mut reader, 0, config.settings(), self.parameters.len());
        let Some(like) = self.flat()? else {
            return Err(Error::invalid(OP, "there are no parameters to load a state for"));
        };
        let memory = Memory::load(&mut reader, &like);
        reader.finish()?;
        // Moved before anything changes, because moving can fail.
        let device = like.device();
        let all = |tensors: &[Tensor]| tensors.iter().map(|t| settled(t, &device)).collect::<Result<_>>();
        let one = |tensor: &Option<Tensor>| tensor.as_ref().map(|t| settled(t, &device)).transpose();
        let (old_dirs, old_stps) = (all(&memory.old_dirs)?, all(&memory.old_stps)?);
        let (d, prev_flat_grad) = (one(&memory.d)?, one(&memory.prev_flat_grad)?);
        self.memory = Memory { d, prev_flat_grad, old_dirs, old_stps, ..memory };
        self.config = config;
        Ok(())
    }
}

impl Lbfgs {
    /// A tensor of the state's shape, dtype and device; none without parameters.
    fn flat(&self) -> Result<Option<Tensor>> {
        let Some(first) = self.parameters.first() else { return Ok(None) };
        let numel: usize = self.parameters.iter().map(Tensor::numel).sum();
        Tensor::zeros([numel], (first.dtype().compute(), &first.device())).map(Some)
    }
}

impl Memory {
    fn load(reader: &mut StateReader<'_>, like: &Tensor) -> Memory {
        let mut memory = Memory {
            func_evals: count(reader, "state.0.func_evals"),
            n_iter: count(reader, "state.0.n_iter"),
            t: reader.float("state.0.t"),
            h_diag: reader.float("state.0.H_diag"),
            prev_loss: reader.float("state.0.prev_loss"),
            ..Memory::default()
        };
        if memory.n_iter > 0 {
            memory.d = required(reader, "state.0.d", like);
            memory.prev_flat_grad = required(reader, "state.0.prev_flat_grad", like);
        }
        for i in 0.. {
            let name = |part: &str| format!("state.0.{part}.{i}");
            if !["old_dirs", "old_stps", "ro"].iter().any(|part| reader.has(&name(part))) {
                break;
            }
            memory.old_dirs.extend(required(reader, &name("old_dirs"), like));
            memory.old_stps.extend(required(reader, &name("old_stps"), like));
            memory.ro.push(reader.float(&name("ro")));
        }
        memory
    }
}
