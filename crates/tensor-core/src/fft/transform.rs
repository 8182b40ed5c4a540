//! The transform along the last axis of numbers, without a factor, of other operations: for devices that have
//! no kernel for [`crate::Fourier`].
//!
//! Of n = a·b numbers (Cooley and Tukey 1965): with j = b·j₁ + j₂ and k = k₁ + a·k₂ it is a transform of
//! length a over j₁, a rotation by j₂·k₁/n of a turn, and a transform of length b over j₂. The short one is a
//! product with its matrix, which is what devices do best; the other is taken apart in turn. A length with
//! only large factors is a convolution with a chirp (Bluestein 1970), by transforms of a length that comes
//! apart well.

use std::f64::consts::PI;

use crate::{
    base::{
        error::Result,
        shape::{Dims, Shape},
    },
    graph::{handle::Tensor, op::Subscripts},
};

/// The longest transform that is one product where its length comes apart no further, and the greatest factor
/// that is taken.
const MATRIX: usize = 32;
/// The longest transform of a prime length that is one product.
const PRIME: usize = 160;

/// A tensor of numbers computed here, rounded once, for use with another.
pub(crate) fn constant(values: &[f64], shape: impl Into<Dims>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_formula("fft", values.len(), |k| values[k], (like.dtype(), &like.device()).into())?
        .reshape(shape)
}

/// Cosine and sine of k/n of a turn, exact to a rounding for every k: from within an eighth of a turn.
fn turn(k: usize, n: usize) -> (f64, f64) {
    let k = k % n;
    // In eighths, by whole numbers.
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

/// Complex numbers with the other sign of their imaginary parts.
pub(crate) fn conjugate(x: &Tensor) -> Result<Tensor> {
    x.mul(&constant(&[1.0, -1.0], [2], x)?)
}

/// Products of complex numbers.
fn times(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (re, im) = (y.narrow(-1, 0, 1)?, y.narrow(-1, 1, 1)?);
    let signs = constant(&[-1.0, 1.0], [2], x)?;
    x.mul(&re)?.add(&x.flip(-1)?.mul(&im.mul(&signs)?)?)
}

/// A table `[rows, columns, 2]` of turns.
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

/// The transform of `[…, n, 2]`, or of real `[…, n]`, which gives `[…, n, 2]`.
pub(crate) fn transform(x: &Tensor, real: bool, inverse: bool) -> Result<Tensor> {
    let dims = x.dims();
    let lead = x.rank() - if real { 1 } else { 2 };
    let n = dims[lead];
    let shape: Shape = dims[..=lead].iter().copied().chain([2]).collect();
    let batch: usize = dims[..lead].iter().product();
    let rows: Shape = [batch, n].into_iter().chain((!real).then_some(2)).collect();
    rows_of(&x.reshape(rows)?, real, inverse)?.reshape(shape)
}

/// The greatest factor of a length that is taken at once; none if the length is one product, or has no such
/// factor.
fn factor(n: usize) -> Option<usize> {
    (2..=MATRIX.min(n / 2)).rev().find(|a| n.is_multiple_of(*a))
}

/// The transform of `[m, n, 2]` or of real `[m, n]`.
fn rows_of(x: &Tensor, real: bool, inverse: bool) -> Result<Tensor> {
    let (m, n) = (x.dims()[0], x.dims()[1]);
    if n <= MATRIX {
        return product(x, real, inverse);
    }
    let Some(a) = factor(n) else {
        return if n <= PRIME { product(x, real, inverse) } else { chirp(x, real, inverse) };
    };
    let b = n / a;
    let apart: Shape = [m, a, b].into_iter().chain((!real).then_some(2)).collect();
    // [m, k₁, j₂, 2], whatever the operand was.
    let short = matrix(&x.reshape(apart)?, a, real, inverse)?;
    let rotated = times(&short, &turns((a, b), n, inverse, x, |k, j| k * j)?)?;
    let long = rows_of(&rotated.reshape([m * a, b, 2])?, false, inverse)?;
    // k = k₁ + a·k₂.
    long.reshape([m, a, b, 2])?.permute([0, 2, 1, 3])?.reshape([m, n, 2])
}

/// A transform as one product.
fn product(x: &Tensor, real: bool, inverse: bool) -> Result<Tensor> {
    let (m, n) = (x.dims()[0], x.dims()[1]);
    let apart: Shape = [m, n, 1].into_iter().chain((!real).then_some(2)).collect();
    matrix(&x.reshape(apart)?, n, real, inverse)?.reshape([m, n, 2])
}

/// Transforms of length `a` along axis 1 of `[m, a, b, 2]`, or of real `[m, a, b]`, by their matrix: a
/// complex number is two rows of it.
fn matrix(x: &Tensor, a: usize, real: bool, inverse: bool) -> Result<Tensor> {
    let [m, j, r, c, k, d] = [0u8, 1, 2, 3, 4, 5];
    // [j, k, 2]: what a real number is multiplied with.
    let table = turns((a, a), a, inverse, x, |j, k| j * k)?;
    let out = [m, k, r, d].into_iter().collect();
    if real {
        let (lhs, rhs) = ([m, j, r].into_iter().collect(), [j, k, d].into_iter().collect());
        return x.contract(&table, Subscripts { lhs, rhs, out });
    }
    // What an imaginary one is multiplied with: i times that.
    let signs = constant(&[-1.0, 1.0], [2], x)?;
    let both = Tensor::stack(&[&table, &table.flip(-1)?.mul(&signs)?], 1)?;
    let (lhs, rhs) = ([m, j, r, c].into_iter().collect(), [j, c, k, d].into_iter().collect());
    x.contract(&both, Subscripts { lhs, rhs, out })
}

/// With jk = (j² + k² − (k − j)²)/2 the transform is a convolution with half turns of squares, between two
/// rotations by them.
fn chirp(x: &Tensor, real: bool, inverse: bool) -> Result<Tensor> {
    let (m, n) = (x.dims()[0], x.dims()[1]);
    let long = (2 * n - 1).next_power_of_two();
    // The square is a matter of whole numbers: a float would lose the turn.
    let square = |k: usize| ((k as u128 * k as u128) % (2 * n as u128)) as usize;
    let half_turns = turns((1, n), 2 * n, inverse, x, |_, k| square(k))?.reshape([n, 2])?;
    let x = match real {
        true => x.unsqueeze(-1)?.mul(&half_turns)?,
        false => times(x, &half_turns)?,
    };
    let padded = x.pad(&[(0, 0), (0, long - n), (0, 0)], 0.0)?;
    let back = turns((1, long), 2 * n, !inverse, &x, |_, k| square(k.min(long - k)))?.reshape([long, 2])?;
    // Between both ends the convolution does not reach.
    let reached: Vec<f64> = (0..long).map(|k| if k.min(long - k) < n { 1.0 } else { 0.0 }).collect();
    let back = back.mul(&constant(&reached, [long, 1], &x)?)?;
    let spectrum = rows_of(&back.unsqueeze(0)?, false, false)?;
    let product = times(&rows_of(&padded, false, false)?, &spectrum)?;
    let folded = rows_of(&product, false, true)?.mul_scalar(1.0 / long as f64);
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
                // The angle itself is rounded four times, to 2⁻⁵² of as much as 2π.
                assert!((cos - angle.cos()).abs() < 2e-15 && (sin - angle.sin()).abs() < 2e-15, "{k}/{n}");
            }
        }
        // To a rounding, where the value is known.
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
