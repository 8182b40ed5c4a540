//! Clipping of gradients, between `backward` and `step`.

use std::ops::Deref;

use autograd::no_grad;
use tensor_core::{DType, Error, Result, Tensor};

/// The norm that gradients had before [`clip_grad_norm`], as a 0-d tensor: `norm.item::<f32>()?`. Unlike other tensors it may be
/// dropped without a word, since the clipping is done.
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

/// Scales the gradients of `parameters` together so that their norm √Σg² is at most `max_norm`, and returns the norm that
/// they had, 0-d. `torch.nn.utils.clip_grad_norm_`.
///
/// The factor is max_norm / (norm + 10⁻⁶), where that is below 1. Parameters without a gradient are passed over; those on
/// other devices than the first are counted and scaled as well.
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
    const OP: &str = "clip_grad_norm";
    check(OP, "max_norm", max_norm)?;
    let Some(first) = parameters.first() else {
        return Err(Error::invalid(OP, "there are no parameters; give model.parameters()"));
    };
    let device = first.device();
    no_grad(|| {
        let mut dtype = DType::F32;
        let mut squares = Vec::new();
        for grad in parameters.iter().filter_map(|parameter| parameter.grad()) {
            // Half precision is summed in f32: its squares overflow at 256.
            dtype = dtype.promote(grad.dtype().compute());
            let grad = grad.to_dtype(grad.dtype().compute())?;
            squares.push(grad.powi(2).sum().to(&device)?);
        }
        if squares.is_empty() {
            return Tensor::zeros((), (dtype, &device));
        }
        let norm = Tensor::stack(&squares, 0)?.sum().sqrt();
        let factor = norm.add_scalar(1e-6).reciprocal().mul_scalar(max_norm).minimum_scalar(1.0);
        for parameter in parameters {
            let Some(grad) = parameter.grad() else { continue };
            let factor = factor.to(&grad.device())?.to_dtype(grad.dtype())?;
            parameter.set_grad(Some(grad.mul(&factor)?));
        }
        Ok(norm)
    })
}

/// Holds every element of the gradients of `parameters` within [−limit, limit]. `torch.nn.utils.clip_grad_value_`.
///
/// # Errors
/// A `limit` that is negative or NaN.
#[track_caller]
pub fn clip_grad_value<T: AsRef<Tensor>>(parameters: &[T], limit: f64) -> Result<()> {
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
