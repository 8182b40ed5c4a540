//! [`MasterWeights`]: optimizes f32 copies of the parameters, on another device if asked.

use std::fmt;

use autograd::no_grad;
use tensor_core::{Device, Error, Result, State, Stateful, Tensor, caller_line, eval_all};

use crate::{
    Optimizer,
    groups::{check_grad, check_parameters},
    saved::{required, settled},
};

const OP: &str = "MasterWeights";

/// An optimizer of copies of the parameters, the master weights, which it rounds to the parameters after
/// each step. It has two uses:
///
/// - **Half precision** ([`MasterWeights::new`]). Parameters of bf16 and f16 have masters of f32. Steps that
///   are too small to change a bf16 number, below 1/256 of it, accumulate in the master. Micikevicius et
///   al.: Mixed precision training (2018), section 3.1.
/// - **Offload** ([`MasterWeights::offload`]). The masters and the optimizer's state are on another device,
///   mostly the CPU, whose memory is larger: gradients are copied there, the step is computed there, and the
///   new values are copied back. Rajbhandari et al.: ZeRO-Offload (2021), for one device.
///
/// A step equals, bit for bit, the optimizer's step on the masters with the gradients cast to their dtype;
/// the parameters are the masters, rounded.
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{MasterWeights, Optimizer, Sgd, SgdConfig};
/// use tensor_core::{DType, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let w = Tensor::ones([1], (DType::BF16, &device))?.requires_grad();
/// let config = SgdConfig { lr: 0.001, ..Default::default() };
/// let mut sgd = MasterWeights::new([w.clone()], |masters| Sgd::new(masters, config))?;
/// for _ in 0..8 {
///     sgd.zero_grad();
///     w.sum().backward()?; // 1 - 0.001 is 1 in bf16
///     sgd.step()?;
/// }
/// assert_eq!(w.item_f64()?, 0.9921875); // 0.992, rounded
/// # Ok(()) }
/// ```
///
/// If parameters get new values from outside (a loaded state dict, an average), the masters take them at the
/// next step, unless they are the masters' own values, rounded. The state has the masters of half-precision
/// parameters as `masters.0` beside the optimizer's state; loading it assigns the masters' values to those
/// parameters. Build it once the model is on its final device.
pub struct MasterWeights<O> {
    optimizer: O,
    parameters: Vec<Tensor>,
    masters: Vec<Tensor>,
    /// The device of all masters; none if each is on its parameter's device.
    device: Option<Device>,
    /// The identities of the values that the parameters were given last.
    given: Vec<u64>,
}

impl<O: fmt::Debug> fmt::Debug for MasterWeights<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "MasterWeights on {device}: {:?}", self.optimizer),
            None => write!(f, "MasterWeights: {:?}", self.optimizer),
        }
    }
}

impl<O: Optimizer> MasterWeights<O> {
    /// The optimizer that `build` makes of the masters, which are in the order of the parameters, each on
    /// its parameter's device. Masters are f32 for half-precision parameters, and have the parameter's dtype
    /// otherwise.
    ///
    /// # Errors
    /// No parameters, one that is given twice, a tensor that is no parameter; invalid settings of the
    /// optimizer; too little memory.
    #[track_caller]
    pub fn new(
        parameters: impl IntoIterator<Item = Tensor>,
        build: impl FnOnce(Vec<Tensor>) -> O,
    ) -> Result<MasterWeights<O>> {
        MasterWeights::with(parameters.into_iter().collect(), None, build)
    }

    /// As [`MasterWeights::new`], with masters and optimizer state on `device`.
    ///
    /// ```
    /// # use optim::{Adam, AdamConfig, MasterWeights};
    /// # use tensor_core::Tensor;
    /// # use autograd::TensorGrad;
    /// # fn main() -> tensor_core::Result<()> {
    /// # let gpu = backend_cpu::logical(1)?;
    /// let cpu = backend_cpu::cpu();
    /// let w = Tensor::ones([3], &gpu)?.requires_grad();
    /// let adam = MasterWeights::offload([w], &cpu, |masters| Adam::new(masters, AdamConfig::default()))?;
    /// # drop(adam);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`MasterWeights::new`], and a dtype that `device` lacks.
    #[track_caller]
    pub fn offload(
        parameters: impl IntoIterator<Item = Tensor>,
        device: &Device,
        build: impl FnOnce(Vec<Tensor>) -> O,
    ) -> Result<MasterWeights<O>> {
        MasterWeights::with(parameters.into_iter().collect(), Some(device.clone()), build)
    }

    #[track_caller]
    fn with(
        parameters: Vec<Tensor>,
        device: Option<Device>,
        build: impl FnOnce(Vec<Tensor>) -> O,
    ) -> Result<MasterWeights<O>> {
        Error::here_in(check_parameters(OP, [parameters.as_slice()].into_iter()))?;
        let mut masters = Vec::with_capacity(parameters.len());
        for parameter in &parameters {
            masters.push(master_of(parameter, device.as_ref())?.into_cell(true)?);
        }
        let given = parameters.iter().map(value_of).collect();
        let optimizer = build(masters.clone());
        optimizer.check()?;
        Ok(MasterWeights { optimizer, parameters, masters, device, given })
    }

    /// The optimizer of the masters.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// The optimizer of the masters, for changes of settings.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// The masters, in the order of the parameters.
    pub fn masters(&self) -> &[Tensor] {
        &self.masters
    }

    /// Copies parameters that were changed from outside to their masters.
    fn follow(&mut self) -> Result<()> {
        for ((parameter, master), given) in self.parameters.iter().zip(&self.masters).zip(&mut self.given) {
            let now = value_of(parameter);
            if now == *given {
                continue;
            }
            if !rounded(master, parameter)?.equal(&parameter.detach())? {
                let value = master_of(parameter, self.device.as_ref())?;
                value.eval()?;
                master.assign(&value)?;
            }
            *given = now;
        }
        Ok(())
    }

    /// Assigns the masters' values to some parameters, to all of them or none.
    fn give(&mut self, which: &[usize]) -> Result<()> {
        let values = which
            .iter()
            .map(|&k| rounded(&self.masters[k], &self.parameters[k]))
            .collect::<Result<Vec<_>>>()?;
        eval_all(&values.iter().collect::<Vec<_>>())?;
        for (&k, value) in which.iter().zip(&values) {
            self.parameters[k].assign(value)?;
            self.given[k] = value_of(&self.parameters[k]);
        }
        Ok(())
    }
}

/// The identity of a parameter's value, which no other value shares.
fn value_of(parameter: &Tensor) -> u64 {
    parameter.resolve().id()
}

/// The value for a parameter's master.
#[track_caller]
fn master_of(parameter: &Tensor, device: Option<&Device>) -> Result<Tensor> {
    let _line = caller_line();
    no_grad(|| {
        let device = device.cloned().unwrap_or_else(|| parameter.device());
        // Cast after the copy, which moves half the bytes.
        let value = parameter.detach().to(&device)?.to_dtype(parameter.dtype().compute())?;
        value.eval()?;
        Ok(value)
    })
}

/// A master's value in the dtype and on the device of its parameter.
fn rounded(master: &Tensor, parameter: &Tensor) -> Result<Tensor> {
    master.detach().to_dtype(parameter.dtype())?.to(&parameter.device())
}

impl<O: Optimizer> Optimizer for MasterWeights<O> {
    /// One step of the optimizer on the masters, whose values the parameters then get.
    ///
    /// # Errors
    /// The errors of the optimizer: nothing has changed then. A failure to copy values back, such as too
    /// little memory: no parameter has changed then, but the masters have taken the step; the next step
    /// assigns both.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let gradients = no_grad(|| {
            self.follow()?;
            let mut gradients = Vec::with_capacity(self.parameters.len());
            for (parameter, master) in self.parameters.iter().zip(&self.masters) {
                gradients.push(match parameter.grad() {
                    Some(gradient) => {
                        check_grad(OP, parameter, &gradient)?;
                        Some(gradient.to(&master.device())?.to_dtype(master.dtype())?)
                    }
                    None => None,
                });
            }
            Ok(gradients)
        });
        let gradients = Error::here_in(gradients)?;
        let mut moved = Vec::new();
        for (k, (master, gradient)) in self.masters.iter().zip(gradients).enumerate() {
            if gradient.is_some() {
                moved.push(k);
            }
            master.set_grad(gradient);
        }
        let stepped = self.optimizer.step();
        // The copied gradients are no longer needed.
        self.masters.iter().for_each(|master| master.set_grad(None));
        stepped?;
        Error::here_in(no_grad(|| self.give(&moved)))
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        self.optimizer.check()
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.parameters.clone()
    }

    fn learning_rates(&self) -> Vec<f64> {
        self.optimizer.learning_rates()
    }

    fn set_learning_rates(&mut self, rates: &[f64]) {
        self.optimizer.set_learning_rates(rates);
    }

    fn momenta(&self) -> Option<Vec<f64>> {
        self.optimizer.momenta()
    }

    fn set_momenta(&mut self, momenta: &[f64]) {
        self.optimizer.set_momenta(momenta);
    }
}

/// The state-dict name of a master that is not the parameter itself.
fn name_of(k: usize, parameter: &Tensor, master: &Tensor) -> Option<String> {
    (parameter.dtype() != master.dtype()).then(|| format!("masters.{k}"))
}

impl<O: Optimizer> Stateful for MasterWeights<O> {
    fn state_dict(&self) -> State {
        let mut state = self.optimizer.state_dict();
        for (k, (parameter, master)) in self.parameters.iter().zip(&self.masters).enumerate() {
            if let Some(name) = name_of(k, parameter, master) {
                state.insert(name, master.detach());
            }
        }
        state
    }

    #[track_caller]
    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let _line = caller_line();
        let (own, inner): (Vec<_>, Vec<_>) =
            state.clone().into_iter().partition(|(name, _)| name.starts_with("masters."));
        let own: State = own.into_iter().collect();
        let mut reader = own.reader();
        let mut found = Vec::new();
        for (k, (parameter, master)) in self.parameters.iter().zip(&self.masters).enumerate() {
            if let Some(name) = name_of(k, parameter, master) {
                found.push((k, required(&mut reader, &name, master)));
            }
        }
        reader.finish()?;
        let mut values = Vec::with_capacity(found.len());
        for (k, value) in found {
            if let Some(value) = value {
                values.push((k, settled(&value, &self.masters[k].device())?));
            }
        }
        self.optimizer.load_state_dict(&inner.into_iter().collect())?;
        for (k, value) in &values {
            self.masters[*k].assign(value)?;
        }
        let which: Vec<usize> = values.into_iter().map(|(k, _)| k).collect();
        Error::here_in(no_grad(|| self.give(&which)))
    }
}
