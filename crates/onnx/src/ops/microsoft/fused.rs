//! Operators of ONNX Runtime's own domain that exported models have.

use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{
        Row, all,
        layers::{activation::hard_sigmoid_of, conv::convolution},
        one,
        quantized::through_u8,
        recurrent::{Cell, Direction, check_weights, directions, run},
    },
    value::Value,
};

const DOMAIN: &str = "com.microsoft";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "BiasGelu", 1, |c| one(c.tensor(0)?.add(&c.tensor(1)?)?.gelu())),
    (DOMAIN, "DynamicQuantizeLSTM", 1, dynamic_lstm),
    (DOMAIN, "FastGelu", 1, fast_gelu),
    (DOMAIN, "FusedConv", 1, fused_conv),
    (DOMAIN, "FusedMatMul", 1, fused_matmul),
    (DOMAIN, "Gelu", 1, |c| one(c.tensor(0)?.gelu())),
    (DOMAIN, "QuickGelu", 1, quick_gelu),
    (DOMAIN, "SkipLayerNormalization", 1, skip_layer_norm),
    (DOMAIN, "SkipSimplifiedLayerNormalization", 1, skip_rms_norm),
    ("", "SimplifiedLayerNormalization", 1, rms_norm),
];

/// GELU by tanh, of x with a bias added.
fn fast_gelu(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(match c.optional_tensor(1)? {
        Some(bias) => x.add(&bias)?.gelu_tanh(),
        None => x.gelu_tanh(),
    })
}

/// x·sigmoid(αx).
fn quick_gelu(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(x.mul(&x.mul_scalar(c.number_or("alpha", 1.702)?).sigmoid())?)
}

/// A convolution, to which a tensor of the result's shape may be added, and an activation of the sum.
fn fused_conv(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut y = convolution(c, &c.tensor(0)?, &c.tensor(1)?, c.optional_tensor(2)?.as_ref())?;
    if let Some(more) = c.optional_tensor(3)? {
        if more.shape() != y.shape() {
            return Err(c.error(format!("a sum {} for a convolution {}", more.shape(), y.shape())));
        }
        y = y.add(&more)?;
    }
    one(activated(c, y)?)
}

/// The activation that the attributes `activation` and `activation_params` name; none without them.
fn activated(c: &Context<'_>, x: Tensor) -> Result<Tensor> {
    let name = c.text_or("activation", "")?;
    let settings = c.numbers("activation_params")?.unwrap_or_default();
    Ok(match (name, settings.as_slice()) {
        ("", _) => x,
        ("Relu", _) => x.relu(),
        ("Sigmoid", _) => x.sigmoid(),
        ("Silu", _) => x.silu(),
        ("Tanh", _) => x.tanh(),
        ("LeakyRelu", &[alpha]) => x.leaky_relu(alpha),
        ("Clip", &[low, high]) => x.clamp(low, high),
        ("HardSigmoid", &[alpha, beta]) => hard_sigmoid_of(&x, alpha, beta),
        ("LeakyRelu" | "Clip" | "HardSigmoid", other) => {
            let wanted = if name == "LeakyRelu" { "one number" } else { "two numbers" };
            return Err(c.error(format!("{name} needs {wanted} in activation_params, not {other:?}")));
        }
        (other, _) => {
            return Err(c.error(format!(
                "activation \"{other}\"; Relu, Sigmoid, Silu, Tanh, LeakyRelu, Clip and HardSigmoid are known"
            )));
        }
    })
}

/// α·A·B, with A and B transposed if asked, in their last axes or with their batch axes.
fn fused_matmul(c: &Context<'_>) -> Result<Vec<Value>> {
    let turned = |index: usize, name: &str, batch: &str| -> Result<Tensor> {
        let mut x = c.tensor(index)?;
        let rank = x.rank();
        if c.flag(batch, false)? && rank > 2 {
            // The first axis is moved before the last.
            x = x.movedim(0, rank - 2)?;
        }
        if c.flag(name, false)? && rank > 1 { x.transpose(-1, -2) } else { Ok(x) }
    };
    let (a, b) = (turned(0, "transA", "transBatchA")?, turned(1, "transB", "transBatchB")?);
    let product = a.matmul(&b)?;
    let alpha = c.number_or("alpha", 1.0)?;
    one(if alpha == 1.0 { product } else { product.mul_scalar(alpha) })
}

/// The sum of the input, the skip and a bias at place `bias`.
fn skipped(c: &Context<'_>, bias: usize) -> Result<Tensor> {
    let sum = c.tensor(0)?.add(&c.tensor(1)?)?;
    match c.optional_tensor(bias)? {
        Some(bias) => sum.add(&bias),
        None => Ok(sum),
    }
}

fn with_sum(c: &Context<'_>, y: Tensor, sum: Tensor) -> Result<Vec<Value>> {
    // The second and third outputs are for training alone.
    if c.output_count() < 4 {
        return one(y);
    }
    let zero = Tensor::zeros([1], (y.dtype(), c.device()))?;
    all([y, zero.clone(), zero, sum])
}

/// Layer norm of the sum of two inputs; the sum is the fourth output.
fn skip_layer_norm(c: &Context<'_>) -> Result<Vec<Value>> {
    let sum = skipped(c, 4)?;
    let (weight, bias) = (c.tensor(2)?, c.optional_tensor(3)?);
    let eps = c.number_or("epsilon", 1e-12)?;
    let y = nn::functional::layer_norm(&sum, weight.shape(), Some(&weight), bias.as_ref(), eps)?;
    with_sum(c, y, sum)
}

fn skip_rms_norm(c: &Context<'_>) -> Result<Vec<Value>> {
    let sum = skipped(c, 3)?;
    let weight = c.tensor(2)?;
    let eps = c.number_or("epsilon", 1e-12)?;
    let y = nn::functional::rms_norm(&sum, weight.shape(), Some(&weight), Some(eps))?;
    with_sum(c, y, sum)
}

fn rms_norm(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, weight) = (c.tensor(0)?, c.tensor(1)?);
    one(nn::functional::rms_norm(&x, weight.shape(), Some(&weight), Some(c.number_or("epsilon", 1e-5)?))?)
}

/// An LSTM whose weights are integers with scales; inputs and states are quantized to u8 before each
/// product, which is computed here on the numbers that they stand for.
fn dynamic_lstm(c: &Context<'_>) -> Result<Vec<Value>> {
    check_weights(c)?;
    let x = c.tensor(0)?;
    // Weights are [directions, input, 4·H].
    let weight = |at: usize, scale: usize, zero: usize| -> Result<Tensor> {
        let (w, scale, zero) = (c.tensor(at)?, c.tensor(scale)?, c.tensor(zero)?);
        let by_direction = |t: &Tensor| -> Result<Tensor> {
            let per = t.numel() / w.dims()[0].max(1);
            t.to_dtype(DType::F32)?.reshape([w.dims()[0], 1, per])
        };
        w.to_dtype(DType::F32)?.sub(&by_direction(&zero)?)?.mul(&by_direction(&scale)?)?.transpose(1, 2)
    };
    let (w, r) = (weight(1, 8, 9)?, weight(2, 10, 11)?);
    let x = through_u8(&x)?;
    let (b, h, s, p) =
        (c.optional_tensor(3)?, c.optional_tensor(5)?, c.optional_tensor(6)?, c.optional_tensor(7)?);
    let mut list = Vec::new();
    for (index, &reverse) in directions(c)?.iter().enumerate() {
        let pick = |t: &Option<Tensor>| t.as_ref().map(|t| t.select(0, index)).transpose();
        let biases = match pick(&b)? {
            Some(both) => {
                let half = both.dims()[0] / 2;
                Some((both.narrow(0, 0, half)?, both.narrow(0, half, half)?))
            }
            None => None,
        };
        list.push(Direction {
            of_input: w.select(0, index)?,
            of_state: r.select(0, index)?,
            biases,
            peepholes: pick(&p)?,
            hidden: pick(&h)?,
            cell: pick(&s)?,
            reverse,
            quantized_state: true,
        });
    }
    let (y, h, s) = run(c, Cell::Lstm, &x, c.optional_tensor(4)?, &list)?;
    all([y, h].into_iter().chain(s))
}
