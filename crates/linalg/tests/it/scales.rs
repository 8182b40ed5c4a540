//! Matrices at the ends of the range of numbers: results and gradients for k·A are those for A times a power
//! of k, for powers of two k.

use autograd::{TensorGrad, grad_of};
use linalg::{MatrixNorm, QrMode, Tolerance, Uplo};
use taper_testing::settings::opened_in_turn;
use tensor_core::{DType, Device, Result, Tensor};

use crate::{cpu, numbers};

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

/// Exponents of about 1e-30, 1e20 and 1e30; 1e-200, 1e160 and 1e300.
fn exponents(dtype: DType) -> [i32; 3] {
    if dtype == DType::F64 { [-664, 531, 996] } else { [-99, 66, 99] }
}

fn power_of_two(x: &Tensor, exponent: i32) -> Tensor {
    let half = exponent / 2;
    x.mul_scalar(2f64.powi(half)).mul_scalar(2f64.powi(exponent - half))
}

/// Calls `f` for the CPU in both dtypes, and for a GPU in those that it supports.
fn each_device(mut f: impl FnMut(&Device, DType) -> Result<()>) -> Result<()> {
    let devices = [Some(cpu()), opened_in_turn(|| backend_wgpu::wgpu(0))];
    for device in devices.into_iter().flatten() {
        for dtype in [DType::F32, DType::F64].into_iter().filter(|&dtype| device.supports(dtype)) {
            f(&device, dtype)?;
        }
    }
    Ok(())
}

#[track_caller]
fn near(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    let (found_all, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    let size = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let limit = if found.dtype() == DType::F64 { 1e-12 } else { 3e-5 };
    for (x, y) in found_all.iter().zip(&expected) {
        assert!((x - y).abs() <= limit * size, "{what} on {}: {x:e} is not {y:e}", found.device());
    }
}

type Of = fn(&Tensor) -> Result<Tensor>;

/// Functions, the power of k that their results scale with, and whether matrices must be square.
const FUNCTIONS: &[(&str, Of, i32, bool)] = &[
    ("svdvals", linalg::svdvals, 1, false),
    ("svd", |a| Ok(linalg::svd(a, false)?.1), 1, false),
    (
        "U and V",
        |a| {
            let (u, _, vh) = linalg::svd(a, false)?;
            u.matmul(&vh)
        },
        0,
        false,
    ),
    (
        "a full U and V",
        |a| {
            let (u, _, vh) = linalg::svd(a, true)?;
            Ok(u.square().sum_axis(-1, false)?.add(&vh.square().sum()))?
        },
        0,
        true,
    ),
    ("pinv", |a| linalg::pinv(a, Tolerance::default(), false), -1, false),
    ("a pinv of symmetric", |a| linalg::pinv(&a.add(&mt(a)?)?, Tolerance::default(), true), -1, true),
    ("lstsq", |a| Ok(linalg::lstsq(a, &a.narrow(-1, 0, 2)?.abs(), None)?.solution), 0, false),
    ("singular values of lstsq", |a| Ok(linalg::lstsq(a, a, None)?.singular_values), 1, false),
    ("cond", |a| linalg::cond(a, MatrixNorm::Two), 0, false),
    ("cond by inverses", |a| linalg::cond(a, MatrixNorm::One), 0, true),
    ("nuclear", |a| linalg::matrix_norm(a, MatrixNorm::Nuclear, false), 1, false),
    ("spectral", |a| linalg::matrix_norm(a, MatrixNorm::Two, true), 1, false),
    ("least singular value", |a| linalg::matrix_norm(a, MatrixNorm::NegTwo, false), 1, false),
    ("greatest sum", |a| linalg::matrix_norm(a, MatrixNorm::Inf, false), 1, false),
    ("eigvalsh", |a| linalg::eigvalsh(a, Uplo::Lower), 1, true),
    ("eigh", |a| Ok(linalg::eigh(a, Uplo::Upper)?.0), 1, true),
    (
        "Q of eigh",
        |a| {
            let q = linalg::eigh(a, Uplo::Lower)?.1;
            let first = q.narrow(-1, 0, 1)?;
            first.matmul(&mt(&first)?)
        },
        0,
        true,
    ),
    ("Q", |a| Ok(linalg::qr(a, QrMode::Reduced)?.0), 0, false),
    ("R", |a| Ok(linalg::qr(a, QrMode::Reduced)?.1), 1, false),
    ("L of LU", |a| Ok(linalg::lu(a)?.1), 0, false),
    ("U of LU", |a| Ok(linalg::lu(a)?.2), 1, false),
    ("solve", |a| linalg::solve(a, &a.abs()), 0, true),
    ("inv", linalg::inv, -1, true),
    ("sign", |a| Ok(linalg::slogdet(a)?.0), 0, true),
];

#[test]
fn results_are_in_proportion() -> Result<()> {
    each_device(|device, dtype| {
        for &(name, f, power, is_square) in FUNCTIONS {
            let shapes: &[&[usize]] =
                if is_square { &[&[2, 3, 3], &[2, 2]] } else { &[&[2, 4, 3], &[3, 4], &[3, 3]] };
            for &shape in shapes {
                let a = numbers(shape, 5, dtype).to(device)?;
                let expected = f(&a)?;
                for k in exponents(dtype) {
                    let found = f(&power_of_two(&a, k))?;
                    near(
                        &power_of_two(&found, -k * power),
                        &expected,
                        &format!("{name} of {shape:?} at 2^{k}"),
                    );
                }
            }
        }
        Ok(())
    })
}

#[test]
fn gradients_are_in_proportion() -> Result<()> {
    each_device(|device, dtype| {
        for &(name, f, power, is_square) in FUNCTIONS {
            // These have no gradient, or one that is 0.
            if ["sign", "singular values of lstsq", "a full U and V"].contains(&name) {
                continue;
            }
            let shape: &[usize] = if is_square { &[2, 3, 3] } else { &[2, 4, 3] };
            let a = numbers(shape, 5, dtype).to(device)?;
            let gradient = |a: &Tensor, by: i32| -> Result<Tensor> {
                let a = a.detach().requires_grad();
                let y = f(&a)?;
                let weight = power_of_two(&numbers(y.dims(), 9, dtype).to(device)?, by);
                grad_of(&y.mul(&weight)?.sum(), &a, false)
            };
            let expected = gradient(&a, 0)?;
            for k in exponents(dtype) {
                // The gradient scales with k to the power minus 1: the weight keeps it in range.
                let by = if power == -1 { k } else { 0 };
                let whole = k * (power - 1) + by;
                let found = gradient(&power_of_two(&a, k), by)?;
                near(&power_of_two(&found, -whole), &expected, &format!("the gradient of {name} at 2^{k}"));
            }
        }
        Ok(())
    })
}

#[test]
fn definite_matrices() -> Result<()> {
    each_device(|device, dtype| {
        let x = numbers(&[2, 3, 3], 5, dtype).to(device)?;
        let a = x.matmul(&mt(&x)?)?.add(&Tensor::eye(3, (dtype, device))?)?;
        let (l, root) = (linalg::cholesky(&a, false)?, linalg::matrix_sqrth(&a)?);
        for k in exponents(dtype).map(|k| k / 2 * 2) {
            let a = power_of_two(&a, k);
            near(&power_of_two(&linalg::cholesky(&a, false)?, -k / 2), &l, "cholesky");
            near(&power_of_two(&linalg::matrix_sqrth(&a)?, -k / 2), &root, "matrix_sqrth");
        }
        Ok(())
    })
}

#[test]
fn determinants_do_not_leave_the_range_on_the_way() -> Result<()> {
    each_device(|device, dtype| {
        // The product of all twelve is 6⁶, but that of the first six overflows.
        let k = f64::from(exponents(dtype)[2] / 4);
        let values: Vec<f64> =
            (0..12).map(|i| if i < 6 { 3.0 * k.exp2() } else { 2.0 * (-k).exp2() }).collect();
        let a =
            Tensor::from_slice(&values, [12], &cpu())?.to_dtype(dtype)?.to(device)?.diag_embed(0, 0, 1)?;
        let a = a.detach().requires_grad();
        let product = 6f64.powi(6);
        let det = linalg::det(&a)?;
        near(&det.detach(), &Tensor::full((), product, (dtype, device))?, "det");
        let (_, log) = linalg::slogdet(&a)?;
        near(&log.detach(), &Tensor::full((), product.ln(), (dtype, device))?, "slogdet");
        // Cofactors are the product divided by each of the elements.
        let gradient = grad_of(&det, &a, false)?;
        let found = gradient.diagonal(0, 0, 1)?.mul(&a.detach().diagonal(0, 0, 1)?)?;
        near(&found, &Tensor::full([12], product, (dtype, device))?, "cofactors");
        Ok(())
    })
}

#[test]
fn second_derivatives_of_determinants() -> Result<()> {
    each_device(|device, dtype| {
        let second = |a: &Tensor| -> Result<Tensor> {
            let a = a.detach().requires_grad();
            let first = grad_of(&linalg::det(&a)?, &a, true)?;
            let weight = numbers(&[3, 3], 9, dtype).to(device)?;
            grad_of(&first.mul(&weight)?.sum(), &a, false)
        };
        let a = numbers(&[3, 3], 5, dtype).to(device)?;
        let expected = second(&a)?;
        for k in exponents(dtype) {
            // Cofactors of 2 x 2 matrices scale with k², so k may have half the exponent.
            let found = second(&power_of_two(&a, k / 2))?;
            near(&power_of_two(&found, -(k / 2)), &expected, "second derivatives of det");
        }
        Ok(())
    })
}

#[test]
fn ranks_of_the_smallest_and_the_greatest() -> Result<()> {
    let cpu = cpu();
    for dtype in [DType::F32, DType::F64] {
        let a = Tensor::new([[1.0f64, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], &cpu)?.to_dtype(dtype)?;
        let ends = if dtype == DType::F64 { [-1060, -664, 1020] } else { [-140, -99, 124] };
        for k in ends {
            let a = power_of_two(&a, k);
            assert_eq!(
                linalg::matrix_rank(&a, Tolerance::default(), false)?.item_f64()?,
                2.0,
                "2^{k} in {dtype}"
            );
        }
    }
    Ok(())
}

#[test]
fn columns_of_different_sizes() -> Result<()> {
    each_device(|device, dtype| {
        // Each column of Q depends on its own column, however small that is beside the others.
        let small = if dtype == DType::F64 { 1e-250 } else { 1e-30 };
        let a = numbers(&[5, 3], 5, dtype).to(device)?;
        let sizes =
            Tensor::from_slice(&[1.0f64, small, 1.0 / small], [3], &cpu())?.to_dtype(dtype)?.to(device)?;
        let (q, r) = linalg::qr(&a.mul(&sizes)?, QrMode::Reduced)?;
        let (q0, r0) = linalg::qr(&a, QrMode::Reduced)?;
        near(&q, &q0, "Q");
        near(&r.div(&sizes)?, &r0, "R");
        Ok(())
    })
}
