//! [`Graph`]: a snapshot of a computation graph, as plain data. The other files of this folder make pictures
//! and files from it.

use std::collections::{HashMap, HashSet};

use tensor_core::{DType, Op, Shape, Tensor, layer_calls};

use crate::by_layer::{GraphCall, Link, assign, module_of, named_id};

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A leaf that collects gradients: a parameter, or a tensor marked by `requires_grad`.
    Leaf,
    /// Values from the host, or evaluated values without history.
    Data,
    /// A constant of one number.
    Constant,
    /// An operation on other nodes.
    Operation,
}

impl NodeKind {
    /// The kind in one word, as in [`Graph::json`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Leaf => "leaf",
            NodeKind::Data => "data",
            NodeKind::Constant => "constant",
            NodeKind::Operation => "operation",
        }
    }
}

/// A node of a [`Graph`].
#[derive(Clone, Debug)]
pub struct GraphNode {
    /// The tensor's id.
    pub id: u64,
    /// The kind of the node.
    pub kind: NodeKind,
    /// The operation's name, as after `grad_fn=`; `leaf` and `data` for nodes without one, and the number of
    /// a constant.
    pub op: String,
    /// The name that was given to it.
    pub name: Option<String>,
    /// The shape; for an operation with several results, that of the first.
    pub shape: Shape,
    /// The dtype.
    pub dtype: DType,
    /// Whether it is an operation with several results, which have separate nodes.
    pub is_tuple: bool,
    /// Whether it is one of the outputs that the graph was requested for.
    pub is_output: bool,
    /// Whether its value is computed.
    pub is_evaluated: bool,
    /// The name of its device.
    pub device: String,
    /// The source location that built it: file and line.
    pub location: (&'static str, u32),
    /// The indices of its inputs in [`Graph::nodes`], in order.
    pub inputs: Vec<usize>,
    /// The path of the layer that it belongs to, such as `blocks.0.conv1`; empty for the model itself. A
    /// parameter belongs to its module.
    pub layer: String,
    /// The index in [`Graph::calls`] of the innermost call of a layer that built it, if one was noted.
    pub call: Option<usize>,
}

impl GraphNode {
    /// The title of the node in a picture: its name instead of "leaf" and "data", and beside an operation.
    #[must_use]
    pub fn title(&self) -> String {
        match (&self.name, self.kind) {
            (None, _) => self.op.clone(),
            (Some(name), NodeKind::Leaf | NodeKind::Data) => name.clone(),
            (Some(name), NodeKind::Constant | NodeKind::Operation) => format!("{name} = {}", self.op),
        }
    }

    /// Shape and dtype, or that there are several results.
    #[must_use]
    pub fn form(&self) -> String {
        if self.is_tuple { "tuple".into() } else { format!("{} {}", self.shape, self.dtype) }
    }
}

/// The computation graph of some tensors.
///
/// An evaluated, untracked tensor has lost its inputs, and a backward pass frees the graph that it uses:
/// take the snapshot before.
///
/// ```
/// use inspect::Graph;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::new([1.0, 2.0, 3.0], &device)?;
/// let y = (&x * 2.0).sum();
/// let graph = Graph::of(&[&y], &[("x", x)]);
/// let names: Vec<String> = graph.nodes.iter().map(|node| node.title()).collect();
/// assert_eq!(names, ["x", "2", "Mul", "Sum"]);
/// assert_eq!(graph.nodes[2].inputs, [0, 1]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The nodes, each after its inputs.
    pub nodes: Vec<GraphNode>,
    /// The calls of layers that built nodes.
    pub calls: Vec<GraphCall>,
}

impl Graph {
    /// The graph of `outputs`, with names for some tensors, such as `&model.named_parameters()`.
    ///
    /// The names give each node its layer: a call of a layer, noted while [`record_layer_calls`] was on,
    /// belongs to the innermost module that contains every parameter read in it. An operation outside of
    /// calls belongs to the module of the parameters that it reads, or else to the innermost module that
    /// contains the layers before and after it.
    ///
    /// [`record_layer_calls`]: tensor_core::record_layer_calls
    pub fn of<T: AsRef<Tensor>, N: AsRef<str>>(outputs: &[T], names: &[(N, Tensor)]) -> Graph {
        let names: HashMap<u64, &str> =
            names.iter().map(|(name, tensor)| (named_id(tensor), name.as_ref())).collect();
        let results: HashSet<u64> = outputs.iter().map(|output| output.as_ref().id()).collect();
        let mut graph = Graph::default();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut met: HashSet<u64> = HashSet::new();
        // Depth first in a loop, because chains may have millions of nodes: a node is appended when it is
        // visited the second time, after its inputs.
        let mut open: Vec<Tensor> = outputs.iter().rev().map(|output| output.as_ref().clone()).collect();
        while let Some(tensor) = open.last().cloned() {
            let id = tensor.id();
            let inputs = if places.contains_key(&id) { Vec::new() } else { tensor.node_inputs() };
            if !places.contains_key(&id) && met.insert(id) && !inputs.is_empty() {
                open.extend(inputs.into_iter().rev());
                continue;
            }
            open.pop();
            if places.contains_key(&id) {
                continue;
            }
            let inputs = inputs.iter().filter_map(|input| places.get(&input.id()).copied()).collect();
            places.insert(id, graph.nodes.len());
            let name = names.get(&named_id(&tensor)).map(ToString::to_string);
            graph.nodes.push(node(&tensor, name, results.contains(&id), inputs));
        }
        graph.find_layers();
        graph
    }

    fn find_layers(&mut self) {
        let is_source = |node: &GraphNode| node.inputs.is_empty();
        let name =
            |&input: &usize| self.nodes[input].name.as_deref().filter(|_| is_source(&self.nodes[input]));
        let link = |node: &GraphNode| Link {
            id: node.id,
            inputs: node.inputs.clone(),
            reads: node.inputs.iter().filter_map(name).collect(),
            is_source: is_source(node),
            is_parameter: node.name.is_some() && node.kind == NodeKind::Leaf,
        };
        let links: Vec<Link<'_>> = self.nodes.iter().map(link).collect();
        let (assigned, calls) = assign(&links, &layer_calls());
        // Only the calls of this graph, numbered anew.
        let mut numbers = vec![None; calls.len()];
        for (node, assigned) in self.nodes.iter_mut().zip(assigned) {
            node.layer = match (&node.name, node.kind) {
                (Some(name), NodeKind::Leaf) => module_of(name).to_string(),
                _ => assigned.layer,
            };
            node.call = assigned.call.map(|call| {
                *numbers[call].get_or_insert_with(|| {
                    self.calls.push(calls[call].clone());
                    self.calls.len() - 1
                })
            });
        }
    }

    /// The edges, from an input to the node that reads it, as indices in [`Graph::nodes`].
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let of = |(to, node): (usize, &'_ GraphNode)| -> Vec<(usize, usize)> {
            node.inputs.iter().map(|&from| (from, to)).collect()
        };
        self.nodes.iter().enumerate().flat_map(of)
    }
}

fn node(tensor: &Tensor, name: Option<String>, is_output: bool, inputs: Vec<usize>) -> GraphNode {
    let (kind, op) = match tensor.op() {
        Op::Full(value) => (NodeKind::Constant, value.to_string()),
        Op::Leaf if tensor.is_tracked() => (NodeKind::Leaf, "leaf".into()),
        _ if tensor.is_cell() => (NodeKind::Leaf, "leaf".into()),
        Op::Leaf => (NodeKind::Data, "data".into()),
        op @ Op::TupleElement { index, .. } => (NodeKind::Operation, format!("{}[{index}]", op.grad_name())),
        op => (NodeKind::Operation, op.grad_name()),
    };
    let location = tensor.location();
    GraphNode {
        id: tensor.id(),
        kind,
        op,
        name,
        shape: tensor.shape().clone(),
        dtype: tensor.dtype(),
        is_tuple: tensor.op().is_tuple(),
        is_output,
        is_evaluated: !tensor.op().is_tuple() && tensor.is_evaluated(),
        device: tensor.device().name().into(),
        location: (location.file(), location.line()),
        inputs,
        layer: String::new(),
        call: None,
    }
}
