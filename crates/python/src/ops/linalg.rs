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
        "lu" => ("LinalgLuBackward0", run(py, move || linalg::lu(&a).map(|(p, l, u)| vec![p, l, u]))?),
        _ => return Err(wrong_value(format!("no factorization {name}"))),
    };
    Ok(factors.into_iter().map(|factor| PyTensor::new(factor, grad)).collect())
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
    module.add_function(wrap_pyfunction!(linalg_multi_dot, module)?)
}
