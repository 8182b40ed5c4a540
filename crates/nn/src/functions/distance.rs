//! Norms and distances of vectors.

use std::sync::Arc;

use autograd::{Function, apply};
use tensor_core::{
    DType, Distances, Error, Measure, Result, Shape, Tensor, autocast, caller_line, is_grad_enabled,
};

/// The p-norm (Σ|x|ᵖ)^(1/p) along an axis, which is kept with size 1. Its gradient at 0 is 0.
#[track_caller]
fn norm(op: &'static str, x: &Tensor, p: f64, axis: usize) -> Result<Tensor> {
    check_norm(op, p)?;
    x.vector_norm(p, axis, true)
}

#[track_caller]
fn check_norm(op: &'static str, p: f64) -> Result<()> {
    if p.is_nan() {
        return Err(Error::invalid(op, "the norm of power NaN: give a number"));
    }
    Ok(())
}

#[track_caller]
fn check_float(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let _line = caller_line();
    match tensors.iter().find(|t| !t.dtype().is_float()) {
        None => Ok(()),
        Some(t) => {
            let message = format!("a tensor of {}: cast it with .to_dtype(DType::F32)?", t.dtype());
            Err(Error::invalid(op, message))
        }
    }
}

/// x / max(‖x‖ₚ, eps) along an axis. PyTorch's defaults are p = 2, axis 1 and eps = 1e-12.
/// `torch.nn.functional.normalize`.
///
/// # Errors
/// No such axis, a p of NaN, an empty axis for a p of ±∞ or below 0, or a dtype that is not floating-point.
#[track_caller]
pub fn normalize(input: &Tensor, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
    const OP: &str = "normalize";
    check_float(OP, &[input])?;
    if input.rank() == 0 {
        // A 0-d tensor as a line of one element.
        return normalize(&input.unsqueeze(0)?, p, axis, eps)?.squeeze(0);
    }
    let axis = input.shape().axis(axis, OP)?;
    unit(OP, &input.to_dtype(input.dtype().compute())?, p, axis, eps)?.to_dtype(input.dtype())
}

/// x / max(‖x‖ₚ, eps) along an axis, also if the norm is above the greatest number.
#[track_caller]
fn unit(op: &'static str, x: &Tensor, p: f64, axis: usize, eps: f64) -> Result<Tensor> {
    check_norm(op, p)?;
    let [scaled, norm, scale] = x.scaled_norm(p, axis)?;
    scaled.div(&norm.maximum(&scale.mul_scalar(eps))?)
}

/// Cosine similarity x·y / (max(‖x‖, eps) · max(‖y‖, eps)) along an axis, which is removed. The tensors
/// broadcast. PyTorch's defaults are axis 1 and eps = 1e-8. `torch.nn.functional.cosine_similarity`.
///
/// # Errors
/// Shapes that do not broadcast, no such axis, a dtype that is not floating-point, two devices.
#[track_caller]
pub fn cosine_similarity(x1: &Tensor, x2: &Tensor, axis: isize, eps: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "cosine_similarity";
    let cast = autocast::cast(OP, [x1, x2], [])?;
    let ([x1, x2], []) = cast.tensors();
    check_float(OP, &[x1, x2])?;
    let shape = x1.shape().broadcast(x2.shape(), OP)?;
    if shape.rank() == 0 {
        return cosine_similarity(&x1.unsqueeze(0)?, &x2.unsqueeze(0)?, axis, eps);
    }
    let axis = shape.axis(axis, OP)?;
    let dtype = x1.dtype().promote(x2.dtype());
    let wide = |x: &Tensor| x.to_dtype(dtype.compute())?.expand(&shape);
    let unit = |x: Tensor| unit(OP, &x, 2.0, axis, eps);
    unit(wide(x1)?)?.mul(&unit(wide(x2)?)?)?.sum_axis(axis, false)?.to_dtype(dtype)
}

/// The distance ‖x − y + eps‖ₚ along the last axis, which is removed; a 0-d tensor is a vector of one number.
/// The tensors broadcast. PyTorch's defaults are p = 2 and eps = 1e-6.
/// `torch.nn.functional.pairwise_distance`.
///
/// # Errors
/// Shapes that do not broadcast, a p that is not above 0, a dtype that is not floating-point, two
/// devices.
#[track_caller]
pub fn pairwise_distance(x1: &Tensor, x2: &Tensor, p: f64, eps: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "pairwise_distance";
    check_float(OP, &[x1, x2])?;
    let dtype = x1.dtype().promote(x2.dtype());
    let wide = |x: &Tensor| x.to_dtype(dtype.compute());
    let difference = wide(x1)?.sub(&wide(x2)?)?.add_scalar(eps);
    let difference = if difference.rank() == 0 { difference.unsqueeze(0)? } else { difference };
    let axis = difference.shape().axis(-1, OP)?;
    norm(OP, &difference, p, axis)?.squeeze(axis)?.to_dtype(dtype)
}

/// The number of points above which Euclidean distances are computed from products, as in PyTorch.
const BY_PRODUCTS: usize = 25;

/// The p-norm along the last axis, which is removed; for p = 0 the number of nonzero elements. Its gradient
/// at 0 is 0.
#[track_caller]
fn length(op: &'static str, difference: &Tensor, p: f64) -> Result<Tensor> {
    if p == 0.0 {
        return difference.ne_scalar(0.0).to_dtype(difference.dtype())?.sum_axis(-1, false);
    }
    let axis = difference.shape().axis(-1, op)?;
    norm(op, difference, p, axis)?.squeeze(axis)
}

#[track_caller]
fn check_power(op: &'static str, p: f64) -> Result<()> {
    if p >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(op, format!("the norm of power {p}: give a p of at least 0")))
}

/// The distances ‖xᵢ − yⱼ‖ₚ of every row of one with every row of the other: `[…, P, M]` and `[…, R, M]`,
/// whose leading axes broadcast, give `[…, P, R]`. p is between 0 (the number of coordinates that differ)
/// and infinity (the greatest difference). The gradient at a distance of 0 is 0. `torch.cdist`.
///
/// As in PyTorch, Euclidean distances of more than 25 rows are computed as √(‖x‖² + ‖y‖² − 2x·y), which is
/// much faster, and less exact for points that are closer to each other than to 0.
///
/// # Errors
/// Fewer than two axes, rows of two lengths, leading axes that do not broadcast, a p below 0, a dtype that
/// is not floating-point, two dtypes or two devices.
#[track_caller]
pub fn cdist(x1: &Tensor, x2: &Tensor, p: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "cdist";
    let cast = autocast::cast(OP, [x1, x2], [])?;
    let ([x1, x2], []) = cast.tensors();
    check_float(OP, &[x1, x2])?;
    check_power(OP, p)?;
    let (&[.., rows, m], &[.., columns, n]) = (x1.dims(), x2.dims()) else {
        let message = format!("shapes {} and {}: points are rows of matrices", x1.shape(), x2.shape());
        return Err(Error::invalid(OP, message));
    };
    if m != n {
        let message = format!("points of {m} and of {n} coordinates, in {} and {}", x1.shape(), x2.shape());
        return Err(Error::invalid(OP, message));
    }
    if m == 0 {
        return x1.unsqueeze(-2)?.sub(&x2.unsqueeze(-3)?)?.sum_axis(-1, false);
    }
    let dtype = x1.dtype();
    if dtype.is_reduced_float() && dtype == x2.dtype() {
        let wide = [x1, x2].map(|x| x.to_dtype(dtype.compute()));
        let [x1, x2] = wide;
        return cdist(&x1?, &x2?, p)?.to_dtype(dtype);
    }
    if p == 2.0 && rows.max(columns) > BY_PRODUCTS {
        return by_products(x1, x2);
    }
    let lead =
        Shape::from(&x1.dims()[..x1.rank() - 2]).broadcast(&Shape::from(&x2.dims()[..x2.rank() - 2]), OP)?;
    let spread = |x: &Tensor| {
        let last = &x.dims()[x.rank() - 2..];
        x.expand(lead.iter().chain(last).copied().collect::<Shape>())
    };
    let points = [spread(x1)?, spread(x2)?];
    match by_kernel(p, &points)? {
        Some(found) => Ok(found),
        None => length(OP, &points[0].unsqueeze(-2)?.sub(&points[1].unsqueeze(-3)?)?, p),
    }
}

/// Euclidean distances as √(‖x‖² + ‖y‖² − 2x·y).
///
/// Each point has a power of two as a scale that keeps its squares in range. A pair of points uses the
/// smaller of the two scales: the greater point is in range then, and the other may underflow beside it.
#[track_caller]
fn by_products(x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
    let scale_of = |x: &Tensor| -> Result<Tensor> {
        let greatest = x.detach().abs().amax(-1, true)?;
        // Points at 0 are in range in any scale: they get that of the least numbers.
        let least = if x.dtype() == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        Ok(greatest.masked_fill(&greatest.eq_scalar(0.0), least)?.scale_of_squares())
    };
    let (first, second) = (scale_of(x1)?, scale_of(x2)?);
    let (x1, x2) = (x1.mul(&first)?, x2.mul(&second)?.transpose(-1, -2)?);
    let second = second.transpose(-1, -2)?;
    // Reciprocals of powers of two are exact, and multiplications are cheaper than divisions.
    let (back_first, back_second) = (first.reciprocal(), second.reciprocal());
    let scale = first.minimum(&second)?;
    // At most 1. They are multiplied one after the other, because their squares may be out of range.
    let (to_first, to_second) = (scale.mul(&back_first)?, scale.mul(&back_second)?);
    let products = x1.mul_scalar(-2.0).matmul(&x2)?.mul(&to_first)?.mul(&to_second)?;
    let first = x1.powi(2).sum_axis(-1, true)?.mul(&to_first)?.mul(&to_first)?;
    let second = x2.powi(2).sum_axis(-2, true)?.mul(&to_second)?.mul(&to_second)?;
    let sum = products.add(&first)?.add(&second)?;
    let zero = sum.le_scalar(0.0);
    let distances = sum.masked_fill(&zero, 1.0)?.sqrt().masked_fill(&zero, 0.0)?;
    distances.mul(&back_first.maximum(&back_second)?)
}

/// The distances of rows if the device has a kernel for them, with the gradient of p-norms.
#[track_caller]
fn by_kernel(p: f64, points: &[Tensor]) -> Result<Option<Tensor>> {
    let _line = caller_line();
    let Some(measure) = Measure::of_power(p) else { return Ok(None) };
    let kernel = Arc::new(Distances { measure });
    let detached: Vec<Tensor> = points.iter().map(Tensor::detach).collect();
    let given: Vec<&Tensor> = detached.iter().collect();
    if !Tensor::has_custom_kernel(kernel.clone(), &given)? {
        return Ok(None);
    }
    // The number of differing coordinates has no gradient.
    if measure != Measure::Unequal && is_grad_enabled() && points.iter().any(Tensor::is_tracked) {
        return apply(DistancesOf { measure }, points).map(Some);
    }
    Ok(Some(Tensor::custom_kernel(kernel, &given)?.swap_remove(0)))
}

/// Distances by a kernel, with a gradient by other operations.
#[derive(Debug)]
struct DistancesOf {
    measure: Measure,
}

impl Function for DistancesOf {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Distances"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let kernel = Arc::new(Distances { measure: self.measure });
        Ok(Tensor::custom_kernel(kernel, inputs)?.swap_remove(0))
    }

    /// With d = x − y: sign d for the sum, d / ‖d‖ for the Euclidean norm and 0 at 0; for the maximum, sign
    /// d shared among the greatest coordinates.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], norms: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (norms, gradient) = (norms.unsqueeze(-1)?, gradient.unsqueeze(-1)?);
        // The derivative in d for each coordinate.
        let shares = |difference: &Tensor| -> Result<Tensor> {
            match self.measure {
                Measure::Unequal => Ok(difference.zeros_like()),
                Measure::Sum => difference.sign().mul(&gradient),
                Measure::Euclidean => {
                    let zero = norms.eq_scalar(0.0);
                    // The quotient is in range even if 1 / ‖d‖ is not.
                    let direction = difference.div(&norms.masked_fill(&zero, 1.0)?)?;
                    direction.mul(&gradient.masked_fill(&zero, 0.0)?)
                }
                Measure::Greatest => {
                    let greatest = difference.abs().eq(&norms)?.to_dtype(difference.dtype())?;
                    let scale = gradient.div(&greatest.sum_axis(-1, true)?)?;
                    difference.sign().mul(&greatest)?.mul(&scale)
                }
            }
        };
        match inputs {
            [x, y] => {
                let of_pairs = shares(&x.unsqueeze(-2)?.sub(&y.unsqueeze(-3)?)?)?;
                Ok(vec![Some(of_pairs.sum_axis(-2, false)?), Some(of_pairs.sum_axis(-3, false)?.neg())])
            }
            points => {
                let x = &points[0];
                let (first, second) = pairs(x)?;
                let of_pairs = shares(&x.index_select(0, &first)?.sub(&x.index_select(0, &second)?)?)?;
                let sums = x.zeros_like().index_add(0, &first, &of_pairs)?;
                Ok(vec![Some(sums.index_add(0, &second, &of_pairs.neg())?)])
            }
        }
    }
}

/// The first and the second row of each pair of rows of a matrix.
#[track_caller]
fn pairs(matrix: &Tensor) -> Result<(Tensor, Tensor)> {
    let n = matrix.dims()[0];
    let pairs = Tensor::triu_indices(n, n, 1, &matrix.device())?;
    Ok((pairs.select(0, 0)?, pairs.select(0, 1)?))
}

/// The distances of all pairs of rows i < j of `[N, M]`, in the order (0, 1), (0, 2), …, (1, 2), …: `[N·(N −
/// 1) / 2]`. p is as in [`cdist`]. `torch.nn.functional.pdist`.
///
/// # Errors
/// A tensor that is no matrix, a p below 0, or a dtype that is not floating-point.
#[track_caller]
pub fn pdist(input: &Tensor, p: f64) -> Result<Tensor> {
    const OP: &str = "pdist";
    let cast = autocast::cast(OP, [input], [])?;
    let ([input], []) = cast.tensors();
    check_float(OP, &[input])?;
    check_power(OP, p)?;
    let &[_, m] = input.dims() else {
        return Err(Error::invalid(OP, format!("shape {}: points are rows of a matrix", input.shape())));
    };
    let dtype = input.dtype();
    if dtype.is_reduced_float() {
        return pdist(&input.to_dtype(dtype.compute())?, p)?.to_dtype(dtype);
    }
    if m > 0
        && let Some(found) = by_kernel(p, std::slice::from_ref(input))?
    {
        return Ok(found);
    }
    let (first, second) = pairs(input)?;
    let difference = input.index_select(0, &first)?.sub(&input.index_select(0, &second)?)?;
    if m == 0 { difference.sum_axis(-1, false) } else { length(OP, &difference, p) }
}
