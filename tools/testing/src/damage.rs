//! Damage of bytes that knows no format: bits, words, lengths and parts of a file.

use crate::rng::Rng;

/// Words at which sizes and offsets overflow.
const WORDS: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    1 << 48,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// The content with one to four faults; `other` is a file to take parts from.
pub fn damage(rng: &mut Rng, content: &[u8], other: &[u8]) -> Vec<u8> {
    let mut content = content.to_vec();
    for _ in 0..=rng.below(4) {
        if content.is_empty() {
            return content;
        }
        let at = position(rng, content.len());
        match rng.below(9) {
            0 => content[at] ^= 1 << rng.below(8),
            1 => content[at] = rng.bits() as u8,
            2 => content.truncate(at),
            3 => {
                let end = (at + 1 + rng.below(16)).min(content.len());
                content.drain(at..end);
            }
            4 => {
                let part = content[at..(at + rng.below(64)).min(content.len())].to_vec();
                let to = position(rng, content.len());
                content.splice(to..to, part);
            }
            5 => {
                let from = rng.below(other.len());
                let part = other[from..(from + rng.below(64)).min(other.len())].to_vec();
                content.splice(at..at, part);
            }
            6 => {
                let end = (at + 1 + rng.below(16)).min(content.len());
                content[at..end].fill(*rng.pick(&[0, 1, 0x7f, 0x80, 0xff]));
            }
            _ => {
                let word = match rng.below(4) {
                    0 => content.len() as u64 + rng.below(16) as u64,
                    1 => rng.bits() >> rng.below(64),
                    _ => *rng.pick(WORDS),
                };
                let width = *rng.pick(&[1usize, 2, 4, 8]);
                let end = (at + width).min(content.len());
                content[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
        }
    }
    content
}

/// A position, as often among the first bytes, where headers are, as elsewhere.
fn position(rng: &mut Rng, length: usize) -> usize {
    let reach = match rng.below(4) {
        0 => 32,
        1 => 512,
        _ => length,
    };
    let at = rng.below(reach.min(length));
    // The directory of an archive is at its end.
    if rng.one_in(6) { length - 1 - at } else { at }
}
