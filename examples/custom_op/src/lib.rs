//! An operation with its own kernels, in a crate that only depends on `taper`: rotary position embeddings
//! (Su et al. 2021).
//!
//! Users call [`rotate`]. `Rotate` implements it: as a [`CustomKernel`] it has the result's shape and the
//! kernels for the CPU and GPUs; as a [`Function`] it has the gradient.

use std::sync::Arc;

#[cfg(feature = "wgpu")]
use taper::custom::WgslKernel;
use taper::{
    DType, Element, Error, Result, Shape, Tensor,
    custom::{CpuInput, CpuKernel, CpuOutput, CustomKernel, Function, Request, apply},
};

/// Turns neighbouring pairs of `x`, `[…, n, 2d]`, by `angles`, `[n, d]`, in radians: of a pair (a, b) by t,
/// (a·cos t − b·sin t, a·sin t + b·cos t).
///
/// # Errors
/// Shapes that do not fit, two dtypes, or another one than f32 and f64 (f32 on a GPU).
///
/// ```
/// use taper::prelude::*;
///
/// let cpu = taper::cpu();
/// let x = Tensor::new([[1.0, 0.0], [1.0, 0.0]], &cpu)?;
/// let quarter = std::f64::consts::FRAC_PI_2;
/// let y = custom_op::rotate(&x, &Tensor::new([[0.0], [quarter]], &cpu)?)?;
/// assert!(y.allclose(&Tensor::new([[1.0, 0.0], [0.0, 1.0]], &cpu)?, 0.0, 1e-6)?);
/// # Ok::<(), taper::Error>(())
/// ```
pub fn rotate(x: &Tensor, angles: &Tensor) -> Result<Tensor> {
    apply(Rotate { back: false }, &[x, angles])
}

/// A rotation, or the rotation back.
#[derive(Clone, Copy, Debug)]
struct Rotate {
    back: bool,
}

impl CustomKernel for Rotate {
    fn name(&self) -> &'static str {
        "rotate"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let [(x, dtype), (angles, other)] = inputs else {
            return Err(Error::invalid("rotate", format!("{} inputs for two", inputs.len())));
        };
        let fits = matches!((x.dims(), angles.dims()), ([.., n, pairs], [m, d]) if n == m && *pairs == 2 * d);
        if !fits {
            let message = format!("x is {x} and angles are {angles}; they must be [..., n, 2d] and [n, d]");
            return Err(Error::invalid("rotate", message));
        }
        if dtype != other || !matches!(dtype, DType::F32 | DType::F64) {
            let message = format!("x is of {dtype} and angles of {other}; cast both to f32 or f64");
            return Err(Error::invalid("rotate", message));
        }
        Ok(vec![(x.clone(), *dtype)])
    }

    fn key(&self) -> Vec<u64> {
        vec![u64::from(self.back)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        let back = self.back;
        request.provide(|_| {
            CpuKernel::new(move |inputs, outputs| match inputs[0].dtype() {
                DType::F64 => on_cpu::<f64>(inputs, outputs, back, |value| value),
                _ => on_cpu::<f32>(inputs, outputs, back, |value| value as f32),
            })
        });
        #[cfg(feature = "wgpu")]
        request.provide(|kernel| {
            let pairs = kernel.operands[0].layout.numel() / 2;
            let angles = kernel.operands[1].layout.numel();
            WgslKernel::new(include_str!("rotate.wgsl"))
                .inputs(&["x", "angles"])
                .outputs(&["y"])
                .param("pairs", pairs as u32)
                .param("angles", angles as u32)
                .param("back", u32::from(back))
                .workgroups(64, pairs.div_ceil(64))
        });
    }
}

/// The pairs of `x` one after the other, and the angles again and again.
fn on_cpu<T: Element + Into<f64>>(
    inputs: &[CpuInput<'_>],
    outputs: &mut [CpuOutput<'_>],
    back: bool,
    from: fn(f64) -> T,
) -> Result<()> {
    let (x, angles) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<T>()?);
    let y = outputs[0].as_mut_slice::<T>()?;
    let sign = if back { -1.0 } else { 1.0 };
    for ((to, from_x), &angle) in y.chunks_exact_mut(2).zip(x.chunks_exact(2)).zip(angles.iter().cycle()) {
        let (sin, cos) = (sign * angle.into()).sin_cos();
        let (a, b) = (from_x[0].into(), from_x[1].into());
        to[0] = from(a * cos - b * sin);
        to[1] = from(a * sin + b * cos);
    }
    Ok(())
}

impl Function for Rotate {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Rotate"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor::custom_kernel(Arc::new(*self), inputs)?.swap_remove(0))
    }

    /// The gradient of x is g rotated by the opposite angles. The gradient of an angle is the dot product of
    /// g with the derivative of the rotated pair, (−y₁, y₀), summed over the leading axes.
    fn backward(&self, inputs: &[Tensor], y: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, angles) = (&inputs[0], &inputs[1]);
        let of_x = apply(Rotate { back: !self.back }, &[g, angles])?;
        let pairs: Vec<usize> = [x.numel() / angles.numel().max(1) / 2]
            .iter()
            .chain(angles.dims())
            .chain(&[2])
            .copied()
            .collect();
        let (y, g) = (y.reshape(pairs.as_slice())?, g.reshape(pairs.as_slice())?);
        let along =
            y.select(-1, 0)?.mul(&g.select(-1, 1)?)?.sub(&y.select(-1, 1)?.mul(&g.select(-1, 0)?)?)?;
        let of_angles = along.sum_axis(0, false)?;
        Ok(vec![Some(of_x), Some(if self.back { -of_angles } else { of_angles })])
    }
}
