//! [`Tensor::custom_kernel`]: tensors computed by a native kernel of another crate.

use std::sync::Arc;

use super::Tensor;
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        origin::at_caller,
        shape::Shape,
        sync::lock,
    },
    devices::device::Device,
    elements::dtype::DType,
    graph::{op::Op, trace::is_tracing},
    kernels::{
        custom::CustomKernel,
        kernel::{Kernel, Operand},
        layout::Layout,
    },
};

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
    /// Within [`Trace::of`](crate::Trace::of) no kernel counts as implemented.
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
        // A trace has the operations that others can read.
        Ok(!is_tracing() && first.device().backend().implements(&kernel))
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
