//! [`CustomKernel`]: operations with native kernels, from crates that this one does not know.
//! [`Tensor::custom_kernel`] makes a tensor with one; a backend finds its implementation by
//! [`implementation`].

use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
};

use crate::{
    DType, Device, Error, ErrorKind, Layout, Op, Result, Shape, Tensor,
    kernel::{Kernel, Operand},
    node::lock,
    origin::at_caller,
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

/// A number for each type of kernel or block format seen so far, as a part of plan keys.
pub(crate) fn type_number(id: TypeId) -> u64 {
    static TYPES: Mutex<Vec<TypeId>> = Mutex::new(Vec::new());
    let mut types = lock(&TYPES);
    let place = types.iter().position(|known| *known == id).unwrap_or_else(|| {
        types.push(id);
        types.len() - 1
    });
    place as u64
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

impl Tensor {
    /// The results of an operation with native kernels, in their order. Nothing is computed yet.
    ///
    /// Gradients do not pass through: call it in the forward pass of an `autograd::Function`, which
    /// defines them.
    ///
    /// # Errors
    /// The kernel's own check of its inputs' shapes and dtypes; no inputs, or inputs on two devices;
    /// results that are too large, or of a dtype that the device lacks. A device without an
    /// implementation is an error when a result is computed.
    #[track_caller]
    #[doc(alias = "custom_op")]
    pub fn custom_kernel(kernel: Arc<dyn CustomKernel>, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let op = kernel.name();
        let Some(first) = inputs.first() else {
            return Err(Error::invalid(
                op,
                "an operation with a kernel of its own needs an input, for its device",
            ));
        };
        Tensor::same_device(op, inputs)?;
        let device = first.device();
        let given: Vec<(Shape, DType)> = inputs.iter().map(|t| (t.shape().clone(), t.dtype())).collect();
        let results = at_caller(|| kernel.results(&given))?;
        if results.is_empty() {
            return Err(Error::invalid(op, "its kernel has no results; give at least one"));
        }
        for (shape, dtype) in &results {
            shape.clone().checked(op)?;
            check_dtype(op, *dtype, &device)?;
        }
        let row_major = |t: &&Tensor| if kernel.takes_strides() { (*t).clone() } else { t.row_major() };
        let inputs: Vec<Tensor> = inputs.iter().map(row_major).collect();
        Ok(Tensor::build_results(Op::CustomKernel(kernel), &results, &inputs))
    }

    /// Whether the inputs' device has an implementation of the kernel for them. If not, the results of
    /// [`Tensor::custom_kernel`] cannot be computed, and the caller composes the operation from others.
    ///
    /// # Errors
    /// The kernel's own check of its inputs' shapes and dtypes.
    #[track_caller]
    pub fn has_custom_kernel(kernel: Arc<dyn CustomKernel>, inputs: &[&Tensor]) -> Result<bool> {
        let Some(first) = inputs.first() else { return Ok(false) };
        let given: Vec<(Shape, DType)> = inputs.iter().map(|t| (t.shape().clone(), t.dtype())).collect();
        let results = at_caller(|| kernel.results(&given))?;
        let operands = given.into_iter().map(|(shape, dtype)| Operand::new(dtype, Layout::contiguous(shape)));
        let kernel = Kernel::custom(kernel, operands.collect::<Vec<_>>(), &results);
        Ok(first.device().backend().implements(&kernel))
    }

    /// The same elements as a row-major buffer from its first element on; copied on evaluation if they
    /// are not one already.
    #[track_caller]
    fn row_major(&self) -> Tensor {
        let node = self.node();
        let is_there = lock(&node.state)
            .value
            .as_ref()
            .is_some_and(|value| value.view.is_none() && value.format.is_none());
        if is_there { self.clone() } else { self.contiguous_copy() }
    }
}

#[track_caller]
fn check_dtype(op: &'static str, dtype: DType, device: &Device) -> Result<()> {
    if device.supports(dtype) {
        return Ok(());
    }
    let device = device.name().into();
    let hint = "a result is of a dtype that the device lacks; cast the inputs".into();
    Err(Error::new(ErrorKind::Unsupported { op, device, dtype, hint }))
}
