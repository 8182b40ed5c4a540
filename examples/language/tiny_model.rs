//! Trains a small language model on texts and writes it as a GGUF file with weights in blocks of Q4_0: the
//! model that the page of `cargo xtask browser` fine-tunes.
//!
//!     cargo run --release -p taper-examples-language --example tiny_model -- \
//!         --out examples/browser/page/tiny.gguf docs/guide/*.md
//!
//! Tokens are bytes, and the special tokens of a conversation. Each sentence of the texts is an answer to the
//! sentence before it.

use std::{error::Error, fs, path::PathBuf};

use clap::Parser;
use taper::{
    GgmlType,
    models::{LanguageModel, Llama, LlamaConfig, text::Tokenizer},
    nn::CrossEntropyLoss,
    optim::{CosineAnnealingLr, LrScheduler},
    prelude::*,
    weights::{GgufArray, GgufValue, GgufWriter},
};

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// Trains a small language model on texts.
#[derive(Parser)]
struct Options {
    /// The texts, in Markdown
    #[arg(required = true)]
    texts: Vec<PathBuf>,
    /// The folder of the tokenizer
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tiny"))]
    tokenizer: PathBuf,
    /// The GGUF file
    #[arg(long)]
    out: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[arg(long, default_value_t = 3000)]
    steps: usize,
    /// Sequences of a step
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 192)]
    length: usize,
    #[arg(long, default_value_t = 3e-3)]
    lr: f64,
    /// The features of a hidden state, 32 in each head
    #[arg(long, default_value_t = 128)]
    width: usize,
    #[arg(long, default_value_t = 4)]
    layers: usize,
}

/// The sentences of a Markdown text without code, tables and headings.
fn sentences(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        let skipped = in_code || line.starts_with(['`', '#', '|', '>', '[', '!', ' ']);
        prose.push_str(if skipped { "\n" } else { line });
        prose.push(if line.is_empty() { '\n' } else { ' ' });
    }
    let clean = prose.replace(['`', '*'], "");
    let parts = clean.split('\n').flat_map(|paragraph| paragraph.split_inclusive(". "));
    let whole = parts.map(str::trim).filter(|part| part.ends_with('.') && (12..160).contains(&part.len()));
    whole.filter(|part| part.starts_with(char::is_uppercase) && part.is_ascii()).map(String::from).collect()
}

/// The names that llama.cpp gives to the parts of a model.
const NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens.", "token_embd."),
    ("model.norm.", "output_norm."),
    ("model.layers.", "blk."),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

/// The rows of each head with its halves in turns, as llama.cpp stores queries and keys.
fn interleaved(weight: &Tensor, head: usize) -> Result<Tensor> {
    let [rows, columns] = weight.dims()[..2] else { return Ok(weight.clone()) };
    let halves = weight.reshape([rows / head, 2, head / 2, columns])?;
    halves.transpose(1, 2)?.reshape([rows, columns])
}

/// Writes the model with its tokenizer.
fn write(model: &Llama, tokenizer: &Tokenizer, options: &Options) -> Outcome<()> {
    let config = model.config();
    let settings = fs::read_to_string(options.tokenizer.join("tokenizer_config.json"))?;
    let settings: serde_json::Value = serde_json::from_str(&settings)?;
    let template = settings["chat_template"].as_str().ok_or("the tokenizer has no chat template")?;
    let end = *tokenizer.end_tokens().first().ok_or("the tokenizer has no end token")?;
    let tokens: Vec<String> =
        (0..config.vocab_size as u32).filter_map(|id| tokenizer.id_to_token(id)).collect();
    // 3 is a special token, 1 a usual one.
    let types = tokens.iter().map(|token| if token.starts_with("<|") { 3 } else { 1 }).collect();
    let key = |name: &str| format!("llama.{name}");
    let mut file = GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("general.name", "tiny")
        .metadata(&key("block_count"), config.num_hidden_layers as u32)
        .metadata(&key("embedding_length"), config.hidden_size as u32)
        .metadata(&key("feed_forward_length"), config.intermediate_size as u32)
        .metadata(&key("context_length"), config.max_position_embeddings as u32)
        .metadata(&key("attention.head_count"), config.num_attention_heads as u32)
        .metadata(&key("attention.layer_norm_rms_epsilon"), config.rms_norm_eps as f32)
        .metadata(&key("rope.freq_base"), config.rope_theta as f32)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "default")
        .metadata("tokenizer.ggml.tokens", GgufValue::Array(GgufArray::Text(tokens)))
        .metadata("tokenizer.ggml.token_type", GgufValue::Array(GgufArray::I32(types)))
        .metadata("tokenizer.ggml.merges", GgufValue::Array(GgufArray::Text(Vec::new())))
        .metadata("tokenizer.ggml.eos_token_id", end)
        .metadata("tokenizer.chat_template", template);
    for (name, tensor) in model.state_dict() {
        let is_turned = name.contains("q_proj") || name.contains("k_proj");
        let tensor = match is_turned {
            true => interleaved(&tensor, config.head_features())?,
            false => tensor,
        };
        let tensor = match (tensor.rank(), name.contains("embed_tokens")) {
            (2, true) => tensor.quantize(GgmlType::Q8_0, None)?,
            (2, false) => tensor.quantize(GgmlType::Q4_0, None)?,
            _ => tensor,
        };
        let renamed = NAMES.iter().fold(name, |name, (from, to)| name.replace(from, to));
        file = file.tensor(&renamed, &tensor);
    }
    Ok(file.save(&options.out)?)
}

fn main() -> Outcome<()> {
    let options = Options::parse();
    let device = taper::device(&options.device)?;
    let tokenizer = Tokenizer::from_folder(&options.tokenizer)?;
    let mut known = Vec::new();
    for path in &options.texts {
        known.extend(sentences(&fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?));
    }
    let pairs: Vec<Vec<i32>> = known
        .windows(2)
        .map(|pair| {
            let text = format!("<|user|>{}<|assistant|>{}<|end|>", pair[0], pair[1]);
            Ok(tokenizer.encode(&text, false)?.ids.into_iter().map(|id| id as i32).collect())
        })
        .collect::<Result<_>>()?;
    if pairs.is_empty() {
        return Err("the texts have no two sentences".into());
    }
    let config = LlamaConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: options.width,
        intermediate_size: 3 * options.width,
        num_hidden_layers: options.layers,
        num_attention_heads: (options.width / 32).max(1),
        max_position_embeddings: 512,
        tie_word_embeddings: Some(true),
        ..Default::default()
    };
    let model = Llama::new(&config, &Generator::seed(0, &device))?;
    eprintln!("{} sentences; {} parameters on {device}", known.len(), model.num_parameters());

    let mut optimizer = AdamW::new(model.parameters(), AdamWConfig { lr: options.lr, ..Default::default() });
    let schedule = CosineAnnealingLr::new(options.steps as u64, 1e-5)?;
    let mut schedule = LrScheduler::new(schedule, &mut optimizer);
    const IGNORED: i32 = -100;
    let criterion = CrossEntropyLoss::default();
    let order = Generator::seed(1, &taper::cpu());
    let mut sum = 0.0;
    for step in 1..=options.steps {
        let chosen = Tensor::randint(0, pairs.len() as i32, [options.batch], &order)?.to_f64_vec()?;
        let (mut ids, mut labels) = (Vec::new(), Vec::new());
        for pair in chosen.into_iter().map(|pair| &pairs[pair as usize]) {
            let at = |k: usize, other: i32| pair.get(k).copied().unwrap_or(other);
            ids.extend((0..options.length).map(|k| at(k, 0)));
            labels.extend((1..=options.length).map(|k| at(k, IGNORED)));
        }
        let ids = Tensor::from_vec(ids, [options.batch, options.length], &device)?;
        let labels = Tensor::from_vec(labels, [options.batch * options.length], &device)?;
        optimizer.zero_grad();
        let loss = criterion.forward(&model.forward(&ids)?.flatten(0, 1)?, &labels)?;
        loss.backward()?;
        optimizer.step()?;
        schedule.step(&mut optimizer)?;
        sum += loss.item::<f32>()?;
        if step % 100 == 0 || step == options.steps {
            let count = if step % 100 == 0 { 100 } else { step % 100 };
            println!("step {step}/{}: loss {:.3}", options.steps, sum / count as f32);
            sum = 0.0;
        }
    }
    write(&model, &tokenizer, &options)
}
