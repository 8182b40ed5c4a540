//! How a module is listed: a visitor walks down its fields and notes every tensor with its path, `layers.0.weight`.
//! A module describes itself to a [`Visitor`] and to a [`VisitorMut`] in the same order; `module.rs` does the rest.

use tensor_core::Tensor;

use crate::Field;

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
    /// The role of a tensor that nobody described: a cell that wants gradients is a parameter, another cell is a buffer,
    /// and what is no cell is a constant.
    pub fn of(tensor: &Tensor) -> Role {
        match (tensor.is_cell(), tensor.is_tracked()) {
            (true, true) => Role::Parameter,
            (true, false) => Role::Buffer,
            (false, _) => Role::Constant,
        }
    }
}

/// One tensor of a module.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The path from the visited module, PyTorch's: `fc1.weight`.
    pub name: String,
    /// The tensor.
    pub tensor: &'a Tensor,
    /// What it is to its module.
    pub role: Role,
}

/// The path from the visited module to the field being visited.
#[derive(Debug, Default)]
struct Path(String);

impl Path {
    /// Goes down to the field `name`, and gives the length to come back to.
    fn enter(&mut self, name: &str) -> usize {
        let before = self.0.len();
        if before > 0 && !name.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(name);
        before
    }

    fn leave(&mut self, before: usize) {
        self.0.truncate(before);
    }
}

/// Collects the tensors of a module. See [`crate::Module::visit`].
#[derive(Debug, Default)]
pub struct Visitor<'a> {
    path: Path,
    entries: Vec<Entry<'a>>,
}

impl<'a> Visitor<'a> {
    /// A visitor that has seen nothing.
    pub fn new() -> Visitor<'a> {
        Visitor::default()
    }

    /// Visits a field under its name: `visitor.field("fc1", &self.fc1)`.
    pub fn field(&mut self, name: &str, field: &'a (impl Field + ?Sized)) {
        self.child(name, |visitor| field.visit_field(visitor));
    }

    /// Visits under a name whatever `visit` visits.
    pub fn child(&mut self, name: &str, visit: impl FnOnce(&mut Visitor<'a>)) {
        let before = self.path.enter(name);
        visit(self);
        self.path.leave(before);
    }

    /// Notes a parameter, which stays one when it is frozen.
    pub fn parameter(&mut self, name: &str, tensor: &'a Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Parameter));
    }

    /// Notes a buffer.
    pub fn buffer(&mut self, name: &str, tensor: &'a Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor, Role::Buffer));
    }

    /// Notes a tensor under the path as it is. What is no cell is a constant, whatever role is given.
    pub fn tensor(&mut self, tensor: &'a Tensor, role: Role) {
        let role = if tensor.is_cell() { role } else { Role::Constant };
        self.entries.push(Entry { name: self.path.0.clone(), tensor, role });
    }

    /// What was seen, in order.
    pub fn entries(self) -> Vec<Entry<'a>> {
        self.entries
    }
}

/// Collects the tensors and training flags of a module, to change them. See [`crate::Module::visit_mut`].
#[derive(Debug, Default)]
pub struct VisitorMut<'a> {
    path: Path,
    tensors: Vec<(String, &'a mut Tensor)>,
    training: Vec<&'a mut bool>,
}

impl<'a> VisitorMut<'a> {
    /// A visitor that has seen nothing.
    pub fn new() -> VisitorMut<'a> {
        VisitorMut::default()
    }

    /// Visits a field under its name: `visitor.field("fc1", &mut self.fc1)`.
    pub fn field(&mut self, name: &str, field: &'a mut (impl Field + ?Sized)) {
        self.child(name, |visitor| field.visit_field_mut(visitor));
    }

    /// Visits under a name whatever `visit` visits.
    pub fn child(&mut self, name: &str, visit: impl FnOnce(&mut VisitorMut<'a>)) {
        let before = self.path.enter(name);
        visit(self);
        self.path.leave(before);
    }

    /// Notes a parameter.
    pub fn parameter(&mut self, name: &str, tensor: &'a mut Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor));
    }

    /// Notes a buffer.
    pub fn buffer(&mut self, name: &str, tensor: &'a mut Tensor) {
        self.child(name, |visitor| visitor.tensor(tensor));
    }

    /// Notes a tensor under the path as it is.
    pub fn tensor(&mut self, tensor: &'a mut Tensor) {
        self.tensors.push((self.path.0.clone(), tensor));
    }

    /// Notes the flag that says whether a layer trains (dropout drops) or is in use (it does not).
    pub fn training(&mut self, flag: &'a mut bool) {
        self.training.push(flag);
    }

    /// The tensors seen, each with its path, and the training flags.
    pub fn parts(self) -> (Vec<(String, &'a mut Tensor)>, Vec<&'a mut bool>) {
        (self.tensors, self.training)
    }
}
