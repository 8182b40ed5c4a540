//! What `#[derive(Module)]` calls: it must visit what is a [`Field`] of a module and pass over what is not, without
//! knowing which is which. Method lookup decides: `FieldRef(&self.x).visit_field(..)` takes the method of the
//! value itself, [`VisitModule`], if its type is a [`Field`], and else, one `&` further on, [`VisitPlain`]'s.
//!
//! Lookup goes by declared bounds, so it cannot tell for a type parameter; the derive calls `Field::visit_field` directly
//! on such fields. Nothing here is for use by hand.

use crate::{Field, Visitor, VisitorMut};

/// A field of a module, borrowed.
pub struct FieldRef<'a, T: ?Sized>(pub &'a T);

/// A field of a module, borrowed to be changed.
pub struct FieldMut<'a, T: ?Sized>(pub &'a mut T);

/// Of a [`FieldRef`] whose type is a [`Field`].
pub trait VisitModule<'a> {
    /// Visits the field under `name`.
    fn visit_field(self, name: &'static str, visitor: &mut Visitor<'a>);
}

impl<'a, T: Field + ?Sized> VisitModule<'a> for FieldRef<'a, T> {
    fn visit_field(self, name: &'static str, visitor: &mut Visitor<'a>) {
        visitor.child(name, |visitor| Field::visit_field(self.0, visitor));
    }
}

/// Of a [`FieldRef`] of any other type.
pub trait VisitPlain<'a> {
    /// Does nothing.
    fn visit_field(self, name: &'static str, visitor: &mut Visitor<'a>);
}

impl<'a, T: ?Sized> VisitPlain<'a> for &FieldRef<'a, T> {
    fn visit_field(self, _: &'static str, _: &mut Visitor<'a>) {}
}

/// Of a [`FieldMut`] whose type is a [`Field`].
pub trait VisitModuleMut<'a> {
    /// Visits the field under `name`.
    fn visit_field_mut(self, name: &'static str, visitor: &mut VisitorMut<'a>);
}

impl<'a, T: Field + ?Sized> VisitModuleMut<'a> for FieldMut<'a, T> {
    fn visit_field_mut(self, name: &'static str, visitor: &mut VisitorMut<'a>) {
        visitor.child(name, |visitor| Field::visit_field_mut(self.0, visitor));
    }
}

/// Of a [`FieldMut`] of any other type.
pub trait VisitPlainMut<'a> {
    /// Does nothing.
    fn visit_field_mut(self, name: &'static str, visitor: &mut VisitorMut<'a>);
}

impl<'a, T: ?Sized> VisitPlainMut<'a> for &FieldMut<'a, T> {
    fn visit_field_mut(self, _: &'static str, _: &mut VisitorMut<'a>) {}
}
