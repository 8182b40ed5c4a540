//! Clipping of gradients, between `backward` and `step`.

use std::ops::Deref;

use autograd::no_grad;
use tensor_core::{DType, Error, Result, Tensor, caller_line};

/// The norm of the gradients before [`clip_grad_norm`], as a 0-d tensor: `norm.item::<f32>()?`. It is not
/// `#[must_use]`, unlike other tensors, since the clipping is done.
#[derive(Clone, Debug)]
pub struct GradNorm(Tensor);

impl Deref for GradNorm {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl AsRef<Tensor> for GradNorm {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

impl From<GradNorm> for Tensor {
    fn from(norm: GradNorm) -> Tensor {
        norm.0
    }
}

/// Scales the gradients of `parameters` together so that their total norm √Σg² is at most `max_norm`, and
/// returns the norm before scaling, 0-d. `torch.nn.utils.clip_grad_norm_`.
///
/// Squares are summed in a scale in which they neither overflow nor underflow: gradients of 10²⁰ are scaled,
/// where PyTorch makes them 0. The factor is max_norm / (norm + 10⁻⁶), if that is below 1. Parameters
/// without a gradient are skipped; those on other devices than the first are counted and scaled as well.
///
/// # Errors
/// A `max_norm` that is negative or NaN, no parameters, or a failure to move between devices.
#[track_caller]
pub fn clip_grad_norm<T: AsRef<Tensor>>(parameters: &[T], max_norm: f64) -> Result<GradNorm> {
    let parameters: Vec<&Tensor> = parameters.iter().map(AsRef::as_ref).collect();
    scale_to_norm(&parameters, max_norm).map(GradNorm)
}

#[track_caller]
fn scale_to_norm(parameters: &[&Tensor], max_norm: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "clip_grad_norm";
    check(OP, "max_norm", max_norm)?;
    let Some(first) = parameters.first() else {
        return Err(Error::invalid(OP, "there are no parameters; give model.parameters()"));
    };
    let device = first.device();
    no_grad(|| {
        let mut dtype = DType::F32;
        let mut sums: [Vec<Tensor>; 3] = Default::default();
        for grad in parameters.iter().filter_map(|parameter| parameter.grad()) {
            // Half precision is summed in f32, because its squares overflow at 256.
            dtype = dtype.promote(grad.dtype().compute());
            let grad = grad.to_dtype(grad.dtype().compute())?;
            for (sums, scale) in sums.iter_mut().zip(Scales::of(grad.dtype()).all()) {
                let scaled = if scale == 1.0 { grad.clone() } else { grad.mul_scalar(scale) };
                sums.push(scaled.powi(2).sum().to(&device)?);
            }
        }
        if sums[0].is_empty() {
            return Tensor::zeros((), (dtype, &device));
        }
        let [plain, great, small] = sums.map(|sums| -> Result<Tensor> { Ok(Tensor::stack(&sums, 0)?.sum()) });
        Norm::new(&plain?, &great?, &small?)?.scale(parameters, max_norm)
    })
}

/// Factors that gradients are multiplied by before they are squared, so that squares neither overflow nor
/// underflow. One pass over the gradients computes a sum for each factor; the norm is read from the sum
/// whose range it is in.
#[derive(Clone, Copy, Debug)]
struct Scales {
    /// The factor for gradients whose sum of plain squares overflows.
    great: f64,
    /// The factor for gradients whose sum of plain squares is below `least`, where small squares were lost.
    small: f64,
    least: f64,
}

impl Scales {
    fn of(dtype: DType) -> Scales {
        // Powers of two, which do not round. f32 goes from 2^-149 to 2^128, f64 from 2^-1074 to 2^1024.
        let two = |exponent: i32| 2f64.powi(exponent);
        match dtype {
            DType::F64 => Scales { great: two(-600), small: two(600), least: two(-900) },
            _ => Scales { great: two(-80), small: two(100), least: two(-100) },
        }
    }

    fn all(self) -> [f64; 3] {
        [1.0, self.great, self.small]
    }
}

/// The norm of all gradients, in the factor's scale in which it is neither 0 nor infinite.
struct Norm {
    /// Whether the sum of plain squares overflows: a bool, 0-d.
    is_great: Tensor,
    /// √Σ(g · scale)²; the scale is the one for great gradients where `is_great` holds.
    great: Tensor,
    /// √Σg².
    norm: Tensor,
    scales: Scales,
}

impl Norm {
    /// The norm from the sums of squares in all scales.
    fn new(plain: &Tensor, great: &Tensor, small: &Tensor) -> Result<Norm> {
        let scales = Scales::of(plain.dtype());
        let is_great = plain.isinf();
        let great = great.sqrt();
        let least = small.sqrt().mul_scalar(1.0 / scales.small);
        let norm = plain.lt_scalar(scales.least).where_cond(&least, &plain.sqrt())?;
        let norm = is_great.where_cond(&great.mul_scalar(1.0 / scales.great), &norm)?;
        Ok(Norm { is_great, great, norm, scales })
    }

    /// Scales the gradients so that the norm is at most `max_norm`, and returns the norm before scaling.
    fn scale(self, parameters: &[&Tensor], max_norm: f64) -> Result<Tensor> {
        let Norm { is_great, great, norm, scales } = self;
        let one = norm.ones_like();
        let factor = norm.add_scalar(1e-6).reciprocal().mul_scalar(max_norm).minimum_scalar(1.0);
        // In two steps, because the whole factor may underflow in the dtype.
        let first = is_great.where_cond(&one.full_like(scales.great), &one)?;
        let second = great.reciprocal().mul_scalar(max_norm).minimum_scalar(1.0 / scales.great);
        let second = is_great.where_cond(&second, &factor)?;
        for parameter in parameters {
            let Some(grad) = parameter.grad() else { continue };
            let wide = grad.dtype().compute();
            let on = |factor: &Tensor| factor.to(&grad.device())?.to_dtype(wide);
            let scaled = grad.to_dtype(wide)?.mul(&on(&first)?)?.mul(&on(&second)?)?;
            parameter.set_grad(Some(scaled.to_dtype(grad.dtype())?));
        }
        Ok(norm)
    }
}

/// Clamps every element of the gradients of `parameters` to [−limit, limit].
/// `torch.nn.utils.clip_grad_value_`.
///
/// # Errors
/// A `limit` that is negative or NaN.
#[track_caller]
pub fn clip_grad_value<T: AsRef<Tensor>>(parameters: &[T], limit: f64) -> Result<()> {
    let _line = caller_line();
    check("clip_grad_value", "limit", limit)?;
    no_grad(|| {
        for parameter in parameters.iter().map(AsRef::as_ref) {
            if let Some(grad) = parameter.grad() {
                parameter.set_grad(Some(grad.clamp(-limit, limit)));
            }
        }
    });
    Ok(())
}

#[track_caller]
fn check(op: &'static str, name: &str, limit: f64) -> Result<()> {
    if limit >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(op, format!("{name} {limit}: give a number that is not negative")))
}
