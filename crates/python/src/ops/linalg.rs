//! `torch.linalg` and `torch.fft`. The package gives these functions their places.

use pyo3::prelude::*;
use taper::{
    Result, Tensor,
    fft::{self, Norm},
    linalg::{self, MatrixNorm, QrMode, Tolerance, Uplo},
};

use super::functions;
use crate::{
    args::{Ints, Value, values},
    errors::wrong_value,
    tensor::{PyTensor, made, run},
};

/// A norm of matrices, by its name or number in PyTorch.
fn norm(name: &str) -> Result<MatrixNorm> {
    Ok(match name {
        "fro" => MatrixNorm::Frobenius,
        "nuc" => MatrixNorm::Nuclear,
        "inf" => MatrixNorm::Inf,
        "-inf" => MatrixNorm::NegInf,
        "1" => MatrixNorm::One,
        "-1" => MatrixNorm::NegOne,
        "2" => MatrixNorm::Two,
        "-2" => MatrixNorm::NegTwo,
        _ => return Err(taper::Error::invalid("matrix_norm", format!("no norm {name}"))),
    })
}

fn tolerance(atol: Option<f64>, rtol: Option<f64>) -> Tolerance {
    Tolerance { atol, rtol }
}

functions! { add_functions:
    linalg_cholesky(a: Value, upper: bool = false) "LinalgCholeskyExBackward0" => linalg::cholesky(&a.0, upper);
    linalg_cholesky_solve(b: Value, l: Value, upper: bool = false) "CholeskySolveBackward0" => {
        linalg::cholesky_solve(&b.0, &l.0, upper)
    };
    linalg_cholesky_inverse(l: Value, upper: bool = false) "CholeskyInverseBackward0" => {
        linalg::cholesky_inverse(&l.0, upper)
    };
    linalg_det(a: Value) "LinalgDetBackward0" => linalg::det(&a.0);
    linalg_logdet(a: Value) "LogdetBackward0" => linalg::logdet(&a.0);
    linalg_eigvalsh(a: Value, upper: bool = false) "LinalgEighBackward0" => {
        linalg::eigvalsh(&a.0, if upper { Uplo::Upper } else { Uplo::Lower })
    };
    linalg_matrix_exp(a: Value) "LinalgMatrixExpBackward0" => linalg::matrix_exp(&a.0);
    linalg_matrix_power(a: Value, n: i32) "MmBackward0" => linalg::matrix_power(&a.0, n);
    linalg_matrix_norm(a: Value, ord: String, keepdim: bool = false) "LinalgMatrixNormBackward0" => {
        linalg::matrix_norm(&a.0, norm(&ord)?, keepdim)
    };
    linalg_cond(a: Value, p: String) "DivBackward0" => linalg::cond(&a.0, norm(&p)?);
    linalg_pinv(a: Value, atol: Option<f64> = None, rtol: Option<f64> = None, hermitian: bool = false)
        "LinalgPinvBackward0" => linalg::pinv(&a.0, tolerance(atol, rtol), hermitian);
    linalg_matrix_rank(a: Value, atol: Option<f64> = None, rtol: Option<f64> = None, hermitian: bool = false)
        "" => linalg::matrix_rank(&a.0, tolerance(atol, rtol), hermitian);
    linalg_solve(a: Value, b: Value, left: bool = true) "LinalgSolveExBackward0" => {
        linalg::solve_with(&a.0, &b.0, left)
    };
    linalg_solve_triangular(a: Value, b: Value, upper: bool, left: bool = true, unitriangular: bool = false)
        "LinalgSolveTriangularBackward0" => linalg::solve_triangular(&a.0, &b.0, upper, left, unitriangular);
    linalg_inv(a: Value) "LinalgInvExBackward0" => linalg::inv(&a.0);
    linalg_svdvals(a: Value) "LinalgSvdBackward0" => linalg::svdvals(&a.0);
    linalg_lu_solve(lu: Value, pivots: Value, b: Value, left: bool = true, adjoint: bool = false)
        "LinalgLuSolveBackward0" => {
        let (p, l, u) = unpacked(&lu.0, &pivots.0)?;
        linalg::lu_solve(&p, &l, &u, &b.0, left, adjoint)
    };
    linalg_householder_product(a: Value, tau: Value) "LinalgHouseholderProductBackward0" => {
        linalg::householder_product(&a.0, &tau.0)
    };
    linalg_ormqr(a: Value, tau: Value, c: Value, left: bool = true, transpose: bool = false)
        "OrmqrBackward0" => linalg::ormqr(&a.0, &tau.0, &c.0, left, transpose);
    linalg_ldl_solve(ld: Value, pivots: Value, b: Value) "" => linalg::ldl_solve(&ld.0, &pivots.0, &b.0);
    linalg_tensorsolve(a: Value, b: Value, dims: Option<Vec<isize>> = None) "ViewBackward0" => match dims {
        Some(dims) => linalg::tensorsolve_axes(&a.0, &b.0, dims),
        None => linalg::tensorsolve(&a.0, &b.0),
    };
    linalg_matrix_sqrth(a: Value) "LinalgMatrixSqrthBackward0" => linalg::matrix_sqrth(&a.0);
    linalg_tensorinv(a: Value, ind: usize = 2) "ViewBackward0" => linalg::tensorinv(&a.0, ind);
    fftfreq(n: usize, d: f64 = 1.0) "" => fft::fftfreq(n, d, &taper::cpu());
    rfftfreq(n: usize, d: f64 = 1.0) "" => fft::rfftfreq(n, d, &taper::cpu());
    fftshift(x: Value, dim: Option<Ints> = None) "RollBackward0" => {
        fft::fftshift(&x.0, crate::args::axes(dim))
    };
    ifftshift(x: Value, dim: Option<Ints> = None) "RollBackward0" => {
        fft::ifftshift(&x.0, crate::args::axes(dim))
    };
    rfft_as_real(x: Value, n: Option<usize>, dim: isize, norm: String) "FftR2CBackward0" => {
        fft::rfft(&x.0, n, dim, scale(&norm)?)
    };
    irfft_of_real(x: Value, n: Option<usize>, dim: isize, norm: String) "FftC2RBackward0" => {
        fft::irfft(&x.0, n, dim, scale(&norm)?)
    };
}

fn scale(norm: &str) -> Result<Norm> {
    match norm {
        "backward" => Ok(Norm::Backward),
        "forward" => Ok(Norm::Forward),
        "ortho" => Ok(Norm::Ortho),
        _ => Err(taper::Error::invalid("fft", format!("Invalid normalization mode: \"{norm}\""))),
    }
}

/// The factors P, L and U of the compact form, whose pivots count from 1.
fn unpacked(lu: &Tensor, pivots: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let rank = lu.rank();
    if rank < 2 || pivots.rank() + 1 != rank {
        return Err(taper::Error::invalid("lu_unpack", "give factors of a matrix and a pivot for each row"));
    }
    let (rows, columns) = (lu.dims()[rank - 2], lu.dims()[rank - 1]);
    let least = rows.min(columns);
    let swaps = pivots.to_dtype(taper::DType::I64)?.flatten_all().to_vec::<i64>()?;
    let mut order = Vec::with_capacity(swaps.len() / least.max(1) * rows);
    for swaps in swaps.chunks_exact(least.max(1)) {
        let mut rows: Vec<i64> = (0..rows as i64).collect();
        for (row, &swap) in swaps.iter().enumerate() {
            let other = usize::try_from(swap - 1).ok().filter(|&other| other < rows.len());
            let Some(other) = other else {
                return Err(taper::Error::invalid("lu_unpack", format!("the pivot {swap}")));
            };
            rows.swap(row, other);
        }
        order.extend(rows);
    }
    let batch = &lu.dims()[..rank - 2];
    let count: usize = batch.iter().product();
    if least == 0 {
        order = (0..count).flat_map(|_| 0..rows as i64).collect();
    }
    let sizes = [batch, &[rows]].concat();
    let order = Tensor::from_vec(order, sizes, &lu.device())?;
    let p = order.one_hot(Some(rows))?.to_dtype(lu.dtype())?.transpose(-2, -1)?;
    let l = lu.narrow(rank - 1, 0, least)?.tril(-1)?;
    let ones = Tensor::eye(rows.max(least), (lu.dtype(), &lu.device()))?;
    let ones = ones.narrow(0, 0, rows)?.narrow(1, 0, least)?;
    let u = lu.narrow(rank - 2, 0, least)?.triu(0)?;
    Ok((p, l.add(&ones)?, u))
}

/// The compact form of the factors: L below the diagonal of U, and the pivots, which count from 1.
fn packed(p: &Tensor, l: &Tensor, u: &Tensor) -> Result<Vec<Tensor>> {
    let rank = l.rank();
    let (rows, columns) = (l.dims()[rank - 2], u.dims()[rank - 1]);
    let least = rows.min(columns);
    let mut wide = l.tril(-1)?;
    if columns > least {
        let missing = [&l.dims()[..rank - 1], &[columns - least]].concat();
        wide = Tensor::concat(&[&wide, &Tensor::zeros(missing, (l.dtype(), &l.device()))?], -1)?;
    }
    let mut upper = u.clone();
    if rows > least {
        let missing = [&u.dims()[..rank - 2], &[rows - least, columns]].concat();
        upper = Tensor::concat(&[&upper, &Tensor::zeros(missing, (u.dtype(), &u.device()))?], -2)?;
    }
    // The row of the input that each row of the product L·U came from.
    let batch: usize = l.dims()[..rank - 2].iter().product();
    let mut pivots: Vec<i32> = Vec::with_capacity(batch * least);
    if batch * rows > 0 {
        let from = p.transpose(-2, -1)?.argmax_axis(-1, false)?;
        let from = from.to_dtype(taper::DType::I64)?.flatten_all().to_vec::<i64>()?;
        for wanted in from.chunks_exact(rows) {
            let mut order: Vec<i64> = (0..rows as i64).collect();
            for (row, wanted) in wanted.iter().enumerate().take(least) {
                let at = order.iter().position(|other| other == wanted).unwrap_or(row);
                order.swap(row, at);
                pivots.push(at as i32 + 1);
            }
        }
    }
    let sizes = [&l.dims()[..rank - 2], &[least]].concat();
    Ok(vec![wide.add(&upper)?, Tensor::from_vec(pivots, sizes, &l.device())?])
}

/// A factorization by its name: its factors in PyTorch's order.
#[pyfunction]
#[pyo3(signature = (name, a, full = true))]
fn linalg_factors(py: Python<'_>, name: &str, a: Value, full: bool) -> PyResult<Vec<PyTensor>> {
    let a = a.0;
    let (grad, factors) = match name {
        "qr" => {
            let mode = if full { QrMode::Complete } else { QrMode::Reduced };
            ("LinalgQrBackward0", run(py, move || linalg::qr(&a, mode).map(|(q, r)| vec![q, r]))?)
        }
        "svd" => {
            let factors = run(py, move || linalg::svd(&a, full).map(|(u, s, v)| vec![u, s, v]))?;
            ("LinalgSvdBackward0", factors)
        }
        "eigh" => {
            let uplo = if full { Uplo::Upper } else { Uplo::Lower };
            ("LinalgEighBackward0", run(py, move || linalg::eigh(&a, uplo).map(|(w, v)| vec![w, v]))?)
        }
        "slogdet" => {
            ("LinalgSlogdetBackward0", run(py, move || linalg::slogdet(&a).map(|(s, l)| vec![s, l]))?)
        }
        "lu_factor" => {
            let factors = run(py, move || {
                let (p, l, u) = linalg::lu(&a)?;
                packed(&p, &l, &u)
            })?;
            ("LinalgLuFactorExBackward0", factors)
        }
        "geqrf" => ("GeqrfBackward0", run(py, move || linalg::geqrf(&a).map(|(a, tau)| vec![a, tau]))?),
        "ldl" => ("", run(py, move || linalg::ldl_factor(&a).map(|(ld, pivots)| vec![ld, pivots]))?),
        "polar" => {
            let factors = run(py, move || linalg::polar(&a, full).map(|(u, p)| vec![u, p]))?;
            ("LinalgPolarBackward0", factors)
        }
        "lu" => ("LinalgLuBackward0", run(py, move || linalg::lu(&a).map(|(p, l, u)| vec![p, l, u]))?),
        _ => return Err(wrong_value(format!("no factorization {name}"))),
    };
    Ok(factors.into_iter().map(|factor| PyTensor::new(factor, grad)).collect())
}

/// P, L and U of the compact form.
#[pyfunction]
fn linalg_lu_unpack(py: Python<'_>, lu: Value, pivots: Value) -> PyResult<Vec<PyTensor>> {
    let (p, l, u) = run(py, move || unpacked(&lu.0, &pivots.0))?;
    Ok(vec![PyTensor::plain(p), PyTensor::new(l, "LuUnpackBackward0"), PyTensor::new(u, "LuUnpackBackward0")])
}

/// The `q` greatest singular values and their vectors, by random products.
#[pyfunction]
fn linalg_lowrank(
    py: Python<'_>,
    a: Value,
    q: usize,
    iterations: usize,
    center: Option<bool>,
) -> PyResult<Vec<PyTensor>> {
    let rng = super::random::PyGenerator::of(None, &a.0.device());
    let (u, s, v) = run(py, move || match center {
        Some(center) => linalg::pca_lowrank(&a.0, q, center, iterations, &rng),
        None => linalg::svd_lowrank(&a.0, q, iterations, &rng),
    })?;
    Ok([u, s, v].into_iter().map(|factor| PyTensor::new(factor, "SvdLowrankBackward0")).collect())
}

/// Least squares: solution, residuals, rank, singular values.
#[pyfunction]
#[pyo3(signature = (a, b, rcond = None))]
fn linalg_lstsq(py: Python<'_>, a: Value, b: Value, rcond: Option<f64>) -> PyResult<Vec<PyTensor>> {
    let found = run(py, move || linalg::lstsq(&a.0, &b.0, rcond))?;
    let parts = [found.solution, found.residuals, found.rank, found.singular_values];
    Ok(parts.into_iter().map(|part| PyTensor::new(part, "LinalgLstsqBackward0")).collect())
}

/// The product of several matrices in the cheapest order.
#[pyfunction]
fn linalg_multi_dot(py: Python<'_>, tensors: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let tensors: Vec<Tensor> = values(tensors)?;
    made(py, "MmBackward0", move || linalg::multi_dot(&tensors))
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions(module)?;
    module.add_function(wrap_pyfunction!(linalg_factors, module)?)?;
    module.add_function(wrap_pyfunction!(linalg_lstsq, module)?)?;
    module.add_function(wrap_pyfunction!(linalg_lu_unpack, module)?)?;
    module.add_function(wrap_pyfunction!(linalg_lowrank, module)?)?;
    module.add_function(wrap_pyfunction!(linalg_multi_dot, module)?)
}
