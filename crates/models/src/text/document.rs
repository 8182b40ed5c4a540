//! The conditions that a `tokenizer.json` must meet before the crate `tokenizers` reads it, which takes some
//! things for granted: it panics, allocates what a number in the file says, or makes a text as long as the
//! file asks for.

use serde::Deserialize;
use serde_json::Value as Json;

type Checked = Result<(), String>;

/// How many times longer the replacements of a normalizer or a decoder may make a text, all together.
const MAX_GROWTH: usize = 1024;
/// The longest replacement of a character by a `Precompiled` normalizer, in bytes.
const MAX_REPLACEMENT_BYTES: usize = 1024;

/// Checks that a document is JSON, that special tokens of templates are listed, and what normalizers and
/// decoders make of a text.
pub(super) fn check(document: &[u8]) -> Checked {
    #[derive(Deserialize)]
    struct Parts {
        #[serde(default)]
        normalizer: Json,
        #[serde(default)]
        post_processor: Json,
        /// It must be JSON to the last character.
        #[serde(default)]
        decoder: Json,
    }
    let parts: Parts = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    check_templates(&parts.post_processor)?;
    for (name, part, list) in
        [("normalizer", &parts.normalizer, "normalizers"), ("decoder", &parts.decoder, "decoders")]
    {
        if growth(part, list)? > MAX_GROWTH {
            return Err(format!("the {name} may make a text more than {MAX_GROWTH} times longer"));
        }
    }
    Ok(())
}

fn check_templates(processor: &Json) -> Checked {
    let items = |field: &str| processor.get(field).and_then(Json::as_array).into_iter().flatten();
    items("processors").try_for_each(check_templates)?;
    for part in items("single").chain(items("pair")) {
        let Some(token) = part.pointer("/SpecialToken/id").and_then(Json::as_str) else { continue };
        if processor.get("special_tokens").and_then(|known| known.get(token)).is_none() {
            return Err(format!("the template has the token \"{token}\", which special_tokens lacks"));
        }
    }
    Ok(())
}

/// How many times longer a normalizer or a decoder may make a text; `list` names the parts of a sequence.
fn growth(part: &Json, list: &str) -> Result<usize, String> {
    let text = |field: &str| part.get(field).and_then(Json::as_str);
    let mut most = 1usize;
    if let (Some("Replace"), Some(content)) = (text("type"), text("content")) {
        let replaced =
            part.pointer("/pattern/String").and_then(Json::as_str).map_or(1, |text| text.chars().count());
        most = content.chars().count().div_ceil(replaced.max(1)).max(1);
    }
    if let Some(table) = text("precompiled_charsmap") {
        check_table(table)?;
    }
    for inner in part.get(list).and_then(Json::as_array).into_iter().flatten() {
        most = most.saturating_mul(growth(inner, list)?);
    }
    Ok(most)
}

/// Checks the table of a `Precompiled` normalizer: in base64, the bytes of an array as a number of 32 bits,
/// the array, and texts that end with 0.
fn check_table(table: &str) -> Checked {
    let bytes = from_base64(table).ok_or("the precompiled_charsmap is no base64")?;
    let size = bytes.first_chunk().map(|size| u32::from_le_bytes(*size) as usize);
    let texts = size.and_then(|size| bytes.get(4 + size..));
    let Some(texts) = texts else {
        let size = size.unwrap_or(0);
        return Err(format!("the precompiled_charsmap of {} bytes has an array of {size}", bytes.len()));
    };
    match texts.split(|byte| *byte == 0).map(<[u8]>::len).max() {
        Some(longest) if longest > MAX_REPLACEMENT_BYTES => {
            Err(format!("the precompiled_charsmap replaces a character by {longest} bytes, of at most 1024"))
        }
        _ => Ok(()),
    }
}

/// The bytes of base64.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes().map(|digit| match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    });
    let digits = digits.collect::<Option<Vec<u8>>>()?;
    let quads = digits.chunks(4).flat_map(|quad| {
        let bits =
            quad.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - quad.len()));
        bits.to_be_bytes().into_iter().skip(1).take(quad.len() * 6 / 8)
    });
    Some(quads.collect())
}
