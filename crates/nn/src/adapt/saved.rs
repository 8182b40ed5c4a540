//! [`Saved`]: a parameter or buffer of the model that has a value of its own while an adapter is active, as
//! PEFT's `bias` and `modules_to_save` need.

use std::sync::atomic::{AtomicBool, Ordering};

use tensor_core::{Result, Tensor};

use crate::{Role, Visitor, VisitorMut};

/// A tensor of the model with two values: the adapter's and the model's own. The model's cell holds one of
/// them, and a cell here the other.
#[derive(Debug)]
pub(super) struct Saved {
    /// The name in the model: `head.weight`.
    pub(super) name: String,
    /// The model's cell.
    cell: Tensor,
    /// The value that the model's cell does not hold.
    other: Tensor,
    /// Whether the model's cell holds the adapter's value.
    active: AtomicBool,
    /// Whether an optimizer may train it: it is no buffer.
    is_parameter: bool,
}

impl Saved {
    /// A tensor of the model, whose values are equal at first.
    #[track_caller]
    pub(super) fn new(name: &str, cell: &Tensor, role: Role) -> Result<Saved> {
        let (name, is_parameter) = (name.to_string(), role == Role::Parameter);
        let other = cell.detach().into_cell(false)?;
        Ok(Saved { name, cell: cell.clone(), other, active: AtomicBool::new(false), is_parameter })
    }

    /// Gives the model's cell the adapter's value, or the model's own.
    #[track_caller]
    pub(super) fn set_active(&self, active: bool) -> Result<()> {
        if self.active.load(Ordering::Relaxed) == active {
            return Ok(());
        }
        let held = self.cell.detach();
        self.cell.assign(&self.other.detach().to(&self.cell.device())?)?;
        self.other.assign(&held.to(&self.other.device())?)?;
        self.active.store(active, Ordering::Relaxed);
        self.train(active)
    }

    /// Makes the model's cell one that is trained, or a frozen one.
    #[track_caller]
    pub(super) fn train(&self, trained: bool) -> Result<()> {
        if self.is_parameter {
            self.cell.set_requires_grad(trained)?;
            self.cell.set_grad(None);
        }
        Ok(())
    }

    /// Visits the adapter's value, under its name in the model.
    pub(super) fn visit(&self, visitor: &mut Visitor) {
        let value = if self.active.load(Ordering::Relaxed) { &self.cell } else { &self.other };
        match self.is_parameter {
            true => visitor.parameter(&self.name, value),
            false => visitor.buffer(&self.name, value),
        }
    }

    /// Visits the value that the model's cell does not hold, as a part of a model with the adapter `adapter`.
    pub(super) fn visit_other(&self, adapter: &str, visitor: &mut Visitor) {
        visitor.buffer(&format!("saved{adapter}.{}", self.name), &self.other);
    }

    /// The same for an independent copy of the model.
    pub(super) fn replaced(&self, visitor: &mut VisitorMut) -> Saved {
        let (mut cell, mut other) = (self.cell.clone(), self.other.clone());
        visitor.parameter("", &mut cell);
        visitor.buffer("", &mut other);
        let active = AtomicBool::new(self.active.load(Ordering::Relaxed));
        Saved { name: self.name.clone(), cell, other, active, is_parameter: self.is_parameter }
    }
}
