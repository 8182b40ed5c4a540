//! The matrix exponential, and products of several matrices.

use tensor_core::{DType, Error, Result, Tensor, caller_line};

use crate::{
    matrix::sizes,
    routine::{check_matrix, check_square},
};

/// 1/k! for k up to the degree of the series.
fn coefficients() -> [f64; 17] {
    let mut term = 1.0;
    std::array::from_fn(|k| {
        term /= k.max(1) as f64;
        term
    })
}

/// The matrix exponential Σ Aᵏ/k! of square matrices. `torch.linalg.matrix_exp`.
///
/// By scaling and squaring: the series up to the 16th power of A/2ˢ, whose 1-norm is at most ½ in f64 and 2
/// in f32, is squared s times. It consists of products, so it runs on every device and its gradients have
/// gradients. s depends on the greatest 1-norm of the batch, which is read on the host.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64.
#[track_caller]
pub fn matrix_exp(a: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "linalg.matrix_exp";
    check_matrix(OP, a.shape(), a.dtype())?;
    check_square(OP, a.shape())?;
    if a.numel() == 0 {
        return Ok(a.clone());
    }
    let norm = a.detach().abs().sum_axis(-2, false)?.max()?.item_f64()?;
    // Each squaring doubles the relative error, so a dtype of less precision begins with greater norms: the
    // rest of the series, 2¹⁷/17! = 4·10⁻¹⁰, is below the precision of f32.
    let bound = if a.dtype() == DType::F64 { 0.5 } else { 2.0 };
    // For a norm that is not finite the series is NaN in any scale.
    let squarings = if norm.is_finite() && norm > bound { (norm / bound).log2().ceil() as i32 } else { 0 };
    let a = if squarings > 0 { a.mul_scalar(0.5f64.powi(squarings)) } else { a.clone() };
    let one = Tensor::eye(sizes(&a).0, (a.dtype(), &a.device()))?;
    let a2 = a.matmul(&a)?;
    let a3 = a2.matmul(&a)?;
    let a4 = a2.matmul(&a2)?;
    // Horner's rule in A⁴, a cubic at a time (Paterson and Stockmeyer).
    let c = coefficients();
    let cubic = |k: usize| -> Result<Tensor> {
        let low = one.mul_scalar(c[k]).add(&a.mul_scalar(c[k + 1]))?;
        low.add(&a2.mul_scalar(c[k + 2]))?.add(&a3.mul_scalar(c[k + 3]))
    };
    let mut sum = cubic(12)?.add(&a4.mul_scalar(c[16]))?;
    for k in [8, 4, 0] {
        sum = sum.matmul(&a4)?.add(&cubic(k)?)?;
    }
    for _ in 0..squarings {
        sum = sum.matmul(&sum)?;
    }
    Ok(sum)
}

/// The product of several matrices, in the order that takes the fewest multiplications. The first may be a
/// vector (a row) and the last too (a column); the result then lacks that axis. `torch.linalg.multi_dot`.
///
/// # Errors
/// Fewer than two tensors, batches, inner sizes that differ, two dtypes or devices.
#[track_caller]
pub fn multi_dot<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
    multi_dot_by(&tensors.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

#[track_caller]
fn multi_dot_by(tensors: &[&Tensor]) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "linalg.multi_dot";
    let (Some(first), Some(last), 2..) = (tensors.first(), tensors.last(), tensors.len()) else {
        return Err(Error::invalid(OP, format!("{} tensors: give two or more", tensors.len())));
    };
    let n = tensors.len();
    let mut chain = Vec::with_capacity(n);
    for (i, tensor) in tensors.iter().enumerate() {
        chain.push(match tensor.rank() {
            2 => (*tensor).clone(),
            1 if i == 0 => tensor.unsqueeze(0)?,
            1 if i == n - 1 => tensor.unsqueeze(1)?,
            _ => {
                let message = format!(
                    "tensor {i} has the shape {}: give matrices; the ends may be vectors",
                    tensor.shape()
                );
                return Err(Error::invalid(OP, message));
            }
        });
    }
    // The sizes of the factors, and the cheapest split of each run of factors.
    let sizes: Vec<f64> =
        chain.iter().map(|t| t.dims()[0]).chain([chain[n - 1].dims()[1]]).map(|d| d as f64).collect();
    let (mut cost, mut cut) = (vec![vec![0.0; n]; n], vec![vec![0; n]; n]);
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            cost[i][j] = f64::INFINITY;
            for k in i..j {
                let here = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
                if here < cost[i][j] {
                    (cost[i][j], cut[i][j]) = (here, k);
                }
            }
        }
    }
    let mut out = product(&chain, &cut, 0, n - 1)?;
    if last.rank() == 1 {
        out = out.squeeze(1)?;
    }
    if first.rank() == 1 { out.squeeze(0) } else { Ok(out) }
}

/// The product of the factors `i..=j`. The recursion is at most as deep as there are factors.
#[track_caller]
fn product(chain: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(chain[i].clone());
    }
    let k = cut[i][j];
    product(chain, cut, i, k)?.matmul(&product(chain, cut, k + 1, j)?)
}
