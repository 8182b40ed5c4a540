//! The step that learns from the answers of conversations alone, and a model's answer to a question. Shared
//! by `taper fine-tune` and the page of examples/browser, where nothing may block: so reads are awaited.

use taper::{
    models::{
        LanguageModel,
        generate::GenerationConfig,
        text::{ChatBatch, ChatExample, Message, TextOptions, Tokenizer, generate_text},
    },
    optim::Optimizer,
    prelude::*,
};

/// One step of the optimizer on a group of conversations, `batch` of which are computed together. Returns
/// the sum of the losses of the answers' tokens, and their number.
///
/// # Errors
/// The errors of the device.
pub(crate) async fn step<O: Optimizer>(
    model: &dyn LanguageModel,
    optimizer: &mut O,
    group: &[&ChatExample],
    batch: usize,
) -> Result<(f64, usize)> {
    let device = model.device();
    optimizer.zero_grad();
    // Each token of the group weighs the same, whatever batch it is in.
    let count: usize = group.iter().map(|example| example.answer_tokens()).sum();
    let mut sum = 0.0;
    for examples in group.chunks(batch.max(1)) {
        let loss = ChatBatch::new(examples, &device)?.loss(model)?;
        loss.div_scalar(count as f64).backward()?;
        sum += f64::from(loss.item_async::<f32>().await?);
    }
    optimizer.step()?;
    Ok((sum, count))
}

/// The mean loss of the answers' tokens, without a step: a tensor that is computed when it is read.
///
/// # Errors
/// The errors of the device.
#[allow(dead_code)] // only the page asks for it
pub(crate) fn mean_loss(model: &dyn LanguageModel, group: &[&ChatExample]) -> Result<Tensor> {
    let batch = ChatBatch::new(group, &model.device())?;
    let loss = no_grad(|| batch.loss(model))?;
    Ok(loss.div_scalar(batch.answer_tokens() as f64))
}

/// The examples in the order of an epoch, which depends on the seed and the epoch alone.
///
/// # Errors
/// The errors of the device.
pub(crate) fn shuffled(count: usize, seed: u64, epoch: usize) -> Result<Vec<usize>> {
    let rng = Generator::seed(seed.wrapping_mul(1_000_003).wrapping_add(epoch as u64), &taper::cpu());
    let order = Tensor::randperm(count, &rng)?.to_f64_vec()?;
    Ok(order.into_iter().map(|place| place as usize).collect())
}

/// The model's answer to a question, the most likely token each time. `tell` gets each piece of the text as
/// it comes.
///
/// # Errors
/// A question that the tokenizer or its template refuses; the errors of the device.
pub(crate) async fn answer(
    model: &dyn LanguageModel,
    tokenizer: &Tokenizer,
    question: &str,
    max_new_tokens: usize,
    mut tell: impl AsyncFnMut(&str),
) -> Result<String> {
    let prompt = tokenizer.encode(&tokenizer.chat(&[Message::user(question)], true)?, false)?.ids;
    let config = GenerationConfig {
        max_new_tokens,
        stop_tokens: tokenizer.end_tokens().to_vec(),
        ..Default::default()
    };
    let text = TextOptions::default();
    let mut pieces = generate_text(model, tokenizer, model.new_cache(), &prompt, &config, &text)?;
    let mut answer = String::new();
    while let Some(piece) = pieces.next_async().await {
        let piece = piece?;
        tell(&piece).await;
        answer.push_str(&piece);
    }
    Ok(answer)
}
