//! WAV files: integers of 8 to 32 bits or floats, read and written as f32.

use std::{fs::File, io::BufReader, path::Path};

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use tensor_core::{DType, Device, Error, Result, Tensor, caller_line, file::file_error};

/// The encoding of the samples in a WAV file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WavFormat {
    /// 16-bit integers: a sample x is round(32768·x), within −32768 to 32767.
    Pcm16,
    /// 32-bit floats, unchanged.
    #[default]
    Float32,
}

/// Reads a WAV file: f32 `[channels, samples]` on `device`, and the sampling rate in Hz. Integers of b bits
/// are divided by 2^(b−1), so that they are in [−1, 1). `torchaudio.load`.
///
/// # Errors
/// `File` for a file that cannot be read, is no WAV file, is cut off, or has another encoding than integers
/// of 8 to 32 bits and 32-bit floats.
#[track_caller]
pub fn read_wav(path: impl AsRef<Path>, device: &Device) -> Result<(Tensor, u32)> {
    let _line = caller_line();
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| file_error(path, format!("cannot be opened: {error}")))?;
    let failed = |error: hound::Error| file_error(path, format!("is no WAV file that can be read: {error}"));
    let reader = WavReader::new(BufReader::new(file)).map_err(failed)?;
    let WavSpec { channels, sample_rate, bits_per_sample, sample_format } = reader.spec();
    if channels == 0 || sample_rate == 0 {
        return Err(file_error(path, format!("has {channels} channels at {sample_rate} Hz")));
    }
    // The list grows with the samples that are there, since the header may announce any number.
    let mut samples: Vec<f32> = Vec::new();
    match sample_format {
        SampleFormat::Float => {
            for sample in reader.into_samples::<f32>() {
                samples.push(sample.map_err(failed)?);
            }
        }
        SampleFormat::Int => {
            let scale = 0.5f64.powi(i32::from(bits_per_sample) - 1);
            for sample in reader.into_samples::<i32>() {
                samples.push((f64::from(sample.map_err(failed)?) * scale) as f32);
            }
        }
    }
    let channels = usize::from(channels);
    let frames = samples.len() / channels;
    samples.truncate(frames * channels);
    let interleaved = Tensor::from_vec(samples, (frames, channels), device)?;
    Ok((interleaved.t()?, sample_rate))
}

/// Writes samples `[channels, samples]` as a WAV file. `torchaudio.save`.
///
/// # Errors
/// A tensor of another rank, no channel or more than 65535, a rate of 0; `File` for a file that cannot be
/// written; errors of the device.
#[track_caller]
pub fn write_wav(path: impl AsRef<Path>, samples: &Tensor, rate: u32, format: WavFormat) -> Result<()> {
    let _line = caller_line();
    let path = path.as_ref();
    let channels = match samples.dims() {
        &[channels, _] => u16::try_from(channels).ok().filter(|&channels| channels > 0 && rate > 0),
        _ => None,
    };
    let Some(channels) = channels else {
        let message = format!("samples {} at {rate} Hz: give [channels, samples]", samples.shape());
        return Err(Error::invalid("write_wav", message));
    };
    let interleaved = samples.t()?.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let (bits_per_sample, sample_format) = match format {
        WavFormat::Pcm16 => (16, SampleFormat::Int),
        WavFormat::Float32 => (32, SampleFormat::Float),
    };
    let spec = WavSpec { channels, sample_rate: rate, bits_per_sample, sample_format };
    let write = || -> hound::Result<()> {
        let mut writer = WavWriter::create(path, spec)?;
        for x in interleaved {
            match format {
                // The cast clamps.
                WavFormat::Pcm16 => writer.write_sample((x * 32768.0).round() as i16)?,
                WavFormat::Float32 => writer.write_sample(x)?,
            }
        }
        writer.finalize()
    };
    write().map_err(|error| file_error(path, format!("cannot be written: {error}")))
}
