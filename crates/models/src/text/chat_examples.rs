//! [`ChatExamples`]: conversations as data for fine-tuning, where only the answers are learnt.

use nn::{LinearCrossEntropyLoss, Reduction};
use serde::Deserialize;
use tensor_core::{Device, Error, ErrorKind, Result, Tensor};

use super::{Message, Tokenizer};
use crate::LanguageModel;

const OP: &str = "ChatExamples";

/// The label that does not count: `ignore_index` of PyTorch's `cross_entropy`.
const IGNORED: i32 = -100;
/// Lengths and numbers of labels are rounded up to a multiple of this, so that few plans are made.
const SIZE_MULTIPLE: usize = 16;

/// The tokens of a conversation, and for each token whether it belongs to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatExample {
    ids: Vec<u32>,
    answers: Vec<bool>,
}

impl ChatExample {
    /// The tokens of a conversation by the tokenizer's chat template. The tokens of an answer are those that
    /// the conversation up to it has more than the prompt that asks for it, so that they include the token
    /// that ends an answer.
    ///
    /// # Errors
    /// A template that refuses the messages or does not end with the answer; a conversation without an answer
    /// (a message of the role `assistant`).
    #[track_caller]
    pub fn new(messages: &[Message], tokenizer: &Tokenizer) -> Result<ChatExample> {
        let tokens = |messages: &[Message], prompt: bool| -> Result<Vec<u32>> {
            Ok(tokenizer.encode(&tokenizer.chat(messages, prompt)?, false)?.ids)
        };
        let ids = tokens(messages, false)?;
        let mut answers = vec![false; ids.len()];
        for (k, message) in messages.iter().enumerate().filter(|(_, message)| message.role == "assistant") {
            let (begin, end) = (tokens(&messages[..k], true)?.len(), tokens(&messages[..=k], false)?.len());
            if begin >= end || end > ids.len() {
                let message = format!("the template does not end with the answer {:?}", message.content);
                return Err(Error::invalid(OP, message));
            }
            answers[begin..end].fill(true);
        }
        ChatExample::from_tokens(ids, answers)
    }

    /// Tokens, and for each whether it belongs to an answer.
    ///
    /// # Errors
    /// Two lengths, or no token of an answer after the first token: there would be nothing to learn.
    #[track_caller]
    pub fn from_tokens(ids: Vec<u32>, answers: Vec<bool>) -> Result<ChatExample> {
        if ids.len() != answers.len() {
            let message = format!("{} tokens, and a mask of {}", ids.len(), answers.len());
            return Err(Error::invalid(OP, message));
        }
        if !answers.iter().skip(1).any(|&is_answer| is_answer) {
            return Err(Error::invalid(OP, "there is no answer, of which alone the model learns"));
        }
        Ok(ChatExample { ids, answers })
    }

    /// The tokens.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// For each token, whether it belongs to an answer.
    pub fn answers(&self) -> &[bool] {
        &self.answers
    }

    /// The number of tokens that the model learns to predict: those of answers, without a first token.
    pub fn answer_tokens(&self) -> usize {
        self.answers.iter().skip(1).filter(|&&is_answer| is_answer).count()
    }
}

/// Conversations as data for fine-tuning.
///
/// ```
/// use models::text::{ChatExample, ChatExamples};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// // `ChatExamples::from_json_lines(&text, &tokenizer)?` reads a file; here a prompt of 2 tokens.
/// let example = ChatExample::from_tokens(vec![5, 6, 7, 8], vec![false, false, true, true])?;
/// let examples = ChatExamples::from(vec![example]);
/// let batch = examples.batch(&[0], &device)?;
/// // The label of a place is the token after it. The end is padding, and the prompt does not count.
/// assert_eq!(batch.ids().to_vec2::<i32>()?[0][..4], [5, 6, 7, 0]);
/// assert_eq!(batch.labels()?.to_vec2::<i32>()?[0][..4], [-100, 7, 8, -100]);
/// // let loss = batch.loss(&*model)?.div_scalar(batch.answer_tokens() as f64);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatExamples(Vec<ChatExample>);

impl ChatExamples {
    /// Reads conversations, one a line: `{"messages": [{"role": "user", "content": …}, …]}`.
    ///
    /// # Errors
    /// A line that is no conversation, by its number; the errors of [`ChatExample::new`]; no lines.
    #[track_caller]
    pub fn from_json_lines(text: &str, tokenizer: &Tokenizer) -> Result<ChatExamples> {
        #[derive(Deserialize)]
        struct Line {
            messages: Vec<Message>,
        }
        let mut examples = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |fault: String| Error::invalid(OP, format!("line {}: {fault}", number + 1));
            let Line { messages } = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            let example = ChatExample::new(&messages, tokenizer).map_err(|error| match error.kind() {
                ErrorKind::Invalid { op: OP, message } => wrong(message.clone()),
                _ => wrong(error.to_string()),
            });
            examples.push(example?);
        }
        match examples.is_empty() {
            true => Err(Error::invalid(OP, "there are no conversations")),
            false => Ok(ChatExamples(examples)),
        }
    }

    /// The tokens of conversations; see [`ChatExample::new`].
    ///
    /// # Errors
    /// As [`ChatExample::new`].
    #[track_caller]
    pub fn new<C: AsRef<[Message]>>(conversations: &[C], tokenizer: &Tokenizer) -> Result<ChatExamples> {
        let mut examples = Vec::with_capacity(conversations.len());
        for conversation in conversations {
            examples.push(ChatExample::new(conversation.as_ref(), tokenizer)?);
        }
        Ok(ChatExamples(examples))
    }

    /// The number of conversations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conversations, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, ChatExample> {
        self.0.iter()
    }

    /// The conversations with these numbers as one batch.
    ///
    /// # Errors
    /// A number that is not below [`ChatExamples::len`], or whatever the device reports.
    #[track_caller]
    pub fn batch(&self, numbers: &[usize], device: &Device) -> Result<ChatBatch> {
        let mut examples = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let example = self.0.get(number).ok_or_else(|| {
                Error::invalid(OP, format!("there is no conversation {number} of {}", self.len()))
            })?;
            examples.push(example);
        }
        ChatBatch::new(&examples, device)
    }
}

impl std::ops::Index<usize> for ChatExamples {
    type Output = ChatExample;

    fn index(&self, number: usize) -> &ChatExample {
        &self.0[number]
    }
}

impl From<Vec<ChatExample>> for ChatExamples {
    fn from(examples: Vec<ChatExample>) -> ChatExamples {
        ChatExamples(examples)
    }
}

impl IntoIterator for ChatExamples {
    type Item = ChatExample;
    type IntoIter = std::vec::IntoIter<ChatExample>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ChatExamples {
    type Item = &'a ChatExample;
    type IntoIter = std::slice::Iter<'a, ChatExample>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Conversations of different lengths side by side, padded to the right, where a decoder does not see it.
#[derive(Clone, Debug)]
pub struct ChatBatch {
    ids: Tensor,
    /// The places among `N · L` whose next token belongs to an answer, and these tokens: `[M]` each, padded
    /// with the place 0 and a label that does not count.
    places: Tensor,
    labels: Tensor,
    answer_tokens: usize,
}

impl ChatBatch {
    /// The conversations as one batch on a device.
    ///
    /// # Errors
    /// No conversations, or whatever the device reports.
    #[track_caller]
    pub fn new(examples: &[&ChatExample], device: &Device) -> Result<ChatBatch> {
        if examples.is_empty() {
            return Err(Error::invalid(OP, "a batch of no conversations"));
        }
        let longest = examples.iter().map(|example| example.ids.len()).max().unwrap_or(0);
        let length = longest.saturating_sub(1).next_multiple_of(SIZE_MULTIPLE);
        let mut ids = vec![0i32; examples.len() * length];
        let (mut places, mut labels) = (Vec::new(), Vec::new());
        for (row, ChatExample { ids: of_row, answers }) in examples.iter().enumerate() {
            for at in 0..of_row.len() - 1 {
                ids[row * length + at] = of_row[at] as i32;
                if answers[at + 1] {
                    places.push((row * length + at) as i32);
                    labels.push(of_row[at + 1] as i32);
                }
            }
        }
        let answer_tokens = labels.len();
        let count = answer_tokens.next_multiple_of(SIZE_MULTIPLE);
        places.resize(count, 0);
        labels.resize(count, IGNORED);
        Ok(ChatBatch {
            ids: Tensor::from_vec(ids, [examples.len(), length], device)?,
            places: Tensor::from_vec(places, [count], device)?,
            labels: Tensor::from_vec(labels, [count], device)?,
            answer_tokens,
        })
    }

    /// The tokens that the model reads, i32 `[N, L]`: each conversation without its last token, and zeros.
    pub fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// The labels `[N, L]` for a loss of one's own: at each place the token after it if that belongs to an
    /// answer, and else −100, which `cross_entropy` ignores. They are shifted already, unlike the labels of
    /// `transformers`.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    pub fn labels(&self) -> Result<Tensor> {
        let flat = self.ids.flatten(0, 1)?;
        let (places, labels) =
            (self.places.narrow(0, 0, self.answer_tokens)?, self.labels.narrow(0, 0, self.answer_tokens)?);
        flat.full_like(IGNORED).scatter(0, &places, &labels)?.reshape(self.ids.dims())
    }

    /// The number of tokens of answers, by which a mean loss divides.
    pub fn answer_tokens(&self) -> usize {
        self.answer_tokens
    }

    /// The sum of the losses of the answers' tokens. Only their hidden states reach the output layer, whose
    /// logits are never in memory all at once.
    ///
    /// # Errors
    /// The errors of the model.
    #[track_caller]
    pub fn loss<M: LanguageModel + ?Sized>(&self, model: &M) -> Result<Tensor> {
        let hidden = model.hidden(&self.ids, None)?;
        let rows = hidden.flatten(0, 1)?.index_select(0, &self.places)?;
        let loss = LinearCrossEntropyLoss { reduction: Reduction::Sum, ..Default::default() };
        loss.forward_with(&rows, &self.labels, |rows| model.logits(rows))
    }
}
