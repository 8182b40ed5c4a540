//! Helpers of gradient formulas: transposes, triangles and diagonals of the last two axes.

use tensor_core::{DType, Result, Shape, Tensor, caller_line};

/// The transpose of each matrix.
#[track_caller]
pub(crate) fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

/// The product of three matrices, from the left.
#[track_caller]
pub(crate) fn product(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<Tensor> {
    a.matmul(b)?.matmul(c)
}

/// The numbers of rows and columns.
pub(crate) fn sizes(a: &Tensor) -> (usize, usize) {
    match *a.dims() {
        [.., m, n] => (m, n),
        [..] => (1, 1),
    }
}

/// The matrices with ones on the diagonal.
#[track_caller]
pub(crate) fn with_ones(a: &Tensor) -> Result<Tensor> {
    let one = Tensor::ones(Shape::scalar(), (a.dtype(), &a.device()))?;
    Tensor::eye(sizes(a).1, (DType::Bool, &a.device()))?.where_cond(&one, a)
}

/// (X + Xᵀ)/2.
#[track_caller]
pub(crate) fn symmetric(x: &Tensor) -> Result<Tensor> {
    Ok(x.add(&mt(x)?)?.mul_scalar(0.5))
}

/// X − Xᵀ.
#[track_caller]
pub(crate) fn skew(x: &Tensor) -> Result<Tensor> {
    x.sub(&mt(x)?)
}

/// Eᵢⱼ = xⱼ − xᵢ of `[…, n]`.
#[track_caller]
pub(crate) fn differences(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(-2)?.sub(&x.unsqueeze(-1)?)
}

/// The machine epsilon of the matrices' dtype.
pub(crate) fn epsilon(a: &Tensor) -> f64 {
    if a.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// Powers of two that bring magnitudes near 1, so that squares of numbers up to them do not overflow; 1 for
/// 0 and for magnitudes that are not finite. They are constants for gradients.
#[track_caller]
pub(crate) fn balance(most: &Tensor) -> Result<Tensor> {
    // Both the power and its reciprocal are normal numbers.
    let limit = if most.dtype() == DType::F64 { 1022.0 } else { 126.0 };
    let most = most.detach();
    let regular = most.gt_scalar(0.0).bitwise_and(&most.isfinite())?;
    let most = regular.where_cond(&most, &most.ones_like())?;
    Ok(most.log2().floor().clamp(-limit, limit).neg().exp2())
}

/// [`balance`] for the greatest magnitude of each matrix, `[…, 1, 1]`.
#[track_caller]
pub(crate) fn balance_matrix(a: &Tensor) -> Result<Tensor> {
    balance(&greatest(a)?)
}

/// x·2ⁿ for integers n, by two factors that are finite wherever the result is.
#[track_caller]
pub(crate) fn times_power_of_two(x: &Tensor, n: &Tensor) -> Result<Tensor> {
    let half = n.mul_scalar(0.5).floor();
    x.mul(&half.exp2())?.mul(&n.sub(&half)?.exp2())
}

/// A gradient's part for pairs of vectors: X/E, with 1 in place of E's diagonal, where X is 0.
///
/// X has rounding errors of numbers of magnitude `size` `[…, 1, 1]`, and E those of numbers near 1. If both
/// are 0 within these errors, the function does not distinguish the vectors of the pair, and the result is
/// 0, to which pairs of its derivative cancel. With `by_values` the values in E have a gradient as well,
/// which X and E do not show, so X/E is not replaced.
#[track_caller]
pub(crate) fn over_pairs(x: &Tensor, e: &Tensor, size: &Tensor, by_values: bool) -> Result<Tensor> {
    let e = with_ones(e)?;
    if by_values {
        return x.div(&e);
    }
    let rounding = sizes(x).0 as f64 * epsilon(x);
    let is_small = x.detach().abs().le(&size.detach().mul_scalar(8.0 * rounding))?;
    let cancels = e.detach().abs().le_scalar(4.0 * rounding).bitwise_and(&is_small)?;
    cancels.where_cond(&x.zeros_like(), x)?.div(&cancels.where_cond(&e.ones_like(), &e)?)
}

/// The greatest magnitude of each matrix, `[…, 1, 1]`.
#[track_caller]
pub(crate) fn greatest(x: &Tensor) -> Result<Tensor> {
    x.detach().abs().amax([-2, -1], true)
}

/// The sum of the terms that are present; none if all are absent.
#[track_caller]
pub(crate) fn sum_of(terms: impl IntoIterator<Item = Option<Tensor>>) -> Result<Option<Tensor>> {
    let mut all = terms.into_iter().flatten();
    let Some(first) = all.next() else { return Ok(None) };
    all.try_fold(first, |sum, term| sum.add(&term)).map(Some)
}

/// Both tensors expanded to the broadcast batch axes.
#[track_caller]
pub(crate) fn broadcast_batch(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    let lead = |t: &Tensor| -> Shape { t.dims()[..t.rank().saturating_sub(2)].iter().copied().collect() };
    let (own, other) = (lead(a), lead(b));
    if own == other {
        return Ok((a.clone(), b.clone()));
    }
    let batch = own.broadcast(&other, op)?;
    let wide = |t: &Tensor| -> Result<Tensor> {
        let (m, n) = sizes(t);
        t.expand(batch.iter().copied().chain([m, n]).collect::<Vec<usize>>())
    };
    Ok((wide(a)?, wide(b)?))
}
