//! The cases, named and ordered as in `scripts/bench_torch.py`.

use std::any::Any;

use burn::{
    module::Module,
    nn::{Gelu, Linear, LinearConfig, Relu, loss::CrossEntropyLossConfig},
    optim::{GradientsParams, SgdConfig},
    tensor::{
        Device, Int, Tensor, TensorData,
        activation::{log_softmax, relu, sigmoid, softmax},
        module::layer_norm,
    },
};

use crate::{Call, Case, Inputs};

const TEN_MILLION: [usize; 1] = [10_000_000];
const LR: f64 = 0.01;

fn case(name: impl Into<String>, make: impl Fn(&Inputs) -> Call + 'static) -> Case {
    Case { name: name.into(), make: Box::new(make), flop: None, ops: None, most: 2000, check: None }
}

impl Case {
    fn flop(self, flop: usize) -> Case {
        Case { flop: Some(flop as f64), ..self }
    }

    fn ops(self, ops: usize, most: usize) -> Case {
        Case { ops: Some(ops as f64), most, ..self }
    }
}

fn call<R: Any>(mut work: impl FnMut() -> R + 'static) -> Call {
    Box::new(move || Box::new(work()))
}

/// A function of one random input.
fn on<const D: usize, const E: usize>(
    name: &str,
    shape: [usize; D],
    function: impl Fn(Tensor<D>) -> Tensor<E> + Copy + 'static,
) -> Case {
    case(name, move |inputs| {
        let x = inputs.rand(shape);
        call(move || function(x.clone()))
    })
}

/// As `on`, with a look at the sum of the result, which is to be `total(input)`.
fn summed<const D: usize, const E: usize>(
    name: &str,
    shape: [usize; D],
    function: impl Fn(Tensor<D>) -> Tensor<E> + Copy + 'static,
    total: fn(&[f32]) -> f64,
) -> Case {
    let check = move |inputs: &Inputs| {
        let x = inputs.rand(shape);
        let host = |data: TensorData| data.to_vec::<f32>().map_err(|e| format!("{e:?}"));
        let got = add_up(&host(function(x.clone()).into_data())?);
        let want = total(&host(x.into_data())?);
        if (got - want).abs() <= 1e-3 * want.abs() {
            return Ok(());
        }
        Err(format!("burn's result is wrong on this device: it adds up to {got}, not {want}"))
    };
    Case { check: Some(Box::new(check)), ..on(name, shape, function) }
}

fn add_up(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x)).sum()
}

/// A function of two random inputs.
fn on2<const D: usize>(
    name: impl Into<String>,
    shapes: [[usize; D]; 2],
    function: impl Fn(Tensor<D>, Tensor<D>) -> Tensor<D> + Copy + 'static,
) -> Case {
    case(name, move |inputs| {
        let (a, b) = (inputs.rand(shapes[0]), inputs.rand(shapes[1]));
        call(move || function(a.clone(), b.clone()))
    })
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = matmul();
    cases.extend(elementwise());
    cases.extend(reductions_and_rows());
    cases.extend(training());
    cases.extend(overhead());
    cases.extend(embedding());
    cases
}

fn matmul() -> Vec<Case> {
    let mut cases: Vec<Case> = [64, 256, 512, 1024, 2048]
        .into_iter()
        .map(|n| on2(format!("matmul_{n}"), [[n, n], [n, n]], Tensor::matmul).flop(2 * n * n * n))
        .collect();
    let layer = 2 * 64 * 784 * 128;
    cases.push(on2("matmul_nn_64x784x128", [[64, 784], [784, 128]], Tensor::matmul).flop(layer));
    let nt = |a: Tensor<2>, b: Tensor<2>| a.matmul(b.transpose());
    cases.push(on2("matmul_nt_64x784x128", [[64, 784], [128, 784]], nt).flop(layer));
    let tn = |a: Tensor<2>, b: Tensor<2>| a.transpose().matmul(b);
    cases.push(on2("matmul_tn_784x64x128", [[64, 784], [64, 128]], tn).flop(layer));
    cases.push(on2("bmm_32x128", [[32, 128, 128]; 2], Tensor::matmul).flop(2 * 32 * 128 * 128 * 128));
    for [m, k, n] in [[333, 517, 129], [1, 1024, 1024], [1024, 1024, 1]] {
        let name = format!("more_matmul_{m}x{k}x{n}");
        cases.push(on2(name, [[m, k], [k, n]], Tensor::matmul).flop(2 * m * k * n));
    }
    let odd = on2("more_bmm_16x65x77x33", [[16, 65, 77], [16, 77, 33]], Tensor::matmul);
    cases.push(odd.flop(2 * 16 * 65 * 77 * 33));
    cases
}

fn elementwise() -> Vec<Case> {
    const SHAPE: [usize; 3] = [10, 1000, 1000];
    let chain = case("elementwise_chain", |inputs| {
        let (a, b) = (inputs.rand(SHAPE), inputs.rand(SHAPE));
        let device = inputs.device.clone();
        call(move || {
            let mut r = Tensor::<3>::zeros(SHAPE, &device);
            for _ in 0..20 {
                r = r + a.clone() * b.clone();
            }
            r
        })
    });
    let branches = |a: Tensor<1>, b: Tensor<1>| {
        let within = (a.clone() * b.clone()).clamp(0.1, 0.8);
        let chosen = a.clone().neg().exp().mask_where(a.clone().greater_elem(0.5), within);
        chosen * b + a.sqrt()
    };
    let concat = case("more_concat_4x64x128x512", |inputs| {
        let parts: Vec<Tensor<3>> = (0..4).map(|_| inputs.rand([64, 128, 512])).collect();
        call(move || Tensor::cat(parts.clone(), 1))
    });
    vec![
        chain,
        on("unary_chain", TEN_MILLION, |x| (x * 2.0 + 1.0).tanh().exp().sqrt()),
        on("unary_exp_10M", TEN_MILLION, Tensor::exp),
        on("unary_tanh_10M", TEN_MILLION, Tensor::tanh),
        on("unary_sqrt_10M", TEN_MILLION, Tensor::sqrt),
        on("unary_relu_10M", TEN_MILLION, relu),
        on("unary_sigmoid_10M", TEN_MILLION, sigmoid),
        on("unary_log_10M", TEN_MILLION, Tensor::log),
        on("unary_sin_10M", TEN_MILLION, Tensor::sin),
        on2("add_10M", [TEN_MILLION; 2], |a, b| a + b),
        on2("more_chain_where_10M", [TEN_MILLION; 2], branches),
        concat,
    ]
}

fn reductions_and_rows() -> Vec<Case> {
    const SQUARE: [usize; 2] = [4096, 4096];
    const ROWS: [usize; 2] = [4096, 1000];
    const WIDE: [usize; 2] = [4096, 1024];
    const MIDDLE: [usize; 3] = [64, 128, 512];
    let norm = case("layer_norm_4096x1024", |inputs| {
        let (x, gamma) = (inputs.rand(WIDE), Tensor::<1>::ones([WIDE[1]], &inputs.device));
        call(move || layer_norm(x.clone(), gamma.clone(), None, 1e-5))
    });
    let norm_backward = weighted_backward("more_layer_norm_fwd_bwd", WIDE, |x| {
        let gamma = Tensor::<1>::ones([WIDE[1]], &x.device());
        layer_norm(x, gamma, None, 1e-5)
    });
    vec![
        summed("sum_all_10M", TEN_MILLION, Tensor::sum, add_up),
        summed("sum_axis0_4096", SQUARE, |x| x.sum_dim(0), add_up),
        summed("sum_axis1_4096", SQUARE, |x| x.sum_dim(1), add_up),
        summed("more_sum_axis1_64x128x512", MIDDLE, |x| x.sum_dim(1), add_up),
        on("more_var_axis1_4096", SQUARE, |x| x.var(1)),
        on2("broadcast_add_4096x1000", [ROWS, [1, 1000]], |a, b| a + b),
        // burn has no call that makes a transpose contiguous: something must be computed from it.
        on("transpose_copy_4096", SQUARE, |x| x.transpose() + 1.0),
        summed("softmax_4096x1000", ROWS, |x| softmax(x, 1), |_| ROWS[0] as f64),
        on("more_log_softmax_4096x1000", ROWS, |x| log_softmax(x, 1)),
        on("more_softmax_axis1_64x128x512", MIDDLE, |x| softmax(x, 1)),
        norm,
        weighted_backward("more_softmax_fwd_bwd", ROWS, |x| softmax(x, 1)),
        norm_backward,
    ]
}

/// The sum of function(x) weighted at random, and the gradient of x.
fn weighted_backward(
    name: &str,
    shape: [usize; 2],
    function: impl Fn(Tensor<2>) -> Tensor<2> + Copy + 'static,
) -> Case {
    case(name, move |inputs| {
        let (x, weight) = (inputs.leaf(shape), inputs.rand(shape).autodiff());
        call(move || {
            let loss = (function(x.clone()) * weight.clone()).sum();
            (x.grad(&loss.backward()), loss)
        })
    })
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

/// A training step of a network whose layers have these widths.
fn step(
    batch: usize,
    widths: &'static [usize],
    activation: impl Fn(Tensor<2>) -> Tensor<2> + 'static,
    inputs: &Inputs,
) -> Call {
    let device = inputs.device.clone().autodiff();
    let layers = widths.windows(2).map(|w| LinearConfig::new(w[0], w[1]).init(&device)).collect();
    let mut net = Some(Mlp { layers });
    let mut sgd = SgdConfig::new().init();
    let x = inputs.rand([batch, widths[0]]).autodiff();
    let y: Tensor<1, Int> = inputs.indices(widths[widths.len() - 1], batch).autodiff();
    let cross_entropy = CrossEntropyLossConfig::new().init(&device);
    call(move || {
        let before = net.take().expect("a network between steps");
        let mut h = x.clone();
        for (i, layer) in before.layers.iter().enumerate() {
            h = layer.forward(if i == 0 { h } else { activation(h) });
        }
        let loss = cross_entropy.forward(h, y.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &before);
        let after = sgd.step(LR, before, gradients);
        net = Some(after.clone());
        (loss, after)
    })
}

/// A step of the small network, of which the first and the hundredth are timed, too.
pub(crate) fn simplenet(batch: usize, inputs: &Inputs) -> Call {
    let activation = Relu::new();
    step(batch, &[784, 128, 10], move |h| activation.forward(h), inputs)
}

fn training() -> Vec<Case> {
    let gelu = |inputs: &Inputs| {
        let activation = Gelu::new();
        step(256, &[512, 512, 512, 512], move |h| activation.forward(h), inputs)
    };
    let cross_entropy = |inputs: &Inputs| {
        let (x, y) = (inputs.leaf([1024, 1000]), inputs.indices(1000, 1024).autodiff());
        let loss = CrossEntropyLossConfig::new().init(&x.device());
        call(move || {
            let loss = loss.forward(x.clone(), y.clone());
            (x.grad(&loss.backward()), loss)
        })
    };
    vec![
        case("simplenet_step_64", |inputs| simplenet(64, inputs)),
        case("simplenet_step_1024", |inputs| simplenet(1024, inputs)),
        case("more_mlp_step_gelu_256x512", gelu),
        case("more_cross_entropy_fwd_bwd_1024x1000", cross_entropy),
    ]
}

/// The overhead of an operation beyond its arithmetic.
fn overhead() -> Vec<Case> {
    const ADDITIONS: usize = 10_000;
    /// Each sum is handed to the device before the next is built: without `flush`, burn leaves out results
    /// that are never read.
    fn adds(a: Tensor<1>, b: Tensor<1>, device: Device) -> Call {
        call(move || {
            let mut last = None;
            for _ in 0..ADDITIONS {
                last = Some(a.clone() + b.clone());
                device.flush().expect("a working device");
            }
            last
        })
    }
    fn chain(s: &Tensor<1>) -> Tensor<1> {
        (0..500).fold(s.clone(), |r, _| r * 1.0001 + 0.1)
    }
    let batch = |inputs: &Inputs| {
        let some = || -> Vec<Tensor<1>> { (0..100).map(|_| inputs.rand([16])).collect() };
        let (left, right) = (some(), some());
        call(move || {
            let mut sums = Vec::with_capacity(ADDITIONS);
            for a in &left {
                sums.extend(right.iter().map(|b| a.clone() + b.clone()));
            }
            sums
        })
    };
    let forward = |inputs: &Inputs| {
        let s = inputs.leaf([1]);
        call(move || chain(&s).detach().into_scalar::<f32>())
    };
    let backward = |inputs: &Inputs| {
        let s = inputs.leaf([1]);
        call(move || s.grad(&chain(&s).backward()))
    };
    vec![
        case("small_add_nograd", |inputs| adds(inputs.rand([16]), inputs.rand([16]), inputs.device.clone()))
            .ops(ADDITIONS, 50),
        case("small_add_grad", |inputs| {
            adds(inputs.leaf([16]), inputs.rand([16]).autodiff(), inputs.device.clone())
        })
        .ops(ADDITIONS, 50),
        case("small_add_batch", batch).ops(ADDITIONS, 50),
        case("chain1000_forward", forward).ops(1000, 200),
        case("chain1000_forward_backward", backward).ops(1000, 200),
    ]
}

fn embedding() -> Vec<Case> {
    const TABLE: [usize; 2] = [50_000, 256];
    const PICKED: usize = 8192;
    let select = |inputs: &Inputs| {
        let (table, index) = (inputs.rand(TABLE), inputs.indices(TABLE[0], PICKED));
        call(move || table.clone().select(0, index.clone()))
    };
    let backward = |inputs: &Inputs| {
        let (table, index) = (inputs.leaf(TABLE), inputs.indices(TABLE[0], PICKED).autodiff());
        let weight = inputs.rand([PICKED, TABLE[1]]).autodiff();
        call(move || {
            let loss = (table.clone().select(0, index.clone()) * weight.clone()).sum();
            (table.grad(&loss.backward()), loss)
        })
    };
    vec![case("more_index_select_50000x256", select), case("more_embedding_fwd_bwd_50000x256", backward)]
}
