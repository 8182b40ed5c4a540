//! Normalization.

use nn::functional::{group_norm, instance_norm, layer_norm, local_response_norm, rms_norm};
use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, all, one},
    value::Value,
};

pub(crate) const TABLE: &[Row] = &[
    ("", "BatchNormalization", 1, batch),
    ("", "GroupNormalization", 18, group),
    ("", "InstanceNormalization", 1, instance),
    ("", "LRN", 1, local_response),
    ("", "LayerNormalization", 17, layer),
    ("", "LpNormalization", 1, lp),
    ("", "MeanVarianceNormalization", 9, mean_variance),
    ("", "RMSNormalization", 23, rms),
];

/// `[C]` along the second axis of a tensor with this many axes.
fn by_channel(x: &Tensor, rank: usize) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[rank.min(2) - 1] = x.numel();
    x.reshape(shape)
}

/// (x − mean)·scale/√(variance + ε) + bias; in training by the batch's own mean and variance, which go into
/// the running ones.
fn batch(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (scale, bias, mean, variance) = (c.tensor(1)?, c.tensor(2)?, c.tensor(3)?, c.tensor(4)?);
    let (eps, momentum) = (c.number_or("epsilon", 1e-5)?, c.number_or("momentum", 0.9)?);
    if x.rank() < 2 {
        return Err(c.error(format!("an input {} without channels", x.shape())));
    }
    let line = |t: &Tensor| by_channel(t, x.rank());
    let normalized = |mean: &Tensor, variance: &Tensor| -> Result<Tensor> {
        // One multiplication and one addition for each element.
        let factor = scale.to_dtype(variance.dtype())?.div(&variance.add_scalar(eps).sqrt())?;
        let shift = bias.to_dtype(factor.dtype())?.sub(&mean.mul(&factor)?)?;
        x.to_dtype(factor.dtype().promote(x.dtype()))?
            .mul(&line(&factor)?)?
            .add(&line(&shift)?)?
            .to_dtype(x.dtype())
    };
    if !c.flag("training_mode", false)? {
        return one(normalized(&mean, &variance)?);
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let own_mean = x.mean_axis(axes.as_slice(), false)?;
    let own_variance = x.var_axis(axes, 0.0, false)?;
    let moved = |old: &Tensor, new: &Tensor| old.mul_scalar(momentum).add(&new.mul_scalar(1.0 - momentum));
    all([normalized(&own_mean, &own_variance)?, moved(&mean, &own_mean)?, moved(&variance, &own_variance)?])
}

fn instance(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let eps = c.number_or("epsilon", 1e-5)?;
    one(instance_norm(&x, None, None, Some(&scale), Some(&bias), true, 0.1, eps)?)
}

/// From version 21 on there is a scale and a bias for each channel, before one for each group.
fn group(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let groups = usize::try_from(c.int_or("num_groups", 0)?).unwrap_or(0);
    let eps = c.number_or("epsilon", 1e-5)?;
    let channels = x.dims().get(1).copied().unwrap_or(0);
    let whole = |t: Tensor| {
        if t.numel() == channels || groups == 0 { Ok(t) } else { t.repeat_interleave(channels / groups, 0) }
    };
    one(group_norm(&x, groups, Some(&whole(scale)?), Some(&whole(bias)?), eps)?)
}

/// The axes from one on.
fn trailing(c: &Context<'_>, x: &Tensor) -> Result<Vec<usize>> {
    Ok((c.axis_or("axis", -1, x.rank())?..x.rank()).collect())
}

fn layer(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (c.tensor(0)?, c.tensor(1)?, c.optional_tensor(2)?);
    let eps = c.number_or("epsilon", 1e-5)?;
    let axes = trailing(c, &x)?;
    let sizes = &x.dims()[axes[0]..];
    let fits = |t: &Tensor| t.dims() == sizes && t.dtype() == x.dtype();
    let simple = fits(&scale) && bias.as_ref().is_none_or(fits);
    let mut outputs = vec![if simple {
        layer_norm(&x, sizes, Some(&scale), bias.as_ref(), eps)?
    } else {
        let y = layer_norm(&x, sizes, None, None, eps)?.mul(&scale)?;
        match bias {
            Some(bias) => y.add(&bias)?,
            None => y,
        }
    }];
    if c.output_count() > 1 {
        let wide = x.to_dtype(x.dtype().promote(DType::F32))?;
        let mean = wide.mean_axis(axes.as_slice(), true)?;
        let variance = wide.var_axis(axes, 0.0, true)?;
        outputs.extend([mean, variance.add_scalar(eps).rsqrt()]);
    }
    all(outputs)
}

fn rms(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.tensor(0)?, c.tensor(1)?);
    let first = trailing(c, &x)?[0];
    let normalized = rms_norm(&x, &x.dims()[first..], None, Some(c.number_or("epsilon", 1e-5)?))?;
    one(normalized.mul(&scale)?)
}

fn local_response(c: &Context<'_>) -> Result<Vec<Value>> {
    let size = usize::try_from(c.int_or("size", 1)?).unwrap_or(0);
    let (alpha, beta) = (c.number_or("alpha", 1e-4)?, c.number_or("beta", 0.75)?);
    let (x, bias) = (c.tensor(0)?, c.number_or("bias", 1.0)?);
    if size % 2 == 1 {
        return one(local_response_norm(&x, size, alpha, beta, bias)?);
    }
    // ONNX begins ⌊(n − 1)/2⌋ channels before, PyTorch ⌊n/2⌋.
    if size == 0 || x.rank() < 2 {
        return Err(c.error(format!("windows of {size} channels over {}", x.shape())));
    }
    let mut padding = vec![(0, 0); x.rank()];
    padding[1] = ((size - 1) / 2, size / 2);
    let sums = x.square().pad(&padding, 0.0)?.windows(1, size, 1, 1)?.sum_axis(x.rank(), false)?;
    one(x.div(&sums.mul_scalar(alpha / size as f64).add_scalar(bias).powf(beta))?)
}

/// (x − mean)/√variance over axes.
fn mean_variance(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let list = c.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = list.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<_>>>()?;
    let centred = x.sub(&x.mean_axis(axes.as_slice(), true)?)?;
    let deviation = x.var_axis(axes, 0.0, true)?.sqrt();
    one(centred.div(&deviation.add_scalar(1e-9))?)
}

fn lp(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", -1, x.rank())?;
    let norm = x.vector_norm(c.int_or("p", 2)? as f64, axis, true)?;
    let zero = norm.eq_scalar(0.0);
    one(x.div(&norm.masked_fill(&zero, 1.0)?)?)
}
