//! The structures of MLPerf Tiny's four networks, with random weights, batch norms being parts of the
//! convolutions as they are in its files: in f32, and with layers of 8 bits. `examples/ship/tiny` has their
//! training.
//!
//! `TAPER_TEST=written=FOLDER` leaves the programs there, for docs/benchmarks/ship.md.

use std::path::Path;

use autograd::no_grad;
use nn::{
    BatchNorm2d, Conv2d, ConvConfig, Layer, Linear, Module,
    functional::ConvPadding,
    qat::{ObserverKind, QatConfig, prepare},
};
use onnx::Model;
use taper_testing::settings::setting;
use tensor_core::{Generator, Result, Tensor};

use crate::{
    bodies::floats,
    programs::{Case, case, check},
};

#[path = "../../../../examples/ship/tiny/networks.rs"]
mod networks;

use networks::{Autoencoder, Chain, Folding, Residual};

/// The network in f32, and after its layers became integers of 8 bits, calibrated on noise.
fn both<M: Folding>(name: &str, shape: &[usize], make: fn(&Generator) -> Result<M>) -> [Case; 2] {
    let forward = |net: &M, x: &Tensor| {
        let y = net.forward(x)?;
        if y.shape()[1] <= 12 { y.softmax(1) } else { Ok(y) }
    };
    let x = floats(shape, 1);
    let net = |is_small: bool| {
        let mut net = make(&Generator::seed(1, &backend_cpu::cpu())).unwrap();
        net.fold().unwrap();
        if is_small {
            let config = QatConfig { observer: ObserverKind::MinMax, ..QatConfig::default() };
            let qat = prepare(&net, &config).unwrap();
            for seed in 1..4 {
                forward(&net, &floats(shape, seed)).unwrap().eval().unwrap();
            }
            qat.observe(false);
            qat.convert(&mut net).unwrap();
        }
        net.eval();
        net
    };
    // The program and the CPU both round to 8 bits; a sum that is rounded to another integer moves a result
    // by a step.
    [("f32", 1e-4), ("int8", 5e-2)].map(|(kind, tolerance)| {
        let net = net(kind == "int8");
        let case =
            case(&format!("{name}_{kind}"), tolerance, vec![x.clone()], |x| Ok(vec![forward(&net, &x[0])?]));
        if let Some(folder) = setting("written") {
            case.write(Path::new(&folder));
            println!("{name} {kind}: {:?}", case.sizes());
        }
        case
    })
}

#[test]
fn spoken_words() {
    let cases = both("words", &[1, 1, 49, 10], Chain::words);
    let [float, small] = [&cases[0], &cases[1]].map(Case::sizes);
    assert!(small.weights * 3 < float.weights && small.arena < float.arena, "{small} after {float}");
    check(&cases);
}

/// The same integers in TensorFlow Lite Micro (`scripts/ship_tflite_micro.py` made the files): roundings of
/// its fixed-point factors and of its mean differ by a step of 8 bits.
#[test]
fn spoken_words_of_tflite_micro() {
    const STEP: f32 = 0.002_188_811_8;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let model = Model::load(folder.join("words.onnx"), &backend_cpu::cpu()).unwrap();
    let bytes = std::fs::read(folder.join("words.bin")).unwrap();
    let numbers: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    let x = |pair: &[f32]| Tensor::from_vec(pair[..490].to_vec(), [1, 490], &backend_cpu::cpu()).unwrap();
    let pairs: Vec<&[f32]> = numbers.chunks_exact(502).collect();
    // The first run keeps what depends on weights alone.
    no_grad(|| model.run([("x", &x(pairs[0]))])).unwrap().tensors().unwrap()[0].eval().unwrap();
    let mut case =
        case("micro", 3.0 * f64::from(STEP), vec![x(pairs[0])], |x| model.run([("x", &x[0])])?.tensors());
    if let Some(folder) = setting("written") {
        case.write(Path::new(&folder));
        println!("micro: {:?}", case.sizes());
    }
    // 22,604 weights of 8 bits; 588 biases and factors.
    assert!(case.sizes().weights < 30_000, "{}", case.sizes());
    let (mut steps, mut same) = (0i32, 0);
    for pair in &pairs {
        case = case.with_arguments(&[x(pair)]);
        for (found, expected) in case.interpreted().iter().zip(&pair[490..]) {
            let apart = ((found - expected) / STEP).round().abs() as i32;
            (steps, same) = (steps.max(apart), same + i32::from(apart == 0));
        }
    }
    println!("micro: {same} of {} results are the same, the others within {steps} steps", 12 * pairs.len());
    assert!(
        steps <= 3 && same * 2 > 12 * pairs.len() as i32,
        "{same} are the same, the others within {steps}"
    );
    let case = case.with_arguments(&[x(pairs[0])]);
    if let Some(instructions) = case.on_microcontroller() {
        println!("micro: {instructions} instructions on a Cortex-M4");
    }
    check(&[case]);
}

#[test]
fn persons() {
    check(&both("persons", &[1, 3, 96, 96], Chain::persons));
}

#[test]
fn pictures() {
    check(&both("pictures", &[1, 3, 32, 32], Residual::pictures));
}

#[test]
fn sounds() {
    check(&both("sounds", &[1, 640], Autoencoder::sounds));
}
