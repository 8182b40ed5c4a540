//! Activations: functions of one element with settings, and those along an axis (softmax and its kin).

use tensor_core::{Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, one},
    value::Value,
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Celu", 12, |c| one(c.tensor(0)?.celu(c.number_or("alpha", 1.0)?))),
    ("", "Elu", 1, |c| one(c.tensor(0)?.elu(c.number_or("alpha", 1.0)?))),
    ("", "Gelu", 20, gelu),
    ("", "HardSigmoid", 1, hard_sigmoid),
    ("", "HardSwish", 14, |c| one(c.tensor(0)?.hardswish())),
    ("", "Hardmax", 1, |c| one(along_rest(c, hardmax)?)),
    ("", "Hardmax", 13, |c| one(along_axis(c, hardmax)?)),
    ("", "LeakyRelu", 1, |c| one(c.tensor(0)?.leaky_relu(c.number_or("alpha", 0.01)?))),
    ("", "LogSoftmax", 1, |c| one(along_rest(c, |x, axis| x.log_softmax(axis))?)),
    ("", "LogSoftmax", 13, |c| one(along_axis(c, |x, axis| x.log_softmax(axis))?)),
    ("", "Mish", 18, |c| one(c.tensor(0)?.mish())),
    ("", "PRelu", 1, prelu),
    ("", "Relu", 1, |c| one(c.tensor(0)?.relu())),
    ("", "Selu", 1, selu),
    ("", "Shrink", 9, shrink),
    ("", "Sigmoid", 1, |c| one(c.tensor(0)?.sigmoid())),
    ("", "Softmax", 1, |c| one(along_rest(c, |x, axis| x.softmax(axis))?)),
    ("", "Softmax", 13, |c| one(along_axis(c, |x, axis| x.softmax(axis))?)),
    ("", "Softplus", 1, |c| one(c.tensor(0)?.softplus_with(1.0, f64::INFINITY))),
    ("", "Softsign", 1, |c| one(c.tensor(0)?.softsign())),
    ("", "SwiGLU", 28, swiglu),
    ("", "Swish", 24, |c| one(swish(c)?)),
    ("", "ThresholdedRelu", 10, |c| one(c.tensor(0)?.threshold(c.number_or("alpha", 1.0)?, 0.0))),
];

fn gelu(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(match c.text_or("approximate", "none")? {
        "none" => x.gelu(),
        "tanh" => x.gelu_tanh(),
        other => return Err(c.error(format!("approximate \"{other}\"; none and tanh are known"))),
    })
}

fn hard_sigmoid(c: &Context<'_>) -> Result<Vec<Value>> {
    one(hard_sigmoid_of(&c.tensor(0)?, c.number_or("alpha", 0.2)?, c.number_or("beta", 0.5)?))
}

/// max(0, min(1, α·x + β)).
pub(crate) fn hard_sigmoid_of(x: &Tensor, alpha: f64, beta: f64) -> Tensor {
    x.mul_scalar(alpha).add_scalar(beta).clamp(0.0, 1.0)
}

fn selu(c: &Context<'_>) -> Result<Vec<Value>> {
    let alpha = c.number_or("alpha", 1.673_263_192_176_818_8)?;
    let gamma = c.number_or("gamma", 1.050_701_022_148_132_3)?;
    one(c.tensor(0)?.elu(alpha).mul_scalar(gamma))
}

/// x·σ(α·x).
fn swish(c: &Context<'_>) -> Result<Tensor> {
    let x = c.tensor(0)?;
    x.mul(&x.mul_scalar(c.number_or("alpha", 1.0)?).sigmoid())
}

/// swish(gate)·x; both have one shape.
fn swiglu(c: &Context<'_>) -> Result<Vec<Value>> {
    let (gate, x) = (c.tensor(0)?, c.tensor(1)?);
    if gate.shape() != x.shape() {
        return Err(c.error(format!("a gate {} for an input {}", gate.shape(), x.shape())));
    }
    one(swish(c)?.mul(&x)?)
}

/// x + bias below −λ, x − bias above λ, 0 between.
fn shrink(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, lambda, bias) = (c.tensor(0)?, c.number_or("lambd", 0.5)?, c.number_or("bias", 0.0)?);
    let zeros = x.zeros_like();
    let below = x.lt_scalar(-lambda).where_cond(&x.add_scalar(bias), &zeros)?;
    one(x.gt_scalar(lambda).where_cond(&x.sub_scalar(bias), &below)?)
}

/// x, or slope·x where x is negative; the slope broadcasts to x.
fn prelu(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, mut slope) = (c.tensor(0)?, c.tensor(1)?);
    // Version 6 has one slope for each channel.
    if c.version() < 7 && slope.rank() == 1 && x.rank() > 2 {
        for _ in 2..x.rank() {
            slope = slope.unsqueeze(-1)?;
        }
    }
    one(x.lt_scalar(0).where_cond(&x.mul(&slope)?, &x)?)
}

fn along_axis(c: &Context<'_>, f: impl FnOnce(&Tensor, usize) -> Result<Tensor>) -> Result<Tensor> {
    let x = c.tensor(0)?;
    f(&x, c.axis_or("axis", -1, x.rank())?)
}

/// Before version 13 all axes from one on are one.
fn along_rest(c: &Context<'_>, f: impl FnOnce(&Tensor, usize) -> Result<Tensor>) -> Result<Tensor> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 1, x.rank())?;
    let (rows, rest) = x.dims().split_at(axis);
    let flat = x.reshape([rows.iter().product::<usize>(), rest.iter().product()])?;
    f(&flat, 1)?.reshape(x.dims())
}

/// 1 at the first of the greatest along the axis, and 0 elsewhere.
fn hardmax(x: &Tensor, axis: usize) -> Result<Tensor> {
    let greatest = x.argmax_axis(axis, true)?;
    x.zeros_like().scatter(axis, &greatest, 1.0)
}
