//! Conversations as data for fine-tuning, the step that learns from their answers alone, and a model's
//! answer to a question. Shared by `fine_tune_chat` and the page of examples/browser, where nothing may
//! block: so reads are awaited.

use taper::{
    models::{
        LanguageModel,
        generate::GenerationConfig,
        text::{Message, TextOptions, Tokenizer, generate_text},
    },
    nn::{LinearCrossEntropyLoss, Reduction},
    optim::Optimizer,
    prelude::*,
};

/// The tokens of a conversation, and for each token whether it belongs to an answer.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    ids: Vec<u32>,
    answers: Vec<bool>,
}

/// Reads conversations, one a line: `{"messages": [{"role": "user", "content": …}, …]}`. The tokens of an
/// answer are those that a conversation has more than the prompt that asks for it, so that they end with the
/// token that ends an answer.
///
/// # Errors
/// A line that is no conversation, by its number; a template that does not end with an answer; no lines.
pub(crate) fn read(text: &str, tokenizer: &Tokenizer) -> Result<Vec<Example>> {
    #[derive(serde::Deserialize)]
    struct Line {
        messages: Vec<Message>,
    }
    let wrong = |message: String| Error::invalid("conversations", message);
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Line { messages } =
            serde_json::from_str(line).map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
        let tokens = |messages: &[Message], prompt: bool| -> Result<Vec<u32>> {
            Ok(tokenizer.encode(&tokenizer.chat(messages, prompt)?, false)?.ids)
        };
        let ids = tokens(&messages, false)?;
        let mut answers = vec![false; ids.len()];
        for (k, message) in messages.iter().enumerate().filter(|(_, message)| message.role == "assistant") {
            let (begin, end) = (tokens(&messages[..k], true)?.len(), tokens(&messages[..=k], false)?.len());
            if begin >= end || end > ids.len() {
                let message = &message.content;
                return Err(wrong(format!("the template does not end with the answer {message:?}")));
            }
            answers[begin..end].fill(true);
        }
        if !answers.iter().skip(1).any(|&is| is) {
            return Err(wrong(format!("line {}: there is no answer", number + 1)));
        }
        all.push(Example { ids, answers });
    }
    match all.is_empty() {
        true => Err(wrong("there are no conversations".into())),
        false => Ok(all),
    }
}

/// The label that does not count.
const IGNORED: i32 = -100;
/// Lengths and numbers of labels are rounded up to a multiple of this, so that few plans are made.
const ROUNDED: usize = 16;

/// Padded sequences: tokens `[N, L]`, the places among `N · L` whose next token belongs to an answer, and
/// these tokens, `[M]` each.
struct Batch {
    ids: Tensor,
    places: Tensor,
    labels: Tensor,
}

impl Batch {
    /// Padding is to the right, where a decoder does not see it.
    fn new(examples: &[&Example], device: &Device) -> Result<Batch> {
        let longest = examples.iter().map(|example| example.ids.len()).max().unwrap_or(0);
        let length = longest.saturating_sub(1).next_multiple_of(ROUNDED);
        let mut ids = vec![0i32; examples.len() * length];
        let (mut places, mut labels) = (Vec::new(), Vec::new());
        for (row, Example { ids: of_row, answers }) in examples.iter().enumerate() {
            for at in 0..of_row.len() - 1 {
                ids[row * length + at] = of_row[at] as i32;
                if answers[at + 1] {
                    places.push((row * length + at) as i32);
                    labels.push(of_row[at + 1] as i32);
                }
            }
        }
        let count = labels.len().next_multiple_of(ROUNDED);
        places.resize(count, 0);
        labels.resize(count, IGNORED);
        Ok(Batch {
            ids: Tensor::from_vec(ids, [examples.len(), length], device)?,
            places: Tensor::from_vec(places, [count], device)?,
            labels: Tensor::from_vec(labels, [count], device)?,
        })
    }

    /// The sum of the losses of the answers' tokens. Only their hidden states reach the output layer.
    fn loss(&self, model: &dyn LanguageModel) -> Result<Tensor> {
        let hidden = model.hidden(&self.ids, None)?;
        let rows = hidden.flatten(0, 1)?.index_select(0, &self.places)?;
        let loss = LinearCrossEntropyLoss { reduction: Reduction::Sum, ..Default::default() };
        loss.forward_with(&rows, &self.labels, |rows| model.logits(rows))
    }
}

/// The number of tokens of answers.
fn answer_tokens(group: &[&Example]) -> usize {
    group.iter().map(|example| example.answers[1..].iter().filter(|&&is| is).count()).sum()
}

/// One step of the optimizer on a group of conversations, `batch` of which are computed together. Returns
/// the sum of the losses of the answers' tokens, and their number.
///
/// # Errors
/// The errors of the device.
pub(crate) async fn step<O: Optimizer>(
    model: &dyn LanguageModel,
    optimizer: &mut O,
    group: &[&Example],
    batch: usize,
) -> Result<(f64, usize)> {
    let device = model.device();
    optimizer.zero_grad();
    // Each token of the group weighs the same, whatever batch it is in.
    let count = answer_tokens(group);
    let mut sum = 0.0;
    for examples in group.chunks(batch.max(1)) {
        let loss = Batch::new(examples, &device)?.loss(model)?;
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
pub(crate) fn mean_loss(model: &dyn LanguageModel, group: &[&Example]) -> Result<Tensor> {
    let loss = no_grad(|| Batch::new(group, &model.device())?.loss(model))?;
    Ok(loss.div_scalar(answer_tokens(group) as f64))
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
