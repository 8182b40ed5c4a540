//! Layers of integers of 8 bits: pairs of `QuantizeLinear` and `DequantizeLinear` that are written and read
//! again. `scripts/onnx_export_check.py` runs the files in ONNX Runtime.

use nn::{
    Conv2d, Linear, Module,
    qat::{ObserverKind, QatConfig, prepare, prepare_qat},
};
use onnx::{Exported, Model};
use tensor_core::{Device, Generator, Result, Tensor};

use crate::{devices, round_trip::RoundTrip};

#[derive(Module)]
struct Net {
    conv: Conv2d,
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new(d: &Device) -> Result<Net> {
        let rng = Generator::seed(4, d);
        Ok(Net {
            conv: Conv2d::new(2, 6, 3, &rng)?,
            hidden: Linear::new(6 * 36, 20, &rng)?,
            out: Linear::new(20, 3, &rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(x)?.relu().flatten(1, -1)?;
        self.out.forward(&self.hidden.forward(&x)?.relu())
    }
}

fn round_trip(name: &str, net: &Net, d: &Device, tolerance: f64) -> Exported {
    let rng = Generator::seed(11, d);
    let x = |batch: usize| vec![Tensor::randn([batch, 2, 8, 8], &rng).unwrap()];
    RoundTrip {
        name,
        inputs: x(4),
        dynamic: vec![(0, 0, "batch")],
        others: vec![x(7)],
        tolerance,
        ..Default::default()
    }
    .run(net, |net, x| Ok(vec![net.forward(&x[0])?]))
    .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn calibrated_layers_are_pairs_around_integers() {
    for d in devices() {
        let mut net = Net::new(&d).unwrap();
        let config = QatConfig { observer: ObserverKind::MinMax, ..QatConfig::default() };
        let qat = prepare(&net, &config).unwrap();
        let x = Tensor::randn([64, 2, 8, 8], &Generator::seed(1, &d)).unwrap();
        let right = net.forward(&x).unwrap();
        right.eval().unwrap();
        qat.observe(false); // an export refuses a model that changes its buffers
        let float = round_trip("before_qdq", &net, &d, 1e-4);
        assert!(!float.operators.contains_key("QuantizeLinear"), "{:?}", float.operators);
        qat.convert(&mut net).unwrap();
        // A sum that is rounded to another integer moves a result by a step.
        let exported = round_trip("qdq", &net, &d, 2e-2);
        assert_eq!(exported.operators["QuantizeLinear"], 3, "{:?}", exported.operators);
        assert_eq!(exported.operators["DequantizeLinear"], 6, "{:?}", exported.operators);
        assert!(exported.bytes < float.bytes / 3, "{} and {} bytes", exported.bytes, float.bytes);
        let found = net.forward(&x).unwrap();
        let error = found.sub(&right).unwrap().square().mean().div(&right.square().mean()).unwrap();
        assert!(error.item::<f32>().unwrap().sqrt() < 0.03);
    }
}

#[test]
fn simulated_rounding_is_pairs_around_floats() {
    for d in devices() {
        let net = Net::new(&d).unwrap();
        let qat = prepare_qat(&net, &QatConfig::default()).unwrap();
        let x = Tensor::randn([64, 2, 8, 8], &Generator::seed(1, &d)).unwrap();
        net.forward(&x).unwrap().eval().unwrap();
        qat.observe(false);
        let exported = round_trip("simulated_qdq", &net, &d, 2e-2);
        assert_eq!(exported.operators["QuantizeLinear"], 6, "{:?}", exported.operators);
        assert_eq!(exported.operators["DequantizeLinear"], 6, "{:?}", exported.operators);
    }
}

#[test]
fn integers_are_read_as_blocks() {
    let d = backend_cpu::cpu();
    let mut net = Net::new(&d).unwrap();
    let qat = prepare(&net, &QatConfig::default()).unwrap();
    let x = Tensor::randn([4, 2, 8, 8], &Generator::seed(1, &d)).unwrap();
    net.forward(&x).unwrap().eval().unwrap();
    qat.convert(&mut net).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.onnx");
    onnx::export_with(
        &net,
        |net: &Net, x| Ok(vec![net.forward(&x[0])?]),
        [("x", &x)],
        &path,
        &onnx::Export::default(),
    )
    .unwrap();
    let model = Model::load(&path, &d).unwrap();
    assert!(
        model.rewritten().get("weights_in_blocks").is_some_and(|&count| count >= 1),
        "{:?}",
        model.rewritten()
    );
}
