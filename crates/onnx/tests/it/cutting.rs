//! Graphs that are cut at chosen values: `LoadOptions::outputs`.
#![allow(clippy::unwrap_used)]

use nn::Module;
use onnx::{LoadOptions, Model};
use tensor_core::{Result, Tensor};

use crate::build::{bytes, floats, graph, node, node_of, with_graph};

/// A graph is cut at inner values: what they do not need is dropped, also an input and an operator that is
/// not known.
#[test]
fn a_graph_is_cut_at_chosen_values() -> Result<()> {
    let device = backend_cpu::cpu();
    let branch = graph(vec![node("Mul", &["hidden", "factor"], &["then"])], &[], &["then"], vec![]);
    let other = graph(vec![node("Identity", &["hidden"], &["else"])], &[], &["else"], vec![]);
    let choose = with_graph(
        with_graph(node("If", &["flag"], &["chosen"]), "then_branch", branch),
        "else_branch",
        other,
    );
    let nodes = vec![
        node("Add", &["x", "offset"], &["hidden"]),
        node("Greater", &["offset", "zero"], &["flag"]),
        choose,
        node_of("unknown", "Nothing", &["chosen", "mask"], &["logits"]),
    ];
    let weights = vec![
        floats("offset", &[], &[1.0]),
        floats("factor", &[], &[10.0]),
        floats("zero", &[], &[0.0]),
        floats("unused", &[2], &[1.0, 2.0]),
    ];
    let file = bytes(graph(nodes, &["x", "mask"], &["logits"], weights));
    assert!(Model::from_bytes(file.clone(), &device).is_err(), "the last operator is not known");
    let load = |outputs: &[&str]| {
        let outputs = outputs.iter().map(ToString::to_string).collect();
        Model::from_bytes_with(file.clone(), &device, LoadOptions { outputs, ..Default::default() })
    };
    let both = load(&["chosen", "hidden"])?;
    assert_eq!(both.output_names().collect::<Vec<_>>(), ["chosen", "hidden"]);
    assert_eq!(both.inputs().len(), 1, "the mask is not needed");
    assert_eq!(both.value_names().collect::<Vec<_>>(), ["x", "mask", "hidden", "flag", "chosen", "logits"]);
    let out = both.run([("x", Tensor::new([1.0, 2.0], &device)?)])?;
    assert_eq!(out.tensor("hidden")?.to_vec::<f32>()?, [2.0, 3.0]);
    assert_eq!(out.tensor("chosen")?.to_vec::<f32>()?, [20.0, 30.0], "a branch reads the outer factor");
    let hidden = load(&["hidden"])?;
    assert!(hidden.state_dict().keys().all(|name| name == "offset"), "{:?}", hidden.state_dict().keys());
    let input = load(&["x"])?.run([("x", Tensor::new([1.0], &device)?)])?;
    assert_eq!(input.tensor("x")?.to_vec::<f32>()?, [1.0]);
    let message = load(&["hiden"]).unwrap_err().to_string();
    assert!(message.contains("no value \"hiden\"") && message.contains("[\"hidden\"]"), "{message}");
    let message = load(&["features_of_the_image"]).unwrap_err().to_string();
    assert!(message.contains("value_names") && message.contains("logits"), "{message}");
    Ok(())
}
