//! The layer of a model to which each operation belongs, by the noted calls of layers and the names of the
//! parameters that operations read.
//!
//! A call belongs to the innermost module that contains every parameter read in it. An operation outside of
//! calls belongs to the module of the parameters that it reads. Any other one belongs to the innermost module
//! that contains both the layers before it and those after it.

use tensor_core::{LayerCall, Tensor};

/// A call of a layer, as a part of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphCall {
    /// The path of the layer in its model, such as `blocks.0.conv1`; empty for the model itself.
    pub layer: String,
    /// The name of the layer's type, such as `Conv2d`.
    pub kind: String,
    /// Whether it contains calls of other layers.
    pub is_outer: bool,
}

/// An operation, as far as its layer depends on it.
pub(crate) struct Link<'a> {
    /// The id of its tensor.
    pub(crate) id: u64,
    /// Its inputs, which come before it.
    pub(crate) inputs: Vec<usize>,
    /// The names of the parameters among its inputs.
    pub(crate) reads: Vec<&'a str>,
    /// Whether it has no inputs, so that its place depends on its readers.
    pub(crate) is_source: bool,
    /// Whether it is a parameter, which is shown in the call that reads it.
    pub(crate) is_parameter: bool,
}

/// The layer of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assigned {
    /// The path of the layer.
    pub(crate) layer: String,
    /// The innermost call that built it.
    pub(crate) call: Option<usize>,
}

/// The key of a tensor in a table of names: for a leaf, its own id instead of its value's.
pub(crate) fn named_id(tensor: &Tensor) -> u64 {
    tensor.leaf().map_or(tensor.id(), |leaf| leaf.id())
}

/// The path of the module that has a parameter or another module with this path.
pub(crate) fn module_of(path: &str) -> &str {
    path.rfind('.').map_or("", |end| &path[..end])
}

/// The innermost module that contains two modules.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.split('.').zip(b.split('.')).take_while(|(a, b)| a == b);
    let length = same.map(|(part, _)| part.len() + 1).sum::<usize>();
    &a[..length.saturating_sub(1)]
}

fn join<'a>(known: &mut Option<&'a str>, other: &'a str) {
    *known = Some(known.map_or(other, |known| common(known, other)));
}

/// Assigns operations to layers. Each call comes before those that it contains.
pub(crate) fn assign(nodes: &[Link<'_>], calls: &[LayerCall]) -> (Vec<Assigned>, Vec<GraphCall>) {
    let outer = outer_calls(calls);
    let calls_of: Vec<Option<usize>> = nodes.iter().map(|node| innermost(node.id, calls, &outer)).collect();
    let paths = paths_of_calls(nodes, &calls_of, &outer);
    // The layers that parameters prove.
    let proven: Vec<Option<&str>> = nodes
        .iter()
        .zip(&calls_of)
        .map(|(node, call)| {
            let mut own = call.and_then(|call| paths[call]);
            if own.is_none() {
                node.reads.iter().for_each(|name| join(&mut own, module_of(name)));
            }
            own
        })
        .collect();
    // Outside of a layer, the module that contains it counts.
    let mut before: Vec<Option<&str>> = proven.iter().map(|path| path.map(module_of)).collect();
    let mut after = before.clone();
    for (k, node) in nodes.iter().enumerate() {
        if proven[k].is_none() {
            for found in node.inputs.iter().filter_map(|&input| before[input]).collect::<Vec<_>>() {
                join(&mut before[k], found);
            }
        }
    }
    for (k, node) in nodes.iter().enumerate().rev() {
        let Some(found) = after[k] else { continue };
        for &input in node.inputs.iter().filter(|&&input| proven[input].is_none()) {
            join(&mut after[input], found);
        }
    }
    let mut layers: Vec<&str> = (0..nodes.len())
        .map(|k| proven[k].unwrap_or_else(|| before[k].zip(after[k]).map_or("", |(a, b)| common(a, b))))
        .collect();
    // All operations of a call belong to one layer.
    let mut of_calls: Vec<Option<&str>> = paths;
    let is_proven: Vec<bool> = of_calls.iter().map(Option::is_some).collect();
    for (call, &layer) in calls_of.iter().zip(&layers) {
        if let Some(call) = call.filter(|&call| !is_proven[call]) {
            join(&mut of_calls[call], layer);
        }
    }
    for (layer, call) in layers.iter_mut().zip(&calls_of) {
        *layer = call.and_then(|call| of_calls[call]).unwrap_or(layer);
    }
    let assigned: Vec<Assigned> = layers
        .iter()
        .zip(&calls_of)
        .map(|(layer, call)| Assigned { layer: (*layer).to_string(), call: *call })
        .collect();
    let found = calls.iter().zip(&of_calls).enumerate().map(|(k, (call, layer))| GraphCall {
        layer: layer.unwrap_or_default().to_string(),
        kind: call.kind.to_string(),
        // The first call inside of another one follows it.
        is_outer: outer.get(k + 1) == Some(&Some(k)),
    });
    let calls = found.collect();
    (with_sources(nodes, assigned), calls)
}

/// The call that contains each call.
fn outer_calls(calls: &[LayerCall]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let outer = |(k, call): (usize, &LayerCall)| {
        while open.last().is_some_and(|&last| calls[last].end <= call.first) {
            open.pop();
        }
        let around = open.last().copied();
        open.push(k);
        around
    };
    calls.iter().enumerate().map(outer).collect()
}

/// The innermost call that built the tensor with this id.
fn innermost(id: u64, calls: &[LayerCall], outer: &[Option<usize>]) -> Option<usize> {
    let mut call = calls.partition_point(|call| call.first <= id).checked_sub(1);
    while let Some(k) = call.filter(|&k| calls[k].end <= id) {
        call = outer[k];
    }
    call
}

/// The path of each call whose parameters, or those of the call around it, say it.
fn paths_of_calls<'a>(
    nodes: &[Link<'a>],
    calls_of: &[Option<usize>],
    outer: &[Option<usize>],
) -> Vec<Option<&'a str>> {
    let mut paths: Vec<Option<&'a str>> = vec![None; outer.len()];
    for (node, call) in nodes.iter().zip(calls_of) {
        for &name in &node.reads {
            let mut call = *call;
            while let Some(k) = call {
                join(&mut paths[k], module_of(name));
                call = outer[k];
            }
        }
    }
    for k in 0..outer.len() {
        paths[k] = paths[k].or_else(|| paths[outer[k]?]);
    }
    paths
}

/// Puts each operation without inputs, unless a call built it, into the innermost module that contains its
/// readers: parameters beside the calls that read them, data outside of those.
fn with_sources(nodes: &[Link<'_>], mut assigned: Vec<Assigned>) -> Vec<Assigned> {
    let mut readers: Vec<Option<Assigned>> = vec![None; nodes.len()];
    for (k, node) in nodes.iter().enumerate() {
        let loose = |&&input: &&usize| nodes[input].is_source && assigned[input].call.is_none();
        for &input in node.inputs.iter().filter(loose) {
            let (layer, call) = match (assigned[k].call, nodes[input].is_parameter) {
                (call, true) => (assigned[k].layer.as_str(), call),
                (Some(_), false) => (module_of(&assigned[k].layer), None),
                (None, false) => (assigned[k].layer.as_str(), None),
            };
            let joined = match readers[input].take() {
                None => Assigned { layer: layer.to_string(), call },
                Some(known) => Assigned {
                    layer: common(&known.layer, layer).to_string(),
                    call: known.call.filter(|other| Some(*other) == call),
                },
            };
            readers[input] = Some(joined);
        }
    }
    for (own, reader) in assigned.iter_mut().zip(readers) {
        if let Some(reader) = reader {
            *own = reader;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link<'a>(id: u64, inputs: &[usize], reads: &[&'a str]) -> Link<'a> {
        let is_source = inputs.is_empty();
        Link { id, inputs: inputs.to_vec(), reads: reads.to_vec(), is_source, is_parameter: false }
    }

    fn call(kind: &'static str, first: u64, end: u64) -> LayerCall {
        LayerCall { kind: kind.into(), first, end }
    }

    #[test]
    fn operations_belong_to_the_layers_of_their_calls_or_between_them() {
        // Two blocks, each of two convolutions with an activation between them, and a last layer.
        let calls = [
            call("Conv2d", 10, 12),
            call("Conv2d", 13, 15),
            call("Relu", 15, 16),
            call("Conv2d", 16, 18),
            call("Linear", 20, 22),
        ];
        let nodes = [
            link(1, &[], &[]),
            link(10, &[0], &[]),
            link(11, &[1], &["blocks.0.a.weight", "blocks.0.a.bias"]),
            link(12, &[2], &[]),
            link(13, &[3], &["blocks.0.b.weight"]),
            link(15, &[4], &[]),
            link(16, &[5], &["blocks.1.a.weight"]),
            link(19, &[6], &[]),
            link(20, &[7], &["head.weight"]),
            link(30, &[8], &["scale"]),
        ];
        let (assigned, found) = assign(&nodes, &calls);
        let layers: Vec<&str> = assigned.iter().map(|assigned| assigned.layer.as_str()).collect();
        let expected = [
            "blocks.0", // the image, which is outside of the call that reads it
            "blocks.0.a",
            "blocks.0.a",
            "blocks.0",
            "blocks.0.b",
            "blocks",
            "blocks.1.a",
            "",
            "head",
            "",
        ];
        assert_eq!(layers, expected);
        assert_eq!(found[2], GraphCall { layer: "blocks".into(), kind: "Relu".into(), is_outer: false });
        assert_eq!(assigned[5].call, Some(2));
        assert_eq!(assigned[7].call, None);
    }

    #[test]
    fn calls_contain_calls() {
        let calls = [call("Encoder", 10, 20), call("Linear", 11, 13), call("Dropout", 14, 15)];
        let nodes =
            [link(11, &[], &["layer.fc.weight"]), link(13, &[0], &["layer.scale"]), link(14, &[1], &[])];
        let (assigned, found) = assign(&nodes, &calls);
        assert_eq!(
            found.iter().map(|call| call.layer.as_str()).collect::<Vec<_>>(),
            ["layer", "layer.fc", "layer"]
        );
        assert_eq!(found.iter().map(|call| call.is_outer).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(assigned.iter().map(|of| of.call).collect::<Vec<_>>(), [Some(1), Some(0), Some(2)]);
    }

    #[test]
    fn paths_are_compared_by_their_parts() {
        assert_eq!(common("blocks.10.a", "blocks.1.a"), "blocks");
        assert_eq!(common("fc", "fc"), "fc");
        assert_eq!(common("", "fc"), "");
        assert_eq!(common("fc1", "fc"), "");
        assert_eq!((module_of("a.b.weight"), module_of("weight")), ("a.b", ""));
    }
}
