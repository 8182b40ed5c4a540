//! Norms of vectors, and how far two of them are apart.

use tensor_core::{Error, Result, Tensor};

/// (Σ|x|ᵖ)^(1/p) along an axis that stays with size 1. Its gradient at 0 is 0.
#[track_caller]
fn norm(op: &'static str, x: &Tensor, p: f64, axis: usize) -> Result<Tensor> {
    if p.is_nan() || p <= 0.0 {
        return Err(Error::invalid(op, format!("the norm of power {p}: give a p above 0")));
    }
    x.vector_norm(p, axis, true)
}

#[track_caller]
fn check_float(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    match tensors.iter().find(|t| !t.dtype().is_float()) {
        None => Ok(()),
        Some(t) => {
            let message = format!("a tensor of {}: cast it with .to_dtype(DType::F32)?", t.dtype());
            Err(Error::invalid(op, message))
        }
    }
}

/// x / max(‖x‖ₚ, eps) along an axis. PyTorch's defaults are p = 2, axis 1 and eps = 1e-12. `torch.nn.functional.normalize`.
///
/// # Errors
/// No such axis, a p that is not above 0, or a dtype that is not floating-point.
#[track_caller]
pub fn normalize(input: &Tensor, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
    const OP: &str = "normalize";
    check_float(OP, &[input])?;
    let axis = input.shape().axis(axis, OP)?;
    input.div(&norm(OP, input, p, axis)?.maximum_scalar(eps))
}

/// x·y / (max(‖x‖, eps) · max(‖y‖, eps)) along an axis, which goes. The tensors broadcast. PyTorch's defaults are axis 1 and eps = 1e-8.
/// `torch.nn.functional.cosine_similarity`.
///
/// # Errors
/// Shapes that do not broadcast, no such axis, a dtype that is not floating-point, two devices.
#[track_caller]
pub fn cosine_similarity(x1: &Tensor, x2: &Tensor, axis: isize, eps: f64) -> Result<Tensor> {
    const OP: &str = "cosine_similarity";
    check_float(OP, &[x1, x2])?;
    let shape = x1.shape().broadcast(x2.shape(), OP)?;
    let axis = shape.axis(axis, OP)?;
    let (x1, x2) = (x1.expand(&shape)?, x2.expand(&shape)?);
    let unit = |x: &Tensor| x.div(&norm(OP, x, 2.0, axis)?.maximum_scalar(eps));
    unit(&x1)?.mul(&unit(&x2)?)?.sum_axis(axis, false)
}

/// ‖x − y + eps‖ₚ along the last axis, which goes. The tensors broadcast. PyTorch's defaults are p = 2 and eps = 1e-6.
/// `torch.nn.functional.pairwise_distance`.
///
/// # Errors
/// Shapes that do not broadcast, no axes, a p that is not above 0, a dtype that is not floating-point, two devices.
#[track_caller]
pub fn pairwise_distance(x1: &Tensor, x2: &Tensor, p: f64, eps: f64) -> Result<Tensor> {
    const OP: &str = "pairwise_distance";
    check_float(OP, &[x1, x2])?;
    let difference = x1.sub(x2)?.add_scalar(eps);
    let axis = difference.shape().axis(-1, OP)?;
    norm(OP, &difference, p, axis)?.squeeze(axis)
}
