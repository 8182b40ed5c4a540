//! The bytes that a token of a vocabulary stands for.

use tokenizers::DecoderWrapper;

/// How a vocabulary writes the bytes of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// A character for each byte, as in GPT-2.
    Bytes,
    /// SentencePiece's pieces: ▁ is a space, and `<0xE5>` is a byte.
    Pieces,
    /// The text itself.
    Plain,
}

impl Spelling {
    /// The spelling that a decoder reads; none if it also changes the text between tokens.
    pub(super) fn of(decoder: &DecoderWrapper) -> Option<Spelling> {
        match decoder {
            DecoderWrapper::ByteLevel(_) => Some(Spelling::Bytes),
            DecoderWrapper::ByteFallback(_) | DecoderWrapper::Metaspace(_) => Some(Spelling::Pieces),
            DecoderWrapper::Fuse(_) => Some(Spelling::Plain),
            DecoderWrapper::Sequence(all) => {
                let known: Vec<Spelling> = all.get_decoders().iter().filter_map(Spelling::of).collect();
                known.iter().find(|spelling| **spelling != Spelling::Plain).or(known.first()).copied()
            }
            _ => None,
        }
    }

    /// The bytes of a token.
    pub(super) fn bytes(self, token: &str) -> Vec<u8> {
        match self {
            Spelling::Bytes => match token.chars().map(byte_of).collect() {
                Some(bytes) => bytes,
                None => token.as_bytes().to_vec(),
            },
            Spelling::Pieces => match byte_piece(token) {
                Some(byte) => vec![byte],
                None => token.replace('▁', " ").into_bytes(),
            },
            Spelling::Plain => token.as_bytes().to_vec(),
        }
    }
}

/// The byte of a piece such as `<0xE5>`.
pub(super) fn byte_piece(piece: &str) -> Option<u8> {
    let hex = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// The byte of a character of GPT-2's alphabet: printable characters of Latin-1 are their own, and those from
/// 256 on are the other bytes in their order.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        // 0 to 0x20, 0x7f to 0xa0, 0xad.
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}
