//! A language model from a GGUF file that learns a style of answers, by
//! the same steps as `taper fine-tune`.

#[path = "../../../crates/cli/src/language/conversations.rs"]
mod conversations;

use taper::{
    models::{
        LanguageModel, Llama,
        text::{ChatExample, ChatExamples, Tokenizer},
    },
    nn::lora::{self, Lora, LoraConfig, Targets},
    prelude::*,
};

const OP: &str = "FineTuning";
const SEED: u64 = 0;
const RANK: usize = 8;
const ALPHA: f64 = 16.0;
/// The conversations of a step.
const GROUP: usize = 4;
/// The conversations that are computed together.
const BATCH: usize = 2;
/// The tokens of an answer, at most.
const ANSWER_TOKENS: usize = 80;
/// The largest file, in bytes. A page has 4 GiB of memory, which hold the file, the weights that are read
/// from it, and the activations.
const MAX_FILE_BYTES: usize = 1 << 30;

/// A fine-tuning: a model whose weights stay as they are, an adapter beside them, and conversations.
pub struct FineTuning {
    model: Llama,
    tokenizer: Tokenizer,
    adapter: Lora,
    optimizer: AdamW,
    data: ChatExamples,
    /// The conversations that the epoch still has.
    waiting: Vec<usize>,
    epochs: usize,
}

/// The results of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The mean loss of the answers' tokens, before the step.
    pub loss: f64,
    /// The number of epochs that have ended.
    pub epochs: usize,
}

impl FineTuning {
    /// A model from the bytes of a GGUF file, conversations as in `examples/language/ships_log.jsonl`, and
    /// the learning rate.
    ///
    /// # Errors
    /// Bytes that are no GGUF file of a known decoder with a tokenizer and a chat template; a file, or a
    /// tensor of it, that is too large for the page or the device; lines that are no conversations; the
    /// errors of the device.
    pub fn new(gguf: Vec<u8>, conversations: &str, lr: f64, device: &Device) -> Result<FineTuning> {
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if !gguf.starts_with(b"GGUF") {
            return wrong("this is no GGUF file: it does not begin with the letters GGUF".into());
        }
        if gguf.len() > MAX_FILE_BYTES {
            let [size, limit] = [gguf.len(), MAX_FILE_BYTES].map(|bytes| bytes / 1_000_000);
            return wrong(format!("this file has {size} MB, and a page has memory for files of {limit} MB"));
        }
        let file = taper::weights::from_bytes(gguf)?;
        let limit = device.info().limits.max_buffer_bytes;
        for (name, info) in file.tensors() {
            if let Some(bytes) = info.bytes().filter(|bytes| *bytes > limit) {
                let [size, limit] = [bytes, limit].map(|bytes| bytes / 1_000_000);
                return wrong(format!("{name} has {size} MB, and this device takes tensors of {limit} MB"));
            }
        }
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let data = ChatExamples::from_json_lines(conversations, &tokenizer)?;
        // The file's blocks are put in order on the host.
        let mut model = Llama::from_gguf(file, &taper::cpu())?;
        model.to(device)?;
        let config = LoraConfig::new(RANK).alpha(ALPHA).targets(Targets::AllLinear);
        let adapter = lora::attach(&model, &config, &Generator::seed(SEED, &taper::cpu()))?;
        let config = AdamWConfig { lr, weight_decay: 0.0, ..Default::default() };
        let optimizer = AdamW::new(adapter.parameters(), config);
        Ok(FineTuning { model, tokenizer, adapter, optimizer, data, waiting: Vec::new(), epochs: 0 })
    }

    /// The model, whose own weights no step changes.
    pub fn model(&self) -> &Llama {
        &self.model
    }

    /// The number of the model's parameters, those of the adapter included.
    pub fn parameters(&self) -> usize {
        self.model.num_parameters()
    }

    /// The greatest number of bytes that tensors have taken on the device.
    pub fn peak_bytes(&self) -> u64 {
        self.model.device().memory().peak
    }

    /// The number of trained parameters, which are the adapter's.
    pub fn trained_parameters(&self) -> usize {
        self.adapter.num_parameters()
    }

    /// The steps of an epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.data.len().div_ceil(GROUP)
    }

    /// Makes a step on the next conversations.
    ///
    /// # Errors
    /// The errors of the device.
    pub async fn step(&mut self) -> Result<Step> {
        if self.waiting.is_empty() {
            self.waiting = conversations::shuffled(self.data.len(), SEED, self.epochs)?;
        }
        let rest = self.waiting.split_off(GROUP.min(self.waiting.len()));
        let group: Vec<&ChatExample> = self.waiting.iter().map(|&place| &self.data[place]).collect();
        self.model.train();
        let (sum, tokens) = conversations::step(&self.model, &mut self.optimizer, &group, BATCH).await?;
        self.waiting = rest;
        self.epochs += usize::from(self.waiting.is_empty());
        Ok(Step { loss: sum / tokens as f64, epochs: self.epochs })
    }

    /// The answer to a question, with or without the adapter. `tell` gets each piece of the text.
    ///
    /// # Errors
    /// A question that the template refuses; the errors of the device.
    pub async fn answer(&self, question: &str, adapted: bool, tell: impl AsyncFnMut(&str)) -> Result<String> {
        self.model.eval();
        if !adapted {
            lora::activate(&self.model, None)?;
        }
        let (model, tokenizer) = (&self.model, &self.tokenizer);
        let answer = conversations::answer(model, tokenizer, question, ANSWER_TOKENS, tell).await;
        self.adapter.activate()?;
        answer
    }

    /// The mean loss of the first conversations without the adapter. It stays the same, because the model's
    /// own weights do.
    ///
    /// # Errors
    /// The errors of the device.
    pub async fn base_loss(&self) -> Result<f64> {
        let group: Vec<&ChatExample> = self.data.iter().take(GROUP).collect();
        let loss = self.adapter.disabled(|| conversations::mean_loss(&self.model, &group))??;
        Ok(loss.item_async::<f32>().await?.into())
    }
}
