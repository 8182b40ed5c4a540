//! Sound: WAV files as tensors `[channels, samples]`, resampling, and mel spectrograms.
//!
//! Names, formulas and defaults are torchaudio's; [`log_mel_spectrogram`] is Whisper's. All functions but
//! those of files work on the device of their input, with gradients.
//!
//! ```
//! use data::audio::{MelOptions, Resample, WavFormat, mel_spectrogram, read_wav, resample, write_wav};
//! use tensor_core::Tensor;
//!
//! # fn main() -> tensor_core::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("tone.wav");
//! let device = backend_cpu::cpu();
//! let t = Tensor::arange(0.0, 44_100.0, 1.0, &device)?.mul_scalar(1.0 / 44_100.0);
//! let tone = t.mul_scalar(440.0 * std::f64::consts::TAU).sin().unsqueeze(0)?; // [1, 44100]
//! write_wav(&path, &tone, 44_100, WavFormat::Pcm16)?;
//!
//! let (samples, rate) = read_wav(&path, &device)?;
//! let samples = resample(&samples, rate, 16_000, &Resample::default())?;
//! assert_eq!(samples.dims(), [1, 16_000]);
//! let spectrogram = mel_spectrogram(&samples, 16_000, &MelOptions::default())?;
//! assert_eq!(spectrogram.dims(), [1, 128, 81]); // [channels, mels, frames]
//! # Ok(()) }
//! ```

mod mel;
mod resample;
mod wav;
mod wav_format;

pub use mel::{
    MelNorm, MelOptions, MelScale, WHISPER_HOP, WHISPER_RATE, WHISPER_SAMPLES, log_mel_spectrogram,
    mel_filterbank, mel_spectrogram, pad_or_trim,
};
pub use resample::{Resample, ResampleWindow, resample};
pub use wav::{WavFormat, read_wav, read_wav_bytes, write_wav};
