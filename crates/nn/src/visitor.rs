//! How a module is listed: a visitor walks down its fields and notes every tensor with its path,
//! `layers.0.weight`. A module describes itself to a [`Visitor`] and to a [`VisitorMut`]; `module.rs` does
//! the rest.

use std::{collections::HashMap, mem::size_of_val};

use tensor_core::{Generator, Tensor};

use crate::{Field, Training};

/// What a tensor is to the module that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Trained by an optimizer, or frozen for now: `torch.nn.Parameter`.
    Parameter,
    /// Part of the state but not trained, such as a running mean: what `register_buffer` makes.
    Buffer,
    /// Neither listed nor saved; only moves with the module.
    Constant,
}

impl Role {
    /// The role of a tensor that was not described: a cell that wants gradients, or wanted them before it was
    /// frozen, is a parameter, another cell is a buffer, and what is no cell is a constant.
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
    /// What it is to its module.
    pub role: Role,
    /// Whether it lies behind a pointer that others may hold as well, so that only a cell can be changed.
    pub shared: bool,
    /// Whether its module says what it is. A tensor that is no cell, and that was not called a constant, is
    /// probably a mistake.
    pub declared: bool,
}

/// A field that was visited: where it is in memory, and its path.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) path: String,
}

/// The address and size of a value, which tell a field from the struct around it unless it is all of it.
pub(crate) fn place<T: ?Sized>(value: &T) -> (usize, usize) {
    ((&raw const *value).cast::<u8>().addr(), size_of_val(value))
}

/// Collects what a module holds. See [`crate::Module::visit`].
#[derive(Debug, Default)]
pub struct Visitor {
    /// The path from the visited module to the field being visited.
    path: String,
    /// Whether the field lies behind a shared pointer.
    shared: bool,
    /// Whether the field is said to hold constants.
    constant: bool,
    entries: Vec<Entry>,
    /// The tensor of each name.
    names: HashMap<String, u64>,
    generators: Vec<(String, Generator)>,
    sites: Vec<Site>,
    /// What training flags are set to.
    training: Option<bool>,
    /// What each of the next training flags is set to, the next one last.
    training_of_each: Vec<bool>,
    /// The training flags seen.
    flags: Vec<bool>,
}

impl Visitor {
    /// A visitor that has seen nothing.
    pub fn new() -> Visitor {
        Visitor::default()
    }

    /// A visitor that sets every training flag it meets.
    pub(crate) fn setting(training: bool) -> Visitor {
        Visitor { training: Some(training), ..Visitor::default() }
    }

    /// A visitor that sets the training flags it meets one after the other.
    pub(crate) fn setting_each(training: &[bool]) -> Visitor {
        Visitor { training_of_each: training.iter().rev().copied().collect(), ..Visitor::default() }
    }

    /// Visits a field under its name: `visitor.field("fc1", &self.fc1)`. With an empty name its parts take
    /// the path of the module that holds it.
    pub fn field(&mut self, name: &str, field: &(impl Field + ?Sized)) {
        self.child(name, |visitor| visitor.inner(field));
    }

    /// Visits a field under the path as it is.
    pub(crate) fn inner(&mut self, field: &(impl Field + ?Sized)) {
        let (address, size) = place(field);
        self.sites.push(Site { address, size, path: self.path.clone() });
        field.visit_field(self);
    }

    /// Visits under a name whatever `visit` visits.
    pub fn child(&mut self, name: &str, visit: impl FnOnce(&mut Visitor)) {
        let before = self.path.len();
        if before > 0 && !name.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
        visit(self);
        self.path.truncate(before);
    }

    /// Visits what lies behind a pointer that others may hold as well: its cells can be changed, and nothing
    /// else.
    pub fn shared(&mut self, visit: impl FnOnce(&mut Visitor)) {
        let before = std::mem::replace(&mut self.shared, true);
        visit(self);
        self.shared = before;
    }

    /// Notes a parameter, which stays one when it is frozen.
    pub fn parameter(&mut self, name: &str, tensor: &Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Parameter));
    }

    /// Notes a buffer.
    pub fn buffer(&mut self, name: &str, tensor: &Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Buffer));
    }

    /// Visits a field whose tensors are constants, neither trained nor saved, as `#[module(constant)]` does:
    /// a table of positions that is computed anew each time. They move with the module. Cells in it keep
    /// their roles.
    pub fn constant(&mut self, name: &str, field: &(impl Field + ?Sized)) {
        let before = std::mem::replace(&mut self.constant, true);
        self.field(name, field);
        self.constant = before;
    }

    /// Notes a tensor under the path as it is. What is no cell is a constant, whatever role is given.
    ///
    /// Two tensors of one name, as the keys of a map can make them, are told apart by `#2`, `#3` … after the
    /// name: none is lost when the module is saved.
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

    /// Notes a stream of random numbers, whose position is part of what training depends on.
    pub fn generator(&mut self, generator: &Generator) {
        self.generators.push((self.path.clone(), generator.clone()));
    }

    /// Notes the flag that says whether a layer trains (dropout drops) or is in use (it does not).
    pub fn training(&mut self, flag: &Training) {
        if let Some(training) = self.training.or_else(|| self.training_of_each.pop()) {
            flag.set(training);
        }
        self.flags.push(flag.get());
    }

    /// The training flags seen, in order.
    pub(crate) fn flags(self) -> Vec<bool> {
        self.flags
    }

    /// The tensors seen, in order.
    pub fn entries(self) -> Vec<Entry> {
        self.entries
    }

    /// The streams seen, each with its path.
    pub fn generators(self) -> Vec<(String, Generator)> {
        self.generators
    }

    /// The fields seen.
    pub(crate) fn sites(self) -> Vec<Site> {
        self.sites
    }
}

/// Puts other tensors in the place of a module's own. See [`crate::Module::visit_mut`].
#[derive(Debug, Default)]
pub struct VisitorMut {
    /// What takes the place of the tensor with this id.
    replacements: HashMap<u64, Tensor>,
}

impl VisitorMut {
    /// A visitor that puts tensors in the place of those with these ids.
    pub(crate) fn new(replacements: HashMap<u64, Tensor>) -> VisitorMut {
        VisitorMut { replacements }
    }

    /// Visits a field under its name: `visitor.field("fc1", &mut self.fc1)`.
    pub fn field(&mut self, _name: &str, field: &mut (impl Field + ?Sized)) {
        field.visit_field_mut(self);
    }

    /// Visits a field of constants, see [`Visitor::constant`].
    pub fn constant(&mut self, name: &str, field: &mut (impl Field + ?Sized)) {
        self.field(name, field);
    }

    /// Shows a parameter.
    pub fn parameter(&mut self, _name: &str, tensor: &mut Tensor) {
        self.tensor(tensor);
    }

    /// Shows a buffer.
    pub fn buffer(&mut self, _name: &str, tensor: &mut Tensor) {
        self.tensor(tensor);
    }

    /// Shows a tensor.
    pub fn tensor(&mut self, tensor: &mut Tensor) {
        if let Some(other) = self.replacements.get(&tensor.id()) {
            *tensor = other.clone();
        }
    }
}
