//! Leaves and cells: tensors that want gradients, whose value can be replaced, and what autograd needs to
//! know of them.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
};

use smallvec::SmallVec;

use super::{Tensor, create::check};
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        origin::here,
        sync::lock,
    },
    devices::device::Device,
    graph::{
        grad_mode::set_grad_enabled,
        node::{Extra, Inputs, Node, Variable},
        op::Op,
    },
    schedule::pending,
};

impl Tensor {
    /// A cell that holds this tensor's value, which [`Tensor::assign`] can replace for all its handles at
    /// once.
    ///
    /// With `requires_grad` it is a leaf of the graph: gradients accumulate in it. Without, it is a buffer,
    /// such as a running mean. A cell given is returned as it is, with the flag set as asked: one that was a
    /// parameter is a buffer from then on if no gradients are asked for. To freeze a parameter, use
    /// [`Tensor::set_requires_grad`].
    ///
    /// # Errors
    /// `requires_grad` of a dtype that is not floating-point.
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

    /// Whether this tensor is a cell that wants gradients or wanted them once: a parameter, also while it is
    /// frozen. A cell that never wanted any is a buffer.
    #[must_use]
    pub fn is_parameter(&self) -> bool {
        self.0.variable().is_some_and(|variable| variable.parameter.load(Ordering::Relaxed))
    }

    /// Replaces the value of this cell, for every handle on it. Graphs built before keep the old value. The
    /// gradient stays.
    ///
    /// # Errors
    /// Not a cell, another shape or another dtype; nothing is changed then. Another device is fine: the cell
    /// moves there.
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
        let next = cell_value(&value.node(), variable.requires_grad.load(Ordering::Relaxed));
        let _ = next.0.leaf.set(Arc::downgrade(&self.0));
        let old = std::mem::replace(&mut *lock(&variable.current), next);
        drop(old);
        Ok(())
    }

    /// The value of this moment, without a hold on it: who computes the next one may do so in its place.
    #[doc(hidden)] // for `optim`
    #[must_use]
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.node()))
    }

    /// Whether gradients are wanted for this cell or recorded for this result.
    #[doc(alias = "requires_grad")]
    #[must_use]
    pub fn is_tracked(&self) -> bool {
        match self.0.variable() {
            Some(variable) => variable.requires_grad.load(Ordering::Relaxed),
            None => self.0.is_tracked(),
        }
    }

    /// Turns the wish for gradients of a cell on or off (to freeze a parameter). Graphs built before are not
    /// touched. A cell that wanted gradients once stays a parameter ([`Tensor::is_parameter`]).
    ///
    /// # Errors
    /// Not a cell, or on for a dtype that is not floating-point.
    #[track_caller]
    #[doc(alias = "requires_grad_")]
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let Some(variable) = self.0.variable() else {
            return Err(Error::invalid(
                "set_requires_grad",
                "this tensor is not a cell; make one with .requires_grad() or .into_cell(false)",
            ));
        };
        if requires_grad && !self.dtype().is_float() {
            return Err(not_float(self));
        }
        if requires_grad {
            variable.parameter.store(true, Ordering::Relaxed);
        }
        if variable.requires_grad.swap(requires_grad, Ordering::Relaxed) != requires_grad {
            let current = lock(&variable.current).clone();
            self.assign(&current)?;
        }
        Ok(())
    }

    /// Whether this tensor begins a graph: a cell, or anything not recorded from a tracked input.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        self.0.variable().is_some() || !self.0.is_tracked()
    }

    /// The gradient accumulated in this leaf so far, if there is one.
    #[must_use]
    pub fn grad(&self) -> Option<Tensor> {
        self.0.variable().and_then(|variable| lock(&variable.grad).clone())
    }

    /// Replaces the gradient of this leaf; `None` clears it. Does nothing for a tensor that is not a cell.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(variable) = self.0.variable() {
            let old = std::mem::replace(&mut *lock(&variable.grad), grad);
            drop(old);
        }
    }

    /// Replaces the gradient of this leaf if it is still the one that was `seen`; says whether it was. So
    /// threads that add to one leaf lose nothing: who came second adds to what is there now.
    #[doc(hidden)]
    pub fn exchange_grad(&self, seen: Option<&Tensor>, next: &Tensor) -> bool {
        let Some(variable) = self.0.variable() else { return true };
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
        set_grad_enabled(false, || {
            let node = self.node();
            if !node.is_tracked() && node.leaf.get().is_none() && self.0.variable().is_none() {
                return self.clone();
            }
            cell_value(&node, false)
        })
    }

    /// Whether a backward pass has already used this tensor's graph up.
    #[doc(hidden)]
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }

    /// Marks the nodes as used up by a backward pass, all of them or none: of two passes that share a node,
    /// one gets them. An error is the first node that was used up before.
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

    /// Lets go of what this tensor was recorded from, once it has its value.
    #[doc(hidden)]
    pub fn release_graph(&self) {
        self.0.release();
    }

    /// The cell itself for any of its values, and a handle on the value's own node otherwise.
    #[doc(hidden)]
    pub fn resolve(&self) -> Tensor {
        Tensor::from_node(self.node())
    }

    /// The leaf in which gradients that arrive at this value accumulate.
    #[doc(hidden)]
    pub fn leaf(&self) -> Option<Tensor> {
        match self.0.variable() {
            Some(_) => Some(self.clone()),
            None => self.0.leaf.get().and_then(Weak::upgrade).map(Tensor::from_node),
        }
    }

    /// Whether this is a value of a leaf, live or gone.
    #[doc(hidden)]
    pub fn is_leaf_value(&self) -> bool {
        self.0.variable().is_some() || self.0.leaf.get().is_some()
    }

    /// The nodes this one was made from, values of leaves as they were then.
    #[doc(hidden)]
    pub fn recorded_inputs(&self) -> SmallVec<[Tensor; 2]> {
        lock(&self.0.state).inputs.iter().cloned().map(Tensor::from_node).collect()
    }

    /// This tensor on `device`; the tensor itself if it is there already. Gradients flow back to where it
    /// came from.
    ///
    /// As any operation this computes nothing: the elements are copied when someone looks at what depends on
    /// them.
    ///
    /// # Errors
    /// A dtype that the other device lacks, or more than it holds in one buffer. A failure to compute it here
    /// or to allocate there is told when it is evaluated, with this line.
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

/// A value that others may let go of. See [`Tensor::downgrade`].
#[doc(hidden)]
#[derive(Debug)]
pub struct WeakTensor(Weak<Node>);

impl WeakTensor {
    /// The value, if it is still there.
    #[must_use]
    pub fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor::from_node)
    }
}

/// A node of its own for a value that already has one: the same buffer if computed, an alias if not.
#[track_caller]
fn cell_value(node: &Arc<Node>, tracked: bool) -> Tensor {
    let value = lock(&node.state).value.clone();
    let waits = value.is_none();
    let (op, inputs) = match waits {
        false => (Op::Leaf, Inputs::new()),
        true => (Op::Reshape, Inputs::from_iter([node.clone()])),
    };
    let fresh =
        Node::new(op, node.shape.clone(), node.dtype, node.device.clone(), inputs, value, tracked, here());
    let tensor = Tensor::first(fresh);
    if tracked {
        // A leaf's own making is nobody's business: drop it as soon as it is computed.
        tensor.0.release();
    }
    if waits {
        pending::register(&tensor.0);
    }
    tensor
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
