//! Convolutions and pooling compared with plain loops, their gradients compared with finite differences, and
//! bad inputs.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::autograd::{TensorGrad, grad, gradcheck};
use taper::nn::{
    AvgPool2d, Conv2d, ConvConfig, ConvTranspose2d, ConvTransposeConfig, MaxPool1d, MaxPool2d, Module,
    functional::{
        ConvOptions, ConvPadding, ConvTransposeOptions, PoolOptions, avg_pool2d_with, conv_transpose2d,
        conv1d, conv2d, conv3d, max_pool_with_indices, max_pool2d, max_pool2d_with,
    },
};
use taper::{DType, Generator, Result, Tensor};

use crate::common::{agree_within, device, drawn, needs, tensor};

/// Numbers without a pattern, in f64.
fn made(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, &Generator::seed(seed, &device())).unwrap().to_dtype(DType::F64).unwrap()
}

/// `[n, c, y, x]` of a tensor, 0 outside.
fn at(values: &[f64], shape: &[usize], index: [isize; 4]) -> f64 {
    let inside = index.iter().zip(shape).all(|(&i, &n)| i >= 0 && (i as usize) < n);
    if !inside {
        return 0.0;
    }
    values[index.iter().zip(shape).fold(0, |flat, (&i, &n)| flat * n + i as usize)]
}

/// The convolution by its definition.
fn plain(x: &Tensor, w: &Tensor, options: ConvOptions<2>) -> Vec<f64> {
    let (xs, ws) = (x.to_vec::<f64>().unwrap(), w.to_vec::<f64>().unwrap());
    let ConvPadding::Each(padding) = options.padding else { panic!("Same") };
    let (channels, of_group) = (w.dims()[0], w.dims()[1]);
    let size = |axis: usize| {
        let room = x.dims()[2 + axis] + padding[axis].0 + padding[axis].1;
        (room - options.dilation[axis] * (w.dims()[2 + axis] - 1) - 1) / options.stride[axis] + 1
    };
    let mut out = Vec::new();
    for n in 0..x.dims()[0] {
        for o in 0..channels {
            let first = o / (channels / options.groups) * of_group;
            for y in 0..size(0) {
                for z in 0..size(1) {
                    let mut sum = 0.0;
                    for c in 0..of_group {
                        for i in 0..w.dims()[2] {
                            for j in 0..w.dims()[3] {
                                let place = |axis: usize, at: usize, k: usize| {
                                    (at * options.stride[axis] + k * options.dilation[axis]) as isize
                                        - padding[axis].0 as isize
                                };
                                let from = [n as isize, (first + c) as isize, place(0, y, i), place(1, z, j)];
                                let weight = [o as isize, c as isize, i as isize, j as isize];
                                sum += at(&xs, x.dims(), from) * at(&ws, w.dims(), weight);
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    out
}

#[track_caller]
fn close(found: &Tensor, expected: &[f64]) {
    let found = found.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "element {i}: {a}, not {b}");
    }
}

/// Strides, paddings, dilations and groups, with input, output channels and kernel.
fn cases() -> Vec<(ConvOptions<2>, usize, usize, [usize; 2])> {
    let plain = ConvOptions::default();
    vec![
        (plain, 2, 3, [3, 2]),
        (plain, 2, 3, [1, 1]),
        (ConvOptions { stride: [2, 3], padding: 1.into(), ..plain }, 2, 3, [3, 3]),
        (
            ConvOptions { padding: ConvPadding::Each([(0, 2), (3, 1)]), dilation: [2, 1], ..plain },
            1,
            2,
            [3, 4],
        ),
        (ConvOptions { groups: 2, padding: [1, 0].into(), ..plain }, 4, 6, [2, 3]),
        (ConvOptions { groups: 3, stride: [2, 1], ..plain }, 3, 3, [3, 3]),
        // More padding than the kernel reaches.
        (ConvOptions { padding: 3.into(), stride: [2, 2], ..plain }, 2, 1, [2, 1]),
        // Kernels of no whole number of strides; a stride and a dilation.
        (ConvOptions { padding: 2.into(), stride: [3, 2], groups: 2, ..plain }, 2, 4, [4, 5]),
        (ConvOptions { padding: 1.into(), stride: [2, 1], dilation: [2, 2], ..plain }, 2, 2, [2, 3]),
    ]
}

#[test]
fn convolutions_are_their_definition() {
    if !needs(&device(), DType::F64) {
        return;
    }
    for (i, (options, inputs, outputs, [h, w])) in cases().into_iter().enumerate() {
        let x = made(&[2, inputs, 7, 6], i as u64);
        let weight = made(&[outputs, inputs / options.groups, h, w], 100 + i as u64);
        let y = conv2d(&x, &weight, None, options).unwrap();
        close(&y, &plain(&x, &weight, options));
        // Without a batch, with a bias, and from an input with transposed memory.
        let bias = made(&[outputs], 200);
        let across = x.transpose(2, 3).unwrap().contiguous().unwrap().transpose(2, 3).unwrap();
        let one = conv2d(&across.select(0, 1).unwrap(), &weight, Some(&bias), options).unwrap();
        let expected = y.select(0, 1).unwrap().add(&bias.reshape([outputs, 1, 1]).unwrap()).unwrap();
        close(&one, &expected.to_vec::<f64>().unwrap());
    }
}

#[test]
fn gradients_of_convolutions_to_the_second_order() {
    if !needs(&device(), DType::F64) {
        return;
    }
    for (i, (options, inputs, outputs, [h, w])) in cases().into_iter().enumerate() {
        let x = made(&[1, inputs, 4, 5], i as u64);
        let weight = made(&[outputs, inputs / options.groups, h, w], 50 + i as u64);
        gradcheck(|t| conv2d(&t[0], &t[1], None, options), &[x.clone(), weight.clone()]).unwrap();
        // The gradient of a sum of squared gradients.
        let second = |t: &[Tensor]| -> Result<Tensor> {
            let y = conv2d(&t[0], &t[1], None, options)?;
            let found = grad(&[y.powi(2).sum()], &[&t[0], &t[1]], true)?;
            let squares = |g: &Option<Tensor>| g.as_ref().unwrap().powi(2).sum();
            squares(&found[0]).add(&squares(&found[1]))
        };
        if i < 4 {
            gradcheck(second, &[x.clone(), weight.clone()]).unwrap();
        }
    }
}

/// A transpose is defined by ⟨conv(x), y⟩ = ⟨x, transpose(y)⟩.
#[test]
fn transposed_convolutions_are_transposes() {
    if !needs(&device(), DType::F64) {
        return;
    }
    for (i, (options, inputs, outputs, [h, w])) in cases().into_iter().enumerate() {
        let ConvOptions { stride, padding: ConvPadding::Each(padding), dilation, groups } = options else {
            panic!("Same")
        };
        if padding.iter().any(|(before, after)| before != after) {
            continue;
        }
        let x = made(&[2, inputs, 7, 8], i as u64);
        let weight = made(&[outputs, inputs / groups, h, w], 10 + i as u64);
        let y = conv2d(&x, &weight, None, options).unwrap();
        let other = made(y.dims(), 20);
        // The sizes that a stride rounds away.
        let lost = |axis: usize, kernel: usize| {
            (x.dims()[2 + axis] + 2 * padding[axis].0 - dilation[axis] * (kernel - 1) - 1) % stride[axis]
        };
        let transposed = ConvTransposeOptions {
            stride,
            padding: padding.map(|p| p.0),
            output_padding: [lost(0, h), lost(1, w)],
            dilation,
            groups,
        };
        let back = conv_transpose2d(&other, &weight, None, transposed).unwrap();
        assert_eq!(back.dims(), x.dims());
        let inner = |a: &Tensor, b: &Tensor| a.mul(b).unwrap().sum().item::<f64>().unwrap();
        let (left, right) = (inner(&y, &other), inner(&x, &back));
        assert!((left - right).abs() < 1e-9 * (1.0 + left.abs()), "case {i}: {left}, {right}");
        // Finite differences on the CPU; the table of operations compares other devices with its gradients.
        if device().name() == "cpu" {
            gradcheck(|t| conv_transpose2d(&t[0], &t[1], None, transposed), &[other, weight]).unwrap();
        }
    }
}

/// An output padding may be so large that the convolution back makes more windows than the input has
/// elements.
#[test]
fn output_padding_of_more_than_a_stride_has_no_gradient_of_its_own() {
    if !needs(&device(), DType::F64) {
        return;
    }
    let options = ConvTransposeOptions {
        stride: [1, 2],
        dilation: [3, 1],
        output_padding: [2, 1],
        ..Default::default()
    };
    let (x, weight) = (made(&[2, 2, 3, 4], 1), made(&[2, 3, 2, 3], 2));
    assert_eq!(conv_transpose2d(&x, &weight, None, options).unwrap().dims(), [2, 3, 8, 10]);
    gradcheck(|t| conv_transpose2d(&t[0], &t[1], None, options), &[x, weight]).unwrap();
}

#[test]
fn one_and_three_axes() {
    if !needs(&device(), DType::F64) {
        return;
    }
    let device = device();
    let x = Tensor::new([[[1.0f64, 2.0, 4.0, 8.0, 16.0]]], &device).unwrap();
    let w = Tensor::new([[[1.0f64, -1.0]]], &device).unwrap();
    let options = ConvOptions { dilation: [2], ..Default::default() };
    assert_eq!(conv1d(&x, &w, None, options).unwrap().to_vec::<f64>().unwrap(), [-3.0, -6.0, -12.0]);
    let same = ConvOptions { padding: ConvPadding::Same, ..Default::default() };
    let y = conv1d(&x, &w, None, same).unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), [-1.0, -2.0, -4.0, -8.0, 16.0]);
    let (x, w) = (made(&[1, 2, 3, 4, 5], 1), made(&[2, 2, 2, 2, 2], 2));
    let y = conv3d(&x, &w, None, ConvOptions::default()).unwrap();
    // A volume is the sum over depths of images.
    let mut sum = Tensor::zeros([1, 2, 3, 4], (DType::F64, &device)).unwrap();
    for depth in 0..2 {
        let image = x.select(2, 1 + depth).unwrap();
        let weight = w.select(2, depth).unwrap();
        sum = sum.add(&conv2d(&image, &weight, None, ConvOptions::default()).unwrap()).unwrap();
    }
    close(&y.select(2, 1).unwrap(), &sum.to_vec::<f64>().unwrap());
}

#[test]
fn maxima_and_means_of_windows() {
    if !needs(&device(), DType::F64) {
        return;
    }
    let device = device();
    let x = Tensor::arange(0.0, 25.0, 1.0, (DType::F64, &device)).unwrap().reshape([1, 1, 5, 5]).unwrap();
    let options = PoolOptions { stride: Some([2, 2]), padding: [1, 1], ..Default::default() };
    let y = max_pool2d_with(&x, [3, 3], options).unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), [6.0, 8.0, 9.0, 16.0, 18.0, 19.0, 21.0, 23.0, 24.0]);
    let y = avg_pool2d_with(&x, [3, 3], options).unwrap();
    let by_nine = |sum: f64| sum / 9.0;
    let expected = [12.0, 27.0, 24.0, 63.0, 108.0, 81.0, 72.0, 117.0, 84.0].map(by_nine);
    close(&y, &expected);
    let own = PoolOptions { count_include_pad: false, ..options };
    let counts = [4.0, 6.0, 4.0, 6.0, 9.0, 6.0, 4.0, 6.0, 4.0];
    let sums = expected.map(|mean| mean * 9.0);
    let means: Vec<f64> = sums.iter().zip(counts).map(|(sum, count)| sum / count).collect();
    close(&avg_pool2d_with(&x, [3, 3], own).unwrap(), &means);
    // A last window that reaches past the end.
    let ceil = PoolOptions { ceil_mode: true, ..Default::default() };
    let y = max_pool2d_with(&x, [2, 2], ceil).unwrap();
    assert_eq!(y.to_vec::<f64>().unwrap(), [6.0, 8.0, 9.0, 16.0, 18.0, 19.0, 21.0, 23.0, 24.0]);
    let y = avg_pool2d_with(&x, [2, 2], ceil).unwrap();
    close(&y, &[3.0, 5.0, 6.5, 13.0, 15.0, 16.5, 20.5, 22.5, 24.0]);
    // Windows with gaps between their elements.
    let y = max_pool2d_with(
        &x,
        [2, 2],
        PoolOptions { dilation: [3, 3], stride: Some([1, 1]), ..Default::default() },
    );
    assert_eq!(y.unwrap().to_vec::<f64>().unwrap(), [18.0, 19.0, 23.0, 24.0]);
}

#[test]
fn the_first_of_equal_maxima_has_the_gradient_and_nan_is_the_greatest() {
    if !needs(&device(), DType::F64) {
        return;
    }
    let device = device();
    let x = Tensor::new([[[[1.0f64, 3.0, 3.0, 0.0], [3.0, 2.0, f64::NAN, 9.0]]]], &device).unwrap();
    let x = x.requires_grad();
    let (y, indices) = max_pool_with_indices(&x, [2, 2], PoolOptions::default()).unwrap();
    let found = y.to_vec::<f64>().unwrap();
    assert!(found[0] == 3.0 && found[1].is_nan());
    assert_eq!(indices.to_vec::<i64>().unwrap(), [1, 6]);
    y.sum().backward().unwrap();
    let gradient = x.grad().unwrap().to_vec::<f64>().unwrap();
    assert_eq!(gradient, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    for options in [
        PoolOptions::default(),
        PoolOptions { stride: Some([1, 2]), padding: [1, 1], ceil_mode: true, ..Default::default() },
        PoolOptions { dilation: [2, 1], stride: Some([1, 1]), ..Default::default() },
    ] {
        let x = made(&[2, 2, 5, 5], 3);
        gradcheck(|t| max_pool2d_with(&t[0], [2, 2], options), std::slice::from_ref(&x)).unwrap();
        gradcheck(
            |t| max_pool2d_with(&t[0].powi(2), [2, 2], options)?.powi(2).sum().reshape([1]),
            std::slice::from_ref(&x),
        )
        .unwrap();
        if options.dilation == [1, 1] {
            gradcheck(|t| avg_pool2d_with(&t[0], [2, 2], options), std::slice::from_ref(&x)).unwrap();
        }
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let device = device();
    let x = Tensor::ones([1, 3, 8, 8], &device).unwrap();
    let w = Tensor::ones([4, 3, 3, 3], &device).unwrap();
    let plain = ConvOptions::default();
    #[track_caller]
    fn says<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
        let message = result.unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    says(conv2d(&x, &Tensor::ones([4, 3, 9, 3], &device).unwrap(), None, plain), &["conv2d", "9", "has 8"]);
    says(conv2d(&x, &w, None, ConvOptions { groups: 2, ..plain }), &["2 groups", "3 channels"]);
    says(conv2d(&x, &w, None, ConvOptions { dilation: [0, 1], ..plain }), &["dilation [0, 1]", "above 0"]);
    says(conv2d(&x, &w, None, ConvOptions { groups: 0, ..plain }), &["0 groups"]);
    let same = ConvOptions { padding: ConvPadding::Same, stride: [2, 1], ..plain };
    says(conv2d(&x, &w, None, same), &["Same", "stride of 1"]);
    says(conv2d(&x.select(1, 0).unwrap().select(0, 0).unwrap(), &w, None, plain), &["4 axes", "[8, 8]"]);
    says(conv2d(&x, &w.select(3, 0).unwrap(), None, plain), &["weight must have 4 axes", "[4, 3, 3] has 3"]);
    says(conv2d(&x, &w, Some(&Tensor::ones([3], &device).unwrap()), plain), &["bias [4]"]);
    says(conv2d(&x.to_dtype(DType::I32).unwrap(), &w, None, plain), &["conv2d", "cast the input"]);
    let transposed = ConvTransposeOptions { output_padding: [1, 0], ..Default::default() };
    let w = Tensor::ones([3, 4, 3, 3], &device).unwrap();
    says(conv_transpose2d(&x, &w, None, transposed), &["output padding of 1"]);
    let transposed = ConvTransposeOptions { padding: [6, 6], ..Default::default() };
    says(conv_transpose2d(&x, &w, None, transposed), &["size -2"]);
    says(max_pool2d(&x, [9, 1]), &["max_pool2d", "has 8"]);
    says(
        max_pool2d_with(&x, [2, 2], PoolOptions { padding: [2, 0], ..Default::default() }),
        &["more than half"],
    );
    says(max_pool2d(&x, [0, 2]), &["above 0"]);
    says(
        avg_pool2d_with(&x, [2, 2], PoolOptions { dilation: [2, 2], ..Default::default() }),
        &["no dilation"],
    );
    let rng = Generator::seed(0, &device);
    let config = ConvConfig { groups: 2, ..Default::default() };
    says(Conv2d::with_config(3, 4, 3, config, &rng), &["Conv2d", "2 groups do not divide 3 inputs"]);
}

#[test]
fn layers_have_pytorch_names_shapes_and_first_values() {
    let rng = Generator::seed(3, &device());
    let config = ConvConfig { groups: 2, padding: 1.into(), stride: [2, 1], ..Default::default() };
    let layer = Conv2d::with_config(4, 6, [3, 5], config, &rng).unwrap();
    let shapes: Vec<_> =
        layer.named_parameters().into_iter().map(|(name, t)| (name, t.dims().to_vec())).collect();
    assert_eq!(shapes, [("weight".to_string(), vec![6, 2, 3, 5]), ("bias".to_string(), vec![6])]);
    let bound = 1.0 / 30f32.sqrt();
    for tensor in layer.parameters() {
        assert!(tensor.to_vec::<f32>().unwrap().iter().all(|v| v.abs() <= bound));
    }
    assert_eq!(
        format!("{layer:?}"),
        "Conv2d(4, 6, kernel_size=(3, 5), stride=(2, 1), padding=(1, 1), groups=2)"
    );
    let config = ConvTransposeConfig { stride: [2, 2], bias: false, ..Default::default() };
    let layer = ConvTranspose2d::with_config(4, 6, 2, config, &rng).unwrap();
    assert_eq!(layer.weight.dims(), [4, 6, 2, 2]);
    assert_eq!(
        layer.forward(&Tensor::ones([1, 4, 3, 3], rng.device()).unwrap()).unwrap().dims(),
        [1, 6, 6, 6]
    );
    assert_eq!(format!("{layer:?}"), "ConvTranspose2d(4, 6, kernel_size=(2, 2), stride=(2, 2), bias=False)");
    let x = Tensor::ones([1, 4, 6, 6], rng.device()).unwrap();
    assert_eq!(MaxPool2d::new([2, 3]).forward(&x).unwrap().dims(), [1, 4, 3, 2]);
    assert_eq!(AvgPool2d::new(2).forward(&x).unwrap().to_vec::<f32>().unwrap(), [1.0; 36]);
    assert_eq!(MaxPool1d::new(2).forward(&x.select(0, 0).unwrap()).unwrap().dims(), [4, 6, 3]);
    assert_eq!(
        format!("{:?}", MaxPool2d::new(2)),
        "MaxPool2d(kernel_size=[2, 2], stride=[2, 2], padding=[0, 0])"
    );
}

/// Shapes at which a backend changes its way: rows of many columns, few results of many terms, long runs in
/// panels, strides.
#[test]
fn larger_convolutions_and_their_gradients_agree_with_the_reference() {
    let plain = ConvOptions::default();
    for (options, x, w) in [
        (ConvOptions { padding: 1.into(), groups: 3, ..plain }, [2, 3, 6, 21], [3, 1, 3, 3]),
        (ConvOptions { groups: 2, ..plain }, [1, 2, 5, 40], [4, 1, 3, 2]),
        (ConvOptions { padding: 1.into(), ..plain }, [2, 4, 9, 30], [10, 4, 3, 3]),
        (ConvOptions { padding: 2.into(), stride: [2, 2], ..plain }, [2, 3, 17, 19], [9, 3, 5, 5]),
        (plain, [2, 20, 8, 9], [33, 20, 1, 1]),
        (ConvOptions { dilation: [2, 3], ..plain }, [1, 2, 12, 33], [2, 2, 2, 3]),
    ] {
        for result in 0..3 {
            let what = format!("{options:?} of {x:?} by {w:?}: result {result}");
            agree_within(&what, Some((1e-4, 1e-4)), |device| {
                let x = tensor(&x, 1, DType::F32, device)?.requires_grad();
                let w = tensor(&w, 2, DType::F32, device)?.requires_grad();
                let y = conv2d(&x, &w, None, options)?;
                if result == 0 {
                    return Ok(y.detach());
                }
                y.backward_with(&tensor(y.dims(), 3, DType::F32, device)?)?;
                Ok(if result == 1 { x.grad() } else { w.grad() }.unwrap())
            });
        }
    }
}

/// Windows of 3 x 3 whose products a backend may save: whole tiles and halves, padding, a bias and what
/// follows it, the gradients.
#[test]
fn convolutions_of_three_by_three_and_their_gradients_agree_with_the_reference() {
    for (x, k, padding) in [
        ([11, 32, 3, 23], 32, 1),
        ([11, 33, 5, 26], 34, 0),
        ([20, 32, 8, 8], 33, 1),
        ([5, 33, 18, 18], 32, 0),
    ] {
        for result in 0..3 {
            agree_within(
                &format!("{k} of {x:?}, padding {padding}: result {result}"),
                Some((2e-5, 2e-4)),
                |device| {
                    let w = tensor(&[k, x[1], 3, 3], 2, DType::F32, device)?.requires_grad();
                    let b = tensor(&[k], 4, DType::F32, device)?;
                    let x = tensor(&x, 1, DType::F32, device)?.requires_grad();
                    let options = ConvOptions { padding: padding.into(), ..Default::default() };
                    let y = conv2d(&x, &w, Some(&b), options)?;
                    if result == 0 {
                        return Ok(y.relu().mul_scalar(2.0).detach());
                    }
                    y.backward_with(&tensor(y.dims(), 3, DType::F32, device)?)?;
                    Ok(if result == 1 { x.grad() } else { w.grad() }.unwrap())
                },
            );
        }
    }
}

/// A convolution of [n, c, h, h] with [k, c, 3, 3] and a padding of 1.
#[derive(Clone, Copy)]
struct Windows {
    n: usize,
    c: usize,
    k: usize,
    h: usize,
}

impl Windows {
    /// The terms of one result, of the gradient by the input at one element, or of that by the weight; each
    /// is a place in two of the image, the weight and the gradient of the results.
    fn terms(self, which: usize, at: usize) -> Vec<[usize; 2]> {
        let Windows { n, c, k, h } = self;
        let image = |b: usize, channel: usize, y: usize, x: usize, [i, j]: [usize; 2]| {
            let (y, x) = ((y + i).checked_sub(1)?, (x + j).checked_sub(1)?);
            (y < h && x < h).then_some(((b * c + channel) * h + y) * h + x)
        };
        let taps = || (0..9).map(|tap| [tap / 3, tap % 3]);
        let mut terms = Vec::new();
        match which {
            0 => {
                let [b, row, y, x] = [at / (k * h * h), at / (h * h) % k, at / h % h, at % h];
                for channel in 0..c {
                    for (tap, ij) in taps().enumerate() {
                        let from = image(b, channel, y, x, ij);
                        terms.extend(from.map(|from| [from, (row * c + channel) * 9 + tap]));
                    }
                }
            }
            1 => {
                let [b, channel, y, x] = [at / (c * h * h), at / (h * h) % c, at / h % h, at % h];
                for row in 0..k {
                    for (tap, [i, j]) in taps().enumerate() {
                        // The result whose window has this element at that tap.
                        let (y, x) = ((y + 1).checked_sub(i), (x + 1).checked_sub(j));
                        if let (Some(y), Some(x)) = (y.filter(|y| *y < h), x.filter(|x| *x < h)) {
                            terms.push([((b * k + row) * h + y) * h + x, (row * c + channel) * 9 + tap]);
                        }
                    }
                }
            }
            _ => {
                let [row, channel, tap] = [at / (c * 9), at / 9 % c, at % 9];
                for place in 0..n * h * h {
                    let [b, y, x] = [place / (h * h), place / h % h, place % h];
                    let from = image(b, channel, y, x, [tap / 3, tap % 3]);
                    terms.extend(from.map(|from| [from, ((b * k + row) * h + y) * h + x]));
                }
            }
        }
        terms
    }

    /// Results and gradients are right to a thousandth of the sum of the magnitudes of their own terms, and 0
    /// where all of these are.
    fn check(self, what: &str, x: &[f32], w: &[f32], ahead: &[f32]) {
        let Windows { n, c, k, h } = self;
        let device = device();
        let shaped =
            |of: &[f32], shape: [usize; 4]| Tensor::new(of, &device).unwrap().reshape(shape).unwrap();
        let (image, weight) =
            (shaped(x, [n, c, h, h]).requires_grad(), shaped(w, [k, c, 3, 3]).requires_grad());
        let y =
            conv2d(&image, &weight, None, ConvOptions { padding: 1.into(), ..Default::default() }).unwrap();
        y.backward_with(&shaped(ahead, [n, k, h, h])).unwrap();
        let found = [y.detach(), image.grad().unwrap(), weight.grad().unwrap()];
        for (which, (found, of)) in found.iter().zip([[x, w], [ahead, w], [x, ahead]]).enumerate() {
            let found = found.to_vec::<f32>().unwrap();
            for at in (0..found.len()).step_by(if which < 2 { 23 } else { 61 }) {
                let products = self.terms(which, at).into_iter();
                let products = products.map(|[i, j]| f64::from(of[0][i]) * f64::from(of[1][j]));
                let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                let error = (f64::from(found[at]) - sum).abs();
                assert!(
                    error <= 1e-3 * size,
                    "{what}: result {which}: {at} is {}, not {sum}, of terms of {size}",
                    found[at]
                );
            }
        }
    }
}

/// A small or zero result next to large ones must keep its own accuracy, as an algorithm with fewer
/// multiplications would not: it mixes elements with taps that they are not multiplied by.
#[test]
fn convolutions_are_right_relative_to_their_own_terms() {
    let size = |n: usize| taper_testing::numbers(n, n as u64).into_iter().map(|x| x as f32 / 2.0);
    for (n, h) in [(4, 16), (16, 8), (2, 24)] {
        let of = Windows { n, c: 32, k: 32, h };
        // By the row and the column of a place, its channel, and a number between −1 and 1.
        type Made = fn(usize, usize, usize, f32) -> f32;
        let images: [(&str, Made); 12] = [
            ("numbers", |_, _, _, x| x),
            ("half zeros", |_, _, _, x| x.max(0.0)),
            ("1 to 1.6 beside 1e-6, by columns", |_, j, _, x| if j < 5 { 1.3 + 0.3 * x } else { 1e-6 * x }),
            ("1 to 1.6 beside 1e-6, by rows", |i, _, _, x| if i % 3 == 1 { 1.3 + 0.3 * x } else { 1e-6 * x }),
            ("1 to 1.6 beside 1e-6, by turns", |i, j, _, x| match (i + j) % 2 {
                0 => 1.3 + 0.3 * x,
                _ => 1e-6 * x,
            }),
            ("1 to 1.6 beside 1e-3, by fours", |i, j, _, x| match (i / 4 + j / 4) % 2 {
                0 => 1.3 + 0.3 * x,
                _ => 1e-3 * x,
            }),
            ("zeros beside ones", |i, j, _, _| if i > 4 && j < 6 { 1.0 } else { 0.0 }),
            ("one large element", |i, j, c, x| if (i, j, c) == (3, 4, 5) { 1e6 } else { x }),
            ("large borders", |i, j, _, x| if i == 0 || j == 0 { 1e5 * x } else { x }),
            ("channels of all sizes", |_, _, c, x| x * 10f32.powi(-(c as i32 % 9))),
            ("few elements", |i, j, c, x| if (i * 7 + j * 5 + c * 3) % 19 == 0 { x } else { 0.0 }),
            ("small numbers", |_, _, _, x| 1e-25 * x),
        ];
        let weights: [(&str, Made); 10] = [
            // By the tap twice, its window, and a number.
            ("numbers", |_, _, _, x| x),
            ("one tap by rows", |tap, _, window, x| if tap == window / 32 % 9 { x } else { 0.0 }),
            ("the first tap", |tap, _, _, x| if tap == 0 { x } else { 0.0 }),
            ("the last tap and hundredths", |tap, _, _, x| if tap == 8 { 1.0 } else { 1e-2 * x }),
            ("the middle tap and thousandths", |tap, _, _, _| if tap == 4 { 1.0 } else { 1e-3 }),
            ("a corner and hundredths", |tap, _, _, x| if tap == 2 { 1.0 + x / 4.0 } else { 0.02 }),
            ("half the taps", |tap, _, window, x| if (tap * 5 + window * 3) % 7 < 3 { 0.0 } else { x }),
            ("rows without taps", |_, _, window, x| if window / 32 % 4 == 1 { 0.0 } else { x }),
            ("one tap in some channels", |tap, _, window, x| match window % 3 {
                0 if tap != 6 => 0.0,
                _ => x,
            }),
            ("channels of all sizes", |_, _, window, x| x * 10f32.powi(window as i32 % 32 % 9 - 8)),
        ];
        let made = |by: Made| -> Vec<f32> {
            let places = size(n * 32 * h * h).enumerate();
            places.map(|(i, x)| by(i / h % h, i % h, i / (h * h) % 32, x)).collect()
        };
        let ahead = [made(images[1].1), made(images[6].1), made(images[2].1)];
        for (nth, (image, by)) in images.into_iter().enumerate() {
            let image_values = made(by);
            for (at, (weight, by)) in weights.into_iter().enumerate() {
                let case = format!("{weight} of {image}, {h}");
                // All pairs in one size, and every second one in the others.
                if !drawn(&case) || h != 16 && (nth + at) % 2 == 1 {
                    continue;
                }
                let values: Vec<f32> =
                    size(32 * 32 * 9).enumerate().map(|(i, x)| by(i % 9, i % 9, i / 9, x)).collect();
                of.check(&case, &image_values, &values, &ahead[nth % 3]);
            }
        }
    }
}

/// A number that is not finite, or much larger than the rest, reaches the results whose windows have it and
/// no other.
#[test]
fn infinities_stay_within_their_windows() {
    infinities_stay_within([4, 20]);
    // Sizes of which two rows, or four, are transformed together.
    infinities_stay_within([6, 18]);
    infinities_stay_within([20, 10]);
}

fn infinities_stay_within([images, size]: [usize; 2]) {
    let device = device();
    let (c, k) = (48, 48);
    let out = size - 2;
    let at = |i: usize| ((i * 7919) % 31) as f32 / 31.0 - 0.5;
    let numbers = |n: usize, first: usize| -> Vec<f32> {
        (0..n).map(|i| at(i * 13 + first) + if at(i * 13 + first) < 0.0 { -0.1 } else { 0.1 }).collect()
    };
    let shaped = |of: &[f32], shape: [usize; 4]| Tensor::new(of, &device).unwrap().reshape(shape).unwrap();
    let weight = numbers(k * c * 9, 0);
    let (plain, ahead) = (numbers(images * c * size * size, 5), numbers(images * k * out * out, 7));
    // The result, and the gradient of the weight.
    let results = |x: &[f32], ahead: &[f32]| {
        let w = shaped(&weight, [k, c, 3, 3]).requires_grad();
        let y = conv2d(&shaped(x, [images, c, size, size]), &w, None, ConvOptions::default()).unwrap();
        y.backward_with(&shaped(ahead, [images, k, out, out])).unwrap();
        [y.detach(), w.grad().unwrap()].map(|t| t.to_vec::<f32>().unwrap())
    };
    let check = |what: &str, found: &[f32], expected: &[f32], value: f32, sees: &dyn Fn(usize) -> bool| {
        let scale = expected.iter().fold(1f32, |most, x| most.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            match sees(i) {
                true => assert_eq!(found.is_finite(), value.is_finite(), "{what}, {value}: {i} is {found}"),
                false => {
                    let near = (found - expected).abs() <= 1e-5 * scale;
                    assert!(near, "{what}, {value}: {i} is {found}, not {expected}");
                }
            }
        }
    };
    let expected = results(&plain, &ahead);
    for (value, channel, row, column) in [
        (f32::INFINITY, 3, 7, 9),
        (f32::NAN, 0, 0, 0),
        (f32::NEG_INFINITY, 31, size - 1, size - 1),
        (3e37, 5, size * 2 / 3, 4),
        (-1e9, 1, 5, 5),
    ] {
        let mut x = plain.clone();
        x[(c + channel) * size * size + row * size + column] = value;
        let [y, gradient] = results(&x, &ahead);
        check("results", &y, &expected[0], value, &|i| {
            let (image, y, x) = (i / (k * out * out), i / out % out, i % out);
            image == 1 && (y..y + 3).contains(&row) && (x..x + 3).contains(&column)
        });
        check("gradients of an image", &gradient, &expected[1], value, &|i| {
            let (y, x) = (row as isize - (i / 3 % 3) as isize, column as isize - (i % 3) as isize);
            let within = |at: isize| (0..out as isize).contains(&at);
            i / 9 % c == channel && within(y) && within(x)
        });
        let mut ahead = ahead.clone();
        ahead[(k + channel) * out * out + row.min(out - 1) * out + column.min(out - 1)] = value;
        let [_, gradient] = results(&plain, &ahead);
        check("gradients of a gradient", &gradient, &expected[1], value, &|i| i / (9 * c) == channel);
    }
}

/// Sizes at which a backend reads windows in loops of their own, and shares padding and copies among threads.
#[test]
fn larger_pools_and_their_gradients_agree_with_the_reference() {
    let overlapping = PoolOptions { stride: Some([2, 2]), padding: [1, 1], ..Default::default() };
    let wide = PoolOptions { stride: Some([1, 3]), padding: [2, 0], ceil_mode: true, ..Default::default() };
    for (options, window) in
        [(PoolOptions::default(), [2, 2]), (overlapping, [3, 3]), (wide, [5, 4]), (wide, [4, 2])]
    {
        for (mean, gradient) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{options:?} by {window:?}, mean {mean}, gradient {gradient}");
            agree_within(&what, Some((1e-5, 1e-5)), |device| {
                let x = tensor(&[3, 5, 47, 41], 1, DType::F32, device)?.requires_grad();
                let pool = if mean { avg_pool2d_with } else { max_pool2d_with };
                let y = pool(&x, window, options)?;
                if !gradient {
                    return Ok(y.detach());
                }
                y.backward_with(&tensor(y.dims(), 3, DType::F32, device)?)?;
                Ok(x.grad().unwrap())
            });
        }
    }
}

/// The greatest element of each window of solids `[n, sizes…]` and its place, by plain loops.
fn greatest(
    x: &[f32],
    sizes: [usize; 3],
    window: [usize; 3],
    options: &PoolOptions<3>,
    out: [usize; 3],
) -> Vec<(f32, i64)> {
    let numel: usize = sizes.iter().product();
    let stride = options.stride.unwrap_or(window);
    let mut found = Vec::new();
    for solid in x.chunks(numel) {
        for i in 0..out.iter().product::<usize>() {
            let at = [i / (out[1] * out[2]), i / out[2] % out[1], i % out[2]];
            let mut best: Option<(f32, i64)> = None;
            for tap in 0..window.iter().product::<usize>() {
                let own = [tap / (window[1] * window[2]), tap / window[2] % window[1], tap % window[2]];
                let place = (0..3).try_fold(0, |flat, axis| {
                    let along = at[axis] * stride[axis] + own[axis] * options.dilation[axis];
                    let along = along.checked_sub(options.padding[axis])?;
                    (along < sizes[axis]).then_some(flat * sizes[axis] + along)
                });
                let Some(place) = place else { continue };
                let value = solid[place];
                if best.is_none_or(|(least, _)| value > least || value.is_nan() && !least.is_nan()) {
                    best = Some((value, place as i64));
                }
            }
            found.push(best.expect("every window has an element"));
        }
    }
    found
}

#[test]
fn maxima_and_their_places_are_those_of_plain_loops() {
    let device = device();
    // Many elements are equal, some are NaN, and some are the least number of the dtype.
    let number = |i: usize| match (i * 7919 + i / 13) % 29 {
        0 => f32::NAN,
        1..6 => f32::NEG_INFINITY,
        rest => (rest % 7) as f32,
    };
    let solids = [
        ([2, 3, 1], [4, 5, 50], [2, 2, 3], [1, 2, 2], [1, 1, 1], [1, 1, 1]),
        ([1, 1, 2], [3, 9, 37], [1, 3, 2], [1, 1, 3], [1, 2, 1], [0, 1, 1]),
        ([1, 2, 1], [1, 33, 70], [1, 2, 2], [1, 2, 2], [1, 1, 1], [0, 0, 0]),
        ([3, 1, 1], [2, 4, 19], [2, 1, 5], [2, 3, 4], [1, 1, 3], [1, 0, 2]),
        ([1, 1, 1], [1, 1, 9], [1, 1, 2], [1, 1, 1000], [1, 1, 5], [0, 0, 3]),
        ([1, 2, 1], [2, 20, 61], [1, 7, 30], [1, 6, 27], [1, 1, 1], [0, 3, 15]),
    ];
    for (lead, sizes, window, stride, dilation, padding) in solids {
        for ceil_mode in [false, true] {
            let options =
                PoolOptions { stride: Some(stride), dilation, padding, ceil_mode, ..Default::default() };
            let n = lead.iter().product::<usize>();
            let numbers: Vec<f32> = (0..n * sizes.iter().product::<usize>()).map(number).collect();
            let x = Tensor::new(&numbers[..], &device).unwrap();
            let x = x.reshape([n, 1, sizes[0], sizes[1], sizes[2]]).unwrap();
            let (y, indices) = max_pool_with_indices(&x, window, options).unwrap();
            let out = [y.dims()[2], y.dims()[3], y.dims()[4]];
            let expected = greatest(&numbers, sizes, window, &options, out);
            let what = format!("{sizes:?} by {window:?}, {options:?}");
            let places: Vec<i64> = expected.iter().map(|&(_, place)| place).collect();
            assert_eq!(indices.to_vec::<i64>().unwrap(), places, "{what}");
            let same = |(a, b): (&f32, &(f32, i64))| *a == b.0 || a.is_nan() && b.0.is_nan();
            assert!(y.to_vec::<f32>().unwrap().iter().zip(&expected).all(same), "{what}");
        }
    }
}

#[test]
fn where_all_is_the_least_the_first_element_inside_is_the_greatest() {
    let device = device();
    let x = Tensor::full([1, 1, 3, 3], f64::NEG_INFINITY, (DType::F32, &device)).unwrap();
    for window in [[2, 2], [5, 4]] {
        let padding = window.map(|size| size / 2);
        let options = PoolOptions { stride: Some([2, 2]), padding, ..Default::default() };
        let (y, indices) = max_pool_with_indices(&x, window, options).unwrap();
        assert!(y.to_vec::<f32>().unwrap().iter().all(|v| *v == f32::NEG_INFINITY));
        let first = |at: usize, axis: usize| (at * 2).saturating_sub(padding[axis]);
        let [_, _, rows, columns] = *y.dims() else { panic!("four axes") };
        let expected =
            (0..rows).flat_map(|r| (0..columns).map(move |c| (first(r, 0) * 3 + first(c, 1)) as i64));
        assert_eq!(indices.to_vec::<i64>().unwrap(), expected.collect::<Vec<i64>>());
    }
}

/// Padding image by image, and copies that interleave separate lines or separate interleaved ones.
#[test]
fn large_paddings_and_interleaved_copies_agree_with_the_reference() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
        if !needs(&device(), dtype) {
            continue;
        }
        for across in [false, true] {
            agree_within(&format!("padding of {dtype}, across {across}"), None, |device| {
                let x = tensor(&[3, 5, 60, 61], 1, dtype, device)?;
                let x = if across { x.permute([1, 0, 3, 2])? } else { x };
                x.pad(&[(0, 0), (0, 0), (1, 2), (0, 3)], 3)
            });
        }
        for columns in [2, 3, 4] {
            let what = format!("{columns} columns of {dtype}");
            agree_within(&format!("{what}, together"), None, |device| {
                let x = tensor(&[5, 2, columns, 33, 34], 1, dtype, device)?;
                x.permute([0, 3, 1, 4, 2])?.reshape([5, 66, 34 * columns])
            });
            agree_within(&format!("{what}, apart"), None, |device| {
                let x = tensor(&[5, 33, 2, 34, columns], 1, dtype, device)?;
                x.permute([0, 2, 4, 1, 3])?.reshape([5, 2 * columns, 33 * 34])
            });
            agree_within(&format!("{what}, repeated"), None, |device| {
                let x = tensor(&[5, 33, 1, 34, 1], 1, dtype, device)?;
                x.expand([5, 33, 2, 34, columns])?.reshape([5, 66, 34 * columns])
            });
        }
    }
}
