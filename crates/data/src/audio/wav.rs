//! WAV files: integers of 8 to 32 bits or floats, read and written as f32. `wav_format` parses the header.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use tensor_core::{
    DType, Device, Error, Result, Tensor, caller_line,
    file::{Content, file_error, write_whole},
};

use super::wav_format::{Encoding, WavInfo, header, parse};

/// The encoding of the samples in a WAV file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WavFormat {
    /// 16-bit integers: a sample x is round(32768·x), within −32768 to 32767.
    Pcm16,
    /// 32-bit floats, unchanged.
    #[default]
    Float32,
}

/// The bytes of samples that are decoded at once; a multiple of every size of a sample.
const PIECE_BYTES: usize = 3 << 16;

/// Reads a WAV file: f32 `[channels, samples]` on `device`, and the sampling rate in Hz. Integers of b bits
/// are divided by 2^(b−1), so that they are in [−1, 1); those of fewer bits than their container has are its
/// upper bits. `torchaudio.load`.
///
/// Chunks other than the format and the samples are skipped. A size of the samples of 0xFFFFFFFF, which
/// programs write that do not know it yet, stands for all that follows.
///
/// # Errors
/// `File` for a file that cannot be read, is no WAV file, is cut off, or has another encoding than integers
/// of up to 32 bits and floats of 32 and 64 bits.
#[track_caller]
pub fn read_wav(path: impl AsRef<Path>, device: &Device) -> Result<(Tensor, u32)> {
    let _line = caller_line();
    read(&Content::open(path.as_ref())?, device)
}

/// [`read_wav`] for the bytes of a file in memory, such as a download.
///
/// # Errors
/// As [`read_wav`].
#[track_caller]
pub fn read_wav_bytes(bytes: Vec<u8>, device: &Device) -> Result<(Tensor, u32)> {
    let _line = caller_line();
    read(&Content::Memory { path: PathBuf::from("<bytes>"), bytes }, device)
}

#[track_caller]
fn read(content: &Content, device: &Device) -> Result<(Tensor, u32)> {
    let path = content.path();
    let info = match parse(content)? {
        Ok(info) => info,
        Err(message) => {
            return Err(file_error(path, format!("is no WAV file that can be read: {message}")));
        }
    };
    let WavInfo { channels, rate, encoding, start, bytes } = info;
    let size = encoding.bytes();
    let count = usize::try_from(bytes).ok().map(|bytes| bytes / size);
    let mut samples: Vec<f32> = Vec::new();
    if count.is_none_or(|count| samples.try_reserve_exact(count).is_err()) {
        return Err(file_error(path, format!("has {bytes} bytes of samples, for which no memory is free")));
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = (bytes - at).min(PIECE_BYTES as u64) as usize;
        content.read_at(&mut piece[..part], start + at)?;
        encoding.decode(&piece[..part], &mut samples);
        at += part as u64;
    }
    content.check_unchanged()?;
    let frames = samples.len() / channels;
    let interleaved = Tensor::from_vec(samples, (frames, channels), device)?;
    Ok((interleaved.t()?, rate))
}

/// Writes samples `[channels, samples]` as a WAV file, completely or not at all. `torchaudio.save`.
///
/// # Errors
/// A tensor of another rank, no channel or more than 65535, a rate of 0, or more samples than the format
/// counts (4 GiB); `File` for a file that cannot be written; errors of the device.
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
    let encoding = match format {
        WavFormat::Pcm16 => Encoding::Integer { bytes: 2 },
        WavFormat::Float32 => Encoding::Float { bytes: 4 },
    };
    let Some(header) = header(channels, rate, encoding, samples.numel()) else {
        let message =
            format!("samples {} at {rate} Hz are more than a WAV file of 4 GiB counts", samples.shape());
        return Err(Error::invalid("write_wav", message));
    };
    let interleaved = samples.t()?.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let failed = |error: io::Error| file_error(path, format!("cannot be written: {error}"));
    let write = |file: &mut File| -> io::Result<()> {
        let mut file = BufWriter::new(file);
        file.write_all(&header)?;
        for x in interleaved {
            match format {
                // The cast clamps.
                WavFormat::Pcm16 => file.write_all(&((x * 32768.0).round() as i16).to_le_bytes())?,
                WavFormat::Float32 => file.write_all(&x.to_le_bytes())?,
            }
        }
        file.flush()
    };
    Error::here_in(write_whole(path, failed, |file| write(file).map_err(failed)))
}
