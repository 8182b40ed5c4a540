//! A graph in Graphviz's DOT language.

use std::fmt::Write;

use tensor_core::Tensor;

use crate::{Graph, NodeKind};

/// The graph of `outputs` as DOT: arrows point from inputs to results, as in torchviz's pictures.
///
/// Leaves that require gradients are blue, other data grey, results green; each node shows its operation,
/// shape, dtype and the id of its value. An evaluated, untracked tensor has lost its inputs, so draw before
/// reading values.
pub fn dot<T: AsRef<Tensor>>(outputs: &[T]) -> String {
    dot_named::<T, &str>(outputs, &[])
}

/// As [`dot`], with names for some tensors, such as `&model.named_parameters()`. torchviz's `make_dot(y,
/// params=…)`.
///
/// ```
/// use autograd::TensorGrad;
/// use inspect::dot_named;
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
    Graph::of(outputs, names).dot()
}

impl Graph {
    /// The graph in Graphviz's language, as [`dot`] returns it.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = String::from(
            "digraph taper {\n  rankdir=TB;\n  node [shape=box, style=filled, fillcolor=white, fontname=\"monospace\"];\n",
        );
        for node in &self.nodes {
            let colour = match node.kind {
                _ if node.is_output => "darkolivegreen1",
                NodeKind::Leaf => "lightblue",
                NodeKind::Data | NodeKind::Constant => "grey90",
                NodeKind::Operation => "white",
            };
            let (id, title) = (node.id, node.title().replace('"', "'").replace('\\', "/"));
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "  n{id} [label=\"{title}\\n{}\\n#{id}\", fillcolor={colour}];", node.form());
        }
        for (from, to) in self.edges() {
            let _ = writeln!(text, "  n{} -> n{};", self.nodes[from].id, self.nodes[to].id);
        }
        text.push_str("}\n");
        text
    }
}
