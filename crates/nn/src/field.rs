//! [`Field`]: what a module's fields may be, and the plain data among it. The containers are in
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

use crate::{Module, Role, Visitor, VisitorMut};

/// What a field of a module may be: a [`Tensor`], a [`Parameter`], a [`Module`], a [`Generator`], plain data,
/// or one of the standard library's containers of these.
///
/// `#[derive(Module)]` asks it of every field that is not marked `#[module(skip)]`, so that no parameter is
/// passed over in silence:
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
/// | field | |
/// |---|---|
/// | a layer, a struct or enum that derives [`Module`], `dyn Layer`, `dyn Module` | its parts, under the field's name |
/// | [`Parameter`] | itself: a parameter |
/// | [`Tensor`] | itself: a parameter if it is a cell that wants gradients (or did before it was frozen), a buffer if it is another cell |
/// | a [`Tensor`] that is no cell | neither trained nor saved, which [`Module::parameters`] warns of, unless the field is `#[module(constant)]` |
/// | [`Training`](crate::Training), [`Generator`] | set by `train` and `eval`; saved by [`Module::rng_state`] |
/// | `Box`, `Rc`, `Arc` of a module; `Option`, `RefCell`, `Mutex`, `RwLock` | what is in them, under the field's name |
/// | `Vec`, `VecDeque`, arrays, slices, tuples | what is in them, under its position |
/// | `BTreeMap`, `HashMap` | what is in them, under its key, in the order of the keys |
/// | numbers, `bool`, `char`, strings, paths, times, ranges, [`DType`], [`Device`], [`Shape`], [`Scalar`], `PhantomData`, function pointers | plain data |
/// | `#[module(skip)]` | passed over |
///
/// A configuration struct or an enum of your own becomes plain data by `#[derive(Module)]`.
///
/// A tensor is no module itself, or `tensor.to(&device)` would have two meanings; it is a shared handle, and
/// needs no `Arc`. Borrowed modules (`&Linear`) are refused: hold one that several models use in an `Arc`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a module nor plain data: its parameters, if it has any, would not be trained, moved or saved",
    label = "not known to be a module or plain data",
    note = "if `{Self}` holds layers or tensors, or is a struct or enum of plain data: `#[derive(Module)]` for it",
    note = "if it holds nothing to train, move or save: mark the field `#[module(skip)]`"
)]
pub trait Field {
    /// Shows every tensor, training flag and generator to the visitor.
    fn visit_field(&self, visitor: &mut Visitor);

    /// Shows every tensor to the visitor, to be replaced.
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut);

    /// Whether no value of this type holds anything, so that a container need not look.
    #[doc(hidden)]
    fn is_plain_data() -> bool
    where
        Self: Sized,
    {
        false
    }
}

impl<M: Module + ?Sized> Field for M {
    fn visit_field(&self, visitor: &mut Visitor) {
        self.visit(visitor);
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        self.visit_mut(visitor);
    }
}

/// A parameter where it is a cell that wants gradients or wanted them before it was frozen, a buffer where it
/// is another cell, otherwise a constant.
impl Field for Tensor {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.tensor(self, Role::of(self));
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.tensor(self);
    }
}

/// A stream whose position belongs to the state of training. See [`Module::rng_state`].
impl Field for Generator {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.generator(self);
    }
    fn visit_field_mut(&mut self, _: &mut VisitorMut) {}
}

/// A tensor that is a parameter of the module that holds it, also while it is frozen. `torch.nn.Parameter`.
///
/// It derefs to the [`Tensor`], which is used in its place: `x.matmul(&self.weight)`. A clone shares the
/// value.
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

impl AsRef<Tensor> for Parameter {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

impl Field for Parameter {
    fn visit_field(&self, visitor: &mut Visitor) {
        visitor.tensor(&self.0, Role::Parameter);
    }
    fn visit_field_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.tensor(&mut self.0);
    }
}

/// Types whose values hold neither tensors nor flags nor streams.
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
