//! New nodes, which the records of memory and profiles and the traces note.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    base::sync::lock,
    graph::{
        handle::Tensor,
        memory_log,
        node::{Element, Inputs, Node, Value},
        op::Op,
        trace,
    },
};

impl Tensor {
    /// The first handle to a new node.
    pub(crate) fn first(node: Node) -> Tensor {
        Tensor(node.noted())
    }
}

impl Node {
    /// The new node, shared and noted.
    pub(crate) fn noted(self) -> Arc<Node> {
        let node = Arc::new(self);
        memory_log::note(&node);
        trace::note(&node);
        node
    }

    /// The node of result `k` of this tuple: a new one, without user handles, if the last one was
    /// dropped. A node that is not a tuple is its own only result.
    pub(crate) fn element(self: &Arc<Node>, k: usize) -> Arc<Node> {
        let Some(tuple) = self.tuple() else { return self.clone() };
        let element = &tuple.elements[k];
        let mut state = lock(&element.state);
        state.node.upgrade().unwrap_or_else(|| {
            let node = self.new_element(element, k, state.kept.clone()).noted();
            state.node = Arc::downgrade(&node);
            node
        })
    }

    /// The node that receives result `k` of this tuple's kernel: the result's node, if it has no value
    /// yet, or else an unreachable one.
    pub(crate) fn waiting_element(self: &Arc<Node>, k: usize) -> Arc<Node> {
        let node = self.element(k);
        match self.tuple() {
            Some(tuple) if node.has_value() => Arc::new(self.new_element(&tuple.elements[k], k, None)),
            _ => node,
        }
    }

    fn new_element(self: &Arc<Node>, element: &Element, k: usize, value: Option<Value>) -> Node {
        let mut inputs = Inputs::from_iter([self.clone()]);
        let mut device = self.device.clone();
        if let Op::Custom(_) = self.op {
            // The inputs are gone if a backward pass consumed the function; no elements are requested
            // after that.
            let own = lock(&self.state).inputs.clone();
            let results = self.tuple().map_or(0, |tuple| tuple.elements.len());
            if let Some(result) = own.get((own.len() + k).saturating_sub(results)) {
                device = result.device.clone();
                inputs.push(result.clone());
            }
        }
        let op = Op::TupleElement { of: self.op.name(), index: k };
        let tracked = self.is_tracked() && element.dtype.is_float();
        let (shape, dtype) = (element.shape.clone(), element.dtype);
        let node = Node::new(op, shape, dtype, device, inputs, value, tracked, self.location);
        node.handles.store(0, Ordering::Relaxed);
        node
    }
}
