//! Resampling by a windowed sinc, with torchaudio's parameters and kernel.

use std::f64::consts::PI;

use tensor_core::{DType, Error, Result, Tensor, caller_line};

/// The greatest number of elements of a kernel. Rates that share no factor, such as 44101 and 16000, need
/// a row of the kernel for each of their phases.
const KERNEL_MAX_ELEMENTS: usize = 1 << 26;

/// The parameters of [`resample`], with torchaudio's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resample {
    /// The zero crossings of the sinc on each side; more of them make the filter sharper.
    pub lowpass_filter_width: usize,
    /// The cutoff frequency as a share of half the lower rate.
    pub rolloff: f64,
    /// The window that multiplies the sinc.
    pub window: ResampleWindow,
}

impl Default for Resample {
    fn default() -> Resample {
        Resample { lowpass_filter_width: 6, rolloff: 0.99, window: ResampleWindow::Hann }
    }
}

/// The window of [`resample`]'s filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ResampleWindow {
    /// cos²(πt / 2w) for a width w. torchaudio's `sinc_interp_hann`.
    #[default]
    Hann,
    /// I₀(β·√(1 − (t / w)²)) / I₀(β); torchaudio's `sinc_interp_kaiser`, where β is 14.769656459379492.
    Kaiser {
        /// The shape of the window: a greater β suppresses more beyond the cutoff.
        beta: f64,
    },
}

/// Samples `[…, n]` at the rate `from` as `[…, ⌈n·to / from⌉]` at the rate `to`, in the same dtype.
/// `torchaudio.functional.resample`.
///
/// Each new sample is Σ x(k)·h(t − k) over the old samples near its time t, where h is a sinc with the
/// cutoff `rolloff`·min(from, to) / 2 times a window of `lowpass_filter_width` zero crossings.
///
/// # Errors
/// A rate of 0, a width of 0, a `rolloff` outside (0, 1], a tensor without axes or of integers, rates whose
/// kernel would have more than 2²⁶ elements.
#[track_caller]
pub fn resample(samples: &Tensor, from: u32, to: u32, options: &Resample) -> Result<Tensor> {
    let _line = caller_line();
    let invalid = |message: String| Error::invalid("resample", message);
    let rank = samples.rank();
    if from == 0 || to == 0 || rank == 0 || !samples.dtype().is_float() {
        return Err(invalid(format!(
            "{} {} from {from} to {to} Hz: give floats […, samples] and rates above 0",
            samples.dtype(),
            samples.shape()
        )));
    }
    let in_range = options.rolloff > 0.0 && options.rolloff <= 1.0;
    if options.lowpass_filter_width == 0 || !in_range {
        return Err(invalid(format!("{options:?}: give a width above 0 and a rolloff from 0 to 1")));
    }
    if from == to || samples.numel() == 0 {
        return Ok(samples.clone());
    }
    let common = gcd(from, to);
    let (old, new) = ((from / common) as usize, (to / common) as usize);
    let cutoff = old.min(new) as f64 * options.rolloff;
    let width = (options.lowpass_filter_width as f64 * old as f64 / cutoff).ceil() as usize;
    let size = 2 * width + old;
    if size.checked_mul(new).is_none_or(|elements| elements > KERNEL_MAX_ELEMENTS) {
        return Err(invalid(format!(
            "{from} to {to} Hz needs a kernel [{new}, {size}]: choose rates with a greater common divisor"
        )));
    }
    let (kernel, device) = (kernel(old, new, cutoff, width, options), samples.device());
    let kernel = if samples.dtype() == DType::F64 {
        Tensor::from_vec(kernel, (new, size), &device)?
    } else {
        let kernel: Vec<f32> = kernel.into_iter().map(|x| x as f32).collect();
        Tensor::from_vec(kernel, (new, size), &device)?.to_dtype(samples.dtype())?
    };
    let count = samples.dims()[rank - 1];
    let mut padding = vec![(0, 0); rank];
    padding[rank - 1] = (width, width + old);
    // [… windows, size] times [size, new]
    let windows = samples.pad(&padding, 0.0)?.unfold(-1, size, old)?;
    let found = windows.matmul(&kernel.t()?)?.flatten(-2, -1)?;
    found.narrow(-1, 0, (count * new).div_ceil(old))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The filter of each of the `new` phases over `2·width + old` old samples, `[new, size]`.
fn kernel(old: usize, new: usize, cutoff: f64, width: usize, options: &Resample) -> Vec<f64> {
    let zeros = options.lowpass_filter_width as f64;
    let size = 2 * width + old;
    let mut kernel = Vec::with_capacity(new * size);
    for phase in 0..new {
        for k in 0..size {
            let time = (k as f64 - width as f64) / old as f64 - phase as f64 / new as f64;
            let t = (time * cutoff).clamp(-zeros, zeros);
            let window = match options.window {
                ResampleWindow::Hann => (t * PI / zeros / 2.0).cos().powi(2),
                ResampleWindow::Kaiser { beta } => {
                    bessel_i0(beta * (1.0 - (t / zeros).powi(2)).sqrt()) / bessel_i0(beta)
                }
            };
            let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
            kernel.push(sinc * window * cutoff / old as f64);
        }
    }
    kernel
}

/// I₀(x), the modified Bessel function of order 0, by its power series.
fn bessel_i0(x: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        term *= (x / 2.0 / k).powi(2);
        sum += term;
        k += 1.0;
    }
    sum
}
