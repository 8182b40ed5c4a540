//! Normalization: layer, root-mean-square, group, batch and instance norm. Along rows, the scheduler makes
//! one kernel of each.

use autograd::{Function, apply};
use tensor_core::{
    Argument, DType, Error, Result, Shape, Tensor, autocast, caller_line, is_grad_enabled, traced,
};

use super::conv::alike;

/// Layer normalization: (x − mean) / √(variance + eps) · weight + bias over the last axes, which have the
/// sizes `normalized_shape`, as `weight` and `bias` do. Half types are computed in f32.
/// `torch.nn.functional.layer_norm`.
///
/// As in PyTorch, a row whose squares overflow (1e19 in f32) gives 0; so it is with the other normalizations.
/// With an `eps` of 0, rows of any size have the right result, except in [`batch_norm`].
///
/// ```
/// use nn::functional::layer_norm;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([[1.0f32, 3.0], [10.0, 30.0]], &backend_cpu::cpu())?;
/// let y = layer_norm(&x, [2], None, None, 0.0)?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// An input whose last axes have other sizes, a weight or bias of another shape, dtype or device, a dtype
/// that is not floating-point.
#[track_caller]
pub fn layer_norm(
    input: &Tensor,
    normalized_shape: impl Into<Shape>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "layer_norm";
    let cast = autocast::cast(OP, [input], [weight, bias])?;
    let ([input], [weight, bias]) = cast.tensors();
    let sizes = normalized_shape.into();
    check_trailing(OP, input, &sizes, &[weight, bias])?;
    let rows = rows(input, sizes.rank())?;
    let (row_weight, row_bias) = (along_rows(weight)?, along_rows(bias)?);
    let normal = standardized(&rows, &[rows.rank() - 1], eps)?;
    let out = affine(&normal, input, row_weight.as_ref(), row_bias.as_ref())?;
    let axis = -(sizes.rank() as i64);
    Ok(traced(OP, [Some(input), weight, bias], out, || {
        vec![("axis", Argument::Int(axis)), ("epsilon", Argument::Float(eps))]
    }))
}

/// Root-mean-square normalization: x / √(mean of x² + eps) · weight over the last axes, which have the sizes
/// `normalized_shape`, as `weight` does. An `eps` of `None` is the machine epsilon of the dtype. Half types
/// are computed in f32. `torch.nn.functional.rms_norm`.
///
/// Zhang and Sennrich: Root mean square layer normalization (2019).
///
/// # Errors
/// As [`layer_norm`].
#[track_caller]
pub fn rms_norm(
    input: &Tensor,
    normalized_shape: impl Into<Shape>,
    weight: Option<&Tensor>,
    eps: Option<f64>,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "rms_norm";
    let cast = autocast::cast(OP, [input], [weight])?;
    let ([input], [weight]) = cast.tensors();
    let sizes = normalized_shape.into();
    check_trailing(OP, input, &sizes, &[weight])?;
    let rows = rows(input, sizes.rank())?;
    let eps = eps.unwrap_or(match rows.dtype().size() {
        8 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    });
    let normal = match hides_underflow(&rows, eps) {
        true => rows.mul(&rows.powi(2).mean_axis(-1, true)?.add_scalar(eps).rsqrt())?,
        false => over_root_of_squares(&rows, &[rows.rank() - 1], eps)?,
    };
    let out = affine(&normal, input, along_rows(weight)?.as_ref(), None)?;
    let axis = -(sizes.rank() as i64);
    Ok(traced(OP, [Some(input), weight], out, || {
        vec![("axis", Argument::Int(axis)), ("epsilon", Argument::Float(eps))]
    }))
}

/// Group normalization: normalizes `groups` groups of channels of `[N, C, …]`, each with all its elements,
/// as [`layer_norm`] does; `weight` and `bias` are `[C]`. `torch.nn.functional.group_norm`.
///
/// Wu and He: Group normalization (2018).
///
/// # Errors
/// An input without channels, groups that do not divide them, a weight or bias of another shape, dtype or
/// device, a dtype that is not floating-point.
#[track_caller]
pub fn group_norm(
    input: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "group_norm";
    let cast = autocast::cast(OP, [input], [weight, bias])?;
    let ([input], [weight, bias]) = cast.tensors();
    let channels = check_channels(OP, input, &[weight, bias])?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide the {channels} channels of {}", input.shape());
        return Err(Error::invalid(OP, message));
    }
    let out = normalized_groups(input, groups, weight, bias, eps)?;
    Ok(traced(OP, [Some(input), weight, bias], out, || {
        vec![("num_groups", Argument::Int(groups as i64)), ("epsilon", Argument::Float(eps))]
    }))
}

/// [`group_norm`] of checked arguments.
#[track_caller]
fn normalized_groups(
    input: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let channels = input.dims()[1];
    let wide = input.to_dtype(input.dtype().compute())?;
    let (along, per) = (channels / groups, input.dims()[2..].iter().product::<usize>());
    // Channels keep a separate axis, so that weights broadcast and everything is one row kernel.
    let grouped = wide.reshape([input.dims()[0], groups, along, per])?;
    let is_row = along * per <= input.device().info().limits.max_row;
    // With gradients, sums over each channel serve the gradients of both the weights and the input.
    if per >= SUM_FIRST_MIN_ELEMENTS && (grouped.is_tracked() || !is_row) && hides_underflow(&wide, eps) {
        let (weight, bias) = (along_channels(weight, input)?, along_channels(bias, input)?);
        let [mean, variance] = group_moments(&wide, groups)?;
        let factor = scale(&variance, eps, weight.as_ref())?;
        return affine(&wide.sub(&mean)?.mul(&factor)?, input, None, bias.as_ref());
    }
    let of_groups = |parameter: Option<&Tensor>| {
        parameter.map(|parameter| parameter.reshape([groups, along, 1])).transpose()
    };
    let (weight, bias) = (of_groups(weight)?, of_groups(bias)?);
    let normal = standardized(&grouped, &[2, 3], eps)?;
    affine(&normal, input, weight.as_ref(), bias.as_ref())
}

/// Batch normalization: normalizes each channel of `[N, C, …]` by its mean and variance, which are those of
/// the batch while `training` or without running statistics, and the running ones otherwise. While training,
/// the running statistics, cells of shape `[C]`, are updated: running ← (1 − momentum)·running +
/// momentum·batch, with the unbiased variance. They have no gradients. `weight` and `bias` are `[C]`.
/// `torch.nn.functional.batch_norm`.
///
/// Ioffe and Szegedy: Batch normalization (2015).
///
/// # Errors
/// An input without channels, a single value for each channel while training, a running mean without a
/// running variance or the reverse, weights or statistics of another shape, dtype or device. Nothing has
/// changed then.
#[track_caller]
#[allow(clippy::too_many_arguments)] // PyTorch's
pub fn batch_norm(
    input: &Tensor,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor> {
    let running = running_pair("batch_norm", running_mean, running_var)?;
    let moved = Momentum::Constant(momentum);
    batch_norm_by("batch_norm", input, running, [weight, bias], training, moved, eps)
}

/// The weight of a batch in the running statistics.
pub(crate) enum Momentum<'a> {
    /// This weight.
    Constant(f64),
    /// 1 / n for the n-th batch, a 0-d tensor: the average of all batches.
    Average(&'a Tensor),
}

impl Momentum<'_> {
    /// (1 − m)·running + m·batch.
    #[track_caller]
    fn step(&self, running: &Tensor, batch: &Tensor) -> Result<Tensor> {
        let distance = batch.to_dtype(running.dtype())?.sub(running)?;
        let step = match self {
            Momentum::Constant(share) => distance.mul_scalar(*share),
            Momentum::Average(count) => distance.div(&count.to_dtype(running.dtype())?)?,
        };
        running.add(&step)
    }
}

#[track_caller]
fn running_pair<'a>(
    op: &'static str,
    mean: Option<&'a Tensor>,
    var: Option<&'a Tensor>,
) -> Result<Option<[&'a Tensor; 2]>> {
    match (mean, var) {
        (Some(mean), Some(var)) => Ok(Some([mean, var])),
        (None, None) => Ok(None),
        _ => Err(Error::invalid(op, "a running mean goes with a running variance: give both or neither")),
    }
}

#[track_caller]
pub(crate) fn batch_norm_by(
    op: &'static str,
    input: &Tensor,
    running: Option<[&Tensor; 2]>,
    [weight, bias]: [Option<&Tensor>; 2],
    training: bool,
    momentum: Momentum<'_>,
    eps: f64,
) -> Result<Tensor> {
    let _line = caller_line();
    let (dtype, _as_one) = (input.dtype(), autocast::as_one());
    let cast = of_one_dtype(input, [weight, bias])?;
    let (input, weight, bias) = match &cast {
        Some((input, [weight, bias])) => (input, weight.as_ref(), bias.as_ref()),
        None => (input, weight, bias),
    };
    let channels = check_channels(op, input, &[weight, bias])?;
    for statistic in running.iter().flatten() {
        check_along_channels(op, statistic, channels)?;
        if statistic.device() != input.device() {
            alike(op, input, statistic)?;
        }
    }
    let wide = input.to_dtype(input.dtype().compute())?;
    // Both are `[C]`: the scheduler then computes them, and what follows, in one kernel.
    let (mean, var) = match running {
        Some([mean, var]) if !training => {
            (mean.detach().to_dtype(wide.dtype())?, var.detach().to_dtype(wide.dtype())?)
        }
        _ => {
            let count = input.numel().checked_div(channels).unwrap_or(0);
            if count < 2 {
                let mend = match running {
                    Some(_) => "larger batches, or call .eval() on the model to use the running statistics",
                    None => "larger batches, or track running statistics",
                };
                let message = format!(
                    "an input of shape {} has {count} value for each channel, whose variance is undefined: use {mend}",
                    input.shape()
                );
                return Err(Error::invalid(op, message));
            }
            let [mean, var] = batch_moments(&wide.detach())?;
            if let Some([running_mean, running_var]) = running
                && training
            {
                let unbiased = count as f64 / (count as f64 - 1.0);
                let next_mean = momentum.step(&running_mean.detach(), &mean)?;
                let next_var = momentum.step(&running_var.detach(), &var.mul_scalar(unbiased))?;
                running_mean.assign(&next_mean)?;
                running_var.assign(&next_var)?;
            }
            let wide_parameter =
                |parameter: Option<&Tensor>| parameter.map(|p| p.to_dtype(wide.dtype())).transpose();
            let parameters = [wide_parameter(weight)?, wide_parameter(bias)?];
            let by_batch = ByBatch { eps, weight: weight.is_some(), bias: bias.is_some() };
            let inputs: Vec<&Tensor> =
                [&wide, &mean, &var].into_iter().chain(parameters.iter().flatten()).collect();
            return apply(by_batch, &inputs)?.to_dtype(dtype);
        }
    };
    let out = by_channel(&wide, [&mean, &var], [weight, bias], eps)?.to_dtype(dtype)?;
    let Some([running_mean, running_var]) = running.filter(|_| !training) else { return Ok(out) };
    let inputs = [Some(input), weight, bias, Some(running_mean), Some(running_var)];
    Ok(traced("batch_norm", inputs, out, || vec![("epsilon", Argument::Float(eps))]))
}

/// Instance normalization: normalizes each channel of each sample of `[N, C, …]` by its own mean and
/// variance, or, without `use_input_stats`, by the running ones, as [`batch_norm`] does. With it, running
/// statistics are updated by the mean over the samples' statistics. `torch.nn.functional.instance_norm`.
///
/// Ulyanov et al.: Instance normalization (2016).
///
/// # Errors
/// As [`batch_norm`]: a single value for each channel of a sample, or no running statistics without
/// `use_input_stats`.
#[track_caller]
#[allow(clippy::too_many_arguments)] // PyTorch's
pub fn instance_norm(
    input: &Tensor,
    running_mean: Option<&Tensor>,
    running_var: Option<&Tensor>,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    use_input_stats: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "instance_norm";
    let running = running_pair(OP, running_mean, running_var)?;
    if !use_input_stats {
        if running.is_none() {
            return Err(Error::invalid(OP, "no running statistics to use: give them, or use_input_stats"));
        }
        let kept = Momentum::Constant(momentum);
        return batch_norm_by(OP, input, running, [weight, bias], false, kept, eps);
    }
    let (dtype, _as_one) = (input.dtype(), autocast::as_one());
    let cast = of_one_dtype(input, [weight, bias])?;
    let (input, weight, bias) = match &cast {
        Some((input, [weight, bias])) => (input, weight.as_ref(), bias.as_ref()),
        None => (input, weight, bias),
    };
    let channels = check_channels(OP, input, &[weight, bias])?;
    for statistic in running.iter().flatten() {
        check_along_channels(OP, statistic, channels)?;
    }
    let per: usize = input.dims()[2..].iter().product();
    if per < 2 {
        let message = format!(
            "an input of shape {} has {per} value for each channel of a sample, whose variance is undefined: it needs axes after \
             [N, C] with several elements",
            input.shape()
        );
        return Err(Error::invalid(OP, message));
    }
    let wide = input.to_dtype(input.dtype().compute())?.reshape([input.dims()[0], channels, per])?;
    if let Some([running_mean, running_var]) = running {
        let rows = wide.detach();
        let momentum = Momentum::Constant(momentum);
        let next_mean = momentum.step(&running_mean.detach(), &rows.mean_axis([0, 2], false)?)?;
        let batch_var = rows.var_axis(2, 1.0, false)?.mean_axis(0, false)?;
        let next_var = momentum.step(&running_var.detach(), &batch_var)?;
        running_mean.assign(&next_mean)?;
        running_var.assign(&next_var)?;
    }
    let of_channels =
        |parameter: Option<&Tensor>| parameter.map(|parameter| parameter.reshape([channels, 1])).transpose();
    let (row_weight, row_bias) = (of_channels(weight)?, of_channels(bias)?);
    let out = affine(&standardized(&wide, &[2], eps)?, input, row_weight.as_ref(), row_bias.as_ref())?
        .to_dtype(dtype)?;
    Ok(traced(OP, [Some(input), weight, bias], out, || vec![("epsilon", Argument::Float(eps))]))
}

/// The input and its weights in the widest of their dtypes, if autocast changed the input's: PyTorch accepts
/// a half input with f32 weights there.
#[track_caller]
fn of_one_dtype(
    input: &Tensor,
    weights: [Option<&Tensor>; 2],
) -> Result<Option<(Tensor, [Option<Tensor>; 2])>> {
    let wide = |weight: &&Tensor| weight.dtype() == DType::F32;
    if !autocast::is_within() || !input.dtype().is_reduced_float() || !weights.iter().flatten().all(wide) {
        return Ok(None);
    }
    Ok(Some((input.to_dtype(DType::F32)?, weights.map(Option::<&Tensor>::cloned))))
}

/// The input with its last `count` axes merged, in its compute dtype.
#[track_caller]
fn rows(input: &Tensor, count: usize) -> Result<Tensor> {
    let wide = input.to_dtype(input.dtype().compute())?;
    match count {
        1 => Ok(wide),
        _ => {
            let (lead, rest) = input.dims().split_at(input.rank() - count);
            wide.reshape(lead.iter().copied().chain([rest.iter().product()]).collect::<Shape>().dims())
        }
    }
}

/// A parameter of the normalized shape with its axes merged, for [`rows`].
#[track_caller]
fn along_rows(parameter: Option<&Tensor>) -> Result<Option<Tensor>> {
    parameter
        .map(|parameter| match parameter.rank() {
            1 => Ok(parameter.clone()),
            _ => parameter.reshape([parameter.numel()]),
        })
        .transpose()
}

/// (x − mean) / √(variance + eps) over axes.
#[track_caller]
fn standardized(rows: &Tensor, axes: &[usize], eps: f64) -> Result<Tensor> {
    let mean = rows.mean_axis(axes, true)?;
    if !hides_underflow(rows, eps) {
        return over_root_of_squares(&rows.sub(&mean)?, axes, eps);
    }
    let variance = variance(rows, &mean, axes)?;
    rows.sub(&mean)?.mul(&variance.add_scalar(eps).rsqrt())
}

/// Whether squares that underflow are negligible beside `eps`.
fn hides_underflow(rows: &Tensor, eps: f64) -> bool {
    let least = if rows.dtype() == DType::F64 { 1e-290 } else { 1e-30 };
    !(0.0..least).contains(&eps)
}

/// x / √(mean of x² + eps) over axes, for any `eps`: each set of elements is multiplied by a power of two
/// that keeps its squares in range.
#[track_caller]
fn over_root_of_squares(x: &Tensor, axes: &[usize], eps: f64) -> Result<Tensor> {
    if x.numel() == 0 {
        return Ok(x.clone());
    }
    let scale = x.detach().abs().amax(axes, true)?.scale_of_squares();
    let scaled = x.mul(&scale)?;
    // The square of the scale alone may be out of range.
    let eps = scale.mul_scalar(eps.sqrt()).powi(2);
    scaled.mul(&scaled.powi(2).mean_axis(axes, true)?.add(&eps)?.rsqrt())
}

/// The mean of (x − mean)² over axes, which are kept. The mean is used as a constant, since deviations from
/// it add up to 0, so that the gradient of x needs no further sum. A term with the value 0 is subtracted,
/// which restores the second derivatives.
#[track_caller]
fn variance(x: &Tensor, mean: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let constant = mean.detach();
    let square = x.sub(&constant)?.powi(2).mean_axis(axes, true)?;
    if mean.is_tracked() { square.sub(&mean.sub(&constant)?.powi(2)) } else { Ok(square) }
}

/// The number of elements of a channel from which they are summed along their axes first.
const SUM_FIRST_MIN_ELEMENTS: usize = 16;

/// The mean and variance of each channel of each sample of `[N, C, …]`, `[N, C, 1…]`: one kernel, which reads
/// memory once. [`combined`] makes those of larger sets of them.
#[track_caller]
fn local_moments(x: &Tensor) -> Result<[Tensor; 2]> {
    let axes: Vec<usize> = (2..x.rank()).collect();
    let mean = x.mean_axis(axes.as_slice(), true)?;
    let variance = variance(x, &mean, &axes)?;
    Ok([mean, variance])
}

/// The mean and variance of sets whose parts, all of one size, have these: the variance is the mean of their
/// variances plus the variance of their means (Chan, Golub, LeVeque 1979). `mean_of` computes the mean over
/// the parts of each set.
#[track_caller]
fn combined(
    [local_mean, local_variance]: [&Tensor; 2],
    mean_of: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<[Tensor; 2]> {
    let mean = mean_of(local_mean)?;
    let variance = mean_of(&local_variance.add(&local_mean.sub(&mean)?.powi(2))?)?;
    Ok([mean, variance])
}

/// Whether the channels of `[N, C, …]` have enough elements to sum them along their axes first.
fn has_long_channels(x: &Tensor) -> bool {
    x.dims()[2..].iter().product::<usize>() >= SUM_FIRST_MIN_ELEMENTS
}

/// The axes of a channel's elements in `[N, C, …]`: all but the second.
fn axes_of_channels(x: &Tensor) -> Vec<usize> {
    (0..x.rank()).filter(|&axis| axis != 1).collect()
}

/// One number for each channel of each sample, `[N, C, 1…]`, with the samples of a channel as a row `[C, N]`:
/// one kernel then reduces several of them, and computes what follows.
#[track_caller]
fn samples_as_rows(local: &Tensor) -> Result<Tensor> {
    local.reshape([local.dims()[0], local.dims()[1]])?.transpose(0, 1)
}

/// The mean and variance of each channel of `[N, C, …]` over the batch, `[C]`.
#[track_caller]
fn batch_moments(x: &Tensor) -> Result<[Tensor; 2]> {
    let [mean, variance] = if has_long_channels(x) {
        let [mean, variance] = local_moments(x)?;
        combined([&samples_as_rows(&mean)?, &samples_as_rows(&variance)?], |local| local.mean_axis(1, true))?
    } else {
        let axes = axes_of_channels(x);
        let mean = x.mean_axis(axes.as_slice(), true)?;
        let variance = variance(x, &mean, &axes)?;
        [mean, variance]
    };
    Ok([mean.reshape([x.dims()[1]])?, variance.reshape([x.dims()[1]])?])
}

/// The sum over each channel of `[N, C, …]`, `[C]`.
#[track_caller]
fn channel_sum(x: &Tensor) -> Result<Tensor> {
    let sums = if has_long_channels(x) {
        let axes: Vec<usize> = (2..x.rank()).collect();
        samples_as_rows(&x.sum_axis(axes, true)?)?.sum_axis(1, true)?
    } else {
        x.sum_axis(axes_of_channels(x), true)?
    };
    sums.reshape([x.dims()[1]])
}

/// (x − mean) / √(variance + eps) · weight + bias, all but x `[C]`.
#[track_caller]
fn by_channel(
    x: &Tensor,
    [mean, variance]: [&Tensor; 2],
    [weight, bias]: [Option<&Tensor>; 2],
    eps: f64,
) -> Result<Tensor> {
    let [mean, factor] = [along(mean, x)?, along(&scale(variance, eps, weight)?, x)?];
    affine(&x.sub(&mean)?.mul(&factor)?, x, None, along_channels(bias, x)?.as_ref())
}

/// [`by_channel`] with the moments of the batch. The inputs are x, its mean and variance, and then the weight
/// and the bias that there are.
///
/// With the gradient g, r = 1 / √(variance + eps), d = x − mean and n elements of a channel, the gradient of
/// x is r·weight·(g − Σg / n − d·r²·Σ(g·d) / n): two sums over each channel, which are those of the bias
/// and, but for a factor, of the weight.
#[derive(Debug)]
struct ByBatch {
    eps: f64,
    weight: bool,
    bias: bool,
}

impl ByBatch {
    /// The weight and the bias among the inputs.
    fn parameters<'a>(&self, inputs: &[&'a Tensor]) -> [Option<&'a Tensor>; 2] {
        let mut rest = inputs[3..].iter().copied();
        [self.weight, self.bias].map(|has| if has { rest.next() } else { None })
    }
}

impl Function for ByBatch {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "BatchNorm"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        by_channel(inputs[0], [inputs[1], inputs[2]], self.parameters(inputs), self.eps)
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        _output: &Tensor,
        gradient: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let given: Vec<&Tensor> = inputs.iter().collect();
        let (x, [weight, _]) = (&inputs[0], self.parameters(&given));
        // Second derivatives are also those of the moments.
        let [mean, variance] = match is_grad_enabled() {
            true => batch_moments(x)?,
            false => [inputs[1].clone(), inputs[2].clone()],
        };
        let distance = x.sub(&along(&mean, x)?)?;
        let sum = channel_sum(gradient)?;
        let product = channel_sum(&gradient.mul(&distance)?)?;
        let root = variance.add_scalar(self.eps).rsqrt();
        let factor = scale(&variance, self.eps, weight)?;
        let share = 1.0 / (x.numel() / x.dims()[1]) as f64;
        let level = factor.mul(&sum)?.mul_scalar(share);
        let slope = factor.mul(&root.powi(2))?.mul(&product)?.mul_scalar(share);
        let of_x = gradient
            .mul(&along(&factor, x)?)?
            .sub(&along(&level, x)?)?
            .sub(&distance.mul(&along(&slope, x)?)?)?;
        let of_weight = product.mul(&root)?;
        let of_parameters = [(self.weight, of_weight), (self.bias, sum)];
        let of_parameters = of_parameters.into_iter().filter(|(has, _)| *has).map(|(_, of)| Some(of));
        Ok([Some(of_x), None, None].into_iter().chain(of_parameters).collect())
    }
}

/// The mean and variance of each group of channels of `[N, C, …]`, `[N, C, 1…]`.
#[track_caller]
fn group_moments(x: &Tensor, groups: usize) -> Result<[Tensor; 2]> {
    let (n, channels) = (x.dims()[0], x.dims()[1]);
    let [mean, variance] = local_moments(x)?;
    combined([&mean, &variance], |local| {
        let grouped = local.reshape([n, groups, channels / groups])?;
        grouped.mean_axis(2, true)?.expand(grouped.shape())?.reshape(local.shape())
    })
}

/// weight / √(variance + eps): both factors of a normalized value are multiplied first.
#[track_caller]
fn scale(variance: &Tensor, eps: f64, weight: Option<&Tensor>) -> Result<Tensor> {
    let scale = variance.add_scalar(eps).rsqrt();
    match weight {
        Some(weight) => scale.mul(&weight.to_dtype(scale.dtype())?),
        None => Ok(scale),
    }
}

/// x · weight + bias, which broadcast to x, in the input's shape and dtype. The reshape comes last:
/// everything before it is over the rows' axes, in one kernel.
#[track_caller]
fn affine(normal: &Tensor, input: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let mut out = normal.clone();
    if let Some(weight) = weight {
        out = out.mul(&weight.to_dtype(out.dtype())?)?;
    }
    if let Some(bias) = bias {
        out = out.add(&bias.to_dtype(out.dtype())?)?;
    }
    let out = out.to_dtype(input.dtype())?;
    if out.shape() == input.shape() { Ok(out) } else { out.reshape(input.shape()) }
}

#[track_caller]
fn check_float(op: &'static str, input: &Tensor) -> Result<()> {
    if input.dtype().is_float() {
        return Ok(());
    }
    Err(Error::invalid(op, format!("an input of {}; cast it with .to_dtype(DType::F32)?", input.dtype())))
}

#[track_caller]
fn check_trailing(
    op: &'static str,
    input: &Tensor,
    sizes: &Shape,
    parameters: &[Option<&Tensor>],
) -> Result<()> {
    check_float(op, input)?;
    if sizes.rank() == 0 || !input.dims().ends_with(sizes.dims()) {
        return Err(Error::invalid(
            op,
            format!("the last axes of the input must have the sizes {sizes}; its shape is {}", input.shape()),
        ));
    }
    for parameter in parameters.iter().flatten() {
        if parameter.shape() != sizes {
            return Err(Error::invalid(
                op,
                format!("weight and bias have the normalized shape {sizes}, not {}", parameter.shape()),
            ));
        }
        alike(op, input, parameter)?;
    }
    Ok(())
}

/// Checks that there are channels, and one weight for each; returns their number.
#[track_caller]
fn check_channels(op: &'static str, input: &Tensor, parameters: &[Option<&Tensor>]) -> Result<usize> {
    check_float(op, input)?;
    let Some(&channels) = input.dims().get(1) else {
        return Err(Error::invalid(op, format!("an input is [N, C, …]; shape {} has no C", input.shape())));
    };
    for parameter in parameters.iter().flatten() {
        check_along_channels(op, parameter, channels)?;
        alike(op, input, parameter)?;
    }
    Ok(channels)
}

#[track_caller]
fn check_along_channels(op: &'static str, parameter: &Tensor, channels: usize) -> Result<()> {
    if parameter.dims() == [channels] {
        return Ok(());
    }
    let message = format!(
        "the input has {channels} channels (axis 1); weights and statistics of shape {} do not fit: they are [{channels}]",
        parameter.shape()
    );
    Err(Error::invalid(op, message))
}

/// A parameter `[C]` reshaped to broadcast to `[N, C, …]`.
#[track_caller]
fn along(parameter: &Tensor, input: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; input.rank() - 1];
    shape[0] = parameter.numel();
    parameter.reshape(shape)
}

#[track_caller]
fn along_channels(parameter: Option<&Tensor>, input: &Tensor) -> Result<Option<Tensor>> {
    let _line = caller_line();
    parameter.map(|parameter| along(parameter, input)).transpose()
}

/// The number of neighbouring channels up to which they are added one by one.
const FEW_CHANNELS: usize = 8;

/// Local response normalization: x / (k + α·m)^β, where m is the mean of x² over `size` neighbouring
/// channels (axis 1), with zeros beyond the first and the last. PyTorch's defaults are α = 1e-4, β = 0.75
/// and k = 1. `torch.nn.functional.local_response_norm`.
///
/// Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks (2012).
///
/// # Errors
/// Fewer than three axes, a size of 0, or a dtype that is not floating-point.
#[track_caller]
pub fn local_response_norm(input: &Tensor, size: usize, alpha: f64, beta: f64, k: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "local_response_norm";
    if input.rank() < 3 || size == 0 {
        let message =
            format!("{size} channels of shape {}: give an input [N, C, …] and at least 1", input.shape());
        return Err(Error::invalid(OP, message));
    }
    if !input.dtype().is_float() {
        let message = format!("an input of {}; cast it with .to_dtype(DType::F32)?", input.dtype());
        return Err(Error::invalid(OP, message));
    }
    let mut padding = vec![(0, 0); input.rank()];
    padding[1] = (size / 2, (size - 1) / 2);
    let wide = input.to_dtype(input.dtype().compute())?;
    let squares = wide.powi(2).pad(&padding, 0.0)?;
    let sums = if size <= FEW_CHANNELS {
        // Sums of shifted channels would be fused with their readers, and be computed once for each.
        let mut sums = squares.narrow(1, 0, input.dims()[1])?;
        for first in 1..size {
            sums = sums.add(&squares.narrow(1, first, input.dims()[1])?)?;
        }
        sums
    } else {
        squares.unfold(1, size, 1)?.sum_axis(-1, false)?
    };
    let means = sums.mul_scalar(1.0 / size as f64);
    wide.div(&means.mul_scalar(alpha).add_scalar(k).powf(beta))?.to_dtype(input.dtype())
}
