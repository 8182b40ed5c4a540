//! [`ParamGroups`]: everything of an optimizer except its update rule. Groups of parameters with their
//! settings, the state of each parameter, the checks, the state dict, and steps that change everything or
//! nothing.
//!
//! An optimizer adds an [`UpdateRule`]: settings, the state of one parameter, and the update. `sgd.rs` is an
//! example.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{self, Write},
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
};

use autograd::no_grad;
use tensor_core::{
    DType, Error, ErrorKind, GraphNumbers, HostState, HostValues, Location, NotedState, Result, Shape, State,
    Stateful, Tensor, WeakTensor, build_only, caller_line, eval_all, eval_in_place, eval_pending,
    is_capturing, lock, note_host_state, parameter_name, refuse_later,
};

use crate::{
    Optimizer,
    saved::{
        ParamState, Part, Setting, cast_tensors, change_tensors, load_settings, load_state, save_settings,
        save_state, settled, tensors,
    },
};

/// An optimizer's settings and its update rule. [`ParamGroups`] makes an optimizer of it.
///
/// ```
/// use optim::{Optimizer, ParamGroups, ParamState, Part, UpdateRule};
/// use tensor_core::{Result, Tensor};
///
/// /// Each parameter moves by `lr` against the sign of its gradient.
/// #[derive(Clone, Copy, Debug)]
/// struct SignSgdConfig { lr: f64 }
///
/// /// There is no state.
/// #[derive(Clone, Debug, Default)]
/// struct Nothing;
/// impl ParamState for Nothing {
///     fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> { vec![] }
/// }
///
/// impl UpdateRule for SignSgdConfig {
///     const NAME: &'static str = "SignSgd";
///     type State = Nothing;
///     fn check(&self) -> Result<()> { Ok(()) }
///     optim::settings!(lr);
///     fn update(&self, parameter: &Tensor, grad: &Tensor, _: &mut Nothing) -> Result<Tensor> {
///         parameter.sub(&grad.sign().mul_scalar(self.lr))
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # use autograd::TensorGrad;
/// let w = Tensor::new([1.0f32, -1.0], &backend_cpu::cpu())?.requires_grad();
/// let mut sgd = ParamGroups::new([w.clone()], SignSgdConfig { lr: 0.25 });
/// w.powi(2).sum().backward()?;
/// sgd.step()?;
/// assert_eq!(w.to_vec::<f32>()?, [0.75, -0.75]);
/// # Ok(()) }
/// ```
pub trait UpdateRule: Copy + fmt::Debug + Send + 'static {
    /// The optimizer's name, which begins error messages.
    const NAME: &'static str;

    /// The state of each parameter.
    type State: ParamState;

    /// Checks the settings. Called at each step, because they may change.
    ///
    /// # Errors
    /// Names the setting, its value, and the range that is allowed.
    #[track_caller]
    fn check(&self) -> Result<()>;

    /// Checks that the update is defined for this parameter. The default accepts any.
    ///
    /// # Errors
    /// Names the requirement and the shape that was found.
    #[track_caller]
    fn check_parameter(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// The learning rate.
    fn lr(&mut self) -> &mut f64;

    /// The setting that [`OneCycleLr`](crate::OneCycleLr) and [`CyclicLr`](crate::CyclicLr) cycle beside the
    /// learning rate: `momentum` or `betas.0`, if the optimizer has one.
    fn momentum(&mut self) -> Option<&mut f64> {
        self.settings().into_iter().find_map(|(name, setting)| match (name, setting) {
            ("momentum" | "betas.0", Setting::Float(momentum)) => Some(momentum),
            _ => None,
        })
    }

    /// All settings, by their names in PyTorch's state dict.
    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)>;

    /// The new value of a parameter. `state` is a copy of the parameter's state, on its device, to be
    /// changed to the next state. Half precision is computed in f32: parameter, gradient and state are
    /// passed as f32 and rounded when they are stored.
    ///
    /// # Errors
    /// A failure to compute. Nothing changes then, neither this parameter nor any other.
    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut Self::State) -> Result<Tensor>;
}

/// Parameters that share settings.
#[derive(Clone, Debug)]
pub struct ParamGroup<C> {
    /// The settings; they may be changed between steps.
    pub config: C,
    parameters: Vec<Tensor>,
}

impl<C> ParamGroup<C> {
    /// The parameters of the group.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }
}

/// An optimizer: groups of parameters, each with its settings `C`, which define the update, and the state of
/// each parameter.
///
/// Making one does not fail: [`Optimizer::checked`] reports wrong settings or parameters at once, and
/// [`Optimizer::step`] before it changes anything. Parameters without a gradient are skipped; the first step
/// in which no parameter has one is reported on standard error (PyTorch is silent), and so are, once after
/// ten steps, the parameters that require gradients and never had one. Parameters may be on several
/// devices.
///
/// A step computes gradients first, and then the new values of all parameters together: those of one shape
/// and device share kernels, as many as the device's limit on results allows. New values and states
/// overwrite the old ones if that takes no new memory, which holds for elementwise updates from the second
/// step on, if no other tensor holds a parameter's value. Otherwise all are computed before one is assigned.
#[derive(Debug)]
pub struct ParamGroups<C: UpdateRule> {
    groups: Vec<ParamGroup<C>>,
    host: Arc<Mutex<Host<C>>>,
    /// Whether the parameters are known to be variables or parameters, each given once.
    parameters_checked: bool,
    /// Whether a step without any gradient was reported.
    reported_no_gradients: bool,
    /// The number of steps so far that changed a parameter, up to [`STEPS_WATCHED`].
    steps_watched: u32,
}

/// The number of steps after which parameters that never had a gradient are reported.
const STEPS_WATCHED: u32 = 10;
/// The number of parameters that the report names.
const PARAMETERS_NAMED: usize = 8;

/// The result of a step for one parameter.
struct Update<S> {
    group: usize,
    index: usize,
    value: Tensor,
    grad: Tensor,
    state: S,
}

/// One parameter before a step. It holds values weakly, so that they may be overwritten.
struct Before<S> {
    group: usize,
    index: usize,
    value: WeakTensor,
    /// The state without its tensors.
    state: Option<S>,
    tensors: Vec<Option<WeakTensor>>,
}

impl<C: UpdateRule> ParamGroups<C> {
    /// An optimizer of these parameters, in one group.
    pub fn new(parameters: impl IntoIterator<Item = Tensor>, config: C) -> ParamGroups<C> {
        let mut groups = ParamGroups {
            groups: Vec::new(),
            host: Arc::new(Mutex::new(Host::default())),
            parameters_checked: false,
            reported_no_gradients: false,
            steps_watched: 0,
        };
        groups.add_group(parameters, config);
        groups
    }

    /// Adds a group of parameters with its own settings.
    pub fn add_group(&mut self, parameters: impl IntoIterator<Item = Tensor>, config: C) {
        let parameters: Vec<Tensor> = parameters.into_iter().collect();
        lock(&self.host).states.push(vec![None; parameters.len()]);
        self.groups.push(ParamGroup { config, parameters });
        self.publish();
        self.parameters_checked = false;
    }

    /// The groups, in the order in which they were added.
    pub fn groups(&self) -> &[ParamGroup<C>] {
        &self.groups
    }

    /// The groups, for changes of settings: `sgd.groups_mut()[0].config.lr = 0.01`.
    pub fn groups_mut(&mut self) -> GroupsMut<'_, C> {
        GroupsMut(self)
    }

    /// Gives the settings to the steps of compiled functions.
    fn publish(&mut self) {
        lock(&self.host).groups.clone_from(&self.groups);
    }

    /// Checks the settings of all groups.
    fn check_settings(&self) -> Result<()> {
        self.groups.iter().try_for_each(|group| group.config.check())
    }

    /// Checks the parameters of all groups.
    fn check_all_parameters(&self) -> Result<()> {
        check_parameters(C::NAME, self.groups.iter().map(|group| group.parameters.as_slice()))?;
        for group in &self.groups {
            group.parameters.iter().try_for_each(|parameter| group.config.check_parameter(parameter))?;
        }
        Ok(())
    }

    /// The gradients that the next step reads.
    fn grads(&self) -> Result<Vec<Tensor>> {
        let mut grads = Vec::new();
        for parameter in self.groups.iter().flat_map(|group| &group.parameters) {
            if let Some(grad) = parameter.grad() {
                check_grad(C::NAME, parameter, &grad)?;
                grads.push(grad);
            }
        }
        Ok(grads)
    }

    /// Says once that a step changes nothing, which is probably a mistake.
    fn report_no_gradients(&mut self, caller: Location) {
        if !std::mem::replace(&mut self.reported_no_gradients, true) {
            // A closed stderr is not an error.
            let _ = writeln!(
                io::stderr(),
                "taper: {}: no parameter has a gradient, so the step at {caller} changes nothing. Call loss.backward()? before \
                 it, and give the optimizer the parameters of the model that computes the loss",
                C::NAME
            );
        }
    }

    /// The parameters that require gradients, and have had none in any step so far.
    ///
    /// ```
    /// use autograd::TensorGrad;
    /// use optim::{Optimizer, Sgd, SgdConfig};
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let cpu = backend_cpu::cpu();
    /// let (body, head) = (Tensor::ones(3, &cpu)?.requires_grad(), Tensor::ones(3, &cpu)?.requires_grad());
    /// let mut sgd = Sgd::new([body.clone(), head.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    /// body.exp().detach().mul(&head)?.sum().backward()?; // the detach is a mistake
    /// sgd.step()?;
    /// assert_eq!(sgd.parameters_without_gradient()[0].id(), body.id());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn parameters_without_gradient(&self) -> Vec<&Tensor> {
        let host = lock(&self.host);
        let all = self.groups.iter().zip(&host.states);
        let all = all.flat_map(|(group, states)| group.parameters.iter().zip(states));
        let idle = all.filter(|(parameter, state)| {
            state.is_none() && parameter.is_tracked() && parameter.grad().is_none()
        });
        idle.map(|(parameter, _)| parameter).collect()
    }

    /// Counts a step, and says once, after some steps, which parameters have had no gradient so far.
    fn watch(&mut self, caller: Location) {
        if self.steps_watched >= STEPS_WATCHED {
            return;
        }
        self.steps_watched += 1;
        let idle = match self.steps_watched {
            STEPS_WATCHED => self.parameters_without_gradient(),
            _ => Vec::new(),
        };
        if idle.is_empty() {
            return;
        }
        let all = self.groups.iter().flat_map(|group| &group.parameters);
        let place: HashMap<u64, usize> =
            all.enumerate().map(|(place, tensor)| (tensor.id(), place)).collect();
        let described = idle.iter().take(PARAMETERS_NAMED).map(|parameter| {
            let name = match parameter_name(parameter.id()) {
                Some(name) => format!("\"{name}\""),
                None => format!("number {}", place.get(&parameter.id()).copied().unwrap_or(0)),
            };
            format!("{name} {}", parameter.shape())
        });
        let mut list = described.collect::<Vec<_>>().join(", ");
        if idle.len() > PARAMETERS_NAMED {
            list.push_str(&format!(" and {} more", idle.len() - PARAMETERS_NAMED));
        }
        // A closed stderr is not an error.
        let _ = writeln!(
            io::stderr(),
            "taper: {}: {} of {} parameters had no gradient in the first {STEPS_WATCHED} steps (at {caller}): {list}. The loss \
             does not depend on them, for instance after a detach or no_grad. If that is meant, freeze them",
            C::NAME,
            idle.len(),
            place.len()
        );
    }

    /// Assigns the updates, and returns what they replaced.
    fn replace(&mut self, updates: &[Update<C::State>]) -> Result<Vec<Before<C::State>>> {
        let mut all = Vec::with_capacity(updates.len());
        for Update { group, index, value, state, .. } in updates {
            let parameter = &self.groups[*group].parameters[*index];
            let before = parameter.downgrade();
            parameter.assign(value)?;
            let mut state = lock(&self.host).states[*group][*index].replace(state.clone());
            let tensors = state.iter_mut().flat_map(tensors);
            let tensors = tensors.map(|tensor| tensor.take().map(|t| t.downgrade())).collect();
            all.push(Before { group: *group, index: *index, value: before, state, tensors });
        }
        Ok(all)
    }

    /// Undoes [`ParamGroups::replace`] where nothing was overwritten. Other pending tensors are computed
    /// when they are read.
    fn bring_back(&mut self, before: Vec<Before<C::State>>) {
        for Before { group, index, value, mut state, tensors: kept } in before {
            let parameter = &self.groups[group].parameters[index];
            let still_there = |tensor: &Option<WeakTensor>| match tensor {
                Some(tensor) => tensor.upgrade().map(Some),
                None => Some(None),
            };
            let kept: Option<Vec<Option<Tensor>>> = kept.iter().map(still_there).collect();
            let (Some(value), Some(kept)) = (value.upgrade(), kept) else { continue };
            if parameter.is_evaluated() || parameter.assign(&value).is_err() {
                continue;
            }
            for (tensor, before) in state.iter_mut().flat_map(tensors).zip(kept) {
                *tensor = before;
            }
            lock(&self.host).states[group][index] = state;
        }
    }

    /// A step of a function that is being compiled: nothing is computed, and each later call of the function
    /// takes this step too, with the settings and counts that it then has.
    fn capture_step(&self) -> Result<()> {
        let mut host = lock(&self.host);
        let updates = no_grad(|| host.updates())?;
        let (mut form, mut numbers, mut read, mut made) = Default::default();
        let mut before: Vec<Captured<C::State>> = Vec::new();
        for update in updates {
            let found = host.numbers(&update);
            form = combined(form, found.form);
            Vec::extend(&mut numbers, found.ids);
            let Update { group, index, value, mut state, .. } = update;
            Vec::extend(&mut read, host.tensors_of(group, index));
            self.groups[group].parameters[index].assign(&value)?;
            Vec::extend(&mut made, tensors(&mut state).flatten().map(|tensor| tensor.clone()));
            let mut old = host.states[group][index].replace(state);
            let has = old.iter_mut().flat_map(tensors).map(|tensor| tensor.take().is_some()).collect();
            before.push(Captured { group, index, state: old, has });
        }
        let changed: Vec<(usize, usize)> = before.iter().map(|old| (old.group, old.index)).collect();
        let step = host.stepped.iter().position(|known| *known == changed).unwrap_or_else(|| {
            host.stepped.push(changed);
            host.stepped.len() - 1
        });
        drop(host);
        let restored = self.host.clone();
        let undo = move |tensors: Vec<Option<Tensor>>, all: bool| {
            lock(&restored).bring_back(before, tensors, all);
        };
        note_host_state(NotedState {
            state: self.host.clone(),
            step,
            form,
            read,
            numbers,
            made,
            undo: Box::new(undo),
        });
        Ok(())
    }
}

/// The groups of an optimizer, for changes.
#[derive(Debug)]
pub struct GroupsMut<'a, C: UpdateRule>(&'a mut ParamGroups<C>);

impl<C: UpdateRule> Deref for GroupsMut<'_, C> {
    type Target = [ParamGroup<C>];
    fn deref(&self) -> &[ParamGroup<C>] {
        &self.0.groups
    }
}

impl<C: UpdateRule> DerefMut for GroupsMut<'_, C> {
    fn deref_mut(&mut self) -> &mut [ParamGroup<C>] {
        &mut self.0.groups
    }
}

impl<C: UpdateRule> Drop for GroupsMut<'_, C> {
    fn drop(&mut self) {
        self.0.publish();
    }
}

/// The numbers and tensors that steps read and change beside the parameters. Compiled functions hold it too.
#[derive(Debug)]
struct Host<C: UpdateRule> {
    /// The groups with their present settings.
    groups: Vec<ParamGroup<C>>,
    /// The state of each parameter of each group; none before its first step.
    states: Vec<Vec<Option<C::State>>>,
    /// The parameters, by group and place in it, that steps of compiled functions change.
    stepped: Vec<Vec<(usize, usize)>>,
    /// The step of a compiled function that is being run.
    begun: Vec<Begun<C::State>>,
}

impl<C: UpdateRule> Default for Host<C> {
    fn default() -> Host<C> {
        Host { groups: Vec::new(), states: Vec::new(), stepped: Vec::new(), begun: Vec::new() }
    }
}

/// The state of a parameter before a captured step, without its tensors, and which of these there were.
struct Captured<S> {
    group: usize,
    index: usize,
    state: Option<S>,
    has: Vec<bool>,
}

/// The next state of a parameter without its tensors, and which of these there are.
#[derive(Debug)]
struct Begun<S> {
    group: usize,
    index: usize,
    state: S,
    has: Vec<bool>,
}

impl<C: UpdateRule> Host<C> {
    /// The updates of all parameters that have a gradient, not computed yet.
    fn updates(&self) -> Result<Vec<Update<C::State>>> {
        let places = self.groups.iter().enumerate().flat_map(|(g, group)| {
            group.parameters.iter().enumerate().map(move |(i, parameter)| (g, i, parameter))
        });
        let with_grads = places.filter_map(|(g, i, parameter)| Some((g, i, parameter.grad()?)));
        with_grads.map(|(g, i, grad)| self.update(g, i, grad)).collect()
    }

    /// The update of one parameter.
    fn update(&self, group: usize, index: usize, grad: Tensor) -> Result<Update<C::State>> {
        let ParamGroup { config, parameters } = &self.groups[group];
        let parameter = &parameters[index];
        // Half precision, in which 0.999 rounds to 1, is computed in f32, and the stored values are rounded.
        let (kept, wide) = (parameter.dtype(), parameter.dtype().compute());
        let mut state = self.states[group][index].clone().unwrap_or_default();
        let device = parameter.device();
        change_tensors(&mut state, |tensor| tensor.to(&device))?;
        cast_tensors(&mut state, wide)?;
        let value = config.update(&parameter.to_dtype(wide)?, &grad.to_dtype(wide)?, &mut state)?;
        cast_tensors(&mut state, kept)?;
        if value.shape() != parameter.shape() {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: C::NAME,
                lhs: parameter.shape().clone(),
                rhs: value.shape().clone(),
                hint: "an update has the shape of its parameter".into(),
            }));
        }
        Ok(Update { group, index, value: value.to_dtype(kept)?, grad, state })
    }

    /// Undoes a captured step. A state whose tensors no longer exist stays as it is, and so does that of a
    /// parameter that has its new value, unless `all`.
    fn bring_back(
        &mut self,
        before: Vec<Captured<C::State>>,
        tensors_before: Vec<Option<Tensor>>,
        all: bool,
    ) {
        let mut kept = tensors_before.into_iter();
        for Captured { group, index, mut state, has } in before {
            let mut is_whole = true;
            for (tensor, _) in state.iter_mut().flat_map(tensors).zip(has).filter(|(_, has)| *has) {
                *tensor = kept.next().flatten();
                is_whole &= tensor.is_some();
            }
            if is_whole && (all || !self.groups[group].parameters[index].is_evaluated()) {
                self.states[group][index] = state;
            }
        }
    }

    /// The present tensors of a parameter's state.
    fn tensors_of(&self, group: usize, index: usize) -> Vec<Tensor> {
        let mut state = self.states[group][index].clone().unwrap_or_default();
        tensors(&mut state).flatten().map(|tensor| tensor.clone()).collect()
    }

    /// The numbers of a parameter's next update, and its state afterwards. The update is built for them
    /// alone, with the parameter in place of the gradient.
    fn alike(&self, group: usize, index: usize, counts: Vec<u64>) -> Result<Alike<C::State>> {
        let parameter = &self.groups[group].parameters[index];
        let update = GraphNumbers::built(|| no_grad(|| self.update(group, index, parameter.detach())))?;
        let numbers = self.numbers(&update);
        let mut next = update.state;
        let has = tensors(&mut next).map(|tensor| tensor.take().is_some()).collect();
        let (shape, dtype) = (parameter.shape().clone(), parameter.dtype());
        Ok(Alike { group, shape, dtype, counts, numbers, next, has })
    }

    /// The numbers in the operations of an update.
    fn numbers(&self, update: &Update<C::State>) -> GraphNumbers {
        let mut results = vec![update.value.clone()];
        let mut state = update.state.clone();
        results.extend(tensors(&mut state).flatten().map(|tensor| tensor.clone()));
        let parameter = &self.groups[update.group].parameters[update.index];
        let read = self.tensors_of(update.group, update.index);
        GraphNumbers::of(&results, [parameter, &update.grad].into_iter().chain(&read))
    }
}

/// The form of several updates.
fn combined(form: u64, next: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (form.rotate_left(5) ^ next).wrapping_mul(ODD)
}

/// Updates whose numbers are equal: those of parameters with one shape, dtype and group, whose states have
/// equal counts.
struct Alike<S> {
    group: usize,
    shape: Shape,
    dtype: DType,
    counts: Vec<u64>,
    numbers: GraphNumbers,
    next: S,
    has: Vec<bool>,
}

/// The counts and numbers of a state, and which of its tensors there are.
fn counts_of(state: &mut impl ParamState) -> Vec<u64> {
    let parts = state.parts().into_iter().map(|(_, part)| match part {
        Part::Count(count) => *count,
        Part::Float(number) => number.to_bits(),
        Part::Tensor(tensor) | Part::OptionalTensor(tensor) | Part::Derived { tensor, .. } => {
            u64::from(tensor.is_some())
        }
    });
    parts.collect()
}

impl<C: UpdateRule> HostState for Host<C> {
    fn present(&mut self, step: usize) -> Result<HostValues> {
        self.groups.iter().try_for_each(|group| group.config.check())?;
        let mut values = HostValues::default();
        let mut begun: Vec<Begun<C::State>> = Vec::new();
        let mut known: Vec<Alike<C::State>> = Vec::new();
        for &(g, i) in &self.stepped[step] {
            let parameter = &self.groups[g].parameters[i];
            let counts = counts_of(&mut self.states[g][i].clone().unwrap_or_default());
            let is_alike = |alike: &Alike<C::State>| {
                (alike.group, alike.dtype) == (g, parameter.dtype())
                    && alike.shape == *parameter.shape()
                    && alike.counts == counts
            };
            let at = match known.iter().position(is_alike) {
                Some(at) => at,
                None => {
                    known.push(self.alike(g, i, counts)?);
                    known.len() - 1
                }
            };
            let Alike { numbers, next, has, .. } = &known[at];
            values.form = combined(values.form, numbers.form);
            values.numbers.extend(&numbers.numbers);
            values.tensors.extend(self.tensors_of(g, i));
            begun.push(Begun { group: g, index: i, state: next.clone(), has: has.clone() });
        }
        self.begun = begun;
        Ok(values)
    }

    fn advance(&mut self, made: Vec<Tensor>) {
        let mut made = made.into_iter();
        for Begun { group, index, mut state, has } in std::mem::take(&mut self.begun) {
            for (tensor, has) in tensors(&mut state).zip(has) {
                *tensor = if has { made.next() } else { None };
            }
            self.states[group][index] = Some(state);
        }
    }
}

/// Computes these tensors, and all other tensors that are pending on this thread and still held.
#[track_caller]
pub(crate) fn compute(made: &[Tensor]) -> Result<()> {
    match eval_pending() {
        // Index errors of other pending tensors, and slices of a `vmap` that are still held, are reported
        // when those are read; errors of `made` below.
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::IndexOutOfRange { .. } | ErrorKind::Unsupported { op: "vmap", .. }
            ) =>
        {
            return Error::here_in(Err(error));
        }
        _ => {}
    }
    Error::here_in(eval_all(&made.iter().collect::<Vec<_>>()))
}

/// Refuses an empty list, a tensor that is no parameter, and a parameter that is given twice, which would
/// take two steps at once.
pub(crate) fn check_parameters<'a>(
    op: &'static str,
    groups: impl Iterator<Item = &'a [Tensor]>,
) -> Result<()> {
    let mut seen = HashSet::new();
    let mut i = 0;
    for (g, group) in groups.enumerate() {
        if group.is_empty() {
            let message = match g {
                0 => "there are no parameters; give model.parameters() or, for a model whose weights are in blocks, \
                      those of adapters (nn::lora::attach)"
                    .into(),
                _ => format!("group {g} has no parameters; leave it out, or give it some"),
            };
            return Err(Error::invalid(op, message));
        }
        for parameter in group {
            if !parameter.is_cell() {
                let message = format!(
                    "tensor {i} of shape {} is no parameter; use .requires_grad()",
                    parameter.shape()
                );
                return Err(Error::invalid(op, message));
            }
            if let Some(format) = parameter.block_format() {
                let message = format!(
                    "tensor {i} of shape {} is in blocks of {format}, which are constant; train adapters beside it \
                     (nn::lora::attach)",
                    parameter.shape()
                );
                return Err(Error::invalid(op, message));
            }
            if !seen.insert(parameter.id()) {
                let message = format!("parameter {i} of shape {} is given twice", parameter.shape());
                return Err(Error::invalid(op, message));
            }
            i += 1;
        }
    }
    Ok(())
}

/// Checks a gradient, which the user may have set by hand.
pub(crate) fn check_grad(op: &'static str, parameter: &Tensor, grad: &Tensor) -> Result<()> {
    if grad.shape() != parameter.shape() {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: parameter.shape().clone(),
            rhs: grad.shape().clone(),
            hint: "a gradient has the shape of its parameter".into(),
        }));
    }
    if grad.dtype() != parameter.dtype() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: parameter.dtype(),
            rhs: grad.dtype(),
            hint: "a gradient has the dtype of its parameter".into(),
        }));
    }
    Ok(())
}

impl<C: UpdateRule> Optimizer for ParamGroups<C> {
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let _line = caller_line();
        self.check_settings()?;
        if !self.parameters_checked {
            self.check_all_parameters()?;
            self.parameters_checked = true;
        }
        // Errors that the user's graph causes occur here, before anything changes.
        let grads = self.grads()?;
        let changes = !grads.is_empty();
        if !changes {
            self.report_no_gradients(Location::caller());
        }
        if is_capturing() {
            return self.capture_step();
        }
        compute(&grads)?;
        drop(grads);
        let mut updates = build_only(|| no_grad(|| lock(&self.host).updates()))?;
        let mut made: Vec<Tensor> = Vec::new();
        for Update { value, state, .. } in &mut updates {
            made.push(value.clone());
            made.extend(tensors(state).flatten().map(|tensor| tensor.clone()));
        }
        let cells = updates.iter().map(|update| self.groups[update.group].parameters[update.index].clone());
        let cells: Vec<Tensor> = cells.collect();
        // Nothing holds the old values now, so that they may be overwritten.
        let before = build_only(|| self.replace(&updates))?;
        let evaluated = eval_in_place(&cells.iter().chain(&made).collect::<Vec<_>>());
        let caller = Location::caller();
        if let Ok(true) = evaluated {
            if changes {
                self.watch(caller);
            }
            return Ok(());
        }
        self.bring_back(before);
        evaluated?;
        // The update takes memory: all values are computed before any parameter changes, so that a failure
        // changes none.
        eval_all(&made.iter().collect::<Vec<_>>())?;
        self.replace(&updates)?;
        if changes {
            self.watch(caller);
        }
        Ok(())
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let _line = caller_line();
        self.check_settings()?;
        self.check_all_parameters()
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.groups.iter().flat_map(|group| group.parameters.iter().cloned()).collect()
    }

    fn learning_rates(&self) -> Vec<f64> {
        self.groups.iter().map(|group| *{ group.config }.lr()).collect()
    }

    fn set_learning_rates(&mut self, rates: &[f64]) {
        refuse_later("set_learning_rates", "set a learning rate");
        self.groups.iter_mut().zip(rates).for_each(|(group, rate)| *group.config.lr() = *rate);
        self.publish();
    }

    fn momenta(&self) -> Option<Vec<f64>> {
        self.groups.iter().map(|group| { group.config }.momentum().copied()).collect()
    }

    fn set_momenta(&mut self, momenta: &[f64]) {
        refuse_later("set_momenta", "set a momentum");
        for (group, momentum) in self.groups.iter_mut().zip(momenta) {
            if let Some(place) = group.config.momentum() {
                *place = *momentum;
            }
        }
        self.publish();
    }
}

/// PyTorch's names: `param_groups.0.lr` and the other settings of each group, `param_groups.0.params` for
/// the number of its parameters, and `state.3.momentum_buffer` for the state of parameter 3 among all. A
/// pair of numbers is saved as two: `betas.0`, `betas.1`.
///
/// Loading replaces the settings too, as in PyTorch. A tensor moves to the device of its parameter; a
/// parameter without saved state starts anew.
impl<C: UpdateRule> Stateful for ParamGroups<C> {
    fn state_dict(&self) -> State {
        let mut dict = State::new();
        let mut index = 0;
        for (g, (group, states)) in self.groups.iter().zip(&lock(&self.host).states).enumerate() {
            let mut config = group.config;
            save_settings(&mut dict, g, config.settings(), group.parameters.len());
            for state in states {
                save_state(&mut dict, index, state);
                index += 1;
            }
        }
        dict
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let mut loaded = Vec::new();
        let mut index = 0;
        for (g, group) in self.groups.iter().enumerate() {
            let mut config = group.config;
            load_settings(&mut reader, g, config.settings(), group.parameters.len());
            let mut states = Vec::with_capacity(group.parameters.len());
            for parameter in &group.parameters {
                states.push(load_state::<C::State>(&mut reader, index, parameter));
                index += 1;
            }
            loaded.push((config, states));
        }
        reader.finish()?;
        // Moved before anything changes, because moving can fail.
        for (group, (_, states)) in self.groups.iter().zip(&mut loaded) {
            for (parameter, state) in group.parameters.iter().zip(states) {
                let device = parameter.device();
                state.iter_mut().try_for_each(|state| change_tensors(state, |t| settled(t, &device)))?;
            }
        }
        let mut host = lock(&self.host);
        for ((group, states), loaded) in self.groups.iter_mut().zip(&mut host.states).zip(loaded) {
            (group.config, *states) = loaded;
        }
        drop(host);
        self.publish();
        Ok(())
    }
}
