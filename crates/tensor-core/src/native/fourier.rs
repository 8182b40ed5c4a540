//! [`Fourier`]: a batch of discrete Fourier transforms, as a native kernel that a backend may implement.
//! Without one, the transform is composed of matrix products (`fft::transform`).

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// Transforms along the last axis of numbers, as a [`CustomKernel`] whose implementation is this value
/// itself: a backend that asks a [`Request`] for a `Fourier` computes it from these fields. A complex
/// number is a last axis of 2, its real and imaginary parts; all axes before the numbers are a batch.
/// Inputs may have any strides.
///
/// With θ = 2πjk/n, a half spectrum of a real signal has the frequencies 0 to n/2. Those strictly
/// between have a mirror: the frequency n − k, which is their conjugate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fourier {
    /// The kind of input and the direction.
    pub kind: FourierKind,
    /// n, the number of samples of a signal: at least 1.
    pub length: usize,
    /// The factor of every result.
    pub factor: f64,
    /// The additional factor of mirrored frequencies in a half spectrum, given or computed. With it, the
    /// [adjoint](Fourier::adjoint) of a `Fourier` is one too. Complex transforms ignore it.
    pub mirrored: f64,
}

/// The kinds of [`Fourier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FourierKind {
    /// Complex `[…, n, 2]` → `[…, n, 2]`: Σⱼ xⱼ·e^(−iθ).
    Forward,
    /// Complex `[…, n, 2]` → `[…, n, 2]`: Σₖ xₖ·e^(iθ).
    Inverse,
    /// Real `[…, n]` → half a spectrum `[…, n/2 + 1, 2]`: Σⱼ xⱼ·e^(−iθ).
    RealToHalf,
    /// Half a spectrum `[…, n/2 + 1, 2]` → real `[…, n]`: Σₖ xₖ·e^(iθ), mirrors included. The imaginary
    /// parts of frequencies without a mirror are ignored.
    HalfToReal,
}

impl Fourier {
    /// A transform with a factor, and with `mirrored` = 1.
    pub const fn new(kind: FourierKind, length: usize, factor: f64) -> Fourier {
        Fourier { kind, length, factor, mirrored: 1.0 }
    }

    /// The transpose as a real linear map, which takes gradients of results to gradients of inputs: the
    /// transform with conjugated factors, in which a mirrored frequency counts twice.
    #[must_use]
    pub fn adjoint(self) -> Fourier {
        let (kind, mirrored) = match self.kind {
            FourierKind::Forward => (FourierKind::Inverse, self.mirrored),
            FourierKind::Inverse => (FourierKind::Forward, self.mirrored),
            FourierKind::RealToHalf => (FourierKind::HalfToReal, self.mirrored * 0.5),
            FourierKind::HalfToReal => (FourierKind::RealToHalf, self.mirrored * 2.0),
        };
        Fourier { kind, mirrored, ..self }
    }
}

/// Whether frequency k of a real signal's half spectrum also stands for its mirror.
pub(crate) fn has_mirror(k: usize, n: usize) -> bool {
    k != 0 && 2 * k != n
}

impl CustomKernel for Fourier {
    fn name(&self) -> &'static str {
        match self.kind {
            FourierKind::Forward => "fft",
            FourierKind::Inverse => "ifft",
            FourierKind::RealToHalf => "rfft",
            FourierKind::HalfToReal => "irfft",
        }
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let [(shape, dtype)] = inputs else { return wrong(&"one is needed") };
        if !dtype.is_float() {
            return wrong(&"a floating-point dtype is needed; cast with .to_dtype(DType::F32)");
        }
        let (n, bins) = (self.length, self.length / 2 + 1);
        let (of_input, of_output): (&[usize], &[usize]) = match self.kind {
            FourierKind::Forward | FourierKind::Inverse => (&[n, 2], &[n, 2]),
            FourierKind::RealToHalf => (&[n], &[bins, 2]),
            FourierKind::HalfToReal => (&[bins, 2], &[n]),
        };
        match shape.dims().strip_suffix(of_input) {
            Some(batch) if n > 0 => Ok(vec![(batch.iter().chain(of_output).copied().collect(), *dtype)]),
            _ => {
                let wanted: Vec<String> = of_input.iter().map(usize::to_string).collect();
                wrong(&format_args!("a transform of {n} numbers takes [..., {}]", wanted.join(", ")))
            }
        }
    }

    fn key(&self) -> Vec<u64> {
        let kind = match self.kind {
            FourierKind::Forward => 0,
            FourierKind::Inverse => 1,
            FourierKind::RealToHalf => 2,
            FourierKind::HalfToReal => 3,
        };
        vec![kind, self.length as u64, self.factor.to_bits(), self.mirrored.to_bits()]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }

    fn takes_strides(&self) -> bool {
        true
    }

    fn is_batched(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KINDS: [FourierKind; 4] =
        [FourierKind::Forward, FourierKind::Inverse, FourierKind::RealToHalf, FourierKind::HalfToReal];

    #[test]
    fn a_transform_gives_what_its_adjoint_takes() {
        for kind in KINDS {
            for (n, bins) in [(1, 1), (2, 2), (7, 4), (8, 5)] {
                let of = Fourier::new(kind, n, 0.5);
                let input = match kind {
                    FourierKind::Forward | FourierKind::Inverse => Shape::from([3, 0, n, 2]),
                    FourierKind::RealToHalf => Shape::from([3, 0, n]),
                    FourierKind::HalfToReal => Shape::from([3, 0, bins, 2]),
                };
                let results = of.results(&[(input.clone(), DType::F64)]).unwrap();
                assert_eq!(of.adjoint().results(&results).unwrap(), [(input, DType::F64)]);
                assert_eq!(of.adjoint().adjoint(), of);
                assert_ne!(of.adjoint().key(), of.key());
            }
        }
    }

    #[test]
    fn what_no_transform_is_of() {
        let of = Fourier::new(FourierKind::HalfToReal, 6, 1.0);
        let said = |of: Fourier, inputs: &[(Shape, DType)], what: &str| {
            let error = of.results(inputs).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        let spectrum = |bins| (Shape::from([bins, 2]), DType::F32);
        assert!(of.results(&[spectrum(4)]).is_ok());
        said(of, &[spectrum(3)], "irfft: inputs [3, 2] f32: a transform of 6 numbers takes [..., 4, 2]");
        said(of, &[spectrum(4), spectrum(4)], "one is needed");
        said(of, &[(Shape::from([4, 2]), DType::I64)], "floating-point");
        said(Fourier { length: 0, ..of }, &[spectrum(1)], "a transform of 0 numbers");
    }

    #[test]
    fn frequencies_with_a_mirror() {
        let with = |n: usize| (0..=n / 2).filter(|&k| has_mirror(k, n)).collect::<Vec<_>>();
        assert_eq!(with(1), [0usize; 0]);
        assert_eq!(with(2), [0usize; 0]);
        assert_eq!(with(7), [1, 2, 3]);
        assert_eq!(with(8), [1, 2, 3]);
    }
}
