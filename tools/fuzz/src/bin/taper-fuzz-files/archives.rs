//! Archives that are packed anew, and WAV files.

use std::io::{Cursor, Read, Write};

use taper_fuzz::rng::Rng;
use taper_testing::damage;
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// How often a part of an entry may be repeated.
const REPEATS: usize = 1000;
/// The greatest size of an entry after a repetition, in bytes.
const ENTRY_BYTES: usize = 32 << 20;

/// One of the archives among some files, whose entries are packed by deflate; some are damaged before, and
/// some have a part that is repeated.
pub(crate) fn packed(rng: &mut Rng, files: &[Vec<u8>]) -> Vec<u8> {
    let archives: Vec<&Vec<u8>> = files.iter().filter(|file| file.starts_with(b"PK")).collect();
    let archive = *rng.pick(&archives);
    repacked(rng, archive).unwrap_or_default()
}

fn repacked(rng: &mut Rng, archive: &[u8]) -> zip::result::ZipResult<Vec<u8>> {
    let mut old = ZipArchive::new(Cursor::new(archive))?;
    let mut new = ZipWriter::new(Cursor::new(Vec::new()));
    let packed = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let stored = packed.compression_method(CompressionMethod::Stored);
    for index in 0..old.len() {
        let mut entry = old.by_index(index)?;
        let name = entry.name()?.into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        if rng.one_in(4) {
            content = damage(rng, &content, &[0xff; 64]);
        }
        if rng.one_in(3) && !content.is_empty() {
            let start = rng.below(content.len());
            let end = start + 1 + rng.below(content.len() - start);
            let times = (1 + rng.below(REPEATS)).min(ENTRY_BYTES / (end - start));
            let part = content[start..end].repeat(times);
            content.splice(end..end, part);
        }
        new.start_file(name, if rng.one_in(5) { stored } else { packed })?;
        new.write_all(&content)?;
    }
    Ok(new.finish()?.into_inner())
}

/// A WAV file of some encoding, with chunks of other programs.
pub(crate) fn sound(rng: &mut Rng) -> Vec<u8> {
    let channels = 1 + rng.below(3) as u16;
    let bytes = *rng.pick(&[1u16, 2, 3, 4, 8]);
    let tag = if bytes == 8 { 3 } else { *rng.pick(&[1u16, 1, 3]) };
    let mut format = [tag, channels].map(u16::to_le_bytes).concat();
    format.extend([8000u32, 8000].map(u32::to_le_bytes).concat());
    format.extend([channels * bytes, 8 * bytes].map(u16::to_le_bytes).concat());
    if rng.one_in(3) {
        format[..2].copy_from_slice(&0xfffe_u16.to_le_bytes());
        format.extend([22, 8 * bytes - 4, 0, 0, tag].map(u16::to_le_bytes).concat());
        format.extend([0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]);
    }
    let frames = rng.below(100);
    let samples: Vec<u8> =
        (0..frames * usize::from(channels * bytes)).map(|_| rng.below(256) as u8).collect();
    let other = vec![7; rng.below(9)];
    let mut body = b"WAVE".to_vec();
    for (name, chunk) in [(b"fmt ", &format), (b"LIST", &other), (b"data", &samples)] {
        body.extend(name);
        body.extend((chunk.len() as u32).to_le_bytes());
        body.extend(chunk);
        body.resize(body.len().next_multiple_of(2), 0);
    }
    [b"RIFF".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}
