//! Gradients where singular values or eigenvalues are equal.

use autograd::{TensorGrad, grad_of, gradcheck};
use linalg::{MatrixNorm, Tolerance, Uplo};
use taper_testing::settings::opened_in_turn;
use tensor_core::{DType, Device, Result, Tensor};

use crate::{cpu, numbers};

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

fn devices() -> Vec<(Device, DType)> {
    let mut all = Vec::new();
    for device in [Some(cpu()), opened_in_turn(|| backend_wgpu::wgpu(0))].into_iter().flatten() {
        let dtypes = [DType::F32, DType::F64].into_iter().filter(|&dtype| device.supports(dtype));
        all.extend(dtypes.map(|dtype| (device.clone(), dtype)));
    }
    all
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    let limit = if found.dtype() == DType::F64 { 1e-9 } else { 2e-4 };
    taper_testing::assert_close(
        &found.to_f64_vec().unwrap(),
        &expected.to_f64_vec().unwrap(),
        (limit, limit),
        what,
    );
}

/// A pseudo-random rotation.
fn rotation(n: usize, seed: u64, (device, dtype): (&Device, DType)) -> Result<Tensor> {
    Ok(linalg::qr(&numbers(&[n, n], seed, dtype).to(device)?, linalg::QrMode::Reduced)?.0)
}

/// Matrices with two equal values: exactly, or within rounding.
fn with_equal(device: &Device, dtype: DType) -> Result<Vec<Tensor>> {
    let values = Tensor::new([2.0f64, 2.0, 3.0], &cpu())?.to_dtype(dtype)?.to(device)?.diag_embed(0, 0, 1)?;
    let q = rotation(3, 4, (device, dtype))?;
    let turned = q.matmul(&values)?.matmul(&mt(&q)?)?;
    Ok(vec![Tensor::eye(3, (dtype, device))?.mul_scalar(2), values, turned])
}

#[test]
fn functions_of_values_alone() -> Result<()> {
    for (device, dtype) in devices() {
        for a in with_equal(&device, dtype)? {
            let a = a.detach().requires_grad();
            let of = |y: Tensor| grad_of(&y, &a, false);
            let inverse = linalg::inv(&a.detach())?;
            let one = Tensor::eye(3, (dtype, &device))?;
            near(&of(linalg::svdvals(&a)?.sum())?, &one, "the sum of singular values");
            near(&of(linalg::matrix_norm(&a, MatrixNorm::Nuclear, false)?)?, &one, "the nuclear norm");
            near(&of(linalg::eigvalsh(&a, Uplo::Lower)?.log().sum())?, &inverse, "logdet");
            near(&of(linalg::eigh(&a, Uplo::Lower)?.0.powi(2).sum())?, &a.detach().mul_scalar(2), "squares");
        }
    }
    Ok(())
}

#[test]
fn functions_of_vectors_alone() -> Result<()> {
    for (device, dtype) in devices() {
        let weight = numbers(&[3, 3], 7, dtype).to(&device)?;
        for a in with_equal(&device, dtype)? {
            let a = a.detach().requires_grad();
            // The rotation nearest to a definite matrix P is 1, and its derivative is the G with P·G + G·P =
            // g − gᵀ.
            let (u, _, vh) = linalg::svd(&a, false)?;
            let found = grad_of(&u.matmul(&vh)?.mul(&weight)?.sum(), &a, false)?;
            let (values, q) = linalg::eigh(&a.detach(), Uplo::Lower)?;
            let skew = weight.sub(&mt(&weight)?)?;
            let inner = mt(&q)?.matmul(&skew)?.matmul(&q)?;
            let inner = inner.div(&values.unsqueeze(-1)?.add(&values.unsqueeze(-2)?)?)?;
            near(&found, &q.matmul(&inner)?.matmul(&mt(&q)?)?, "the nearest rotation");
        }
        // The projection on the two equal ones changes only if they turn toward the third.
        let a = with_equal(&device, dtype)?.swap_remove(1).detach().requires_grad();
        let (_, q) = linalg::eigh(&a, Uplo::Lower)?;
        let span = q.narrow(-1, 0, 2)?;
        let found = grad_of(&span.matmul(&mt(&span)?)?.mul(&weight)?.sum(), &a, false)?;
        let whole = weight.add(&mt(&weight)?)?.mul_scalar(-0.5);
        let across = Tensor::new([[0.0f64, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]], &cpu())?;
        near(&found, &whole.mul(&across.to_dtype(dtype)?.to(&device)?)?, "a projection");
    }
    Ok(())
}

#[test]
fn second_derivatives_of_the_nuclear_norm() -> Result<()> {
    for (device, dtype) in devices() {
        let weight = numbers(&[3, 3], 7, dtype).to(&device)?;
        for a in with_equal(&device, dtype)? {
            let a = a.detach().requires_grad();
            let first = grad_of(&linalg::svdvals(&a)?.sum(), &a, true)?;
            let found = grad_of(&first.mul(&weight)?.sum(), &a, false)?;
            let (u, _, vh) = linalg::svd(&a, false)?;
            let expected = grad_of(&u.matmul(&vh)?.mul(&weight)?.sum(), &a, false)?;
            near(&found, &expected, "the nuclear norm twice");
        }
    }
    Ok(())
}

#[test]
fn functions_of_symmetric_matrices() -> Result<()> {
    for (device, dtype) in devices() {
        let weight = numbers(&[3, 3], 7, dtype).to(&device)?;
        for a in with_equal(&device, dtype)? {
            let of = |f: &dyn Fn(&Tensor) -> Result<Tensor>| {
                let a = a.detach().requires_grad();
                let symmetric = a.add(&mt(&a)?)?.mul_scalar(0.5);
                grad_of(&f(&symmetric)?.mul(&weight)?.sum(), &a, false)
            };
            let lower = Uplo::Lower;
            let found = of(&|a| linalg::symmetric_function(a, lower, |x| Ok(x.powi(3))))?;
            near(&found, &of(&|a| a.matmul(a)?.matmul(a))?, "a cube");
            let found = of(&|a| linalg::symmetric_function(a, lower, |x| Ok(x.reciprocal())))?;
            near(&found, &of(&linalg::inv)?, "an inverse");
            let found = of(&|a| linalg::symmetric_function(a, lower, |x| Ok(x.exp())))?;
            near(&found, &of(&linalg::matrix_exp)?, "an exponential");
            let found = of(&|a| linalg::symmetric_function(a, lower, |x| Ok(x.sqrt())))?;
            near(&found, &of(&linalg::matrix_sqrth)?, "a root");
            let found = of(&|a| linalg::symmetric_function(a, lower, |x| Ok(x.ones_like())))?;
            near(&found, &found.zeros_like(), "a constant");
        }
    }
    // Second derivatives where eigenvalues differ.
    let a = numbers(&[2, 4, 4], 3, DType::F64);
    let f = |x: &[Tensor]| {
        let symmetric = x[0].add(&mt(&x[0])?)?;
        linalg::symmetric_function(&symmetric, Uplo::Upper, |x| Ok(x.tanh()))
    };
    gradcheck(f, std::slice::from_ref(&a))?;
    autograd::gradgradcheck(f, &[a])?;
    let empty = Tensor::zeros([0, 0], (DType::F64, &cpu()))?.requires_grad();
    let y = linalg::symmetric_function(&empty, Uplo::Lower, |x| Ok(x.exp()))?;
    assert_eq!(grad_of(&y.sum(), &empty, false)?.dims(), [0, 0]);
    Ok(())
}

#[test]
fn pseudo_inverses() -> Result<()> {
    for (device, dtype) in devices() {
        let weight = numbers(&[3, 3], 7, dtype).to(&device)?;
        for a in with_equal(&device, dtype)? {
            let a = a.detach().requires_grad();
            let found =
                grad_of(&linalg::pinv(&a, Tolerance::default(), false)?.mul(&weight)?.sum(), &a, false)?;
            let expected = grad_of(&linalg::inv(&a)?.mul(&weight)?.sum(), &a, false)?;
            near(&found, &expected, "a pseudo-inverse");
        }
    }
    Ok(())
}
