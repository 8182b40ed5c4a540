//! Compares gradients with finite differences.

use tensor_core::{DType, Error, ErrorKind, Result, Tensor};

use crate::{TensorGrad, enable_grad, grad, no_grad};

const STEP: f64 = 1e-6;
const ATOL: f64 = 1e-5;
const RTOL: f64 = 1e-3;

/// Checks the gradient of `f` at `inputs` (f64) against central differences: every entry of the Jacobian must
/// agree to 10⁻⁵ + 10⁻³·|difference quotient|. `torch.autograd.gradcheck`.
///
/// # Errors
/// Inputs that are not f64, the errors of `f`, and an [`ErrorKind::Autograd`] that names the first entry
/// that disagrees.
#[track_caller]
pub fn gradcheck(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<()> {
    const OP: &str = "gradcheck";
    for input in inputs {
        if input.dtype() != DType::F64 {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op: OP,
                lhs: input.dtype(),
                rhs: DType::F64,
                hint: "finite differences need f64: cast with .to_dtype(DType::F64)?".into(),
            }));
        }
    }
    let leaves: Vec<Tensor> = inputs.iter().map(|t| t.detach().into_cell(true)).collect::<Result<_>>()?;
    let output = enable_grad(|| f(&leaves))?;
    let outputs = output.numel();
    // Row by row: each row is the gradient of one output element.
    let mut rows: Vec<Vec<Vec<f64>>> = Vec::with_capacity(outputs);
    let flat = enable_grad(|| output.flatten_all());
    for j in 0..outputs {
        let picked = enable_grad(|| flat.select(0, j as isize))?;
        let refs: Vec<&Tensor> = leaves.iter().collect();
        let row =
            if picked.is_tracked() { grad(&[&picked], &refs, false)? } else { vec![None; leaves.len()] };
        rows.push(
            row.into_iter()
                .zip(&leaves)
                .map(|(g, leaf)| g.map_or_else(|| Ok(vec![0.0; leaf.numel()]), |g| g.to_vec::<f64>()))
                .collect::<Result<_>>()?,
        );
    }
    for (k, input) in inputs.iter().enumerate() {
        let values = input.to_vec::<f64>()?;
        let at = |i: usize, delta: f64| -> Result<Vec<f64>> {
            let mut moved = values.clone();
            moved[i] += delta;
            let mut all: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
            all[k] = Tensor::from_vec(moved, input.shape(), &input.device())?;
            // Tracked, so that a function that differentiates inside still works.
            let all: Vec<Tensor> = all.into_iter().map(TensorGrad::requires_grad).collect();
            f(&all)?.detach().to_vec::<f64>()
        };
        for i in 0..values.len() {
            let (above, below) = (at(i, STEP)?, at(i, -STEP)?);
            for (j, row) in rows.iter().enumerate() {
                let expected = (above[j] - below[j]) / (2.0 * STEP);
                let found = row[k][i];
                if (found - expected).abs() > ATOL + RTOL * expected.abs()
                    || found.is_nan() != expected.is_nan()
                {
                    return Err(Error::new(ErrorKind::Autograd {
                        op: OP,
                        message: format!(
                            "d output[{j}] / d input {k}[{i}] is {found}, but finite differences give {expected}"
                        ),
                    }));
                }
            }
        }
    }
    Ok(())
}

/// Checks second derivatives: [`gradcheck`] of the gradient of Σ cᵢ·f(x)ᵢ for fixed, uneven cᵢ.
///
/// # Errors
/// As [`gradcheck`].
#[track_caller]
pub fn gradgradcheck(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<()> {
    gradcheck(
        |xs| {
            let output = f(xs)?;
            let weights: Vec<f64> = (0..output.numel()).map(|i| 0.7 + (i as f64 * 1.3).sin() * 0.5).collect();
            let weights = no_grad(|| Tensor::from_vec(weights, output.shape(), &output.device()))?;
            let scalar = output.mul(&weights)?.sum();
            let refs: Vec<&Tensor> = xs.iter().collect();
            let gradients = grad(&[&scalar], &refs, true)?;
            let flat: Vec<Tensor> = gradients
                .into_iter()
                .zip(xs)
                .map(|(g, x)| g.unwrap_or_else(|| x.zeros_like()).flatten_all())
                .collect();
            Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)
        },
        inputs,
    )
}
