//! Autocast and the gradient scaler beside PyTorch's (`scripts/torch_fixtures.py autocast grad_scaler`).
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::{
    common::{assert_close, device, drawn, needs, tensor},
    pytorch::{Array, fixture},
};
use serde::Deserialize;
use taper::{
    ErrorKind, autocast, autocast_dtype,
    nn::{
        Conv2d, Lstm,
        functional::{self as F, ConvOptions, ConvTransposeOptions},
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
        // Names of kernels, and other names of listed operations and of operations composed of them.
        "native_layer_norm" | "nll_loss2d" | "convolution" | "conv_tbc" | "chain_matmul"
        | "linalg_multi_dot" | "norm" | "frobenius_norm" | "nuclear_norm" | "linalg_matrix_norm" => {
            return None;
        }
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
        ("max_pool2d", [x]) => F::max_pool2d(x, [2, 2]),
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
        for wide in [half.exp(), half.sum(), half.powi(2), half.powf(0.5), half.log1p(), half.softplus()] {
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

/// A cell is cast once for a region, again for another value, and graphs that share the cast are each played
/// back.
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

#[test]
fn bad_gradients_lead_to_no_scale_of_0() -> Result<()> {
    let d = device();
    let w = Tensor::new([1.0f32], &d)?.requires_grad();
    let mut sgd = Sgd::new([w.clone()], SgdConfig { lr: 0.5, ..Default::default() });
    let mut scaler = GradScaler::new(GradScalerConfig::default())?;
    for _ in 0..200 {
        w.set_grad(Some(Tensor::new([f32::INFINITY], &d)?));
        assert!(!scaler.step(&mut sgd)?);
        scaler.update()?;
    }
    assert_eq!((scaler.get_scale(), w.item::<f32>()?), (2f64.powi(-24), 1.0));
    // Training continues from there.
    sgd.zero_grad();
    scaler.scale(&w.sum()).backward()?;
    assert!(scaler.step(&mut sgd)?);
    assert_eq!(w.item::<f32>()?, 0.5);
    // Scales that cannot be divided out of gradients are refused.
    for scale in [0.0, -1.0, 1e-40, 1e-46, f64::INFINITY, f64::NAN] {
        assert!(scaler.set_scale(scale).is_err());
        assert!(GradScaler::new(GradScalerConfig { init_scale: scale, ..Default::default() }).is_err());
    }
    // One that is given below the least stays.
    scaler.set_scale(2f64.powi(-100))?;
    w.set_grad(Some(Tensor::new([f32::NAN], &d)?));
    assert!(!scaler.step(&mut sgd)?);
    scaler.update()?;
    assert_eq!(scaler.get_scale(), 2f64.powi(-100));
    Ok(())
}

/// The inputs of a layer or function of several inputs, all in f32.
type Inputs = Vec<Tensor>;

/// Every layer, loss and function of several floating-point inputs: which of them get the half type where
/// they come from a product, and the dtype that PyTorch's autocast for CUDA gives.
fn of_several_inputs(rng: &Generator) -> Result<Vec<(&'static str, Inputs, DType, Of)>> {
    use taper::nn::{self, AttentionMasks, Reduction};
    let d = rng.device();
    let x = |shape: &[usize], seed: u64| tensor(shape, seed, DType::F32, d);
    let unit = |shape: &[usize], seed: u64| Ok::<_, taper::Error>(x(shape, seed)?.sigmoid());
    let row = || x(&[4, 6], 1);
    let pair = || Ok::<_, taper::Error>(vec![row()?, x(&[4, 6], 2)?]);
    let sequence = |seed: u64| x(&[5, 2, 8], seed);
    // As generate_square_subsequent_mask makes it.
    let causal = Tensor::full([5, 5], f64::NEG_INFINITY, d)?.triu(1)?;
    let padding = x(&[2, 5], 7)?;
    let labels = Tensor::new([0i32, 5, 2, 1], d)?;
    let signs = Tensor::new([1.0f32, -1.0, -1.0, 1.0], d)?;
    let (half, wide) = (DType::BF16, DType::F32);
    let attention = nn::MultiheadAttention::new(8, 2, rng)?;
    let attention_with_weights = attention.clone();
    let extra = nn::MultiheadAttentionConfig { add_bias_kv: true, add_zero_attn: true, ..Default::default() };
    let attention_with_keys = nn::MultiheadAttention::with_config(8, 2, extra, rng)?;
    let no_drop = nn::TransformerConfig { dropout: 0.0, dim_feedforward: 16, ..Default::default() };
    let encoder = nn::TransformerEncoderLayer::with_config(8, 2, no_drop, rng)?;
    let decoder = nn::TransformerDecoderLayer::with_config(8, 2, no_drop, rng)?;
    let (lstm, gru, rnn) = (nn::Lstm::new(8, 8, rng)?, nn::Gru::new(8, 8, rng)?, nn::Rnn::new(8, 8, rng)?);
    let cell = nn::LstmCell::new(8, 8, rng)?;
    let bilinear = nn::Bilinear::new(6, 6, 3, rng)?;
    fn masks<'a>(attn: &'a Tensor, padding: &'a Tensor) -> AttentionMasks<'a> {
        AttentionMasks { attn_mask: Some(attn), key_padding_mask: Some(padding), ..Default::default() }
    }
    let mut all: Vec<(&'static str, Inputs, DType, Of)> = Vec::new();
    let mut one = |name, inputs: Inputs, dtype, f: Of| all.push((name, inputs, dtype, f));
    let (seq, memory, state) = (sequence(3)?, sequence(4)?, x(&[1, 2, 8], 5)?);
    one(
        "MultiheadAttention",
        vec![seq.clone(), causal.clone(), padding.clone()],
        half,
        Box::new(move |x| attention.forward(&x[0], &x[0], &x[0], masks(&x[1], &x[2]))),
    );
    one(
        "MultiheadAttention with weights",
        vec![seq.clone(), memory.clone(), causal.clone()],
        half,
        Box::new(move |x| {
            let masks = AttentionMasks { attn_mask: Some(&x[2]), ..Default::default() };
            Ok(attention_with_weights.forward_with_weights(&x[0], &x[1], &x[1], masks)?.0)
        }),
    );
    one(
        "MultiheadAttention with keys of its own",
        vec![seq.clone(), causal.clone()],
        half,
        Box::new(move |x| {
            attention_with_keys.forward(
                &x[0],
                &x[0],
                &x[0],
                AttentionMasks { attn_mask: Some(&x[1]), ..Default::default() },
            )
        }),
    );
    one(
        "scaled_dot_product_attention",
        vec![seq.clone(), memory.clone(), x(&[2, 2], 8)?],
        half,
        Box::new(|x| {
            F::scaled_dot_product_attention(
                &x[0],
                &x[1],
                &x[1],
                F::AttentionOptions { mask: Some(&x[2]), ..Default::default() },
            )
        }),
    );
    one(
        "TransformerEncoderLayer",
        vec![seq.clone(), causal.clone(), padding.clone()],
        wide,
        Box::new(move |x| encoder.forward_masked(&x[0], masks(&x[1], &x[2]))),
    );
    one(
        "TransformerDecoderLayer",
        vec![seq.clone(), memory.clone(), causal.clone(), padding.clone()],
        wide,
        Box::new(move |x| decoder.forward(&x[0], &x[1], masks(&x[2], &x[3]), masks(&x[2], &x[3]))),
    );
    one(
        "LSTM",
        vec![seq.clone(), state.clone(), state.clone()],
        half,
        Box::new(move |x| Ok(lstm.forward(&x[0], Some((&x[1], &x[2])))?.0)),
    );
    one(
        "GRU",
        vec![seq.clone(), state.clone()],
        half,
        Box::new(move |x| Ok(gru.forward(&x[0], Some(&x[1]))?.0)),
    );
    one(
        "RNN",
        vec![seq.clone(), state.clone()],
        half,
        Box::new(move |x| Ok(rnn.forward(&x[0], Some(&x[1]))?.0)),
    );
    one(
        "LSTMCell",
        vec![x(&[2, 8], 6)?, x(&[2, 8], 7)?, x(&[2, 8], 8)?],
        half,
        Box::new(move |x| Ok(cell.forward(&x[0], Some((&x[1], &x[2])))?.0)),
    );
    one("Bilinear", pair()?, wide, Box::new(move |x| bilinear.forward(&x[0], &x[1])));
    one(
        "linear",
        vec![row()?, x(&[3, 6], 2)?, x(&[3], 3)?],
        half,
        Box::new(|x| F::linear(&x[0], &x[1], Some(&x[2]))),
    );
    one("cosine_similarity", pair()?, wide, Box::new(|x| F::cosine_similarity(&x[0], &x[1], 1, 1e-8)));
    one("cdist", pair()?, wide, Box::new(|x| F::cdist(&x[0], &x[1], 2.0)));
    one(
        "grid_sample",
        vec![x(&[1, 2, 4, 4], 1)?, x(&[1, 3, 3, 2], 2)?],
        wide,
        Box::new(|x| F::grid_sample(&x[0], &x[1], Default::default())),
    );
    one(
        "layer_norm",
        vec![row()?, x(&[6], 2)?, x(&[6], 3)?],
        wide,
        Box::new(|x| F::layer_norm(&x[0], [6], Some(&x[1]), Some(&x[2]), 1e-5)),
    );
    one("mse_loss", pair()?, wide, Box::new(|x| F::mse_loss(&x[0], &x[1])));
    one("l1_loss", pair()?, wide, Box::new(|x| F::l1_loss(&x[0], &x[1])));
    one("smooth_l1_loss", pair()?, wide, Box::new(|x| F::smooth_l1_loss(&x[0], &x[1])));
    one("huber_loss", pair()?, wide, Box::new(|x| F::huber_loss(&x[0], &x[1])));
    one("kl_div", pair()?, wide, Box::new(|x| F::kl_div(&x[0], &x[1])));
    one(
        "binary_cross_entropy",
        vec![unit(&[4, 6], 1)?, unit(&[4, 6], 2)?, unit(&[6], 3)?],
        wide,
        Box::new(|x| nn::BceLoss { weight: Some(x[2].clone()), ..Default::default() }.forward(&x[0], &x[1])),
    );
    one(
        "BCEWithLogitsLoss",
        vec![row()?, unit(&[4, 6], 2)?, unit(&[6], 3)?, unit(&[6], 4)?],
        wide,
        Box::new(|x| {
            let loss = nn::BceWithLogitsLoss {
                reduction: Reduction::Mean,
                pos_weight: Some(x[2].clone()),
                weight: Some(x[3].clone()),
            };
            loss.forward(&x[0], &x[1])
        }),
    );
    let of_labels = labels.clone();
    one(
        "CrossEntropyLoss",
        vec![row()?, unit(&[6], 3)?],
        wide,
        Box::new(move |x| {
            nn::CrossEntropyLoss { weight: Some(x[1].clone()), ..Default::default() }
                .forward(&x[0], &of_labels)
        }),
    );
    let of_labels = labels.clone();
    one(
        "NLLLoss",
        vec![row()?, unit(&[6], 3)?],
        wide,
        Box::new(move |x| {
            nn::NllLoss { weight: Some(x[1].clone()), ..Default::default() }.forward(&x[0], &of_labels)
        }),
    );
    one(
        "MultiMarginLoss",
        vec![row()?, unit(&[6], 3)?],
        wide,
        Box::new(move |x| {
            nn::MultiMarginLoss { weight: Some(x[1].clone()), ..Default::default() }.forward(&x[0], &labels)
        }),
    );
    one("PoissonNLLLoss", pair()?, wide, Box::new(|x| nn::PoissonNllLoss::default().forward(&x[0], &x[1])));
    one(
        "GaussianNLLLoss",
        vec![row()?, x(&[4, 6], 2)?, unit(&[4, 1], 3)?],
        wide,
        Box::new(|x| nn::GaussianNllLoss::default().forward(&x[0], &x[1], &x[2])),
    );
    let of_signs = signs.clone();
    one(
        "MarginRankingLoss",
        vec![x(&[4], 1)?, x(&[4], 2)?],
        wide,
        Box::new(move |x| nn::MarginRankingLoss::default().forward(&x[0], &x[1], &of_signs)),
    );
    one(
        "CosineEmbeddingLoss",
        pair()?,
        wide,
        Box::new(move |x| nn::CosineEmbeddingLoss::default().forward(&x[0], &x[1], &signs)),
    );
    one(
        "TripletMarginLoss",
        vec![row()?, x(&[4, 6], 2)?, x(&[4, 6], 3)?],
        wide,
        Box::new(|x| nn::TripletMarginLoss::default().forward(&x[0], &x[1], &x[2])),
    );
    one(
        "index_put",
        vec![row()?, x(&[2, 6], 2)?],
        wide,
        Box::new(|x| x[0].index_put(&Tensor::new([1i32, 3], &x[0].device())?, &x[1], false)),
    );
    one(
        "scatter_add",
        pair()?,
        wide,
        Box::new(|x| {
            let index = Tensor::zeros([4, 6], (DType::I32, &x[0].device()))?;
            x[0].scatter_add(0, &index, &x[1])
        }),
    );
    one(
        "addcmul",
        vec![row()?, x(&[4, 6], 2)?, x(&[4, 6], 3)?],
        wide,
        Box::new(|x| x[0].addcmul(&x[1], &x[2], 0.5)),
    );
    one("concat", pair()?, wide, Box::new(|x| Tensor::concat(&[&x[0], &x[1]], 0)));
    Ok(all)
}

type Of = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// Each with all inputs in f32, and with each input in turn in the half type, as a product before it gives
/// one: never an error, of PyTorch's dtype, near the result without autocast, and with gradients for what
/// wants them.
#[test]
fn layers_of_several_inputs_run_whatever_their_inputs_came_from() -> Result<()> {
    let d = device();
    if !needs(&d, DType::BF16) {
        return Ok(());
    }
    for (name, inputs, dtype, f) in of_several_inputs(&Generator::seed(4, &d))? {
        if !drawn(name) {
            continue;
        }
        let expected = f(&inputs)?.to_f64_vec()?;
        for lowered in 0..=inputs.len() {
            let of = |(k, x): (usize, &Tensor)| {
                if k + 1 == lowered { x.to_dtype(DType::BF16) } else { Ok(x.clone()) }
            };
            let given = inputs.iter().enumerate().map(of).collect::<Result<Vec<_>>>()?;
            let given: Vec<Tensor> = given.iter().map(|x| x.detach().requires_grad()).collect();
            let what = format!("{name} with input {lowered} (from 1 on) in bf16");
            let result = autocast(DType::BF16, || f(&given));
            let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
            // The widest of f32 and a half type is f32.
            assert_eq!(result.dtype(), dtype, "{what}");
            assert_close(&result.to_f64_vec()?, &expected, (4e-2, 4e-2), &what);
            result.sum().backward()?;
            assert!(given[0].grad().is_some(), "{what}");
        }
    }
    Ok(())
}
