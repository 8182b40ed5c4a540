//! Second derivatives against differences of the first.

use autograd::gradgradcheck;
use linalg::{QrMode, Tolerance, Uplo};
use tensor_core::Result;

use crate::{definite, random, symmetric};

#[test]
fn of_what_is_smooth() -> Result<()> {
    let a = [random(&[3, 3], 1)];
    gradgradcheck(|x| linalg::cholesky(&definite(&x[0])?, false), &a)?;
    gradgradcheck(|x| linalg::inv(&x[0]), &a)?;
    gradgradcheck(|x| linalg::det(&x[0]), &a)?;
    gradgradcheck(|x| Ok(linalg::slogdet(&x[0])?.1), &a)?;
    gradgradcheck(|x| linalg::solve(&x[0], &x[1]), &[a[0].clone(), random(&[3, 2], 2)])?;
    gradgradcheck(
        |x| linalg::solve_triangular(&x[0], &x[1], true, true, false),
        &[a[0].add_scalar(2.5), random(&[3, 2], 2)],
    )?;
    gradgradcheck(|x| Ok(linalg::lu(&x[0])?.2), &a)?;
    gradgradcheck(|x| Ok(linalg::qr(&x[0], QrMode::Reduced)?.1), &[random(&[4, 3], 3)])?;
    gradgradcheck(|x| Ok(linalg::qr(&x[0], QrMode::Reduced)?.1), &[random(&[3, 4], 3)])?;
    gradgradcheck(|x| linalg::svdvals(&x[0]), &[random(&[4, 3], 4)])?;
    gradgradcheck(|x| Ok(linalg::svd(&x[0], false)?.0.powi(2)), &[random(&[4, 3], 4)])?;
    gradgradcheck(|x| linalg::eigvalsh(&symmetric(&x[0])?, Uplo::Lower), &a)?;
    gradgradcheck(|x| Ok(linalg::eigh(&symmetric(&x[0])?, Uplo::Lower)?.1.powi(2)), &a)?;
    gradgradcheck(|x| linalg::pinv(&x[0], Tolerance::default(), false), &[random(&[4, 3], 5)])
}
