//! What gradients are written in: transposes, triangles and diagonals of the last two axes.

use tensor_core::{DType, Result, Shape, Tensor};

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

/// The sizes of the matrices.
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

/// Eᵢⱼ = xⱼ − xᵢ of `[…, n]`, and 1 on the diagonal.
#[track_caller]
pub(crate) fn differences(x: &Tensor) -> Result<Tensor> {
    with_ones(&x.unsqueeze(-2)?.sub(&x.unsqueeze(-1)?)?)
}

/// The sum of those that are there.
#[track_caller]
pub(crate) fn sum_of(terms: impl IntoIterator<Item = Option<Tensor>>) -> Result<Option<Tensor>> {
    let mut all = terms.into_iter().flatten();
    let Some(first) = all.next() else { return Ok(None) };
    all.try_fold(first, |sum, term| sum.add(&term)).map(Some)
}

/// Both with the batch axes of both.
#[track_caller]
pub(crate) fn broadcast_batch(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
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
