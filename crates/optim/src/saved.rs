//! Saves and loads an optimizer: the settings of a group and the state of a parameter, each part by its
//! name.

use std::fmt;

use autograd::no_grad;
use tensor_core::{DType, Device, Result, State, StateReader, StateValue, Tensor};

/// One setting of an optimizer, to be saved or loaded.
#[derive(Debug)]
pub enum Setting<'a> {
    /// A number.
    Float(&'a mut f64),
    /// A switch.
    Bool(&'a mut bool),
    /// A count.
    Count(&'a mut u64),
    /// A count that may be absent.
    OptionalCount(&'a mut Option<u64>),
    /// One of several variants.
    Choice(&'a mut dyn Choice),
}

impl<'a> From<&'a mut f64> for Setting<'a> {
    fn from(number: &'a mut f64) -> Setting<'a> {
        Setting::Float(number)
    }
}

impl<'a> From<&'a mut bool> for Setting<'a> {
    fn from(switch: &'a mut bool) -> Setting<'a> {
        Setting::Bool(switch)
    }
}

impl<'a> From<&'a mut u64> for Setting<'a> {
    fn from(count: &'a mut u64) -> Setting<'a> {
        Setting::Count(count)
    }
}

impl<'a> From<&'a mut Option<u64>> for Setting<'a> {
    fn from(count: &'a mut Option<u64>) -> Setting<'a> {
        Setting::OptionalCount(count)
    }
}

impl<'a, C: Choice> From<&'a mut C> for Setting<'a> {
    fn from(choice: &'a mut C) -> Setting<'a> {
        Setting::Choice(choice)
    }
}

/// Inside an `impl` of [`UpdateRule`](crate::UpdateRule): defines `lr` and `settings` from the names of the
/// struct's fields, in the order in which they are saved. An element of a tuple is named like `betas.0`.
///
/// ```
/// # struct Config { lr: f64, betas: (f64, f64), maximize: bool }
/// # impl Config {
/// optim::settings!(lr, betas.0, betas.1, maximize);
/// # }
/// # let mut config = Config { lr: 0.1, betas: (0.9, 0.99), maximize: false };
/// let names: Vec<&str> = config.settings().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["lr", "betas.0", "betas.1", "maximize"]);
/// # *config.lr() = 0.2;
/// ```
#[macro_export]
macro_rules! settings {
    ($($field:ident $(. $element:tt)?),+ $(,)?) => {
        fn lr(&mut self) -> &mut f64 {
            &mut self.lr
        }

        fn settings(&mut self) -> Vec<(&'static str, $crate::Setting<'_>)> {
            vec![$((
                concat!(stringify!($field) $(, ".", stringify!($element))?),
                $crate::Setting::from(&mut self.$field $(. $element)?),
            )),+]
        }
    };
}

/// An enum setting, saved by the number of its variant.
pub trait Choice: fmt::Debug {
    /// The number of the variant.
    fn number(&self) -> u64;

    /// Selects the variant with that number; false if there is none.
    #[must_use]
    fn choose(&mut self, number: u64) -> bool;
}

/// One part of a parameter's state, to be saved or loaded.
#[derive(Debug)]
pub enum Part<'a> {
    /// A tensor of the parameter's shape, present once the parameter has taken a step.
    Tensor(&'a mut Option<Tensor>),
    /// A tensor of the parameter's shape that some settings do not use.
    OptionalTensor(&'a mut Option<Tensor>),
    /// A tensor of another dtype than the parameter's, with a shape that follows from the parameter. Some
    /// settings do not use it.
    Derived {
        /// The tensor.
        tensor: &'a mut Option<Tensor>,
        /// Its dtype, which it keeps.
        dtype: DType,
        /// Its shape for a parameter.
        shape: fn(&Tensor) -> Vec<usize>,
    },
    /// A count, such as the number of steps.
    Count(&'a mut u64),
    /// A number.
    Float(&'a mut f64),
}

/// The state of one parameter. The default is the state before its first step.
pub trait ParamState: Clone + Default + fmt::Debug + Send + 'static {
    /// All parts by their names in PyTorch's state dict.
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)>;
}

/// The tensors of a state, to be replaced.
pub(crate) fn tensors(state: &mut impl ParamState) -> impl Iterator<Item = &mut Option<Tensor>> {
    state.parts().into_iter().filter_map(|(_, part)| match part {
        Part::Tensor(tensor) | Part::OptionalTensor(tensor) | Part::Derived { tensor, .. } => Some(tensor),
        Part::Count(_) | Part::Float(_) => None,
    })
}

/// Casts the tensors of a state that have the parameter's dtype.
pub(crate) fn cast_tensors(state: &mut impl ParamState, dtype: DType) -> Result<()> {
    for (_, part) in state.parts() {
        match part {
            Part::Tensor(Some(tensor)) | Part::OptionalTensor(Some(tensor)) => {
                *tensor = tensor.to_dtype(dtype)?;
            }
            Part::Tensor(None) | Part::OptionalTensor(None) => {}
            Part::Derived { .. } | Part::Count(_) | Part::Float(_) => {}
        }
    }
    Ok(())
}

/// Replaces each tensor of a state.
pub(crate) fn change_tensors(
    state: &mut impl ParamState,
    change: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    tensors(state).flatten().try_for_each(|tensor| {
        *tensor = change(tensor)?;
        Ok(())
    })
}

/// Saves the settings of a group, under PyTorch's names.
pub(crate) fn save_settings(
    state: &mut State,
    g: usize,
    settings: Vec<(&'static str, Setting<'_>)>,
    parameters: usize,
) {
    for (name, setting) in settings {
        let value: StateValue = match setting {
            Setting::Float(value) => (*value).into(),
            Setting::Bool(value) => (*value).into(),
            Setting::Count(value) | Setting::OptionalCount(Some(value)) => (*value).into(),
            Setting::OptionalCount(None) => continue,
            Setting::Choice(choice) => choice.number().into(),
        };
        state.insert(format!("param_groups.{g}.{name}"), value);
    }
    state.insert(format!("param_groups.{g}.params"), parameters);
}

/// Loads the settings of a group; mismatches are recorded in the reader.
pub(crate) fn load_settings(
    reader: &mut StateReader<'_>,
    g: usize,
    settings: Vec<(&'static str, Setting<'_>)>,
    parameters: usize,
) {
    for (name, setting) in settings {
        let name = format!("param_groups.{g}.{name}");
        match setting {
            Setting::Float(value) => *value = reader.float(&name),
            Setting::Bool(value) => *value = reader.bool(&name),
            Setting::Count(value) => *value = count(reader, &name),
            Setting::OptionalCount(value) => *value = reader.has(&name).then(|| count(reader, &name)),
            Setting::Choice(choice) => {
                let number = reader.word(&name);
                if !choice.choose(number) {
                    reader.mismatch(format!("{name}: there is no choice {number}"));
                }
            }
        }
    }
    let name = format!("param_groups.{g}.params");
    // Recorded as missing if it is.
    let found = reader.word(&name);
    if reader.has(&name) && found != parameters as u64 {
        reader.mismatch(format!("{name}: {found} parameters, this group has {parameters}"));
    }
}

/// Saves the state of one parameter, if it has any.
pub(crate) fn save_state<S: ParamState>(dict: &mut State, index: usize, state: &Option<S>) {
    for (name, part) in state.clone().iter_mut().flat_map(ParamState::parts) {
        let value: StateValue = match part {
            Part::Tensor(Some(tensor))
            | Part::OptionalTensor(Some(tensor))
            | Part::Derived { tensor: Some(tensor), .. } => tensor.clone().into(),
            Part::Tensor(None) | Part::OptionalTensor(None) | Part::Derived { tensor: None, .. } => continue,
            Part::Count(value) => (*value).into(),
            Part::Float(value) => (*value).into(),
        };
        dict.insert(format!("state.{index}.{name}"), value);
    }
}

/// Reads a count; a negative number is recorded as a mismatch.
pub(crate) fn count(reader: &mut StateReader<'_>, name: &str) -> u64 {
    let value = reader.int(name);
    if value < 0 {
        reader.mismatch(format!("{name}: the integer {value} where a count is expected"));
    }
    value.unsigned_abs()
}

/// Reads a tensor with the shape and dtype of `like`; recorded as missing if there is none.
pub(crate) fn required(reader: &mut StateReader<'_>, name: &str, like: &Tensor) -> Option<Tensor> {
    if !reader.has(name) {
        reader.float(name);
    }
    reader.tensor_like(name, like).cloned()
}

/// A loaded tensor moved to the device and computed.
pub(crate) fn settled(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    let tensor = no_grad(|| tensor.detach().to(device))?;
    tensor.eval()?;
    Ok(tensor)
}

/// Loads the state of one parameter, if any was saved; mismatches are recorded in the reader.
pub(crate) fn load_state<S: ParamState>(
    reader: &mut StateReader<'_>,
    index: usize,
    parameter: &Tensor,
) -> Option<S> {
    let mut state = S::default();
    let under = |name: &str| format!("state.{index}.{name}");
    if !state.parts().iter().any(|(name, _)| reader.has(&under(name))) {
        return None;
    }
    for (name, part) in state.parts() {
        let name = under(name);
        match part {
            Part::Tensor(tensor) => *tensor = required(reader, &name, parameter),
            Part::OptionalTensor(tensor) => *tensor = reader.tensor_like(&name, parameter).cloned(),
            Part::Derived { tensor, dtype, shape } => {
                if reader.has(&name) {
                    match Tensor::zeros(shape(parameter), (dtype, &parameter.device())) {
                        Ok(like) => *tensor = reader.tensor_like(&name, &like).cloned(),
                        Err(error) => reader.mismatch(format!("{name}: {error}")),
                    }
                }
            }
            Part::Count(value) => *value = count(reader, &name),
            Part::Float(value) => *value = reader.float(&name),
        }
    }
    Some(state)
}
