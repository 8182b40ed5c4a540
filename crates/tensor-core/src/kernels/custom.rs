//! Operations with kernels of their own, from crates that this one does not know: [`CustomKernel`]. How a
//! tensor is made by one is [`Tensor::custom_kernel`]; how a backend runs one is its own business, see
//! [`implementation`].
//!
//! [`Tensor::custom_kernel`]: crate::Tensor::custom_kernel

use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    sync::Mutex,
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
        sync::lock,
    },
    elements::dtype::DType,
    kernels::{
        kernel::{Kernel, Operand},
        layout::Layout,
    },
};

/// An operation that brings a kernel for each backend that it runs on. PyTorch's `torch.library.custom_op`.
///
/// The value's fields are the operation's constants, which plans keep for long: no tensors. The operation has
/// one result or several, whose shapes and dtypes follow from those of the inputs. It has no gradient by
/// itself: `autograd::Function` gives it one, with a forward pass that calls [`Tensor::custom_kernel`].
///
/// A kernel is a pure function of its inputs and its fields: results may be computed again, or not at all. It
/// runs while its device is held for it, so it must not evaluate tensors.
///
/// [`Tensor::custom_kernel`]: crate::Tensor::custom_kernel
pub trait CustomKernel: Any + fmt::Debug + Send + Sync {
    /// The name in error messages, profiles and graphs.
    fn name(&self) -> &'static str;

    /// The shape and dtype of each result, for inputs of these.
    ///
    /// # Errors
    /// Inputs that do not fit the operation, with what does not fit and the mend.
    #[track_caller]
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>>;

    /// The fields in words: two values of one type with equal keys have the same results, and one may be run
    /// in place of the other. A new key is a new plan, so what changes from step to step belongs in an input.
    fn key(&self) -> Vec<u64>;

    /// Offers an implementation to a backend that asks for one, by [`Request::provide`], for each type of
    /// implementation that there is: `CpuKernel` of backend-cpu, `WgslKernel` of backend-wgpu.
    fn implement(&self, request: &mut Request<'_>);

    /// What to do where a backend has no implementation, for the error that says so; none for the common
    /// advice to move the inputs.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// Whether inputs may have no answer, which an implementation finds while it computes. One whose backend
    /// learns of that later, as those on GPUs do, writes down a code, and [`CustomKernel::failure`] is the
    /// error of what depends on the results.
    fn may_fail(&self) -> bool {
        false
    }

    /// The error for what an implementation wrote down: `code`, which is not 0, for part `part` of inputs of
    /// these shapes and dtypes.
    fn failure(&self, inputs: &[(Shape, DType)], code: u32, part: u32) -> Error {
        let shapes: Vec<String> = inputs.iter().map(|(shape, _)| shape.to_string()).collect();
        let message = format!("part {part} of inputs {} has no result (code {code})", shapes.join(", "));
        Error::invalid(self.name(), message)
    }

    /// Whether its implementations read inputs of any layout. If not, inputs that are no row-major buffer are
    /// copied into one.
    fn takes_strides(&self) -> bool {
        false
    }

    /// Whether inputs that have one axis more in front, each, and the same number of slices along it, give
    /// the results of each slice, stacked along such an axis. `autograd::func::vmap` then calls the kernel
    /// once, and otherwise once for each slice.
    fn is_batched(&self) -> bool {
        false
    }
}

/// A backend's question for an implementation of a type that it knows how to run, for inputs of the kernel's
/// shapes and dtypes.
#[derive(Debug)]
pub struct Request<'a> {
    kernel: &'a Kernel,
    wanted: TypeId,
    found: Option<Box<dyn Any + Send + Sync>>,
}

impl Request<'_> {
    /// Answers with what `make` gives for the kernel, if that is of the type asked for.
    pub fn provide<T: Any + Send + Sync>(&mut self, make: impl FnOnce(&Kernel) -> T) {
        self.provide_some(|kernel| Some(make(kernel)));
    }

    /// Answers with what `make` gives for the kernel, if that is of the type asked for and there is
    /// something.
    pub fn provide_some<T: Any + Send + Sync>(&mut self, make: impl FnOnce(&Kernel) -> Option<T>) {
        if self.wanted == TypeId::of::<T>()
            && let Some(made) = make(self.kernel)
        {
            self.found = Some(Box::new(made));
        }
    }
}

/// The implementation of type `T` that a kernel offers. A backend keeps it in the launch's `compiled`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where it offers none.
pub fn implementation<T: Any + Send + Sync>(
    custom: &dyn CustomKernel,
    kernel: &Kernel,
    device: &str,
) -> Result<T> {
    let mut request = Request { kernel, wanted: TypeId::of::<T>(), found: None };
    custom.implement(&mut request);
    let found = request.found.and_then(|found| found.downcast().ok());
    found.map(|found| *found).ok_or_else(|| unsupported(custom, kernel, device))
}

/// The error of a backend for which the kernel has no implementation.
pub fn unsupported(custom: &dyn CustomKernel, kernel: &Kernel, device: &str) -> Error {
    let dtype = kernel.operands.first().map_or(DType::F32, |operand| operand.dtype);
    let device = device.into();
    const MOVE: &str = "it has no kernel for this backend; move its inputs to a device that it has one for, as x.to(&taper::cpu())?, and \
                        its results back";
    let hint = custom.hint().unwrap_or(MOVE).into();
    Error::new(ErrorKind::Unsupported { op: custom.name(), device, dtype, hint })
}

/// The error for inputs that do not fit the operation: their shapes and dtypes, and what does not fit.
#[track_caller]
pub(crate) fn misfit(custom: &dyn CustomKernel, inputs: &[(Shape, DType)], what: &dyn fmt::Display) -> Error {
    let inputs: Vec<String> = inputs.iter().map(|(shape, dtype)| format!("{shape} {dtype}")).collect();
    Error::invalid(custom.name(), format!("inputs {}: {what}", inputs.join(", ")))
}

/// One kernel may be run in place of an equal one: it is of the same type with the same key.
impl PartialEq for dyn CustomKernel {
    fn eq(&self, other: &dyn CustomKernel) -> bool {
        type_of(self) == type_of(other) && self.key() == other.key()
    }
}

impl Eq for dyn CustomKernel {}

impl Hash for dyn CustomKernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        type_of(self).hash(state);
        self.key().hash(state);
    }
}

fn type_of(kernel: &dyn CustomKernel) -> TypeId {
    (kernel as &dyn Any).type_id()
}

/// A number for each type of kernel or block format met so far: part of the key of a graph's form.
pub(crate) fn type_number(id: TypeId) -> u64 {
    static TYPES: Mutex<Vec<TypeId>> = Mutex::new(Vec::new());
    let mut types = lock(&TYPES);
    let place = types.iter().position(|known| *known == id).unwrap_or_else(|| {
        types.push(id);
        types.len() - 1
    });
    place as u64
}

/// Which kernel it is, in words.
pub(crate) fn write_key(key: &mut Vec<u64>, kernel: &dyn CustomKernel) {
    let own = kernel.key();
    key.extend([type_number(type_of(kernel)), own.len() as u64]);
    key.extend(own);
}

/// Whether a layout reads a row-major buffer from its first element on.
pub(crate) fn is_plain(layout: &Layout) -> bool {
    layout.is_contiguous() && (layout.offset() == 0 || layout.numel() == 0)
}

/// The shapes and dtypes of operands.
pub(crate) fn specs(operands: &[Operand]) -> Vec<(Shape, DType)> {
    operands.iter().map(|operand| (operand.layout.shape().clone(), operand.dtype)).collect()
}
