//! Models that are written and read again: every family of layers, at the sizes of the export and at others.

use nn::{
    AdaptiveAvgPool2d, AttentionMasks, AvgPool1d, AvgPool2d, BatchNorm1d, BatchNorm2d, Bilinear, Celu,
    CircularPad2d, Conv, Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, ConvTransposeConfig, Elu, Embedding, Flatten, Gelu, GeluTanh, Glu, GroupNorm, Gru,
    Hardshrink, Hardsigmoid, Hardswish, InstanceNorm2d, Layer, LayerNorm, LeakyRelu, Linear, LogSigmoid,
    LogSoftmax, LpPool2d, Lstm, MaxPool1d, MaxPool2d, MaxPool3d, Mish, Module, MultiheadAttention,
    PixelShuffle, Prelu, ReflectionPad2d, Relu, Relu6, ReplicationPad2d, RmsNorm, Rnn, RnnConfig, Selu,
    Sequential, Sigmoid, Silu, Softmax, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, TransformerConfig,
    TransformerDecoderLayer, TransformerEncoderLayer, Upsample, ZeroPad2d, cross_entropy,
    functional::{self, GridSampleOptions, InterpolateMode, InterpolateOptions, PoolOptions},
};
use onnx::{DynamicAxis, Export, Exported, Model, export, export_proto};
use tensor_core::{DType, Device, Generator, Result, Tensor};

use crate::{
    devices,
    round_trip::{RoundTrip, file},
};

/// A module without tensors, for functions.
#[derive(Module)]
pub(crate) struct Nothing;

fn each_device(f: impl Fn(&Device, &Generator)) {
    for device in devices() {
        f(&device, &Generator::seed(7, &device));
    }
}

/// A layer at a shape with a dynamic batch, and at twice as many and one more.
fn check(name: &str, layer: &impl Layer, shape: &[usize], rng: &Generator) -> Exported {
    let x = Tensor::randn(shape, rng).unwrap();
    let mut other = shape.to_vec();
    other[0] = 2 * shape[0] + 1;
    let other = Tensor::randn(other.as_slice(), rng).unwrap();
    layer.eval();
    RoundTrip {
        name,
        inputs: vec![x],
        dynamic: vec![(0, 0, "batch")],
        others: vec![vec![other]],
        ..Default::default()
    }
    .layer(layer)
    .unwrap_or_else(|error| panic!("{layer:?}: {error}"))
}

/// The operators of a file, without those of shapes and constants.
fn operators(exported: &Exported) -> Vec<&str> {
    exported.operators.keys().map(String::as_str).collect()
}

#[test]
fn a_perceptron_is_two_products() {
    each_device(|_, rng| {
        let model = Sequential::new()
            .add(Linear::new(4, 8, rng).unwrap())
            .add(Relu)
            .add(Linear::new(8, 3, rng).unwrap());
        let exported = check("perceptron", &model, &[2, 4], rng);
        assert_eq!(operators(&exported), ["Gemm", "Relu"]);
        assert_eq!((exported.operators["Gemm"], exported.initializers), (2, 4));
    });
}

#[test]
fn activations_are_single_nodes() {
    each_device(|device, rng| {
        let prelu = Prelu::new(4, device).unwrap();
        let layers: Vec<(&str, Box<dyn Layer>)> = vec![
            ("Gelu", Box::new(Gelu)),
            ("Gelu", Box::new(GeluTanh)),
            ("Selu", Box::new(Selu)),
            ("Elu", Box::new(Elu::default())),
            ("Celu", Box::new(Celu { alpha: 0.7 })),
            ("LeakyRelu", Box::new(LeakyRelu::default())),
            ("HardSigmoid", Box::new(Hardsigmoid)),
            ("HardSwish", Box::new(Hardswish)),
            ("Mish", Box::new(Mish)),
            ("Softsign", Box::new(Softsign)),
            ("Softplus", Box::new(Softplus::default())),
            ("Shrink", Box::new(Hardshrink::default())),
            ("Shrink", Box::new(Softshrink::default())),
            ("Clip", Box::new(Relu6)),
            ("Sigmoid", Box::new(Sigmoid)),
            ("Tanh", Box::new(Tanh)),
            ("Relu", Box::new(Relu)),
            ("PRelu", Box::new(prelu)),
            ("Softmax", Box::new(Softmax::new(1))),
            ("LogSoftmax", Box::new(LogSoftmax::new(-1))),
        ];
        for (k, (operator, layer)) in layers.iter().enumerate() {
            let exported = check(&format!("activation{k}"), layer, &[2, 4, 3], rng);
            assert_eq!(exported.operators.get(*operator), Some(&1), "{layer:?}: {:?}", exported.operators);
        }
        let composed: Vec<Box<dyn Layer>> =
            vec![Box::new(Silu), Box::new(LogSigmoid), Box::new(Tanhshrink), Box::new(Glu::new(1))];
        for (k, layer) in composed.iter().enumerate() {
            check(&format!("composed{k}"), layer, &[2, 4, 3], rng);
        }
    });
}

#[test]
fn convolutions() {
    each_device(|_, rng| {
        let one = |exported: Exported, operator: &str| {
            assert_eq!(exported.operators.get(operator), Some(&1), "{:?}", exported.operators);
        };
        one(check("conv1d", &Conv1d::new(4, 6, 3, rng).unwrap(), &[2, 4, 9], rng), "Conv");
        let config = ConvConfig { stride: [2, 1], padding: [1, 2].into(), groups: 2, ..Default::default() };
        one(
            check("conv2d", &Conv::with_config(4, 6, [3, 2], config, rng).unwrap(), &[2, 4, 9, 8], rng),
            "Conv",
        );
        let config = ConvConfig { dilation: [2; 3], bias: false, ..Default::default() };
        let conv3d = Conv3d::with_config(2, 3, 2, config, rng).unwrap();
        one(check("conv3d", &conv3d, &[2, 2, 5, 4, 6], rng), "Conv");
        let transposed = ConvTranspose1d::new(3, 4, 3, rng).unwrap();
        one(check("transposed1d", &transposed, &[2, 3, 5], rng), "ConvTranspose");
        let config = ConvTransposeConfig {
            stride: [2; 2],
            padding: [1; 2],
            output_padding: [1; 2],
            ..Default::default()
        };
        let transposed = ConvTranspose2d::with_config(4, 3, 3, config, rng).unwrap();
        one(check("transposed2d", &transposed, &[2, 4, 5, 6], rng), "ConvTranspose");
        let config = ConvTransposeConfig { groups: 2, ..Default::default() };
        let transposed = ConvTranspose3d::with_config(4, 4, 2, config, rng).unwrap();
        one(check("transposed3d", &transposed, &[2, 4, 3, 2, 3], rng), "ConvTranspose");
    });
}

/// Height and width are dynamic too: the sizes of a fully convolutional network follow.
#[test]
fn images_of_any_size() {
    each_device(|_, rng| {
        let config = ConvConfig { padding: 1.into(), ..Default::default() };
        let model = Sequential::new()
            .add(Conv2d::with_config(1, 4, 3, config, rng).unwrap())
            .add(Relu)
            .add(MaxPool2d::new(2))
            .add(Conv2d::with_config(4, 4, 3, config, rng).unwrap())
            .add(Upsample::new(2.0))
            .add(AdaptiveAvgPool2d::new(1))
            .add(Flatten::default())
            .add(Linear::new(4, 3, rng).unwrap());
        let x = Tensor::randn([2, 1, 8, 12], rng).unwrap();
        let other = Tensor::randn([3, 1, 14, 10], rng).unwrap();
        let dynamic = vec![(0, 0, "batch"), (0, 2, "height"), (0, 3, "width")];
        RoundTrip {
            name: "any_size",
            inputs: vec![x],
            dynamic,
            others: vec![vec![other]],
            ..Default::default()
        }
        .layer(&model)
        .unwrap();
    });
}

#[test]
fn norms() {
    each_device(|device, rng| {
        let one = |exported: Exported, operator: &str| {
            assert_eq!(exported.operators.get(operator), Some(&1), "{:?}", exported.operators);
        };
        one(
            check("layer_norm", &LayerNorm::new([3, 4], device).unwrap(), &[2, 3, 4], rng),
            "LayerNormalization",
        );
        one(check("batch_norm1d", &BatchNorm1d::new(4, device).unwrap(), &[3, 4], rng), "BatchNormalization");
        one(
            check("batch_norm2d", &BatchNorm2d::new(4, device).unwrap(), &[2, 4, 3, 3], rng),
            "BatchNormalization",
        );
        one(
            check("instance_norm", &InstanceNorm2d::new(4, device).unwrap(), &[2, 4, 3, 3], rng),
            "InstanceNormalization",
        );
        check("rms_norm", &RmsNorm::new([4], device).unwrap(), &[2, 3, 4], rng);
        check("group_norm", &GroupNorm::new(2, 4, device).unwrap(), &[2, 4, 5, 5], rng);
        // Newer versions of ONNX's operators have these as one.
        let x = Tensor::randn([2, 4, 5, 5], rng).unwrap();
        for (name, opset, operator) in
            [("group_norm21", 21, "GroupNormalization"), ("rms_norm23", 23, "RMSNormalization")]
        {
            let layer: Box<dyn Layer> = match opset {
                21 => Box::new(GroupNorm::new(2, 4, device).unwrap()),
                _ => Box::new(RmsNorm::new([5], device).unwrap()),
            };
            let trip = RoundTrip { name, inputs: vec![x.clone()], opset, ..Default::default() };
            one(trip.layer(&layer).unwrap(), operator);
        }
    });
}

#[test]
fn pools_and_resizing() {
    each_device(|_, rng| {
        check("max_pool1d", &MaxPool1d::new(2), &[2, 3, 9], rng);
        let options = PoolOptions { stride: Some([2, 1]), padding: [1, 1], ..Default::default() };
        let exported = check("max_pool2d", &MaxPool2d::with_options([3, 2], options), &[2, 3, 7, 6], rng);
        assert_eq!(operators(&exported), ["MaxPool"]);
        let ceil = PoolOptions { ceil_mode: true, ..Default::default() };
        check("max_pool2d_ceil", &MaxPool2d::with_options([2, 2], ceil), &[2, 3, 7, 5], rng);
        check("max_pool3d", &MaxPool3d::new(2), &[2, 3, 4, 4, 4], rng);
        check("avg_pool1d", &AvgPool1d::new(3), &[2, 3, 9], rng);
        let exported = check("avg_pool2d", &AvgPool2d::with_options([3, 2], options), &[2, 3, 7, 6], rng);
        assert_eq!(operators(&exported), ["AveragePool"]);
        let options = PoolOptions { count_include_pad: false, ..options };
        check("avg_pool2d_without_pad", &AvgPool2d::with_options([3, 2], options), &[2, 3, 7, 6], rng);
        check("avg_pool2d_ceil", &AvgPool2d::with_options([2, 2], ceil), &[2, 3, 7, 5], rng);
        check("lp_pool2d", &LpPool2d::new(2.0, 2), &[2, 3, 6, 6], rng);
        check("adaptive", &AdaptiveAvgPool2d::new([2, 3]), &[2, 3, 7, 8], rng);
        check("zero_pad", &ZeroPad2d::new(1), &[2, 3, 4, 4], rng);
        check("reflection_pad", &ReflectionPad2d::new(2), &[2, 3, 4, 4], rng);
        check("replication_pad", &ReplicationPad2d::new(2), &[2, 3, 4, 4], rng);
        check("circular_pad", &CircularPad2d::new(2), &[2, 3, 4, 4], rng);
        check("pixel_shuffle", &PixelShuffle(2), &[2, 8, 3, 4], rng);
        let modes = [
            (InterpolateMode::Nearest, false),
            (InterpolateMode::NearestExact, false),
            (InterpolateMode::Bilinear, false),
            (InterpolateMode::Bilinear, true),
            (InterpolateMode::Bicubic, false),
            (InterpolateMode::Area, false),
        ];
        for (k, (mode, align_corners)) in modes.into_iter().enumerate() {
            let options = InterpolateOptions { mode, align_corners, ..Default::default() };
            let layer = Upsample::with_options(vec![7, 9], options);
            check(&format!("upsample{k}"), &layer, &[2, 3, 4, 5], rng);
        }
    });
}

#[test]
fn embeddings_and_losses() {
    each_device(|device, rng| {
        let words = Tensor::new([[1i32, 4, 0], [2, 2, 3]], device).unwrap();
        let others = vec![vec![Tensor::new([[4i32, 1, 2, 0, 3]], device).unwrap()]];
        let dynamic = vec![(0, 0, "batch"), (0, 1, "length")];
        let model = Embedding::new(5, 4, rng).unwrap();
        let trip =
            RoundTrip { name: "embedding", inputs: vec![words], dynamic, others, ..Default::default() };
        let exported = trip.run(&model, |model, x| Ok(vec![model.forward(&x[0])?])).unwrap();
        assert_eq!(operators(&exported), ["Gather"]);

        let (x, y) = (Tensor::randn([3, 4], rng).unwrap(), Tensor::randn([3, 4], rng).unwrap());
        let labels = Tensor::new([1i32, 3, 0], device).unwrap();
        type Loss = fn(&[Tensor]) -> Result<Tensor>;
        let losses: [(&str, Loss); 7] = [
            ("cross_entropy", |x| cross_entropy(&x[0], &x[2])),
            ("mse", |x| nn::mse_loss(&x[0], &x[1])),
            ("l1", |x| nn::l1_loss(&x[0], &x[1])),
            ("smooth_l1", |x| nn::smooth_l1_loss(&x[0], &x[1])),
            ("bce", |x| nn::binary_cross_entropy(&x[0].sigmoid(), &x[1].sigmoid())),
            ("bce_with_logits", |x| nn::binary_cross_entropy_with_logits(&x[0], &x[1].sigmoid())),
            ("kl_div", |x| nn::kl_div(&x[0].log_softmax(1)?, &x[1].softmax(1)?)),
        ];
        for (name, loss) in losses {
            let inputs = vec![x.clone(), y.clone(), labels.clone()];
            RoundTrip { name, inputs, ..Default::default() }
                .run(&Nothing, |_, x| Ok(vec![loss(x)?]))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    });
}

#[test]
fn recurrent_layers_are_one_node_for_each_direction() {
    each_device(|device, rng| {
        let config =
            RnnConfig { num_layers: 2, batch_first: true, bidirectional: true, ..Default::default() };
        let x = Tensor::randn([2, 5, 3], rng).unwrap();
        let other = Tensor::randn([3, 7, 3], rng).unwrap();
        let trip = |name| RoundTrip {
            name,
            inputs: vec![x.clone()],
            dynamic: vec![(0, 0, "batch"), (0, 1, "length")],
            others: vec![vec![other.clone()]],
            ..Default::default()
        };
        let lstm = Lstm::with_config(3, 4, config, rng).unwrap();
        let forward = |lstm: &Lstm, x: &[Tensor]| {
            let (out, (hidden, cell)) = lstm.forward(&x[0], None)?;
            Ok(vec![out, hidden, cell])
        };
        let exported = trip("lstm").run(&lstm, forward).unwrap();
        assert_eq!(exported.operators["LSTM"], 4);
        let gru = Gru::with_config(3, 4, config, rng).unwrap();
        let forward =
            |gru: &Gru, x: &[Tensor]| gru.forward(&x[0], None).map(|(out, hidden)| vec![out, hidden]);
        assert_eq!(trip("gru").run(&gru, forward).unwrap().operators["GRU"], 4);
        for (name, rnn) in [
            ("rnn", Rnn::with_config(3, 4, config, rng).unwrap()),
            ("rnn_relu", Rnn::with_relu(3, 4, RnnConfig { bias: false, ..config }, rng).unwrap()),
        ] {
            let forward =
                |rnn: &Rnn, x: &[Tensor]| rnn.forward(&x[0], None).map(|(out, hidden)| vec![out, hidden]);
            assert_eq!(trip(name).run(&rnn, forward).unwrap().operators["RNN"], 4);
        }
        // A given initial state, and a single sequence.
        let gru = Gru::new(3, 4, rng).unwrap();
        let state = Tensor::randn([1, 4], rng).unwrap();
        let inputs = vec![Tensor::randn([6, 3], rng).unwrap(), state];
        let forward =
            |gru: &Gru, x: &[Tensor]| gru.forward(&x[0], Some(&x[1])).map(|(out, hidden)| vec![out, hidden]);
        RoundTrip { name: "gru_alone", inputs, ..Default::default() }.run(&gru, forward).unwrap();
        let _ = device;
    });
}

#[test]
fn attention_and_transformers_of_any_length() {
    each_device(|_, rng| {
        let x = Tensor::randn([2, 5, 8], rng).unwrap();
        let other = Tensor::randn([3, 9, 8], rng).unwrap();
        let trip = |name| RoundTrip {
            name,
            inputs: vec![x.clone()],
            dynamic: vec![(0, 0, "batch"), (0, 1, "length")],
            others: vec![vec![other.clone()]],
            ..Default::default()
        };
        let config = nn::MultiheadAttentionConfig { batch_first: true, ..Default::default() };
        let attention = MultiheadAttention::with_config(8, 2, config, rng).unwrap();
        attention.eval();
        let forward = |attention: &MultiheadAttention, x: &[Tensor]| {
            Ok(vec![attention.forward(&x[0], &x[0], &x[0], AttentionMasks::default())?])
        };
        let exported = trip("attention").run(&attention, forward).unwrap();
        assert_eq!(exported.operators["Softmax"], 1);
        let causal = |_: &Nothing, x: &[Tensor]| {
            let options = functional::AttentionOptions { is_causal: true, ..Default::default() };
            Ok(vec![functional::scaled_dot_product_attention(&x[0], &x[0], &x[0], options)?])
        };
        trip("causal").run(&Nothing, causal).unwrap();
        let config = TransformerConfig {
            dim_feedforward: 16,
            batch_first: true,
            norm_first: true,
            ..Default::default()
        };
        let encoder = TransformerEncoderLayer::with_config(8, 2, config, rng).unwrap();
        encoder.eval();
        let forward = |layer: &TransformerEncoderLayer, x: &[Tensor]| Ok(vec![layer.forward(&x[0])?]);
        let exported = trip("encoder").run(&encoder, forward).unwrap();
        assert_eq!(exported.operators["LayerNormalization"], 2);
        let decoder = TransformerDecoderLayer::with_config(8, 2, config, rng).unwrap();
        decoder.eval();
        let forward = |layer: &TransformerDecoderLayer, x: &[Tensor]| {
            let masks = AttentionMasks::default();
            Ok(vec![layer.forward(&x[0], &x[0], masks, masks)?])
        };
        trip("decoder").run(&decoder, forward).unwrap();
    });
}

#[test]
fn other_layers() {
    each_device(|_, rng| {
        let bilinear = Bilinear::new(3, 4, 2, rng).unwrap();
        let inputs = vec![Tensor::randn([2, 3], rng).unwrap(), Tensor::randn([2, 4], rng).unwrap()];
        let forward = |layer: &Bilinear, x: &[Tensor]| Ok(vec![layer.forward(&x[0], &x[1])?]);
        RoundTrip { name: "bilinear", inputs, ..Default::default() }.run(&bilinear, forward).unwrap();
        let inputs =
            vec![Tensor::randn([2, 3, 4, 5], rng).unwrap(), Tensor::rand([2, 3, 3, 2], rng).unwrap()];
        let forward = |_: &Nothing, x: &[Tensor]| {
            Ok(vec![functional::grid_sample(&x[0], &x[1], GridSampleOptions::default())?])
        };
        let exported =
            RoundTrip { name: "grid_sample", inputs, ..Default::default() }.run(&Nothing, forward).unwrap();
        assert_eq!(operators(&exported), ["GridSample"]);
    });
}

/// Slices, joins and products whose sizes follow from two dynamic sizes.
#[test]
fn sizes_follow_the_dynamic_axes() {
    each_device(|device, rng| {
        let (x, y) = (Tensor::randn([2, 3, 4], rng).unwrap(), Tensor::randn([5, 7, 4], rng).unwrap());
        let forward = |_: &Nothing, x: &[Tensor]| {
            let x = &x[0];
            let (n, l) = (x.dims()[0], x.dims()[1]);
            let flat = x.reshape([n * l, 4])?;
            let grid = Tensor::arange(0.0, l as f64, 1.0, &x.device())?.reshape([1, l, 1])?;
            Ok(vec![
                flat.sum_axis(1, false)?.reshape([l, n])?,
                x.add(&grid)?.narrow(1, 1, l - 1)?,
                Tensor::concat(&[x, &x.narrow(1, 0, 1)?], 1)?.flip(1)?,
                x.reshape([n, l, 2, 2])?.permute([2, 0, 1, 3])?.reshape([2 * n, l * 2])?,
                x.mean().mul_scalar(1.0 / l as f64),
                x.narrow(1, 0, l / 2)?.sum_axis(1, false)?,
                Tensor::ones([l, l], &x.device())?.triu(1)?,
            ])
        };
        RoundTrip {
            name: "sizes",
            inputs: vec![x],
            dynamic: vec![(0, 0, "batch"), (0, 1, "length")],
            others: vec![vec![y]],
            ..Default::default()
        }
        .run(&Nothing, forward)
        .unwrap();
        let _ = device;
    });
}

#[test]
fn half_and_other_types() {
    each_device(|device, rng| {
        for dtype in [DType::F16, DType::BF16].into_iter().filter(|&dtype| device.supports(dtype)) {
            let x = Tensor::randn([3, 4], rng).unwrap().to_dtype(dtype).unwrap();
            let layer = Linear::new(4, 5, rng).unwrap();
            let cast = |x: &Tensor| x.detach().to_dtype(dtype);
            let weight = cast(&layer.weight).unwrap();
            let forward = |_: &Nothing, x: &[Tensor]| {
                let y = functional::linear(&x[0], &weight, None)?;
                Ok(vec![y.gelu().softmax(1)?, functional::layer_norm(&y, [5], None, None, 1e-5)?, y.selu()])
            };
            let name = format!("half_{dtype}");
            RoundTrip { name: &name, inputs: vec![x], tolerance: 0.02, ..Default::default() }
                .run(&Nothing, forward)
                .unwrap();
        }
    });
}

#[test]
fn names_are_those_of_the_state_dict_and_of_the_modules() {
    #[derive(Module)]
    struct Net {
        body: Sequential,
        head: Linear,
    }
    let rng = Generator::seed(0, &backend_cpu::cpu());
    let body = Sequential::new().add(Linear::new(4, 4, &rng).unwrap()).add(Tanh);
    let net = Net { body, head: Linear::new(4, 2, &rng).unwrap() };
    let x = Tensor::ones([1, 4], rng.device()).unwrap();
    let forward = |net: &Net, x: &[Tensor]| Ok(vec![net.head.forward(&net.body.forward(&x[0])?)?]);
    let proto = export_proto(&net, forward, [("x", &x)], &Export::default()).unwrap();
    let graph = proto.graph.unwrap();
    let nodes: Vec<String> = graph.node.iter().filter_map(|node| node.name.clone()).collect();
    assert_eq!(nodes, ["/body/0/Gemm", "/body/1/Tanh", "/head/Gemm"]);
    let mut weights: Vec<String> =
        graph.initializer.iter().filter_map(|tensor| tensor.name.clone()).collect();
    weights.sort();
    assert_eq!(weights, net.state_dict().into_keys().collect::<Vec<_>>());
    assert_eq!(graph.output[0].name.as_deref(), Some("output"));
}

#[test]
fn a_model_that_was_read_is_written_again() {
    for device in devices() {
        let original = Model::load(crate::model("ch_ppocr_mobile_v2.0_cls_infer.onnx"), &device).unwrap();
        let rng = Generator::seed(1, &device);
        let x = Tensor::randn([2, 3, 48, 192], &rng).unwrap();
        let (path, _folder) = file("again.onnx");
        let options = Export { dynamic_axes: vec![DynamicAxis::new("x", 0, "batch")], ..Default::default() };
        let exported = export(&original, [("x", &x)], &path, &options).unwrap();
        assert!(exported.operators["Conv"] > 10, "{:?}", exported.operators);
        let again = Model::load(&path, &device).unwrap();
        assert_eq!(again.output_names().collect::<Vec<_>>(), original.output_names().collect::<Vec<_>>());
        for batch in [2, 3] {
            let x = Tensor::randn([batch, 3, 48, 192], &rng).unwrap();
            let [found, expected] = [&again, &original].map(|model| {
                model.run([("x", &x)]).unwrap().tensors().unwrap().remove(0).to_vec::<f32>().unwrap()
            });
            for (a, b) in found.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-4, "{found:?} {expected:?}");
            }
        }
    }
}

#[test]
fn weights_beside_the_file() {
    let rng = Generator::seed(0, &backend_cpu::cpu());
    let model = Linear::new(64, 32, &rng).unwrap();
    let x = Tensor::randn([2, 64], &rng).unwrap();
    let (path, _folder) = file("beside.onnx");
    let options = Export { external_data_above: 100, ..Default::default() };
    let exported = export(&model, [("x", &x)], &path, &options).unwrap();
    assert_eq!(exported.bytes, 4 * (64 * 32 + 32));
    let data = path.with_file_name("beside.onnx.data");
    assert_eq!(std::fs::metadata(data).unwrap().len(), 4 * 64 * 32);
    assert!(std::fs::metadata(&path).unwrap().len() < 4 * 64 * 32);
    let read = Model::load(&path, rng.device()).unwrap();
    let found = read.run([("x", &x)]).unwrap().tensor("output").unwrap().to_vec::<f32>().unwrap();
    let expected = model.forward(&x).unwrap().to_vec::<f32>().unwrap();
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn errors_name_what_is_wrong() {
    let rng = Generator::seed(0, &backend_cpu::cpu());
    let x = Tensor::randn([2, 4], &rng).unwrap();
    let refused = |model: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>, options: &Export| {
        let given = [("x", &x)];
        export_proto(&Nothing, |_, x| model(x), given, options).unwrap_err().to_string()
    };
    let dynamic = |input: &str, axis| Export {
        dynamic_axes: vec![DynamicAxis::new(input, axis, "size")],
        ..Default::default()
    };
    // All operations without a form are named in one error.
    let whole = |x: &Tensor| x.to_dtype(DType::I32);
    let message =
        refused(&|x| Ok(vec![whole(&x[0])?.gcd(&whole(&x[0])?)?, x[0].unsqueeze(0)?]), &Export::default());
    assert!(message.contains("gcd") && message.contains("export.rs"), "{message}");
    let message = refused(&|x| Ok(vec![x[0].clone()]), &dynamic("y", 0));
    assert!(message.contains("\"y\"") && message.contains("\"x\""), "{message}");
    let message = refused(&|x| Ok(vec![x[0].clone()]), &dynamic("x", 2));
    assert!(message.contains("axis 2"), "{message}");
    let message = refused(&|x| Ok(vec![x[0].clone()]), &Export { opset: 12, ..Default::default() });
    assert!(message.contains("12") && message.contains("18"), "{message}");
    // The number of operations follows the size.
    let unrolled = |x: &[Tensor]| {
        let mut sum = x[0].select(0, 0)?;
        for row in 1..x[0].dims()[0] {
            sum = sum.add(&x[0].select(0, row)?)?.tanh();
        }
        Ok(vec![sum])
    };
    let message = refused(&unrolled, &dynamic("x", 0));
    assert!(message.contains("dynamic axis"), "{message}");
    let norm = BatchNorm1d::new(4, rng.device()).unwrap();
    let forward = |norm: &BatchNorm1d, x: &[Tensor]| Ok(vec![norm.forward(&x[0])?]);
    let message = export_proto(&norm, forward, [("x", &x)], &Export::default()).unwrap_err().to_string();
    assert!(message.contains(".eval()") && message.contains("running_mean"), "{message}");
    assert_eq!(norm.named_buffers().len(), 3);
}
