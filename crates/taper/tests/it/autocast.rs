//! Autocast and the gradient scaler beside PyTorch's (`scripts/torch_fixtures.py autocast grad_scaler`).
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::{
    common::{assert_close, device, needs, tensor},
    pytorch::{Array, fixture},
};
use serde::Deserialize;
use taper::{
    ErrorKind, autocast, autocast_dtype,
    nn::{
        Conv2d, Lstm,
        functional::{self as F, ConvOptions, ConvTransposeOptions, PoolOptions},
    },
    no_autocast,
    optim::{GradScaler, GradScalerConfig, clip_grad_norm},
    prelude::*,
    tensor_core::autocast::{Rule, rule},
};

#[derive(Deserialize)]
struct Autocast {
    lower: Vec<String>,
    fp32: Vec<String>,
    promote: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    half: Vec<usize>,
    inputs: Vec<Array>,
    dtype: String,
    result: Array,
}

/// PyTorch's names of operations that Taper calls otherwise, or has under one name.
fn ours(name: &str) -> Option<&str> {
    Some(match name {
        "mm" | "mv" | "bmm" => "matmul",
        "linalg_vecdot" => "vecdot",
        "lstm_cell" => "LSTM",
        "gru_cell" => "GRU",
        "rnn_relu_cell" | "rnn_tanh_cell" => "RNN",
        "linalg_vector_norm" => "vector_norm",
        "vdot" => "dot",
        "grid_sampler" => "grid_sample",
        name if name.starts_with("upsample_") => "interpolate",
        // Kernels and spellings of what is listed by its usual name, or made of it.
        "native_layer_norm" | "nll_loss2d" | "convolution" | "conv_tbc" | "chain_matmul"
        | "linalg_multi_dot" | "norm" | "frobenius_norm" | "nuclear_norm" | "linalg_matrix_norm" => {
            return None;
        }
        // Taper's takes tensors of one dtype.
        "index_put" => return None,
        name if name.starts_with('_') => return None,
        name => name,
    })
}

#[test]
fn the_lists_are_those_of_pytorch_for_cuda() {
    let all: Autocast = fixture("autocast");
    for (names, expected) in [(all.lower, Rule::Lower), (all.fp32, Rule::Wide), (all.promote, Rule::Widest)] {
        for name in names.iter().filter_map(|name| ours(name)) {
            assert_eq!(rule(name), Some(expected), "{name}");
        }
    }
    assert_eq!(rule("relu"), None);
}

fn compute(op: &str, x: &[Tensor]) -> Result<Tensor> {
    match (op, x) {
        ("matmul" | "bmm", [a, b]) => a.matmul(b),
        ("linear", [x, w, b]) => F::linear(x, w, Some(b)),
        ("addmm", [c, a, b]) => c.addmm(a, b, 1.0, 1.0),
        ("conv2d", [x, w, b]) => F::conv2d(x, w, Some(b), ConvOptions::default()),
        ("conv_transpose2d", [x, w, b]) => {
            F::conv_transpose2d(x, w, Some(b), ConvTransposeOptions::default())
        }
        ("scaled_dot_product_attention", [q, k, v]) => {
            F::scaled_dot_product_attention(q, k, v, Default::default())
        }
        ("mse_loss", [x, y]) => F::mse_loss(x, y),
        ("l1_loss", [x, y]) => F::l1_loss(x, y),
        ("cdist", [x, y]) => F::cdist(x, y, 2.0),
        ("prod", [x]) => Ok(x.prod()),
        ("add", [x, y]) => x.add(y),
        ("cat", [x, y]) => Tensor::concat(&[x, y], 0),
        ("relu", [x]) => Ok(x.relu()),
        ("tanh", [x]) => Ok(x.tanh()),
        ("sigmoid", [x]) => Ok(x.sigmoid()),
        ("mean", [x]) => Ok(x.mean()),
        ("gelu", [x]) => Ok(x.gelu()),
        ("silu", [x]) => Ok(x.silu()),
        ("elu", [x]) => Ok(x.elu(1.0)),
        ("mish", [x]) => Ok(x.mish()),
        ("logsigmoid", [x]) => Ok(x.logsigmoid()),
        ("selu", [x]) => Ok(x.selu()),
        ("max_pool2d", [x]) => F::max_pool2d(x, [2, 2], PoolOptions::default()),
        ("batch_norm", [x, w, b]) => F::batch_norm(x, None, None, Some(w), Some(b), true, 0.1, 1e-5),
        (other, _) => panic!("the fixture has {other}, which this test does not know"),
    }
}

#[test]
fn dtypes_and_values_are_those_of_pytorch_on_the_cpu() -> Result<()> {
    if !needs(&device(), DType::BF16) {
        return Ok(());
    }
    let all: Autocast = fixture("autocast");
    for case in &all.cases {
        let of = |(i, input): (usize, &Array)| {
            input.tensor(if case.half.contains(&i) { DType::BF16 } else { DType::F32 })
        };
        let inputs = case.inputs.iter().enumerate().map(of).collect::<Result<Vec<_>>>()?;
        let result = autocast(DType::BF16, || compute(&case.op, &inputs))?;
        let expected = if case.dtype == "bfloat16" { DType::BF16 } else { DType::F32 };
        let what = format!("{} with halves {:?}", case.op, case.half);
        assert_eq!(result.dtype(), expected, "{what}");
        let within = if expected == DType::BF16 { (2e-2, 2e-2) } else { (2e-3, 2e-3) };
        assert_close(&result.to_f64_vec()?, &case.result.values(), within, &what);
    }
    Ok(())
}

#[test]
fn regions_are_nested_and_end_with_their_function() -> Result<()> {
    let d = device();
    if !needs(&d, DType::BF16) {
        return Ok(());
    }
    let x = tensor(&[3, 3], 1, DType::F32, &d)?;
    let wide = if d.supports(DType::F64) { Some(tensor(&[3, 3], 2, DType::F64, &d)?) } else { None };
    autocast(DType::BF16, || {
        assert_eq!(autocast_dtype(), Some(DType::BF16));
        assert_eq!(x.matmul(&x)?.dtype(), DType::BF16);
        no_autocast(|| {
            assert_eq!(autocast_dtype(), None);
            assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
            autocast(DType::BF16, || {
                assert_eq!(x.matmul(&x)?.softmax(-1)?.dtype(), DType::F32);
                Ok(())
            })
        })?;
        if d.supports(DType::F16) {
            let inner = autocast(DType::F16, || x.matmul(&x))?;
            assert_eq!(inner.dtype(), DType::F16);
            // Two half types: what takes both in.
            assert_eq!(inner.add(&x.matmul(&x)?)?.dtype(), DType::F32);
        }
        let half = x.matmul(&x)?;
        for wide in
            [half.exp(), half.sum(), half.powi(2), half.powf(0.5), half.log1p(), half.softplus(1.0, 20.0)]
        {
            assert_eq!(wide.dtype(), DType::F32);
        }
        for kept in [half.relu(), half.gelu_tanh(), half.mean(), half.mul_scalar(2.0), half.amax(0, false)?] {
            assert_eq!(kept.dtype(), DType::BF16);
        }
        if let Some(wide) = &wide {
            assert_eq!(wide.matmul(wide)?.dtype(), DType::F64);
        }
        Ok(())
    })?;
    let failed: Result<()> = autocast(DType::BF16, || x.matmul(&x.narrow(0, 0, 2)?).map(|_| ()));
    assert!(failed.is_err());
    let panicked =
        std::panic::catch_unwind(|| autocast(DType::BF16, || -> Result<()> { panic!("on purpose") }));
    assert!(panicked.is_err() && autocast_dtype().is_none());
    assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn what_is_no_half_type_is_refused() {
    let mut ran = false;
    let error = autocast(DType::F32, || {
        ran = true;
        Ok(())
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }) && !ran, "{text}");
    assert!(text.contains("f32") && text.contains("DType::BF16") && text.contains("no_autocast"), "{text}");
}

#[test]
fn gradients_have_the_dtype_of_their_parameters() -> Result<()> {
    let d = device();
    if !needs(&d, DType::BF16) {
        return Ok(());
    }
    let rng = Generator::seed(1, &d);
    let (conv, linear) = (Conv2d::new(2, 3, 3, &rng)?, Linear::new(12, 4, &rng)?);
    let images = tensor(&[5, 2, 4, 4], 3, DType::F32, &d)?;
    let labels = Tensor::new([0i32, 1, 2, 3, 0], &d)?;
    let parameters = [conv.parameters(), linear.parameters()].concat();
    let gradients = |half: bool| -> Result<Vec<Vec<f64>>> {
        parameters.iter().for_each(|parameter| parameter.zero_grad());
        let loss = || {
            let features = conv.forward(&images)?.relu().flatten(1, -1)?;
            // Used twice, so that a kept cast gathers the gradients of both.
            let logits = linear.forward(&features)?.add(&linear.forward(&features.mul_scalar(0.5))?)?;
            assert_eq!(logits.dtype(), if half { DType::BF16 } else { DType::F32 });
            cross_entropy(&logits, &labels)
        };
        let loss = if half { autocast(DType::BF16, loss)? } else { loss()? };
        assert_eq!(loss.dtype(), DType::F32);
        loss.backward()?;
        parameters
            .iter()
            .map(|parameter| {
                let gradient = parameter.grad().unwrap();
                assert_eq!(gradient.dtype(), DType::F32);
                gradient.to_f64_vec()
            })
            .collect()
    };
    for (half, whole) in gradients(true)?.iter().zip(&gradients(false)?) {
        assert_close(half, whole, (3e-2, 1e-2), "the gradient under autocast");
    }
    Ok(())
}

/// A cell is cast once for a region, again for another value, and graphs that share the cast are each played back.
#[test]
fn parameters_are_cast_once() -> Result<()> {
    let d = device();
    if !needs(&d, DType::BF16) {
        return Ok(());
    }
    let w = tensor(&[3, 3], 1, DType::F32, &d)?.requires_grad();
    let x = tensor(&[2, 3], 2, DType::F32, &d)?;
    autocast(DType::BF16, || {
        let (a, b) = (x.matmul(&w)?, x.mul_scalar(2.0).matmul(&w)?);
        let cast = |y: &Tensor| y.inputs()[1].id();
        assert_eq!(cast(&a), cast(&b));
        a.sum().backward()?;
        let first = w.grad().unwrap().to_f64_vec()?;
        b.sum().backward()?;
        let both = w.grad().unwrap().to_f64_vec()?;
        let expected: Vec<f64> = first.iter().map(|g| 3.0 * g).collect();
        assert_close(&both, &expected, (1e-2, 1e-2), "two graphs with one cast");
        w.assign(&w.detach().mul_scalar(0.0))?;
        assert_eq!(x.matmul(&w)?.to_f64_vec()?, [0.0; 6]);
        // Without gradients, a cast of its own.
        let still = no_grad(|| x.matmul(&w))?;
        assert!(!still.is_tracked());
        assert!(x.matmul(&w)?.is_tracked());
        Ok(())
    })
}

#[test]
fn recurrent_layers_run_in_the_half_type() -> Result<()> {
    let d = device();
    if !needs(&d, DType::BF16) {
        return Ok(());
    }
    let lstm = Lstm::new(3, 4, &Generator::seed(2, &d))?;
    let x = tensor(&[5, 2, 3], 3, DType::F32, &d)?;
    let (whole, _) = lstm.forward(&x, None)?;
    let (half, (h, c)) = autocast(DType::BF16, || lstm.forward(&x, None))?;
    assert_eq!([half.dtype(), h.dtype(), c.dtype()], [DType::BF16; 3]);
    assert_close(&half.to_f64_vec()?, &whole.to_f64_vec()?, (2e-2, 2e-2), "an LSTM under autocast");
    half.sum().backward()?;
    for parameter in lstm.parameters() {
        assert_eq!(parameter.grad().unwrap().dtype(), DType::F32);
    }
    Ok(())
}

#[derive(Deserialize)]
struct Scalers {
    cases: Vec<ScalerCase>,
}

#[derive(Deserialize)]
struct ScalerCase {
    options: serde_json::Map<String, serde_json::Value>,
    bad: Vec<usize>,
    clip: Option<f64>,
    steps: Vec<ScalerStep>,
}

#[derive(Deserialize)]
struct ScalerStep {
    scale: f64,
    tracker: u64,
    w: Vec<f64>,
}

#[test]
fn the_scaler_follows_pytorchs() -> Result<()> {
    let d = device();
    let all: Scalers = fixture("grad_scaler");
    for case in &all.cases {
        let float = |name: &str, usual: f64| case.options.get(name).map_or(usual, |v| v.as_f64().unwrap());
        let usual = GradScalerConfig::default();
        let config = GradScalerConfig {
            init_scale: float("init_scale", usual.init_scale),
            growth_factor: float("growth_factor", usual.growth_factor),
            backoff_factor: float("backoff_factor", usual.backoff_factor),
            growth_interval: case.options.get("growth_interval").map_or(2000, |v| v.as_u64().unwrap()),
            ..usual
        };
        let small = if config.init_scale > 1e30 { 2f64.powi(-126) } else { 1.0 };
        let w = Tensor::new([1.0f32, -2.0], &d)?.requires_grad();
        let config_of = SgdConfig { lr: 0.125, momentum: 0.5, ..Default::default() };
        let mut sgd = Sgd::new([w.clone()], config_of);
        let mut scaler = GradScaler::new(config)?;
        for (step, expected) in case.steps.iter().enumerate() {
            sgd.zero_grad();
            let bad = case.bad.contains(&step);
            let factor = Tensor::new([if bad { f32::INFINITY } else { 1.0 }, 0.25 * step as f32], &d)?;
            let loss = w.mul(&w)?.mul(&factor)?.sum().mul_scalar(small);
            scaler.scale(&loss).backward()?;
            if let Some(most) = case.clip {
                scaler.unscale(&sgd)?;
                clip_grad_norm(&[&w], most)?;
            }
            let momentum = |sgd: &Sgd| {
                let state = sgd.state_dict();
                state.tensor("state.0.momentum_buffer").map(Tensor::to_f64_vec).transpose()
            };
            let before = (w.to_f64_vec()?, momentum(&sgd)?);
            assert_eq!(scaler.step(&mut sgd)?, !bad);
            if bad {
                assert_eq!((w.to_f64_vec()?, momentum(&sgd)?), before, "a skipped step changes nothing");
            }
            scaler.update()?;
            // Numbers of f32, which the file has in all their digits.
            let found = (scaler.get_scale() as f32, scaler.growth_tracker());
            assert_eq!(found, (expected.scale as f32, expected.tracker), "step {step}");
            assert_close(&w.to_f64_vec()?, &expected.w, (1e-5, 1e-6), &format!("after step {step}"));
            // Resumed by another one.
            let mut resumed = GradScaler::new(GradScalerConfig::default())?;
            resumed.load_state_dict(&scaler.state_dict())?;
            scaler = resumed;
        }
    }
    Ok(())
}

#[test]
fn misuse_of_the_scaler_is_an_error() -> Result<()> {
    let d = device();
    for config in [
        GradScalerConfig { init_scale: 0.0, ..Default::default() },
        GradScalerConfig { init_scale: 1e39, ..Default::default() },
        GradScalerConfig { growth_factor: 1.0, ..Default::default() },
        GradScalerConfig { backoff_factor: 1.0, ..Default::default() },
        GradScalerConfig { growth_interval: 0, ..Default::default() },
    ] {
        assert!(GradScaler::new(config).is_err(), "{config:?}");
        assert!(GradScaler::new(GradScalerConfig { enabled: false, ..config }).is_ok());
    }
    let w = Tensor::new([1.0f32], &d)?.requires_grad();
    let mut sgd = Sgd::new([w.clone()], SgdConfig::default());
    let mut scaler = GradScaler::new(GradScalerConfig::default())?;
    let said = |error: taper::Error| error.to_string();
    assert!(said(scaler.update().unwrap_err()).contains("step(&mut optimizer)"));
    assert!(said(scaler.step(&mut sgd).unwrap_err()).contains("backward"));
    scaler.scale(&w.sum()).backward()?;
    scaler.unscale(&sgd)?;
    assert_eq!(w.grad().unwrap().item::<f32>()?, 1.0);
    assert!(said(scaler.unscale(&sgd).unwrap_err()).contains("unscaled"));
    assert!(scaler.step(&mut sgd)?);
    assert!(said(scaler.step(&mut sgd).unwrap_err()).contains("update()"));
    scaler.update()?;
    assert!(scaler.set_scale(f64::NAN).is_err());
    scaler.set_scale(8.0)?;
    assert_eq!((scaler.get_scale(), scaler.scale(&w.sum()).item::<f32>()?), (8.0, 8.0 * w.item::<f32>()?));
    let mut off = GradScaler::new(GradScalerConfig { enabled: false, ..Default::default() })?;
    assert!(off.get_scale() == 1.0 && off.state_dict().is_empty() && off.step(&mut sgd)?);
    off.update()?;
    if needs(&d, DType::F16) {
        let half = Tensor::new([1.0f32], &d)?.to_dtype(DType::F16)?.requires_grad();
        let sgd = Sgd::new([half.clone()], SgdConfig::default());
        scaler.scale(&half.sum()).backward()?;
        assert!(said(scaler.unscale(&sgd).unwrap_err()).contains("keep the parameters in f32"));
    }
    Ok(())
}
