//! Window functions of signal processing, computed on the host in f64 and rounded once.

use std::f64::consts::{PI, TAU};

use crate::base::error::{Error, Result};
use crate::tensor::{Tensor, creation::create::TensorOptions};

/// The argument below which the power series of I₀ is used.
const SERIES_LIMIT: f64 = 20.0;

/// I₀(x)·e⁻ˣ for x ≥ 0, with I₀ the modified Bessel function of order 0: the power series for small x,
/// else the asymptotic one, whose terms decrease until k ≈ 4x and whose error is about e⁻²ˣ.
fn i0e(x: f64) -> f64 {
    if x < SERIES_LIMIT {
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

/// The position at which a window of `n` elements ends: the last one, or if `periodic` the one after it,
/// which is left out. A single element is the middle of its window, periodic or not.
fn end(n: usize, periodic: bool) -> usize {
    if periodic && n > 1 { n } else { n.saturating_sub(1) }
}

/// The window whose element is `at` of its position as a fraction of the end.
#[track_caller]
fn window(
    op: &'static str,
    n: usize,
    periodic: bool,
    options: TensorOptions,
    at: impl Fn(f64) -> f64 + Sync,
) -> Result<Tensor> {
    let end = end(n, periodic) as f64;
    let fill = |first: usize, values: &mut [f64]| {
        if n == 1 {
            return values.fill(1.0);
        }
        // Conversion of 32-bit integers to floats vectorises.
        let first = first as f64;
        (0u32..).zip(values).for_each(|(i, value)| *value = at((first + f64::from(i)) / end));
    };
    Tensor::from_runs(op, n, fill, options)
}

/// The number of positions per arc: cosines within an arc are computed from the arc's first angle and a
/// table.
const ARC: usize = 256;

/// cos(2πi / end) for each position i, by the addition theorem cos(a + b) = cos a · cos b − sin a · sin
/// b. Symmetric about the middle.
struct Cosines {
    end: usize,
    /// The cosines and sines of the angles within an arc.
    steps: Vec<(f64, f64)>,
}

impl Cosines {
    fn new(end: usize) -> Cosines {
        let mut cosines = Cosines { end, steps: Vec::new() };
        cosines.steps = (0..ARC.min(end / 2 + 1)).map(|i| cosines.at(i)).collect();
        cosines
    }

    fn at(&self, i: usize) -> (f64, f64) {
        let (sin, cos) = (TAU * (i as f64 / self.end as f64)).sin_cos();
        (cos, sin)
    }

    fn write(&self, first: usize, values: &mut [f64]) {
        let half = self.end / 2 + 1;
        let (rising, falling) = values.split_at_mut(half.saturating_sub(first).min(values.len()));
        self.write_half(first, rising);
        if let Some(last) = falling.len().checked_sub(1) {
            self.write_half(self.end - (first + rising.len() + last), falling);
            falling.reverse();
        }
    }

    /// Writes positions of the first half.
    fn write_half(&self, first: usize, values: &mut [f64]) {
        let mut done = 0;
        while done < values.len() {
            let from = (first + done) % ARC;
            let (cos, sin) = self.at(first + done - from);
            let (values, steps) = (&mut values[done..], &self.steps[from..]);
            values.iter_mut().zip(steps).for_each(|(value, (c, s))| *value = cos * c - sin * s);
            done += steps.len();
        }
    }
}

/// The window whose element is `at` of the cosine of its angle, which makes one full turn.
#[track_caller]
fn cosine_window(
    op: &'static str,
    n: usize,
    periodic: bool,
    options: TensorOptions,
    at: impl Fn(f64) -> f64 + Sync,
) -> Result<Tensor> {
    let cosines = Cosines::new(end(n, periodic));
    let fill = |first: usize, values: &mut [f64]| {
        if n == 1 {
            return values.fill(1.0);
        }
        cosines.write(first, values);
        values.iter_mut().for_each(|value| *value = at(*value));
    };
    Tensor::from_runs(op, n, fill, options)
}

macro_rules! windows {
    ($($(#[$doc:meta])* $name:ident = $window:ident $at:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Here t = i / n if `periodic` (PyTorch's default, for spectra), else i / (n − 1). A single
            /// element is 1. In the default dtype (f32) unless `options` has another.
            ///
            /// # Errors
            /// A dtype that is not floating-point.
            #[track_caller]
            pub fn $name(n: usize, periodic: bool, options: impl Into<TensorOptions>) -> Result<Tensor> {
                $window(stringify!($name), n, periodic, options.into(), $at)
            }
        )*}
    };
}

windows! {
    /// The Hann window of `n` elements: ½ − ½·cos(2πt). `torch.hann_window`.
    hann_window = cosine_window |cos| 0.5 - 0.5 * cos;
    /// The Blackman window of `n` elements: 0.42 − ½·cos(2πt) + 0.08·cos(4πt). `torch.blackman_window`.
    // The double angle is cos 2a = 2 cos² a − 1.
    blackman_window = cosine_window |cos| 0.42 - 0.5 * cos + 0.08 * (2.0 * cos * cos - 1.0);
    /// The Bartlett window of `n` elements, a triangle: 1 − |2t − 1|. `torch.bartlett_window`.
    bartlett_window = window |t| 1.0 - (2.0 * t - 1.0).abs();
}

impl Tensor {
    /// The Hamming window of `n` elements: α − β·cos(2πt), with t as in [`Tensor::hann_window`].
    /// PyTorch's defaults are α = 0.54 and β = 0.46. `torch.hamming_window`.
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
        cosine_window("hamming_window", n, periodic, options.into(), |cos| alpha - beta * cos)
    }

    /// The Kaiser window of `n` elements: I₀(β·√(1 − (2t − 1)²)) / I₀(β), with t as in
    /// [`Tensor::hann_window`]. PyTorch's default is β = 12. `torch.kaiser_window`.
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
        if beta < SERIES_LIMIT {
            // The series I₀(x) = Σ (x² / 4)ᵏ / k!², with as many terms as the greatest x needs.
            let (mut terms, mut term) = (vec![1.0], 1.0);
            while term > 1e-17 {
                let k = terms.len() as f64;
                term *= (beta / 2.0 / k).powi(2);
                terms.push(terms[terms.len() - 1] / (k * k));
            }
            let bessel = |square: f64| terms.iter().rev().fold(0.0, |sum, term| sum * square + term);
            let (greatest, scale) = (bessel(beta * beta / 4.0), beta * beta / 4.0);
            return window(OP, n, periodic, options.into(), |t| {
                bessel(scale * (1.0 - (2.0 * t - 1.0).powi(2)).max(0.0)) / greatest
            });
        }
        let greatest = i0e(beta);
        window(OP, n, periodic, options.into(), |t| {
            let x = beta * (1.0 - (2.0 * t - 1.0).powi(2)).max(0.0).sqrt();
            i0e(x) / greatest * (x - beta).exp()
        })
    }
}

/// The window whose element is `at` of its position.
#[track_caller]
fn window_of_places(
    op: &'static str,
    n: usize,
    options: TensorOptions,
    at: impl Fn(f64) -> f64 + Sync,
) -> Result<Tensor> {
    let fill = |first: usize, values: &mut [f64]| {
        let first = first as f64;
        (0u32..).zip(values).for_each(|(i, value)| *value = at(first + f64::from(i)));
    };
    Tensor::from_runs(op, n, fill, options)
}

impl Tensor {
    /// The cosine window of `n` elements, half a wave: sin(π·(i + ½) / m) with m = n + 1 if `periodic`,
    /// else n. A single element is 1. In the default dtype (f32) unless `options` has another.
    /// `torch.signal.windows.cosine`, whose `sym` is not `periodic`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn cosine_window(n: usize, periodic: bool, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let waves = PI / (end(n, periodic) as f64 + 1.0);
        window_of_places("cosine_window", n, options.into(), |i| ((i + 0.5) * waves).sin())
    }

    /// The exponential window of `n` elements: e^(−|i − c| / τ) around `center` c, by default the
    /// middle, (n − 1) / 2, or n / 2 if `periodic`. A single element is its own middle. PyTorch's default
    /// is τ = 1. `torch.signal.windows.exponential`.
    ///
    /// # Errors
    /// A τ that is not positive, a center of a window that is not periodic, a dtype that is not
    /// floating-point.
    #[track_caller]
    pub fn exponential_window(
        n: usize,
        periodic: bool,
        center: Option<f64>,
        tau: f64,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "exponential_window";
        if tau.is_nan() || tau <= 0.0 {
            return Err(Error::invalid(OP, format!("tau {tau}: give one above 0")));
        }
        if !periodic && center.is_some() {
            return Err(Error::invalid(
                OP,
                "a window that is not periodic is around its middle: give no center",
            ));
        }
        let center = center.unwrap_or(end(n, periodic) as f64 / 2.0);
        window_of_places(OP, n, options.into(), |i| (-(i - center).abs() / tau).exp())
    }

    /// The Gaussian window of `n` elements: e^(−(i − c)² / 2σ²) around the middle c, (n − 1) / 2, or n / 2
    /// if `periodic`. A single element is 1. PyTorch's default is σ = 1. `torch.signal.windows.gaussian`.
    ///
    /// # Errors
    /// A σ that is not positive, a dtype that is not floating-point.
    #[track_caller]
    pub fn gaussian_window(
        n: usize,
        periodic: bool,
        std: f64,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "gaussian_window";
        if std.is_nan() || std <= 0.0 {
            return Err(Error::invalid(OP, format!("a deviation of {std}: give one above 0")));
        }
        let center = end(n, periodic) as f64 / 2.0;
        window_of_places(OP, n, options.into(), |i| (-((i - center) / std).powi(2) / 2.0).exp())
    }

    /// The window of `n` elements that is a sum of cosines, a₀ − a₁·cos(2πt) + a₂·cos(4πt) − …, with t
    /// as in [`Tensor::hann_window`]. `torch.signal.windows.general_cosine`.
    ///
    /// # Errors
    /// No coefficients, a dtype that is not floating-point.
    #[track_caller]
    pub fn general_cosine_window(
        n: usize,
        periodic: bool,
        coefficients: &[f64],
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "general_cosine_window";
        if coefficients.is_empty() {
            return Err(Error::invalid(OP, "no coefficients: give at least one"));
        }
        // Clenshaw's summation of cos kα in terms of cos α.
        let sum = |cos: f64| {
            let (mut now, mut before) = (0.0, 0.0);
            for (k, a) in coefficients.iter().enumerate().skip(1).rev() {
                let signed = if k % 2 == 0 { *a } else { -a };
                (now, before) = (signed + 2.0 * cos * now - before, now);
            }
            coefficients[0] + cos * now - before
        };
        cosine_window(OP, n, periodic, options.into(), sum)
    }

    /// The Nuttall window of `n` elements, a sum of four cosines with low side lobes: see
    /// [`Tensor::general_cosine_window`]. `torch.signal.windows.nuttall`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn nuttall_window(n: usize, periodic: bool, options: impl Into<TensorOptions>) -> Result<Tensor> {
        const COEFFICIENTS: [f64; 4] = [0.3635819, 0.4891775, 0.1365995, 0.0106411];
        Tensor::general_cosine_window(n, periodic, &COEFFICIENTS, options)
    }
}

#[cfg(test)]
mod tests {
    use super::i0e;

    /// Compared with SciPy's `i0e`.
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
