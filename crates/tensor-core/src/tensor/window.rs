//! Windows of signal processing, computed on the host in f64 and rounded once.

use std::f64::consts::TAU;

use super::{Tensor, create::TensorOptions};
use crate::{Error, Result};

/// I₀(x)·e⁻ˣ of the modified Bessel function of order 0, for x ≥ 0: its series where that is short, else the one for large x, whose
/// terms fall until k ≈ 4x and whose error is about e⁻²ˣ.
fn i0e(x: f64) -> f64 {
    if x < 20.0 {
        let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
        while term > sum * 1e-17 {
            term *= (x / 2.0 / k) * (x / 2.0 / k);
            sum += term;
            k += 1.0;
        }
        return sum * (-x).exp();
    }
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > 1e-17 && k < 30.0 {
        term *= (2.0 * k - 1.0) * (2.0 * k - 1.0) / (8.0 * k * x);
        sum += term;
        k += 1.0;
    }
    sum / (TAU * x).sqrt()
}

/// `at` of each place as a share of the way from the first to the last, of `n` or, if `periodic`, of `n + 1` of which the last is left
/// out.
#[track_caller]
fn window(
    op: &'static str,
    n: usize,
    periodic: bool,
    options: TensorOptions,
    at: impl Fn(f64) -> f64 + Sync,
) -> Result<Tensor> {
    let last = if periodic { n } else { n.saturating_sub(1) };
    let share = |i: usize| if n == 1 { 1.0 } else { at(i as f64 / last as f64) };
    Tensor::from_formula(op, n, share, options)
}

macro_rules! windows {
    ($($(#[$doc:meta])* $name:ident = $at:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// With t = i / n if `periodic` (PyTorch's default, for spectra), else i / (n − 1). One element alone is 1. Of the default dtype
            /// (f32) unless `options` says otherwise.
            ///
            /// # Errors
            /// A dtype that is not floating-point.
            #[track_caller]
            pub fn $name(n: usize, periodic: bool, options: impl Into<TensorOptions>) -> Result<Tensor> {
                window(stringify!($name), n, periodic, options.into(), $at)
            }
        )*}
    };
}

windows! {
    /// Hann's window of `n` elements: ½ − ½·cos(2πt). `torch.hann_window`.
    hann_window = |t| 0.5 - 0.5 * (TAU * t).cos();
    /// Blackman's window of `n` elements: 0.42 − ½·cos(2πt) + 0.08·cos(4πt). `torch.blackman_window`.
    blackman_window = |t| 0.42 - 0.5 * (TAU * t).cos() + 0.08 * (2.0 * TAU * t).cos();
    /// Bartlett's window of `n` elements, a triangle: 1 − |2t − 1|. `torch.bartlett_window`.
    bartlett_window = |t| 1.0 - (2.0 * t - 1.0).abs();
}

impl Tensor {
    /// Hamming's window of `n` elements: α − β·cos(2πt), with t as in [`Tensor::hann_window`]. PyTorch's defaults are α = 0.54 and
    /// β = 0.46. `torch.hamming_window`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn hamming_window(
        n: usize,
        periodic: bool,
        alpha: f64,
        beta: f64,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        window("hamming_window", n, periodic, options.into(), |t| alpha - beta * (TAU * t).cos())
    }

    /// Kaiser's window of `n` elements: I₀(β·√(1 − (2t − 1)²)) / I₀(β), with t as in [`Tensor::hann_window`]. PyTorch's default is
    /// β = 12. `torch.kaiser_window`.
    ///
    /// # Errors
    /// A dtype that is not floating-point, or a β that is negative or not finite.
    #[track_caller]
    pub fn kaiser_window(
        n: usize,
        periodic: bool,
        beta: f64,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "kaiser_window";
        if !(beta.is_finite() && beta >= 0.0) {
            return Err(Error::invalid(OP, format!("beta {beta}: give a finite one of at least 0")));
        }
        let greatest = i0e(beta);
        window(OP, n, periodic, options.into(), |t| {
            let x = beta * (1.0 - (2.0 * t - 1.0).powi(2)).max(0.0).sqrt();
            i0e(x) / greatest * (x - beta).exp()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::i0e;

    /// Values of SciPy's i0e.
    #[test]
    fn bessel() {
        for (x, known) in [
            (0.0, 1.0),
            (1.0, 0.465_759_607_593_640_4),
            (12.0, 0.116_426_221_213_440_44),
            (19.999, 0.089_782_586_060_965_36),
            (20.0, 0.089_780_311_884_826),
            (100.0, 0.039_944_379_299_097_32),
        ] {
            assert!((i0e(x) / known - 1.0).abs() < 1e-13, "{x}: {} for {known}", i0e(x));
        }
    }
}
