//! [`Training`]: the flag by which a layer knows whether it trains.

use std::ops::Deref;

use crate::{Field, Visitor, VisitorMut};

/// Whether a layer trains, which it does at first. `model.train()` and `model.eval()` set it; it derefs to `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training(bool);

impl Default for Training {
    fn default() -> Training {
        Training(true)
    }
}

impl Deref for Training {
    type Target = bool;
    fn deref(&self) -> &bool {
        &self.0
    }
}

impl Field for Training {
    fn visit_field<'a>(&'a self, _: &mut Visitor<'a>) {}
    fn visit_field_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        visitor.training(&mut self.0);
    }
}
