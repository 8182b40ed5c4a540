//! Signals: Fourier transforms, windows, mel filters.

use tensor_core::{DType, Result, Tensor, fft, fft::Norm};

use super::{Row, one};
use crate::{
    context::Context,
    value::{DataType, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "BlackmanWindow", 17, |c| window(c, [0.42, 0.5, 0.08])),
    ("", "DFT", 17, dft),
    ("", "HammingWindow", 17, |c| window(c, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    ("", "HannWindow", 17, |c| window(c, [0.5, 0.5, 0.0])),
    ("", "MelWeightMatrix", 17, mel),
    ("", "STFT", 17, stft),
];

/// The dtype that the node asks for.
fn output_dtype(c: &Context<'_>, name: &str) -> Result<DType> {
    let number = i32::try_from(c.int_or(name, 1)?).unwrap_or(0);
    DataType::from_onnx(number).and_then(DataType::dtype).ok_or_else(|| c.error(format!("{name} {number}")))
}

/// a − b·cos(2πk/n) + c·cos(4πk/n), with n − 1 for n if it is not periodic.
fn window(c: &Context<'_>, [a, b, d]: [f64; 3]) -> Result<Vec<Value>> {
    let n = c.integer(0)?.ok_or_else(|| c.error("the size is missing"))?;
    let n = usize::try_from(n).map_err(|_| c.error(format!("a window of {n} elements")))?;
    c.table_len(&[n])?;
    let period = if c.flag("periodic", true)? { n } else { n.saturating_sub(1) }.max(1) as f64;
    let number = |k: usize| {
        let angle = std::f64::consts::TAU * k as f64 / period;
        (a - b * angle.cos() + d * (2.0 * angle).cos()) as f32
    };
    let window = Tensor::from_vec((0..n).map(number).collect::<Vec<_>>(), [n], c.device())?;
    one(window.to_dtype(output_dtype(c, "output_datatype")?)?)
}

/// Real numbers `[…, 1]` as complex ones `[…, 2]`.
fn complex(c: &Context<'_>, x: &Tensor) -> Result<Tensor> {
    match x.dims().last() {
        Some(2) => Ok(x.clone()),
        Some(1) => Tensor::concat(&[x, &x.zeros_like()], -1),
        _ => Err(c.error(format!("a signal {}: its last axis is 1 or 2", x.shape()))),
    }
}

fn dft(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let length = c.integer(1)?.map(|n| usize::try_from(n).map_err(|_| c.error(format!("a length of {n}"))));
    let length = length.transpose()?;
    // The axis is an attribute before version 20, and an input from then on.
    let axis = match c.integer(2)? {
        Some(axis) => axis,
        None if c.version() >= 20 => -2,
        None => c.int_or("axis", 1)?,
    };
    let axis = c.axis(axis, x.rank())?;
    let (inverse, onesided) = (c.flag("inverse", false)?, c.flag("onesided", false)?);
    let real = x.dims().last() == Some(&1);
    one(match (inverse, onesided) {
        (false, true) if real => fft::rfft(&x.squeeze(-1)?, length, axis, Norm::Backward)?,
        (false, onesided) => {
            let y = fft::fft(&complex(c, &x)?, length, axis, Norm::Backward)?;
            let half = y.dims()[axis] / 2 + 1;
            if onesided { y.narrow(axis, 0, half)? } else { y }
        }
        (true, false) => fft::ifft(&complex(c, &x)?, length, axis, Norm::Backward)?,
        (true, true) => fft::irfft(&x, length, axis, Norm::Backward)?.unsqueeze(-1)?,
    })
}

fn stft(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut signal = c.tensor(0)?;
    // A real signal may have no last axis.
    if signal.rank() == 2 {
        signal = signal.unsqueeze(-1)?;
    }
    let step = c.integer(1)?.ok_or_else(|| c.error("the step is missing"))?;
    let window = c.optional_tensor(2)?;
    let length = match (c.integer(3)?, &window) {
        (Some(length), _) => usize::try_from(length).unwrap_or(0),
        (None, Some(window)) => window.numel(),
        (None, None) => return Err(c.error("neither a window nor a frame length is given")),
    };
    let step = usize::try_from(step)
        .ok()
        .filter(|&step| step > 0)
        .ok_or_else(|| c.error("the step is not above 0"))?;
    if signal.rank() != 3 || length == 0 || length > signal.dims()[1] {
        return Err(c.error(format!("frames of {length} of a signal {}", signal.shape())));
    }
    let real = signal.dims()[2] == 1;
    let onesided = c.flag("onesided", true)?;
    // [N, frames, parts, length]
    let mut frames = signal.windows(1, length, step, 1)?;
    if let Some(window) = window {
        frames = frames.mul(&window)?;
    }
    one(if real {
        let frames = frames.squeeze(2)?;
        if onesided {
            fft::rfft(&frames, None, -1, Norm::Backward)?
        } else {
            fft::fft(&complex(c, &frames.unsqueeze(-1)?)?, None, -2, Norm::Backward)?
        }
    } else {
        let y = fft::fft(&frames.permute([0, 1, 3, 2])?, None, -2, Norm::Backward)?;
        if onesided { y.narrow(2, 0, length / 2 + 1)? } else { y }
    })
}

/// Triangles over the frequencies of a spectrum, evenly spaced by the mel scale: `[frequencies, bins]`.
fn mel(c: &Context<'_>) -> Result<Vec<Value>> {
    let whole = |index: usize| -> Result<usize> {
        let number = c.integer(index)?.ok_or_else(|| c.error("an input is missing"))?;
        usize::try_from(number).map_err(|_| c.error(format!("input {index} is {number}")))
    };
    let (bins, length, rate) = (whole(0)?, whole(1)?, whole(2)?);
    let edge = |index: usize| c.float(index)?.ok_or_else(|| c.error("an edge is missing"));
    let (low, high) = (edge(3)?, edge(4)?);
    if rate == 0 || bins == 0 {
        return Err(c.error(format!("{bins} bins for {length} numbers at a rate of {rate}")));
    }
    let rows = length / 2 + 1;
    let size = c.table_len(&[rows, bins])?;
    let to_mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (to_mel(high) - to_mel(low)) / (bins + 2) as f64;
    let edges: Vec<f64> = (0..bins + 2)
        .map(|k| {
            let hertz = 700.0 * (10f64.powf((to_mel(low) + k as f64 * step) / 2595.0) - 1.0);
            ((length + 1) as f64 * hertz / rate as f64).floor()
        })
        .collect();
    let mut weights = vec![0f32; size];
    for bin in 0..bins {
        let [left, middle, right] = [edges[bin], edges[bin + 1], edges[bin + 2]];
        for row in 0..rows {
            let at = row as f64;
            let weight = if at == middle && left == middle {
                1.0
            } else if at >= left && at <= middle {
                (at - left) / (middle - left)
            } else if at > middle && at < right {
                (right - at) / (right - middle)
            } else {
                0.0
            };
            weights[row * bins + bin] = weight as f32;
        }
    }
    one(Tensor::from_vec(weights, [rows, bins], c.device())?.to_dtype(output_dtype(c, "output_datatype")?)?)
}
