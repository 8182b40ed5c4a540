//! What a module's fields may be: tensors, modules, and the standard library's containers of either, which name what they
//! hold as PyTorch does: `layers.0.weight` for a `Vec` named `layers`.

use std::{collections::BTreeMap, ops::Deref};

use tensor_core::{Result, Tensor};

use crate::{Module, Role, Visitor, VisitorMut};

/// A field of a module that holds parameters or buffers: a [`Tensor`], a [`Parameter`], or a [`Module`].
///
/// A tensor is no module itself, or `tensor.to(&device)` would have two meanings.
pub trait Field {
    /// Shows every tensor to the visitor.
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>);

    /// Shows every tensor and training flag to the visitor, to be changed.
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>);
}

impl<M: Module + ?Sized> Field for M {
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.visit(visitor);
    }
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.visit_mut(visitor);
    }
}

/// A parameter where it is a cell that wants gradients, a buffer where it is another cell, otherwise a constant.
impl Field for Tensor {
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.tensor(self, Role::of(self));
    }
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        visitor.tensor(self);
    }
}

/// A tensor that is a parameter of the module that holds it, also while it is frozen. `torch.nn.Parameter`.
///
/// It derefs to the [`Tensor`], which is used in its place: `x.matmul(&self.weight)`.
#[derive(Clone, Debug)]
pub struct Parameter(Tensor);

impl Parameter {
    /// A parameter with this value, wanting gradients. A cell given is shared, not copied.
    ///
    /// # Errors
    /// A dtype that is not floating-point, or a value that cannot be computed.
    #[track_caller]
    pub fn new(value: Tensor) -> Result<Parameter> {
        value.eval()?;
        Ok(Parameter(value.into_cell(true)?))
    }
}

impl Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl Field for Parameter {
    fn visit_field<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.tensor(&self.0, Role::Parameter);
    }
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        visitor.tensor(&mut self.0);
    }
}

/// Nothing, or a module under the name of the option.
impl<F: Field> Module for Option<F> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.iter().for_each(|field| field.visit_field(visitor));
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.iter_mut().for_each(|field| field.visit_field_mut(visitor));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        (**self).visit(visitor);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        (**self).visit_mut(visitor);
    }
}

/// Modules named by their positions: `torch.nn.ModuleList`.
impl<F: Field> Module for [F] {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        for (i, field) in self.iter().enumerate() {
            visitor.field(&i.to_string(), field);
        }
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        for (i, field) in self.iter_mut().enumerate() {
            visitor.field(&i.to_string(), field);
        }
    }
}

impl<F: Field> Module for Vec<F> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.as_slice().visit(visitor);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.as_mut_slice().visit_mut(visitor);
    }
}

impl<F: Field, const N: usize> Module for [F; N] {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.as_slice().visit(visitor);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.as_mut_slice().visit_mut(visitor);
    }
}

/// Modules named by their keys: `torch.nn.ModuleDict`.
impl<F: Field> Module for BTreeMap<String, F> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        for (name, field) in self {
            visitor.field(name, field);
        }
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        for (name, field) in self {
            visitor.field(name, field);
        }
    }
}

macro_rules! tuple {
    ($($F:ident $i:tt),*) => {
        impl<$($F: Field),*> Module for ($($F,)*) {
            fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
                $(visitor.field(stringify!($i), &self.$i);)*
            }
            fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
                $(visitor.field(stringify!($i), &mut self.$i);)*
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
