//! A graph as JSON.

use std::fmt::Write;

use crate::Graph;

impl Graph {
    /// The graph as JSON: `{"nodes": [{"id": 7, "op": "Mul", "name": null, "kind": "operation", "shape":
    /// [2], "dtype": "f32", …}], "calls": […]}`, each node with the indices of its inputs in the list, its
    /// layer, and the index of the call that built it.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = String::from("{\"nodes\": [");
        for (k, node) in self.nodes.iter().enumerate() {
            let kind = node.kind.name();
            let name = node.name.as_deref().map_or_else(|| "null".into(), quoted);
            let (op, device, file) = (quoted(&node.op), quoted(&node.device), quoted(node.location.0));
            let (dtype, line, shape) = (node.dtype, node.location.1, node.shape.dims());
            let _ = write!(
                text,
                "{}\n  {{\"id\": {}, \"op\": {op}, \"name\": {name}, \"kind\": \"{kind}\", \"shape\": {shape:?}, \
                 \"dtype\": \"{dtype}\", \"device\": {device}, \"output\": {}, \"evaluated\": {}, \"tuple\": {}, \
                 \"file\": {file}, \"line\": {line}, \"inputs\": {:?}, \"layer\": {}, \"call\": {}}}",
                if k == 0 { "" } else { "," },
                node.id,
                node.is_output,
                node.is_evaluated,
                node.is_tuple,
                node.inputs,
                quoted(&node.layer),
                node.call.map_or_else(|| "null".into(), |call| call.to_string())
            );
        }
        text.push_str("\n], \"calls\": [");
        for (k, call) in self.calls.iter().enumerate() {
            let (comma, layer, kind) =
                (if k == 0 { "" } else { ", " }, quoted(&call.layer), quoted(&call.kind));
            let _ = write!(text, "{comma}{{\"layer\": {layer}, \"kind\": {kind}}}");
        }
        text.push_str("]}\n");
        text
    }
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
