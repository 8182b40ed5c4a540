//! Runs that repeat the operations of an earlier run, against a model that has just been loaded.

use autograd::no_grad;
use nn::Module;
use onnx::{Model, Value};
use tensor_core::{Device, Result, Tensor};

use crate::{
    build::{bytes, floats, graph, integers, node, with_graph},
    devices, model,
};

fn picture(size: usize, shift: f64, device: &Device) -> Result<Tensor> {
    let numbers = Tensor::arange(0.0, (3 * 48 * size) as f64, 1.0, device)?;
    numbers.mul_scalar(0.37).add_scalar(shift).sin().reshape([1, 3, 48, size])
}

#[test]
fn results_are_those_of_a_first_run() -> Result<()> {
    for device in devices() {
        let file = model("ch_ppocr_mobile_v2.0_cls_infer.onnx");
        let net = Model::load(&file, &device)?;
        let first = |x: &Tensor| -> Result<Vec<f64>> {
            let net = Model::load(&file, &device)?;
            no_grad(|| net.run([("x", x)]))?.tensors()?.remove(0).to_f64_vec()
        };
        for k in 0..4 {
            // Two forms in turn.
            for size in [192, 96] {
                let x = picture(size, f64::from(k), &device)?;
                let again = no_grad(|| net.run([("x", &x)]))?.tensors()?.remove(0).to_f64_vec()?;
                assert_eq!(again, first(&x)?, "{k} {size} on {device}");
            }
        }
        // Other weights are seen, also where something was computed from them once.
        let x = picture(192, 0.0, &device)?;
        let before = no_grad(|| net.run([("x", &x)]))?.tensors()?.remove(0).to_f64_vec()?;
        let other = Model::load(&file, &device)?;
        for (weight, same) in net.parameters().iter().zip(other.parameters()) {
            let halved = no_grad(|| weight.detach().mul_scalar(0.5));
            weight.assign(&halved)?;
            same.assign(&halved)?;
        }
        let [after, expected] =
            [&net, &other].map(|net| no_grad(|| net.run([("x", &x)])).unwrap().tensors().unwrap().remove(0));
        let after = after.to_f64_vec()?;
        assert_ne!(before, after);
        assert_eq!(after, expected.to_f64_vec()?, "{device}");
        // Gradients are recorded again.
        assert!(net.run([("x", &x)])?.tensors()?[0].is_tracked());
    }
    Ok(())
}

/// `exp(x)` where the sum of `x` is positive, else `-x`: the path depends on values.
#[test]
fn a_path_that_depends_on_values_is_chosen_in_each_run() -> Result<()> {
    let inner = |op: &str, name: &str| graph(vec![node(op, &["x"], &[name])], &[], &[name], vec![]);
    let choice = node("If", &["positive"], &["y"]);
    let choice = with_graph(choice, "then_branch", inner("Exp", "a"));
    let choice = with_graph(choice, "else_branch", inner("Neg", "b"));
    let nodes = vec![
        node("ReduceSum", &["x"], &["sum"]),
        node("Squeeze", &["sum"], &["total"]),
        node("Greater", &["total", "zero"], &["positive"]),
        choice,
    ];
    let zero = floats("zero", &[], &[0.0]);
    let file = bytes(graph(nodes, &["x"], &["y"], vec![zero]));
    for device in devices() {
        let net = Model::from_bytes(file.clone(), &device)?;
        for k in 0..6 {
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            let x = Tensor::new([1.0f32, 2.0], &device)?.mul_scalar(sign);
            let y = no_grad(|| net.run([("x", &x)]))?.tensor("y")?.to_f64_vec()?;
            let expected = if sign > 0.0 { [1f64.exp(), 2f64.exp()] } else { [1.0, 2.0] };
            assert!(y.iter().zip(expected).all(|(y, e)| (y - e).abs() < 1e-5), "{k}: {y:?} on {device}");
        }
    }
    Ok(())
}

/// The shape is a value of the host, which depends on the form of the input alone.
#[test]
fn values_of_the_host_are_those_of_the_form() -> Result<()> {
    let nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Add", &["x", "one"], &["y"]),
        node("Reshape", &["y", "flat"], &["z"]),
    ];
    let weights = vec![floats("one", &[], &[1.0]), integers("flat", &[1], &[-1])];
    let file = bytes(graph(nodes, &["x"], &["shape", "z"], weights));
    for device in devices() {
        let net = Model::from_bytes(file.clone(), &device)?;
        for k in 0..6 {
            let rows = k % 2 + 1;
            let x = Tensor::full([rows, 3], f64::from(k as u32), &device)?;
            let out = no_grad(|| net.run([("x", Value::from(x))]))?;
            assert_eq!(out.tensor("shape")?.to_f64_vec()?, [rows as f64, 3.0]);
            assert_eq!(out.tensor("z")?.to_f64_vec()?, vec![f64::from(k as u32) + 1.0; 3 * rows]);
        }
    }
    Ok(())
}
