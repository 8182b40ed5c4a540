//! Linear algebra on a GPU: defining properties around the widths of panels and tiles, in batches, and for
//! matrices without a result.

use autograd::TensorGrad;
use linalg::{MatrixNorm, QrMode, Tolerance, Uplo};
use tensor_core::{DType, Device, ErrorKind, Result, Tensor};

use taper_testing::settings::{has_turn, opened};

use crate::numbers;

/// The GPU. Without one the running test is skipped, or fails with `TAPER_TEST=require=wgpu`.
fn gpu() -> Option<Device> {
    opened(backend_wgpu::wgpu(0))
}

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

/// Calls `f` with each of the shapes in each dtype that the GPU supports.
fn each(shapes: &[&[usize]], mut f: impl FnMut(&Tensor) -> Result<()>) -> Result<()> {
    let Some(gpu) = &gpu() else { return Ok(()) };
    for dtype in [DType::F32, DType::F64].into_iter().filter(|&dtype| gpu.supports(dtype)) {
        for (seed, shape) in shapes.iter().enumerate().filter(|_| has_turn(2)) {
            f(&numbers(shape, seed as u64, dtype).to(gpu)?)?;
        }
    }
    Ok(())
}

/// Asserts that two tensors agree, relative to the greatest magnitude of the second.
#[track_caller]
fn close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    let size = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    let far = found
        .iter()
        .zip(&expected)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0f64, |most, d| if d.is_nan() { f64::INFINITY } else { most.max(d) });
    let limit = LIMIT.with(std::cell::Cell::get);
    assert!(far <= limit * size, "{what}: {far:e} apart, of {size:e}");
}

std::thread_local! {
    /// The relative difference that [`close`] allows.
    static LIMIT: std::cell::Cell<f64> = const { std::cell::Cell::new(2e-5) };
}

/// Sets the limit for matrices of this dtype and size.
fn limit_of(a: &Tensor) {
    let epsilon = if a.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let side = a.dims().iter().rev().take(2).max().copied().unwrap_or(1);
    LIMIT.with(|limit| limit.set(epsilon * (8.0 * (side as f64).sqrt() + 16.0)));
}

fn eye(n: usize, like: &Tensor) -> Result<Tensor> {
    let dims: Vec<usize> = like.dims()[..like.rank() - 2].iter().copied().chain([n, n]).collect();
    Tensor::eye(n, (like.dtype(), &like.device()))?.expand(dims)
}

const SQUARE: &[&[usize]] = &[
    &[1, 1],
    &[2, 2],
    &[2, 15, 15],
    &[16, 16],
    &[17, 17],
    &[3, 33, 33],
    &[2, 2, 5, 5],
    &[65, 65],
    &[130, 130],
    &[0, 0],
    &[0, 3, 3],
    &[2, 0, 0],
];

const OTHERS: &[&[usize]] =
    &[&[1, 5], &[5, 1], &[40, 17], &[17, 40], &[2, 70, 33], &[2, 33, 70], &[3, 0], &[0, 3], &[0, 2, 4]];

/// Shapes for rotations, which take long on a software adapter.
const FEWER: &[&[usize]] = &[
    &[1, 1],
    &[2, 2],
    &[2, 15, 15],
    &[2, 2, 5, 5],
    &[33, 33],
    &[1, 5],
    &[5, 1],
    &[2, 40, 17],
    &[17, 40],
    &[90, 6],
    &[0, 0],
    &[2, 0, 0],
    &[0, 3, 3],
    &[3, 0],
    &[0, 3],
    &[0, 2, 4],
];

fn sides(a: &Tensor) -> (usize, usize) {
    (a.dims()[a.rank() - 2], a.dims()[a.rank() - 1])
}

/// A·Aᵀ/n + 1.
fn definite(a: &Tensor) -> Result<Tensor> {
    let n = sides(a).0;
    a.matmul(&mt(a)?)?.mul_scalar(1.0 / n.max(1) as f64).add(&eye(n, a)?)
}

#[test]
fn triangular_factors_and_systems() -> Result<()> {
    each(SQUARE, |x| {
        limit_of(x);
        let n = sides(x).0;
        let a = definite(x)?;
        let l = linalg::cholesky(&a, false)?;
        close(&l.matmul(&mt(&l)?)?, &a, "L·Lᵀ");
        close(&l.tril(0)?, &l, "lower");
        let lead = &x.dims()[..x.rank() - 2];
        let right: Vec<usize> = lead.iter().copied().chain([n, 70]).collect();
        let b = numbers(&right, 9, x.dtype()).to(&x.device())?;
        close(&a.matmul(&linalg::solve(&a, &b)?)?, &b, "A·X");
        close(&a.matmul(&linalg::cholesky_solve(&b, &l, false)?)?, &b, "cholesky_solve");
        close(&linalg::inv(&a)?.matmul(&a)?, &eye(n, x)?, "A⁻¹·A");
        for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
            let t = a.mul_scalar(1.0 / (n * n).max(1) as f64).add(&eye(n, x)?)?;
            let kept = if upper { t.triu(0)? } else { t.tril(0)? };
            let strict = if upper { t.triu(1)? } else { t.tril(-1)? };
            let kept = if unit { strict.add(&eye(n, x)?)? } else { kept };
            close(&kept.matmul(&linalg::solve_triangular(&t, &b, upper, true, unit)?)?, &b, "T·X");
        }
        let (sign, log) = linalg::slogdet(&a)?;
        close(&sign, &sign.ones_like(), "sign");
        close(&log, &linalg::slogdet(&a.to(&crate::cpu())?)?.1, "logarithm");
        if n < 40 {
            close(&sign.mul(&log.exp())?, &linalg::det(&a)?, "determinant");
        }
        Ok(())
    })
}

#[test]
fn lu_multiplies_to_its_matrix() -> Result<()> {
    each(&[SQUARE, OTHERS].concat(), |a| {
        limit_of(a);
        let (p, l, u) = linalg::lu(a)?;
        close(&p.matmul(&l)?.matmul(&u)?, a, "P·L·U");
        close(&l.tril(0)?, &l, "L");
        close(&u.triu(0)?, &u, "U");
        close(&mt(&p)?.matmul(&p)?, &eye(sides(a).0, a)?, "P");
        assert!(l.abs().le_scalar(1.0).all().item::<bool>()?, "pivots");
        Ok(())
    })
}

#[test]
fn qr_has_orthonormal_columns() -> Result<()> {
    each(&[SQUARE, OTHERS].concat(), |a| {
        limit_of(a);
        let (m, n) = sides(a);
        for (mode, k) in [(QrMode::Reduced, m.min(n)), (QrMode::Complete, m)] {
            let (q, r) = linalg::qr(a, mode)?;
            close(&q.matmul(&r)?, a, "Q·R");
            close(&mt(&q)?.matmul(&q)?, &eye(k, a)?, "QᵀQ");
            close(&r.triu(0)?, &r, "R");
        }
        // Elements whose squares overflow or underflow.
        let (least, most) = if a.dtype() == DType::F64 { (1e-200, 1e200) } else { (1e-25, 1e25) };
        for factor in [least, most] {
            let scaled = a.mul_scalar(factor);
            let (q, r) = linalg::qr(&scaled, QrMode::Reduced)?;
            close(&q.matmul(&r.mul_scalar(1.0 / factor))?, a, "Q·R, scaled");
        }
        Ok(())
    })
}

#[test]
fn svd_multiplies_to_its_matrix() -> Result<()> {
    each(FEWER, |a| {
        limit_of(a);
        let (m, n) = sides(a);
        let k = m.min(n);
        for full in [false, true] {
            let (u, s, vh) = linalg::svd(a, full)?;
            close(&mt(&u)?.matmul(&u)?, &eye(if full { m } else { k }, a)?, "UᵀU");
            close(&vh.matmul(&mt(&vh)?)?, &eye(if full { n } else { k }, a)?, "V");
            let thin = u.narrow(-1, 0, k)?.mul(&s.unsqueeze(-2)?)?.matmul(&vh.narrow(-2, 0, k)?)?;
            close(&thin, a, "U·S·Vᵀ");
            close(&linalg::svdvals(a)?, &s, "svdvals");
            close(&s.to(&crate::cpu())?, &linalg::svdvals(&a.to(&crate::cpu())?)?, "the CPU's");
            close(&s.sort(-1, true)?.0, &s, "descending");
        }
        Ok(())
    })
}

#[test]
fn eigh_diagonalizes_either_triangle() -> Result<()> {
    each(FEWER, |x| {
        limit_of(x);
        if sides(x).0 != sides(x).1 {
            return Ok(());
        }
        let whole = x.add(&mt(x)?)?;
        for uplo in [Uplo::Lower, Uplo::Upper] {
            let part = if uplo == Uplo::Lower { whole.tril(0)? } else { whole.triu(0)? };
            let (values, q) = linalg::eigh(&part, uplo)?;
            close(&q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &whole, "Q·L·Qᵀ");
            close(&mt(&q)?.matmul(&q)?, &eye(sides(x).0, x)?, "QᵀQ");
            close(&linalg::eigvalsh(&part, uplo)?, &values, "eigvalsh");
            close(&values.sort(-1, false)?.0, &values, "ascending");
        }
        Ok(())
    })
}

/// Zero, low-rank, wide, tall and empty matrices satisfy the four Moore-Penrose conditions.
#[test]
fn pseudo_inverses_hold_the_four_conditions() -> Result<()> {
    let hold = |a: &Tensor| -> Result<()> {
        limit_of(a);
        let p = linalg::pinv(a, Tolerance::default(), false)?;
        let (ap, pa) = (a.matmul(&p)?, p.matmul(a)?);
        // Relative to the condition number.
        let size = |x: &Tensor| -> Result<f64> {
            Ok(x.to_f64_vec()?.iter().map(|x| x * x).sum::<f64>().sqrt().max(1.0))
        };
        let condition = size(a)? * size(&p)?;
        LIMIT.with(|limit| limit.set(limit.get() * condition));
        close(&ap.matmul(a)?, a, "A·P·A");
        close(&pa.matmul(&p)?, &p, "P·A·P");
        close(&mt(&ap)?, &ap, "A·P");
        close(&mt(&pa)?, &pa, "P·A");
        Ok(())
    };
    each(FEWER, |a| {
        hold(a)?;
        hold(&a.to(&crate::cpu())?)
    })?;
    each(&[&[2, 20, 3], &[33, 5]], |half| {
        let low = half.matmul(&mt(half)?)?;
        let wide = half.matmul(&mt(&half.narrow(-2, 0, 7)?)?)?;
        let k = sides(half).1 as i64;
        for a in [low, wide] {
            hold(&a)?;
            hold(&a.zeros_like())?;
            assert!(
                linalg::matrix_rank(&a, 1e-5, false)?.to_f64_vec()?.iter().all(|&rank| rank == k as f64),
                "rank"
            );
        }
        Ok(())
    })
}

#[test]
fn matrices_without_an_answer_are_told_of_with_their_place() -> Result<()> {
    let Some(gpu) = &gpu() else { return Ok(()) };
    #[track_caller]
    fn said<T: std::fmt::Debug>(result: Result<T>, place: Option<usize>, parts: &[&str]) {
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::LinAlg { batch, .. } if *batch == place), "{error}");
        let error = error.to_string();
        for part in parts.iter().chain(&["linalg.", "gpu.rs"]) {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
    }
    let a = Tensor::new([[[1.0f32, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0; 2]; 2]], gpu)?;
    said(linalg::inv(&a)?.to_vec::<f32>(), Some(1), &["linalg.inv", "singular", "pivot 2", "pinv"]);
    // Tensors that depend on it fail as well, each time they are read.
    let later = linalg::solve(&a, &a)?.sum();
    for _ in 0..2 {
        said(later.item::<f32>(), Some(1), &["linalg.solve", "singular", "pivot 2"]);
    }
    let indefinite = Tensor::new([[1.0f32, 0.0], [0.0, -1.0]], gpu)?;
    said(linalg::cholesky(&indefinite, false)?.eval(), None, &["linalg.cholesky", "order 2"]);
    let nan = Tensor::new([[f32::NAN, 0.0], [0.0, 1.0]], gpu)?;
    said(linalg::cholesky(&nan, false)?.eval(), None, &["positive-definite", "order 1"]);
    said(linalg::svd(&nan, false)?.1.eval(), None, &["linalg.svd", "not finite"]);
    said(linalg::svdvals(&nan.mul_scalar(f64::INFINITY))?.eval(), None, &["linalg.svdvals", "not finite"]);
    said(linalg::eigh(&nan, Uplo::Lower)?.0.eval(), None, &["linalg.eigh", "not finite"]);
    said(linalg::eigvalsh(&nan, Uplo::Upper)?.eval(), None, &["linalg.eigvalsh", "not finite"]);
    said(linalg::pinv(&nan, 0.1, false)?.eval(), None, &["not finite"]);
    assert!(linalg::inv(&nan)?.to_vec::<f32>()?[0].is_nan());
    assert!(linalg::det(&nan)?.item::<f32>()?.is_nan());
    assert!(linalg::qr(&nan, QrMode::Reduced)?.1.to_vec::<f32>()?[0].is_nan());
    // The device still works, and singular matrices have factors and condition numbers.
    let (p, l, u) = linalg::lu(&a)?;
    assert_eq!(p.matmul(&l)?.matmul(&u)?.to_vec::<f32>()?, a.to_vec::<f32>()?);
    assert_eq!(linalg::det(&a)?.to_vec::<f32>()?, [1.0, 0.0, 0.0]);
    let (sign, log) = linalg::slogdet(&a)?;
    assert_eq!(sign.to_vec::<f32>()?, [1.0, 0.0, 0.0]);
    assert_eq!(log.to_vec::<f32>()?[1..], [f32::NEG_INFINITY; 2]);
    assert_eq!(linalg::cond(&a, MatrixNorm::One)?.to_vec::<f32>()?[1], f32::INFINITY);
    Ok(())
}

#[test]
fn gradients_are_those_of_the_cpu() -> Result<()> {
    let Some(gpu) = &gpu() else { return Ok(()) };
    type Of = fn(&Tensor) -> Result<Tensor>;
    let table: &[(&str, Of)] = &[
        ("cholesky", |x| linalg::cholesky(&definite(x)?, false)),
        ("solve", |x| linalg::solve(&definite(x)?, x)),
        ("inv", |x| linalg::inv(&definite(x)?)),
        ("det", |x| linalg::det(&definite(x)?)),
        ("slogdet", |x| Ok(linalg::slogdet(&definite(x)?)?.1)),
        ("lu", |x| Ok(linalg::lu(x)?.2)),
        ("qr", |x| linalg::qr(x, QrMode::Reduced)?.0.add(&linalg::qr(x, QrMode::Reduced)?.1)),
        ("svdvals", linalg::svdvals),
        ("eigvalsh", |x| linalg::eigvalsh(&definite(x)?, Uplo::Lower)),
        ("eigh", |x| {
            let (values, q) = linalg::eigh(&definite(x)?, Uplo::Lower)?;
            q.mul(&values.exp().unsqueeze(-2)?)?.matmul(&mt(&q)?)
        }),
        ("pinv", |x| linalg::pinv(x, Tolerance::default(), false)),
    ];
    let x = numbers(&[2, 4, 4], 5, DType::F32);
    for (name, f) in table {
        let gradient = |x: &Tensor| -> Result<Tensor> {
            let x = x.detach().requires_grad();
            let y = f(&x)?;
            y.mul(&y)?.sum().backward()?;
            Ok(x.grad().unwrap())
        };
        let (found, expected) = (gradient(&x.to(gpu)?)?, gradient(&x)?);
        LIMIT.with(|limit| limit.set(1e-3));
        close(&found, &expected, name);
    }
    // A singular matrix.
    let low = numbers(&[4, 2], 1, DType::F32);
    let a = low.matmul(&mt(&low)?)?;
    let gradient = |a: &Tensor| -> Result<Tensor> {
        let a = a.detach().requires_grad();
        linalg::det(&a)?.backward()?;
        Ok(a.grad().unwrap())
    };
    close(&gradient(&a.to(gpu)?)?, &gradient(&a)?, "cofactors");
    Ok(())
}

/// More columns than a workgroup has invocations.
#[test]
fn a_larger_matrix_is_taken_apart() -> Result<()> {
    let Some(gpu) = &gpu() else { return Ok(()) };
    let a = numbers(&[129, 101], 8, DType::F32).to(gpu)?;
    limit_of(&a);
    let (u, s, vh) = linalg::svd(&a, false)?;
    close(&u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?, &a, "U·S·Vᵀ");
    close(&mt(&u)?.matmul(&u)?, &eye(101, &a)?, "UᵀU");
    close(&vh.matmul(&mt(&vh)?)?, &eye(101, &a)?, "V");
    let whole = a.matmul(&mt(&a)?)?;
    let (values, q) = linalg::eigh(&whole, Uplo::Lower)?;
    close(&q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &whole, "Q·L·Qᵀ");
    close(&mt(&q)?.matmul(&q)?, &eye(129, &a)?, "QᵀQ");
    Ok(())
}

/// Matrices that are diagonal already, with equal or widely spread singular values, or only zeros.
#[test]
fn rotations_converge_for_odd_spectra() -> Result<()> {
    let Some(gpu) = &gpu() else { return Ok(()) };
    let n = 24;
    let q = linalg::qr(&numbers(&[n, n], 3, DType::F64), QrMode::Reduced)?.0;
    let powers: Vec<f64> = (0..n).map(|i| 10f64.powi(-(i as i32))).collect();
    let steps: Vec<f64> = (0..n).map(|i| if i < n / 2 { 1.0 } else { -1.0 }).collect();
    for values in [powers, steps, vec![1.0; n], vec![0.0; n]] {
        let d = Tensor::new(values, (DType::F64, &crate::cpu()))?;
        for rotated in [false, true] {
            let a =
                if rotated { q.mul(&d.unsqueeze(-2)?)?.matmul(&mt(&q)?)? } else { d.diag_embed(0, -2, -1)? };
            let a = a.to_dtype(DType::F32)?.to(gpu)?;
            limit_of(&a);
            let (u, s, vh) = linalg::svd(&a, true)?;
            close(&u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?, &a, "U·S·Vᵀ");
            close(&mt(&u)?.matmul(&u)?, &eye(n, &a)?, "UᵀU");
            let (values, q) = linalg::eigh(&a, Uplo::Lower)?;
            close(&q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &a, "Q·L·Qᵀ");
        }
    }
    Ok(())
}

#[test]
fn packed_reflections_and_symmetric_factors() -> Result<()> {
    each(&[&[2, 33, 17], &[5, 20], &[3, 40, 40]], |a| {
        limit_of(a);
        let (m, n) = (a.dims()[a.rank() - 2], a.dims()[a.rank() - 1]);
        let (packed, tau) = linalg::geqrf(a)?;
        let (q, r) = linalg::qr(a, QrMode::Complete)?;
        close(&packed.triu(0)?, &r, "R");
        close(&linalg::ormqr(&packed, &tau, a, true, true)?, &r, "Qᵀ·A");
        close(&linalg::ormqr(&packed, &tau, &mt(a)?, false, false)?, &mt(&r)?, "Aᵀ·Q");
        assert_eq!(q.dims()[q.rank() - 1], m);
        if m != n {
            return Ok(());
        }
        let whole = a.add(&mt(a)?)?;
        for a in [whole.sub(&whole.mul(&eye(n, &whole)?)?)?, whole] {
            let (ld, pivots) = linalg::ldl_factor(&a)?;
            assert_eq!(ld.dims(), a.dims());
            let b = a.narrow(-1, 0, 3)?;
            let x = linalg::ldl_solve(&ld, &pivots, &b)?;
            let size = x.abs().max()?.item_f64()?.max(1.0);
            close(&a.matmul(&x)?.div_scalar(size * 10.0), &b.div_scalar(size * 10.0), "A·X");
            // The pivots are those of the CPU.
            let here = a.to(&crate::cpu())?;
            assert_eq!(pivots.to_vec::<i32>()?, linalg::ldl_factor(&here)?.1.to_vec::<i32>()?);
        }
        Ok(())
    })
}
