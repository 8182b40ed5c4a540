//! The standard library's containers as modules. They name their elements as PyTorch does: `layers.0.weight`
//! for a `Vec` named `layers`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, VecDeque},
    fmt::Display,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use crate::{Field, Module, Visitor, VisitorMut};

/// No tensors, or a module under the name of the option.
impl<F: Field> Module for Option<F> {
    fn visit(&self, visitor: &mut Visitor) {
        self.iter().for_each(|field| visitor.inner(field));
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.iter_mut().for_each(|field| field.visit_field_mut(visitor));
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.inner(&**self);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        (**self).visit_mut(visitor);
    }
}

macro_rules! counted {
    ($($pointer:ident)*) => {$(
        /// A module that several owners share: its parameters, buffers and training flags change for all of
        /// them. A constant in it can only move while it has a single owner.
        impl<M: Module + ?Sized> Module for $pointer<M> {
            fn visit(&self, visitor: &mut Visitor) {
                match $pointer::strong_count(self) == 1 && $pointer::weak_count(self) == 0 {
                    true => visitor.inner(&**self),
                    false => visitor.shared(|visitor| visitor.inner(&**self)),
                }
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                if let Some(module) = $pointer::get_mut(self) {
                    module.visit_mut(visitor);
                }
            }
        }
    )*};
}
counted!(Rc Arc);

/// Visits the module by borrowing it, which panics as [`RefCell::borrow`] does while it is borrowed mutably.
impl<F: Field> Module for RefCell<F> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.inner(&*self.borrow());
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.get_mut().visit_field_mut(visitor);
    }
}

/// Visits the module by locking it; a poisoned lock is ignored.
impl<F: Field> Module for Mutex<F> {
    fn visit(&self, visitor: &mut Visitor) {
        let guard: MutexGuard<'_, F> = self.lock().unwrap_or_else(PoisonError::into_inner);
        visitor.inner(&*guard);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.get_mut().unwrap_or_else(PoisonError::into_inner).visit_field_mut(visitor);
    }
}

/// Visits the module by locking it for reading; a poisoned lock is ignored.
impl<F: Field> Module for RwLock<F> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.inner(&*self.read().unwrap_or_else(PoisonError::into_inner));
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.get_mut().unwrap_or_else(PoisonError::into_inner).visit_field_mut(visitor);
    }
}

/// Modules named by their positions: `torch.nn.ModuleList`.
impl<F: Field> Module for [F] {
    fn visit(&self, visitor: &mut Visitor) {
        positions(self.iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.iter_mut(), visitor);
    }
}

impl<F: Field> Module for Vec<F> {
    fn visit(&self, visitor: &mut Visitor) {
        positions(self.iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.iter_mut(), visitor);
    }
}

impl<F: Field> Module for VecDeque<F> {
    fn visit(&self, visitor: &mut Visitor) {
        positions(self.iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.iter_mut(), visitor);
    }
}

impl<F: Field, const N: usize> Module for [F; N] {
    fn visit(&self, visitor: &mut Visitor) {
        positions(self.iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.iter_mut(), visitor);
    }
}

/// Modules named by their keys, `torch.nn.ModuleDict`, in the order of the keys, which is numeric for
/// numbers.
impl<K: Ord + Display, F: Field> Module for BTreeMap<K, F> {
    fn visit(&self, visitor: &mut Visitor) {
        keyed(self.iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.values_mut(), visitor);
    }
}

/// As a [`BTreeMap`]: in the order of the keys.
impl<K: Ord + Display, F: Field, S> Module for HashMap<K, F, S> {
    fn visit(&self, visitor: &mut Visitor) {
        let mut fields: Vec<(&K, &F)> = self.iter().collect();
        fields.sort_unstable_by_key(|(key, _)| *key);
        keyed(fields.into_iter(), visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        replace_each(self.values_mut(), visitor);
    }
}

fn positions<'a, F: Field + 'a>(fields: impl Iterator<Item = &'a F>, visitor: &mut Visitor) {
    keyed(fields.enumerate(), visitor);
}

fn keyed<'a, K: Display, F: Field + 'a>(fields: impl Iterator<Item = (K, &'a F)>, visitor: &mut Visitor) {
    if !F::is_plain_data() {
        fields.for_each(|(key, field)| visitor.field(&key.to_string(), field));
    }
}

fn replace_each<'a, F: Field + 'a>(fields: impl Iterator<Item = &'a mut F>, visitor: &mut VisitorMut) {
    if !F::is_plain_data() {
        fields.for_each(|field| field.visit_field_mut(visitor));
    }
}

macro_rules! tuple {
    ($($F:ident $i:tt),*) => {
        impl<$($F: Field),*> Module for ($($F,)*) {
            fn visit(&self, visitor: &mut Visitor) {
                $(visitor.field(stringify!($i), &self.$i);)*
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                $(self.$i.visit_field_mut(visitor);)*
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
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
