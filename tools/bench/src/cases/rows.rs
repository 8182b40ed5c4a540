//! Functions that normalise rows: softmax, log-softmax, layer norm, forward and backward. Memory is the
//! limit: the input is read once, and the result is written once.

use taper::{Tensor, prelude::TensorGrad};

use super::{one, pair};
use crate::{
    Result,
    case::{Case, Inputs},
    check::{all, host, line, lines, part},
};

const EPSILON: f64 = 1e-5;

type Build = fn(&Tensor) -> taper::Result<Tensor>;
/// A whole line of the result, from the whole line of the input.
type Forward = fn(&[f64]) -> Vec<f64>;
/// The gradient of `Σ w f(x)` with respect to a line x, from the line x and the line w.
type Backward = fn(&[f64], &[f64]) -> Vec<f64>;

pub(super) fn listed() -> Vec<Case> {
    vec![
        forward("softmax_4096x1000", [4096, 1000, 1], |x| x.softmax(-1), softmax),
        forward("layer_norm_4096x1024", [4096, 1024, 1], layer_norm, normalised),
    ]
}

pub(super) fn more() -> Vec<Case> {
    vec![
        forward("more_log_softmax_4096x1000", [4096, 1000, 1], |x| x.log_softmax(-1), log_softmax),
        forward("more_softmax_axis1_64x128x512", [64, 128, 512], |x| x.softmax(1), softmax),
        backward("more_softmax_fwd_bwd", [4096, 1000], |x| x.softmax(-1), softmax, softmax_gradient),
        backward("more_layer_norm_fwd_bwd", [4096, 1024], layer_norm, normalised, normalised_gradient),
    ]
}

/// Layer norm over the last axis without weights, as a user writes it who finds no such layer.
fn layer_norm(x: &Tensor) -> taper::Result<Tensor> {
    let centred = x.sub(&x.mean_axis(-1, true)?)?;
    let variance = centred.mul(&centred)?.mean_axis(-1, true)?;
    centred.mul(&variance.add_scalar(EPSILON).rsqrt())
}

fn forward(name: &str, [outer, n, inner]: [usize; 3], build: Build, reference: Forward) -> Case {
    Case::new(name, move |inputs| {
        let x = inputs.rand(if inner == 1 { vec![outer, n] } else { vec![outer, n, inner] })?;
        let input = x.clone();
        one(
            move || build(&input),
            move |result| {
                let x = host(&x)?;
                lines(result, [outer, n, inner], 1e-5, |o, i| reference(&line(&x, n, inner, o, i)))
            },
        )
    })
    .elements(2 * outer * n * inner)
}

/// The sum of the result weighted at random, and the gradient of the input.
fn backward(name: &str, [rows, n]: [usize; 2], build: Build, reference: Forward, gradient: Backward) -> Case {
    let make = move |inputs: &Inputs| {
        let x = inputs.rand([rows, n])?.requires_grad();
        let weight = inputs.rand([rows, n])?;
        let (input, factor) = (x.clone(), weight.clone());
        let call = move || {
            input.zero_grad();
            let loss = build(&input)?.mul(&factor)?.sum();
            loss.backward()?;
            evaluated(&loss, &input)
        };
        pair(call, move |results, _| {
            let (x, weight) = (host(&x)?, host(&weight)?);
            let row = |values: &[f32], o| line(values, n, 1, o, 0);
            let loss: f64 = (0..rows)
                .map(|o| reference(&row(&x, o)).iter().zip(row(&weight, o)).map(|(y, w)| y * w).sum::<f64>())
                .sum();
            // The rows of layer norm cancel in the sum, so the result is small compared with the terms.
            let magnitude = loss.abs().max((rows as f64 * n as f64).sqrt());
            let relative = part(&results[0].device(), 1e-4);
            let got = f64::from(results[0].item::<f32>()?);
            if (got - loss).abs() > relative * magnitude {
                return Err(format!("wrong result: the loss is {got}, expected {loss}").into());
            }
            lines(&results[1], [rows, n, 1], 2e-5, |o, _| gradient(&row(&x, o), &row(&weight, o)))
        })
    };
    // Forward reads x and w; backward reads both again and writes the gradient.
    Case::new(name, make).elements(5 * rows * n)
}

/// The loss and the gradient of a leaf, computed together, as an optimizer's step does.
pub(super) fn evaluated(loss: &Tensor, leaf: &Tensor) -> taper::Result<Vec<Tensor>> {
    let missing = || taper::Error::invalid("bench", "backward left no gradient");
    let gradient = leaf.grad().ok_or_else(missing)?;
    taper::eval_all(&[loss, &gradient])?;
    Ok(vec![loss.detach(), gradient])
}

pub(super) fn softmax(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::MIN, f64::max);
    let exp: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.into_iter().map(|e| e / sum).collect()
}

fn log_softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x - sum.ln()).collect()
}

fn softmax_gradient(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let p = softmax(x);
    let mean: f64 = p.iter().zip(weight).map(|(p, w)| p * w).sum();
    p.iter().zip(weight).map(|(p, w)| p * (w - mean)).collect()
}

/// The mean of a line and one over its standard deviation.
fn moments(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

fn normalised(x: &[f64]) -> Vec<f64> {
    let (mean, scale) = moments(x);
    x.iter().map(|x| (x - mean) * scale).collect()
}

fn normalised_gradient(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let n = x.len() as f64;
    let (_, scale) = moments(x);
    let y = normalised(x);
    let mean = weight.iter().sum::<f64>() / n;
    let along = y.iter().zip(weight).map(|(y, w)| y * w).sum::<f64>() / n;
    y.iter().zip(weight).map(|(y, w)| scale * (w - mean - y * along)).collect()
}

/// Cross-entropy of random logits, and its gradient.
pub(super) fn cross_entropy() -> Case {
    const SHAPE: [usize; 2] = [1024, 1000];
    Case::new("more_cross_entropy_fwd_bwd_1024x1000", |inputs| {
        let logits = inputs.rand(SHAPE)?.requires_grad();
        let labels = inputs.indices(SHAPE[1], SHAPE[0])?;
        let (x, targets) = (logits.clone(), labels.clone());
        let call = move || {
            x.zero_grad();
            let loss = taper::nn::cross_entropy(&x, &targets)?;
            loss.backward()?;
            evaluated(&loss, &x)
        };
        pair(call, move |results, _| -> Result<()> {
            let (x, labels) = (host(&logits)?, labels.to_vec::<i32>()?);
            let [rows, n] = SHAPE;
            let row = |o| line(&x, n, 1, o, 0);
            let label = |o: usize| labels[o] as usize;
            let loss = (0..rows).map(|o| -log_softmax(&row(o))[label(o)]).sum::<f64>() / rows as f64;
            let relative = part(&results[0].device(), 1e-5);
            all("loss", &host(&results[0])?, &[loss], relative)?;
            lines(&results[1], [rows, n, 1], 1e-5, |o, _| {
                let mut gradient = softmax(&row(o));
                gradient[label(o)] -= 1.0;
                gradient.iter().map(|g| g / rows as f64).collect()
            })
        })
    })
    // The logits are read forward and backward, the gradient is written.
    .elements(3 * SHAPE[0] * SHAPE[1])
}
