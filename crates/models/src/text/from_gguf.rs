//! The tokenizer in the metadata of a GGUF file, as a document like `tokenizer.json`.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use tensor_core::{Result, file::file_error};
use weights::{GgufValue, WeightFile};

use super::{chat::DEFAULT_TEMPLATE, spelling::byte_piece};

/// The content of the metadata.
pub(super) struct Found {
    pub(super) document: Json,
    /// Special tokens by the names that chat templates use.
    pub(super) special: Vec<(&'static str, String)>,
    /// Chat templates by their names.
    pub(super) templates: Vec<(String, String)>,
    /// How SentencePiece's pieces are joined, if the tokens are pieces.
    pub(super) pieces: Option<Pieces>,
}

/// How pieces are joined to a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Whether a text has a space before it that does not belong to it.
    pub(super) space_before: bool,
}

/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's words: up to three digits.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's words: each digit alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen 3.5's words: marks belong to letters.
const QWEN3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The words of GPT-4o and gpt-oss: a capital after a small letter begins one.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The parts that DeepSeek 3 splits off one after the other: digits, characters of Chinese and Japanese,
/// words.
const DEEPSEEK3: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// The parts that DeepSeek's first models split off one after the other: ends of lines, words of scripts with
/// small and capital letters, punctuation, spaces at the end, characters of Chinese, Japanese and Korean,
/// digits.
const DEEPSEEK: &[&str] = &[
    r"[\r\n]",
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥\u{800}-一가-\u{d7ff}]+",
    r"\p{N}",
];

/// How a text is split into words before byte pairs are merged.
struct Words {
    /// The names of GGUF.
    names: &'static [&'static str],
    /// Whether digits are split off first, each alone.
    digits: bool,
    /// The patterns by which the text is split one after the other.
    patterns: &'static [&'static str],
    /// Whether the text is brought to Unicode's form NFC first.
    composed: bool,
    /// Whether a word that is a token is not merged from its bytes.
    whole: bool,
}

const PLAIN: Words = Words { names: &[], digits: false, patterns: &[GPT2], composed: false, whole: false };

const WORDS: &[Words] = &[
    Words { names: &["default", "gpt-2", "gpt2", "mpt", "olmo", "jais"], ..PLAIN },
    Words {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"],
        digits: true,
        ..PLAIN
    },
    Words {
        names: &["llama-bpe", "llama3", "llama-v3", "smaug-bpe", "lfm2", "pixtral", "falcon3"],
        patterns: &[LLAMA3],
        whole: true,
        ..PLAIN
    },
    Words { names: &["chatglm-bpe", "glm4", "dbrx"], patterns: &[LLAMA3], ..PLAIN },
    Words {
        names: &["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"],
        patterns: &[QWEN2],
        composed: true,
        ..PLAIN
    },
    Words { names: &["qwen35"], patterns: &[QWEN3_5], composed: true, ..PLAIN },
    Words { names: &["gpt-4o"], patterns: &[GPT4O], ..PLAIN },
    Words { names: &["deepseek-llm"], patterns: DEEPSEEK, ..PLAIN },
    Words { names: &["deepseek-v3"], patterns: DEEPSEEK3, ..PLAIN },
];

/// The longest piece that is merged from others, in bytes; SentencePiece's own limit is 16 characters. Each
/// cut of a piece is looked up, which takes time that grows with the square of its length.
const MAX_PIECE_BYTES: usize = 1024;

/// The types of tokens in GGUF.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

#[track_caller]
pub(super) fn read(file: &WeightFile) -> Result<Found> {
    let metadata = file.gguf_metadata();
    let get = |key: &str| metadata.get(&format!("tokenizer.{key}"));
    let text = |key: &str| get(key).and_then(GgufValue::as_str);
    let (Some(model), Some(tokens)) = (text("ggml.model"), get("ggml.tokens").and_then(GgufValue::as_texts))
    else {
        return Err(file_error(file.path(), "has no tokenizer in its metadata"));
    };
    let types = get("ggml.token_type").and_then(GgufValue::as_array).and_then(|types| types.to_i64s());
    let types = types.unwrap_or_default();
    let special = |id: usize| types.get(id).is_some_and(|kind| *kind == CONTROL);
    let added: Vec<Json> = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| types.get(*id).is_some_and(|kind| [UNKNOWN, CONTROL, USER_DEFINED].contains(kind)))
        .map(|(id, content)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special(id),
            })
        })
        .collect();
    let token = |key: &str| {
        let id = get(key).and_then(GgufValue::as_u64)?;
        tokens.get(usize::try_from(id).ok()?).cloned()
    };
    let space_before = get("ggml.add_space_prefix").and_then(GgufValue::as_bool).unwrap_or(true);
    let mut pieces = None;
    let mut document = match model {
        "gpt2" => byte_pairs(file, tokens, text("ggml.pre").unwrap_or("default"))?,
        "llama" => {
            pieces = Some(Pieces { space_before });
            sentence_pieces(file, tokens, space_before)?
        }
        other => {
            let message = format!("has a tokenizer of the kind \"{other}\"; gpt2 and llama are known");
            return Err(file_error(file.path(), message));
        }
    };
    let bos = token("ggml.bos_token_id");
    let eos = token("ggml.eos_token_id");
    let adds = |key: &str, default: bool| get(key).and_then(GgufValue::as_bool).unwrap_or(default);
    let before = bos.clone().filter(|_| adds("ggml.add_bos_token", model == "llama"));
    let after = eos.clone().filter(|_| adds("ggml.add_eos_token", false));
    document["version"] = json!("1.0");
    document["added_tokens"] = json!(added);
    document["post_processor"] = surrounded(before.as_deref(), after.as_deref(), tokens);
    let known = [
        ("unk_token", token("ggml.unknown_token_id")),
        ("sep_token", token("ggml.seperator_token_id")),
        ("pad_token", token("ggml.padding_token_id")),
        ("bos_token", bos),
        ("eos_token", eos),
    ];
    let special = known.into_iter().filter_map(|(name, token)| Some((name, token?))).collect();
    let named = metadata.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix("tokenizer.chat_template")?;
        let name = if name.is_empty() { DEFAULT_TEMPLATE } else { name.strip_prefix('.')? };
        Some((name.to_string(), value.as_str()?.to_string()))
    });
    Ok(Found { document, special, templates: named.collect(), pieces })
}

/// Tokens before and after each text.
fn surrounded(before: Option<&str>, after: Option<&str>, tokens: &[String]) -> Json {
    if before.is_none() && after.is_none() {
        return Json::Null;
    }
    let special = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let whole = |ids: &[&str]| {
        let sequences = ids.iter().enumerate().flat_map(|(k, id)| {
            let text = json!({"Sequence": {"id": id, "type_id": k}});
            before.map(special).into_iter().chain([text]).chain(after.map(special))
        });
        sequences.collect::<Vec<_>>()
    };
    let entry = |token: &str| {
        let id = tokens.iter().position(|known| known == token);
        (token.to_string(), json!({"id": token, "ids": [id], "tokens": [token]}))
    };
    let known: serde_json::Map<String, Json> =
        before.iter().chain(&after).map(|token| entry(token)).collect();
    json!({
        "type": "TemplateProcessing", "single": whole(&["A"]), "pair": whole(&["A", "B"]),
        "special_tokens": known,
    })
}

fn vocabulary(tokens: &[String]) -> Json {
    tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Byte pair encoding of bytes, as in GPT-2.
#[track_caller]
fn byte_pairs(file: &WeightFile, tokens: &[String], pre: &str) -> Result<Json> {
    let Some(words) = WORDS.iter().find(|words| words.names.contains(&pre)) else {
        let names: Vec<&str> = WORDS.iter().flat_map(|words| words.names).copied().collect();
        let message = format!("splits words as \"{pre}\"; known are {}", names.join(", "));
        return Err(file_error(file.path(), message));
    };
    let merges = file.gguf_metadata().get("tokenizer.ggml.merges").and_then(GgufValue::as_texts);
    let Some(merges) = merges else {
        return Err(file_error(file.path(), "has no tokenizer.ggml.merges"));
    };
    // No token has a space, so that the first one separates the two parts.
    let merges: Vec<_> = merges.iter().filter_map(|merge| merge.split_once(' ')).collect();
    let mut steps = Vec::new();
    if words.digits {
        steps.push(json!({"type": "Digits", "individual_digits": true}));
    }
    let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    steps.extend(words.patterns.iter().map(split));
    steps.push(json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    }));
    Ok(json!({
        "normalizer": if words.composed { json!({"type": "NFC"}) } else { Json::Null },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "vocab": vocabulary(tokens), "merges": merges, "ignore_merges": words.whole,
        },
    }))
}

impl Pieces {
    /// The text of pieces: ▁ is a space, and neighbouring pieces such as `<0xE5>` are the bytes of
    /// characters. Each byte that belongs to no character is U+FFFD, as in SentencePiece; the library's own
    /// decoder gives up all characters of the bytes around it.
    pub(super) fn join<'a>(self, pieces: impl Iterator<Item = &'a str>) -> String {
        let (mut text, mut bytes) = (String::new(), Vec::new());
        for piece in pieces {
            if let Some(byte) = byte_piece(piece) {
                bytes.push(byte);
                continue;
            }
            text += &characters(&std::mem::take(&mut bytes));
            text += &piece.replace('▁', " ");
        }
        text += &characters(&bytes);
        match text.strip_prefix(' ') {
            Some(rest) if self.space_before => rest.to_string(),
            _ => text,
        }
    }
}

/// The characters of UTF-8, and U+FFFD for each byte of the rest.
fn characters(bytes: &[u8]) -> String {
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| chunk.valid().to_string() + &"\u{fffd}".repeat(chunk.invalid().len())).collect()
}

/// SentencePiece's byte pairs: pieces with scores, from which the merges follow: a piece is the merge of each
/// pair of pieces that it consists of, and better pieces come first.
#[track_caller]
fn sentence_pieces(file: &WeightFile, tokens: &[String], space_before: bool) -> Result<Json> {
    let scores = file.gguf_metadata().get("tokenizer.ggml.scores").and_then(GgufValue::as_array);
    let scores = scores.and_then(|scores| scores.to_f64s()).filter(|scores| scores.len() == tokens.len());
    let Some(scores) = scores else {
        return Err(file_error(file.path(), "has no score for each token in tokenizer.ggml.scores"));
    };
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let mut merges: Vec<(usize, usize, usize)> = Vec::new();
    for (id, token) in tokens.iter().enumerate().filter(|(_, token)| token.len() <= MAX_PIECE_BYTES) {
        let cuts = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        merges.extend(cuts.filter_map(|(left, right)| Some((id, *ids.get(left)?, *ids.get(right)?))));
    }
    merges.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let merges: Vec<_> = merges.iter().map(|(_, left, right)| (&tokens[*left], &tokens[*right])).collect();
    let mut normalizers = Vec::new();
    if space_before {
        normalizers.push(json!({"type": "Prepend", "prepend": "▁"}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
    Ok(json!({
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": Json::Null,
        "decoder": Json::Null,
        "model": {
            "type": "BPE", "vocab": vocabulary(tokens), "merges": merges, "byte_fallback": true,
            "fuse_unk": true, "unk_token": ids.contains_key("<unk>").then_some("<unk>"),
        },
    }))
}
