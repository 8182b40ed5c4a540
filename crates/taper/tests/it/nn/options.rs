//! Options and edges of layers and losses, with PyTorch's numbers and gradients: what PyTorch answers is
//! answered.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, device};
use taper::{
    nn::{
        AlphaDropout, AttentionMasks, BceLoss, BceWithLogitsLoss, Conv2d, ConvConfig, Dropout, Dropout2d,
        FeatureAlphaDropout, GaussianNllLoss, InProjection, MultiheadAttention, MultiheadAttentionConfig,
        Reduction,
        functional::{
            self as F, AttentionOptions, ConvPadding, InterpolateMode, InterpolateOptions,
            MultiHeadAttentionOptions, PadMode, PoolOptions, multi_head_attention_forward,
        },
    },
    prelude::*,
};

const NEAR: (f64, f64) = (2e-5, 2e-6);

/// Holds a result, and the gradients of its elements times 1, 2, 3 …, to PyTorch's numbers.
#[track_caller]
fn gives(what: &str, leaves: &[&Tensor], y: Tensor, values: &[f64], gradients: &[&[f64]]) {
    assert_close(&y.to_f64_vec().unwrap(), values, NEAR, what);
    let count = y.numel();
    let weights =
        Tensor::arange(1, count + 1, 1, (y.dtype(), &y.device())).unwrap().reshape(y.shape()).unwrap();
    leaves.iter().for_each(|leaf| leaf.set_grad(None));
    y.mul(&weights).unwrap().sum().backward().unwrap();
    for (k, (leaf, gradient)) in leaves.iter().zip(gradients).enumerate() {
        let found = leaf.grad().unwrap().to_f64_vec().unwrap();
        assert_close(&found, gradient, NEAR, &format!("{what}: gradient {k}"));
    }
}

fn leaf(values: &[f64], shape: &[usize]) -> Tensor {
    let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
    Tensor::from_vec(values, shape, &device()).unwrap().requires_grad()
}

fn counting(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    leaf(&(0..count).map(|v| v as f64).collect::<Vec<_>>(), shape)
}

#[test]
fn windows_larger_than_the_input_are_the_last_ones() -> Result<()> {
    let x = counting(&[1, 1, 3, 3]);
    let ceil = PoolOptions { ceil_mode: true, ..Default::default() };
    let corner: &[f64] = &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    gives("max 5", &[&x], F::max_pool2d_with(&x, [5, 5], ceil)?, &[8.0], &[corner]);
    let stride = PoolOptions { stride: Some([2, 1]), ..ceil };
    let expected: &[f64] = &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0];
    gives("max 4 x 2", &[&x], F::max_pool2d_with(&x, [4, 2], stride)?, &[7.0, 8.0], &[expected]);
    let (_, indices) = F::max_pool_with_indices(&x, [4, 2], stride)?;
    assert_eq!(indices.to_vec::<i64>()?, [7, 8]);
    let row = [1.0 / 6.0, 0.5, 1.0 / 3.0];
    gives(
        "mean 4 x 2",
        &[&x],
        F::avg_pool2d_with(&x, [4, 2], stride)?,
        &[3.5, 4.5],
        &[&[row, row, row].concat()],
    );
    let own = PoolOptions { stride: Some([3, 3]), padding: [1, 1], count_include_pad: false, ..ceil };
    assert_close(&F::avg_pool2d_with(&x, [4, 4], own)?.to_f64_vec()?, &[4.0, 5.0, 7.0, 8.0], NEAR, "mean 4");
    let norm = F::lp_pool2d(&x, 2.0, [4, 4], PoolOptions { stride: Some([2, 2]), ..ceil })?;
    assert_close(&norm.to_f64_vec()?, &[19.043808], NEAR, "norm 4");
    let cube = counting(&[1, 1, 3, 3, 3]);
    let three = PoolOptions { stride: Some([2; 3]), ceil_mode: true, ..Default::default() };
    assert_eq!(F::max_pool3d_with(&cube, [4; 3], three)?.to_f64_vec()?, [26.0]);
    let line = counting(&[1, 1, 3]);
    let one = PoolOptions { ceil_mode: true, ..Default::default() };
    assert_eq!(F::max_pool1d_with(&line, [5], one)?.to_f64_vec()?, [2.0]);
    // If the window exceeds the input by a stride or more, or without ceil_mode, there is no window.
    assert!(F::max_pool1d_with(&line, [5], PoolOptions { stride: Some([2]), ..one }).is_err());
    assert!(F::max_pool1d(&line, [4]).is_err());
    Ok(())
}

#[test]
fn sums_of_windows_are_divided_by_what_is_given() -> Result<()> {
    let x = counting(&[1, 1, 3, 3]);
    let options = PoolOptions {
        stride: Some([1, 1]),
        padding: [1, 1],
        divisor_override: Some(3),
        ..Default::default()
    };
    let values: Vec<f64> =
        [0, 1, 3, 2, 3, 8, 12, 7, 9, 20, 24, 13, 6, 13, 15, 8].iter().map(|v| f64::from(*v) / 3.0).collect();
    let gradient: Vec<f64> =
        [14, 18, 22, 30, 34, 38, 46, 50, 54].iter().map(|v| f64::from(*v) / 3.0).collect();
    gives("divisor 3", &[&x], F::avg_pool2d_with(&x, [2, 2], options)?, &values, &[&gradient]);
    let three = PoolOptions { divisor_override: Some(5), ..Default::default() };
    let out = F::avg_pool3d_with(&x.reshape([1, 1, 1, 3, 3])?, [1, 2, 2], three)?;
    assert_close(&out.to_f64_vec()?, &[1.6], NEAR, "divisor 5");
    assert!(F::max_pool2d_with(&x, [2, 2], options).is_err());
    assert!(F::avg_pool2d_with(&x, [2, 2], PoolOptions { divisor_override: Some(0), ..options }).is_err());
    Ok(())
}

#[test]
fn binary_losses_are_weighed_and_know_probabilities() -> Result<()> {
    let d = device();
    let logits = leaf(&[0.5, -1.0, 2.0, 3.0, 0.0, -2.0], &[2, 3]);
    let targets = Tensor::new([[1.0f32, 0.0, 0.25], [1.0, 1.0, 0.0]], &d)?;
    let weight = Some(Tensor::new([1.0f32, 2.0, 0.5], &d)?);
    let pos_weight = Some(Tensor::new([3.0f32, 1.0, 2.0], &d)?);
    let loss =
        |reduction| BceWithLogitsLoss { reduction, weight: weight.clone(), pos_weight: pos_weight.clone() };
    gives(
        "the mean",
        &[&logits],
        loss(Reduction::Mean).forward(&logits, &targets)?,
        &[0.7456008],
        &[&[-0.1887703, 0.0896471, 0.050083, -0.023713, -0.1666667, 0.0099336]],
    );
    gives(
        "each",
        &[&logits],
        loss(Reduction::None).forward(&logits, &targets)?,
        &[1.422231, 0.6265235, 0.82933, 0.1457621, 1.3862944, 0.063464],
        &[&[-1.132622, 1.0757657, 0.9014944, -0.5691109, -5.0, 0.3576088]],
    );
    assert!(
        BceWithLogitsLoss { weight: Some(Tensor::ones(2, &d)?), ..Default::default() }
            .forward(&logits, &targets)
            .is_err()
    );

    // A number that is no probability has no loss, and no gradient.
    let each = BceLoss { reduction: Reduction::None, ..Default::default() };
    let p = leaf(&[0.5, 0.5, 0.5, 1.5, -0.5, f64::NAN, 0.0, 1.0, 0.5], &[9]);
    let y = Tensor::new([2.0f32, -1.0, f32::NAN, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0], &d)?;
    let losses = each.forward(&p, &y)?;
    losses.sum().backward()?;
    let (losses, gradient) = (losses.to_f64_vec()?, p.grad().unwrap().to_f64_vec()?);
    assert!(losses[..6].iter().chain(&gradient[..6]).all(|v| v.is_nan()), "{losses:?} {gradient:?}");
    assert_close(&losses[6..], &[0.0, 0.0, 2f64.ln()], NEAR, "probabilities");
    assert_close(&gradient[6..], &[0.0, 0.0, -2.0], NEAR, "gradients of probabilities");
    Ok(())
}

#[test]
fn normal_losses_broadcast_as_pytorchs() -> Result<()> {
    let x = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let y = leaf(&[0.5, 1.5, 2.0], &[3]);
    let each = GaussianNllLoss { reduction: Reduction::None, ..Default::default() };
    let rows = leaf(&[0.5, 2.0], &[2, 1]);
    let expected = [-0.0965736, -0.0965736, 0.6534264, 3.4090736, 3.4090736, 4.3465738];
    gives(
        "a variance a row",
        &[&x, &rows],
        each.forward(&x, &y, &rows)?,
        &expected,
        &[&[1.0, 2.0, 6.0, 7.0, 8.75, 12.0], &[-1.5, -22.03125]],
    );
    assert_close(
        &each.forward(&x, &y, &rows.squeeze(1)?)?.to_f64_vec()?,
        &expected,
        NEAR,
        "without the axis",
    );
    let columns = leaf(&[0.5, 1.0, 2.0], &[1, 3]);
    gives(
        "a variance a column",
        &[&columns],
        each.forward(&x, &y, &columns)?,
        &[-0.0965736, 0.125, 0.5965736, 11.9034262, 6.125, 4.3465738],
        &[&[-93.5, -27.375, -10.125]],
    );
    gives(
        "inputs that broadcast",
        &[&y],
        each.forward(&x.narrow(1, 0, 1)?, &y, &Tensor::ones((2, 1), &device())?)?,
        &[0.125, 0.125, 0.5, 6.125, 3.125, 2.0],
        &[&[-14.5, -11.5, -9.0]],
    );
    assert!(each.forward(&x, &y, &columns.squeeze(0)?).is_err());
    Ok(())
}

#[test]
fn vectors_are_normalized_by_any_norm() -> Result<()> {
    let x = leaf(&[3.0, -4.0, 0.5, 1.0], &[2, 2]);
    for (p, values, gradient) in [
        (0.0, [1.5, -2.0, 0.25, 0.5], [0.5, 1.0, 1.5, 2.0]),
        (-1.0, [1.75, -2.3333333, 1.5, 3.0], [1.138889, 0.8541667, -13.0, 6.5]),
        (f64::NEG_INFINITY, [1.0, -1.3333333, 1.0, 2.0], [0.8888889, 0.6666667, -16.0, 8.0]),
        (0.5, [0.2153903, -0.2871871, 0.1715729, 0.3431457], [0.1273318, 0.0954988, -0.5340545, 0.2670273]),
    ] {
        gives(&format!("p {p}"), &[&x], F::normalize(&x, p, 1, 1e-12)?, &values, &[&gradient]);
    }
    assert!(F::normalize(&x, f64::NAN, 1, 1e-12).is_err());
    Ok(())
}

#[test]
fn a_linear_layer_takes_vectors() -> Result<()> {
    let (x, w) = (leaf(&[1.0, 2.0, 3.0, 4.0], &[2, 2]), leaf(&[5.0, 6.0], &[2]));
    gives("a vector of weights", &[&w], F::linear(&x, &w, None)?, &[17.0, 39.0], &[&[7.0, 10.0]]);
    let first = x.select(0, 0)?;
    assert_eq!(F::linear(&first, &w, None)?.dims(), [0; 0]);
    assert_eq!(F::linear(&first, &x, Some(&w))?.to_f64_vec()?, [10.0, 17.0]);
    let one = Tensor::ones((), &device())?;
    assert_eq!(F::linear(&x, &w, Some(&one))?.to_f64_vec()?, [18.0, 40.0]);
    assert_eq!(F::linear(&x.reshape([1, 2, 2])?, &w, None)?.dims(), [1, 2]);
    assert!(F::linear(&x, &w, Some(&w)).is_err());
    Ok(())
}

#[test]
fn a_dropout_of_all_gives_zeros() -> Result<()> {
    let rng = Generator::seed(1, &device());
    let x = leaf(&[1.0, -2.0, 3.0, 4.0], &[1, 2, 2]);
    let zeros = [0.0; 4];
    let all = |training: bool| -> Result<Vec<Tensor>> {
        let (image, solid) = (x.unsqueeze(-1)?, x.unsqueeze(-1)?.unsqueeze(-1)?);
        Ok(vec![
            F::dropout(&x, 1.0, training, &rng)?,
            F::dropout1d(&x, 1.0, training, &rng)?,
            F::dropout2d(&image, 1.0, training, &rng)?,
            F::dropout3d(&solid, 1.0, training, &rng)?,
            F::alpha_dropout(&x, 1.0, training, &rng)?,
            F::feature_alpha_dropout(&x, 1.0, training, &rng)?,
        ])
    };
    for y in all(true)? {
        gives("all dropped", &[&x], y, &zeros, &[&zeros]);
    }
    for y in all(false)? {
        gives("none dropped", &[&x], y, &[1.0, -2.0, 3.0, 4.0], &[&[1.0, 2.0, 3.0, 4.0]]);
    }
    type Forward = Box<dyn Fn(&Tensor) -> Result<Tensor>>;
    let layers: [Forward; 4] = {
        let (a, b) = (Dropout::new(1.0, &rng)?, Dropout2d::new(1.0, &rng)?);
        let (c, d) = (AlphaDropout::new(1.0, &rng)?, FeatureAlphaDropout::new(1.0, &rng)?);
        [
            Box::new(move |x| a.forward(x)),
            Box::new(move |x| b.forward(x)),
            Box::new(move |x| c.forward(x)),
            Box::new(move |x| d.forward(x)),
        ]
    };
    for layer in &layers {
        assert_eq!(layer(&x)?.to_f64_vec()?, zeros);
    }
    let options = AttentionOptions { dropout: Some((1.0, &rng)), ..Default::default() };
    gives("attention", &[&x], F::scaled_dot_product_attention(&x, &x, &x, options)?, &zeros, &[&zeros]);
    assert!(F::dropout(&x, 1.5, false, &rng).is_err() && F::dropout(&x, f64::NAN, true, &rng).is_err());
    Ok(())
}

/// PyTorch's kernel for images takes a size that stays, or doubles, for its own factor; those for lines and
/// volumes do not.
#[test]
fn the_nearest_by_a_factor_that_keeps_a_size() -> Result<()> {
    let nearest = InterpolateOptions::default();
    let exact = InterpolateOptions { mode: InterpolateMode::NearestExact, ..nearest };
    let (line, image, solid) = (counting(&[1, 1, 3]), counting(&[1, 1, 3, 3]), counting(&[1, 1, 3, 3, 3]));
    let of = |y: Tensor| y.to_f64_vec();
    assert_eq!(of(F::interpolate_with(&line, 1.2, nearest)?)?, [0.0, 0.0, 1.0]);
    assert_eq!(of(F::interpolate_with(&line, 2.1, nearest)?)?, [0.0, 0.0, 0.0, 1.0, 1.0, 2.0]);
    assert_eq!(of(F::interpolate_with(&line, 2.1, exact)?)?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    for options in [nearest, exact] {
        assert_eq!(of(F::interpolate_with(&image, 1.2, options)?)?, of(image.clone())?);
        let rows = F::interpolate_with(&image, [1.2, 2.1], options)?;
        assert_eq!(of(rows.select(2, 1)?)?, [3.0, 3.0, 4.0, 4.0, 5.0, 5.0]);
    }
    let tall = counting(&[1, 1, 8, 1]);
    assert_eq!(of(F::interpolate_with(&tall, [1.09, 1.0], nearest)?)?, of(tall.clone())?);
    assert_eq!(
        of(F::interpolate_with(&tall, [1.09, 1.0], exact)?)?,
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]
    );
    assert_eq!(of(F::interpolate_with(&solid, 1.2, nearest)?.i((0, 0, .., 0, 0))?)?, [0.0, 0.0, 9.0]);
    Ok(())
}

#[test]
fn convolutions_pad_by_their_mode() -> Result<()> {
    let rng = Generator::seed(1, &device());
    let x = counting(&[1, 1, 3, 4]);
    let weight = Tensor::new([[[[1.0f32, -2.0, 0.5], [0.0, 3.0, 1.0]]]], &device())?;
    let layer = |padding_mode, padding: ConvPadding<2>, stride| -> Result<Conv2d> {
        let config = ConvConfig { padding_mode, padding, stride, bias: false, ..Default::default() };
        let layer = Conv2d::with_config(1, 1, [2, 3], config, &rng)?;
        layer.weight.assign(&weight)?;
        Ok(layer)
    };
    for (mode, name, values, of_x, of_w, same) in [
        (
            PadMode::Constant(0.0),
            "",
            [0.0, 5.0, 9.0, 4.0, 20.0, 17.0, 10.0, 34.0, 25.0, 4.0, -5.0, -12.0],
            [8.0, -4.0, 10.5, -3.0, 15.5, -1.0, 18.0, 0.0, 23.0, 2.0, 25.5, 3.0],
            [306.0, 357.0, 276.0, 216.0, 249.0, 186.0],
            [17.5, 20.0, 23.5, 17.0, 27.5, 34.0, 37.5, 25.0, -11.5, -5.0, -5.5, -12.0],
        ),
        (
            PadMode::Reflect,
            ", padding_mode=reflect",
            [1.0, 2.0, 6.0, 19.0, 20.0, 24.0, 33.0, 34.0, 38.0, 15.0, 16.0, 20.0],
            [8.0, -9.0, 20.5, -3.0, 28.0, 54.0, 65.0, 30.0, 23.0, 3.0, 50.5, 3.0],
            [488.0, 522.0, 496.0, 488.0, 522.0, 496.0],
            [18.5, 20.0, 23.5, 24.0, 32.5, 34.0, 37.5, 38.0, 14.5, 16.0, 19.5, 20.0],
        ),
        (
            PadMode::Replicate,
            ", padding_mode=replicate",
            [0.0, 4.0, 9.5, 16.0, 20.0, 25.5, 30.0, 34.0, 39.5, 28.0, 32.0, 37.5],
            [8.5, -8.0, 14.5, -1.5, 20.5, -1.0, 18.0, 10.5, 74.0, 35.0, 36.5, 66.0],
            [420.0, 476.0, 502.0, 576.0, 632.0, 658.0],
            [17.5, 20.0, 23.5, 25.5, 31.5, 34.0, 37.5, 39.5, 29.5, 32.0, 35.5, 37.5],
        ),
        (
            PadMode::Circular,
            ", padding_mode=circular",
            [1.0, 0.0, 1.0, 21.0, 20.0, 21.0, 35.0, 34.0, 35.0, 1.0, 0.0, 1.0],
            [36.0, 29.0, 25.5, 58.0, 26.0, -1.0, 25.0, -2.0, 42.0, -2.0, 40.5, -4.0],
            [512.0, 590.0, 460.0, 356.0, 434.0, 304.0],
            [20.5, 20.0, 23.5, 21.0, 34.5, 34.0, 37.5, 35.0, 0.5, 0.0, 3.5, 1.0],
        ),
    ] {
        let strided = layer(mode, [1, 2].into(), [1, 2])?;
        let what = format!("{mode:?}");
        gives(&what, &[&x, &strided.weight], strided.forward(&x)?, &values, &[&of_x, &of_w]);
        assert!(format!("{strided:?}").ends_with(&format!("bias=False{name})")), "{strided:?}");
        let kept = layer(mode, ConvPadding::Same, [1, 1])?.forward(&x)?;
        assert_close(&kept.to_f64_vec()?, &same, NEAR, &what);
    }
    let wide = layer(PadMode::Reflect, 3.into(), [1, 1])?;
    assert!(wide.forward(&x).unwrap_err().to_string().contains("conv2d"));
    assert!(layer(PadMode::Constant(f64::NAN), 1.into(), [1, 1]).is_err());
    // A number other than 0, for which PyTorch has no such mode.
    let ones = layer(PadMode::Constant(1.0), [1, 2].into(), [1, 2])?.forward(&x)?;
    let padded = F::pad(&x, &[(1, 1), (2, 2)], PadMode::Constant(1.0))?;
    let plain = layer(PadMode::Constant(0.0), 0.into(), [1, 2])?.forward(&padded)?;
    assert_eq!(ones.to_f64_vec()?, plain.to_f64_vec()?);
    Ok(())
}

/// The function equals the layer, which is compared with PyTorch's.
#[test]
fn multi_head_attention_is_a_function_of_its_parameters() -> Result<()> {
    let rng = Generator::seed(3, &device());
    let (q, k) = (Tensor::randn([4, 2, 8], &rng)?, Tensor::randn([5, 2, 8], &rng)?);
    let mask = Tensor::randn([4, 5], &rng)?;
    let masks = AttentionMasks { attn_mask: Some(&mask), ..Default::default() };
    for separate in [false, true] {
        let config = MultiheadAttentionConfig {
            add_bias_kv: true,
            add_zero_attn: true,
            kdim: separate.then_some(6),
            ..Default::default()
        };
        let layer = MultiheadAttention::with_config(8, 2, config, &rng)?;
        let key = if separate { k.narrow(2, 0, 6)? } else { k.clone() };
        let bias_kv = layer.bias_kv.as_ref().map(|(a, b)| (a, b));
        let options = MultiHeadAttentionOptions {
            in_proj_bias: layer.in_proj_bias.as_ref(),
            out_proj_bias: layer.out_proj.bias.as_ref(),
            bias_kv,
            add_zero_attn: true,
            masks,
            ..Default::default()
        };
        let call = |options| {
            multi_head_attention_forward(&q, &key, &k, 2, &layer.in_proj, &layer.out_proj.weight, options)
        };
        let (y, weights) = call(options)?;
        let (expected, of_layer) = layer.forward_with_weights(&q, &key, &k, masks)?;
        assert_eq!(y.to_f64_vec()?, expected.to_f64_vec()?);
        assert_eq!(weights.unwrap().to_f64_vec()?, of_layer.to_f64_vec()?);
        let (_, weights) = call(MultiHeadAttentionOptions { average_attn_weights: false, ..options })?;
        assert_eq!(weights.unwrap().dims(), [2, 2, 4, 7]);
        let (y, none) = call(MultiHeadAttentionOptions { need_weights: false, ..options })?;
        assert!(none.is_none());
        assert_close(&y.to_f64_vec()?, &expected.to_f64_vec()?, NEAR, "without weights");
        // Gradients reach the parameters that were given.
        y.sum().backward()?;
        assert!(layer.parameters().iter().all(|parameter| parameter.grad().is_some()));
        let (dropped, _) = call(MultiHeadAttentionOptions { dropout: Some((1.0, &rng)), ..options })?;
        assert_close(&dropped.to_f64_vec()?, &[0.0; 64], NEAR, "all dropped");
    }
    let joint = |rows: usize| Ok::<_, taper::Error>(InProjection::Joint(Tensor::randn([rows, 8], &rng)?));
    let out = Tensor::randn([8, 8], &rng)?;
    let usual = MultiHeadAttentionOptions::default();
    assert!(multi_head_attention_forward(&q, &k, &k, 3, &joint(24)?, &out, usual).is_err());
    assert!(multi_head_attention_forward(&q, &k, &k, 2, &joint(16)?, &out, usual).is_err());
    let short = MultiHeadAttentionOptions { in_proj_bias: Some(&mask), ..usual };
    assert!(multi_head_attention_forward(&q, &k, &k, 2, &joint(24)?, &out, short).is_err());
    Ok(())
}

/// The squares of these gradients overflow or vanish; their norm does neither.
#[test]
fn gradients_of_any_size_are_clipped_by_their_norm() -> Result<()> {
    let pair = [leaf(&[0.0], &[1]), leaf(&[0.0, 0.0], &[2])];
    for size in [1e-30, 1e-12, 1.0, 1e12, 1e20, 1e36] {
        let of = |v: f64| Tensor::new(vec![(v * size) as f32], &device());
        pair[0].set_grad(Some(of(3.0)?));
        pair[1].set_grad(Some(Tensor::concat(&[of(4.0)?, of(0.0)?], 0)?));
        let norm = taper::optim::clip_grad_norm(&pair, 2.5 * size)?;
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-5, "{found:e} for {wanted:e}")
        };
        near(norm.to_f64_vec()?[0], 5.0 * size);
        let factor = (2.5 * size / (5.0 * size + 1e-6)).min(1.0);
        if 3.0 * size * factor > 1e-35 {
            near(pair[0].grad().unwrap().to_f64_vec()?[0], 3.0 * size * factor);
            near(pair[1].grad().unwrap().to_f64_vec()?[0], 4.0 * size * factor);
        }
    }
    Ok(())
}
