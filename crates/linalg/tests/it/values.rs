//! Values by their defining properties: for wide, tall, square, empty and batched matrices, in f32 and f64,
//! in every layout.

use linalg::{MatrixNorm, QrMode, Tolerance, Uplo};
use tensor_core::{DType, Result, Tensor};

use crate::{close, cpu, definite, elements, eye_like, numbers, random, symmetric};

const SHAPES: &[&[usize]] = &[
    &[1, 1],
    &[3, 3],
    &[5, 3],
    &[3, 5],
    &[2, 3, 4, 3],
    &[2, 3, 5],
    &[2, 6, 6],
    &[0, 3],
    &[3, 0],
    &[0, 0],
    &[0, 2, 2],
    &[40, 40],
    &[70, 33],
];

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

/// Calls `f` with every shape in both dtypes, contiguous and as a transposed view.
fn each(mut f: impl FnMut(&Tensor) -> Result<()>) -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (seed, shape) in SHAPES.iter().enumerate() {
            let a = numbers(shape, seed as u64, dtype);
            f(&a)?;
            a.eval()?;
            f(&mt(&a)?)?;
            f(&a.flip([-1])?)?;
        }
    }
    Ok(())
}

fn is_square(a: &Tensor) -> bool {
    a.dims()[a.rank() - 1] == a.dims()[a.rank() - 2]
}

fn each_square(mut f: impl FnMut(&Tensor) -> Result<()>) -> Result<()> {
    each(|a| if is_square(a) { f(a) } else { Ok(()) })
}

#[test]
fn cholesky_is_a_root() -> Result<()> {
    each_square(|a| {
        let a = definite(a)?;
        let l = linalg::cholesky(&a, false)?;
        close(&l.matmul(&mt(&l)?)?, &a, "L·Lᵀ");
        close(&l.tril(0)?, &l, "lower");
        close(&linalg::cholesky(&a, true)?, &mt(&l)?, "upper");
        Ok(())
    })
}

#[test]
fn lu_multiplies_to_its_matrix() -> Result<()> {
    each(|a| {
        let (p, l, u) = linalg::lu(a)?;
        close(&p.matmul(&l)?.matmul(&u)?, a, "P·L·U");
        close(&l.tril(0)?, &l, "L");
        close(&u.triu(0)?, &u, "U");
        let m = a.dims()[a.rank() - 2];
        close(&mt(&p)?.matmul(&p)?, &eye_like(a, m), "P");
        assert!(l.abs().le_scalar(1.0 + 1e-6).all().item::<bool>()?);
        Ok(())
    })
}

#[test]
fn packed_reflections_are_those_of_qr() -> Result<()> {
    each(|a| {
        let (m, n) = (a.dims()[a.rank() - 2], a.dims()[a.rank() - 1]);
        let (packed, tau) = linalg::geqrf(a)?;
        let (q, r) = linalg::qr(a, QrMode::Reduced)?;
        close(&packed.narrow(-2, 0, m.min(n))?.triu(0)?, &r, "R");
        if m >= n {
            close(&linalg::householder_product(&packed, &tau)?, &q, "Q");
        }
        // A complete Q, applied from each side.
        let (whole, _) = linalg::qr(a, QrMode::Complete)?;
        let dims: Vec<usize> = a.dims()[..a.rank() - 1].iter().copied().chain([2]).collect();
        let c = numbers(&dims, 9, a.dtype());
        close(&linalg::ormqr(&packed, &tau, &c, true, false)?, &whole.matmul(&c)?, "Q·C");
        close(&linalg::ormqr(&packed, &tau, &c, true, true)?, &mt(&whole)?.matmul(&c)?, "Qᵀ·C");
        close(&linalg::ormqr(&packed, &tau, &mt(&c)?, false, false)?, &mt(&c)?.matmul(&whole)?, "C·Q");
        close(&linalg::ormqr(&packed, &tau, &mt(&c)?, false, true)?, &mt(&c)?.matmul(&mt(&whole)?)?, "C·Qᵀ");
        Ok(())
    })
}

#[test]
fn symmetric_systems_by_their_factors() -> Result<()> {
    each_square(|a| {
        // Random matrices, and some with zeros on the diagonal, so that pivots are blocks of two.
        let whole = symmetric(a)?;
        let n = a.dims()[a.rank() - 1];
        let hollow = whole.sub(&whole.mul(&eye_like(a, n))?)?;
        for a in [whole, hollow] {
            if n == 1 {
                continue;
            }
            let (ld, pivots) = linalg::ldl_factor(&a)?;
            assert_eq!((pivots.dims(), pivots.dtype()), (&a.dims()[..a.rank() - 1], DType::I32));
            let dims: Vec<usize> = a.dims()[..a.rank() - 1].iter().copied().chain([3]).collect();
            let b = numbers(&dims, 9, a.dtype());
            let x = linalg::ldl_solve(&ld, &pivots, &b)?;
            if n > 0 && a.numel() > 0 {
                let size = x.abs().max()?.item_f64()?.max(1.0);
                close(&a.matmul(&x)?.div_scalar(size), &b.div_scalar(size), "A·X");
            }
            // The other triangle is not read.
            let strange = a.tril(0)?.add(&a.full_like(f64::NAN).triu(1)?)?;
            let masked = a.ones_like().tril(0)?.gt_scalar(0.0).where_cond(&a, &strange)?;
            close(&linalg::ldl_factor(&masked)?.0, &ld, "the lower triangle");
        }
        Ok(())
    })
}

#[test]
fn the_gradient_of_a_system_by_factors() -> Result<()> {
    let a = symmetric(&random(&[2, 4, 4], 3))?;
    let (ld, pivots) = linalg::ldl_factor(&a)?;
    let found = |x: &[Tensor]| linalg::ldl_solve(&ld, &pivots, &x[0]);
    autograd::gradcheck(found, &[random(&[2, 4, 2], 5)])?;
    let wrong = pivots.add_scalar(7);
    assert!(linalg::ldl_solve(&ld, &wrong, &random(&[2, 4, 2], 5))?.eval().is_err());
    Ok(())
}

#[test]
fn polar_factors_multiply_to_their_matrix() -> Result<()> {
    each(|a| {
        for left in [false, true] {
            let (u, p) = linalg::polar(a, left)?;
            let product = if left { p.matmul(&u)? } else { u.matmul(&p)? };
            close(&product, a, "the product");
            close(&mt(&p)?, &p, "P");
            let k = a.dims()[a.rank() - 2].min(a.dims()[a.rank() - 1]);
            let gram = if a.dims()[a.rank() - 2] >= k && a.dims()[a.rank() - 1] == k {
                mt(&u)?.matmul(&u)?
            } else {
                u.matmul(&mt(&u)?)?
            };
            close(&gram, &eye_like(a, k), "U");
        }
        Ok(())
    })
}

#[test]
fn qr_has_orthonormal_columns() -> Result<()> {
    each(|a| {
        let (m, n) = (a.dims()[a.rank() - 2], a.dims()[a.rank() - 1]);
        for (mode, k) in [(QrMode::Reduced, m.min(n)), (QrMode::Complete, m)] {
            let (q, r) = linalg::qr(a, mode)?;
            assert_eq!((q.dims()[a.rank() - 1], r.dims()[a.rank() - 2]), (k, k));
            close(&q.matmul(&r)?, a, "Q·R");
            close(&mt(&q)?.matmul(&q)?, &eye_like(a, k), "QᵀQ");
            close(&r.triu(0)?, &r, "R");
        }
        Ok(())
    })
}

#[test]
fn svd_multiplies_to_its_matrix() -> Result<()> {
    each(|a| {
        let (m, n) = (a.dims()[a.rank() - 2], a.dims()[a.rank() - 1]);
        let k = m.min(n);
        for full in [false, true] {
            let (u, s, vh) = linalg::svd(a, full)?;
            assert_eq!(u.dims()[a.rank() - 1], if full { m } else { k });
            assert_eq!(vh.dims()[a.rank() - 2], if full { n } else { k });
            close(&mt(&u)?.matmul(&u)?, &eye_like(a, if full { m } else { k }), "UᵀU");
            close(&vh.matmul(&mt(&vh)?)?, &eye_like(a, if full { n } else { k }), "V");
            let thin = u.narrow(-1, 0, k)?.mul(&s.unsqueeze(-2)?)?.matmul(&vh.narrow(-2, 0, k)?)?;
            close(&thin, a, "U·S·Vᵀ");
            close(&linalg::svdvals(a)?, &s, "svdvals");
            close(&s.sort(-1, true)?.0, &s, "descending");
            assert!(s.ge_scalar(0.0).all().item::<bool>()?);
        }
        Ok(())
    })
}

#[test]
fn eigh_diagonalizes_either_triangle() -> Result<()> {
    each_square(|a| {
        let whole = symmetric(a)?;
        for uplo in [Uplo::Lower, Uplo::Upper] {
            // The other triangle is not read.
            let part = if uplo == Uplo::Lower { whole.tril(0)? } else { whole.triu(0)? };
            let (values, q) = linalg::eigh(&part, uplo)?;
            close(&q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &whole, "Q·L·Qᵀ");
            close(&mt(&q)?.matmul(&q)?, &eye_like(a, q.dims()[a.rank() - 1]), "QᵀQ");
            close(&linalg::eigvalsh(&part, uplo)?, &values, "eigvalsh");
            close(&values.sort(-1, false)?.0, &values, "ascending");
        }
        Ok(())
    })
}

#[test]
fn systems_are_solved() -> Result<()> {
    each_square(|a| {
        let a = definite(a)?;
        let n = a.dims()[a.rank() - 1];
        let lead = &a.dims()[..a.rank() - 2];
        let dims = |tail: &[usize]| lead.iter().chain(tail).copied().collect::<Vec<_>>();
        let b = numbers(&dims(&[n, 2]), 9, a.dtype());
        close(&a.matmul(&linalg::solve(&a, &b)?)?, &b, "A·X");
        let c = mt(&b)?;
        close(&linalg::solve_with(&a, &c, false)?.matmul(&a)?, &c, "X·A");
        let v = numbers(&dims(&[n]), 10, a.dtype());
        if v.rank() > 1 || n != 1 {
            close(&a.matmul(&linalg::solve(&a, &v)?.unsqueeze(-1)?)?.squeeze(-1)?, &v, "A·x");
        }
        close(&a.matmul(&linalg::inv(&a)?)?, &eye_like(&a, n), "A·A⁻¹");
        for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
            // A diagonal of about 1 and small elements beside it.
            let a = a.mul_scalar(1.0 / (n * n).max(1) as f64).add(&eye_like(&a, n))?;
            let t = if upper { a.triu(0)? } else { a.tril(0)? };
            let strict = if upper { a.triu(1)? } else { a.tril(-1)? };
            let t = if unit { strict.add(&eye_like(&a, n))? } else { t };
            // Neither the other triangle nor a diagonal of ones is read.
            let x = linalg::solve_triangular(&a, &b, upper, true, unit)?;
            close(&t.matmul(&x)?, &b, "T·X");
            let x = linalg::solve_triangular(&a, &c, upper, false, unit)?;
            close(&x.matmul(&t)?, &c, "X·T");
        }
        Ok(())
    })
}

#[test]
fn batches_broadcast_in_systems() -> Result<()> {
    let a = definite(&random(&[3, 1, 4, 4], 1))?;
    let b = random(&[2, 4, 5], 2);
    let x = linalg::solve(&a, &b)?;
    assert_eq!(x.dims(), [3, 2, 4, 5]);
    close(&a.matmul(&x)?, &b.expand([3, 2, 4, 5])?, "A·X");
    Ok(())
}

#[test]
fn determinants_are_products_of_pivots() -> Result<()> {
    let a = Tensor::new(
        [[[1.0f64, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]],
        (DType::F64, &cpu()),
    )?;
    elements(&linalg::det(&a)?, &[-2.0, -1.0, 0.0]);
    let (sign, log) = linalg::slogdet(&a)?;
    elements(&sign, &[-1.0, -1.0, 0.0]);
    elements(&log, &[2.0f64.ln(), 0.0, f64::NEG_INFINITY]);
    elements(&linalg::det(&random(&[0, 0], 0))?, &[1.0]);
    each_square(|a| {
        let (sign, log) = linalg::slogdet(a)?;
        let n = a.dims()[a.rank() - 1];
        if n < 10 {
            close(&sign.mul(&log.exp())?, &linalg::det(a)?, "sign · exp(log)");
        }
        Ok(())
    })
}

#[test]
fn singular_matrices_have_factors() -> Result<()> {
    let a = Tensor::new([[0.0f64, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 3.0, 4.0]], (DType::F64, &cpu()))?;
    for a in
        [a.clone(), Tensor::zeros([3, 3], (DType::F64, &cpu()))?, Tensor::ones([4, 3], (DType::F64, &cpu()))?]
    {
        let (p, l, u) = linalg::lu(&a)?;
        close(&p.matmul(&l)?.matmul(&u)?, &a, "P·L·U");
    }
    elements(&linalg::det(&a)?, &[0.0]);
    elements(&linalg::cond(&a, MatrixNorm::One)?, &[f64::INFINITY]);
    Ok(())
}

/// Singular values and eigenvalues of f32 are those of the same numbers in f64, up to the rounding of f32.
#[test]
fn values_of_f32_are_exact_to_its_rounding() -> Result<()> {
    for n in [60, 200] {
        let a = numbers(&[n, n], 8, DType::F32);
        let sum = a.add(&mt(&a)?)?;
        let wide = |x: &Tensor| x.to_dtype(DType::F64);
        let (u, s, vh) = linalg::svd(&a, false)?;
        for (found, expected) in [
            (linalg::svdvals(&a)?, linalg::svdvals(&wide(&a)?)?),
            (s.clone(), linalg::svdvals(&wide(&a)?)?),
            (linalg::eigvalsh(&sum, Uplo::Lower)?, linalg::eigvalsh(&wide(&sum)?, Uplo::Lower)?),
            (linalg::eigh(&sum, Uplo::Lower)?.0, linalg::eigvalsh(&wide(&sum)?, Uplo::Lower)?),
            (wide(&u)?.mul(&wide(&s)?)?.matmul(&wide(&vh)?)?, wide(&a)?),
        ] {
            let (found, expected) = (found.to_f64_vec()?, expected.to_f64_vec()?);
            let greatest = linalg::svdvals(&sum)?.max()?.item::<f32>()?;
            let off = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f64::max);
            assert!(off <= 2.0 * f64::from(f32::EPSILON * greatest), "{off} for {greatest}");
        }
        let p = linalg::pinv(&a, Tolerance::default(), false)?;
        let exact = linalg::pinv(&wide(&a)?, Tolerance::default(), false)?;
        let greatest = exact.abs().max()?.item::<f64>()?;
        let off = wide(&p)?.sub(&exact)?.abs().max()?.item::<f64>()?;
        assert!(off <= f64::from(f32::EPSILON) * greatest, "{off} for {greatest}");
    }
    Ok(())
}

/// Checks the four Moore-Penrose conditions.
#[track_caller]
fn is_pseudo_inverse(a: &Tensor, p: &Tensor) -> Result<()> {
    let (ap, pa) = (a.matmul(p)?, p.matmul(a)?);
    close(&ap.matmul(a)?, a, "A·P·A");
    close(&pa.matmul(p)?, p, "P·A·P");
    close(&mt(&ap)?, &ap, "A·P");
    close(&mt(&pa)?, &pa, "P·A");
    Ok(())
}

#[test]
fn pseudo_inverses_hold_the_four_conditions() -> Result<()> {
    for shape in SHAPES {
        let a = random(shape, 3);
        is_pseudo_inverse(&a, &linalg::pinv(&a, Tolerance::default(), false)?)?;
    }
    // Rank 2 of 5 x 4, and a symmetric one of rank 2.
    let low = random(&[2, 5, 2], 4).matmul(&random(&[2, 2, 4], 5))?;
    is_pseudo_inverse(&low, &linalg::pinv(&low, Tolerance::default(), false)?)?;
    elements(&linalg::matrix_rank(&low, Tolerance::default(), false)?, &[2.0, 2.0]);
    let half = random(&[4, 2], 6);
    let square = half.matmul(&mt(&half)?)?;
    let found = linalg::pinv(&square, Tolerance::default(), true)?;
    is_pseudo_inverse(&square, &found)?;
    close(&found, &linalg::pinv(&square, Tolerance::default(), false)?, "hermitian");
    elements(&linalg::matrix_rank(&square, Tolerance::default(), true)?, &[2.0]);
    // Singular values 4 and 1: the tolerance decides.
    let d = Tensor::new([[4.0f64, 0.0], [0.0, 1.0]], (DType::F64, &cpu()))?;
    elements(&linalg::pinv(&d, 0.5, false)?, &[0.25, 0.0, 0.0, 0.0]);
    let atol = Tolerance { atol: Some(0.5), rtol: None };
    elements(&linalg::pinv(&d, atol, false)?, &[0.25, 0.0, 0.0, 1.0]);
    elements(&linalg::matrix_rank(&d, Tolerance { atol: Some(2.0), rtol: None }, false)?, &[1.0]);
    Ok(())
}

#[test]
fn least_squares_leave_a_residual_that_is_orthogonal() -> Result<()> {
    for (shape, r) in [([6, 3], 2), ([3, 6], 2), ([4, 4], 1)] {
        let (a, b) = (random(&shape, 7), random(&[shape[0], r], 8));
        let found = linalg::lstsq(&a, &b, None)?;
        let rest = a.matmul(&found.solution)?.sub(&b)?;
        close(&mt(&a)?.matmul(&rest)?, &Tensor::zeros([shape[1], r], (DType::F64, &cpu()))?, "Aᵀ·(A·X − B)");
        if shape[0] > shape[1] {
            close(&found.residuals, &rest.powi(2).sum_axis(-2, false)?, "residuals");
        } else {
            assert_eq!(found.residuals.dims(), [0]);
        }
        assert_eq!(found.rank.to_vec::<i64>()?, [3i64.max(shape[0].min(shape[1]) as i64)]);
        close(&found.singular_values, &linalg::svdvals(&a)?, "singular values");
    }
    // A batch of vectors.
    let (a, b) = (random(&[2, 5, 3], 9), random(&[2, 5], 10));
    let found = linalg::lstsq(&a, &b, None)?.solution;
    let expected = linalg::lstsq(&a, &b.unsqueeze(-1)?, None)?.solution;
    close(&found, &expected.squeeze(-1)?, "vectors");
    Ok(())
}

#[test]
fn norms_and_condition_numbers() -> Result<()> {
    let a = Tensor::new([[3.0f64, 0.0], [-4.0, 5.0]], (DType::F64, &cpu()))?;
    // Singular values √45 and √5.
    let (s1, s2) = (45.0f64.sqrt(), 5.0f64.sqrt());
    let expected = [
        (MatrixNorm::Frobenius, 50.0f64.sqrt()),
        (MatrixNorm::Nuclear, s1 + s2),
        (MatrixNorm::Inf, 9.0),
        (MatrixNorm::NegInf, 3.0),
        (MatrixNorm::One, 7.0),
        (MatrixNorm::NegOne, 5.0),
        (MatrixNorm::Two, s1),
        (MatrixNorm::NegTwo, s2),
    ];
    for (norm, value) in expected {
        elements(&linalg::matrix_norm(&a, norm, false)?, &[value]);
        assert_eq!(linalg::matrix_norm(&a, norm, true)?.dims(), [1, 1]);
    }
    elements(&linalg::cond(&a, MatrixNorm::Two)?, &[3.0]);
    elements(&linalg::cond(&a, MatrixNorm::NegTwo)?, &[1.0 / 3.0]);
    // The inverse is [[1/3, 0], [4/15, 1/5]].
    elements(&linalg::cond(&a, MatrixNorm::One)?, &[7.0 * 0.6]);
    elements(&linalg::cond(&a, MatrixNorm::Inf)?, &[9.0 * 7.0 / 15.0]);
    Ok(())
}

#[test]
fn powers_are_repeated_products() -> Result<()> {
    let a = random(&[2, 3, 3], 11);
    let mut expected = eye_like(&a, 3);
    for n in 0..8 {
        close(&linalg::matrix_power(&a, n)?, &expected, "Aⁿ");
        close(&linalg::matrix_power(&a, -n)?.matmul(&expected)?, &eye_like(&a, 3), "A⁻ⁿ·Aⁿ");
        expected = expected.matmul(&a)?;
    }
    Ok(())
}

#[test]
fn the_other_triangle_is_not_read() -> Result<()> {
    let nan = f64::NAN;
    let lower = Tensor::new([[4.0, nan, nan], [2.0, 5.0, nan], [1.0, 1.0, 3.0]], (DType::F64, &cpu()))?;
    let upper = mt(&lower)?;
    let whole = lower.tril(0)?.add(&mt(&lower.tril(-1)?)?)?;
    let l = linalg::cholesky(&lower, false)?;
    close(&l.matmul(&mt(&l)?)?, &whole, "L·Lᵀ");
    for (part, uplo) in [(&lower, Uplo::Lower), (&upper, Uplo::Upper)] {
        let (values, q) = linalg::eigh(part, uplo)?;
        close(&q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &whole, "Q·L·Qᵀ");
        close(&linalg::eigvalsh(part, uplo)?, &values, "eigvalsh");
    }
    let b = random(&[3, 2], 1);
    close(&lower.tril(0)?.matmul(&linalg::solve_triangular(&lower, &b, false, true, false)?)?, &b, "T·X");
    Ok(())
}

/// A plan is compiled once, and runs again with other values.
#[test]
fn kernels_run_again_with_other_values() -> Result<()> {
    for seed in 0..4 {
        let a = definite(&random(&[3, 3], seed))?;
        close(&linalg::inv(&a)?.matmul(&a)?, &eye_like(&a, 3), "A⁻¹·A");
        close(&linalg::cholesky(&a, false)?.matmul(&linalg::cholesky(&a, true)?)?, &a, "L·Lᵀ");
    }
    Ok(())
}

#[test]
fn of_factors_that_are_given() -> Result<()> {
    for n in [0, 1, 5, 40] {
        let a = definite(&random(&[2, n, n], 1))?;
        let b = random(&[2, n, 3], 2);
        let eye = eye_like(&a, n);
        for upper in [false, true] {
            let factor = linalg::cholesky(&a, upper)?;
            close(&a.matmul(&linalg::cholesky_solve(&b, &factor, upper)?)?, &b, "cholesky_solve");
            close(&a.matmul(&linalg::cholesky_inverse(&factor, upper)?)?, &eye, "cholesky_inverse");
        }
        let square = random(&[2, n, n], 3).add(&eye.mul_scalar(4.0))?;
        let (p, l, u) = linalg::lu(&square)?;
        close(&square.matmul(&linalg::lu_solve(&p, &l, &u, &b, true, false)?)?, &b, "lu_solve");
        let transposed = square.transpose(-2, -1)?;
        close(
            &transposed.matmul(&linalg::lu_solve(&p, &l, &u, &b, true, true)?)?,
            &b,
            "lu_solve, transposed",
        );
        let root = linalg::matrix_sqrth(&a)?;
        close(&root.matmul(&root)?, &a, "matrix_sqrth");
    }
    Ok(())
}

#[test]
fn tensors_as_matrices() -> Result<()> {
    let a = random(&[2, 3, 6], 1)
        .add(&Tensor::eye(6, (DType::F64, &cpu()))?.reshape([2, 3, 6])?.mul_scalar(5.0))?;
    let inverse = linalg::tensorinv(&a, 2)?;
    assert_eq!(inverse.dims(), [6, 2, 3]);
    let b = random(&[2, 3], 2);
    let x = linalg::tensorsolve(&a, &b)?;
    close(&a.matmul(&x.unsqueeze(-1)?)?.squeeze(-1)?, &b, "tensorsolve");
    close(&inverse.reshape([6, 6])?.matmul(&b.reshape([6])?)?, &x, "tensorinv");
    Ok(())
}

#[test]
fn logarithms_of_determinants_and_roots_at_the_edge() -> Result<()> {
    let a = Tensor::new(
        [[[2.0f64, 0.0], [0.0, 3.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]],
        (DType::F64, &cpu()),
    )?;
    let found = linalg::logdet(&a)?.to_vec::<f64>()?;
    assert!(
        (found[0] - 6f64.ln()).abs() < 1e-14 && found[1].is_nan() && found[2] == f64::NEG_INFINITY,
        "{found:?}"
    );
    // Equal eigenvalues, where eigenvectors have no gradient.
    let eye = Tensor::eye(3, (DType::F64, &cpu()))?.mul_scalar(4.0).into_cell(true)?;
    let root = linalg::matrix_sqrth(&eye)?;
    let gradient = autograd::grad(&[&root.sum()], &[&eye], false)?[0].clone().unwrap();
    close(&gradient, &Tensor::full([3, 3], 0.25, (DType::F64, &cpu()))?, "gradient of a root");
    Ok(())
}

/// An orthonormal matrix with `rows` rows and `columns` columns.
fn orthonormal(rows: usize, columns: usize, seed: u64, dtype: DType) -> Result<Tensor> {
    Ok(linalg::qr(&numbers(&[rows, columns], seed, dtype), QrMode::Reduced)?.0)
}

/// Whether all singular values count is decided by bounds or by the values themselves; both decide as the
/// values do.
#[test]
fn a_pseudo_inverse_leaves_out_what_does_not_count() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let mut seed = 100;
        for (m, n) in [(40, 40), (64, 37), (37, 64), (120, 12), (3, 3), (4, 2)] {
            let k = m.min(n);
            // From 1 down to the least, which is far from the tolerance.
            for (least, rtol, atol) in [
                (0.5, None, None),
                (1e-3, Some(1e-2), None),
                (1e-3, Some(2e-4), None),
                (1e-3, None, Some(1e-1)),
                (1e-3, None, Some(1e-5)),
                (1e-3, Some(0.0), None),
                (0.0, None, None),
            ] {
                for scale in [1.0, 1e-15, 1e12] {
                    seed += 1;
                    let (u, v) = (orthonormal(m, k, seed, dtype)?, orthonormal(n, k, seed + 1000, dtype)?);
                    let value = |i: usize| if i + 1 == k { least } else { 1.0 / (1.0 + i as f64 / k as f64) };
                    let s: Vec<f64> = (0..k).map(|i| value(i) * scale).collect();
                    let tolerance = Tolerance { atol: atol.map(|a| a * scale), rtol };
                    let counts = |x: f64| {
                        let relative = rtol.unwrap_or(if atol.is_some() { 0.0 } else { 1e-5 });
                        x > (relative * s[0]).max(tolerance.atol.unwrap_or(0.0))
                    };
                    let inverted: Vec<f64> =
                        s.iter().map(|&x| if counts(x) { 1.0 / x } else { 0.0 }).collect();
                    let row = |x: &[f64]| Tensor::from_slice(x, [k], &cpu())?.to_dtype(dtype);
                    let a = u.mul(&row(&s)?)?.matmul(&mt(&v)?)?;
                    let expected = v.mul(&row(&inverted)?)?.matmul(&mt(&u)?)?.mul_scalar(scale);
                    let found = linalg::pinv(&a, tolerance, false)?.mul_scalar(scale);
                    let (found, expected) = (found.to_f64_vec()?, expected.to_f64_vec()?);
                    let most = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
                    // The condition number, where singular values count, times a few roundings.
                    let unit = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
                    let allowed = most * most.max(1.0) * unit * 100.0;
                    for (found, expected) in found.iter().zip(&expected) {
                        let what = format!("{dtype} {m} x {n}, {least} of {scale}, {rtol:?}, {atol:?}");
                        assert!((found - expected).abs() <= allowed, "{found} for {expected}: {what}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// Each squaring doubles the error of an exponential, so f32 takes no more of them than it needs.
#[test]
fn exponentials_in_f32_square_no_more_than_they_need() -> Result<()> {
    let mut errors = 0.0;
    for seed in 0..16 {
        let a = random(&[5, 5], seed).mul_scalar(5.0).to_dtype(DType::F32)?;
        let exact = linalg::matrix_exp(&a.to_dtype(DType::F64)?)?;
        let found = linalg::matrix_exp(&a)?.to_dtype(DType::F64)?;
        let greatest = exact.abs().max()?.item_f64()?;
        errors += found.sub(&exact)?.abs().max()?.item_f64()? / greatest / 16.0;
    }
    assert!(errors < 2.2e-6, "a mean relative error of {errors:e}");
    Ok(())
}
