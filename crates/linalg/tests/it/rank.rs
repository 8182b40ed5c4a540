//! Matrices of low rank: Q, U and V are orthonormal although most columns are rounding errors, whose sizes
//! shrink from column to column until they are subnormal.

use linalg::{QrMode, Uplo};
use taper_testing::settings::{has_turn, opened_beside};
use tensor_core::{DType, Device, Result, Tensor};

use crate::{cpu, numbers};

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

/// Square matrices of size n that have less than full rank, with their names, as a batch `[…, n, n]`.
fn singular(n: usize, dtype: DType) -> Result<(Tensor, Vec<String>)> {
    let k = n / 3 + 1;
    let places: Vec<f64> = (0..n).map(|j| if j % 3 == 1 { 0.0 } else { 1.0 }).collect();
    let places = Tensor::new(places, (DType::F64, &cpu()))?;
    let ones = Tensor::ones([n, n], (DType::F64, &cpu()))?;
    let wide = |shape: &[usize], seed: u64| numbers(shape, seed, DType::F64);
    let plain = [
        ("ones", ones.clone()),
        ("0.1", ones.mul_scalar(0.1)),
        ("7.3", ones.mul_scalar(7.3)),
        ("rank 1", wide(&[n, 1], 1).matmul(&wide(&[1, n], 2))?),
        ("rank k", wide(&[n, k], 3).matmul(&wide(&[k, n], 4))?.div_scalar(k as f64)),
        ("zero columns", wide(&[n, n], 5).mul(&places)?),
        ("zero rows", wide(&[n, n], 6).mul(&places.unsqueeze(1)?)?),
        ("only zeros", ones.mul_scalar(0.0)),
    ];
    let scales: &[f64] = if dtype == DType::F64 { &[1.0, 1e-30, 1e30, 1e-290] } else { &[1.0, 1e-30, 1e30] };
    let (mut all, mut names) = (Vec::new(), Vec::new());
    for &scale in scales {
        for (name, a) in &plain {
            all.push(a.mul_scalar(scale).to_dtype(dtype)?);
            names.push(format!("{name} x {scale:e}, {n} x {n} of {dtype}"));
        }
    }
    Ok((Tensor::stack(&all, 0)?, names))
}

/// Asserts that each matrix of `found` agrees with that of `expected` up to a stable algorithm's rounding,
/// relative to the norm of the expected one, or to 1 for an identity.
#[track_caller]
fn near(what: &str, names: &[String], found: &Tensor, expected: &Tensor) -> Result<()> {
    let norm = |x: &[f64]| {
        let most = x.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        (x.iter().map(|x| (x / most) * (x / most)).sum::<f64>().sqrt() * most).max(f64::MIN_POSITIVE)
    };
    near_by(what, names, found, expected, norm)
}

/// Asserts that each matrix is the identity.
#[track_caller]
fn is_identity(what: &str, names: &[String], found: &Tensor) -> Result<()> {
    near_by(what, names, found, &identity(found)?, |_| 1.0)
}

#[track_caller]
fn near_by(
    what: &str,
    names: &[String],
    found: &Tensor,
    expected: &Tensor,
    size: impl Fn(&[f64]) -> f64,
) -> Result<()> {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let n = *found.dims().last().unwrap();
    let epsilon = if found.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    // The error of a stable algorithm grows as the size at most; the first matters for small sizes.
    let limit = epsilon * ((8.0 * (n as f64).sqrt()).max(n as f64) + 16.0);
    let (found, expected) = (found.to_f64_vec()?, expected.to_f64_vec()?);
    for ((name, found), expected) in names.iter().zip(found.chunks(n * n)).zip(expected.chunks(n * n)) {
        let size = size(expected);
        for (x, y) in found.iter().zip(expected) {
            let far = (x - y).abs() / size;
            assert!(far <= limit, "{what} of {name}: {x:e} in place of {y:e}, beside {size:e}");
        }
    }
    Ok(())
}

/// Sizes up to a block, and those around multiples of it.
fn sizes() -> impl Iterator<Item = usize> {
    (1..=12).chain([15, 16, 17, 24, 31, 32, 33, 34, 63, 64, 65, 97, 130])
}

/// Sizes on a GPU, where each takes kernels of its own.
const GPU_SIZES: &[usize] = &[1, 2, 3, 17, 20, 24, 32, 33, 65];

fn gpu_sizes() -> impl Iterator<Item = &'static usize> {
    GPU_SIZES.iter().filter(|_| has_turn(3))
}

/// The identity for each matrix of a batch.
fn identity(like: &Tensor) -> Result<Tensor> {
    let n = *like.dims().last().unwrap();
    Tensor::eye(n, (like.dtype(), &like.device()))?.expand(like.dims())
}

fn check_qr(device: &Device, dtype: DType, n: usize) -> Result<()> {
    let (a, names) = singular(n, dtype)?;
    let a = a.to(device)?;
    let (q, r) = linalg::qr(&a, QrMode::Reduced)?;
    is_identity("QᵀQ", &names, &mt(&q)?.matmul(&q)?)?;
    near("Q·R", &names, &q.matmul(&r)?, &a)
}

fn check_packed(device: &Device, dtype: DType, n: usize) -> Result<()> {
    let (a, names) = singular(n, dtype)?;
    let a = a.to(device)?;
    let (packed, tau) = linalg::geqrf(&a)?;
    let q = linalg::householder_product(&packed, &tau)?;
    is_identity("QᵀQ of geqrf", &names, &mt(&q)?.matmul(&q)?)?;
    near("Q·R of geqrf", &names, &q.matmul(&packed.triu(0)?)?, &a)
}

fn check_svd(device: &Device, dtype: DType, n: usize) -> Result<()> {
    let (a, names) = singular(n, dtype)?;
    let a = a.to(device)?;
    let (u, s, vh) = linalg::svd(&a, true)?;
    is_identity("UᵀU", &names, &mt(&u)?.matmul(&u)?)?;
    is_identity("VᵀV", &names, &vh.matmul(&mt(&vh)?)?)?;
    near("U·S·Vᵀ", &names, &u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?, &a)
}

fn check_eigh(device: &Device, dtype: DType, n: usize) -> Result<()> {
    let (a, names) = singular(n, dtype)?;
    // The scale is at most 1e30, and the factor 0.5 keeps the sum in range.
    let a = a.to(device)?.mul_scalar(0.5);
    let a = a.add(&mt(&a)?)?;
    let (values, q) = linalg::eigh(&a, Uplo::Lower)?;
    is_identity("QᵀQ of eigh", &names, &mt(&q)?.matmul(&q)?)?;
    near("Q·L·Qᵀ", &names, &q.mul(&values.unsqueeze(-2)?)?.matmul(&mt(&q)?)?, &a)
}

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

#[test]
fn reflections_of_rounding_errors() -> Result<()> {
    for n in sizes() {
        for dtype in DTYPES {
            check_qr(&cpu(), dtype, n)?;
        }
    }
    for n in [1, 2, 9, 32, 33, 65] {
        for dtype in DTYPES {
            check_packed(&cpu(), dtype, n)?;
        }
    }
    Ok(())
}

#[test]
fn singular_vectors_of_rounding_errors() -> Result<()> {
    for n in sizes() {
        for dtype in DTYPES {
            check_svd(&cpu(), dtype, n)?;
        }
    }
    Ok(())
}

#[test]
fn eigenvectors_of_rounding_errors() -> Result<()> {
    for n in (1..=12).chain([16, 17, 32, 33, 64, 65, 100, 130]) {
        for dtype in DTYPES {
            check_eigh(&cpu(), dtype, n)?;
        }
    }
    Ok(())
}

/// The GPU's dtypes. Without a GPU the running test is skipped, or fails with `TAPER_TEST=require=wgpu`.
fn on_gpu(mut check: impl FnMut(&Device, DType) -> Result<()>) -> Result<()> {
    let Some(gpu) = opened_beside(backend_wgpu::wgpu(0)) else { return Ok(()) };
    for dtype in DTYPES.into_iter().filter(|&dtype| gpu.supports(dtype)) {
        check(&gpu, dtype)?;
    }
    Ok(())
}

#[test]
fn reflections_of_rounding_errors_on_a_gpu() -> Result<()> {
    on_gpu(|gpu, dtype| {
        gpu_sizes().try_for_each(|&n| check_qr(gpu, dtype, n))?;
        [1, 2, 9, 16, 17, 33].into_iter().try_for_each(|n| check_packed(gpu, dtype, n))
    })
}

#[test]
fn singular_vectors_of_rounding_errors_on_a_gpu() -> Result<()> {
    on_gpu(|gpu, dtype| gpu_sizes().try_for_each(|&n| check_svd(gpu, dtype, n)))
}

#[test]
fn eigenvectors_of_rounding_errors_on_a_gpu() -> Result<()> {
    on_gpu(|gpu, dtype| [1, 2, 7, 16, 17, 24, 33].into_iter().try_for_each(|n| check_eigh(gpu, dtype, n)))
}
