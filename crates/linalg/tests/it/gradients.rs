//! Gradients against finite differences, in f64.

use autograd::{TensorGrad, gradcheck};
use linalg::{MatrixNorm, QrMode, Tolerance, Uplo};
use tensor_core::{Result, Tensor};

use crate::{cpu, definite, random, symmetric};

const TALL: &[usize] = &[2, 5, 3];
const WIDE: &[usize] = &[2, 3, 5];
const SQUARE: &[usize] = &[2, 3, 3];

fn mt(a: &Tensor) -> Result<Tensor> {
    a.transpose(-2, -1)
}

fn all(tensors: &[Tensor]) -> Result<Tensor> {
    let flat: Vec<Tensor> = tensors.iter().map(Tensor::flatten_all).collect();
    Tensor::concat(&flat, 0)
}

#[test]
fn of_cholesky() -> Result<()> {
    for upper in [false, true] {
        gradcheck(|x| linalg::cholesky(&definite(&x[0])?, upper), &[random(SQUARE, 1)])?;
    }
    Ok(())
}

#[test]
fn of_systems() -> Result<()> {
    let (a, b) = (random(SQUARE, 2), random(&[2, 3, 2], 3));
    gradcheck(|x| linalg::solve(&x[0], &x[1]), &[a.clone(), b.clone()])?;
    gradcheck(|x| linalg::solve_with(&x[0], &mt(&x[1])?, false), &[a.clone(), b.clone()])?;
    gradcheck(|x| linalg::solve(&x[0], &x[1]), &[a.clone(), random(&[3], 4)])?;
    // With broadcasting the gradient is summed over the batch.
    gradcheck(|x| linalg::solve(&x[0], &x[1]), &[random(&[3, 3], 5), b.clone()])?;
    gradcheck(|x| linalg::inv(&x[0]), std::slice::from_ref(&a))?;
    for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
        let t = a.add_scalar(2.5);
        gradcheck(|x| linalg::solve_triangular(&x[0], &x[1], upper, true, unit), &[t.clone(), b.clone()])?;
        gradcheck(|x| linalg::solve_triangular(&x[0], &mt(&x[1])?, upper, false, unit), &[t, b.clone()])?;
    }
    for n in [-2, 0, 1, 3] {
        gradcheck(|x| linalg::matrix_power(&x[0], n), std::slice::from_ref(&a))?;
    }
    Ok(())
}

#[test]
fn of_determinants() -> Result<()> {
    gradcheck(|x| linalg::det(&x[0]), &[random(SQUARE, 6)])?;
    gradcheck(|x| Ok(linalg::slogdet(&x[0])?.1), &[random(SQUARE, 6)])?;
    // Ranks 2 and 1 of 3: cofactors exist, or are 0.
    for rank in [2, 1] {
        let singular = random(&[3, rank], 7).matmul(&random(&[rank, 3], 8))?;
        gradcheck(|x| linalg::det(&x[0]), &[singular])?;
    }
    Ok(())
}

#[test]
fn of_lu() -> Result<()> {
    for shape in [SQUARE, TALL, WIDE] {
        gradcheck(
            |x| {
                let (_, l, u) = linalg::lu(&x[0])?;
                all(&[l, u])
            },
            &[random(shape, 9)],
        )?;
    }
    // A single result.
    gradcheck(|x| Ok(linalg::lu(&x[0])?.1), &[random(SQUARE, 9)])?;
    gradcheck(|x| Ok(linalg::lu(&x[0])?.2), &[random(SQUARE, 9)])
}

#[test]
fn of_qr() -> Result<()> {
    for (shape, mode) in [
        (SQUARE, QrMode::Reduced),
        (TALL, QrMode::Reduced),
        (WIDE, QrMode::Reduced),
        (WIDE, QrMode::Complete),
    ] {
        gradcheck(
            |x| {
                let (q, r) = linalg::qr(&x[0], mode)?;
                all(&[q, r])
            },
            &[random(shape, 10)],
        )?;
    }
    gradcheck(|x| Ok(linalg::qr(&x[0], QrMode::Reduced)?.0), &[random(TALL, 10)])?;
    gradcheck(|x| Ok(linalg::qr(&x[0], QrMode::Reduced)?.1), &[random(WIDE, 10)])
}

#[test]
fn of_svd() -> Result<()> {
    for shape in [SQUARE, TALL, WIDE] {
        let a = [random(shape, 11)];
        gradcheck(|x| Ok(linalg::svd(&x[0], false)?.1), &a)?;
        gradcheck(|x| linalg::svdvals(&x[0]), &a)?;
        // Functions that do not depend on the signs of the vectors.
        for full in [false, true] {
            gradcheck(
                |x| {
                    let (u, s, vh) = linalg::svd(&x[0], full)?;
                    let k = s.dims()[s.rank() - 1];
                    let (u, vh) = (u.narrow(-1, 0, k)?, vh.narrow(-2, 0, k)?);
                    all(&[
                        u.powi(2),
                        s.clone(),
                        vh.powi(2),
                        u.matmul(&vh)?,
                        u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?,
                    ])
                },
                &a,
            )?;
        }
        gradcheck(|x| Ok(linalg::svd(&x[0], false)?.0.powi(2)), &a)?;
        gradcheck(|x| Ok(linalg::svd(&x[0], false)?.2.powi(2)), &a)?;
    }
    Ok(())
}

#[test]
fn of_eigh() -> Result<()> {
    for uplo in [Uplo::Lower, Uplo::Upper] {
        gradcheck(|x| linalg::eigvalsh(&symmetric(&x[0])?, uplo), &[random(SQUARE, 12)])?;
        gradcheck(
            |x| {
                let (values, q) = linalg::eigh(&symmetric(&x[0])?, uplo)?;
                all(&[values.clone(), q.powi(2), q.mul(&values.exp().unsqueeze(-2)?)?.matmul(&mt(&q)?)?])
            },
            &[random(SQUARE, 12)],
        )?;
    }
    Ok(())
}

#[test]
fn of_pseudo_inverses() -> Result<()> {
    for shape in [SQUARE, TALL, WIDE] {
        gradcheck(|x| linalg::pinv(&x[0], Tolerance::default(), false), &[random(shape, 13)])?;
    }
    gradcheck(|x| linalg::pinv(&symmetric(&x[0])?, Tolerance::default(), true), &[random(SQUARE, 13)])?;
    // Constant rank 2, along which the function is smooth.
    gradcheck(
        |x| linalg::pinv(&x[0].matmul(&x[1])?, 1e-9, false),
        &[random(&[4, 2], 14), random(&[2, 3], 15)],
    )?;
    for shape in [TALL, WIDE] {
        gradcheck(
            |x| Ok(linalg::lstsq(&x[0], &x[1], None)?.solution),
            &[random(shape, 16), random(&[2, shape[1], 2], 17)],
        )?;
    }
    gradcheck(
        |x| Ok(linalg::lstsq(&x[0], &x[1], None)?.residuals),
        &[random(TALL, 16), random(&[2, 5, 2], 17)],
    )
}

#[test]
fn of_norms() -> Result<()> {
    use MatrixNorm::{Frobenius, Inf, NegInf, NegOne, NegTwo, Nuclear, One, Two};
    for norm in [Frobenius, Nuclear, Inf, NegInf, One, NegOne, Two, NegTwo] {
        gradcheck(|x| linalg::matrix_norm(&x[0], norm, false), &[random(TALL, 18)])?;
        gradcheck(|x| linalg::cond(&x[0], norm), &[random(SQUARE, 19)])?;
    }
    let zero = Tensor::zeros([2, 2], (tensor_core::DType::F64, &cpu()))?.requires_grad();
    linalg::matrix_norm(&zero, Frobenius, false)?.backward()?;
    assert_eq!(zero.grad().unwrap().to_vec::<f64>()?, [0.0; 4]);
    Ok(())
}
