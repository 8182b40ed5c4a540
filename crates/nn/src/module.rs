//! [`Module`]: anything that has parameters. Two methods list its contents (the derive macro writes them);
//! the provided methods do the rest: lists, state dicts, moving between devices, training and evaluation.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

use tensor_core::{
    DType, Device, Error, ErrorKind, Result, State, Stateful, Tensor, caller_line, eval_all, few,
    note_parameter_names, set_grad_enabled,
};

use crate::{
    Entry, NameMap, Role, StateDict, TensorSource, Visitor, VisitorMut, lora::Targets, names::with_origins,
};

/// The names that a lenient load did not match. See [`Module::load_matching`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// Names that the module has and the dict lacks; these tensors kept their values.
    pub missing: Vec<String>,
    /// Names that the dict has and the module lacks; these were ignored.
    pub unexpected: Vec<String>,
}

/// A type with parameters: a layer, a network, a list of layers. `torch.nn.Module`.
///
/// `#[derive(Module)]` implements it for a struct: every field is visited under its own name, and a field
/// whose type might hold parameters but is no module does not compile (see [`crate::Field`]). An
/// implementation by hand visits the same fields in both methods:
///
/// ```
/// use nn::{Linear, Module, Visitor, VisitorMut};
///
/// struct Net { fc1: Linear, fc2: Linear }
///
/// impl Module for Net {
///     fn visit(&self, visitor: &mut Visitor) {
///         visitor.field("fc1", &self.fc1);
///         visitor.field("fc2", &self.fc2);
///     }
///     fn visit_mut(&mut self, visitor: &mut VisitorMut) {
///         visitor.field("fc1", &mut self.fc1);
///         visitor.field("fc2", &mut self.fc2);
///     }
/// }
/// ```
///
/// A parameter in a field is a [`crate::Parameter`]. A [`Tensor`] is a parameter too if it requires
/// gradients, or did before it was frozen, and a buffer if it is another cell, made by `.into_cell(false)?`.
/// Any other tensor is neither trained nor saved: [`Module::parameters`] warns about it on standard error,
/// once for each name, unless the field is marked `#[module(constant)]` ([`Visitor::constant`]).
///
/// Lists and maps of modules are modules: `Vec<Linear>` for `torch.nn.ModuleList`, `BTreeMap<String, Box<dyn
/// Layer>>` and `HashMap` for `torch.nn.ModuleDict`, `Vec<Parameter>` for `torch.nn.ParameterList`. Their
/// elements are named by index or key: `layers.0.weight`.
///
/// # Clones
/// A clone of a layer shares its parameters, as a clone of a tensor shares its value: this is how weights
/// are tied. [`Module::deep_copy`] makes independent parameters, as `copy.deepcopy` does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a module nor plain data: its parameters, if it has any, would not be trained, moved or saved",
    label = "not known to be a module or plain data",
    note = "if `{Self}` holds layers or tensors, or is a struct or enum of plain data: `#[derive(Module)]` for it",
    note = "if it holds nothing to train, move or save: mark the field `#[module(skip)]`"
)]
#[doc(alias("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"))]
pub trait Module {
    /// Passes every tensor, training flag and generator to the visitor.
    fn visit(&self, visitor: &mut Visitor);

    /// Passes every tensor to the visitor, which may replace it.
    fn visit_mut(&mut self, visitor: &mut VisitorMut);

    /// The parameters, for an optimizer. A parameter that is used in several places is listed once. Frozen
    /// ones are included, as in PyTorch: see [`Module::trainable_parameters`].
    fn parameters(&self) -> Vec<Tensor> {
        warn_of_undeclared::<Self>(&self.undeclared_tensors());
        named(distinct(self.entries_of(Role::Parameter))).map(|(_, tensor)| tensor).collect()
    }

    /// The parameters that require gradients, without frozen ones. PyTorch's `[p for p in model.parameters()
    /// if p.requires_grad]`.
    fn trainable_parameters(&self) -> Vec<Tensor> {
        let mut parameters = self.parameters();
        parameters.retain(Tensor::is_tracked);
        parameters
    }

    /// Whether any parameter requires gradients: false for a module without parameters, and after
    /// [`Module::freeze`]. [`Module::frozen_parameters`] names those that do not.
    ///
    /// ```
    /// use nn::{Linear, Module, Sequential, lora::Targets};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let net = Sequential::new().add(Linear::new(4, 8, &rng)?).add(Linear::new(8, 2, &rng)?);
    /// net.set_requires_grad_matching(&Targets::Glob("0.*".into()), false)?;
    /// assert!(net.is_trainable());
    /// assert_eq!(net.frozen_parameters(), ["0.weight", "0.bias"]);
    /// net.freeze()?;
    /// assert!(!net.is_trainable());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "requires_grad")]
    fn is_trainable(&self) -> bool {
        self.entries_of(Role::Parameter).iter().any(|entry| entry.tensor.is_tracked())
    }

    /// The names of the parameters that do not require gradients: those that were frozen.
    fn frozen_parameters(&self) -> Vec<String> {
        let frozen = distinct(self.entries_of(Role::Parameter)).into_iter();
        frozen.filter(|entry| !entry.tensor.is_tracked()).map(|entry| entry.name).collect()
    }

    /// The names of tensors that are neither parameters nor buffers, nor declared as constants: they move
    /// with the module, but are neither trained nor saved, which is probably a mistake.
    /// [`Module::parameters`] warns about them.
    ///
    /// ```
    /// use nn::{Module, Parameter};
    /// use tensor_core::Tensor;
    ///
    /// #[derive(Module)]
    /// struct Net {
    ///     weight: Parameter,
    ///     forgotten: Tensor,
    ///     #[module(constant)]
    ///     table: Tensor,
    /// }
    ///
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let tensor = || Tensor::ones(2, &device);
    /// let net = Net { weight: Parameter::new(tensor()?)?, forgotten: tensor()?, table: tensor()? };
    /// assert_eq!(net.undeclared_tensors(), ["forgotten"]);
    /// # Ok(()) }
    /// ```
    fn undeclared_tensors(&self) -> Vec<String> {
        entries(self).into_iter().filter(|entry| !entry.declared).map(|entry| entry.name).collect()
    }

    /// The parameters with their names. A parameter that is used in several places has the first of its
    /// names.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        warn_of_undeclared::<Self>(&self.undeclared_tensors());
        named(distinct(self.entries_of(Role::Parameter))).collect()
    }

    /// The parameters whose names `targets` selects, for a group of an optimizer.
    ///
    /// ```
    /// use nn::{Linear, Module, Sequential, lora::Targets};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let net = Sequential::new().add(Linear::new(4, 8, &rng)?).add(Linear::new(8, 2, &rng)?);
    /// assert_eq!(net.parameters_matching(&["bias"].into())?.len(), 2); // 0.bias and 1.bias
    /// assert_eq!(net.parameters_matching(&Targets::Glob("1.*".into()))?.len(), 2);
    /// assert_eq!(net.parameters_except(&Targets::Regex(r"\d+\.bias".into()))?.len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No parameter with such a name, which the error answers with the first names that there are; an
    /// invalid regular expression; [`Targets::AllLinear`], which selects layers and not parameters.
    #[track_caller]
    fn parameters_matching(&self, targets: &Targets) -> Result<Vec<Tensor>> {
        Ok(matching(self.named_parameters(), targets)?.0)
    }

    /// The parameters whose names `targets` does not select: those that [`Module::parameters_matching`]
    /// leaves out.
    ///
    /// # Errors
    /// As for [`Module::parameters_matching`].
    #[track_caller]
    fn parameters_except(&self, targets: &Targets) -> Result<Vec<Tensor>> {
        Ok(matching(self.named_parameters(), targets)?.1)
    }

    /// The buffers: state that is not trained.
    fn buffers(&self) -> Vec<Tensor> {
        distinct(self.entries_of(Role::Buffer)).into_iter().map(|e| e.tensor).collect()
    }

    /// The buffers with their names.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        distinct(self.entries_of(Role::Buffer)).into_iter().map(|e| (e.name, e.tensor)).collect()
    }

    /// The number of elements of all parameters, including frozen ones.
    fn num_parameters(&self) -> usize {
        distinct(self.entries_of(Role::Parameter)).iter().map(|e| e.tensor.numel()).sum()
    }

    /// The values of all parameters and buffers, by name. A tensor that is used in several places is listed
    /// under each name, as in PyTorch. Unlike PyTorch's, the values are a snapshot.
    fn state_dict(&self) -> StateDict {
        self.state().into_iter().map(|e| (e.name, e.tensor.detach())).collect()
    }

    /// Loads the values of a state dict or of another [`TensorSource`], such as a file, which must have
    /// exactly this module's names and shapes. Values are moved to the devices of the parameters, and cast
    /// to their dtypes: floating-point and integer values to floating-point ones, and integers to integer
    /// dtypes that can represent them. Gradients and optimizers are not changed.
    ///
    /// A parameter that the module uses in several places is found under any of its names. If the dict's
    /// names differ from the module's, see [`Module::load_mapped`].
    ///
    /// # Memory
    /// A file's tensors are read and assigned one by one, so loading takes the memory of one tensor beside
    /// the module's own. For a module made in [`crate::skip_init`], no initial values are computed before.
    ///
    /// # Errors
    /// `StateDict` with the names that are missing, unexpected, of another shape or of a dtype that cannot
    /// be cast; or a value that cannot be computed or moved. The module is unchanged then, unless a file
    /// cannot be read to its end: the tensors before that place are loaded.
    #[track_caller]
    fn load_state_dict(&self, dict: &dyn TensorSource) -> Result<()> {
        let _line = caller_line();
        load(&self.state(), dict, true).map(drop)
    }

    /// Loads those values of a state dict, or of a file, whose names this module has, and returns the names
    /// that did not match. PyTorch's `load_state_dict(strict=False)`.
    ///
    /// ```
    /// use nn::{Linear, Module, StateDict};
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let layer = Linear::new(2, 2, &Generator::seed(0, &device))?;
    /// let dict = StateDict::from([("bias".to_string(), Tensor::ones(2, &device)?)]);
    /// let unmatched = layer.load_matching(&dict)?;
    /// assert_eq!(unmatched.missing, ["weight"]); // which keeps its value
    /// assert!(unmatched.unexpected.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A shape that differs under a common name or a dtype that cannot be cast, or a value that cannot be
    /// computed or moved. The module is unchanged then, as for [`Module::load_state_dict`].
    #[track_caller]
    fn load_matching(&self, dict: &dyn TensorSource) -> Result<Unmatched> {
        let _line = caller_line();
        load(&self.state(), dict, false)
    }

    /// As [`Module::load_state_dict`], for a dict or file whose names `names` maps to those of this module.
    ///
    /// ```
    /// use nn::{Linear, Module, NameMap, StateDict};
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let layer = Linear::new(2, 1, &Generator::seed(0, &device))?;
    /// let dict = StateDict::from([
    ///     ("module.fc.kernel".to_string(), Tensor::new([[1.0f32, 2.0]], &device)?),
    ///     ("module.fc.bias".to_string(), Tensor::new([0.5f32], &device)?),
    /// ]);
    /// layer.load_mapped(&dict, &NameMap::new().strip("module.fc.").rename("kernel", "weight"))?;
    /// assert_eq!(layer.weight.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Module::load_state_dict`], with the dict's names beside the mapped ones, and those of
    /// [`NameMap::apply`].
    #[track_caller]
    fn load_mapped(&self, dict: &dyn TensorSource, names: &NameMap) -> Result<()> {
        let _line = caller_line();
        let mapped = names.source(dict)?;
        match load(&self.state(), &mapped, true) {
            Ok(_) => Ok(()),
            Err(error) => Err(with_origins(error, mapped.origins())),
        }
    }

    /// The positions of the module's random streams (those of its dropout layers): `drop.seed`,
    /// `drop.offset`. Together with [`Module::state_dict`] it is all that a resumed training needs of a
    /// module.
    ///
    /// It is separate from the state dict, as PyTorch's generator states are, so that the names of the state
    /// dict are those of parameters and buffers only. [`crate::Checkpoint`] saves both.
    fn rng_state(&self) -> State {
        let mut all = State::new();
        for (path, generator) in generators(self) {
            all.extend_under(&path, generator.state_dict());
        }
        all
    }

    /// Restores the random streams to the positions that [`Module::rng_state`] returned.
    ///
    /// # Errors
    /// `StateDict` if these are not this module's streams. Nothing has changed then.
    #[track_caller]
    fn load_rng_state(&self, state: &State) -> Result<()> {
        let _line = caller_line();
        let mut reader = state.reader();
        let mut found = Vec::new();
        for (path, generator) in generators(self) {
            let mut word = |name: &str| match path.as_str() {
                "" => reader.word(name),
                path => reader.word(&format!("{path}.{name}")),
            };
            found.push((generator, word("seed"), word("offset")));
        }
        reader.finish()?;
        found.into_iter().for_each(|(generator, seed, offset)| generator.set_seed_and_offset(seed, offset));
        Ok(())
    }

    /// Moves all parameters, their gradients, and buffers to `device`, in place. Optimizers and other
    /// holders of the parameters see the moved ones.
    ///
    /// # Errors
    /// Too little memory, a dtype that the device lacks, or a constant (a tensor that is no parameter or
    /// buffer) behind a pointer with other owners. Nothing has moved then.
    #[track_caller]
    fn to(&mut self, device: &Device) -> Result<()> {
        let _line = caller_line();
        let entries = entries(self);
        let replacements = set_grad_enabled(false, || move_all(&entries, device))?;
        self.visit_mut(&mut VisitorMut::new(replacements));
        Ok(())
    }

    /// Sets every layer to training mode: dropout is on.
    fn train(&self) {
        self.visit(&mut Visitor::setting(true));
    }

    /// Sets every layer to evaluation mode: dropout is off.
    fn eval(&self) {
        self.visit(&mut Visitor::setting(false));
    }

    /// Clears the gradients of all parameters.
    fn zero_grad(&self) {
        self.entries_of(Role::Parameter).iter().for_each(|e| e.tensor.set_grad(None));
    }

    /// Sets whether the parameters require gradients: `false` freezes them, and they stay parameters.
    ///
    /// # Errors
    /// `requires_grad` for parameters of an integer dtype.
    #[track_caller]
    fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let _line = caller_line();
        self.entries_of(Role::Parameter).iter().try_for_each(|e| e.tensor.set_requires_grad(requires_grad))
    }

    /// Freezes the parameters, so that they do not require gradients: [`Module::set_requires_grad`] with
    /// false. For a part of a model: `model.encoder.freeze()?`.
    ///
    /// # Errors
    /// None for floating-point parameters.
    #[track_caller]
    #[doc(alias = "requires_grad_")]
    fn freeze(&self) -> Result<()> {
        self.set_requires_grad(false)
    }

    /// Freezes the parameters whose names `targets` selects, or with `true` undoes it.
    ///
    /// ```
    /// use nn::{Linear, Module, Sequential, lora::Targets};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let net = Sequential::new().add(Linear::new(4, 8, &rng)?).add(Linear::new(8, 2, &rng)?);
    /// net.set_requires_grad_matching(&Targets::Glob("0.*".into()), false)?;
    /// assert_eq!(net.trainable_parameters().len(), 2); // those of the last layer
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Module::parameters_matching`] and [`Module::set_requires_grad`].
    #[track_caller]
    fn set_requires_grad_matching(&self, targets: &Targets, requires_grad: bool) -> Result<()> {
        self.parameters_matching(targets)?.iter().try_for_each(|p| p.set_requires_grad(requires_grad))
    }

    /// Undoes [`Module::freeze`].
    ///
    /// # Errors
    /// Parameters of an integer dtype.
    #[track_caller]
    fn unfreeze(&self) -> Result<()> {
        self.set_requires_grad(true)
    }

    /// Calls `f` with each parameter and its name, each parameter once, without recording: for initial
    /// values, as with `torch.nn.Module.apply`. (PyTorch's calls `f` with modules, which have no common type
    /// here.)
    ///
    /// ```
    /// use nn::{Linear, Module};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let layer = Linear::new(2, 3, &Generator::seed(0, &backend_cpu::cpu()))?;
    /// layer.apply(&mut |name, parameter| match name.ends_with("bias") {
    ///     true => parameter.assign(&parameter.zeros_like()),
    ///     false => Ok(()),
    /// })?;
    /// assert_eq!(layer.bias.as_ref().unwrap().to_vec::<f32>()?, [0.0; 3]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The first error of `f`; later parameters are not visited.
    #[track_caller]
    fn apply(&self, f: &mut dyn FnMut(&str, &Tensor) -> Result<()>) -> Result<()> {
        let parameters = self.named_parameters();
        set_grad_enabled(false, || parameters.iter().try_for_each(|(name, parameter)| f(name, parameter)))
    }

    /// An independent copy with the same values: training one does not change the other. Tied parameters are
    /// tied in the copy too. Gradients are not copied. `copy.deepcopy`.
    ///
    /// ```
    /// use nn::{Linear, Module};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let layer = Linear::new(2, 2, &Generator::seed(0, &backend_cpu::cpu()))?;
    /// let (shared, copy) = (layer.clone(), layer.deep_copy()?);
    /// layer.weight.assign(&layer.weight.zeros_like())?;
    /// assert_eq!(shared.weight.to_vec::<f32>()?, [0.0; 4]);
    /// assert_ne!(copy.weight.to_vec::<f32>()?, [0.0; 4]);
    /// # Ok(()) }
    /// ```
    ///
    /// Random streams, which clones share, are shared with the copy.
    ///
    /// # Errors
    /// A value that cannot be computed, or a parameter or buffer behind a pointer (`Arc`, `Rc`), which a
    /// clone would share.
    #[track_caller]
    fn deep_copy(&self) -> Result<Self>
    where
        Self: Clone + Sized,
    {
        let mut copy = self.clone();
        let mut replacements = HashMap::new();
        for entry in entries(&copy) {
            if !entry.tensor.is_cell() {
                continue;
            }
            if entry.shared {
                let message =
                    format!("{} is behind a pointer, which a clone shares: it cannot be copied", entry.name);
                return Err(Error::invalid("deep_copy", message));
            }
            let value = entry.tensor.detach();
            value.eval()?;
            // A frozen parameter stays frozen, and a parameter.
            let cell = value.into_cell(entry.tensor.is_parameter())?;
            cell.set_requires_grad(entry.tensor.is_tracked())?;
            replacements.insert(entry.tensor.id(), cell);
        }
        copy.visit_mut(&mut VisitorMut::copying(replacements));
        Ok(copy)
    }

    /// The tensors of one role, in order, repeated if they are used repeatedly.
    #[doc(hidden)]
    fn entries_of(&self, role: Role) -> Vec<Entry> {
        entries(self).into_iter().filter(|e| e.role == role).collect()
    }

    /// Parameters and buffers, in order.
    #[doc(hidden)]
    fn state(&self) -> Vec<Entry> {
        entries(self).into_iter().filter(|e| e.role != Role::Constant).collect()
    }
}

fn entries<M: Module + ?Sized>(module: &M) -> Vec<Entry> {
    let mut visitor = Visitor::new();
    module.visit(&mut visitor);
    visitor.entries()
}

/// Warns on standard error about tensors of a module that are neither trained nor saved, once for each type
/// and name.
fn warn_of_undeclared<M: ?Sized>(names: &[String]) {
    static SAID: Mutex<BTreeSet<(&str, String)>> = Mutex::new(BTreeSet::new());
    for name in names {
        let module = std::any::type_name::<M>();
        if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert((module, name.clone())) {
            // A closed stderr is not an error.
            let _ = writeln!(
                io::stderr(),
                "taper: {module}: the tensor \"{name}\" is neither a parameter nor a buffer, and so neither trained nor saved. Make it \
                 nn::Parameter::new(tensor)?, a buffer by .into_cell(false)?, or mark its field #[module(constant)]"
            );
        }
    }
}

fn generators<M: Module + ?Sized>(module: &M) -> Vec<(String, tensor_core::Generator)> {
    let mut visitor = Visitor::new();
    module.visit(&mut visitor);
    visitor.generators()
}

/// The parameters with their names, which are noted for messages of optimizers.
fn named(entries: Vec<Entry>) -> impl Iterator<Item = (String, Tensor)> {
    note_parameter_names(entries.iter().map(|entry| (entry.tensor.id(), entry.name.as_str())));
    entries.into_iter().map(|entry| (entry.name, entry.tensor))
}

/// Each tensor once, under its first name.
fn distinct(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.tensor.id()));
    entries
}

/// The parameters that the targets select, and the others.
#[track_caller]
fn matching(named: Vec<(String, Tensor)>, targets: &Targets) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    const OP: &str = "parameters_matching";
    let names: Vec<String> = named.iter().map(|(name, _)| name.clone()).collect();
    let selects = targets.selector(OP)?;
    let (fitting, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|(name, _)| selects(name));
    if fitting.is_empty() {
        let message = format!("{targets:?} selects none of the parameters {}", few(&names));
        return Err(Error::invalid(OP, message));
    }
    let tensors = |named: Vec<(String, Tensor)>| named.into_iter().map(|(_, tensor)| tensor).collect();
    Ok((tensors(fitting), tensors(others)))
}

/// Checks everything, and then assigns: a dict's values once all are computed, so that a failure leaves the
/// module unchanged, and a file's tensors one by one, so that no two versions of all values are in memory.
#[track_caller]
fn load(state: &[Entry], source: &dyn TensorSource, strict: bool) -> Result<Unmatched> {
    let _line = caller_line();
    let mut unmatched = Unmatched::default();
    let mut mismatched = Vec::new();
    let mut pairs = Vec::new();
    // The tensors of which only reading tells the shape.
    let mut read = HashMap::new();
    let order: HashMap<&str, usize> =
        source.names().into_iter().enumerate().map(|(k, name)| (name, k)).collect();
    // A tensor that is used in several places is found under any of its names.
    let found = |entry: &&Entry| order.contains_key(entry.name.as_str());
    let present: HashSet<u64> = state.iter().filter(found).map(|entry| entry.tensor.id()).collect();
    for entry in state {
        let Some(&position) = order.get(entry.name.as_str()) else {
            if !present.contains(&entry.tensor.id()) {
                unmatched.missing.push(entry.name.clone());
            }
            continue;
        };
        let target = &entry.tensor;
        let (shape, dtype) = match source.described(&entry.name) {
            Some(described) => described,
            None => {
                let value = source.read(&entry.name, target.dtype(), &target.device())?;
                let described = (value.shape().clone(), value.dtype());
                read.insert(position, value);
                described
            }
        };
        if shape != *target.shape() || !can_cast(dtype, target.dtype()) {
            mismatched.push(format!(
                "{}: {dtype} {shape} in the dict, {} {} in the module",
                entry.name,
                target.dtype(),
                target.shape()
            ));
        }
        pairs.push((entry, position));
    }
    let names: HashSet<&str> = state.iter().map(|entry| entry.name.as_str()).collect();
    let unexpected = source.names().into_iter().filter(|name| !names.contains(name));
    unmatched.unexpected = unexpected.map(str::to_string).collect();
    unmatched.unexpected.sort_unstable();
    let misfit = strict && unmatched != Unmatched::default();
    if misfit || !mismatched.is_empty() {
        let Unmatched { missing, unexpected } = unmatched;
        return Err(Error::new(ErrorKind::StateDict { missing, unexpected, mismatched }));
    }
    let in_memory = source.is_in_memory();
    if !in_memory {
        pairs.sort_by_key(|(_, position)| *position);
    }
    set_grad_enabled(false, || {
        let mut values = Vec::new();
        for (entry, position) in pairs {
            let (dtype, device) = (entry.tensor.dtype(), entry.tensor.device());
            let value = match read.remove(&position) {
                Some(value) => value,
                None => source.read(&entry.name, dtype, &device)?,
            };
            let value = cast(&entry.name, &value, dtype)?.to(&device)?;
            value.eval()?;
            if in_memory {
                values.push((&entry.tensor, value));
            } else {
                entry.tensor.assign(&value)?;
            }
        }
        values.into_iter().try_for_each(|(target, value)| target.assign(&value))
    })?;
    Ok(unmatched)
}

/// Whether a value of one dtype can be loaded into a parameter or buffer of another.
fn can_cast(from: DType, to: DType) -> bool {
    from == to || (to.is_float() && from != DType::Bool) || (to.is_int() && from.is_int())
}

/// The value cast to the dtype of its target, on its own device, since the target's may lack the value's
/// dtype.
#[track_caller]
fn cast(name: &str, value: &Tensor, dtype: DType) -> Result<Tensor> {
    if value.dtype() == dtype {
        return Ok(value.clone());
    }
    let cast = value.to_dtype(dtype)?;
    if dtype.is_int() && cast.to_f64_vec()? != value.to_f64_vec()? {
        let mismatched = vec![format!("{name}: {} values that {dtype} cannot represent", value.dtype())];
        return Err(Error::new(ErrorKind::StateDict {
            missing: Vec::new(),
            unexpected: Vec::new(),
            mismatched,
        }));
    }
    Ok(cast)
}

/// Copies everything to `device`, and only then assigns the cells. Returns the replacements of constants.
#[track_caller]
fn move_all(entries: &[Entry], device: &Device) -> Result<HashMap<u64, Tensor>> {
    // By id, so that a tensor used in several places is moved once and stays shared.
    let mut moved: HashMap<u64, (Tensor, Option<Tensor>)> = HashMap::new();
    for Entry { name, tensor, shared, .. } in entries {
        if tensor.device() == *device || moved.contains_key(&tensor.id()) {
            continue;
        }
        if *shared && !tensor.is_cell() {
            let message = format!(
                "{name} is a constant behind a pointer that others hold as well, and cannot be replaced there; make it \
                 a buffer with .into_cell(false)?, or move it before it is shared"
            );
            return Err(Error::invalid("to", message));
        }
        let grad = tensor.grad().map(|grad| grad.to(device)).transpose()?;
        moved.insert(tensor.id(), (tensor.to(device)?, grad));
    }
    // All copies are made before any cell changes.
    let copies = moved.values().flat_map(|(value, grad)| [value].into_iter().chain(grad));
    eval_all(&copies.collect::<Vec<_>>())?;
    let mut replacements = HashMap::new();
    for Entry { tensor, .. } in entries {
        // Once for each tensor, however often it is used.
        let Some((value, grad)) = moved.remove(&tensor.id()) else { continue };
        if tensor.is_cell() {
            tensor.assign(&value)?;
            tensor.set_grad(grad);
        } else {
            replacements.insert(tensor.id(), value);
        }
    }
    Ok(replacements)
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
