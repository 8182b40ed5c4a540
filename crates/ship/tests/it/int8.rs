//! Networks of integers of 8 bits: layers that `nn::qat` converted, and files of ONNX with pairs of
//! `QuantizeLinear` and `DequantizeLinear`.

use autograd::no_grad;
use nn::{
    Conv2d, ConvConfig, Linear, Module,
    functional::max_pool2d,
    qat::{ObserverKind, QatConfig, prepare},
};
use onnx::Model;
use tensor_core::{Generator, Result, Tensor};

use crate::{
    bodies::floats,
    programs::{Case, case, check},
};

#[derive(Module)]
struct Net {
    conv: Conv2d,
    hidden: Linear,
    out: Linear,
}

impl Net {
    /// A network whose layers compute with integers, calibrated on noise.
    fn new() -> Net {
        let rng = Generator::seed(4, &backend_cpu::cpu());
        let padded = ConvConfig { padding: 1.into(), ..Default::default() };
        let mut net = Net {
            conv: Conv2d::with_config(2, 6, 3, padded, &rng).unwrap(),
            hidden: Linear::new(6 * 16, 20, &rng).unwrap(),
            out: Linear::new(20, 3, &rng).unwrap(),
        };
        let config = QatConfig { observer: ObserverKind::MinMax, ..QatConfig::default() };
        let qat = prepare(&net, &config).unwrap();
        net.forward(&floats(&[64, 2, 8, 8], 1)).unwrap().eval().unwrap();
        qat.observe(false);
        qat.convert(&mut net).unwrap();
        net.eval();
        net
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = max_pool2d(&self.conv.forward(x)?.relu(), [2, 2])?.flatten(1, -1)?;
        self.out.forward(&self.hidden.forward(&x)?.relu())
    }
}

/// The weights of all three layers are integers of 8 bits in flash, and sums are integers.
fn weights_are_bytes(case: &Case) {
    let integers = 6 * 2 * 9 + 20 * 96 + 3 * 20;
    // Biases and factors for 29 channels, and at most three scales and zero points.
    assert!(case.sizes().weights <= integers + 2 * 4 * 29 + 9 * 4, "{}", case.sizes());
    for numel in [6 * 2 * 9, 20 * 96, 3 * 20] {
        assert!(case.c_text().contains(&format!("[{numel}] = {{")), "{numel}");
    }
    let products = case.c_text().matches("int32_t t").count();
    assert!(products >= 3 && !case.c_text().contains("float t1["), "{products}");
}

#[test]
fn converted_layers() {
    let net = Net::new();
    let case = case("qat", 2e-2, vec![floats(&[1, 2, 8, 8], 7)], move |x| Ok(vec![net.forward(&x[0])?]));
    weights_are_bytes(&case);
    check(&[case]);
}

#[test]
fn pairs_of_onnx() {
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.onnx");
    let x = floats(&[1, 2, 8, 8], 7);
    let options = onnx::Export::default();
    onnx::export_with(&net, |net: &Net, x| Ok(vec![net.forward(&x[0])?]), [("x", &x)], &path, &options)
        .unwrap();
    let model = Model::load(&path, &backend_cpu::cpu()).unwrap();
    // The first run keeps what depends on weights alone.
    no_grad(|| model.run([("x", &x)])).unwrap().tensors().unwrap()[0].eval().unwrap();
    let case = case("qdq", 2e-2, vec![x], move |x| model.run([("x", &x[0])])?.tensors());
    weights_are_bytes(&case);
    check(&[case]);
}
