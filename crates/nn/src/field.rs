//! The types that a [`Field`] of a module may have: tensors, modules, and plain data. The containers are in
//! `containers.rs`.

use std::{
    borrow::Cow,
    ffi::OsString,
    marker::PhantomData,
    num::{
        NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16,
        NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize,
    },
    ops::{Deref, Range, RangeInclusive},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize},
    },
    time::{Duration, Instant, SystemTime},
};

use tensor_core::{DType, Device, Generator, Result, Scalar, Shape, Tensor, bf16, f16};

use crate::{Field, Module, Role, Training, Visitor, VisitorMut};

impl<M: Module + ?Sized> Field for M {
    fn visit_field(&self, visitor: &mut Visitor) {
        self.visit(visitor);
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        self.visit_mut(visitor);
    }
}

/// A parameter if it requires gradients or did before it was frozen, a buffer if it is another cell,
/// otherwise a constant.
impl Field for Tensor {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.tensor(self, Role::of(self));
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.tensor(self);
    }
}

/// A random stream, whose position is part of the training state. See [`Module::rng_state`].
impl Field for Generator {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.generator(self);
    }
    fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
}

/// A tensor that is a parameter of the module that holds it, even while it is frozen. `torch.nn.Parameter`.
///
/// It derefs to the [`Tensor`], and can be used in its place: `x.matmul(&self.weight)`. A clone shares the
/// value.
#[derive(Clone, Debug)]
pub struct Parameter(Tensor);

impl Parameter {
    /// A parameter with this value that requires gradients. If a cell is given, it is shared, not copied.
    ///
    /// # Errors
    /// A dtype that is not floating-point, or a value that cannot be computed.
    #[track_caller]
    pub fn new(value: Tensor) -> Result<Parameter> {
        crate::init::settle(&value)?;
        Ok(Parameter(value.into_cell(true)?))
    }
}

impl Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl AsRef<Tensor> for Parameter {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

impl Field for Training {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.training(self);
    }
    fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
}

impl Field for Parameter {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.tensor(&self.0, Role::Parameter);
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.tensor(&mut self.0);
    }
}

/// Types whose values contain neither tensors nor flags nor generators.
macro_rules! plain {
    ($($plain:ty;)*) => {$(
        impl Field for $plain {
            fn visit_field(&self, _: &mut Visitor) {}
            fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
            fn is_plain_data() -> bool { true }
        }
    )*};
}

plain! {
    (); bool; char; String; OsString; PathBuf;
    u8; u16; u32; u64; u128; usize; i8; i16; i32; i64; i128; isize; f32; f64; f16; bf16;
    NonZeroU8; NonZeroU16; NonZeroU32; NonZeroU64; NonZeroU128; NonZeroUsize;
    NonZeroI8; NonZeroI16; NonZeroI32; NonZeroI64; NonZeroI128; NonZeroIsize;
    AtomicBool; AtomicI32; AtomicI64; AtomicU32; AtomicU64; AtomicUsize;
    &str; &Path; Box<str>; Rc<str>; Arc<str>; Cow<'_, str>; Cow<'_, Path>;
    Duration; Instant; SystemTime;
    DType; Device; Shape; Scalar;
}

impl<T: ?Sized> Field for PhantomData<T> {
    fn visit_field(&self, _: &mut Visitor) {}
    fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
    fn is_plain_data() -> bool {
        true
    }
}

/// Ranges of plain data, such as bounds of values.
macro_rules! ranges {
    ($($range:ident)*) => {$(
        impl<T: Copy + PartialOrd> Field for $range<T> {
            fn visit_field(&self, _: &mut Visitor) {}
            fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
            fn is_plain_data() -> bool { true }
        }
    )*};
}
ranges!(Range RangeInclusive);
