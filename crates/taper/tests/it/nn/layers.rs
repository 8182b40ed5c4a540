//! Layers and functions that came after those of `networks.rs`, against PyTorch's numbers
//! (`scripts/torch_fixtures.py layers`), with differences in f64 and refusals.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use serde_json::Value;
use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::nn::functional::{
    BagMode, BagOptions, FoldOptions, InterpolateMode, InterpolateOptions, PoolOptions, Resize, UnpoolOptions,
};
use taper::nn::{self, Module, functional as f};
use taper::{DType, Generator, Result, Tensor};

use crate::common::{assert_close, device, has, has_plain_forms, needs, of};
use crate::networks::{Case, Network, check_in, made, of_function, of_layer, of_module, refused};

fn check(group: &str, build: impl Fn(&Case, &Generator) -> Network) {
    check_in("layers", group, build);
}

fn mode(name: &str) -> InterpolateMode {
    let all = [
        InterpolateMode::Nearest,
        InterpolateMode::NearestExact,
        InterpolateMode::Linear,
        InterpolateMode::Bilinear,
        InterpolateMode::Trilinear,
        InterpolateMode::Bicubic,
        InterpolateMode::Area,
    ];
    all.into_iter().find(|mode| mode.name() == name).unwrap()
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Whole numbers of a case, as a tensor.
fn whole(numbers: &Value, shape: &[usize]) -> Tensor {
    Tensor::from_vec(list::<Vec<i32>>(numbers), shape, &device()).unwrap()
}

#[test]
fn images_are_resized_as_pytorch_does() {
    check("resize", |case, _| {
        let options = InterpolateOptions {
            mode: mode(case.args["mode"].as_str().unwrap()),
            align_corners: case.flag("align_corners", false),
            recompute_scale_factor: case.flag("recompute", false),
            ..Default::default()
        };
        let to = match case.args.get("size") {
            Some(size) => Resize::Size(list(size)),
            None => Resize::Scale(list(&case.args["scale"])),
        };
        of_layer(nn::Upsample::with_options(to, options))
    });
}

#[test]
fn resizing_has_its_derivatives_and_refuses_what_does_not_fit() {
    let device = device();
    let x = Tensor::ones([1, 2, 3, 4], &device).unwrap();
    let of = |mode| InterpolateOptions { mode, ..Default::default() };
    refused(
        f::interpolate_with(&x, 2.0, of(InterpolateMode::Linear)),
        &["interpolate", "\"linear\"", "4 axes"],
    );
    refused(f::interpolate_with(&x, [2, 2, 2], of(InterpolateMode::Bilinear)), &["3 sizes", "[1, 2, 3, 4]"]);
    refused(f::interpolate_with(&x, 0.1, of(InterpolateMode::Bilinear)), &["scale factor of 0.1"]);
    refused(f::interpolate_with(&x, f64::NAN, of(InterpolateMode::Nearest)), &["scale factor of NaN"]);
    refused(f::interpolate_with(&x, 0, of(InterpolateMode::Bicubic)), &["to 0 along axis 2"]);
    let corners = InterpolateOptions { align_corners: true, ..of(InterpolateMode::Nearest) };
    refused(f::interpolate_with(&x, 2.0, corners), &["\"nearest\"", "align_corners"]);
    let again = InterpolateOptions { recompute_scale_factor: true, ..of(InterpolateMode::Bilinear) };
    refused(f::interpolate_with(&x, 5, again), &["recompute_scale_factor"]);
    let whole = x.to_dtype(DType::I32).unwrap();
    refused(f::interpolate_with(&whole, 2.0, of(InterpolateMode::Bilinear)), &["i32", "cast"]);
    assert_eq!(f::interpolate_with(&whole, 2.0, of(InterpolateMode::Nearest)).unwrap().dtype(), DType::I32);
    // An axis too long for a matrix of weights.
    for mode in [InterpolateMode::Linear, InterpolateMode::Nearest] {
        let line = Tensor::arange(0.0, 300.0, 1.0, &device).unwrap().requires_grad();
        let long = f::interpolate_with(&line.reshape((1, 1, 300)).unwrap(), 2.0, of(mode)).unwrap();
        let expected: Vec<f64> = (0..600)
            .map(|i| match mode {
                InterpolateMode::Linear => (f64::from(i) / 2.0 - 0.25).clamp(0.0, 299.0),
                _ => f64::from(i / 2),
            })
            .collect();
        assert_close(&long.to_f64_vec().unwrap(), &expected, (1e-6, 1e-5), "a long axis");
        long.sum().backward().unwrap();
        assert_close(&line.grad().unwrap().to_f64_vec().unwrap(), &[2.0; 300], (1e-6, 0.0), "its gradient");
    }
    let layer = nn::Upsample::new(2);
    assert_eq!(format!("{layer:?}"), "Upsample(scale_factor=2.0, mode=\"nearest\")");
    assert_eq!(layer.forward(&x).unwrap().dims(), [1, 2, 6, 8]);
    if needs(&device, DType::F64) {
        let (line, image, volume) = (made(&[1, 2, 4], 1), made(&[1, 1, 3, 4], 2), made(&[1, 1, 2, 3, 2], 3));
        for (mode, x) in [
            (InterpolateMode::NearestExact, &image),
            (InterpolateMode::Linear, &line),
            (InterpolateMode::Bilinear, &image),
            (InterpolateMode::Bicubic, &image),
            (InterpolateMode::Trilinear, &volume),
            (InterpolateMode::Area, &image),
        ] {
            let run = |t: &[Tensor]| f::interpolate_with(&t[0].powi(2), 1.6, of(mode));
            gradcheck(run, std::slice::from_ref(x)).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
            gradgradcheck(run, std::slice::from_ref(x)).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        }
    }
}

fn pair(value: &Value) -> [usize; 2] {
    list(value)
}

#[test]
fn blocks_and_pools_are_pytorchs() {
    check("blocks", |case, _| {
        let fold = || FoldOptions {
            dilation: pair(&case.args["dilation"]),
            padding: pair(&case.args["padding"]),
            stride: pair(&case.args["stride"]),
        };
        match case.kind.as_str() {
            "unfold" => of_layer(nn::Unfold::new(pair(&case.args["kernel"]), fold())),
            "fold" => of_layer(nn::Fold::new(pair(&case.args["size"]), pair(&case.args["kernel"]), fold())),
            "lp_pool" => {
                let (p, kernel) = (case.float("p"), case.sizes("kernel"));
                let stride = case.sizes("stride");
                let ceil_mode = case.flag("ceil", false);
                match kernel.len() {
                    1 => of_layer(nn::LpPool1d::new(p, kernel[0])),
                    2 => {
                        let stride = Some([stride[0], stride[1]]);
                        let options = PoolOptions { stride, ceil_mode, ..Default::default() };
                        of_layer(nn::LpPool2d::with_options(p, [kernel[0], kernel[1]], options))
                    }
                    _ => of_layer(nn::LpPool3d::new(p, [kernel[0], kernel[1], kernel[2]])),
                }
            }
            "max_unpool" => {
                let indices = whole(&case.args["indices"], &case.sizes("shape"));
                let options = UnpoolOptions {
                    stride: Some([case.size("stride"); 2]),
                    padding: [case.size("padding"); 2],
                    output_size: case.args.get("size").map(pair),
                };
                let layer = nn::MaxUnpool2d::with_options(case.size("kernel"), options);
                of_module(layer, move |layer, x| layer.forward(&x[0], &indices))
            }
            "adaptive_indices" => {
                let size = pair(&case.args["size"]);
                of_function(move |x| {
                    let (maxima, indices) = f::adaptive_max_pool_with_indices(&x[0], size)?;
                    Tensor::concat(&[maxima.flatten_all(), indices.to_dtype(DType::F32)?.flatten_all()], 0)
                })
            }
            "local_response_norm" => {
                let (alpha, beta, k) = (case.float("alpha"), case.float("beta"), case.float("k"));
                of_layer(nn::LocalResponseNorm { size: case.size("size"), alpha, beta, k })
            }
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn blocks_have_their_derivatives_and_refuse_what_does_not_fit() {
    let device = device();
    let x = Tensor::ones([1, 2, 3, 4], &device).unwrap();
    refused(f::unfold(&x, 5, FoldOptions::default()), &["unfold", "[5, 5]", "reach over 5"]);
    refused(f::unfold(&x, 0, FoldOptions::default()), &["unfold", "above 0"]);
    refused(f::unfold(&x.flatten_all(), 2, FoldOptions::default()), &["unfold", "[N, C, H, W]"]);
    let columns = Tensor::ones([1, 8, 5], &device).unwrap();
    refused(f::fold(&columns, [3, 4], 2, FoldOptions::default()), &["fold", "5 columns", "give 6"]);
    refused(f::fold(&columns, [3, 4], 3, FoldOptions::default()), &["fold", "multiple of 9"]);
    refused(f::lp_pool2d(&x, 0.0, [2, 2], PoolOptions::default()), &["lp_pool2d", "power 0"]);
    let padded = PoolOptions { padding: [1, 1], ..Default::default() };
    refused(f::lp_pool2d(&x, 2.0, [2, 2], padded), &["lp_pool2d", "padding"]);
    // A window of zeros gives 0 with a gradient of 0.
    let zeros = Tensor::zeros([1, 1, 2, 2], &device).unwrap().requires_grad();
    f::lp_pool2d(&zeros, 2.0, [2, 2], PoolOptions::default()).unwrap().sum().backward().unwrap();
    assert_eq!(zeros.grad().unwrap().to_vec::<f32>().unwrap(), [0.0; 4]);
    let (maxima, indices) = f::max_pool_with_indices(&x, [2, 2], PoolOptions::default()).unwrap();
    refused(
        f::max_unpool2d(&maxima, &indices.flatten_all(), [2, 2], UnpoolOptions::default()),
        &["max_unpool2d", "one index for each"],
    );
    refused(f::max_unpool2d(&maxima, &maxima, [2, 2], UnpoolOptions::default()), &["max_unpool2d", "whole"]);
    let far = UnpoolOptions { output_size: Some([2, 7]), ..Default::default() };
    refused(f::max_unpool2d(&maxima, &indices, [2, 2], far), &["max_unpool2d", "size 7", "usual is 4"]);
    let outside = indices.add_scalar(100);
    let found = f::max_unpool2d(&maxima, &outside, [2, 2], UnpoolOptions::default()).unwrap();
    assert!(found.to_vec::<f32>().is_err());
    refused(f::local_response_norm(&x, 0, 1.0, 1.0, 1.0), &["local_response_norm"]);
    if needs(&device, DType::F64) {
        let image = made(&[1, 1, 4, 5], 1);
        let options = FoldOptions { dilation: [1, 2], padding: [1, 0], stride: [2, 1] };
        let blocks = |t: &[Tensor]| f::unfold(&t[0].powi(2), [3, 2], options);
        gradcheck(blocks, std::slice::from_ref(&image)).unwrap();
        gradgradcheck(blocks, std::slice::from_ref(&image)).unwrap();
        let back =
            |t: &[Tensor]| f::fold(&f::unfold(&t[0].powi(2), [3, 2], options)?, [4, 5], [3, 2], options);
        gradgradcheck(back, std::slice::from_ref(&image)).unwrap();
        let pool =
            |t: &[Tensor]| f::lp_pool2d(&t[0].powi(2).add_scalar(0.5), 1.5, [2, 2], PoolOptions::default());
        gradcheck(pool, std::slice::from_ref(&image)).unwrap();
        gradgradcheck(pool, std::slice::from_ref(&image)).unwrap();
        let unpool = |t: &[Tensor]| {
            let (maxima, indices) = f::adaptive_max_pool_with_indices(&t[0].powi(2), [2, 3])?;
            f::max_unpool2d(
                &maxima,
                &indices,
                [2, 2],
                UnpoolOptions { output_size: Some([4, 5]), ..Default::default() },
            )
        };
        gradcheck(unpool, std::slice::from_ref(&image)).unwrap();
        gradgradcheck(unpool, std::slice::from_ref(&image)).unwrap();
        let channels = made(&[1, 4, 2], 2);
        let norm = |t: &[Tensor]| f::local_response_norm(&t[0], 3, 0.5, 0.75, 1.5);
        gradgradcheck(norm, std::slice::from_ref(&channels)).unwrap();
    }
}

#[test]
fn activations_and_products_are_pytorchs() {
    check("elementwise", |case, rng| {
        let number = |name: &str| case.args.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        match case.kind.as_str() {
            "tanhshrink" => of_layer(nn::Tanhshrink),
            "hardshrink" => of_layer(nn::Hardshrink { lambd: number("lambd") }),
            "softshrink" => of_layer(nn::Softshrink { lambd: number("lambd") }),
            "threshold" => of_layer(nn::Threshold { threshold: number("threshold"), value: number("value") }),
            "softmin" => of_layer(nn::Softmin::new(1)),
            "softmax2d" => of_layer(nn::Softmax2d),
            "rrelu" => {
                let rng = rng.clone();
                of_function(move |x| f::rrelu(&x[0], 1.0 / 8.0, 1.0 / 3.0, false, &rng))
            }
            "addmm" => of_function(|x| x[0].addmm(&x[1], &x[2], 0.5, 2)),
            "baddbmm" => of_function(|x| x[0].baddbmm(&x[1], &x[2], 0.5, 2)),
            "addbmm" => of_function(|x| x[0].addbmm(&x[1], &x[2], 0.5, 2)),
            "addmv" => of_function(|x| x[0].addmv(&x[1], &x[2], 0.5, 2)),
            "addr" => of_function(|x| x[0].addr(&x[1], &x[2], 0.5, 2)),
            "dot" => of_function(|x| x[0].dot(&x[1])),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn activations_and_products_at_their_edges() {
    let device = device();
    let x = Tensor::new([-1.0f32, -0.5, 0.0, 0.5, 1.0, f32::NAN], &device).unwrap();
    let all = |y: &Tensor| y.to_vec::<f32>().unwrap();
    assert_eq!(all(&x.hardshrink(0.5))[..5], [-1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(all(&x.softshrink(0.5))[..5], [-0.5, 0.0, 0.0, 0.0, 0.5]);
    assert_eq!(all(&x.threshold(0.0, 7.0))[..5], [7.0, 7.0, 7.0, 0.5, 1.0]);
    for y in [x.hardshrink(0.5), x.softshrink(0.5), x.threshold(0.0, 7.0), x.tanhshrink()] {
        assert!(all(&y)[5].is_nan());
    }
    let rng = Generator::seed(1, &device);
    let slopes = Tensor::full([1000], -1.0, &device).unwrap();
    let layer = nn::Rrelu::with_bounds(0.25, 0.5, &rng).unwrap();
    let y = all(&layer.forward(&slopes).unwrap());
    assert!(y.iter().all(|y| (-0.5..=-0.25).contains(y)) && y.iter().any(|y| *y < -0.4), "{:?}", &y[..5]);
    layer.eval();
    assert_eq!(all(&layer.forward(&slopes).unwrap()), [-0.375; 1000]);
    refused(nn::Rrelu::with_bounds(0.5, 0.25, &rng), &["rrelu", "0.5 to 0.25"]);
    refused(nn::Softmax2d.forward(&x), &["Softmax2d", "[C, H, W]"]);

    let matrix = |rows: usize, columns: usize| Tensor::ones([rows, columns], &device).unwrap();
    let nan = Tensor::full([2, 2], f64::NAN, &device).unwrap();
    assert_eq!(all(&nan.addmm(&matrix(2, 3), &matrix(3, 2), 0, 1).unwrap()), [3.0; 4]);
    refused(nan.addmm(&matrix(2, 3), &matrix(2, 2), 1, 1), &["inner sizes"]);
    refused(nan.addmv(&matrix(2, 3), &matrix(3, 2), 1, 1), &["addmv", "a vector"]);
    refused(matrix(3, 3).addmm(&matrix(2, 3), &matrix(3, 2), 1, 1), &["addmm", "[3, 3]", "[2, 2]"]);
    let whole = |t: Tensor| t.to_dtype(DType::I32).unwrap();
    refused(whole(nan.clone()).addmm(&matrix(2, 3), &matrix(3, 2), 1, 1), &["addmm", "one dtype"]);
    refused(
        whole(matrix(2, 2)).addmm(&whole(matrix(2, 3)), &whole(matrix(3, 2)), 0.5, 1),
        &["addmm", "0.5", "whole number"],
    );
    refused(matrix(1, 2).dot(&matrix(1, 2)), &["dot", "two vectors"]);
    if needs(&device, DType::F64) {
        let x = made(&[2, 3], 3);
        for function in [
            (|t: &[Tensor]| Ok(t[0].tanhshrink())) as fn(&[Tensor]) -> Result<Tensor>,
            |t| Ok(t[0].softshrink(0.25)),
            |t| Ok(t[0].hardshrink(0.25)),
            |t| t[0].softmin(1),
        ] {
            gradcheck(function, std::slice::from_ref(&x)).unwrap();
            gradgradcheck(function, std::slice::from_ref(&x)).unwrap();
        }
        let all = [made(&[3], 1), made(&[2, 4], 2), made(&[4, 3], 3)];
        gradgradcheck(|t| t[0].addmm(&t[1], &t[2], 0.5, 2.0), &all).unwrap();
        gradgradcheck(
            |t| t[0].addr(&t[1], &t[2], 0.5, 2.0),
            &[made(&[2, 3], 1), made(&[2], 2), made(&[3], 3)],
        )
        .unwrap();
    }
}

#[test]
fn labels_and_places() {
    let device = device();
    let labels = Tensor::new([[2i32, 0], [1, 1]], &device).unwrap();
    let rows = labels.one_hot(3).unwrap();
    assert_eq!((rows.dims(), rows.dtype()), (&[2, 2, 3][..], device.int_dtype()));
    assert_eq!(rows.to_f64_vec().unwrap(), [0., 0., 1., 1., 0., 0., 0., 1., 0., 0., 1., 0.]);
    assert!(rows.equal(&labels.one_hot(None).unwrap()).unwrap());
    assert!(labels.one_hot(2).unwrap().to_f64_vec().unwrap_err().to_string().contains("2"));
    assert!(labels.sub_scalar(1).one_hot(3).unwrap().to_f64_vec().is_err());
    refused(labels.to_dtype(DType::F32).unwrap().one_hot(3), &["one_hot", "integer"]);
    refused(labels.narrow(0, 0, 0).unwrap().one_hot(None), &["one_hot", "number"]);
    let lower = Tensor::tril_indices(3, 4, -1, &device).unwrap();
    assert_eq!(lower.dims(), [2, 3]);
    assert_eq!(lower.to_f64_vec().unwrap(), [1., 2., 2., 0., 0., 1.]);
    let upper = Tensor::triu_indices(2, 3, 1, &device).unwrap();
    assert_eq!(upper.to_f64_vec().unwrap(), [0., 0., 1., 1., 2., 2.]);
    assert_eq!(Tensor::triu_indices(2, 2, 5, &device).unwrap().dims(), [2, 0]);
}

#[test]
fn draws_by_given_probabilities() {
    let device = device();
    let rng = Generator::seed(3, &device);
    let p = Tensor::new([0.0f32, 0.25, 1.0], &device).unwrap().reshape((3, 1)).unwrap();
    let drawn = p.expand([3, 4000]).unwrap().bernoulli(&rng).unwrap();
    let shares = drawn.mean_axis(1, false).unwrap().to_f64_vec().unwrap();
    assert_eq!((shares[0], shares[2]), (0.0, 1.0));
    assert!((shares[1] - 0.25).abs() < 0.03, "{shares:?}");
    refused(p.to_dtype(DType::I32).unwrap().bernoulli(&rng), &["bernoulli", "floating"]);

    let weights = Tensor::new([[0.0f32, 1.0, 0.0, 3.0], [2.0, 2.0, 4.0, 0.0]], &device).unwrap();
    let drawn = weights.multinomial(8000, true, &rng).unwrap();
    assert_eq!((drawn.dims(), drawn.dtype()), (&[2, 8000][..], device.int_dtype()));
    let drawn = drawn.to_vec::<i32>().unwrap();
    for (row, expected) in [[0.0, 0.25, 0.0, 0.75], [0.25, 0.25, 0.5, 0.0]].iter().enumerate() {
        for (class, expected) in expected.iter().enumerate() {
            let count = drawn[row * 8000..][..8000].iter().filter(|&&k| k == class as i32).count();
            let share = count as f64 / 8000.0;
            assert!(
                (share - expected).abs() < 0.03 && (*expected > 0.0 || count == 0),
                "{row} {class}: {share}"
            );
        }
    }
    // Without replacement all that can come do come, once each; the first one by its share.
    let mut firsts = 0;
    for _ in 0..200 {
        let drawn =
            weights.select(0, 0).unwrap().multinomial(2, false, &rng).unwrap().to_vec::<i32>().unwrap();
        assert!(drawn == [1, 3] || drawn == [3, 1], "{drawn:?}");
        firsts += usize::from(drawn[0] == 3);
    }
    assert!((120..180).contains(&firsts), "{firsts}");
    let offset = rng.offset();
    refused(weights.multinomial(3, false, &rng), &["multinomial", "3 samples", "2 weights above 0"]);
    refused(weights.sub_scalar(1.0).multinomial(1, true, &rng), &["multinomial", "negative"]);
    refused(weights.mul_scalar(0.0).multinomial(1, true, &rng), &["multinomial", "all 0"]);
    refused(
        weights.mul_scalar(f64::INFINITY).multinomial(1, true, &rng),
        &["multinomial", "infinite or NaN"],
    );
    refused(weights.multinomial(0, true, &rng), &["multinomial", "0 samples"]);
    refused(weights.unsqueeze(0).unwrap().multinomial(1, true, &rng), &["multinomial", "[N, C]"]);
    assert_eq!(rng.offset(), offset);
}

#[test]
fn bags_of_rows_are_pytorchs() {
    check("bags", |case, rng| {
        let config =
            |norm_type: f64| nn::EmbeddingConfig { max_norm: Some(1.0), norm_type, ..Default::default() };
        match case.kind.as_str() {
            "embedding_bag" => {
                let mode = match case.args["mode"].as_str().unwrap() {
                    "sum" => BagMode::Sum,
                    "mean" => BagMode::Mean,
                    _ => BagMode::Max,
                };
                let indices = whole(&case.args["indices"], &case.sizes("shape"));
                let offsets = case.args.get("offsets").map(|o| whole(o, &[o.as_array().unwrap().len()]));
                let padding_idx = case.args.get("padding").map(|p| p.as_u64().unwrap() as usize);
                let include_last_offset = case.flag("last", false);
                of_function(move |x| {
                    let (offsets, per_sample_weights) = (offsets.as_ref(), x.get(1));
                    let options =
                        BagOptions { mode, offsets, include_last_offset, per_sample_weights, padding_idx };
                    f::embedding_bag(&indices, &x[0], options)
                })
            }
            "Embedding" => {
                let table = nn::Embedding::with_config(5, 3, config(case.float("norm_type")), rng).unwrap();
                let indices = whole(&case.args["indices"], &[3]);
                of_module(table, move |table, _| table.forward(&indices))
            }
            "EmbeddingBag" => {
                let config =
                    nn::EmbeddingBagConfig { mode: BagMode::Sum, rows: config(2.0), ..Default::default() };
                let table = nn::EmbeddingBag::new(5, 3, config, rng).unwrap();
                of_module(table, move |table, _| {
                    table.forward(&Tensor::new([[4i32, 1], [1, 0]], &device())?, None, None)
                })
            }
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn bags_have_their_derivatives_and_refuse_what_does_not_fit() {
    let device = device();
    let table = Tensor::ones([5, 3], &device).unwrap();
    let (flat, square) = (Tensor::new([0i32, 4, 2], &device), Tensor::new([[0i32, 4], [2, 1]], &device));
    let (flat, square) = (flat.unwrap(), square.unwrap());
    let offsets = |data: &[i32]| Tensor::from_slice(data, [data.len()], &device).unwrap();
    let run = |indices: &Tensor, options: BagOptions<'_>| f::embedding_bag(indices, &table, options);
    let none = BagOptions::default();
    refused(run(&flat, none), &["embedding_bag", "offsets"]);
    let given = offsets(&[0, 2]);
    refused(run(&square, BagOptions { offsets: Some(&given), ..none }), &["embedding_bag", "bags already"]);
    for wrong in [&[1, 2][..], &[0, 2, 1], &[0, 4], &[0, -1]] {
        let wrong = offsets(wrong);
        refused(run(&flat, BagOptions { offsets: Some(&wrong), ..none }), &["embedding_bag", "ascend"]);
    }
    let weights = Tensor::ones([3], &device).unwrap();
    let weighted = BagOptions { offsets: Some(&given), per_sample_weights: Some(&weights), ..none };
    refused(run(&flat, weighted), &["embedding_bag", "\"mean\""]);
    let sum = BagOptions { mode: BagMode::Sum, ..weighted };
    refused(f::embedding_bag(&square, &table, BagOptions { offsets: None, ..sum }), &["for each index"]);
    refused(run(&square, BagOptions { padding_idx: Some(5), ..none }), &["padding_idx 5"]);
    refused(run(&table, none), &["embedding"]);
    // With an index outside the table, no row is rescaled.
    let rng = Generator::seed(1, &device);
    let config = nn::EmbeddingConfig { max_norm: Some(0.5), ..Default::default() };
    let layer = nn::Embedding::with_config(5, 3, config, &rng).unwrap();
    let before = layer.weight.to_vec::<f32>().unwrap();
    assert!(layer.forward(&Tensor::new([1i32, 7], &device).unwrap()).is_err());
    assert_eq!(layer.weight.to_vec::<f32>().unwrap(), before);
    let config = nn::EmbeddingConfig { norm_type: 0.0, ..config };
    refused(nn::Embedding::with_config(5, 3, config, &rng), &["Embedding", "power"]);
    if needs(&device, DType::F64) {
        let (table, weights) = (made(&[5, 2], 1), made(&[3], 2));
        let run = |t: &[Tensor]| {
            let options = BagOptions {
                mode: BagMode::Sum,
                offsets: Some(&given),
                per_sample_weights: Some(&t[1]),
                ..Default::default()
            };
            f::embedding_bag(&flat, &t[0], options)
        };
        gradcheck(run, &[table.clone(), weights.clone()]).unwrap();
        gradgradcheck(run, &[table.clone(), weights]).unwrap();
        for mode in [BagMode::Mean, BagMode::Max] {
            let options =
                BagOptions { mode, offsets: Some(&given), padding_idx: Some(4), ..Default::default() };
            let run = |t: &[Tensor]| f::embedding_bag(&flat, &t[0].powi(2), options);
            gradgradcheck(run, std::slice::from_ref(&table)).unwrap();
        }
    }
}

/// Bags longer than one block of the sum, in lists and in tables, compared with sums in f64.
#[test]
fn long_bags_are_exact_and_a_bad_index_is_named() {
    let device = device();
    let (rows, features) = (7, 5);
    let table: Vec<f32> = (0..rows * features).map(|i| 1.0 + (i % 11) as f32 / 3.0).collect();
    let indices: Vec<i32> = (0..600).map(|i| i * i % 7).collect();
    let weight = Tensor::from_slice(&table, [rows, features], &device).unwrap();
    let expected = |bag: &[i32], mode: BagMode| -> Vec<f64> {
        let counted: Vec<usize> = bag.iter().filter(|&&i| i != 2).map(|&i| i as usize).collect();
        let mut found = Vec::new();
        for j in 0..features {
            let column = counted.iter().map(|&i| f64::from(table[i * features + j]));
            found.push(match mode {
                BagMode::Sum => column.sum(),
                BagMode::Mean => column.sum::<f64>() / counted.len().max(1) as f64,
                BagMode::Max => column.reduce(f64::max).unwrap_or(0.0),
            });
        }
        found
    };
    let offsets = Tensor::new([0i32, 3, 3, 64, 130], &device).unwrap();
    let ends = [0, 3, 3, 64, 130, 600];
    // Composed, a list's bag is summed from its first row to its last.
    let has_kernel = device.name() == "cpu" && !has_plain_forms();
    let within = (if has_kernel { 1e-6 } else { 1e-5 }, 0.0);
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        let options = BagOptions { mode, padding_idx: Some(2), ..Default::default() };
        let flat = Tensor::from_slice(&indices, [600], &device).unwrap();
        let list = BagOptions { offsets: Some(&offsets), ..options };
        let found = f::embedding_bag(&flat, &weight, list).unwrap().to_f64_vec().unwrap();
        let bags: Vec<f64> =
            ends.windows(2).flat_map(|end| expected(&indices[end[0]..end[1]], mode)).collect();
        assert_close(&found, &bags, within, mode.name());
        let found = f::embedding_bag(&flat.reshape([3, 200]).unwrap(), &weight, options).unwrap();
        let bags: Vec<f64> = indices.chunks(200).flat_map(|bag| expected(bag, mode)).collect();
        assert_close(&found.to_f64_vec().unwrap(), &bags, within, mode.name());
        for bad in [-1, 7] {
            let bad_index = Tensor::new([[0, 1], [bad, 2]], &device).unwrap();
            let found = f::embedding_bag(&bad_index, &weight, options).and_then(|t| t.to_f64_vec());
            let said = found.unwrap_err().to_string();
            assert!(said.contains(&format!("index {bad}")), "{said}");
        }
    }
    // Enough indices for several threads: the error names the first bad index.
    let many: Vec<i32> = (0..9000)
        .map(|i| {
            if i == 8000 {
                9
            } else if i == 8990 {
                -3
            } else {
                i % 7
            }
        })
        .collect();
    let wide = Tensor::ones([7, 32], &device).unwrap();
    for dtype in [DType::I32, DType::I64].into_iter().filter(|&dtype| has(&device, dtype)) {
        let many = Tensor::from_slice(&many, [900, 10], &device).unwrap().to_dtype(dtype).unwrap();
        let sum = BagOptions { mode: BagMode::Sum, ..Default::default() };
        let found = f::embedding_bag(&many, &wide, sum).and_then(|t| t.to_f64_vec());
        let said = found.unwrap_err().to_string();
        assert!(said.contains("index 9") || !has_kernel && said.contains("index -3"), "{said}");
        let found = f::embedding_bag(&many.narrow(0, 0, 800).unwrap(), &wide, sum).unwrap().to_f64_vec();
        assert!(found.unwrap().iter().all(|&sum| sum == 10.0));
    }
    let odd = Tensor::new([[1.0f32, f32::NAN], [2.0, 0.0]], &device).unwrap();
    let all = Tensor::new([[0i32, 1]], &device).unwrap();
    let options = BagOptions { mode: BagMode::Max, ..Default::default() };
    let found = f::embedding_bag(&all, &odd, options).unwrap().to_vec::<f32>().unwrap();
    assert!(found[0] == 2.0 && found[1].is_nan(), "{found:?}");
}

#[test]
fn hooks_see_what_passes_and_may_replace_it() {
    let device = device();
    let rng = Generator::seed(1, &device);
    let seen = Arc::new(Mutex::new(Vec::<(&str, Vec<f64>)>::new()));
    let note = |what: &'static str| {
        let seen = seen.clone();
        move |t: &Tensor| {
            seen.lock().unwrap().push((what, t.to_f64_vec()?));
            Ok(None)
        }
    };
    let double =
        nn::Linear::with_config(1, 1, nn::LinearConfig { bias: false, ..Default::default() }, &rng).unwrap();
    double.weight.assign(&Tensor::full([1, 1], 2.0, &device).unwrap()).unwrap();
    let (on_output, second) = (note("output"), note("second gradient of output"));
    let layer = nn::Hooked::new(double)
        .on_input(|x| Ok(Some(x.mul_scalar(10.0))))
        .on_input(note("input"))
        .on_output(move |_, y| on_output(y))
        .on_grad_output(note("gradient of output"))
        .on_grad_output(|g| Ok(Some(g.mul_scalar(3.0))))
        .on_grad_output(second)
        .on_grad_input(note("gradient of input"));
    assert!(layer.state_dict().keys().eq(["weight"]));
    assert_eq!(format!("{layer:?}"), format!("{:?}", *layer));
    let x = Tensor::new([[1.0f32]], &device).unwrap().requires_grad();
    let model = nn::Sequential::new().add(layer);
    model.forward(&x).unwrap().sum().backward().unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            ("input", vec![10.0]),
            ("output", vec![20.0]),
            ("gradient of output", vec![1.0]),
            ("second gradient of output", vec![3.0]),
            ("gradient of input", vec![6.0]),
        ]
    );
    assert_eq!(x.grad().unwrap().to_f64_vec().unwrap(), [60.0]);
    assert_eq!(model.parameters()[0].grad().unwrap().to_f64_vec().unwrap(), [30.0]);

    // A hook's error or misshapen gradient is one of the pass, which changes nothing.
    let x = Tensor::new([1.0f32, 2.0], &device).unwrap().requires_grad();
    let y = x.register_hook(|g| Ok(Some(g.sum()))).unwrap();
    refused(y.powi(2).sum().backward(), &["register_hook", "[]", "[2]"]);
    assert!(x.grad().is_none());
    refused(
        Tensor::ones([2], &device).unwrap().register_hook(|_| Ok(None)),
        &["register_hook", "not tracked"],
    );
    if needs(&device, DType::F64) {
        let run = |t: &[Tensor]| Ok(t[0].register_hook(|g| Ok(Some(g.mul_scalar(1.0))))?.powi(3));
        gradgradcheck(run, &[made(&[3], 1)]).unwrap();
    }
}

#[test]
fn parameters_are_visited_and_frozen() {
    let rng = Generator::seed(1, &device());
    let model = nn::Sequential::new()
        .add(nn::Linear::new(2, 3, &rng).unwrap())
        .add(nn::Tanhshrink)
        .add(nn::Linear::new(3, 1, &rng).unwrap());
    let mut names = Vec::new();
    model
        .apply(&mut |name, parameter| {
            names.push(name.to_string());
            parameter.assign(&parameter.zeros_like())
        })
        .unwrap();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight", "2.bias"]);
    assert!(model.parameters().iter().all(|p| p.to_f64_vec().unwrap().iter().all(|x| *x == 0.0)));
    model.freeze().unwrap();
    assert_eq!(model.parameters().len(), 4);
    assert!(!model.forward(&Tensor::ones([1, 2], rng.device()).unwrap()).unwrap().is_tracked());
    model.unfreeze().unwrap();
    assert!(model.parameters().iter().all(Tensor::is_tracked));
    let distance = nn::PairwiseDistance { keepdim: true, ..Default::default() };
    let (a, b) = (Tensor::zeros([2, 3], rng.device()).unwrap(), Tensor::ones([2, 3], rng.device()).unwrap());
    assert_eq!(distance.forward(&a, &b).unwrap().dims(), [2, 1]);
    let cosine = nn::CosineSimilarity::default().forward(&b, &b).unwrap();
    assert_close(&cosine.to_f64_vec().unwrap(), &[1.0; 2], (1e-6, 0.0), "cosine");
    let numbers = of(&[1.0, 2.0], &[2], DType::F32, rng.device()).unwrap();
    assert_eq!(numbers.threshold(1.5, 0.0).to_f64_vec().unwrap(), [0.0, 2.0]);
}

#[test]
fn sequences_of_several_lengths_are_pytorchs() {
    check("sequences", |case, rng| {
        let hidden = if case.args.contains_key("layers") && case.kind != "LSTM" { 2 } else { 4 };
        let proj_size = case.args.get("proj").map_or(0, |p| p.as_u64().unwrap() as usize);
        let layers = case.args.get("layers").map_or(1, |n| n.as_u64().unwrap() as usize);
        let hidden = if layers == 2 && proj_size == 0 { 2 } else { hidden };
        let config = nn::RnnConfig {
            num_layers: layers,
            batch_first: case.flag("batch_first", false),
            bidirectional: case.flag("bidirectional", false),
            proj_size,
            ..Default::default()
        };
        let lengths: Option<Vec<usize>> = case.args.get("lengths").map(list);
        let joined = |parts: &[&Tensor]| {
            Tensor::concat(&parts.iter().map(|part| part.flatten_all()).collect::<Vec<_>>(), 0)
        };
        match case.kind.as_str() {
            "RNN" => of_module(nn::Rnn::with_config(3, hidden, config, rng).unwrap(), move |module, x| {
                let (out, hidden) =
                    module.forward_with_lengths(&x[0], lengths.as_ref().unwrap(), x.get(1))?;
                joined(&[&out, &hidden])
            }),
            "GRU" => of_module(nn::Gru::with_config(3, hidden, config, rng).unwrap(), move |module, x| {
                let (out, hidden) =
                    module.forward_with_lengths(&x[0], lengths.as_ref().unwrap(), x.get(1))?;
                joined(&[&out, &hidden])
            }),
            "LSTM" => of_module(nn::Lstm::with_config(3, hidden, config, rng).unwrap(), move |module, x| {
                let state = x.get(1).zip(x.get(2));
                let (out, (hidden, cell)) = match &lengths {
                    Some(lengths) => module.forward_with_lengths(&x[0], lengths, state)?,
                    None => module.forward(&x[0], state)?,
                };
                joined(&[&out, &hidden, &cell])
            }),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn lengths_and_projections_that_do_not_fit_are_refused() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let gru = nn::Gru::new(3, 4, &rng).unwrap();
    let x = Tensor::ones([5, 2, 3], &device).unwrap();
    refused(gru.forward_with_lengths(&x, &[5], None), &["GRU", "1 lengths", "2 sequences"]);
    refused(gru.forward_with_lengths(&x, &[5, 0], None), &["GRU", "0 steps", "1 to 5"]);
    refused(gru.forward_with_lengths(&x, &[6, 5], None), &["GRU", "6 steps", "1 to 5"]);
    let projected = |proj_size| nn::RnnConfig { proj_size, ..Default::default() };
    refused(nn::Gru::with_config(3, 4, projected(2), &rng), &["GRU", "proj_size of 2", "LSTM"]);
    refused(nn::Lstm::with_config(3, 4, projected(4), &rng), &["LSTM", "proj_size of 4"]);
    // All of one length is the layer without lengths.
    let (whole, last) = gru.forward(&x, None).unwrap();
    let (found, end) = gru.forward_with_lengths(&x, &[5, 5], None).unwrap();
    assert!(whole.equal(&found).unwrap() && last.equal(&end).unwrap());
}

#[test]
fn attention_of_several_sizes_and_keys_of_its_own_is_pytorchs() {
    check("heads", |case, rng| {
        let size = |name: &str| case.args.get(name).map(|n| n.as_u64().unwrap() as usize);
        let config = nn::MultiheadAttentionConfig {
            kdim: size("kdim"),
            vdim: size("vdim"),
            bias: case.flag("bias", true),
            add_bias_kv: case.flag("add_bias_kv", false),
            add_zero_attn: case.flag("add_zero_attn", false),
            ..Default::default()
        };
        let average = case.flag("average", true);
        let module = nn::MultiheadAttention::with_config(4, 2, config, rng).unwrap();
        of_module(module, move |module, x| {
            let bits: Vec<bool> = (0..12).map(|k| k % 4 >= k / 4 + 2).collect();
            let later = Tensor::from_vec(bits, [3, 4], &device())?;
            let padding = Tensor::new([[false, false, false, true], [false, false, true, false]], &device())?;
            let masks = nn::AttentionMasks {
                attn_mask: Some(&later),
                key_padding_mask: Some(&padding),
                ..Default::default()
            };
            let (out, weights) = match average {
                true => module.forward_with_weights(&x[0], &x[1], &x[2], masks)?,
                false => module.forward_with_head_weights(&x[0], &x[1], &x[2], masks)?,
            };
            Tensor::concat(&[out.flatten_all(), weights.flatten_all()], 0)
        })
    });
    let rng = Generator::seed(5, &device());
    let config = nn::MultiheadAttentionConfig { kdim: Some(3), add_zero_attn: true, ..Default::default() };
    let module = nn::MultiheadAttention::with_config(4, 2, config, &rng).unwrap();
    let x = Tensor::ones([3, 2, 4], rng.device()).unwrap();
    refused(module.forward(&x, &x, &x, Default::default()), &["multi_head_attention", "[4, 3, 4]"]);
    let config = nn::MultiheadAttentionConfig { add_zero_attn: true, ..Default::default() };
    let module = nn::MultiheadAttention::with_config(4, 2, config, &rng).unwrap();
    refused(module.forward_cached(&x, &mut nn::KeyValueCache::new()), &["cache"]);
}

fn reduction(case: &Case) -> nn::Reduction {
    match case.args["reduction"].as_str().unwrap() {
        "sum" => nn::Reduction::Sum,
        "none" => nn::Reduction::None,
        _ => nn::Reduction::Mean,
    }
}

#[test]
fn likelihoods_and_margins_are_pytorchs() {
    check("more_losses", |case, rng| {
        let device = rng.device().clone();
        let reduction = reduction(case);
        let margin = case.args.get("margin").and_then(Value::as_f64).unwrap_or(1.0);
        let weight =
            case.args.get("weight").map(|w| of(&list::<Vec<f64>>(w), &[3], DType::F32, &device).unwrap());
        let counts =
            of(&[0., 1., 2., 5., 0.5, 3., 1., 0., 7., 1.5, 4., 2.], &[4, 3], DType::F32, &device).unwrap();
        let sign: Vec<f64> = (0..12).map(|k| if k % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let sign = of(&sign, &[4, 3], DType::F32, &device).unwrap();
        let labels = Tensor::new([2i32, 0, 1, 1], &device).unwrap();
        let several = Tensor::new([[2i32, -1, 0], [0, 1, 2], [-1, 0, 1], [1, 0, -1]], &device).unwrap();
        let picture = Tensor::new([[[0i32, 2], [1, -100]], [[2, 2], [0, 1]]], &device).unwrap();
        let full = case.flag("full", false);
        match case.kind.as_str() {
            "poisson" => {
                let log_input = case.flag("log", true);
                let loss = nn::PoissonNllLoss { log_input, full, reduction, ..Default::default() };
                of_function(move |x| loss.forward(&x[0], &counts))
            }
            "gaussian" => {
                let loss = nn::GaussianNllLoss { full, reduction, ..Default::default() };
                of_function(move |x| loss.forward(&x[0], &x[1], &x[2]))
            }
            "multi_margin" => {
                let p = case.size("p") as u32;
                let loss = nn::MultiMarginLoss { p, margin, weight, reduction };
                of_function(move |x| loss.forward(&x[0], &labels))
            }
            "multi_label_margin" => {
                of_function(move |x| nn::MultiLabelMarginLoss { reduction }.forward(&x[0], &several))
            }
            "multi_label_soft_margin" => {
                let loss = nn::MultiLabelSoftMarginLoss { weight, reduction };
                of_function(move |x| loss.forward(&x[0], &sign.add_scalar(1.0).mul_scalar(0.5)))
            }
            "soft_margin" => of_function(move |x| nn::SoftMarginLoss { reduction }.forward(&x[0], &sign)),
            "hinge_embedding" => {
                of_function(move |x| nn::HingeEmbeddingLoss { margin, reduction }.forward(&x[0], &sign))
            }
            "nll2d" => of_function(move |x| {
                let weight = of(&[0.5, 1.25, 2.0], &[3], DType::F32, &x[0].device())?;
                let loss = nn::NllLoss { reduction, weight: Some(weight), ..Default::default() };
                loss.forward(&x[0], &picture)
            }),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn ctc_is_pytorchs() {
    check("ctc", |case, _| {
        let labels = whole(&case.args["labels"], &case.sizes("shape"));
        let loss = nn::CtcLoss {
            blank: case.size("blank"),
            reduction: reduction(case),
            zero_infinity: case.flag("zero", false),
        };
        let (inputs, targets) = (case.sizes("inputs"), case.sizes("targets"));
        of_function(move |x| loss.forward(&x[0].log_softmax(-1)?, &labels, &inputs, &targets))
    });
}

#[test]
fn likelihoods_and_margins_at_their_edges() {
    let device = device();
    let x = Tensor::ones([2, 3], &device).unwrap();
    let labels = Tensor::new([0i32, 3], &device).unwrap();
    let outside = nn::MultiMarginLoss::default().forward(&x, &labels).unwrap();
    assert!(outside.to_f64_vec().is_err());
    let cubed = nn::MultiMarginLoss { p: 3, ..Default::default() };
    refused(cubed.forward(&x, &labels), &["multi_margin_loss", "p = 3"]);
    refused(nn::MultiLabelMarginLoss::default().forward(&x, &labels), &["multilabel_margin_loss", "[2]"]);
    refused(nn::SoftMarginLoss::default().forward(&x, &labels), &["soft_margin_loss", "[2, 3]"]);
    refused(nn::HingeEmbeddingLoss::default().forward(&x, &labels), &["hinge_embedding_loss", "[2, 3]"]);
    refused(
        nn::GaussianNllLoss::default().forward(&x, &x, &labels.unsqueeze(0).unwrap()),
        &["gaussian_nll_loss"],
    );
    refused(nn::PoissonNllLoss::default().forward(&x, &x.t().unwrap()), &["poisson_nll_loss", "one shape"]);

    let log = Tensor::zeros([4, 2, 3], &device).unwrap().log_softmax(2).unwrap();
    let targets = Tensor::new([[1i32, 2], [2, 1]], &device).unwrap();
    let run =
        |inputs: &[usize], counts: &[usize]| nn::CtcLoss::default().forward(&log, &targets, inputs, counts);
    refused(run(&[4], &[2, 2]), &["ctc_loss", "1 input lengths", "2 sequences"]);
    refused(run(&[4, 0], &[2, 2]), &["ctc_loss", "input length of 0", "1 to 4"]);
    refused(run(&[4, 5], &[2, 2]), &["ctc_loss", "input length of 5"]);
    refused(run(&[4, 4], &[2, 3]), &["ctc_loss", "target lengths up to 3", "[2, 2]"]);
    let blank = nn::CtcLoss { blank: 3, ..Default::default() };
    refused(blank.forward(&log, &targets, &[4, 4], &[2, 2]), &["ctc_loss", "blank 3", "3 classes"]);
    refused(nn::CtcLoss::default().forward(&log, &log, &[4, 4], &[2, 2]), &["ctc_loss", "give integers"]);
    let outside = nn::CtcLoss::default().forward(&log, &targets.add_scalar(5), &[4, 4], &[2, 2]).unwrap();
    assert!(outside.to_f64_vec().is_err());
    // Numbers after the labels are not read.
    let padded = Tensor::new([[1i32, 2], [2, -7]], &device).unwrap();
    let loss = nn::CtcLoss::default().forward(&log, &padded, &[4, 4], &[2, 1]).unwrap();
    assert!(loss.item_f64().unwrap().is_finite());
    // An input too short is infinitely unlikely, without a gradient.
    let leaf = log.clone().requires_grad();
    let short = nn::CtcLoss { reduction: nn::Reduction::Sum, ..Default::default() };
    let loss = short.forward(&leaf, &targets, &[1, 4], &[2, 2]).unwrap();
    assert_eq!(loss.item_f64().unwrap(), f64::INFINITY);
    loss.backward().unwrap();
    let grad = leaf.grad().unwrap().select(1, 0).unwrap().to_f64_vec().unwrap();
    assert!(grad.iter().all(|g| *g == 0.0), "{grad:?}");
    if needs(&device, DType::F64) {
        let x = made(&[3, 2, 3], 1);
        let run = |t: &[Tensor]| {
            let log = t[0].log_softmax(2)?;
            nn::CtcLoss::default().forward(&log, &targets, &[3, 2], &[2, 1])
        };
        gradcheck(run, std::slice::from_ref(&x)).unwrap();
        gradgradcheck(run, std::slice::from_ref(&x)).unwrap();
        let raw = |t: &[Tensor]| nn::CtcLoss::default().forward(&t[0], &targets, &[3, 3], &[2, 2]);
        gradcheck(raw, std::slice::from_ref(&x)).unwrap();
        let rows = [made(&[3, 4], 1), made(&[3, 4], 2), made(&[3, 4], 3)];
        let labels = Tensor::new([0i32, 3, 1], &device).unwrap();
        gradgradcheck(|t| nn::GaussianNllLoss::default().forward(&t[0], &t[1], &t[2].exp()), &rows).unwrap();
        gradgradcheck(|t| nn::PoissonNllLoss::default().forward(&t[0], &t[1].exp()), &rows[..2]).unwrap();
        gradgradcheck(|t| squared().forward(&t[0], &labels), &rows[..1]).unwrap();
        let signs = rows[1].sign();
        gradgradcheck(|t| nn::SoftMarginLoss::default().forward(&t[0], &signs), &rows[..1]).unwrap();
    }
}

/// The squared form, whose second derivative is not zero.
fn squared() -> nn::MultiMarginLoss {
    nn::MultiMarginLoss { p: 2, ..Default::default() }
}
