//! Imported models learn: gradients reach every parameter, and agree with differences.

use autograd::TensorGrad;
use nn::{Module, mse_loss};
use onnx::Model;
use optim::{Optimizer, Sgd, SgdConfig};
use tensor_core::{Result, Tensor};

use crate::{devices, model};

/// The loss of the direction model on a gradient picture.
fn loss(net: &Model, x: &Tensor) -> Result<Tensor> {
    let out = net.run([("x", x)])?.tensors()?.remove(0);
    let target = Tensor::new([[0.9f32, 0.1]], &x.device())?;
    mse_loss(&out, &target)
}

fn picture(device: &tensor_core::Device) -> Tensor {
    let numbers = Tensor::arange(0.0, (3 * 48 * 192) as f64, 1.0, device).unwrap();
    numbers.mul_scalar(0.37).sin().reshape([1, 3, 48, 192]).unwrap()
}

#[test]
fn steps_lower_the_loss_of_an_imported_model() {
    for device in devices() {
        let net = Model::load(model("ch_ppocr_mobile_v2.0_cls_infer.onnx"), &device).unwrap();
        let x = picture(&device);
        let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.01, ..Default::default() });
        let mut losses = Vec::new();
        for _ in 0..4 {
            sgd.zero_grad();
            let loss = loss(&net, &x).unwrap();
            loss.backward().unwrap();
            losses.push(loss.item_f64().unwrap());
            let without: Vec<String> = net
                .named_parameters()
                .into_iter()
                .filter(|(_, parameter)| parameter.grad().is_none())
                .map(|(name, _)| name)
                .collect();
            assert!(without.is_empty(), "no gradient on {device}: {without:?}");
            sgd.step().unwrap();
        }
        assert!(losses[3] < losses[0], "{losses:?} on {device}");
    }
}

#[test]
fn gradients_agree_with_differences() {
    let cpu = backend_cpu::cpu();
    let net = Model::load(model("ch_ppocr_mobile_v2.0_cls_infer.onnx"), &cpu).unwrap();
    let x = picture(&cpu);
    loss(&net, &x).unwrap().backward().unwrap();
    // The weight of the last layer, whose changes no kink of an activation hides.
    let parameters = net.named_parameters();
    let (name, weight) =
        parameters.iter().filter(|(_, p)| p.rank() == 2).max_by_key(|(_, p)| p.numel()).expect("a matrix");
    let gradient = weight.grad().unwrap().to_vec::<f32>().unwrap();
    let values = weight.to_vec::<f32>().unwrap();
    let largest =
        (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs())).unwrap();
    let at = |step: f32| {
        let mut moved = values.clone();
        moved[largest] += step;
        weight.assign(&Tensor::from_vec(moved, weight.shape(), &cpu).unwrap()).unwrap();
        loss(&net, &x).unwrap().item_f64().unwrap()
    };
    let difference = (at(0.01) - at(-0.01)) / 0.02;
    let found = f64::from(gradient[largest]);
    assert!((difference - found).abs() <= 0.02 * found.abs() + 1e-6, "{name}: {found} and {difference}");
}

#[test]
fn choosing_by_shapes_does_not_stop_gradients() {
    let cpu = backend_cpu::cpu();
    let net = Model::load(model("silero_vad.onnx"), &cpu).unwrap();
    let x = Tensor::arange(0.0, 576.0, 1.0, &cpu).unwrap().mul_scalar(0.1).sin().reshape([1, 576]).unwrap();
    let state = Tensor::zeros((2, 1, 128), &cpu).unwrap();
    let rate = Tensor::full((), 16000, &cpu).unwrap();
    let out = net.run([("input", &x), ("state", &state), ("sr", &rate)]).unwrap();
    out.tensor("output").unwrap().sum().backward().unwrap();
    let reached = net.parameters().iter().filter(|parameter| parameter.grad().is_some()).count();
    // The half of the weights that is for 16 kHz.
    assert!(reached >= 10, "{reached} of {} parameters have gradients", net.parameters().len());
}
