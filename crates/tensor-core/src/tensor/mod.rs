//! The operations of [`Tensor`], with a folder for each kind and a file for each family. This file
//! constructs the nodes of operations and computes their values.
//! It depends on every other module of the crate except `fft`.

pub mod autocast;
mod blocks;
mod cell;
pub(crate) mod creation;
mod custom;
mod indexing;
mod operators;
mod packed_rows;
mod pointwise;
mod product;
mod reading;
mod recording;
mod reduction;
mod shape;
mod tree;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

#[doc(hidden)] // for `optim`
pub use cell::WeakTensor;
pub use creation::create::TensorOptions;
pub use creation::nested::{Nested, NumberOrigin};
pub use creation::random::{Generator, fork_rng};
pub use indexing::index::{Ellipsis, Index, Indices, NewAxis, Operand, Span, StepBy};
pub use indexing::scatter::ScatterReduce;
pub use operators::Number;
#[doc(hidden)] // for `autograd`
pub use recording::{Recorder, Recording};
pub use reduction::histogram::{Bins, HistogramOptions};
pub use reduction::quantile::Interpolation;
pub use shape::combine::MeshIndexing;
pub use tree::TensorTree;

use crate::{
    base::{
        error::{Error, ErrorKind, Result, shape_misfit},
        origin::here,
        shape::Shape,
        sync::lock,
    },
    devices::device::Device,
    elements::dtype::DType,
    graph::{
        grad_mode::is_grad_enabled,
        handle::Tensor,
        node::{Extra, Inputs, Node, Tuple, Value},
        op::{CustomOp, Op},
    },
    schedule::{
        self,
        capture::{is_capturing, refuse_in_capture},
    },
};

impl Tensor {
    /// A 0-d tensor as a vector of one element, for functions along an axis, which PyTorch allows on a
    /// scalar; other tensors as they are.
    #[track_caller]
    fn as_line(&self) -> Tensor {
        if self.rank() == 0 { self.reshape_unchecked([1].into()) } else { self.clone() }
    }

    /// The inverse of `as_line`: a vector of one element as a 0-d tensor.
    #[track_caller]
    fn as_scalar(&self) -> Tensor {
        self.reshape_unchecked(Shape::scalar())
    }

    /// Computes the value now, unless it is known. Other pending tensors are left alone.
    ///
    /// # Errors
    /// Whatever the device reports: out of memory, a lost device, an index out of range. The error names
    /// the failing operation and the source line that built it, and this tensor stays as it was. If the
    /// value depends on indices that only the device can check, this waits for that check, and each
    /// later call gives the same error.
    #[track_caller]
    pub fn eval(&self) -> Result<()> {
        Error::here_in(match self.0.variable() {
            None => settle(&self.0),
            Some(_) => settle(&self.node()),
        })
    }

    /// Whether the value is known.
    #[must_use]
    pub fn is_evaluated(&self) -> bool {
        self.node().has_value()
    }

    /// The value, which is computed if necessary.
    #[track_caller]
    pub(crate) fn value(&self) -> Result<Value> {
        node_value(&self.node())
    }

    /// A new node made by `op` from `inputs`. The caller has checked that they are on one device and
    /// that shapes and dtypes fit.
    #[track_caller]
    pub(crate) fn build(op: Op, shape: Shape, dtype: DType, inputs: &[&Tensor]) -> Tensor {
        let nodes: Inputs = match inputs {
            [a, b] => Inputs::from_buf([a.node(), b.node()]),
            _ => inputs.iter().map(|t| t.node()).collect(),
        };
        let device = nodes[0].device.clone();
        Tensor::build_on(op, shape, dtype, device, nodes)
    }

    #[track_caller]
    pub(super) fn build_on(op: Op, shape: Shape, dtype: DType, device: Device, inputs: Inputs) -> Tensor {
        let tracked = dtype.is_float() && inputs.iter().any(|n| n.is_tracked()) && is_grad_enabled();
        let waits = !inputs.is_empty();
        let node = Node::new(op, shape, dtype, device, inputs, None, tracked, here());
        let tensor = Tensor::first(node);
        if waits {
            schedule::pending::register(&tensor.0);
        }
        tensor
    }

    /// A node with a value.
    #[track_caller]
    pub(crate) fn ready(op: Op, shape: Shape, dtype: DType, device: Device, value: Value) -> Tensor {
        let node = Node::new(op, shape, dtype, device, Inputs::new(), Some(value), false, here());
        Tensor::first(node)
    }

    /// The results of `op`, which has several, from `inputs`, which the caller has checked. Nothing is
    /// computed yet.
    #[track_caller]
    pub(crate) fn build_tuple<const N: usize>(
        op: Op,
        results: [(Shape, DType); N],
        inputs: &[&Tensor],
    ) -> [Tensor; N] {
        let nodes: Inputs = inputs.iter().map(|t| t.node()).collect();
        let device = nodes[0].device.clone();
        let tuple = Tensor::tuple_on(op, &results, device, nodes);
        std::array::from_fn(|k| Tensor::element_of(&tuple, k))
    }

    /// [`Tensor::build_tuple`] with any number of results but 0.
    #[track_caller]
    pub(crate) fn build_results(op: Op, results: &[(Shape, DType)], inputs: &[Tensor]) -> Vec<Tensor> {
        let nodes: Inputs = inputs.iter().map(Tensor::node).collect();
        let device = nodes[0].device.clone();
        let tuple = Tensor::tuple_on(op, results, device, nodes);
        (0..results.len()).map(|k| Tensor::element_of(&tuple, k)).collect()
    }

    #[track_caller]
    fn tuple_on(op: Op, results: &[(Shape, DType)], device: Device, inputs: Inputs) -> Arc<Node> {
        debug_assert!(op.is_tuple(), "{op:?}");
        let float = results.iter().any(|(_, dtype)| dtype.is_float());
        let tracked = float && inputs.iter().any(|n| n.is_tracked()) && is_grad_enabled();
        // The node itself has no elements: its shape and dtype have no meaning.
        let mut node = Node::new(op, Shape::scalar(), DType::F32, device, inputs, None, tracked, here());
        node.extra = Some(Box::new(Extra::Tuple(Tuple::new(results))));
        node.handles.store(0, Ordering::Relaxed);
        node.noted()
    }

    fn element_of(tuple: &Arc<Node>, k: usize) -> Tensor {
        let node = tuple.element(k);
        schedule::pending::register(&node);
        Tensor::from_node(node)
    }

    /// The results of a user's own differentiable function: `values`, computed from `inputs` without a
    /// tape, with `op`'s gradient. The `autograd` crate's `apply` is the convenient interface.
    #[track_caller]
    #[doc(alias = "Function")]
    pub fn custom(op: Arc<dyn CustomOp>, inputs: &[&Tensor], values: &[Tensor]) -> Vec<Tensor> {
        let Some(first) = values.first() else { return Vec::new() };
        let results: Vec<_> = values.iter().map(|v| (v.shape().clone(), v.dtype())).collect();
        let nodes = inputs.iter().copied().chain(values).map(Tensor::node).collect();
        let tuple = Tensor::tuple_on(Op::Custom(op), &results, first.device(), nodes);
        (0..values.len()).map(|k| Tensor::element_of(&tuple, k)).collect()
    }

    /// Fails unless all tensors are on one device.
    #[track_caller]
    pub(crate) fn same_device(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
        let Some((first, rest)) = tensors.split_first() else { return Ok(()) };
        // Only a cell's device can change; all others can be compared directly.
        if tensors.iter().all(|t| t.0.extra.is_none() && t.0.device == first.0.device) {
            return Ok(());
        }
        let device = first.device();
        for tensor in rest {
            let other = tensor.device();
            if other != device {
                return Err(first.on_another_device(op, tensor));
            }
        }
        Ok(())
    }
}

impl Tensor {
    /// The error for two tensors on different devices.
    #[doc(hidden)] // for the crates above
    #[must_use]
    #[track_caller]
    pub fn on_another_device(&self, op: &'static str, other: &Tensor) -> Error {
        let (lhs, rhs) = (self.device(), other.device());
        let is_parameter = |tensor: &Tensor| tensor.is_cell();
        let hint = match (is_parameter(self), is_parameter(other)) {
            (false, true) | (true, false) => {
                let (input, parameter) = if is_parameter(other) { (self, other) } else { (other, self) };
                format!(
                    "the parameter {} is on {}, the other tensor, {}, on {}: move the model with model.to(&device)? or the \
                     tensor with .to(&device)?",
                    parameter.shape(),
                    parameter.device(),
                    input.shape(),
                    input.device()
                )
            }
            _ => format!(
                "move one with .to(&device)? so that both, {} and {}, are on one device",
                self.shape(),
                other.shape()
            ),
        };
        Error::new(ErrorKind::DeviceMismatch { op, lhs: lhs.name().into(), rhs: rhs.name().into(), hint })
    }
}

/// The error for two incompatible dtypes.
#[track_caller]
pub(super) fn dtype_misfit(op: &'static str, lhs: DType, rhs: DType, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::DTypeMismatch { op, lhs, rhs, hint: hint.into() })
}

/// The error for an operation that gradients do not allow.
#[track_caller]
pub(super) fn autograd_misuse(op: &'static str, message: &str) -> Error {
    Error::new(ErrorKind::Autograd { op, message: message.into() })
}

/// The value of a node, which is computed if necessary.
#[track_caller]
fn node_value(node: &Arc<Node>) -> Result<Value> {
    refuse_in_capture("compile", "read a value")?;
    schedule::computed(node)
}

/// Computes a node's value if necessary, and waits until its index checks have passed, where a thread can
/// wait.
fn settle(node: &Arc<Node>) -> Result<()> {
    if is_capturing() {
        return Ok(());
    }
    loop {
        let facts = lock(&node.state).value.as_ref().map(|value| value.facts.clone());
        match facts {
            Some(facts) if facts.is_nothing() => return Ok(()),
            Some(facts) if !node.device.backend().can_wait() => return facts.check(),
            Some(facts) => return facts.settle(node.device.backend().as_ref()),
            None => schedule::evaluate_one(node)?,
        }
    }
}

/// Computes all of `tensors` together, and returns when the index checks of all have passed. An
/// optimizer calls this before it changes anything.
///
/// # Errors
/// As [`Tensor::eval`], for any of them.
pub fn eval_all(tensors: &[&Tensor]) -> Result<()> {
    let nodes: Vec<Arc<Node>> = tensors.iter().map(|tensor| tensor.node()).collect();
    schedule::evaluate(nodes.iter().filter(|node| !node.has_value()).cloned().collect())?;
    // The first wait on a device decides the checks of all its tensors.
    nodes.iter().try_for_each(settle)
}

/// [`eval_all`], if it needs no new memory because all results can overwrite values that are no longer
/// held; otherwise returns false and computes nothing.
#[doc(hidden)] // for `optim`
#[track_caller]
pub fn eval_in_place(tensors: &[&Tensor]) -> Result<bool> {
    let nodes: Vec<Arc<Node>> = tensors.iter().map(|tensor| tensor.node()).collect();
    let waiting = nodes.iter().filter(|node| !node.has_value()).cloned().collect();
    if !schedule::evaluate_in_place(waiting)? {
        return Ok(false);
    }
    nodes.iter().try_for_each(settle)?;
    Ok(true)
}

/// Computes all of `tensors` together, in order of priority, and calls `ready` with the index of each as
/// soon as its kernels have been given to the device, in order. Readers of a tensor learn whether its
/// indices were good.
///
/// `ready` is called during the evaluation, while other threads wait for the device: it may signal
/// another thread to read the tensor, but must not evaluate anything itself.
///
/// # Errors
/// As [`Tensor::eval`], for any of them.
#[doc(hidden)] // for `distributed`
pub fn eval_each(tensors: &[&Tensor], ready: &dyn Fn(usize)) -> Result<()> {
    let nodes: Vec<Arc<Node>> = tensors.iter().map(|tensor| tensor.node()).collect();
    let next = Cell::new(0);
    let progress = || {
        while nodes.get(next.get()).is_some_and(|node| node.has_value()) {
            ready(next.replace(next.get() + 1));
        }
    };
    progress();
    let waiting = nodes.iter().filter(|node| !node.has_value()).cloned().collect();
    schedule::evaluate_watched(waiting, &progress)?;
    progress();
    Ok(())
}

/// Computes all pending tensors that were built on this thread and are still held. An optimizer's step
/// ends with this.
///
/// It does not wait for a device: a bad index that only the device can find is reported when a dependent
/// value is read.
///
/// # Errors
/// The first failure; values that could be computed are kept.
#[track_caller]
pub fn eval_pending() -> Result<()> {
    schedule::pending::flush()
}

/// Runs `f` without evaluating anything because of the number of pending nodes: the nodes that it builds
/// are evaluated together afterwards.
#[doc(hidden)] // for `optim`
pub fn build_only<R>(f: impl FnOnce() -> R) -> R {
    schedule::pending::without_bound(f)
}
