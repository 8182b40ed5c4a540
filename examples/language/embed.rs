//! Sentences as vectors: finds those with the nearest meaning.
//!
//!     cargo run --release -p taper-examples-language --example embed -- --model all-MiniLM-L6-v2 \
//!         --query "Someone is eating." "A man has a piece of bread." "The gradient of a sum."
//!
//! The model is a folder of a BERT, RoBERTa or DistilBERT with its `tokenizer.json`; a sentence is the mean
//! of its tokens' states, of length 1. `--file FILE` takes the lines of a file as sentences.
//!
//! Reimers, Gurevych: Sentence-BERT, sentence embeddings using Siamese BERT networks (2019).

mod model;

use std::{error::Error, fs, path::PathBuf, time::Instant};

use clap::Parser;
use taper::{
    models::{Bert, text::Tokenizer},
    nn::functional::normalize,
    prelude::*,
};

/// Finds the sentences with the nearest meaning.
#[derive(Parser)]
struct Options {
    /// A folder with config.json, tokenizer.json and weights, or a name such as org/name
    #[arg(long)]
    model: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The sentence to which others are compared
    #[arg(long)]
    query: String,
    /// A file with a sentence in each line
    #[arg(long)]
    file: Option<PathBuf>,
    /// How many neighbours are printed
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// Sentences of one batch
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Longer sentences are cut to this number of tokens
    #[arg(long, default_value_t = 256)]
    max_length: usize,
    sentences: Vec<String>,
}

/// The vectors `[N, features]` of sentences, of length 1.
fn embed(model: &Bert, tokenizer: &Tokenizer, sentences: &[String], options: &Options) -> Result<Tensor> {
    let device = model.parameters()[0].device();
    let mut parts = Vec::new();
    for batch in sentences.chunks(options.batch_size.max(1)) {
        let (ids, mask) = tokenizer.encode_batch(batch, options.max_length, &device)?;
        let hidden = no_grad(|| model.forward(&ids, Some(&mask), None))?;
        let vectors = normalize(&Bert::mean_pooled(&hidden, Some(&mask))?, 2.0, -1, 1e-12)?;
        vectors.eval()?;
        parts.push(vectors);
    }
    Tensor::concat(&parts, 0)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    taper::end_quietly_on_closed_pipe();
    let options = Options::parse();
    let device = taper::device(&options.device)?;
    let path = model::find(&options.model)?;
    let model = Bert::from_folder(&path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    let mut sentences = options.sentences.clone();
    if let Some(file) = &options.file {
        let text = fs::read_to_string(file)?;
        sentences.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_string));
    }
    if sentences.is_empty() {
        return Err("no sentences: give some behind the options, or a --file".into());
    }
    let begin = Instant::now();
    let vectors = embed(&model, &tokenizer, &sentences, &options)?;
    let seconds = begin.elapsed().as_secs_f64();
    let query = embed(&model, &tokenizer, std::slice::from_ref(&options.query), &options)?;
    let similarity = vectors.matmul(&query.t()?)?.squeeze(-1)?.to_vec::<f32>()?;
    let mut order: Vec<usize> = (0..sentences.len()).collect();
    order.sort_by(|&a, &b| similarity[b].total_cmp(&similarity[a]));
    for &k in order.iter().take(options.count) {
        println!("{:.3}  {}", similarity[k], sentences[k]);
    }
    eprintln!(
        "[{} sentences, {:.1} a second on {device}]",
        sentences.len(),
        sentences.len() as f64 / seconds
    );
    Ok(())
}
