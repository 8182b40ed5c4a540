//! Files of language models: `config.json`, `tokenizer.json` and the metadata of GGUF files. A configuration
//! that is accepted builds a model with random weights, which reads four tokens; a tokenizer splits a text.

use models::{
    Bert, Gemma4, Gpt2, GptNeoX, KvCache, LanguageModel, Lfm2, Llama, ModernBert, T5,
    audio::{Wav2Vec2, Wav2Vec2Config, Whisper, WhisperConfig},
    text::Tokenizer,
    vision::{Clip, ClipConfig, Detr, DetrConfig, Dinov2, Dinov2Config, Siglip, SiglipConfig},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};
use taper::{Device, Error, Generator, prelude::Tensor};
use taper_fuzz::rng::Rng;
use weights::{GgufArray, GgufValue, GgufWriter, WeightFile};

/// Numbers at which sizes overflow, and ordinary ones.
const NUMBERS: &[i64] = &[
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    12,
    16,
    24,
    32,
    64,
    255,
    1000,
    65_536,
    1 << 20,
    1 << 31,
    1 << 40,
    i64::MAX,
    i64::MIN,
    -1,
    -2,
];
const FRACTIONS: &[f64] = &[0.0, 1.0, -1.0, 0.5, 1e-12, 1e300, -1e300, 1e-320, 10_000.0];
/// Words that configurations and tokenizers know.
const WORDS: &[&str] = &[
    "",
    "llama",
    "gemma3_text",
    "qwen3_moe",
    "phi3",
    "gpt2",
    "gelu",
    "silu",
    "relu",
    "yarn",
    "linear",
    "dynamic",
    "llama3",
    "longrope",
    "default",
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "conv",
    "gpt_oss",
    "deepseek_v3",
    "sliding_attention",
    "resnet18",
    "BPE",
    "WordPiece",
    "Unigram",
    "WordLevel",
    "Sequence",
    "ByteLevel",
    "Metaspace",
    "Replace",
    "Split",
    "Strip",
    "Prepend",
    "<unk>",
    "<s>",
    "(a+)+$",
    "[",
    "\u{2581}",
    "\u{1F44D}",
    "a b",
];
/// The greatest number of values that a document may hold for one to be changed.
const CHANGES: usize = 4;

/// A document with one to four values changed, moved or removed.
pub(crate) fn changed(rng: &mut Rng, document: &[u8]) -> Vec<u8> {
    let Ok(mut json) = serde_json::from_slice::<Json>(document) else { return document.to_vec() };
    for _ in 0..=rng.below(CHANGES) {
        change(rng, &mut json);
    }
    json.to_string().into_bytes()
}

/// Changes a value below this one.
fn change(rng: &mut Rng, json: &mut Json) {
    match json {
        Json::Object(fields) if !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = rng.pick(&names);
            match rng.below(10) {
                0 => drop(fields.remove(name)),
                1 => {
                    let other = fields[rng.pick(&names)].clone();
                    fields.insert(name.clone(), other);
                }
                _ => change(rng, &mut fields[name]),
            }
        }
        Json::Array(items) if !items.is_empty() => {
            let at = rng.below(items.len());
            match rng.below(8) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => change(rng, &mut items[at]),
            }
        }
        leaf => *leaf = value(rng),
    }
}

fn value(rng: &mut Rng) -> Json {
    match rng.below(10) {
        0 => Json::Null,
        1 => json!(rng.one_in(2)),
        2 => json!(rng.pick(FRACTIONS)),
        3 => json!(rng.pick(WORDS)),
        4 => json!([rng.pick(NUMBERS), rng.pick(WORDS)]),
        5 => json!({"type": rng.pick(WORDS), "rope_type": rng.pick(WORDS), "factor": rng.pick(FRACTIONS)}),
        _ => json!(rng.pick(NUMBERS)),
    }
}

type Build = fn(&[u8], &Device) -> Result<(), Error>;

/// A configuration, or an error in the words of serde.
fn read<C: DeserializeOwned>(bytes: &[u8]) -> Result<C, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid("config.json", error.to_string()))
}

fn random(device: &Device) -> Generator {
    Generator::seed(0, device)
}

/// Four tokens without and with a cache.
fn reads(model: &dyn LanguageModel) -> Result<(), Error> {
    let ids = Tensor::from_vec(vec![0, 1, 1, 0], [1, 4], &model.device())?;
    model.forward(&ids)?.eval()?;
    let mut cache: KvCache = model.new_cache();
    model.next_logits(&ids, &mut cache)?.eval()?;
    model.next_logits(&ids.narrow(1, 0, 1)?, &mut cache)?.eval()
}

/// The models by `model_type`.
const MODELS: &[(&str, Build)] = &[
    ("gpt2", |bytes, device| reads(&Gpt2::new(&read(bytes)?, &random(device))?)),
    ("gpt_neox", |bytes, device| reads(&GptNeoX::new(&read(bytes)?, &random(device))?)),
    ("gemma4_text", |bytes, device| reads(&Gemma4::new(&read(bytes)?, &random(device))?)),
    ("lfm2", |bytes, device| reads(&Lfm2::new(&read(bytes)?, &random(device))?)),
    ("lfm2_moe", |bytes, device| reads(&Lfm2::new(&read(bytes)?, &random(device))?)),
    ("bert", encoder),
    ("roberta", encoder),
    ("distilbert", encoder),
    ("modernbert", |bytes, device| {
        let model = ModernBert::new(&read(bytes)?, &random(device))?;
        model.forward(&Tensor::from_vec(vec![0, 1, 1, 0], [1, 4], device)?, None)?.eval()
    }),
    ("t5", |bytes, device| T5::new(&read(bytes)?, &random(device)).map(drop)),
    ("whisper", |bytes, device| Whisper::new(&read::<WhisperConfig>(bytes)?, &random(device)).map(drop)),
    ("wav2vec2", |bytes, device| Wav2Vec2::new(&read::<Wav2Vec2Config>(bytes)?, &random(device)).map(drop)),
    ("clip", |bytes, device| Clip::new(&read::<ClipConfig>(bytes)?, &random(device)).map(drop)),
    ("siglip", |bytes, device| Siglip::new(&read::<SiglipConfig>(bytes)?, &random(device)).map(drop)),
    ("dinov2", |bytes, device| Dinov2::new(&read::<Dinov2Config>(bytes)?, &random(device)).map(drop)),
    ("detr", |bytes, device| Detr::new(&read::<DetrConfig>(bytes)?, &random(device)).map(drop)),
];

fn encoder(bytes: &[u8], device: &Device) -> Result<(), Error> {
    let model = Bert::new(&read(bytes)?, &random(device))?;
    model.forward(&Tensor::from_vec(vec![0, 1, 1, 0], [1, 4], device)?, None, None)?.eval()
}

/// Builds the model of a configuration; one of the Llama family if its type is another.
pub(crate) fn configuration(bytes: &[u8], device: &Device) -> Result<(), Error> {
    #[derive(Default, Deserialize)]
    struct Named {
        model_type: Option<String>,
    }
    let name = serde_json::from_slice::<Named>(bytes).unwrap_or_default().model_type.unwrap_or_default();
    match MODELS.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => build(bytes, device),
        None => reads(&Llama::new(&read(bytes)?, &random(device))?),
    }
}

/// Splits and joins a text.
pub(crate) fn split(tokenizer: &Tokenizer, device: &Device) -> Result<(), Error> {
    let texts = ["Two  words, a naïve café 👍 <s>12\n", "", "the world"];
    for text in texts {
        let ids = tokenizer.encode(text, true)?.ids;
        tokenizer.decode(&ids, true)?;
        tokenizer.encode_plain(text)?;
        tokenizer.encode_pair(text, texts[2], true)?;
        let _ = tokenizer.encode_pairs_batch(&[(text, texts[0])], 8, device)?;
    }
    tokenizer.encode_batch(&texts, 8, device).map(drop)
}

/// The model and the tokenizer of a GGUF file.
pub(crate) fn gguf(file: &WeightFile, device: &Device) -> Result<(), Error> {
    let tokenizer = Tokenizer::from_gguf(file).and_then(|tokenizer| split(&tokenizer, device));
    reads(&Llama::from_gguf(file.clone(), device)?)?;
    tokenizer
}

/// A small model of the Llama family as a GGUF file, with some of its metadata changed.
pub(crate) fn invented(rng: &mut Rng) -> Result<Vec<u8>, String> {
    let architecture = *rng.pick(&["llama", "llama", "llama", "qwen2", "qwen3", "gemma", "phi3", "mystery"]);
    let cpu = taper::cpu();
    let mut writer = GgufWriter::new();
    for (name, value) in metadata(rng, architecture) {
        match rng.below(16) {
            0 => {}
            1 => writer = writer.metadata(&name, other(rng)),
            _ => writer = writer.metadata(&name, value),
        }
    }
    let shapes: &[(&str, &[usize])] = &[
        ("token_embd.weight", &[12, 8]),
        ("output_norm.weight", &[8]),
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.attn_q.weight", &[8, 8]),
        ("blk.0.attn_k.weight", &[4, 8]),
        ("blk.0.attn_v.weight", &[4, 8]),
        ("blk.0.attn_output.weight", &[8, 8]),
        ("blk.0.ffn_norm.weight", &[8]),
        ("blk.0.ffn_gate.weight", &[12, 8]),
        ("blk.0.ffn_up.weight", &[12, 8]),
        ("blk.0.ffn_down.weight", &[8, 12]),
    ];
    for (name, shape) in shapes.iter().filter(|_| !rng.one_in(60)) {
        let tensor = Tensor::ones(*shape, &cpu).map_err(|error| error.to_string())?;
        writer = writer.tensor(name, &tensor);
    }
    let path = std::env::temp_dir().join(format!("taper-fuzz-files-{}.gguf", std::process::id()));
    writer.save(&path).map_err(|error| error.to_string())?;
    let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
    std::fs::remove_file(&path).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// The metadata of a model with two heads of four, and of a tokenizer of twelve tokens.
fn metadata(rng: &mut Rng, architecture: &str) -> Vec<(String, GgufValue)> {
    let mut tokens: Vec<String> =
        ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u{2581}", "\u{2581}a", "c", "abc", "d", "e"]
            .map(String::from)
            .into();
    let long = if rng.one_in(20) {
        rng.pick(&["a", "ab", "\u{2581}"]).repeat(1 << rng.below(15))
    } else {
        "e".into()
    };
    tokens[11] = long;
    let merges = vec!["a b".to_string(), "ab c".to_string()];
    let kind = *rng.pick(&["gpt2", "llama"]);
    let own = |name: &str| format!("{architecture}.{name}");
    let number = |name: &str, value: u32| (own(name), GgufValue::from(value));
    let known = |name: &str, value: GgufValue| (name.to_string(), value);
    vec![
        known("general.architecture", GgufValue::Text(architecture.into())),
        number("block_count", 1),
        number("embedding_length", 8),
        number("feed_forward_length", 12),
        number("context_length", 16),
        number("attention.head_count", 2),
        number("attention.head_count_kv", 1),
        number("attention.key_length", 4),
        number("rope.dimension_count", 4),
        number("attention.sliding_window", 8),
        (own("attention.layer_norm_rms_epsilon"), GgufValue::from(1e-5f32)),
        (own("rope.freq_base"), GgufValue::from(1e4f32)),
        (own("rope.scaling.type"), GgufValue::Text("linear".into())),
        (own("rope.scaling.factor"), GgufValue::from(2f32)),
        known("tokenizer.ggml.model", GgufValue::Text(kind.into())),
        known("tokenizer.ggml.pre", GgufValue::Text("smollm".into())),
        known("tokenizer.ggml.tokens", GgufValue::Array(GgufArray::Text(tokens))),
        known("tokenizer.ggml.scores", GgufValue::from((0..12).map(|k| -k as f32).collect::<Vec<_>>())),
        known("tokenizer.ggml.token_type", GgufValue::from(vec![2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1])),
        known("tokenizer.ggml.merges", GgufValue::Array(GgufArray::Text(merges))),
        known("tokenizer.ggml.bos_token_id", GgufValue::from(1u32)),
        known("tokenizer.ggml.eos_token_id", GgufValue::from(2u32)),
        known(
            "tokenizer.chat_template",
            GgufValue::Text("{% for m in messages %}{{ m.content }}{% endfor %}".into()),
        ),
    ]
}

/// A value of any type.
fn other(rng: &mut Rng) -> GgufValue {
    let number = *rng.pick(NUMBERS);
    match rng.below(9) {
        0 => GgufValue::from(number as u32),
        1 => GgufValue::from(number as u64),
        2 => GgufValue::from(number as i32),
        3 => GgufValue::from(*rng.pick(FRACTIONS) as f32),
        4 => GgufValue::Bool(rng.one_in(2)),
        5 => GgufValue::Text((*rng.pick(WORDS)).into()),
        6 => GgufValue::Array(GgufArray::Text(WORDS.iter().map(|word| (*word).into()).collect())),
        7 => GgufValue::from(vec![number as i32; rng.below(20)]),
        _ => GgufValue::from(f32::NAN),
    }
}
