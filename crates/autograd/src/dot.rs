//! A graph as a picture, in Graphviz's DOT language.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

use tensor_core::{Op, Tensor};

/// The graph that `outputs` were made by, as DOT: arrows run from inputs to results, as in PyTorch's pictures (torchviz).
///
/// Leaves that want gradients are blue, other data grey, results green; each node shows its operation, shape, dtype and
/// the id of its value. What an evaluated, untracked tensor was made from is forgotten, so draw before looking.
pub fn dot<T: AsRef<Tensor>>(outputs: &[T]) -> String {
    draw(outputs.iter().map(|t| t.as_ref().clone()).collect(), &HashMap::new())
}

/// As [`dot`], with names on the tensors that have one, such as `&model.named_parameters()`. torchviz's `make_dot(y, params=…)`.
///
/// ```
/// use autograd::{TensorGrad, dot_named};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let (x, weight) = (Tensor::new([1.0, 2.0], &device)?, Tensor::new([3.0, 4.0], &device)?.requires_grad());
/// let y = (&x * &weight).sum();
/// let picture = dot_named(&[&y], &[("x", x), ("weight", weight)]);
/// assert!(picture.contains("x\\n[2] f32") && picture.contains("weight\\n[2] f32"), "{picture}");
/// # Ok(()) }
/// ```
pub fn dot_named<T: AsRef<Tensor>, N: AsRef<str>>(outputs: &[T], names: &[(N, Tensor)]) -> String {
    let names = names.iter().map(|(name, tensor)| (place(tensor), name.as_ref().to_string())).collect();
    draw(outputs.iter().map(|t| t.as_ref().clone()).collect(), &names)
}

/// What stands for a node in a table of names: the id of a leaf for each of its values.
fn place(node: &Tensor) -> u64 {
    node.leaf().map_or(node.id(), |leaf| leaf.id())
}

fn draw(outputs: Vec<Tensor>, names: &HashMap<u64, String>) -> String {
    let mut text = String::from(
        "digraph taper {\n  rankdir=TB;\n  node [shape=box, style=filled, fillcolor=white, fontname=\"monospace\"];\n",
    );
    let mut seen: HashSet<u64> = HashSet::new();
    let mut stack = outputs;
    let results: HashSet<u64> = stack.iter().map(Tensor::id).collect();
    let mut edges = Vec::new();
    while let Some(node) = stack.pop() {
        if !seen.insert(node.id()) {
            continue;
        }
        let inputs = node.node_inputs();
        let (name, mut colour) = match node.op() {
            Op::Full(value) => (value.to_string(), "grey90"),
            Op::Leaf if node.is_tracked() => ("leaf".to_string(), "lightblue"),
            _ if node.is_cell() => ("leaf".to_string(), "lightblue"),
            Op::Leaf => ("data".to_string(), "grey90"),
            Op::TupleElement { index, .. } => (format!("{}[{index}]", node.op().grad_name()), "white"),
            op => (op.grad_name(), "white"),
        };
        // A name in place of "leaf" and "data", and beside an operation.
        let name = match names.get(&place(&node)) {
            Some(given) if matches!(name.as_str(), "leaf" | "data") => given.clone(),
            Some(given) => format!("{given} = {name}"),
            None => name,
        };
        if results.contains(&node.id()) {
            colour = "darkolivegreen1";
        }
        let kind = match node.op().is_tuple() {
            true => "tuple".to_string(),
            false => format!("{} {}", node.shape(), node.dtype()),
        };
        let (id, name) = (node.id(), name.replace('"', "'").replace('\\', "/"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  n{id} [label=\"{name}\\n{kind}\\n#{id}\", fillcolor={colour}];");
        for input in inputs {
            edges.push((input.id(), node.id()));
            stack.push(input);
        }
    }
    for (from, to) in edges {
        let _ = writeln!(text, "  n{from} -> n{to};");
    }
    text.push_str("}\n");
    text
}
