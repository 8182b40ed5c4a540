//! Leaves and cells: tensors that require gradients, tensors whose value can be replaced, and the
//! interface that autograd uses.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
};

use smallvec::SmallVec;

use super::{Tensor, creation::create::check};
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        origin::{here, with_location},
        sync::lock,
    },
    devices::device::Device,
    graph::{
        grad_mode::set_grad_enabled,
        node::{Extra, Inputs, Node, Variable},
        op::Op,
        trace,
    },
    schedule::{
        capture::{self, GradientUse, is_capturing},
        pending,
    },
};

impl Tensor {
    /// A cell with this tensor's value, which [`Tensor::assign`] can replace for all its handles at once.
    ///
    /// With `requires_grad` it is a leaf of the graph: gradients accumulate in it. Without, it is a
    /// buffer, such as a running mean. If this tensor is a cell already, it is returned with the flag
    /// changed: without `requires_grad`, a parameter becomes a buffer. To freeze a parameter, use
    /// [`Tensor::set_requires_grad`].
    ///
    /// # Errors
    /// `requires_grad` for a dtype that is not floating-point, or for a cell whose value is in blocks.
    #[track_caller]
    #[doc(alias("Parameter", "register_buffer"))]
    pub fn into_cell(self, requires_grad: bool) -> Result<Tensor> {
        if let Some(variable) = self.0.variable() {
            self.set_requires_grad(requires_grad)?;
            variable.parameter.store(requires_grad, Ordering::Relaxed);
            return Ok(self);
        }
        if requires_grad && !self.dtype().is_float() {
            return Err(not_float(&self));
        }
        let current = cell_value(&self.node(), requires_grad);
        let node = &current.0;
        let mut outer = Node::new(
            Op::Leaf,
            node.shape.clone(),
            node.dtype,
            node.device.clone(),
            Inputs::new(),
            None,
            requires_grad,
            here(),
        );
        outer.extra = Some(Box::new(Extra::Variable(Variable {
            current: Mutex::new(current.clone()),
            requires_grad: AtomicBool::new(requires_grad),
            parameter: AtomicBool::new(requires_grad),
            grad: Mutex::new(None),
        })));
        let outer = Tensor::first(outer);
        let _ = node.leaf.set(Arc::downgrade(&outer.0));
        Ok(outer)
    }

    /// Whether this tensor is a cell: made by `requires_grad` or [`Tensor::into_cell`], or a module's
    /// parameter.
    #[must_use]
    pub fn is_cell(&self) -> bool {
        self.0.variable().is_some()
    }

    /// Whether this tensor is a parameter: a cell that requires gradients, or did once and is now
    /// frozen. A cell that never required any is a buffer.
    #[must_use]
    pub fn is_parameter(&self) -> bool {
        self.0.variable().is_some_and(|variable| variable.parameter.load(Ordering::Relaxed))
    }

    /// Replaces the value of this cell for all its handles. Graphs built before keep the old value. The
    /// gradient is not changed.
    ///
    /// # Errors
    /// Not a cell, another shape or another dtype; nothing is changed then. Another device is allowed:
    /// the cell moves there.
    #[track_caller]
    #[doc(alias("copy_", "set_", "fill_", "zero_"))]
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        let Some(variable) = self.0.variable() else {
            return Err(Error::invalid(
                "assign",
                "this tensor is not a cell; make one with .requires_grad() or .into_cell(false)",
            ));
        };
        if value.shape() != self.shape() {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: "assign",
                lhs: self.shape().clone(),
                rhs: value.shape().clone(),
                hint: "a cell keeps its shape".into(),
            }));
        }
        if value.dtype() != self.dtype() {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op: "assign",
                lhs: self.dtype(),
                rhs: value.dtype(),
                hint: format!(
                    "a cell keeps its dtype: cast the value with .to_dtype(DType::{:?})",
                    self.dtype()
                ),
            }));
        }
        capture::note_assigned(&self.0, || lock(&variable.current).clone());
        let next = cell_value(&value.node(), variable.requires_grad.load(Ordering::Relaxed));
        let _ = next.0.leaf.set(Arc::downgrade(&self.0));
        let old = std::mem::replace(&mut *lock(&variable.current), next);
        drop(old);
        Ok(())
    }

    /// A weak handle to the cell's present value: the computation of the next value may then overwrite
    /// it in place.
    #[doc(hidden)] // for `optim`
    #[must_use]
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.node()))
    }

    /// Whether this cell requires gradients, or this result is recorded for gradients.
    #[doc(alias = "requires_grad")]
    #[must_use]
    pub fn is_tracked(&self) -> bool {
        match self.0.variable() {
            Some(variable) => variable.requires_grad.load(Ordering::Relaxed),
            None => self.0.is_tracked(),
        }
    }

    /// Sets whether this cell requires gradients; false freezes a parameter. Graphs built before are not
    /// changed. A cell that has once required gradients stays a parameter ([`Tensor::is_parameter`]).
    ///
    /// # Errors
    /// Not a cell, or true for a dtype that is not floating-point or a value in blocks.
    #[track_caller]
    #[doc(alias = "requires_grad_")]
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let Some(variable) = self.0.variable() else {
            return Err(Error::invalid(
                "set_requires_grad",
                "this tensor is not a cell; make one with .requires_grad() or .into_cell(false)",
            ));
        };
        if requires_grad {
            trainable(self)?;
            variable.parameter.store(true, Ordering::Relaxed);
        }
        if variable.requires_grad.swap(requires_grad, Ordering::Relaxed) != requires_grad {
            let current = lock(&variable.current).clone();
            self.assign(&current)?;
        }
        Ok(())
    }

    /// Whether this tensor is a leaf: a cell, or any tensor that was not recorded from a tracked input.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.0.variable().is_some() || !self.0.is_tracked()
    }

    /// The gradient accumulated in this leaf so far, if there is one.
    #[must_use]
    pub fn grad(&self) -> Option<Tensor> {
        self.0.variable().and_then(|variable| {
            let before = || lock(&variable.grad).clone();
            capture::note_gradient(&self.0, before, GradientUse::Read);
            lock(&variable.grad).clone()
        })
    }

    /// Replaces the gradient of this leaf; `None` clears it. Does nothing for a tensor that is not a cell.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(variable) = self.0.variable() {
            let before = || lock(&variable.grad).clone();
            capture::note_gradient(&self.0, before, GradientUse::Replaced);
            let old = std::mem::replace(&mut *lock(&variable.grad), grad);
            drop(old);
        }
    }

    /// Replaces the gradient of this leaf if it is still `seen`; returns whether it was. This
    /// compare-and-swap lets threads add to one leaf without losing updates: on failure a thread retries
    /// with the new gradient.
    #[doc(hidden)]
    pub fn exchange_grad(&self, seen: Option<&Tensor>, next: &Tensor) -> bool {
        let Some(variable) = self.0.variable() else { return true };
        capture::note_gradient(&self.0, || lock(&variable.grad).clone(), GradientUse::Changed);
        let mut slot = lock(&variable.grad);
        if slot.as_ref().map(Tensor::id) != seen.map(Tensor::id) {
            return false;
        }
        let old = slot.replace(next.clone());
        drop(slot);
        drop(old);
        true
    }

    /// The same value without its history: no gradient flows through the result.
    #[track_caller]
    #[doc(alias("detach_", "data", "stop_gradient"))]
    pub fn detach(&self) -> Tensor {
        // Kept here, because a closure loses it.
        let line = here();
        set_grad_enabled(false, || {
            let node = self.node();
            if !node.is_tracked() && node.leaf.get().is_none() && self.0.variable().is_none() {
                return self.clone();
            }
            with_location(line, || cell_value(&node, false))
        })
    }

    /// Whether a backward pass has already consumed this tensor's graph.
    #[doc(hidden)]
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }

    /// Marks the nodes as consumed by a backward pass, all of them or none: if two passes share a node,
    /// only one succeeds. The error is the first node that was consumed before.
    #[doc(hidden)]
    pub fn claim_graph<'a>(nodes: impl Iterator<Item = &'a Tensor> + Clone) -> Result<(), &'a Tensor> {
        static CLAIMS: Mutex<()> = Mutex::new(());
        let _one_at_a_time = lock(&CLAIMS);
        if let Some(used) = nodes.clone().find(|node| node.0.is_released()) {
            return Err(used);
        }
        nodes.for_each(|node| node.0.claim());
        Ok(())
    }

    /// Drops the inputs that this tensor was recorded from, once it has its value.
    #[doc(hidden)]
    pub fn release_graph(&self) {
        self.0.release();
    }

    /// For the value of a cell, the cell itself; for any other tensor, a handle to its own node.
    #[doc(hidden)]
    pub fn resolve(&self) -> Tensor {
        Tensor::from_node(self.node())
    }

    /// The leaf in which gradients of this value accumulate.
    #[doc(hidden)]
    pub fn leaf(&self) -> Option<Tensor> {
        match self.0.variable() {
            Some(_) => Some(self.clone()),
            None => self.0.leaf.get().and_then(Weak::upgrade).map(Tensor::from_node),
        }
    }

    /// Whether this is a value of a leaf, which may have been dropped.
    #[doc(hidden)]
    pub fn is_leaf_value(&self) -> bool {
        self.0.variable().is_some() || self.0.leaf.get().is_some()
    }

    /// The nodes that this one was made from; leaves are given by the values that they had then.
    #[doc(hidden)]
    pub fn recorded_inputs(&self) -> SmallVec<[Tensor; 2]> {
        lock(&self.0.state).inputs.iter().cloned().map(Tensor::from_node).collect()
    }

    /// This tensor on `device`; the tensor itself if it is there already. Gradients flow back to the
    /// source device.
    ///
    /// Like any operation this is lazy: the elements are copied when a dependent value is requested.
    ///
    /// # Errors
    /// A dtype that the other device lacks, or a size beyond its limit for one buffer. A failure to
    /// compute on the source device or to allocate on the other one is reported at evaluation, with this
    /// line.
    #[track_caller]
    #[doc(alias("cuda", "cpu", "gpu", "mps"))]
    pub fn to(&self, device: &Device) -> Result<Tensor> {
        if self.device() == *device {
            return Ok(self.clone());
        }
        check("to", self.shape(), self.dtype(), device)?;
        if let Some(moved) = self.blocks_to("to", device, self.dtype())? {
            return Ok(moved);
        }
        pending::note_bytes(self.numel() * self.dtype().size());
        let inputs = Inputs::from_iter([self.node()]);
        Ok(Tensor::build_on(Op::ToDevice, self.shape().clone(), self.dtype(), device.clone(), inputs))
    }
}

/// A weak handle to a value. See [`Tensor::downgrade`].
#[doc(hidden)]
#[derive(Debug)]
pub struct WeakTensor(Weak<Node>);

impl WeakTensor {
    /// The value, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor::from_node)
    }
}

/// A separate node for a value that already has one: it shares the buffer if computed, else it is an
/// alias.
#[track_caller]
fn cell_value(node: &Arc<Node>, tracked: bool) -> Tensor {
    // In a function that is being compiled the value is a leaf, which later calls replace.
    let value = if is_capturing() { None } else { lock(&node.state).value.clone() };
    let waits = value.is_none();
    let (op, inputs) = match waits {
        false => (Op::Leaf, Inputs::new()),
        true => (Op::Reshape, Inputs::from_iter([node.clone()])),
    };
    let fresh =
        Node::new(op, node.shape.clone(), node.dtype, node.device.clone(), inputs, value, tracked, here());
    let tensor = Tensor::first(fresh);
    trace::note_alias(&tensor.0, node);
    if tracked {
        // A leaf's own history is not needed: drop it as soon as the value is computed.
        tensor.0.release();
    }
    if waits {
        pending::register(&tensor.0);
    }
    tensor
}

/// Fails for a tensor that can have no gradient of its own.
#[track_caller]
fn trainable(tensor: &Tensor) -> Result<()> {
    if !tensor.dtype().is_float() {
        return Err(not_float(tensor));
    }
    let Some(format) = tensor.block_format() else { return Ok(()) };
    let message = format!(
        "a tensor in blocks of {format} is constant; train adapters beside it (nn::lora::attach), or call \
         .dequantize() on it first"
    );
    Err(Error::new(ErrorKind::Autograd { op: "requires_grad", message }))
}

#[track_caller]
fn not_float(tensor: &Tensor) -> Error {
    Error::new(ErrorKind::Autograd {
        op: "requires_grad",
        message: format!(
            "only floating-point tensors can have gradients, this one is {}; cast it with .to_dtype(DType::F32)",
            tensor.dtype()
        ),
    })
}
