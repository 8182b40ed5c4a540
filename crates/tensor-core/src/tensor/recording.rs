//! [`Recording`]: a part of the graph without its values, so that the operations can be built again with
//! other inputs. Checkpointing stores these.

use std::{fmt, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{
    base::{error::Result, location::Location, shape::Shape, sync::lock},
    devices::device::Device,
    elements::dtype::DType,
    graph::{
        grad_mode::is_grad_enabled,
        handle::Tensor,
        memory_log,
        node::{BuiltNodes, Extra, Inputs, Node, Tuple, built_in},
        op::Op,
    },
    schedule::{capture::is_noted_number, pending, replay::stored},
};

/// The recorded operations of a function, in an order in which they can be built, without values and
/// without the tensors that it read. Random numbers are reproduced, since their operations contain the
/// seed and the position in the stream.
pub struct Recording {
    nodes: Vec<Recorded>,
    outputs: Vec<Source>,
}

/// An operation.
struct Recorded {
    op: Op,
    shape: Shape,
    dtype: DType,
    device: Device,
    location: Location,
    tracked: bool,
    inputs: SmallVec<[Source; 2]>,
    /// The results, for an operation with several.
    results: Option<Box<[(Shape, DType)]>>,
}

/// The source of an operation's input.
#[derive(Clone, Copy)]
enum Source {
    /// A tensor that the function read: the input with this number.
    Outside(u32),
    /// The recorded operation with this number.
    Recorded(u32),
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording of {} operations", self.nodes.len())
    }
}

/// The nodes that a function built while it ran.
pub struct Recorder {
    built: BuiltNodes,
}

impl Recorder {
    /// Runs `f` on this thread. Until it ends, nothing is computed unless its value is requested.
    pub fn run<R>(f: impl FnOnce() -> R) -> (R, Recorder) {
        let (result, built) = built_in(f);
        (result, Recorder { built })
    }

    /// Whether the function built this tensor, as opposed to receiving or reading it.
    pub fn built(&self, tensor: &Tensor) -> bool {
        self.built.has(tensor.node().id)
    }

    /// The operations that made `outputs`, and the tensors from outside of the function that they read:
    /// other tensors, values of cells, constants.
    ///
    /// The recorded nodes are then consumed, as by a backward pass: evaluation keeps none of their
    /// inputs, and `outputs` have no gradient.
    pub fn finish(self, outputs: &[Tensor]) -> (Recording, Vec<Tensor>) {
        Walk::new(self.built, None).finish(outputs)
    }

    /// The operations of a backward pass alone, and the tensors that they read, for a forward pass that is
    /// `self`: `backward` has built `gradients`, from the gradients of `results`.
    ///
    /// It reads those tensors of the forward pass that would be stored if both passes were computed together;
    /// what would be computed again is a part of the recording. Random numbers and numbers of the host are
    /// not, as they vary from call to call: what depends on these is read as a tensor.
    ///
    /// # Errors
    /// An operation that the device cannot do.
    pub fn finish_backward(
        self,
        backward: Recorder,
        results: &[Tensor],
        gradients: &[Tensor],
    ) -> Result<(Recording, Vec<Tensor>)> {
        let targets: Vec<Arc<Node>> = results.iter().chain(gradients).map(Tensor::node).collect();
        let forward = Forward { built: self.built, stored: stored(&targets)?, varies: FxHashMap::default() };
        Ok(Walk::new(backward.built, Some(forward)).finish(gradients))
    }
}

/// The search for the operations that made the outputs.
struct Walk {
    built: BuiltNodes,
    forward: Option<Forward>,
    places: FxHashMap<u64, Source>,
    found: Vec<(Arc<Node>, SmallVec<[Source; 2]>)>,
    outside: Vec<Arc<Node>>,
}

/// The forward pass before the operations that are searched.
struct Forward {
    built: BuiltNodes,
    /// The nodes that get buffers.
    stored: FxHashSet<u64>,
    /// Whether a node is computed from what varies from call to call, by its id.
    varies: FxHashMap<u64, bool>,
}

/// A node whose inputs are being visited.
struct Frame {
    node: Arc<Node>,
    inputs: Inputs,
    sources: SmallVec<[Source; 2]>,
}

impl Walk {
    fn new(built: BuiltNodes, forward: Option<Forward>) -> Walk {
        Walk { built, forward, places: FxHashMap::default(), found: Vec::new(), outside: Vec::new() }
    }

    fn finish(mut self, outputs: &[Tensor]) -> (Recording, Vec<Tensor>) {
        let outputs: Vec<Source> = outputs.iter().map(|output| self.visit(output.node())).collect();
        let recorded = |(node, inputs): &(Arc<Node>, SmallVec<[Source; 2]>)| Recorded {
            op: node.op.clone(),
            shape: node.shape.clone(),
            dtype: node.dtype,
            device: node.device.clone(),
            location: node.location,
            tracked: node.is_tracked(),
            inputs: inputs.clone(),
            results: node
                .tuple()
                .map(|tuple| tuple.elements.iter().map(|e| (e.shape.clone(), e.dtype)).collect()),
        };
        let nodes = self.found.iter().map(recorded).collect();
        self.found.iter().filter(|(node, _)| node.is_tracked()).for_each(|(node, _)| node.release());
        let outside = self.outside.into_iter().map(Tensor::from_node).collect();
        (Recording { nodes, outputs }, outside)
    }

    /// Depth first, with an explicit stack: a chain may be long.
    fn visit(&mut self, output: Arc<Node>) -> Source {
        let mut stack = Vec::new();
        let mut last = self.enter(output, &mut stack);
        while let Some(top) = stack.last_mut() {
            top.sources.extend(last.take());
            if let Some(next) = top.inputs.get(top.sources.len()).cloned() {
                last = self.enter(next, &mut stack);
            } else if let Some(Frame { node, sources, .. }) = stack.pop() {
                let source = Source::Recorded(self.found.len() as u32);
                self.places.insert(node.id, source);
                self.found.push((node, sources));
                last = Some(source);
            }
        }
        // The loop ends with the output's own source.
        last.unwrap_or(Source::Outside(0))
    }

    /// The node's source, if it is known without visiting its inputs.
    fn enter(&mut self, node: Arc<Node>, stack: &mut Vec<Frame>) -> Option<Source> {
        if let Some(source) = self.places.get(&node.id) {
            return Some(*source);
        }
        let is_own = |forward: &mut Forward| self.built.has(node.id) || forward.is_repeated(&node);
        let is_own = self.forward.as_mut().map_or_else(|| self.built.has(node.id), is_own);
        let ends = !is_own || node.leaf.get().is_some() || matches!(node.op, Op::Leaf);
        let inputs = lock(&node.state).inputs.clone();
        // A node that has its value and dropped its inputs is a constant.
        if ends || (inputs.is_empty() && !node.op.is_source()) {
            let source = Source::Outside(self.outside.len() as u32);
            self.places.insert(node.id, source);
            self.outside.push(node);
            return Some(source);
        }
        stack.push(Frame { node, inputs, sources: SmallVec::new() });
        None
    }
}

impl Forward {
    /// Whether the backward pass computes a node of the forward pass again.
    fn is_repeated(&mut self, node: &Arc<Node>) -> bool {
        self.built.has(node.id) && !self.stored.contains(&node.id) && !self.varies(node)
    }

    /// Whether the node, which is not stored, is computed from a random number or a number of the host, with
    /// nothing stored in between. Depth first, with an explicit stack.
    fn varies(&mut self, node: &Arc<Node>) -> bool {
        let mut stack = vec![(node.clone(), false)];
        while let Some((node, is_open)) = stack.pop() {
            if self.varies.contains_key(&node.id) {
                continue;
            }
            let inputs = match self.built.has(node.id) && !self.stored.contains(&node.id) {
                true => lock(&node.state).inputs.clone(),
                false => Inputs::new(),
            };
            if !is_open {
                stack.push((node, true));
                stack.extend(inputs.into_iter().map(|input| (input, false)));
                continue;
            }
            let own = matches!(node.op, Op::Random { .. }) || is_noted_number(node.id);
            let varies = own || inputs.iter().any(|input| self.varies.get(&input.id) == Some(&true));
            self.varies.insert(node.id, varies);
        }
        self.varies.get(&node.id) == Some(&true)
    }
}

impl Recording {
    /// Builds the outputs again, with `outside` in place of the tensors that the function read; they
    /// must have the same shapes, dtypes and devices. If recording is on, the new nodes are recorded as
    /// the original ones were.
    ///
    /// # Panics
    /// `outside` has fewer tensors than the function read.
    pub fn build(&self, outside: &[Tensor]) -> Vec<Tensor> {
        let outside: Vec<Arc<Node>> = outside.iter().map(Tensor::node).collect();
        let mut built: Vec<Arc<Node>> = Vec::with_capacity(self.nodes.len());
        for recorded in &self.nodes {
            let inputs: Inputs =
                recorded.inputs.iter().map(|&source| found(source, &outside, &built)).collect();
            built.push(recorded.build(inputs));
        }
        self.outputs.iter().map(|&source| Tensor::from_node(found(source, &outside, &built))).collect()
    }
}

fn found(source: Source, outside: &[Arc<Node>], built: &[Arc<Node>]) -> Arc<Node> {
    match source {
        Source::Outside(k) => outside[k as usize].clone(),
        Source::Recorded(k) => built[k as usize].clone(),
    }
}

impl Recorded {
    fn build(&self, inputs: Inputs) -> Arc<Node> {
        if let (Op::TupleElement { index, .. }, Some(tuple)) = (&self.op, inputs.first()) {
            let element = tuple.element(*index);
            pending::register(&element);
            return element;
        }
        let tracked = self.tracked && is_grad_enabled() && inputs.iter().any(|input| input.is_tracked());
        let waits = !inputs.is_empty() && self.results.is_none();
        let (op, shape, device) = (self.op.clone(), self.shape.clone(), self.device.clone());
        let mut node = Node::new(op, shape, self.dtype, device, inputs, None, tracked, self.location);
        node.extra = self.results.as_ref().map(|results| Box::new(Extra::Tuple(Tuple::new(results))));
        // No user holds a handle to it.
        node.handles.store(0, std::sync::atomic::Ordering::Relaxed);
        let node = Arc::new(node);
        memory_log::note(&node);
        if waits {
            pending::register(&node);
        }
        node
    }
}
