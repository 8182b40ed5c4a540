//! Operations and kernels by layer: graphs and profiles of models. Profiles observe the whole process, so one
//! test takes every case in turn.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use autograd::TensorGrad;
use inspect::{Graph, profile, record_layer_calls};
use nn::{Conv2d, Flatten, Linear, Module, Relu, Sequential};
use tensor_core::{Generator, Result, Tensor};

#[derive(Debug, Module)]
struct Block {
    first: Linear,
    second: Linear,
}

impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.first.forward(x)?.relu())?.add(x)
    }
}

#[derive(Debug, Module)]
struct Net {
    features: Sequential,
    blocks: Vec<Block>,
    head: Linear,
    scale: Tensor,
}

impl Net {
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.features.forward(x)?;
        // All blocks have the same lines.
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        Ok(self.head.forward(&x)?.mul(&self.scale)?.powi(2).mean())
    }
}

#[test]
fn operations_belong_to_layers() -> Result<()> {
    let device = backend_cpu::cpu();
    let rng = Generator::seed(1, &device);
    let block = || Ok(Block { first: Linear::new(8, 8, &rng)?, second: Linear::new(8, 8, &rng)? });
    let net = Net {
        features: Sequential::new()
            .add(Conv2d::new(1, 2, 3, &rng)?)
            .add(Relu)
            .add(Flatten::default())
            .add(Linear::new(8, 8, &rng)?),
        blocks: vec![block()?, block()?],
        head: Linear::new(8, 3, &rng)?,
        scale: Tensor::ones([3], &device)?.requires_grad(),
    };
    let x = Tensor::randn([4, 1, 4, 4], &rng)?;
    without_calls_names_say_it(&net, &x)?;
    record_layer_calls(true);
    each_call_is_one_part(&net, &x)?;
    times_are_forward_backward_and_update(&net, &x)?;
    record_layer_calls(false);
    assert!(Graph::of(&[&net.loss(&x)?], &net.named_parameters()).calls.is_empty());
    Ok(())
}

/// Only the operations that read parameters have their layer for certain.
fn without_calls_names_say_it(net: &Net, x: &Tensor) -> Result<()> {
    let graph = Graph::of(&[&net.loss(x)?], &net.named_parameters());
    assert!(graph.calls.is_empty());
    let layers: Vec<&str> = graph.nodes.iter().map(|node| node.layer.as_str()).collect();
    for layer in ["features.0", "blocks.0.first", "blocks.1.second", "head", ""] {
        assert!(layers.contains(&layer), "{layer}: {layers:?}");
    }
    Ok(())
}

fn each_call_is_one_part(net: &Net, x: &Tensor) -> Result<()> {
    let graph = Graph::of(&[&net.loss(x)?], &net.named_parameters());
    let calls: Vec<(&str, &str)> =
        graph.calls.iter().map(|call| (call.layer.as_str(), call.kind.as_str())).collect();
    for call in [
        ("features.0", "Conv2d"),
        ("features", "Relu"),
        ("features.3", "Linear"),
        ("blocks.0.first", "Linear"),
        ("blocks.0.second", "Linear"),
        ("blocks.1.first", "Linear"),
        ("head", "Linear"),
    ] {
        assert_eq!(calls.iter().filter(|found| **found == call).count(), 1, "{call:?}: {calls:?}");
    }
    // A convolution is one call of several operations.
    let of = |layer: &str| {
        let call = calls.iter().position(|call| call.0 == layer).unwrap();
        graph.nodes.iter().filter(|node| node.call == Some(call) && !node.inputs.is_empty()).count()
    };
    assert!(of("features.0") >= 3, "{}", of("features.0"));
    // The activation between two layers of a block belongs to the block, that of each block to its own.
    let relus: Vec<&str> =
        graph.nodes.iter().filter(|node| node.op == "Relu").map(|node| node.layer.as_str()).collect();
    assert_eq!(relus, ["features", "blocks.0", "blocks.1"]);
    // A parameter that no layer has, and what comes after all layers.
    let scaled = graph.nodes.iter().find(|node| node.op == "Mul").unwrap();
    assert_eq!((scaled.layer.as_str(), scaled.call), ("", None));
    let json: serde_json::Value = serde_json::from_str(&graph.json()).unwrap();
    assert_eq!(json["calls"].as_array().unwrap().len(), calls.len());
    assert_eq!(json["nodes"][0]["layer"], graph.nodes[0].layer);
    Ok(())
}

fn times_are_forward_backward_and_update(net: &Net, x: &Tensor) -> Result<()> {
    let names = net.named_parameters();
    let profiled = profile(|| {
        net.loss(x)?.backward()?;
        for (_, parameter) in &names {
            let step = &parameter.grad().unwrap() * 0.1;
            parameter.assign(&parameter.detach().sub(&step)?)?;
        }
        Ok(())
    })?;
    let rows = profiled.layers(&names);
    let rows: BTreeMap<&str, _> = rows.iter().map(|row| (row.layer.as_str(), row)).collect();
    for layer in ["features.0", "features.3", "blocks.0.first", "blocks.0.second", "blocks.1.first", "head"] {
        let row = rows.get(layer).unwrap_or_else(|| panic!("{layer}: {rows:?}"));
        assert!(row.forward.runs > 0 && row.backward.runs > 0, "{layer}: {row:?}");
        // The gradients of a product are products.
        assert!(2 * row.backward.flops > row.forward.flops, "{layer}: {row:?}");
        assert!(row.forward.bytes_written > 0 && row.forward.time.as_nanos() > 0, "{layer}: {row:?}");
    }
    let all = |cost: fn(&inspect::LayerTimes) -> inspect::LayerCost| {
        rows.values().map(|row| cost(row).runs).sum::<u64>()
    };
    let (forward, backward, update) =
        (all(|row| row.forward), all(|row| row.backward), all(|row| row.update));
    assert_eq!(forward + backward + update, profiled.runs.len() as u64);
    assert!(update > 0 && backward >= forward, "{forward} {backward} {update}");
    Ok(())
}
