//! Whisper's front end: the logarithm of a mel spectrogram of sound at 16 kHz.

use tensor_core::{
    Error, Result, Tensor,
    fft::{StftOptions, stft},
};

/// The sampling rate in Hz.
const RATE: f64 = 16000.0;
/// The samples of a window, 25 ms.
const WINDOW: usize = 400;
/// The samples between windows, 10 ms.
const HOP: usize = 160;
/// The frequencies of a spectrum.
const FREQUENCIES: usize = WINDOW / 2 + 1;

/// The samples of the 30 seconds that Whisper's encoder takes.
pub const WHISPER_SAMPLES: usize = 480_000;

/// Sound `[…, samples]` with zeros added, or samples removed, at the end, so that there are `length`.
/// Whisper's `pad_or_trim`.
///
/// # Errors
/// A tensor without axes.
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

/// The spectrogram `[N, bins, samples / 160]` that Whisper takes of sound `[N, samples]` at 16 kHz with
/// values between −1 and 1: power spectra of windows of 25 ms every 10 ms, weighted by `bins` triangles on
/// the mel scale (80, or 128 for `large_v3`), their decimal logarithm, limited to 8 below the largest of
/// each sound, plus 4 and divided by 4.
///
/// # Errors
/// Sound of another shape or too short for a window, or no bins.
pub fn log_mel_spectrogram(sound: &Tensor, bins: usize) -> Result<Tensor> {
    const OP: &str = "log_mel_spectrogram";
    if sound.rank() != 2 || bins == 0 {
        let message = format!("sound {} and {bins} bins: give [N, samples] and at least one", sound.shape());
        return Err(Error::invalid(OP, message));
    }
    let device = sound.device();
    let window = Tensor::hann_window(WINDOW, true, &device)?;
    let options = StftOptions { hop_length: Some(HOP), window: Some(&window), ..Default::default() };
    let spectrum = stft(sound, WINDOW, &options)?;
    // The last window begins past the end of the sound.
    let power = spectrum.square().sum_axis(-1, false)?;
    let power = power.narrow(-1, 0, power.dims()[2] - 1)?;
    let filters = Tensor::from_vec(mel_filters(bins), [bins, FREQUENCIES], &device)?;
    let log = filters.matmul(&power)?.clamp(1e-10, f64::INFINITY).log10();
    let floor = log.amax([1, 2], true)?.add_scalar(-8.0);
    Ok(log.maximum(&floor)?.add_scalar(4.0).div_scalar(4.0))
}

/// The weights `[bins, frequencies]` of triangles on Slaney's mel scale (linear below 1 kHz, logarithmic
/// above), each with the area of its width in Hz. `librosa.filters.mel`.
fn mel_filters(bins: usize) -> Vec<f32> {
    // 1 kHz is 15 mels, and a mel above it is a factor of 6.4^(1/27).
    const LINEAR: f64 = 200.0 / 3.0;
    let step = 6.4f64.ln() / 27.0;
    let mel = |hertz: f64| if hertz < 1000.0 { hertz / LINEAR } else { 15.0 + (hertz / 1000.0).ln() / step };
    let hertz = |mel: f64| if mel < 15.0 { mel * LINEAR } else { 1000.0 * ((mel - 15.0) * step).exp() };
    let top = mel(RATE / 2.0);
    let corners: Vec<f64> = (0..bins + 2).map(|i| hertz(top * i as f64 / (bins + 1) as f64)).collect();
    let weight = |bin: usize, index: usize| {
        let frequency = index as f64 * RATE / WINDOW as f64;
        let [low, middle, high] = [corners[bin], corners[bin + 1], corners[bin + 2]];
        let rising = (frequency - low) / (middle - low);
        let falling = (high - frequency) / (high - middle);
        (rising.min(falling).max(0.0) * 2.0 / (high - low)) as f32
    };
    (0..bins)
        .flat_map(|bin| (0..FREQUENCIES).map(move |index| (bin, index)))
        .map(|(b, i)| weight(b, i))
        .collect()
}
