//! [`Trace`]: the operations that a function builds, in order, for programs that translate a graph into
//! another format. The calls of high-level functions are noted beside the operations that they consist of, so
//! that a translator can choose between a layer normalization and its parts.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use crate::{
    base::on_drop::OnDrop,
    graph::{
        handle::Tensor,
        node::{Inputs, Node},
    },
};

thread_local! {
    static TRACING: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Found> = const { RefCell::new(Found { nodes: Vec::new(), calls: Vec::new() }) };
}

struct Found {
    nodes: Vec<(Arc<Node>, Inputs)>,
    calls: Vec<TracedCall>,
}

/// The operations that a function built, in order.
#[derive(Debug)]
pub struct Trace {
    /// The operations, each after its inputs.
    pub nodes: Vec<TracedNode>,
    /// The calls of high-level functions; an inner call is before the one that contains it.
    pub calls: Vec<TracedCall>,
}

/// An operation of a [`Trace`].
#[derive(Debug)]
pub struct TracedNode {
    /// Its result.
    pub tensor: Tensor,
    /// The tensors that it reads, also those that evaluation dropped. A leaf that shares the value of a cell
    /// has the cell here.
    pub inputs: Vec<Tensor>,
}

/// A call of a high-level function, such as `layer_norm`.
#[derive(Clone, Debug)]
pub struct TracedCall {
    /// The function's name.
    pub name: &'static str,
    /// Its tensors, by position.
    pub inputs: Vec<Option<Tensor>>,
    /// Its results.
    pub outputs: Vec<Tensor>,
    /// Its other arguments.
    pub arguments: Vec<(&'static str, Argument)>,
}

/// An argument of a high-level function.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// Integers, such as strides.
    Ints(Vec<i64>),
    /// Numbers, such as scale factors.
    Floats(Vec<f64>),
    /// A name, such as a mode.
    Text(&'static str),
}

impl Argument {
    /// The integers of these sizes.
    pub fn sizes(sizes: &[usize]) -> Argument {
        Argument::Ints(sizes.iter().map(|&size| size as i64).collect())
    }
}

impl Trace {
    /// Runs `f` on this thread, and notes the operations that it builds. Within `f`,
    /// [`Tensor::has_custom_kernel`] says no, so that functions compose operations that have native kernels.
    pub fn of<R>(f: impl FnOnce() -> R) -> (R, Trace) {
        let outer = FOUND.replace(Found { nodes: Vec::new(), calls: Vec::new() });
        let was_tracing = TRACING.replace(true);
        let restore = OnDrop::new(|| {
            TRACING.set(was_tracing);
            let inner = FOUND.replace(outer);
            drop(inner);
        });
        let result = f();
        TRACING.set(false);
        let found = FOUND.replace(Found { nodes: Vec::new(), calls: Vec::new() });
        drop(restore);
        let tensor = |node: Arc<Node>| Tensor::from_node(node).canonical();
        let nodes = found.nodes.into_iter().map(|(node, inputs)| TracedNode {
            tensor: Tensor::from_node(node),
            inputs: inputs.into_iter().map(tensor).collect(),
        });
        (result, Trace { nodes: nodes.collect(), calls: found.calls })
    }
}

/// Whether this thread is inside [`Trace::of`].
pub fn is_tracing() -> bool {
    TRACING.get()
}

/// Notes a new node with its inputs.
pub(crate) fn note(node: &Arc<Node>) {
    if TRACING.get() {
        let inputs = crate::base::sync::lock(&node.state).inputs.clone();
        FOUND.with_borrow_mut(|found| found.nodes.push((node.clone(), inputs)));
    }
}

/// Notes that the newest node, a leaf, has the value of another node.
pub(crate) fn note_alias(node: &Arc<Node>, source: &Arc<Node>) {
    if TRACING.get() {
        FOUND.with_borrow_mut(|found| {
            if let Some((last, inputs)) = found.nodes.last_mut()
                && Arc::ptr_eq(last, node)
                && inputs.is_empty()
            {
                inputs.push(source.clone());
            }
        });
    }
}

/// Notes a call of a high-level function, if this thread traces; returns its result.
pub fn traced<const N: usize>(
    name: &'static str,
    inputs: [Option<&Tensor>; N],
    output: Tensor,
    arguments: impl FnOnce() -> Vec<(&'static str, Argument)>,
) -> Tensor {
    if TRACING.get() {
        traced_results(name, &inputs, &[&output], arguments());
    }
    output
}

/// [`traced`] for several results.
pub fn traced_results(
    name: &'static str,
    inputs: &[Option<&Tensor>],
    outputs: &[&Tensor],
    arguments: Vec<(&'static str, Argument)>,
) {
    if TRACING.get() {
        let inputs = inputs.iter().map(|input| input.cloned()).collect();
        let outputs = outputs.iter().map(|&output| output.clone()).collect();
        let call = TracedCall { name, inputs, outputs, arguments };
        FOUND.with_borrow_mut(|found| found.calls.push(call));
    }
}
