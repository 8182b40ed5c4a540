//! Factorizations around the block sizes: their defining properties, in f32 and f64, and that threads do not
//! change a bit.

use linalg::QrMode;
use tensor_core::{DType, ErrorKind, Result, Tensor};

use crate::{cpu, numbers};

/// Sizes around those of panels, and halves of panels.
const SQUARE: &[usize] = &[1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 130, 257];
const OBLONG: &[(usize, usize)] =
    &[(257, 33), (130, 65), (65, 130), (400, 31), (33, 257), (64, 1), (1, 64), (100, 8), (9, 32), (96, 97)];

fn each_shape(mut f: impl FnMut(&Tensor, f64) -> Result<()>) -> Result<()> {
    for (dtype, epsilon) in [(DType::F32, f64::from(f32::EPSILON)), (DType::F64, f64::EPSILON)] {
        let shapes = SQUARE.iter().map(|&n| (n, n)).chain(OBLONG.iter().copied());
        for (seed, (m, n)) in shapes.enumerate() {
            f(&numbers(&[m, n], seed as u64, dtype), epsilon)?;
        }
    }
    Ok(())
}

fn each_square(mut f: impl FnMut(&Tensor, f64) -> Result<()>) -> Result<()> {
    each_shape(|a, epsilon| if a.dims()[0] == a.dims()[1] { f(a, epsilon) } else { Ok(()) })
}

fn wide(a: &Tensor) -> Result<Tensor> {
    a.to_dtype(DType::F64)
}

fn greatest(a: &Tensor) -> Result<f64> {
    Ok(a.to_f64_vec()?.into_iter().fold(0.0, |most: f64, x| if x.is_nan() { x } else { most.max(x.abs()) }))
}

/// Asserts that two matrices agree up to the error of a stable algorithm, relative to the size of its
/// inputs.
#[track_caller]
fn near(what: &str, found: &Tensor, expected: &Tensor, size: f64, epsilon: f64) -> Result<()> {
    let rest = greatest(&wide(found)?.sub(&wide(expected)?)?)?;
    let n = found.dims().iter().chain(expected.dims()).copied().max().unwrap_or(1);
    let allowed = 8.0 * epsilon * n as f64 * size;
    assert!(rest <= allowed, "{what} of {:?}: {rest}, more than {allowed}", expected.dims());
    Ok(())
}

fn eye(n: usize) -> Result<Tensor> {
    Tensor::eye(n, (DType::F64, &cpu()))
}

#[test]
fn lu_multiplies_to_its_matrix() -> Result<()> {
    each_shape(|a, epsilon| {
        let (p, l, u) = linalg::lu(a)?;
        let (l, u) = (wide(&l)?, wide(&u)?);
        let size = greatest(&l.abs().matmul(&u.abs())?)?;
        near("P·L·U", &wide(&p)?.matmul(&l)?.matmul(&u)?, a, size, epsilon)?;
        assert!(greatest(&l)? <= 1.0 + 2.0 * epsilon, "a pivot is not the greatest");
        near("L", &l.tril(0)?, &l, 0.0, epsilon)?;
        near("U", &u.triu(0)?, &u, 0.0, epsilon)
    })
}

#[test]
fn qr_has_orthonormal_columns() -> Result<()> {
    each_shape(|a, epsilon| {
        let (m, n) = (a.dims()[0], a.dims()[1]);
        for (mode, k) in [(QrMode::Reduced, m.min(n)), (QrMode::Complete, m)] {
            let (q, r) = linalg::qr(a, mode)?;
            assert_eq!((q.dims(), r.dims()), (&[m, k][..], &[k, n][..]));
            let (q, r) = (wide(&q)?, wide(&r)?);
            near("Q·R", &q.matmul(&r)?, a, 2.0, epsilon)?;
            near("QᵀQ", &q.t()?.matmul(&q)?, &eye(k)?, 1.0, epsilon)?;
            near("R", &r.triu(0)?, &r, 0.0, epsilon)?;
        }
        Ok(())
    })
}

fn definite(a: &Tensor) -> Result<Tensor> {
    let n = a.dims()[0];
    a.matmul(&a.t()?)?.add(&Tensor::eye(n, (a.dtype(), &cpu()))?.mul_scalar(n as f64))
}

#[test]
fn cholesky_is_a_root() -> Result<()> {
    each_square(|a, epsilon| {
        let a = definite(a)?;
        let l = wide(&linalg::cholesky(&a, false)?)?;
        near("L·Lᵀ", &l.matmul(&l.t()?)?, &a, greatest(&a)?, epsilon)?;
        near("L", &l.tril(0)?, &l, 0.0, epsilon)
    })
}

#[test]
fn systems_are_solved() -> Result<()> {
    each_square(|a, epsilon| {
        let n = a.dims()[0];
        let a = definite(a)?;
        let wide_a = wide(&a)?;
        for r in [1, 3, 16, 70, 200] {
            let b = numbers(&[n, r], 5, a.dtype());
            let x = linalg::solve(&a, &b)?;
            let size = greatest(&wide_a.abs().matmul(&wide(&x)?.abs())?)? + 1.0;
            near("A·X", &wide_a.matmul(&wide(&x)?)?, &b, size, epsilon)?;
            for upper in [false, true] {
                let t = if upper { wide_a.triu(0)? } else { wide_a.tril(0)? };
                let x = wide(&linalg::solve_triangular(&a, &b, upper, true, false)?)?;
                let size = greatest(&t.abs().matmul(&x.abs())?)? + 1.0;
                near("T·X", &t.matmul(&x)?, &b, size, epsilon)?;
            }
        }
        Ok(())
    })
}

/// Inverses of matrices whose rows are exchanged, and with zeros at every other position of the diagonal.
#[test]
fn inverses_are_on_either_side() -> Result<()> {
    each_square(|a, epsilon| {
        let n = a.dims()[0];
        let a = definite(a)?.flip([0])?;
        let (a, x) = (wide(&a)?, wide(&linalg::inv(&a)?)?);
        let size = greatest(&a.abs().matmul(&x.abs())?)?;
        near("A·A⁻¹", &a.matmul(&x)?, &eye(n)?, size, epsilon)?;
        near("A⁻¹·A", &x.matmul(&a)?, &eye(n)?, size, epsilon)
    })
}

#[test]
fn determinants_are_products_of_pivots() -> Result<()> {
    each_square(|a, epsilon| {
        let n = a.dims()[0];
        let (p, _, u) = linalg::lu(a)?;
        let (sign, log) = linalg::slogdet(a)?;
        let u: Vec<f64> = u.to_f64_vec()?.into_iter().step_by(n + 1).collect();
        let expected: f64 = u.iter().map(|u| u.abs().ln()).sum();
        let tolerance = 8.0 * epsilon * (n as f64) * expected.abs().max(1.0);
        assert!((log.to_f64_vec()?[0] - expected).abs() <= tolerance, "the logarithm for {n}");
        // The parity of P, from its cycles.
        let p = p.to_f64_vec()?;
        let mut seen = vec![false; n];
        let mut odd = u.iter().filter(|&&u| u < 0.0).count();
        for start in 0..n {
            let mut at = start;
            while !seen[at] {
                seen[at] = true;
                at = (0..n).find(|&j| p[at * n + j] == 1.0).unwrap();
                odd += usize::from(at != start);
            }
        }
        assert_eq!(sign.to_f64_vec()?, [if odd % 2 == 1 { -1.0 } else { 1.0 }], "the sign for {n}");
        Ok(())
    })
}

/// A zero pivot in a later panel, and columns without a pivot.
#[test]
fn singular_matrices_are_told_of_by_their_pivot() -> Result<()> {
    let a = numbers(&[70, 70], 1, DType::F64);
    let keep: Vec<f64> = (0..70).map(|j| if j == 40 { 0.0 } else { 1.0 }).collect();
    let a = a.mul(&Tensor::new(keep, (DType::F64, &cpu()))?)?;
    let (p, l, u) = linalg::lu(&a)?;
    near("P·L·U", &p.matmul(&l)?.matmul(&u)?, &a, 70.0, f64::EPSILON)?;
    let error = linalg::inv(&a)?.eval().unwrap_err().to_string();
    assert!(error.contains("pivot 41 "), "{error}");
    assert_eq!(linalg::det(&a)?.to_f64_vec()?, [0.0]);
    let (sign, log) = linalg::slogdet(&a)?;
    assert_eq!((sign.to_f64_vec()?[0], log.to_f64_vec()?[0]), (0.0, f64::NEG_INFINITY));
    Ok(())
}

#[test]
fn minors_that_are_not_positive_are_told_of_by_their_order() -> Result<()> {
    for order in [1, 8, 9, 32, 33, 64, 65, 100] {
        let mut diagonal = vec![2.0f64; 100];
        diagonal[order - 1] = -2.0;
        let a = Tensor::new(diagonal, (DType::F64, &cpu()))?.diag_embed(0, -2, -1)?;
        let error = linalg::cholesky(&a, false)?.eval().unwrap_err().to_string();
        assert!(error.contains(&format!("of order {order} is not positive")), "{error}");
    }
    Ok(())
}

/// Threads share a batch; the error names the first failed matrix, even if a later one fails earlier.
#[test]
fn the_first_of_a_batch_is_told_of() -> Result<()> {
    let places: Vec<f64> = (0..200).map(|b| if b == 77 || b == 150 { 0.0 } else { 1.0 }).collect();
    let places = Tensor::new(places, (DType::F64, &cpu()))?.reshape([200, 1, 1])?;
    let a = numbers(&[200, 12, 12], 1, DType::F64).mul(&places)?;
    let error = linalg::inv(&a)?.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LinAlg { batch: Some(77), .. }), "{error}");
    Ok(())
}

/// Matrices with elements far from 1 do not overflow or underflow on the way.
#[test]
fn reflections_keep_to_the_range() -> Result<()> {
    for scale in [1e-30, 1e30] {
        let a = numbers(&[40, 9], 1, DType::F32);
        let (q, r) = linalg::qr(&a.mul_scalar(scale), QrMode::Reduced)?;
        let (q, r) = (wide(&q)?, wide(&r)?.mul_scalar(1.0 / scale));
        near("Q·R", &q.matmul(&r)?, &a, 2.0, f64::from(f32::EPSILON))?;
        near("QᵀQ", &q.t()?.matmul(&q)?, &eye(9)?, 1.0, f64::from(f32::EPSILON))?;
    }
    Ok(())
}

/// The number of threads is a setting of the process; other tests do not depend on it, as this test shows.
#[test]
fn threads_do_not_change_a_bit() -> Result<()> {
    let bits = |dtype: DType| -> Result<Vec<Vec<u64>>> {
        let (a, tall) = (numbers(&[300, 300], 1, dtype), numbers(&[400, 150], 2, dtype));
        let (definite, b) = (definite(&a)?, numbers(&[300, 150], 3, dtype));
        let ((p, l, u), (q, r), (sign, log)) =
            (linalg::lu(&a)?, linalg::qr(&tall, QrMode::Reduced)?, linalg::slogdet(&a)?);
        let all = [
            p,
            l,
            u,
            q,
            r,
            sign,
            log,
            linalg::cholesky(&definite, false)?,
            linalg::solve(&a, &b)?,
            linalg::inv(&a)?,
            linalg::solve_triangular(&definite, &b, true, true, false)?,
            linalg::inv(&numbers(&[100, 20, 20], 4, dtype))?,
        ];
        all.iter().map(|x| Ok(x.to_f64_vec()?.into_iter().map(f64::to_bits).collect())).collect()
    };
    let before = backend_cpu::num_threads();
    for dtype in [DType::F32, DType::F64] {
        backend_cpu::set_num_threads(1)?;
        let alone = bits(dtype)?;
        for threads in [2, 3, 4] {
            backend_cpu::set_num_threads(threads)?;
            assert!(bits(dtype)? == alone, "{threads} threads, {dtype}");
        }
    }
    backend_cpu::set_num_threads(before)
}
