//! [`Module`]: anything that holds parameters. Two methods say what it holds (the derive macro writes them);
//! the rest follows: lists, state dicts, moving between devices, training and evaluation.

use std::collections::{BTreeMap, HashMap, HashSet};

use tensor_core::{Device, Error, ErrorKind, Result, Tensor, set_grad_enabled};

use crate::{Entry, Role, Visitor, VisitorMut};

/// Tensors by name: `fc1.weight`. A snapshot, which later training does not change.
pub type StateDict = BTreeMap<String, Tensor>;

/// What a lenient load left out. See [`Module::load_matching`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Names that the module has and the dict lacks: these kept their values.
    pub missing: Vec<String>,
    /// Names that the dict has and the module lacks: these were not read.
    pub unexpected: Vec<String>,
}

/// Something with parameters: a layer, a network, a list of layers. `torch.nn.Module`.
///
/// `#[derive(Module)]` writes it for a struct: every field that is a module takes part under its own name. By hand, the
/// two methods name the same fields in the same order:
///
/// ```
/// use nn::{Linear, Module, Visitor, VisitorMut};
///
/// struct Net { fc1: Linear, fc2: Linear }
///
/// impl Module for Net {
///     fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
///         visitor.field("fc1", &self.fc1);
///         visitor.field("fc2", &self.fc2);
///     }
///     fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
///         visitor.field("fc1", &mut self.fc1);
///         visitor.field("fc2", &mut self.fc2);
///     }
/// }
/// ```
///
/// A [`Tensor`] in a field is a parameter where it is a cell that wants gradients, and a buffer where it is another cell.
/// One that stays a parameter while it is frozen is a [`crate::Parameter`], or is shown by [`Visitor::parameter`].
pub trait Module {
    /// Shows every tensor to the visitor.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>);

    /// Shows every tensor and training flag to the visitor, to be changed; in the order of [`Module::visit`].
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>);

    /// The parameters, for an optimizer. One that is used in several places is listed once.
    fn parameters(&self) -> Vec<Tensor> {
        distinct(self.entries_of(Role::Parameter)).into_iter().map(|e| e.tensor.clone()).collect()
    }

    /// The parameters with their names. One that is used in several places has the first of its names.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        distinct(self.entries_of(Role::Parameter)).into_iter().map(|e| (e.name, e.tensor.clone())).collect()
    }

    /// The buffers: state that is not trained.
    fn buffers(&self) -> Vec<Tensor> {
        distinct(self.entries_of(Role::Buffer)).into_iter().map(|e| e.tensor.clone()).collect()
    }

    /// The buffers with their names.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        distinct(self.entries_of(Role::Buffer)).into_iter().map(|e| (e.name, e.tensor.clone())).collect()
    }

    /// How many numbers the parameters hold together.
    fn num_parameters(&self) -> usize {
        distinct(self.entries_of(Role::Parameter)).iter().map(|e| e.tensor.numel()).sum()
    }

    /// The values of all parameters and buffers, by name. One that is used in several places is there under each name,
    /// as in PyTorch. Unlike PyTorch's, the values are a snapshot.
    fn state_dict(&self) -> StateDict {
        self.state().into_iter().map(|e| (e.name, e.tensor.detach())).collect()
    }

    /// Takes over the values of a state dict, which must have exactly this module's names, shapes and dtypes.
    /// The values are moved to the devices of the parameters. Gradients and optimizers are not touched.
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] with all that is missing, unexpected or misshapen; or a value that cannot be computed or
    /// moved. The module is as it was then.
    #[track_caller]
    fn load_state_dict(&self, dict: &StateDict) -> Result<()> {
        load(&self.state(), dict, true).map(drop)
    }

    /// Takes over those values of a state dict that this module has a name for, and says what did not match.
    /// PyTorch's `load_state_dict(strict=False)`.
    ///
    /// # Errors
    /// A shape or dtype that differs under a shared name, or a value that cannot be computed or moved. The module is as
    /// it was then.
    #[track_caller]
    fn load_matching(&self, dict: &StateDict) -> Result<Unmatched> {
        load(&self.state(), dict, false)
    }

    /// Moves all parameters, their gradients, and buffers to `device`, in place. Optimizers and other holders of the
    /// parameters see them there.
    ///
    /// # Errors
    /// No memory there, or a dtype that it lacks. Nothing has moved then.
    #[track_caller]
    fn to(&mut self, device: &Device) -> Result<()> {
        let mut visitor = VisitorMut::new();
        self.visit_mut(&mut visitor);
        set_grad_enabled(false, || move_all(visitor.parts().0, device))
    }

    /// Sets every layer to training: dropout drops.
    fn train(&mut self) {
        set_training(self, true);
    }

    /// Sets every layer to evaluation: dropout lets all through.
    fn eval(&mut self) {
        set_training(self, false);
    }

    /// Clears the gradients of all parameters.
    fn zero_grad(&self) {
        self.entries_of(Role::Parameter).iter().for_each(|e| e.tensor.set_grad(None));
    }

    /// Sets whether the parameters want gradients: `false` freezes them, and they stay parameters where the module says
    /// so (its layers and [`crate::Parameter`]s do).
    ///
    /// # Errors
    /// Gradients asked for parameters of an integer dtype.
    #[track_caller]
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        self.entries_of(Role::Parameter).iter().try_for_each(|e| e.tensor.set_requires_grad(requires_grad))
    }

    /// The tensors of one role, in order, repeated where they are used repeatedly.
    #[doc(hidden)]
    fn entries_of(&self, role: Role) -> Vec<Entry<'_>> {
        let mut visitor = Visitor::new();
        self.visit(&mut visitor);
        visitor.entries().into_iter().filter(|e| e.role == role).collect()
    }

    /// Parameters and buffers, in order.
    #[doc(hidden)]
    fn state(&self) -> Vec<Entry<'_>> {
        let mut visitor = Visitor::new();
        self.visit(&mut visitor);
        visitor.entries().into_iter().filter(|e| e.role != Role::Constant).collect()
    }
}

/// Each tensor once, under its first name.
fn distinct(mut entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.tensor.id()));
    entries
}

fn set_training<M: Module + ?Sized>(module: &mut M, training: bool) {
    let mut visitor = VisitorMut::new();
    module.visit_mut(&mut visitor);
    visitor.parts().1.into_iter().for_each(|flag| *flag = training);
}

/// Checks everything, then moves everything, then assigns: a failure leaves the module as it was.
#[track_caller]
fn load(state: &[Entry<'_>], dict: &StateDict, strict: bool) -> Result<Unmatched> {
    let mut unmatched = Unmatched::default();
    let mut mismatched = Vec::new();
    let mut pairs = Vec::new();
    for entry in state {
        let Some(value) = dict.get(&entry.name) else {
            unmatched.missing.push(entry.name.clone());
            continue;
        };
        if value.shape() != entry.tensor.shape() || value.dtype() != entry.tensor.dtype() {
            mismatched.push(format!(
                "{}: {} {} in the dict, {} {} in the module",
                entry.name,
                value.dtype(),
                value.shape(),
                entry.tensor.dtype(),
                entry.tensor.shape()
            ));
        }
        pairs.push((entry.tensor, value));
    }
    let names: HashSet<&str> = state.iter().map(|entry| entry.name.as_str()).collect();
    unmatched.unexpected = dict.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
    let misfit = strict && unmatched != Unmatched::default();
    if misfit || !mismatched.is_empty() {
        let Unmatched { missing, unexpected } = unmatched;
        return Err(Error::new(ErrorKind::StateDict { missing, unexpected, mismatched }));
    }
    set_grad_enabled(false, || {
        let mut values = Vec::with_capacity(pairs.len());
        for (target, value) in pairs {
            let value = value.to(&target.device())?;
            value.eval()?;
            values.push((target, value));
        }
        values.into_iter().try_for_each(|(target, value)| target.assign(&value))
    })?;
    Ok(unmatched)
}

/// Copies everything to `device`, and only then lets the module have it.
#[track_caller]
fn move_all(tensors: Vec<(String, &mut Tensor)>, device: &Device) -> Result<()> {
    // By id, so that a tensor used in several places is moved once and stays shared.
    let mut moved: HashMap<u64, (Tensor, Option<Tensor>)> = HashMap::new();
    for (_, tensor) in &tensors {
        if tensor.device() != *device && !moved.contains_key(&tensor.id()) {
            let grad = tensor.grad().map(|grad| grad.to(device)).transpose()?;
            moved.insert(tensor.id(), (tensor.to(device)?, grad));
        }
    }
    for (_, tensor) in tensors {
        let Some((value, grad)) = moved.get(&tensor.id()) else { continue };
        if tensor.is_cell() {
            tensor.assign(value)?;
            tensor.set_grad(grad.clone());
        } else {
            *tensor = value.clone();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_can_be_an_object() {
        let none: Box<dyn Module> = Box::new(Vec::<Tensor>::new());
        assert!(none.parameters().is_empty() && none.state_dict().is_empty());
        assert_eq!(none.num_parameters(), 0);
    }
}
