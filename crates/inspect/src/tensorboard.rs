//! A graph for TensorBoard: a `GraphDef` in an event file.
//!
//! Messages and field numbers are those of
//! `tensorflow/core/framework/{graph,node_def,attr_value,tensor_shape,types}.proto`. `events.rs` writes the
//! events.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use tensor_core::Result;

use crate::{
    EventWriter, Graph, GraphNode, NodeKind,
    events::{event, record, version},
    protobuf::Message,
};

impl Graph {
    /// Writes the graph for TensorBoard, to a new event file in `folder`, which is created if it does not
    /// exist: `tensorboard --logdir FOLDER` shows it under Graphs. Names become scopes at their dots:
    /// `fc1.weight` is `weight` in `fc1`. Returns the file's path.
    ///
    /// # Errors
    /// `File` for a folder or file that cannot be written.
    #[track_caller]
    pub fn write_event_file(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        let mut events = EventWriter::create(folder)?;
        events.write(Message::default().bytes(4, &self.graph_def()))?;
        events.flush()?;
        Ok(events.path().to_path_buf())
    }

    /// The bytes of an event file with this graph, written at `time` (seconds since 1970).
    #[must_use]
    pub fn events(&self, time: f64) -> Vec<u8> {
        let mut file = record(&event(time, version()));
        file.extend(record(&event(time, Message::default().bytes(4, &self.graph_def()))));
        file
    }

    /// The graph as TensorFlow's `GraphDef`.
    #[must_use]
    pub fn graph_def(&self) -> Vec<u8> {
        let names = self.unique_names();
        let mut graph = Message::default();
        for (node, name) in self.nodes.iter().zip(&names) {
            graph = graph
                .message(1, node_def(node, name, node.inputs.iter().map(|&input| names[input].as_str())));
        }
        // The version that TensorFlow 1.0 wrote, which every TensorBoard reads.
        graph.message(4, Message::default().int(1, 21)).finish()
    }

    /// A name for each node, of the characters that TensorFlow allows: the given one, or else the
    /// operation's name with a number.
    fn unique_names(&self) -> Vec<String> {
        let given = |node: &GraphNode| node.name.as_deref().map(allowed);
        let mut taken: HashSet<String> = HashSet::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut names = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let base = given(node).unwrap_or_else(|| match node.kind {
                NodeKind::Constant => "constant".into(),
                NodeKind::Leaf | NodeKind::Data | NodeKind::Operation => allowed(&node.op),
            });
            let count = counts.entry(base.clone()).or_default();
            let mut name = base.clone();
            // As in TensorFlow: Add, Add_1, Add_2.
            while !taken.insert(name.clone()) {
                *count += 1;
                name = format!("{base}_{count}");
            }
            names.push(name);
        }
        names
    }
}

/// A name of letters, digits and `_ - /`, with scopes at the dots.
fn allowed(name: &str) -> String {
    let one = |c: char| match c {
        '.' => '/',
        c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/') => c,
        _ => '_',
    };
    let steps: Vec<String> =
        name.chars().map(one).collect::<String>().split('/').map(str::to_string).collect();
    let steps: Vec<&str> =
        steps.iter().map(|step| step.trim_matches('_')).filter(|step| !step.is_empty()).collect();
    let name = steps.join("/");
    match name.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() => name,
        _ => format!("node{name}"),
    }
}

fn node_def<'a>(node: &GraphNode, name: &str, inputs: impl Iterator<Item = &'a str>) -> Message {
    let op = match node.kind {
        NodeKind::Leaf => "Parameter",
        NodeKind::Data => "Data",
        NodeKind::Constant => "Const",
        NodeKind::Operation => &node.op,
    };
    let mut message = Message::default().string(1, name).string(2, op);
    for input in inputs {
        message = message.string(3, input);
    }
    message = message.string(4, &node.device);
    let (file, line) = node.location;
    let text = |text: &str| Message::default().string(2, text);
    message = message.message(5, attribute("source", text(&format!("{file}:{line}"))));
    if node.kind == NodeKind::Constant {
        message = message.message(5, attribute("value", text(&node.op)));
    }
    if node.is_tuple {
        return message;
    }
    let sizes = node.shape.iter().fold(Message::default(), |shape, &size| {
        shape.message(2, Message::default().int(1, i64::try_from(size).unwrap_or(i64::MAX)))
    });
    // AttrValue.list.shape, with which TensorBoard labels the edges, and AttrValue.type.
    let shapes = Message::default().message(1, Message::default().message(7, sizes));
    let dtype = Message::default().int(6, node.dtype.info().tensorflow.into());
    message.message(5, attribute("_output_shapes", shapes)).message(5, attribute("dtype", dtype))
}

/// An entry of a node's map of attributes.
fn attribute(key: &str, value: Message) -> Message {
    Message::default().string(1, key).message(2, value)
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn names_are_scopes_of_allowed_characters() {
        for (given, name) in [
            ("fc1.weight", "fc1/weight"),
            ("neuron 0, w0", "neuron_0__w0"),
            ("Split[1]", "Split_1"),
            ("_hidden", "hidden"),
            ("x..y", "x/y"),
            ("µ", "node"),
            ("", "node"),
        ] {
            assert_eq!(allowed(given), name, "{given:?}");
        }
    }
}
