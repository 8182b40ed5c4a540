//! [`Tensor`]: a counted handle to a node, and the properties of that node. Its operations are in the
//! module `tensor`.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    base::{
        axes::Axis,
        error::Result,
        location::Location,
        origin::{ForwardOperation, in_gradient_rule},
        shape::Shape,
        sync::lock,
    },
    devices::device::Device,
    elements::dtype::DType,
    graph::{node::Node, op::Op},
};

/// An n-dimensional array on a device, together with the operation that made it.
///
/// A tensor is a cheap, shareable handle to a node of a graph. An operation makes a new node and
/// computes nothing; the value is computed when it is requested ([`Tensor::to_vec`], [`Tensor::item`],
/// printing, [`Tensor::eval`]). Cloning a tensor clones the handle.
///
/// Operations that cannot fail return a `Tensor`, all others return a `Result`. The operators `+ - * /`
/// panic on incompatible operands, like slice indexing; [`Tensor::add`] and its relatives are their
/// checked forms.
///
/// No operation changes a tensor: each returns a new one, and the compiler warns if that is dropped.
/// Only a cell (a parameter, a buffer) can get another value, by [`Tensor::assign`] and
/// [`Tensor::index_assign`].
///
/// `x == y` does not compile, because Rust's `==` returns one bool immediately: [`Tensor::eq`] compares
/// elementwise and gives a bool tensor, as PyTorch's `==` does; [`Tensor::equal`] says whether all
/// elements are equal, and [`Tensor::allclose`] whether they are nearly so.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(x: &tensor_core::Tensor) {
/// x.relu(); // returns a new tensor, and x is unchanged
/// # }
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(x: &tensor_core::Tensor, device: &tensor_core::Device) -> tensor_core::Result<()> {
/// x.to(device)?; // let x = x.to(device)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "operations give a new tensor and leave this one as it is: use the result, as in `let y = x.relu();` or `x = x.to(&d)?;`"]
pub struct Tensor(pub(crate) Arc<Node>);

impl Tensor {
    /// Another handle to a node.
    pub(crate) fn from_node(node: Arc<Node>) -> Tensor {
        node.handles.fetch_add(1, Ordering::Relaxed);
        Tensor(node)
    }

    /// The node that has this tensor's present value.
    pub(crate) fn node(&self) -> Arc<Node> {
        match self.0.variable() {
            None => self.0.clone(),
            Some(variable) => lock(&variable.current).0.clone(),
        }
    }

    /// The sizes along each axis.
    #[doc(alias = "size")]
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The sizes along each axis, as a slice.
    #[doc(alias("size", "shape"))]
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        self.0.shape.dims()
    }

    /// The number of axes.
    #[doc(alias("ndim", "dim", "ndimension"))]
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.shape.rank()
    }

    /// The number of elements.
    #[doc(alias("nelement", "len"))]
    #[must_use]
    pub fn numel(&self) -> usize {
        self.0.shape.numel()
    }

    /// The size along one axis, which may count from the end.
    #[track_caller]
    #[doc(alias = "size")]
    pub fn dim(&self, axis: impl Into<Axis>) -> Result<usize> {
        Ok(self.shape()[self.shape().axis(axis, "dim")?])
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The device the elements are on.
    #[must_use]
    pub fn device(&self) -> Device {
        match self.0.variable() {
            None => self.0.device.clone(),
            Some(variable) => lock(&variable.current).0.device.clone(),
        }
    }

    /// A number that no other node of this process has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// A number of this tensor's present value: [`Tensor::assign`] changes it, and no other value of this
    /// process has it.
    #[doc(hidden)] // for `onnx`
    #[must_use]
    pub fn value_id(&self) -> u64 {
        self.node().id
    }

    /// The operation that made this tensor.
    #[doc(alias = "grad_fn")]
    #[must_use]
    pub fn op(&self) -> &Op {
        &self.0.op
    }

    /// The user's source line that built this tensor.
    #[must_use]
    pub fn location(&self) -> Location {
        self.0.location
    }

    /// The tensors that this one was made from. Empty for leaves, and for an untracked tensor once it
    /// has its value. For one of several results of an operation, the operation's inputs.
    #[must_use]
    pub fn inputs(&self) -> Vec<Tensor> {
        let mut inputs = self.node_inputs();
        if inputs.first().is_some_and(|input| input.op().is_tuple()) {
            inputs = inputs.swap_remove(0).node_inputs();
        }
        inputs
    }

    /// The inputs of this node in the graph: for one of several results, the operation's node.
    #[doc(hidden)]
    #[must_use]
    pub fn node_inputs(&self) -> Vec<Tensor> {
        let node = &self.0;
        if node.variable().is_some() {
            return Vec::new();
        }
        let inputs = lock(&node.state).inputs.clone();
        inputs.into_iter().map(|input| Tensor::from_node(input).canonical()).collect()
    }

    /// All results of this node if its operation has several; else empty.
    #[doc(hidden)]
    #[must_use]
    pub fn elements(&self) -> Vec<Tensor> {
        let results = self.0.tuple().map_or(0, |tuple| tuple.elements.len());
        (0..results).map(|k| Tensor::from_node(self.0.element(k))).collect()
    }

    /// Runs `f`, the gradient rule of this operation: tensors built in it have this tensor's line, and a
    /// profile ascribes them to this operation.
    #[doc(hidden)] // for `autograd`
    pub fn in_gradient_rule<R>(&self, f: impl FnOnce() -> R) -> R {
        let operation = ForwardOperation { id: self.0.id, name: self.0.op.name() };
        in_gradient_rule(operation, self.0.location, f)
    }

    /// The number of results of this node.
    #[doc(hidden)]
    #[must_use]
    pub fn result_count(&self) -> usize {
        self.0.results()
    }

    /// Sets whether this handle counts as a user's, as it does initially, or as the graph's own:
    /// evaluation then stores the value only if it is needed otherwise. The handle must count again
    /// before it is dropped.
    #[doc(hidden)]
    pub fn count_handle(&self, counts: bool) {
        match counts {
            true => self.0.handles.fetch_add(1, Ordering::Relaxed),
            false => self.0.handles.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// The variable whose value this is, if it is one, so that a graph shows a parameter as itself.
    pub(crate) fn canonical(self) -> Tensor {
        match self.0.leaf.get().and_then(std::sync::Weak::upgrade) {
            Some(variable) => Tensor::from_node(variable),
            None => self,
        }
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        Tensor::from_node(self.0.clone())
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // The last handle need not check the reference count.
        if Arc::strong_count(&self.0) > 1 {
            self.0.handles.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
