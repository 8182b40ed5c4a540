//! The structures of MLPerf Tiny's four networks, with random weights, batch norms being parts of the
//! convolutions as they are in its files: in f32, and with layers of 8 bits.
//!
//! `TAPER_TEST=written=FOLDER` leaves the programs there, for docs/benchmarks/ship.md.

use std::path::Path;

use autograd::no_grad;
use nn::{
    Conv2d, ConvConfig, Linear, Module,
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

/// A convolution with a ReLU after it.
#[derive(Module)]
struct Same {
    conv: Conv2d,
}

impl Same {
    /// The padding for an input of `size` is that of TensorFlow's `same`; gives the size of the output too.
    fn new(
        channels: (usize, usize),
        kernel: [usize; 2],
        (stride, groups): (usize, usize),
        size: [usize; 2],
        rng: &Generator,
    ) -> (Same, [usize; 2]) {
        let out = size.map(|size| size.div_ceil(stride));
        let pads = [0, 1].map(|axis| {
            let all = ((out[axis] - 1) * stride + kernel[axis]).saturating_sub(size[axis]);
            (all / 2, all - all / 2)
        });
        let padding = ConvPadding::Each(pads);
        let config = ConvConfig { stride: [stride; 2], padding, groups, ..Default::default() };
        (Same { conv: Conv2d::with_config(channels.0, channels.1, kernel, config, rng).unwrap() }, out)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.conv.forward(x)?.relu())
    }
}

/// A network of convolutions one after the other, a mean over the picture, and a layer of classes.
#[derive(Module)]
struct Chain {
    convs: Vec<Same>,
    classes: Linear,
}

impl Chain {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.convs.iter().try_fold(x.clone(), |x, conv| conv.forward(&x))?;
        self.classes.forward(&x.mean_axis((2, 3), false)?)?.softmax(1)
    }

    /// A first convolution, and then blocks of a convolution of each channel and one of each position, with
    /// these channels and strides.
    fn separable(
        first: (Same, [usize; 2]),
        mut channels: usize,
        blocks: impl IntoIterator<Item = (usize, usize)>,
        classes: usize,
        rng: &Generator,
    ) -> Chain {
        let (first, mut size) = first;
        let mut convs = vec![first];
        for (to, stride) in blocks {
            let (each, out) = Same::new((channels, channels), [3, 3], (stride, channels), size, rng);
            let (mixed, _) = Same::new((channels, to), [1, 1], (1, 1), out, rng);
            convs.extend([each, mixed]);
            (channels, size) = (to, out);
        }
        Chain { convs, classes: Linear::new(channels, classes, rng).unwrap() }
    }

    /// DS-CNN, for spoken words: 49 × 10 coefficients.
    fn words(rng: &Generator) -> Chain {
        let first = Same::new((1, 64), [10, 4], (2, 1), [49, 10], rng);
        Chain::separable(first, 64, [(64, 1); 4], 12, rng)
    }

    /// A quarter of MobileNet, for persons in pictures of 96 × 96.
    fn persons(rng: &Generator) -> Chain {
        let blocks = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)];
        let blocks = blocks.into_iter().chain([(128, 1); 5]).chain([(256, 2), (256, 1)]);
        Chain::separable(Same::new((3, 8), [3, 3], (2, 1), [96, 96], rng), 8, blocks, 2, rng)
    }
}

/// ResNet-8, for pictures of 32 × 32.
#[derive(Module)]
struct Residual {
    first: Same,
    /// Two convolutions of each block, and the one beside them where the size changes.
    blocks: Vec<(Same, Same, Option<Same>)>,
    classes: Linear,
}

impl Residual {
    fn pictures(rng: &Generator) -> Residual {
        let block = |from: usize, to: usize, stride: usize, size: usize| {
            let beside = (from != to).then(|| Same::new((from, to), [1, 1], (stride, 1), [size; 2], rng).0);
            let (first, out) = Same::new((from, to), [3, 3], (stride, 1), [size; 2], rng);
            (first, Same::new((to, to), [3, 3], (1, 1), out, rng).0, beside)
        };
        Residual {
            first: Same::new((3, 16), [3, 3], (1, 1), [32; 2], rng).0,
            blocks: vec![block(16, 16, 1, 32), block(16, 32, 2, 32), block(32, 64, 2, 16)],
            classes: Linear::new(64, 10, rng).unwrap(),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.first.forward(x)?;
        for (first, second, beside) in &self.blocks {
            let straight = beside.as_ref().map_or_else(|| Ok(x.clone()), |beside| beside.conv.forward(&x))?;
            x = second.conv.forward(&first.forward(&x)?)?.add(&straight)?.relu();
        }
        self.classes.forward(&x.mean_axis((2, 3), false)?)?.softmax(1)
    }
}

/// The autoencoder, for the sounds of machines.
#[derive(Module)]
struct Autoencoder {
    layers: Vec<Linear>,
}

impl Autoencoder {
    fn sounds(rng: &Generator) -> Autoencoder {
        let sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640];
        Autoencoder { layers: sizes.windows(2).map(|s| Linear::new(s[0], s[1], rng).unwrap()).collect() }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (last, hidden) = self.layers.split_last().unwrap();
        last.forward(&hidden.iter().try_fold(x.clone(), |x, layer| layer.forward(&x).map(|x| x.relu()))?)
    }
}

/// The network in f32, and after its layers became integers of 8 bits, calibrated on noise.
fn both<M: Module + 'static>(
    name: &str,
    shape: &[usize],
    make: fn(&Generator) -> M,
    forward: fn(&M, &Tensor) -> Result<Tensor>,
) -> [Case; 2] {
    let x = floats(shape, 1);
    let net = |is_small: bool| {
        let mut net = make(&Generator::seed(1, &backend_cpu::cpu()));
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
    let cases = both("words", &[1, 1, 49, 10], Chain::words, Chain::forward);
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
    check(&both("persons", &[1, 3, 96, 96], Chain::persons, Chain::forward));
}

#[test]
fn pictures() {
    check(&both("pictures", &[1, 3, 32, 32], Residual::pictures, Residual::forward));
}

#[test]
fn sounds() {
    check(&both("sounds", &[1, 640], Autoencoder::sounds, Autoencoder::forward));
}
