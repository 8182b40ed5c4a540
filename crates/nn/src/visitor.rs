//! The traversal of a module: a visitor visits its fields and records every tensor with its path,
//! `layers.0.weight`. A module passes its contents to a [`Visitor`] and to a [`VisitorMut`]; `module.rs`
//! does the rest.

use std::{any::Any, collections::HashMap, fmt, mem::size_of_val};

use tensor_core::{Generator, Tensor};

use crate::Training;

/// The role of a tensor in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Trained by an optimizer, or frozen: `torch.nn.Parameter`.
    Parameter,
    /// Part of the state but not trained, such as a running mean: as from `register_buffer`.
    Buffer,
    /// Neither listed nor saved; it only moves with the module.
    Constant,
}

impl Role {
    /// The role of a tensor that was not declared: a parameter if it requires gradients or did before it was
    /// frozen, a buffer if it is another cell, and otherwise a constant.
    pub fn of(tensor: &Tensor) -> Role {
        match (tensor.is_cell(), tensor.is_parameter()) {
            (true, true) => Role::Parameter,
            (true, false) => Role::Buffer,
            (false, _) => Role::Constant,
        }
    }
}

/// One tensor of a module.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The path from the visited module, PyTorch's: `fc1.weight`.
    pub name: String,
    /// The tensor.
    pub tensor: Tensor,
    /// Its role in its module.
    pub role: Role,
    /// Whether it is behind a pointer with possible other owners, so that only a cell can be changed.
    pub shared: bool,
    /// Whether the module declares its role. A tensor that is no cell and not declared as a constant is
    /// probably a mistake.
    pub declared: bool,
}

/// A visited field: its address, and its path.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) path: String,
}

/// The address and size of a value, which distinguish a field from the struct around it, unless it is the
/// only field.
pub(crate) fn place<T: ?Sized>(value: &T) -> (usize, usize) {
    ((&raw const *value).cast::<u8>().addr(), size_of_val(value))
}

/// A value whose type this module does not know.
struct AnyHost(Box<dyn Any>);

impl fmt::Debug for AnyHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyHost")
    }
}

/// A type that a field of a module may have: a [`Tensor`], a [`Parameter`], a [`Module`], a [`Generator`],
/// plain data, or one of the standard library's containers of these.
///
/// `#[derive(Module)]` requires it of every field that is not marked `#[module(skip)]`, so that no parameter
/// is overlooked:
///
/// ```compile_fail
/// use nn::{Linear, Module};
///
/// struct Head { linear: Linear } // derives nothing, and so might be forgotten
///
/// #[derive(Module)]
/// struct Net { body: Linear, head: Head } // error: `Head` is neither a module nor plain data
/// ```
///
/// | field | contents |
/// |---|---|
/// | a layer, a type that derives [`Module`], `dyn Layer`, `dyn Module` | its tensors, under the field name |
/// | [`Parameter`] | itself: a parameter |
/// | [`Tensor`] with `.requires_grad()` (or that had it before it was frozen) | itself: a parameter |
/// | [`Tensor`] from `.into_cell(false)?` | itself: a buffer |
/// | any other [`Tensor`] | a constant: neither trained nor saved (`#[module(constant)]` declares it) |
/// | [`Training`] | set by `train` and `eval` |
/// | [`Generator`] | saved by [`Module::rng_state`] |
/// | `Box`, `Rc`, `Arc` of a module; `Option`, `RefCell`, `Mutex`, `RwLock` | as their contents |
/// | `Vec`, `VecDeque`, arrays, slices, tuples | their elements, under their positions |
/// | `BTreeMap`, `HashMap` | their values, under their keys, in the order of the keys |
/// | numbers, `bool`, `char`, strings, paths, times, ranges, function pointers | plain data |
/// | [`DType`], [`Device`], [`Shape`], [`Scalar`], `PhantomData` | plain data |
/// | `#[module(skip)]` | not visited |
///
/// Your own configuration struct or enum becomes plain data by `#[derive(Module)]`. A tensor that is a
/// constant without `#[module(constant)]` causes a warning of [`Module::parameters`].
///
/// A tensor is no module itself, because `tensor.to(&device)` would have two meanings; it is a shared
/// handle, and needs no `Arc`. Borrowed modules (`&Linear`) are refused: use an `Arc` for a module that
/// several models share.
///
/// [`Module`]: crate::Module
/// [`Module::parameters`]: crate::Module::parameters
/// [`Module::rng_state`]: crate::Module::rng_state
/// [`Parameter`]: crate::Parameter
/// [`DType`]: tensor_core::DType
/// [`Device`]: tensor_core::Device
/// [`Shape`]: tensor_core::Shape
/// [`Scalar`]: tensor_core::Scalar
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a module nor plain data: its parameters, if it has any, would not be trained, moved or saved",
    label = "not known to be a module or plain data",
    note = "if `{Self}` holds layers or tensors, or is a struct or enum of plain data: `#[derive(Module)]` for it",
    note = "if it holds nothing to train, move or save: mark the field `#[module(skip)]`"
)]
pub trait Field {
    /// Passes every tensor, training flag and generator to the visitor.
    fn visit_field(&self, visitor: &mut Visitor);

    /// Passes every tensor to the visitor, which may replace it.
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut);

    /// Whether values of this type never contain tensors, flags or generators, so that a container can skip
    /// them.
    #[doc(hidden)]
    fn is_plain_data() -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// Collects the contents of a module. See [`crate::Module::visit`].
#[derive(Debug, Default)]
pub struct Visitor {
    /// The path from the visited module to the current field.
    path: String,
    /// Whether the field is behind a shared pointer.
    shared: bool,
    /// Whether the field is declared to contain constants.
    constant: bool,
    entries: Vec<Entry>,
    /// The id of the tensor with each name.
    names: HashMap<String, u64>,
    generators: Vec<(String, Generator)>,
    sites: Vec<Site>,
    /// The layers that can have adapters.
    hosts: Vec<AnyHost>,
    /// The value that training flags are set to.
    training: Option<bool>,
    /// The values for the next training flags, in reverse order.
    training_of_each: Vec<bool>,
    /// The training flags so far.
    flags: Vec<bool>,
}

impl Visitor {
    /// A visitor that has visited nothing.
    pub fn new() -> Visitor {
        Visitor::default()
    }

    /// A visitor that sets every training flag.
    pub(crate) fn setting(training: bool) -> Visitor {
        Visitor { training: Some(training), ..Visitor::default() }
    }

    /// A visitor that sets the training flags one after the other.
    pub(crate) fn setting_each(training: &[bool]) -> Visitor {
        Visitor { training_of_each: training.iter().rev().copied().collect(), ..Visitor::default() }
    }

    /// Visits a field under its name: `visitor.field("fc1", &self.fc1)`. With an empty name its tensors get
    /// the path of the module that contains it.
    pub fn field(&mut self, name: &str, field: &(impl Field + ?Sized)) {
        self.child(name, |visitor| visitor.inner(field));
    }

    /// Visits a field under the current path.
    pub(crate) fn inner(&mut self, field: &(impl Field + ?Sized)) {
        let (address, size) = place(field);
        self.sites.push(Site { address, size, path: self.path.clone() });
        field.visit_field(self);
    }

    /// Visits everything that `visit` visits, under a name.
    pub fn child(&mut self, name: &str, visit: impl FnOnce(&mut Visitor)) {
        let before = self.path.len();
        if before > 0 && !name.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
        visit(self);
        self.path.truncate(before);
    }

    /// Visits the contents of a pointer with possible other owners: only its cells can be changed.
    pub fn shared(&mut self, visit: impl FnOnce(&mut Visitor)) {
        let before = std::mem::replace(&mut self.shared, true);
        visit(self);
        self.shared = before;
    }

    /// Records a parameter, which stays one when it is frozen.
    pub fn parameter(&mut self, name: &str, tensor: &Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Parameter));
    }

    /// Records a buffer.
    pub fn buffer(&mut self, name: &str, tensor: &Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Buffer));
    }

    /// Visits a field whose tensors are constants, neither trained nor saved, as `#[module(constant)]` does:
    /// for example a table of positions that is computed each time. They move with the module. Cells in it
    /// keep their roles.
    pub fn constant(&mut self, name: &str, field: &(impl Field + ?Sized)) {
        let before = std::mem::replace(&mut self.constant, true);
        self.field(name, field);
        self.constant = before;
    }

    /// Records a tensor under the current path. A tensor that is no cell is a constant, whatever role is
    /// given.
    ///
    /// Tensors of one name, which can come from the keys of a map, get the suffixes `#2`, `#3` …, so that
    /// none is lost when the module is saved.
    pub fn tensor(&mut self, tensor: &Tensor, role: Role) {
        let role = if tensor.is_cell() { role } else { Role::Constant };
        let mut name = self.path.clone();
        let mut count = 1;
        while role != Role::Constant && *self.names.entry(name.clone()).or_insert(tensor.id()) != tensor.id()
        {
            count += 1;
            name = format!("{}#{count}", self.path);
        }
        let declared = self.constant || role != Role::Constant;
        self.entries.push(Entry { name, tensor: tensor.clone(), role, shared: self.shared, declared });
    }

    /// Records a random stream, whose position is part of the training state.
    pub fn generator(&mut self, generator: &Generator) {
        self.generators.push((self.path.clone(), generator.clone()));
    }

    /// Records a layer that can have adapters, of a type that `lora` knows.
    pub(crate) fn host(&mut self, host: impl FnOnce(&str) -> Box<dyn Any>) {
        self.hosts.push(AnyHost(host(&self.path)));
    }

    /// Records the training-mode flag of a layer.
    pub fn training(&mut self, flag: &Training) {
        if let Some(training) = self.training.or_else(|| self.training_of_each.pop()) {
            flag.set(training);
        }
        self.flags.push(flag.get());
    }

    /// The training flags, in order.
    pub(crate) fn flags(self) -> Vec<bool> {
        self.flags
    }

    /// The tensors, in order.
    pub fn entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The random streams, each with its path.
    pub fn generators(self) -> Vec<(String, Generator)> {
        self.generators
    }

    /// The layers that can have adapters, in order.
    pub(crate) fn hosts(self) -> impl Iterator<Item = Box<dyn Any>> {
        self.hosts.into_iter().map(|host| host.0)
    }

    /// The visited fields.
    pub(crate) fn sites(self) -> Vec<Site> {
        self.sites
    }
}

/// Replaces a module's tensors. See [`crate::Module::visit_mut`].
#[derive(Debug, Default)]
pub struct VisitorMut {
    /// The replacement of the tensor with each id.
    replacements: HashMap<u64, Tensor>,
    /// The copies of adapters by their addresses, if the module becomes an independent one.
    copies: Option<HashMap<usize, AnyHost>>,
}

impl VisitorMut {
    /// A visitor that replaces the tensors with these ids, in a module that then computes with the others:
    /// `module.clone().visit_mut(&mut VisitorMut::new(others))`.
    pub fn new(replacements: HashMap<u64, Tensor>) -> VisitorMut {
        VisitorMut { replacements, copies: None }
    }

    /// A visitor that also makes independent copies of adapters.
    pub(crate) fn copying(replacements: HashMap<u64, Tensor>) -> VisitorMut {
        VisitorMut { replacements, copies: Some(HashMap::new()) }
    }

    /// Visits a field under its name: `visitor.field("fc1", &mut self.fc1)`.
    pub fn field(&mut self, _name: &str, field: &mut (impl Field + ?Sized)) {
        field.visit_field_mut(self);
    }

    /// Visits a field of constants, see [`Visitor::constant`].
    pub fn constant(&mut self, name: &str, field: &mut (impl Field + ?Sized)) {
        self.field(name, field);
    }

    /// Visits a parameter.
    pub fn parameter(&mut self, _name: &str, tensor: &mut Tensor) {
        self.tensor(tensor);
    }

    /// Visits a buffer.
    pub fn buffer(&mut self, _name: &str, tensor: &mut Tensor) {
        self.tensor(tensor);
    }

    /// Whether the module becomes an independent copy, with adapters of its own.
    pub(crate) fn copies(&self) -> bool {
        self.copies.is_some()
    }

    /// The copy that was made of the shared value at an address, if its type is `T`.
    pub(crate) fn copy_of<T: Clone + 'static>(&self, address: usize) -> Option<T> {
        self.copies.as_ref()?.get(&address)?.0.downcast_ref::<T>().cloned()
    }

    /// Keeps the copy of the shared value at an address.
    pub(crate) fn keep_copy<T: 'static>(&mut self, address: usize, copy: T) {
        if let Some(copies) = &mut self.copies {
            copies.insert(address, AnyHost(Box::new(copy)));
        }
    }

    /// Visits a tensor.
    pub fn tensor(&mut self, tensor: &mut Tensor) {
        if let Some(other) = self.replacements.get(&tensor.id()) {
            *tensor = other.clone();
        }
    }
}
