//! The unscaled transform along the last axis of numbers, composed of other operations: for devices
//! without a kernel for [`crate::Fourier`] of that length.
//!
//! For n = a·b numbers (Cooley and Tukey 1965): with j = b·j₁ + j₂ and k = k₁ + a·k₂ it is a transform
//! of length a over j₁, a multiplication by the twiddle factor of angle 2π·j₂·k₁/n, and a transform of
//! length b over j₂. The short transform is a product with its matrix, which devices compute fastest;
//! the other one is split in turn. A length with only large factors is a convolution with a chirp
//! (Bluestein 1970), by transforms of a length that splits well. A part whose length has a kernel on the
//! device is computed by it.

use std::{f64::consts::PI, sync::Arc};

use crate::{
    base::{axes::Dims, error::Result, shape::Shape},
    graph::{handle::Tensor, op::Subscripts},
    native::fourier::{Fourier, FourierKind},
};

/// The greatest factor to split off, and the longest composite length whose transform is one matrix
/// product.
const MATRIX: usize = 32;
/// The longest prime length whose transform is one matrix product.
const PRIME: usize = 160;

/// A constant tensor computed in f64 and rounded once to the dtype of `like`.
pub(crate) fn constant(values: &[f64], shape: impl Into<Dims>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_formula("fft", values.len(), |k| values[k], (like.dtype(), &like.device()).into())?
        .reshape(shape)
}

/// The cosine and sine of 2π·k/n, correctly rounded or nearly so for every k, by reduction to the first
/// octant.
fn turn(k: usize, n: usize) -> (f64, f64) {
    let k = k % n;
    // The reduction is exact: it is done in integers.
    let (eighth, rest) = (8 * k / n, 8 * k % n);
    let angle = |rest: usize| rest as f64 * (PI / 4.0) / n as f64;
    let (sin, cos) = if eighth % 2 == 0 { angle(rest).sin_cos() } else { angle(n - rest).sin_cos() };
    match eighth {
        0 => (cos, sin),
        1 => (sin, cos),
        2 => (-sin, cos),
        3 => (-cos, sin),
        4 => (-cos, -sin),
        5 => (-sin, -cos),
        6 => (sin, -cos),
        _ => (cos, -sin),
    }
}

/// The complex conjugates.
pub(crate) fn conjugate(x: &Tensor) -> Result<Tensor> {
    x.mul(&constant(&[1.0, -1.0], [2], x)?)
}

/// The elementwise product of complex numbers.
fn times(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (re, im) = (y.narrow(-1, 0, 1)?, y.narrow(-1, 1, 1)?);
    let signs = constant(&[-1.0, 1.0], [2], x)?;
    x.mul(&re)?.add(&x.flip(-1)?.mul(&im.mul(&signs)?)?)
}

/// A table `[rows, columns, 2]` of twiddle factors.
fn turns(
    (rows, columns): (usize, usize),
    n: usize,
    inverse: bool,
    like: &Tensor,
    exponent: impl Fn(usize, usize) -> usize,
) -> Result<Tensor> {
    let mut values = Vec::with_capacity(rows * columns * 2);
    for row in 0..rows {
        for column in 0..columns {
            let (cos, sin) = turn(exponent(row, column), n);
            values.extend([cos, if inverse { sin } else { -sin }]);
        }
    }
    constant(&values, [rows, columns, 2], like)
}

/// A transform that is composed.
#[derive(Clone, Copy)]
pub(crate) struct Composed {
    /// Whether θ has a positive sign.
    pub(crate) inverse: bool,
    /// Whether parts may be computed by the device's kernels.
    pub(crate) with_kernels: bool,
}

/// The transform of complex `[…, n, 2]` or real `[…, n]`, as `[…, n, 2]`.
pub(crate) fn transform(x: &Tensor, real: bool, of: Composed) -> Result<Tensor> {
    let dims = x.dims();
    let lead = x.rank() - if real { 1 } else { 2 };
    let n = dims[lead];
    let shape: Shape = dims[..=lead].iter().copied().chain([2]).collect();
    let batch: usize = dims[..lead].iter().product();
    let rows: Shape = [batch, n].into_iter().chain((!real).then_some(2)).collect();
    rows_of(&x.reshape(rows)?, real, of)?.reshape(shape)
}

/// The greatest factor to split off a length; `None` if the length is one product or has no such factor.
fn factor(n: usize) -> Option<usize> {
    (2..=MATRIX.min(n / 2)).rev().find(|a| n.is_multiple_of(*a))
}

/// The transform of `[m, n, 2]` or of real `[m, n]`.
fn rows_of(x: &Tensor, real: bool, of: Composed) -> Result<Tensor> {
    let (m, n, inverse) = (x.dims()[0], x.dims()[1], of.inverse);
    if n <= MATRIX {
        return product(x, real, inverse);
    }
    if of.with_kernels && !real {
        let kind = if inverse { FourierKind::Inverse } else { FourierKind::Forward };
        let kernel = Arc::new(Fourier::new(kind, n, 1.0));
        if Tensor::has_custom_kernel(kernel.clone(), &[x])? {
            return Ok(Tensor::custom_kernel(kernel, &[x])?.swap_remove(0));
        }
    }
    let Some(a) = factor(n) else {
        return if n <= PRIME { product(x, real, inverse) } else { chirp(x, real, of) };
    };
    let b = n / a;
    let apart: Shape = [m, a, b].into_iter().chain((!real).then_some(2)).collect();
    // Complex from here on, also for a real operand: [m, k₁, j₂, 2].
    let short = matrix(&x.reshape(apart)?, a, real, inverse)?;
    let rotated = times(&short, &turns((a, b), n, inverse, x, |k, j| k * j)?)?;
    let long = rows_of(&rotated.reshape([m * a, b, 2])?, false, of)?;
    // The frequency is k = k₁ + a·k₂.
    long.reshape([m, a, b, 2])?.permute([0, 2, 1, 3])?.reshape([m, n, 2])
}

/// A transform as one matrix product.
fn product(x: &Tensor, real: bool, inverse: bool) -> Result<Tensor> {
    let (m, n) = (x.dims()[0], x.dims()[1]);
    let apart: Shape = [m, n, 1].into_iter().chain((!real).then_some(2)).collect();
    matrix(&x.reshape(apart)?, n, real, inverse)?.reshape([m, n, 2])
}

/// Transforms of length `a` along axis 1 of `[m, a, b, 2]`, or of real `[m, a, b]`, by the Fourier
/// matrix; a complex number takes two rows of it.
fn matrix(x: &Tensor, a: usize, real: bool, inverse: bool) -> Result<Tensor> {
    let [m, j, r, c, k, d] = [0u8, 1, 2, 3, 4, 5];
    // The factors of the real parts, [j, k, 2].
    let table = turns((a, a), a, inverse, x, |j, k| j * k)?;
    let out = [m, k, r, d].into_iter().collect();
    if real {
        let (lhs, rhs) = ([m, j, r].into_iter().collect(), [j, k, d].into_iter().collect());
        return x.contract(&table, Subscripts { lhs, rhs, out });
    }
    // The factors of the imaginary parts: i times those of the real parts.
    let signs = constant(&[-1.0, 1.0], [2], x)?;
    let both = Tensor::stack(&[&table, &table.flip(-1)?.mul(&signs)?], 1)?;
    let (lhs, rhs) = ([m, j, r, c].into_iter().collect(), [j, c, k, d].into_iter().collect());
    x.contract(&both, Subscripts { lhs, rhs, out })
}

/// Bluestein's algorithm: with jk = (j² + k² − (k − j)²)/2 the transform is a convolution with the chirp
/// of angles π·j²/n, with a multiplication by the chirp before and after.
fn chirp(x: &Tensor, real: bool, of: Composed) -> Result<Tensor> {
    let (m, n, inverse) = (x.dims()[0], x.dims()[1], of.inverse);
    let long = (2 * n - 1).next_power_of_two();
    // The square is reduced in integers: a float would lose the angle.
    let square = |k: usize| ((k as u128 * k as u128) % (2 * n as u128)) as usize;
    let half_turns = turns((1, n), 2 * n, inverse, x, |_, k| square(k))?.reshape([n, 2])?;
    let x = match real {
        true => x.unsqueeze(-1)?.mul(&half_turns)?,
        false => times(x, &half_turns)?,
    };
    let padded = x.pad(&[(0, 0), (0, long - n), (0, 0)], 0.0)?;
    let back = turns((1, long), 2 * n, !inverse, &x, |_, k| square(k.min(long - k)))?.reshape([long, 2])?;
    // The convolution does not reach the numbers between both ends.
    let reached: Vec<f64> = (0..long).map(|k| if k.min(long - k) < n { 1.0 } else { 0.0 }).collect();
    let back = back.mul(&constant(&reached, [long, 1], &x)?)?;
    let [forward, backward] = [false, true].map(|inverse| Composed { inverse, ..of });
    let spectrum = rows_of(&back.unsqueeze(0)?, false, forward)?;
    let product = times(&rows_of(&padded, false, forward)?, &spectrum)?;
    let folded = rows_of(&product, false, backward)?.mul_scalar(1.0 / long as f64);
    times(&folded.narrow(1, 0, n)?, &half_turns)?.reshape([m, n, 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_exact_where_they_can_be() {
        assert_eq!(turn(0, 7), (1.0, 0.0));
        assert_eq!(turn(2, 8), (0.0, 1.0));
        assert_eq!(turn(4, 8), (-1.0, 0.0));
        assert_eq!(turn(6, 8), (0.0, -1.0));
        for n in [1, 2, 3, 5, 8, 12, 97, 1000] {
            for k in 0..3 * n {
                let (cos, sin) = turn(k, n);
                let angle = 2.0 * PI * (k % n) as f64 / n as f64;
                // The reference angle itself is rounded four times, to within 2⁻⁵² of up to 2π.
                assert!((cos - angle.cos()).abs() < 2e-15 && (sin - angle.sin()).abs() < 2e-15, "{k}/{n}");
            }
        }
        // Where the exact value is known, the error is within one rounding.
        for (found, exact) in
            [(turn(1, 3).0, -0.5), (turn(2, 3).0, -0.5), (turn(1, 6).0, 0.5), (turn(11, 12).1, -0.5)]
        {
            assert!((found - exact).abs() <= f64::EPSILON / 4.0, "{found} for {exact}");
        }
    }

    #[test]
    fn lengths_come_apart_into_small_factors() {
        assert_eq!(factor(1024), Some(32));
        assert_eq!(factor(33), Some(11));
        assert_eq!(factor(34), Some(17));
        assert_eq!(factor(37), None);
        assert_eq!(factor(37 * 41), None);
    }
}
