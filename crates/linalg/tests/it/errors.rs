//! Errors and their messages.

use autograd::TensorGrad;
use linalg::{MatrixNorm, QrMode, Tolerance, Uplo};
use tensor_core::{DType, ErrorKind, Result, Tensor};

use crate::{cpu, random};

#[track_caller]
fn said<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let error = result.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

/// Shapes are checked where the operation is called.
#[test]
fn shapes_and_dtypes_that_do_not_fit() -> Result<()> {
    let (wide, vector) = (random(&[2, 3], 1), random(&[3], 1));
    let square = random(&[3, 3], 2);
    for result in [
        linalg::cholesky(&wide, false),
        linalg::inv(&wide),
        linalg::det(&wide),
        linalg::eigvalsh(&wide, Uplo::Lower),
        linalg::solve(&wide, &wide),
        linalg::solve_triangular(&wide, &wide, true, true, false),
        linalg::matrix_power(&wide, 2),
        linalg::cond(&wide, MatrixNorm::One),
        linalg::pinv(&wide, Tolerance::default(), true),
    ] {
        said(result, &["linalg.", "[2, 3]", "not square", "errors.rs"]);
    }
    for result in [
        linalg::cholesky_solve(&wide, &wide, false),
        linalg::cholesky_inverse(&wide, false),
        linalg::lu_solve(&square, &wide, &square, &wide, true, false),
        linalg::logdet(&wide),
        linalg::matrix_sqrth(&wide),
    ] {
        said(result, &["linalg.", "[2, 3]", "not square", "errors.rs"]);
    }
    said(linalg::cholesky_solve(&wide, &square, false), &["linalg.cholesky_solve", "3 rows"]);
    said(linalg::lu_solve(&square, &square, &square, &wide, true, true), &["linalg.lu_solve", "3 rows"]);
    said(
        linalg::householder_product(&wide, &vector),
        &["linalg.householder_product", "[2, 3]", "[3]", "n up to m"],
    );
    said(
        linalg::householder_product(&square, &random(&[4], 1)),
        &["linalg.householder_product", "k up to n"],
    );
    said(linalg::tensorinv(&square, 0), &["linalg.tensorinv", "first 0 axes", "from 1 to 2"]);
    said(linalg::tensorinv(&wide, 1), &["linalg.tensorinv", "2 elements and the others 3"]);
    said(linalg::tensorsolve(&wide, &vector), &["linalg.tensorsolve", "[2, 3]", "[3]", "begin"]);
    said(linalg::tensorsolve(&wide, &random(&[2], 1)), &["linalg.tensorsolve", "3 elements", "2"]);
    said(linalg::svd(&vector, false), &["linalg.svd", "[3]", "no matrix"]);
    said(linalg::qr(&vector, QrMode::Reduced), &["linalg.qr", "no matrix"]);
    said(linalg::inv(&square.to_dtype(DType::I64)?), &["linalg.inv", "i64", "to_dtype"]);
    said(linalg::solve(&square, &wide), &["linalg.solve", "[3, 3]", "[2, 3]", "3 rows"]);
    said(linalg::solve(&square, &square.to_dtype(DType::F32)?), &["linalg.solve", "f64", "f32"]);
    said(linalg::lstsq(&square, &wide, None), &["linalg.lstsq", "3 rows"]);
    Ok(())
}

/// Found when it is computed, with the line that built it; other results are not affected.
#[test]
fn matrices_without_an_answer() -> Result<()> {
    let a = Tensor::new([[[1.0f64, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]], (DType::F64, &cpu()))?;
    let twice = &a * 2.0;
    let found = linalg::inv(&twice)?;
    let line = line!() - 1;
    let error = found.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LinAlg { op: "linalg.inv", batch: Some(1), .. }), "{error}");
    said(
        found.eval(),
        &["linalg.inv", "batch element 1", "singular", "pinv", "errors.rs", &format!(":{line}:")],
    );
    assert_eq!(twice.to_vec::<f64>()?[0], 2.0);
    assert_eq!(linalg::inv(&a.select(0, 0)?)?.to_vec::<f64>()?, [1.0, 0.0, 0.0, 1.0]);
    said(linalg::solve(&a, &a)?.eval(), &["linalg.solve", "batch element 1", "singular"]);
    let indefinite = Tensor::new([[1.0f64, 0.0], [0.0, -1.0]], (DType::F64, &cpu()))?;
    let error = linalg::cholesky(&indefinite, false)?.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LinAlg { batch: None, .. }));
    said(linalg::cholesky(&indefinite, false)?.eval(), &["linalg.cholesky", "positive-definite", "order 2"]);
    let nan = Tensor::new([[f64::NAN, 0.0], [0.0, 1.0]], (DType::F64, &cpu()))?;
    said(linalg::cholesky(&nan, false)?.eval(), &["positive-definite", "order 1"]);
    said(linalg::svd(&nan, false)?.1.eval(), &["linalg.svd", "not finite"]);
    said(linalg::svdvals(&nan)?.eval(), &["linalg.svdvals", "not finite"]);
    said(linalg::eigh(&nan, Uplo::Lower)?.0.eval(), &["linalg.eigh", "not finite"]);
    said(linalg::eigvalsh(&nan, Uplo::Upper)?.eval(), &["linalg.eigvalsh", "not finite"]);
    for found in [
        linalg::lstsq(&nan, &nan, None)?.rank,
        linalg::matrix_rank(&nan, 0.1, true)?,
        linalg::pinv(&nan, 0.1, false)?,
    ] {
        said(found.eval(), &["not finite", "errors.rs"]);
    }
    // These functions give NaN for NaN, as LAPACK's do.
    assert!(linalg::inv(&nan)?.to_vec::<f64>()?[0].is_nan());
    assert!(linalg::det(&nan)?.item::<f64>()?.is_nan());
    Ok(())
}

#[test]
fn a_complete_tall_qr_has_no_gradient() -> Result<()> {
    let a = random(&[3, 2], 3).requires_grad();
    let (q, r) = linalg::qr(&a, QrMode::Complete)?;
    said(q.sum().add(&r.sum())?.backward(), &["linalg.qr", "3 x 2", "Reduced"]);
    Ok(())
}

/// A backend without these kernels names backends that have them.
#[test]
fn another_backend_is_told_of() -> Result<()> {
    let (device, _) = taper_testing::reference_backend();
    let a = Tensor::eye(2, &device)?;
    let error = linalg::inv(&a)?.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { op: "linalg.inv", .. }), "{error}");
    said(linalg::inv(&a)?.eval(), &["linalg.inv", "f32", "not supported", "taper::cpu()", "errors.rs"]);
    Ok(())
}
