//! `taper embed`: sentences as vectors, and the sentences with the nearest meaning.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Args;
use serde_json::json;
use taper::{
    models::{Bert, text::Tokenizer},
    prelude::*,
};

use crate::{
    error::Outcome,
    model::{self, DeviceOption},
    output,
};

/// Prints the vector of each sentence, or with `--query` the sentences with the nearest meaning.
///
/// The model is a BERT, RoBERTa or DistilBERT. A vector is the mean of the states of a sentence's tokens, of
/// length 1. Without sentences, each line of the input is one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper embed all-MiniLM-L6-v2 'A sentence.' 'Another one.' --json
  taper embed all-MiniLM-L6-v2 --query 'Someone is eating.' 'A man has bread.' 'The gradient of a sum.'
  taper embed sentence-transformers/all-MiniLM-L6-v2 --query 'the licence' < README.md")]
pub(crate) struct Options {
    /// A folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// The sentences; without any, the lines of the input
    sentences: Vec<String>,
    /// A sentence to which the others are compared
    #[arg(long)]
    query: Option<String>,
    /// How many of the nearest sentences are printed
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// Sentences of one batch
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Longer sentences are cut to this number of tokens
    #[arg(long, default_value_t = 256)]
    max_length: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceOption,
}

/// The vectors `[N, features]` of sentences, of length 1.
fn embed(model: &Bert, tokenizer: &Tokenizer, sentences: &[String], options: &Options) -> Result<Tensor> {
    let device = model.parameters()[0].device();
    let mut parts = Vec::new();
    for batch in sentences.chunks(options.batch_size.max(1)) {
        let (ids, mask) = tokenizer.encode_batch(batch, options.max_length, &device)?;
        let vectors = no_grad(|| model.sentence_vectors(&ids, &mask))?;
        vectors.eval()?;
        parts.push(vectors);
    }
    Tensor::concat(&parts, 0)
}

/// Prints the vectors, or the nearest sentences.
pub(crate) fn run(options: &Options) -> Outcome {
    let device = options.device.open()?;
    let path = model::find(&options.model)?;
    let model = Bert::from_folder(&path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    let mut sentences = options.sentences.clone();
    if sentences.is_empty() {
        let lines = io::stdin().lines().collect::<io::Result<Vec<String>>>()?;
        sentences = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    }
    if sentences.is_empty() {
        return Err("there are no sentences; give them after the model, or one a line in the input".into());
    }
    let begin = Instant::now();
    let vectors = embed(&model, &tokenizer, &sentences, options)?;
    let rate = sentences.len() as f64 / begin.elapsed().as_secs_f64();
    eprintln!("[{} sentences, {rate:.1} a second on {device}]", sentences.len());
    match &options.query {
        Some(query) => {
            let query = embed(&model, &tokenizer, std::slice::from_ref(query), options)?;
            nearest(&sentences, &vectors, &query, options)
        }
        None => print(&sentences, &vectors, options.json),
    }
}

/// Prints the sentences whose vectors have the greatest products with the query's.
fn nearest(sentences: &[String], vectors: &Tensor, query: &Tensor, options: &Options) -> Outcome {
    let similarity = vectors.matmul(&query.t()?)?.squeeze(-1)?.to_vec::<f32>()?;
    let mut order: Vec<usize> = (0..sentences.len()).collect();
    order.sort_by(|&a, &b| similarity[b].total_cmp(&similarity[a]));
    order.truncate(options.count);
    if options.json {
        let found = order.iter().map(|&k| json!({"text": sentences[k], "similarity": similarity[k]}));
        return output::json(&found.collect());
    }
    let mut out = io::stdout().lock();
    for k in order {
        writeln!(out, "{:.3}  {}", similarity[k], sentences[k])?;
    }
    Ok(())
}

/// Prints the vector of each sentence: its numbers on a line, or an object with the text.
fn print(sentences: &[String], vectors: &Tensor, as_json: bool) -> Outcome {
    let vectors = vectors.to_vec2::<f32>()?;
    if as_json {
        let found =
            sentences.iter().zip(&vectors).map(|(text, vector)| json!({"text": text, "vector": vector}));
        return output::json(&found.collect());
    }
    let mut out = io::stdout().lock();
    for vector in vectors {
        let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
        writeln!(out, "{}", numbers.join(" "))?;
    }
    Ok(())
}
