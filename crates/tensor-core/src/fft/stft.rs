//! Short-time Fourier transforms: the spectra of a signal's overlapping frames, and back.

use super::{Norm, complex_rank, composed::whole_spectrum, half, real_rank, sized, whole, wide};
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        origin::at_caller,
        shape::Shape,
    },
    graph::handle::Tensor,
};

/// The padding at both ends of a signal, by which its first frame is centered on its first number.
/// PyTorch's `pad_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StftPadding {
    /// The numbers next to the end, mirrored, without the end itself.
    #[default]
    Reflect,
    /// Zeros.
    Zeros,
    /// The number at the end, repeated.
    Replicate,
    /// The numbers from the other end, as if the signal were periodic.
    Circular,
}

/// The options of [`stft`] and [`istft`], with PyTorch's defaults.
#[derive(Clone, Debug)]
pub struct StftOptions<'a> {
    /// The distance between frames; by default a quarter of `n_fft`.
    pub hop_length: Option<usize>,
    /// The length of the window, which is centered in a frame; by default `n_fft`.
    pub win_length: Option<usize>,
    /// The window that multiplies each frame, `[win_length]`; by default ones.
    pub window: Option<&'a Tensor>,
    /// Whether frame t is centered on number t·hop, with padding by half a frame at both ends. If not,
    /// it begins there.
    pub center: bool,
    /// The padding of a centered signal.
    pub padding: StftPadding,
    /// Whether spectra are scaled by 1/√n_fft, which makes the transforms orthonormal.
    pub normalized: bool,
    /// Whether the redundant half of each spectrum is left out.
    pub onesided: bool,
}

impl Default for StftOptions<'_> {
    fn default() -> Self {
        StftOptions {
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            padding: StftPadding::Reflect,
            normalized: false,
            onesided: true,
        }
    }
}

impl StftOptions<'_> {
    fn norm(&self) -> Norm {
        if self.normalized { Norm::Ortho } else { Norm::Backward }
    }

    /// The hop, and the window padded to a whole frame, in the dtype of `like`.
    fn cut(&self, op: &'static str, n_fft: usize, like: &Tensor) -> Result<(usize, Tensor)> {
        let hop = self.hop_length.unwrap_or(n_fft / 4);
        let length = self.win_length.unwrap_or(n_fft);
        if n_fft == 0 || hop == 0 || length == 0 || length > n_fft {
            let message = format!(
                "frames of {n_fft}, one every {hop}, with a window of {length}: give frames and hops above 0 and a window from 1 to {n_fft}"
            );
            return Err(Error::invalid(op, message));
        }
        let window = match self.window {
            None => Tensor::ones([length], (like.dtype(), &like.device()))?,
            Some(window) if window.dims() != [length] => {
                let message =
                    format!("a window {}: give [{length}], or its length as win_length", window.shape());
                return Err(Error::invalid(op, message));
            }
            Some(window) => window.to_dtype(like.dtype())?,
        };
        let before = (n_fft - length) / 2;
        Ok((hop, window.pad(&[(before, n_fft - length - before)], 0.0)?))
    }
}

/// `[…, L]` padded by `count` numbers at both ends of the last axis.
fn padded(op: &'static str, x: &Tensor, count: usize, how: StftPadding) -> Result<Tensor> {
    let n = x.dims()[x.rank() - 1];
    match how {
        StftPadding::Zeros => {
            let mut padding = vec![(0, 0); x.rank()];
            padding[x.rank() - 1] = (count, count);
            x.pad(&padding, 0.0)
        }
        StftPadding::Replicate if n > 0 => {
            let mut shape = x.dims().to_vec();
            shape[x.rank() - 1] = count;
            let (left, right) = (x.narrow(-1, 0, 1)?, x.narrow(-1, n - 1, 1)?);
            Tensor::concat(&[&left.expand(shape.as_slice())?, x, &right.expand(shape.as_slice())?], -1)
        }
        StftPadding::Circular if count <= n => {
            Tensor::concat(&[&x.narrow(-1, n - count, count)?, x, &x.narrow(-1, 0, count)?], -1)
        }
        StftPadding::Replicate | StftPadding::Circular => {
            let message = format!("a signal of {n} numbers has none to pad it by {count}: pad with zeros");
            Err(Error::invalid(op, message))
        }
        StftPadding::Reflect if count == 0 => Ok(x.clone()),
        StftPadding::Reflect if count >= n => {
            let message = format!(
                "a signal of {n} numbers has none {count} from its ends to mirror: pad with zeros (StftPadding::Zeros), or take shorter frames"
            );
            Err(Error::invalid(op, message))
        }
        StftPadding::Reflect => {
            let (left, right) =
                (x.narrow(-1, 1, count)?.flip(-1)?, x.narrow(-1, n - 1 - count, count)?.flip(-1)?);
            Tensor::concat(&[&left, x, &right], -1)
        }
    }
}

/// The spectra of frames of `n_fft` numbers of a real signal, each multiplied by a window: `[…, L]`
/// gives `[…, n_fft/2 + 1, frames, 2]`, complex numbers as pairs (`n_fft` frequencies if not
/// `onesided`). `torch.stft`.
///
/// A centered signal has 1 + L/hop frames, any other 1 + (L − n_fft)/hop.
///
/// # Errors
/// A tensor without axes; a frame, a hop or a window of no numbers; a window that is longer than a frame
/// or has the wrong shape; a signal shorter than a frame, or too short to be mirrored.
///
/// ```
/// use tensor_core::fft::{self, StftOptions};
/// # fn f(signal: &tensor_core::Tensor) -> tensor_core::Result<()> {
/// let window = tensor_core::Tensor::hann_window(400, true, &signal.device())?;
/// let options = StftOptions { hop_length: Some(160), window: Some(&window), ..Default::default() };
/// let spectrum = fft::stft(signal, 400, &options)?; // of [8, 16000]: [8, 201, 101, 2]
/// let back = fft::istft(&spectrum, 400, Some(16000), &options)?; // the signal again
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn stft(x: &Tensor, n_fft: usize, options: &StftOptions<'_>) -> Result<Tensor> {
    at_caller(|| forward(x, n_fft, options))
}

fn forward(x: &Tensor, n_fft: usize, options: &StftOptions<'_>) -> Result<Tensor> {
    const OP: &str = "stft";
    real_rank(OP, x)?;
    wide(x, |x| {
        let (hop, window) = options.cut(OP, n_fft, x)?;
        let x = if options.center { padded(OP, x, n_fft / 2, options.padding)? } else { x.clone() };
        let length = x.dims()[x.rank() - 1];
        if length < n_fft {
            let message = format!(
                "a frame of {n_fft} numbers of a signal of {length}: take shorter frames, or pad the signal"
            );
            return Err(Error::invalid(OP, message));
        }
        let frames = x.unfold(-1, n_fft, hop)?.mul(&window)?;
        let spectra = if options.onesided {
            half(OP, &frames, None, Axis(-1), options.norm())?
        } else {
            whole_spectrum(&half(OP, &frames, None, Axis(-1), options.norm())?, n_fft)?
        };
        spectra.transpose(-3, -2)
    })
}

/// The inverse of [`stft`] with the same options: overlap-add of the frames, each multiplied by the
/// window again, divided by the sum of the squared windows. `[…, n_fft/2 + 1, frames, 2]` gives `[…,
/// L]`. `torch.istft`.
///
/// `length` cuts or zero-pads the signal. By default it ends with the last frame, or in that frame's
/// middle if centered. A number that no window covers is NaN, while PyTorch reads all sums back and
/// reports an error: a window with zeros at its ends needs `center`, or a `length` that ends before
/// them.
///
/// # Errors
/// Input that is not complex, no frames, a number of frequencies other than that of a frame of `n_fft`;
/// a window or hop as for [`stft`], or a hop longer than the window, which leaves gaps.
#[track_caller]
pub fn istft(x: &Tensor, n_fft: usize, length: Option<usize>, options: &StftOptions<'_>) -> Result<Tensor> {
    at_caller(|| inverse(x, n_fft, length, options))
}

fn inverse(x: &Tensor, n_fft: usize, length: Option<usize>, options: &StftOptions<'_>) -> Result<Tensor> {
    const OP: &str = "istft";
    let rank = complex_rank(OP, x)?;
    let needed = if options.onesided { n_fft / 2 + 1 } else { n_fft };
    let count = match x.dims()[..rank] {
        [.., frequencies, frames] if frequencies == needed && frames > 0 => frames,
        _ => {
            let message = format!(
                "a spectrum {}: give [..., {needed}, frames, 2] for frames of {n_fft}, and at least one frame",
                x.shape()
            );
            return Err(Error::invalid(OP, message));
        }
    };
    wide(x, |x| {
        let (hop, window) = options.cut(OP, n_fft, x)?;
        if hop > options.win_length.unwrap_or(n_fft) {
            return Err(Error::invalid(
                OP,
                format!("a hop of {hop} is longer than the window: numbers between are lost"),
            ));
        }
        // A real signal is determined by the non-redundant half.
        let spectra = x.transpose(-3, -2)?.narrow(-2, 0, n_fft / 2 + 1)?;
        let frames = whole(OP, &spectra, Some(n_fft), Axis(-1), options.norm())?.mul(&window)?;
        let signal = overlapped(&frames, hop)?;
        let reached = overlapped(&window.powi(2).expand([count, n_fft])?, hop)?;
        let reached = reached.masked_fill(&reached.lt_scalar(1e-11), f64::NAN)?;
        let (all, edge) = (n_fft + hop * (count - 1), if options.center { n_fft / 2 } else { 0 });
        let wanted = length.unwrap_or(all.saturating_sub(2 * edge));
        let there = wanted.min(all - edge);
        let signal = signal.narrow(-1, edge, there)?.div(&reached.narrow(-1, edge, there)?)?;
        sized(&signal, signal.rank() - 1, wanted)
    })
}

/// Overlap-add of frames `[…, frames, n]`, each `hop` after the one before: `[…, n + hop·(frames − 1)]`.
fn overlapped(frames: &Tensor, hop: usize) -> Result<Tensor> {
    let rank = frames.rank();
    let (count, n) = (frames.dims()[rank - 2], frames.dims()[rank - 1]);
    let batch: Shape = frames.dims()[..rank - 2].iter().copied().collect();
    let of = |sizes: &[usize]| batch.dims().iter().chain(sizes).copied().collect::<Shape>();
    // A frame is k parts of length hop, and part j of frame t is added to part t + j of the signal. With
    // the parts as rows `[k, count]`, padding each row with k zeros and reshaping to rows that are one
    // shorter shifts row j to the right by j.
    let k = n.div_ceil(hop);
    let mut padding = vec![(0, 0); rank];
    padding[rank - 1].1 = k * hop - n;
    let parts = frames.pad(&padding, 0.0)?.reshape(of(&[count, k, hop]))?.transpose(-3, -2)?;
    let mut padding = vec![(0, 0); rank + 1];
    padding[rank - 1].1 = k;
    let width = count + k;
    let rows = parts.pad(&padding, 0.0)?.reshape(of(&[k * width, hop]))?;
    let skewed = rows.narrow(-2, 0, k * (width - 1))?.reshape(of(&[k, width - 1, hop]))?;
    skewed.sum_axis(-3, false)?.reshape(of(&[(width - 1) * hop]))?.narrow(-1, 0, n + hop * (count - 1))
}
