//! Stochastic gradient descent, update for update as PyTorch computes it.

use std::collections::HashSet;

use autograd::no_grad;
use tensor_core::{Error, ErrorKind, Result, State, StateValue, Stateful, Tensor, eval_all, eval_pending};

use crate::Optimizer;

/// The settings of [`Sgd`], PyTorch's with PyTorch's defaults.
///
/// [`Optimizer::step`] checks them, since they may change between steps: a rate, momentum or decay that is negative, NaN or
/// infinite is an error there, and so is Nesterov momentum without momentum or with dampening.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// μ: how much of the last step goes into this one. 0 by default: none.
    pub momentum: f64,
    /// τ: how much of the gradient stays out of the momentum. 0 by default.
    pub dampening: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Looks ahead by the momentum (Nesterov). Off by default.
    pub nesterov: bool,
    /// Climbs in place of descending. Off by default.
    pub maximize: bool,
}

impl Default for SgdConfig {
    fn default() -> SgdConfig {
        SgdConfig {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

impl SgdConfig {
    #[track_caller]
    fn check(&self) -> Result<()> {
        let SgdConfig { lr, momentum, dampening, weight_decay, nesterov, .. } = *self;
        let wrong = |message: String| Error::invalid("Sgd", message);
        for (name, value) in [("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(
                    wrong(format!("{name} {value}: give a finite number that is not negative")).here()
                );
            }
        }
        if !dampening.is_finite() {
            return Err(wrong(format!("dampening {dampening}: give a finite number")).here());
        }
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            return Err(wrong(format!(
                "nesterov with momentum {momentum} and dampening {dampening}: it needs a momentum above 0 and a \
                 dampening of 0"
            ))
            .here());
        }
        Ok(())
    }
}

/// Parameters with settings of their own.
#[derive(Debug)]
pub struct SgdGroup {
    /// The settings, which may be changed between steps.
    pub config: SgdConfig,
    parameters: Vec<Tensor>,
    /// The momentum of each parameter, once it has taken a step with momentum.
    momenta: Vec<Option<Tensor>>,
}

impl SgdGroup {
    fn new(parameters: impl IntoIterator<Item = Tensor>, config: SgdConfig) -> SgdGroup {
        let parameters: Vec<Tensor> = parameters.into_iter().collect();
        SgdGroup { config, momenta: vec![None; parameters.len()], parameters }
    }

    /// The parameters of the group.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}

/// Stochastic gradient descent with momentum. `torch.optim.SGD`.
///
/// For a parameter θ with gradient g:
///
/// ```text
/// g ← −g                                if maximize
/// g ← g + λ·θ                           if weight_decay λ is not 0
/// b ← μ·b + (1 − τ)·g, at first b ← g   if momentum μ is not 0
/// g ← g + μ·b if nesterov, else b       if momentum μ is not 0
/// θ ← θ − lr·g
/// ```
///
/// Parameters without a gradient are passed over. They may be on several devices.
///
/// [`Sgd::new`] does not fail: what is wrong with the settings or the parameters, [`Optimizer::step`] says before it
/// changes anything.
#[derive(Debug)]
pub struct Sgd {
    groups: Vec<SgdGroup>,
    /// Whether the parameters are known to be cells, each given once.
    parameters_checked: bool,
}

impl Sgd {
    /// An optimizer of these parameters, in one group.
    pub fn new(parameters: impl IntoIterator<Item = Tensor>, config: SgdConfig) -> Sgd {
        Sgd { groups: vec![SgdGroup::new(parameters, config)], parameters_checked: false }
    }

    /// Adds parameters with settings of their own.
    pub fn add_group(&mut self, parameters: impl IntoIterator<Item = Tensor>, config: SgdConfig) {
        self.groups.push(SgdGroup::new(parameters, config));
        self.parameters_checked = false;
    }

    /// The groups, in order of their making.
    pub fn groups(&self) -> &[SgdGroup] {
        &self.groups
    }

    /// The groups, to change their settings: `sgd.groups_mut()[0].config.lr = 0.01`.
    pub fn groups_mut(&mut self) -> &mut [SgdGroup] {
        &mut self.groups
    }

    /// An error for what is no cell, and for a parameter given twice, which would take two steps at once.
    #[track_caller]
    fn check_parameters(&mut self) -> Result<()> {
        if self.parameters_checked {
            return Ok(());
        }
        let parameters = self.parameters();
        if parameters.is_empty() {
            return Err(Error::invalid("Sgd", "there are no parameters; give model.parameters()"));
        }
        let mut seen = HashSet::new();
        for (i, parameter) in parameters.iter().enumerate() {
            if !parameter.is_cell() {
                let message = format!(
                    "tensor {i} of shape {} is no parameter; use .requires_grad()",
                    parameter.shape()
                );
                return Err(Error::invalid("Sgd", message));
            }
            if !seen.insert(parameter.id()) {
                let message = format!("parameter {i} of shape {} is given twice", parameter.shape());
                return Err(Error::invalid("Sgd", message));
            }
        }
        self.parameters_checked = true;
        Ok(())
    }
}

/// PyTorch's names: `param_groups.0.lr` and the other settings of each group, `param_groups.0.params` for how many
/// parameters it has, and `state.3.momentum_buffer` for the momentum of parameter 3 among all.
///
/// Loading takes over the settings too, as in PyTorch. A momentum goes to where its parameter is; a parameter without one
/// begins afresh.
impl Stateful for Sgd {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        let mut index = 0;
        for (g, group) in self.groups.iter().enumerate() {
            let SgdConfig { lr, momentum, dampening, weight_decay, nesterov, maximize } = group.config;
            let mut put =
                |name: &str, value: StateValue| state.insert(format!("param_groups.{g}.{name}"), value);
            put("lr", lr.into());
            put("momentum", momentum.into());
            put("dampening", dampening.into());
            put("weight_decay", weight_decay.into());
            put("nesterov", nesterov.into());
            put("maximize", maximize.into());
            put("params", group.parameters.len().into());
            for momentum in &group.momenta {
                if let Some(momentum) = momentum {
                    state.insert(format!("state.{index}.momentum_buffer"), momentum.clone());
                }
                index += 1;
            }
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let mut loaded = Vec::new();
        let mut index = 0;
        for (g, group) in self.groups.iter().enumerate() {
            let name = |name: &str| format!("param_groups.{g}.{name}");
            let config = SgdConfig {
                lr: reader.float(&name("lr")),
                momentum: reader.float(&name("momentum")),
                dampening: reader.float(&name("dampening")),
                weight_decay: reader.float(&name("weight_decay")),
                nesterov: reader.bool(&name("nesterov")),
                maximize: reader.bool(&name("maximize")),
            };
            let count = group.parameters.len();
            if reader.has(&name("params")) && reader.word(&name("params")) != count as u64 {
                let found = reader.word(&name("params"));
                reader.mismatch(format!("{}: {found} parameters, this group has {count}", name("params")));
            } else {
                // Noted as missing.
                reader.int(&name("params"));
            }
            let mut momenta = Vec::with_capacity(count);
            for parameter in &group.parameters {
                let momentum = reader.tensor_like(&format!("state.{index}.momentum_buffer"), parameter);
                momenta.push(momentum.map(|momentum| (momentum, parameter.device())));
                index += 1;
            }
            loaded.push((config, momenta));
        }
        reader.finish()?;
        // Moved before anything changes, since that can fail.
        let mut moved = Vec::with_capacity(loaded.len());
        for (config, momenta) in loaded {
            let momenta = momenta.into_iter().map(|momentum| {
                let Some((momentum, device)) = momentum else { return Ok(None) };
                let momentum = no_grad(|| momentum.detach().to(&device))?;
                momentum.eval()?;
                Ok(Some(momentum))
            });
            moved.push((config, momenta.collect::<Result<Vec<_>>>()?));
        }
        for (group, (config, momenta)) in self.groups.iter_mut().zip(moved) {
            (group.config, group.momenta) = (config, momenta);
        }
        Ok(())
    }
}

/// What a step will make of one parameter.
struct Update {
    group: usize,
    index: usize,
    value: Tensor,
    momentum: Option<Tensor>,
}

/// The new value and momentum of a parameter, by the formulas of [`Sgd`].
#[track_caller]
fn update(
    config: &SgdConfig,
    parameter: &Tensor,
    grad: &Tensor,
    momentum: Option<&Tensor>,
) -> Result<(Tensor, Option<Tensor>)> {
    let mut step = if config.maximize { grad.neg() } else { grad.clone() };
    if config.weight_decay != 0.0 {
        step = step.add(&parameter.mul_scalar(config.weight_decay))?;
    }
    let mut next = None;
    if config.momentum != 0.0 {
        let buffer = match momentum {
            None => step.detach(),
            Some(last) => last
                .to(&parameter.device())?
                .mul_scalar(config.momentum)
                .add(&step.mul_scalar(1.0 - config.dampening))?,
        };
        step = if config.nesterov { step.add(&buffer.mul_scalar(config.momentum))? } else { buffer.clone() };
        next = Some(buffer);
    }
    Ok((parameter.sub(&step.mul_scalar(config.lr))?, next))
}

/// A gradient that someone set by hand may be anything.
#[track_caller]
fn check_grad(parameter: &Tensor, grad: &Tensor) -> Result<()> {
    if grad.shape() != parameter.shape() {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op: "Sgd",
            lhs: parameter.shape().clone(),
            rhs: grad.shape().clone(),
            hint: "a gradient has the shape of its parameter".into(),
        }));
    }
    if grad.dtype() != parameter.dtype() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op: "Sgd",
            lhs: parameter.dtype(),
            rhs: grad.dtype(),
            hint: "a gradient has the dtype of its parameter".into(),
        }));
    }
    Ok(())
}

impl Optimizer for Sgd {
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        self.groups.iter().try_for_each(|group| group.config.check())?;
        self.check_parameters()?;
        let mut updates = Vec::new();
        no_grad(|| -> Result<()> {
            for (g, group) in self.groups.iter().enumerate() {
                for (i, parameter) in group.parameters.iter().enumerate() {
                    let Some(grad) = parameter.grad() else { continue };
                    check_grad(parameter, &grad)?;
                    let (value, momentum) =
                        update(&group.config, parameter, &grad, group.momenta[i].as_ref())?;
                    updates.push(Update { group: g, index: i, value, momentum });
                }
            }
            Ok(())
        })?;
        // All at once, and before any parameter changes, so that a failure changes none.
        match eval_pending() {
            // Of something else that waits, this is told to whoever asks for it; of an update, below.
            Err(error) if !matches!(error.kind(), ErrorKind::IndexOutOfRange { .. }) => return Err(error),
            _ => {}
        }
        let made = updates.iter().flat_map(|update| [Some(&update.value), update.momentum.as_ref()]);
        eval_all(&made.flatten().collect::<Vec<_>>())?;
        for Update { group, index, value, momentum } in updates {
            let group = &mut self.groups[group];
            group.parameters[index].assign(&value)?;
            if momentum.is_some() {
                group.momenta[index] = momentum;
            }
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.groups.iter().flat_map(|group| group.parameters.iter().cloned()).collect()
    }

    fn learning_rates(&self) -> Vec<f64> {
        self.groups.iter().map(|group| group.config.lr).collect()
    }

    fn set_learning_rates(&mut self, rates: &[f64]) {
        self.groups.iter_mut().zip(rates).for_each(|(group, rate)| group.config.lr = *rate);
    }
}
