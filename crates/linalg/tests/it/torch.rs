//! Conventions that properties leave open: signs, orders, the triangle that is read. The values are those of
//! torch.linalg in f64.

use linalg::{QrMode, Uplo};
use tensor_core::{DType, Result, Tensor};

use crate::{cpu, elements};

#[test]
fn conventions_are_those_of_lapack() -> Result<()> {
    let a =
        Tensor::new([[12.0f64, -51.0, 4.0], [6.0, 167.0, -68.0], [-4.0, 24.0, -41.0]], (DType::F64, &cpu()))?;
    // The example of PyTorch's documentation of qr.
    let (_, r) = linalg::qr(&a, QrMode::Reduced)?;
    elements(&r, &[-14.0, -21.0, 14.0, 0.0, -175.0, 70.0, 0.0, 0.0, -35.0]);
    // P is the permutation with A = P·L·U.
    let b = Tensor::new([[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0], [2.0, 8.0, 1.0]], (DType::F64, &cpu()))?;
    let (p, l, u) = linalg::lu(&b)?;
    elements(&p, &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    elements(&l, &[1.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.25, 3.0 / 22.0, 1.0]);
    elements(&u, &[4.0, 5.0, 6.0, 0.0, 5.5, -2.0, 0.0, 0.0, 1.5 + 6.0 / 22.0]);
    // Ascending eigenvalues, of the lower triangle by default.
    let s = Tensor::new([[2.0f64, 100.0], [1.0, 2.0]], (DType::F64, &cpu()))?;
    elements(&linalg::eigvalsh(&s, Uplo::default())?, &[1.0, 3.0]);
    elements(&linalg::eigvalsh(&s, Uplo::Upper)?, &[-98.0, 102.0]);
    Ok(())
}
