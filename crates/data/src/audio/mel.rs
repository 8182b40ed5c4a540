//! Mel filterbanks, mel spectrograms as torchaudio computes them, and Whisper's logarithm of one.

use std::cmp::Ordering;

use tensor_core::{
    Device, Error, Result, Tensor, caller_line,
    fft::{self, StftOptions},
};

/// The sampling rate of [`log_mel_spectrogram`], in Hz.
pub const WHISPER_RATE: u32 = 16_000;
/// The samples between two frames of [`log_mel_spectrogram`].
pub const WHISPER_HOP: usize = 160;
/// The samples of the 30 seconds that Whisper's models take.
pub const WHISPER_SAMPLES: usize = 480_000;
/// The samples in a frame of [`log_mel_spectrogram`].
const WHISPER_FFT: usize = 400;

/// A formula from hertz to mel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MelScale {
    /// 2595·log₁₀(1 + f / 700).
    #[default]
    Htk,
    /// Linear below 1000 Hz, 3f / 200; logarithmic above, 15 + 27·ln(f / 1000) / ln 6.4. The default of
    /// librosa.
    Slaney,
}

impl MelScale {
    fn to_mel(self, hertz: f64) -> f64 {
        match self {
            MelScale::Htk => 2595.0 * (1.0 + hertz / 700.0).log10(),
            MelScale::Slaney if hertz >= 1000.0 => 15.0 + 27.0 * (hertz / 1000.0).ln() / 6.4f64.ln(),
            MelScale::Slaney => hertz * 3.0 / 200.0,
        }
    }

    fn to_hertz(self, mel: f64) -> f64 {
        match self {
            MelScale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            MelScale::Slaney if mel >= 15.0 => 1000.0 * (6.4f64.ln() / 27.0 * (mel - 15.0)).exp(),
            MelScale::Slaney => mel * 200.0 / 3.0,
        }
    }
}

/// The scale of the triangles of a mel filterbank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MelNorm {
    /// Each triangle has the height 1.
    #[default]
    Height,
    /// Each triangle has the area 1 in hertz. `norm="slaney"`.
    Slaney,
}

/// The parameters of [`mel_filterbank`] and [`mel_spectrogram`], with torchaudio's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MelOptions {
    /// The samples of a frame.
    pub n_fft: usize,
    /// The samples of the Hann window; by default `n_fft`.
    pub win_length: Option<usize>,
    /// The samples between frames; by default half the window.
    pub hop_length: Option<usize>,
    /// The lowest frequency, in Hz.
    pub f_min: f64,
    /// The highest frequency, in Hz; by default half the sampling rate.
    pub f_max: Option<f64>,
    /// The number of triangles.
    pub n_mels: usize,
    /// The exponent of the magnitudes: 2 for energies.
    pub power: f64,
    /// The mel scale.
    pub scale: MelScale,
    /// The scale of the triangles.
    pub norm: MelNorm,
}

impl Default for MelOptions {
    fn default() -> MelOptions {
        MelOptions {
            n_fft: 400,
            win_length: None,
            hop_length: None,
            f_min: 0.0,
            f_max: None,
            n_mels: 128,
            power: 2.0,
            scale: MelScale::Htk,
            norm: MelNorm::Height,
        }
    }
}

/// A bank of triangular filters, f32 `[n_fft / 2 + 1, n_mels]`: filter m rises from the frequency of point
/// m to that of point m + 1 and falls to that of point m + 2, where the `n_mels + 2` points are evenly
/// spaced in mel from `f_min` to `f_max`. `torchaudio.functional.melscale_fbanks`; transposed,
/// `librosa.filters.mel`.
///
/// # Errors
/// No frame, no filter, a rate of 0, or frequencies that are not 0 ≤ `f_min` < `f_max`.
#[track_caller]
pub fn mel_filterbank(rate: u32, options: &MelOptions, device: &Device) -> Result<Tensor> {
    let _line = caller_line();
    let MelOptions { n_fft, f_min, f_max, n_mels, scale, norm, .. } = *options;
    let f_max = f_max.unwrap_or(f64::from(rate) / 2.0);
    if n_fft == 0
        || n_mels == 0
        || rate == 0
        || f_min < 0.0
        || f_min.partial_cmp(&f_max) != Some(Ordering::Less)
    {
        let message = format!(
            "{n_mels} filters of frames of {n_fft} at {rate} Hz, from {f_min} to {f_max} Hz: give frames, filters and \
             rates above 0, and frequencies that ascend from 0 on"
        );
        return Err(Error::invalid("mel_filterbank", message));
    }
    let (low, high) = (scale.to_mel(f_min), scale.to_mel(f_max));
    let step = (high - low) / (n_mels + 1) as f64;
    let points: Vec<f64> = (0..n_mels + 2).map(|k| scale.to_hertz(low + step * k as f64)).collect();
    let frequencies = n_fft / 2 + 1;
    // torchaudio's frequencies end at half the rate, rounded down.
    let spacing = f64::from(rate / 2) / (frequencies.max(2) - 1) as f64;
    let mut bank = Vec::with_capacity(frequencies * n_mels);
    for k in 0..frequencies {
        let frequency = spacing * k as f64;
        for point in points.windows(3) {
            let rise = (frequency - point[0]) / (point[1] - point[0]);
            let fall = (point[2] - frequency) / (point[2] - point[1]);
            let area = match norm {
                MelNorm::Height => 1.0,
                MelNorm::Slaney => (point[2] - point[0]) / 2.0,
            };
            bank.push((rise.min(fall).max(0.0) / area) as f32);
        }
    }
    Tensor::from_vec(bank, (frequencies, n_mels), device)
}

/// A mel spectrogram of sound `[…, samples]` at `rate` Hz: `[…, n_mels, frames]`, with a frame centered on
/// every `hop_length`-th sample. `torchaudio.transforms.MelSpectrogram`.
///
/// Frames are cut by [`fft::stft`] with a periodic Hann window, and mirrored at the ends; their magnitudes,
/// raised to `power`, are weighted by [`mel_filterbank`].
///
/// # Errors
/// As [`mel_filterbank`] and [`fft::stft`]: for example a sound that is shorter than half a frame.
#[track_caller]
pub fn mel_spectrogram(samples: &Tensor, rate: u32, options: &MelOptions) -> Result<Tensor> {
    let _line = caller_line();
    let window_length = options.win_length.unwrap_or(options.n_fft);
    let hop = options.hop_length.unwrap_or(window_length / 2);
    let energies = energies(samples, options.n_fft, window_length, hop)?;
    let spectra = if options.power == 2.0 { energies } else { energies.powf(options.power / 2.0) };
    // [n_mels, frequencies] times [… frequencies, frames]
    let bank = mel_filterbank(rate, options, &samples.device())?.t()?;
    bank.to_dtype(spectra.dtype())?.matmul(&spectra)
}

/// |X|² of each frame, `[…, n_fft / 2 + 1, frames]`.
fn energies(samples: &Tensor, n_fft: usize, window_length: usize, hop: usize) -> Result<Tensor> {
    let window = Tensor::hann_window(window_length, true, (samples.dtype(), &samples.device()))?;
    let options = StftOptions {
        hop_length: Some(hop),
        win_length: Some(window_length),
        window: Some(&window),
        ..Default::default()
    };
    fft::stft(samples, n_fft, &options)?.square().sum_axis(-1, false)
}

/// Sound `[…, samples]` with zeros added, or samples removed, at the end, so that there are `length`.
/// Whisper's `pad_or_trim`.
///
/// # Errors
/// A tensor without axes.
#[track_caller]
pub fn pad_or_trim(sound: &Tensor, length: usize) -> Result<Tensor> {
    let Some(&samples) = sound.dims().last() else {
        return Err(Error::invalid("pad_or_trim", "sound has an axis of samples; this is a scalar"));
    };
    if samples >= length {
        return sound.narrow(-1, 0, length);
    }
    let mut padding = vec![(0, 0); sound.rank()];
    padding[sound.rank() - 1] = (0, length - samples);
    sound.pad(&padding, 0.0)
}

/// Whisper's input for sound `[…, samples]` at 16 kHz ([`WHISPER_RATE`]): `[…, n_mels, samples / 160]`.
///
/// A [`mel_spectrogram`] with frames of 400 samples, one every 160 ([`WHISPER_HOP`]), Slaney's scale and
/// areas, without its last frame, is clamped to at least 10⁻¹⁰; its log₁₀ is clamped to at most 8 below its
/// greatest element, and mapped by (x + 4) / 4. `whisper.audio.log_mel_spectrogram`. Models take 30 seconds:
/// [`pad_or_trim`] the sound to [`WHISPER_SAMPLES`] first. `n_mels` is 80, or 128 for the models named
/// large-v3.
///
/// # Errors
/// As [`mel_spectrogram`]; a sound of less than 201 samples.
#[track_caller]
pub fn log_mel_spectrogram(samples: &Tensor, n_mels: usize) -> Result<Tensor> {
    let options = MelOptions {
        n_fft: WHISPER_FFT,
        hop_length: Some(WHISPER_HOP),
        n_mels,
        scale: MelScale::Slaney,
        norm: MelNorm::Slaney,
        ..Default::default()
    };
    let mels = mel_spectrogram(samples, WHISPER_RATE, &options)?;
    let frames = mels.dims()[mels.rank() - 1];
    let logarithm = mels.narrow(-1, 0, frames - 1)?.clamp(1e-10, f64::INFINITY).log10();
    let least = logarithm.amax([-2, -1], true)?.sub_scalar(8.0);
    Ok(logarithm.maximum(&least)?.add_scalar(4.0).div_scalar(4.0))
}
