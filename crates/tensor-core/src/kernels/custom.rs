//! [`CustomKernel`]: operations with native kernels, from crates that this one does not know.
//! [`Tensor::custom_kernel`] makes a tensor with one; a backend finds its implementation by
//! [`implementation`].
//!
//! [`Tensor::custom_kernel`]: crate::Tensor::custom_kernel

use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    kernels::{
        identity::type_number,
        kernel::{Kernel, Operand},
        layout::Layout,
    },
};

/// An operation that has a kernel for each backend that it runs on. PyTorch's `torch.library.custom_op`.
///
/// The value's fields are the operation's constants. Plans keep them, so they must not be tensors. The
/// operation has one or several results, whose shapes and dtypes follow from those of the inputs. It has
/// no gradient of its own; to give it one, call [`Tensor::custom_kernel`] in the forward pass of an
/// `autograd::Function`.
///
/// A kernel is a pure function of its inputs and its fields: results may be computed again, or not at
/// all. The device is locked while the kernel runs, so it must not evaluate tensors.
///
/// [`Tensor::custom_kernel`]: crate::Tensor::custom_kernel
pub trait CustomKernel: Any + fmt::Debug + Send + Sync {
    /// The name in error messages, profiles and graphs.
    fn name(&self) -> &'static str;

    /// The shape and dtype of each result, from those of the inputs.
    ///
    /// # Errors
    /// Inputs that do not fit the operation; the message says why, and how to fix it.
    #[track_caller]
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>>;

    /// The fields as integers: two values of one type with equal keys have the same results and are
    /// interchangeable. A new key needs a new plan, so a value that changes from step to step belongs in
    /// an input.
    fn key(&self) -> Vec<u64>;

    /// Offers an implementation to a backend that asks for one: calls [`Request::provide`] for each type
    /// of implementation that it has, such as `CpuKernel` of backend-cpu and `WgslKernel` of
    /// backend-wgpu.
    fn implement(&self, request: &mut Request<'_>);

    /// Advice for the error of a backend without an implementation; `None` for the default advice to
    /// move the inputs.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// Whether the kernel may find, while it computes, that inputs have no result. An implementation
    /// that cannot report this at once, as on a GPU, writes a code, and [`CustomKernel::failure`] gives
    /// the error for everything that depends on the results.
    fn may_fail(&self) -> bool {
        false
    }

    /// The error for a failure `code` (not 0) that an implementation wrote for part `part` of inputs of
    /// these shapes and dtypes.
    fn failure(&self, inputs: &[(Shape, DType)], code: u32, part: u32) -> Error {
        let shapes: Vec<String> = inputs.iter().map(|(shape, _)| shape.to_string()).collect();
        let message = format!("part {part} of inputs {} has no result (code {code})", shapes.join(", "));
        Error::invalid(self.name(), message)
    }

    /// Whether the implementations read inputs of any layout. If not, an input that is not a row-major
    /// buffer is copied into one.
    fn takes_strides(&self) -> bool {
        false
    }

    /// The input whose buffer may also be that of a result, of the same shape and dtype: the result is the
    /// input with some elements replaced. An implementation then writes these alone if it is given one buffer
    /// for both, and copies the others first if not.
    #[doc(hidden)] // for `CachedAttention`: a WGSL kernel has one binding for each buffer
    fn replaces(&self, result: usize) -> Option<usize> {
        let _ = result;
        None
    }

    /// Whether the operation is independent along an extra leading axis: inputs with one more axis in
    /// front give the results of each slice, stacked along such an axis. `autograd::func::vmap` then
    /// calls the kernel once instead of once for each slice.
    fn is_batched(&self) -> bool {
        false
    }
}

/// A backend's request for an implementation of a type that it can run, for inputs of the kernel's
/// shapes and dtypes.
#[derive(Debug)]
pub struct Request<'a> {
    kernel: &'a Kernel,
    wanted: TypeId,
    found: Option<Box<dyn Any + Send + Sync>>,
}

impl Request<'_> {
    /// Answers with `make`'s implementation for the kernel, if the request is for type `T`.
    pub fn provide<T: Any + Send + Sync>(&mut self, make: impl FnOnce(&Kernel) -> T) {
        self.provide_some(|kernel| Some(make(kernel)));
    }

    /// [`Request::provide`], unless `make` gives `None`.
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
/// [`ErrorKind::Unsupported`] if it offers none.
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

/// The error for inputs that do not fit the operation, with their shapes and dtypes and the reason.
#[track_caller]
pub(crate) fn misfit(custom: &dyn CustomKernel, inputs: &[(Shape, DType)], what: &dyn fmt::Display) -> Error {
    let inputs: Vec<String> = inputs.iter().map(|(shape, dtype)| format!("{shape} {dtype}")).collect();
    Error::invalid(custom.name(), format!("inputs {}: {what}", inputs.join(", ")))
}

/// Kernels of one type with the same key are interchangeable.
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

/// Appends the kernel's identity to a plan's key.
pub(crate) fn write_key(key: &mut Vec<u64>, kernel: &dyn CustomKernel) {
    let own = kernel.key();
    key.extend([type_number(type_of(kernel)), own.len() as u64]);
    key.extend(own);
}

/// Whether a layout is row-major and starts at its buffer's first element.
pub(crate) fn is_plain(layout: &Layout) -> bool {
    layout.is_contiguous() && (layout.offset() == 0 || layout.numel() == 0)
}

/// The shapes and dtypes of operands.
pub(crate) fn specs(operands: &[Operand]) -> Vec<(Shape, DType)> {
    operands.iter().map(|operand| (operand.layout.shape().clone(), operand.dtype)).collect()
}
