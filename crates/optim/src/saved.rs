//! What an optimizer saves and loads: the settings of a group, and what is kept of a parameter, each part by
//! its name.

use std::fmt;

use autograd::no_grad;
use tensor_core::{Device, Result, State, StateReader, StateValue, Tensor};

/// One setting of an optimizer, to be saved or loaded.
#[derive(Debug)]
pub enum Setting<'a> {
    /// A number.
    Float(&'a mut f64),
    /// A switch.
    Bool(&'a mut bool),
    /// How many.
    Count(&'a mut u64),
    /// How many, if that is given.
    OptionalCount(&'a mut Option<u64>),
    /// One of several ways.
    Choice(&'a mut dyn Choice),
}

/// One of several ways, saved by its number.
pub trait Choice: fmt::Debug {
    /// The number of the way.
    fn number(&self) -> u64;

    /// Takes the way of that number; false if there is none.
    #[must_use]
    fn choose(&mut self, number: u64) -> bool;
}

/// One part of what an optimizer keeps of a parameter, to be saved or loaded.
#[derive(Debug)]
pub enum Part<'a> {
    /// A tensor like the parameter, which is there once the parameter has taken a step.
    Tensor(&'a mut Option<Tensor>),
    /// A tensor like the parameter, which some settings do without.
    OptionalTensor(&'a mut Option<Tensor>),
    /// How many, such as the steps taken.
    Count(&'a mut u64),
    /// A number.
    Float(&'a mut f64),
}

/// What an optimizer keeps of one parameter. The default is that of a parameter that has taken no step.
pub trait ParamState: Clone + Default + fmt::Debug {
    /// All parts by their names in PyTorch's state dict.
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)>;
}

/// The places of a state's tensors.
pub(crate) fn tensors(state: &mut impl ParamState) -> impl Iterator<Item = &mut Option<Tensor>> {
    state.parts().into_iter().filter_map(|(_, part)| match part {
        Part::Tensor(tensor) | Part::OptionalTensor(tensor) => Some(tensor),
        Part::Count(_) | Part::Float(_) => None,
    })
}

/// Puts another tensor in the place of each tensor of a state.
pub(crate) fn change_tensors(
    state: &mut impl ParamState,
    change: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    tensors(state).flatten().try_for_each(|tensor| {
        *tensor = change(tensor)?;
        Ok(())
    })
}

/// The settings of a group, under PyTorch's names.
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

/// The settings of a group as they were saved; what does not fit is noted.
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
    // Noted as missing if it is.
    let found = reader.word(&name);
    if reader.has(&name) && found != parameters as u64 {
        reader.mismatch(format!("{name}: {found} parameters, this group has {parameters}"));
    }
}

/// What is kept of one parameter, if anything is.
pub(crate) fn save_state<S: ParamState>(dict: &mut State, index: usize, state: &Option<S>) {
    for (name, part) in state.clone().iter_mut().flat_map(ParamState::parts) {
        let value: StateValue = match part {
            Part::Tensor(Some(tensor)) | Part::OptionalTensor(Some(tensor)) => tensor.clone().into(),
            Part::Tensor(None) | Part::OptionalTensor(None) => continue,
            Part::Count(value) => (*value).into(),
            Part::Float(value) => (*value).into(),
        };
        dict.insert(format!("state.{index}.{name}"), value);
    }
}

/// A number of times; a negative one is noted.
pub(crate) fn count(reader: &mut StateReader<'_>, name: &str) -> u64 {
    let value = reader.int(name);
    if value < 0 {
        reader.mismatch(format!("{name}: the integer {value} where a count is expected"));
    }
    value.unsigned_abs()
}

/// The tensor of that name, which is like another; noted as missing if there is none.
pub(crate) fn required(reader: &mut StateReader<'_>, name: &str, like: &Tensor) -> Option<Tensor> {
    if !reader.has(name) {
        reader.float(name);
    }
    reader.tensor_like(name, like).cloned()
}

/// A tensor of a loaded state where it is needed, with its value.
pub(crate) fn settled(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    let tensor = no_grad(|| tensor.detach().to(device))?;
    tensor.eval()?;
    Ok(tensor)
}

/// What was saved of one parameter, if anything was; what does not fit is noted.
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
            Part::Count(value) => *value = count(reader, &name),
            Part::Float(value) => *value = reader.float(&name),
        }
    }
    Some(state)
}
