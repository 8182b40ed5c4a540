//! The RIFF container of WAV files: its chunks, and the encodings of samples. The format: Microsoft's
//! "Multiple channel audio data and WAVE files", and EBU Tech 3306 for RF64.

use tensor_core::{Result, file::Content};

/// The contents of a WAV file, and their position.
#[derive(Debug)]
pub(super) struct WavInfo {
    pub(super) channels: usize,
    pub(super) rate: u32,
    pub(super) encoding: Encoding,
    /// The position of the samples, and their size in whole frames.
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// The encoding of a sample, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// An integer in a container of 1 to 4 bytes, with a sign unless it is one byte. Bits that are not valid
    /// are its lowest ones.
    Integer { bytes: usize },
    /// A float of 4 or 8 bytes.
    Float { bytes: usize },
}

impl Encoding {
    pub(super) fn bytes(self) -> usize {
        match self {
            Encoding::Integer { bytes } | Encoding::Float { bytes } => bytes,
        }
    }

    /// Appends the samples in some bytes, which are whole samples.
    pub(super) fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        match self {
            Encoding::Integer { bytes: 1 } => {
                out.extend(bytes.iter().map(|&byte| (f32::from(byte) - 128.0) / 128.0));
            }
            Encoding::Integer { bytes: size } => out.extend(bytes.chunks_exact(size).map(|sample| {
                // The sample in the upper bytes of 32 bits, whatever its size.
                let mut wide = [0; 4];
                wide[4 - size..].copy_from_slice(sample);
                (f64::from(i32::from_le_bytes(wide)) / 2f64.powi(31)) as f32
            })),
            Encoding::Float { bytes: 8 } => {
                let (samples, _) = bytes.as_chunks();
                out.extend(samples.iter().map(|&sample| f64::from_le_bytes(sample) as f32));
            }
            Encoding::Float { .. } => {
                let (samples, _) = bytes.as_chunks();
                out.extend(samples.iter().map(|&sample| f32::from_le_bytes(sample)));
            }
        }
    }
}

/// The tags of encodings.
const INTEGERS: u16 = 1;
const FLOATS: u16 = 3;
const EXTENSIBLE: u16 = 0xfffe;
/// The end of the identifiers of encodings in extensible formats, which begin with a tag.
const IDENTIFIER: [u8; 14] =
    [0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xaa, 0x00, 0x38, 0x9b, 0x71];
/// The size of a chunk of samples that was not known when it was written.
const UNKNOWN: u64 = u32::MAX as u64;
/// The bytes of a format chunk that are read.
const FORMAT_BYTES: usize = 40;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Finds the format and the samples. The inner error says why the file is refused.
#[track_caller]
pub(super) fn parse(content: &Content) -> Result<std::result::Result<WavInfo, String>> {
    let length = content.length();
    let mut start = [0; 12];
    if length < 12 {
        return Ok(Err("it ends within its first 12 bytes".into()));
    }
    content.read_at(&mut start, 0)?;
    let is_wide = &start[..4] == b"RF64" || &start[..4] == b"BW64";
    if !(is_wide || &start[..4] == b"RIFF") || &start[8..] != b"WAVE" {
        return Ok(Err("it does not begin with RIFF and WAVE".into()));
    }
    let (mut at, mut format, mut wide_size) = (12u64, None, None);
    while length - at >= 8 {
        let mut head = [0; 8];
        content.read_at(&mut head, at)?;
        at += 8;
        let (name, size, left) = (&head[..4], u64::from(u32_at(&head, 4)), length - at);
        match name {
            b"fmt " | b"ds64" => {
                let mut chunk = [0; FORMAT_BYTES];
                let chunk = &mut chunk[..size.min(left).min(FORMAT_BYTES as u64) as usize];
                content.read_at(chunk, at)?;
                if name == b"ds64" {
                    wide_size = Some(u64::from(u32_at(chunk, 8)) | u64::from(u32_at(chunk, 12)) << 32);
                } else {
                    format = match parse_format(chunk) {
                        Ok(format) => Some(format),
                        Err(message) => return Ok(Err(message)),
                    };
                }
            }
            b"data" => {
                let Some(format) = format else {
                    return Ok(Err("its samples come before its format".into()));
                };
                let size = if size == UNKNOWN { wide_size.filter(|_| is_wide).unwrap_or(left) } else { size };
                return Ok(samples(format, at, size, left));
            }
            _ => {}
        }
        // A chunk of an odd size is followed by a pad byte.
        at = at.saturating_add(size + size % 2);
        if at > length {
            return Ok(Err(format!("it is cut off within a chunk of {size} bytes")));
        }
    }
    Ok(Err("it has no samples: it is cut off, or empty".into()))
}

/// The channels, the rate and the encoding of a format chunk.
fn parse_format(chunk: &[u8]) -> std::result::Result<(usize, u32, Encoding), String> {
    if chunk.len() < 16 {
        return Err(format!("its format has {} bytes, expected 16 or more", chunk.len()));
    }
    let (channels, rate) = (usize::from(u16_at(chunk, 2)), u32_at(chunk, 4));
    let (block, bits) = (usize::from(u16_at(chunk, 12)), usize::from(u16_at(chunk, 14)));
    if channels == 0 || rate == 0 {
        return Err(format!("it has {channels} channels at {rate} Hz"));
    }
    let mut tag = u16_at(chunk, 0);
    if tag == EXTENSIBLE {
        if chunk.get(26..40) != Some(&IDENTIFIER[..]) {
            return Err("its extensible format has an encoding of another kind".into());
        }
        tag = u16_at(chunk, 24);
    }
    // The container of a sample has whole bytes, and may have more bits than are valid.
    let bytes = block / channels;
    let fits = block == bytes * channels && bits > 0 && bits <= 8 * bytes;
    let encoding = match (tag, bytes) {
        (INTEGERS, 1..=4) if fits => Encoding::Integer { bytes },
        (FLOATS, 4 | 8) if fits && bits == 8 * bytes => Encoding::Float { bytes },
        _ => {
            return Err(format!(
                "its samples have the encoding {tag} with {bits} bits, {block} bytes for {channels} channels; expected integers (1) of \
                 up to 32 bits or floats (3) of 32 or 64"
            ));
        }
    };
    Ok((channels, rate, encoding))
}

/// The samples of a chunk of `size` bytes, of which `left` are in the file.
fn samples(
    (channels, rate, encoding): (usize, u32, Encoding),
    start: u64,
    size: u64,
    left: u64,
) -> std::result::Result<WavInfo, String> {
    let frame = (channels * encoding.bytes()) as u64;
    if size > left {
        return Err(format!("it is cut off: {size} bytes of samples are announced, and {left} are there"));
    }
    if !size.is_multiple_of(frame) {
        return Err(format!("it is cut off: {size} bytes of samples are no whole frames of {frame}"));
    }
    Ok(WavInfo { channels, rate, encoding, start, bytes: size })
}

/// The header of a file with this number of samples; `None` if it cannot count them.
pub(super) fn header(channels: u16, rate: u32, encoding: Encoding, samples: usize) -> Option<Vec<u8>> {
    let size = encoding.bytes();
    let data = u32::try_from(samples.checked_mul(size)?).ok()?;
    let block = u16::try_from(usize::from(channels) * size).ok()?;
    let (tag, is_float) = match encoding {
        Encoding::Integer { .. } => (INTEGERS, false),
        Encoding::Float { .. } => (FLOATS, true),
    };
    let mut format = Vec::new();
    format.extend([tag, channels].map(u16::to_le_bytes).concat());
    format.extend([rate, rate.checked_mul(u32::from(block))?].map(u32::to_le_bytes).concat());
    format.extend([block, 8 * size as u16].map(u16::to_le_bytes).concat());
    let mut chunks = vec![(b"fmt ", format)];
    if is_float {
        // Formats other than integers say how many bytes of their own follow, and how many frames there are.
        chunks[0].1.extend(0u16.to_le_bytes());
        let frames = u32::try_from(samples / usize::from(channels)).ok()?;
        chunks.push((b"fact", frames.to_le_bytes().to_vec()));
    }
    let mut body = b"WAVE".to_vec();
    for (name, chunk) in chunks {
        body.extend(name);
        body.extend((chunk.len() as u32).to_le_bytes());
        body.extend(chunk);
    }
    body.extend(b"data");
    body.extend(data.to_le_bytes());
    let whole = data.checked_add(body.len() as u32)?;
    Some([b"RIFF".as_slice(), &whole.to_le_bytes(), &body].concat())
}
