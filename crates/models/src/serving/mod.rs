//! Many texts at the same time from one model: continuous batching.
//!
//! An [`Engine`] owns a model and takes requests at any time. Each [`Engine::step`] reads a part of a new
//! prompt, or a few short prompts, if any wait, and computes the next token of all running texts as one
//! batch. A text joins the batch when its prompt is read, and leaves it when it ends, without waiting for the
//! others.
//!
//! ```
//! use models::{Llama, LlamaConfig, serving::{Engine, EngineConfig, Event, Request}};
//! use tensor_core::Generator;
//! # fn main() -> tensor_core::Result<()> {
//! # let config = LlamaConfig { vocab_size: 50, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
//! #     num_attention_heads: 4, ..Default::default() };
//! # let device = backend_cpu::cpu();
//! let model = Llama::new(&config, &Generator::seed(0, &device))?;
//! let mut engine = Engine::new(Box::new(model), EngineConfig::default())?;
//! let first = engine.add(Request::new(vec![1, 2, 3], 5))?;
//! engine.add(Request::new(vec![4, 5], 2))?;
//! let mut text = Vec::new();
//! while !engine.is_idle() {
//!     for (request, event) in engine.step() {
//!         match event {
//!             Event::Token { token, .. } if request == first => text.push(token.id),
//!             Event::Failed(error) => return Err(error),
//!             Event::Token { .. } | Event::Finished(_) => {}
//!         }
//!     }
//! }
//! assert_eq!(text.len(), 5);
//! # Ok(()) }
//! ```
//!
//! The beginnings of texts are kept: a prompt that begins with the tokens of an earlier text, as the next
//! message of a conversation does, is read from there on ([`EngineConfig::kept_bytes`]).
//!
//! The texts of a batch may have different adapters beside the same weights ([`Engine::add_adapter`]).
//!
//! On the CPU, a model with weights in the block formats of GGUF gives each text the same bits beside any
//! others, whatever was kept of its beginning: prompts are read in steps of at most 64 tokens, and both
//! products and attention add the terms of a row in one order. Products of other weights add those of several
//! rows in another order than those of one, and so does attention on a GPU, so that logits differ there in
//! their last digits with the number of texts. A text is that of [`generate`](crate::generate::generate) to
//! the bit, if its prompt is read in one step, and alone where its company matters.

mod adapters;
mod kept;

use std::collections::VecDeque;

use autograd::no_grad;
use nn::lora::{Lora, with_rows};
use tensor_core::{Error, PackedRows, Result};

pub use self::adapters::AdapterId;
use self::{adapters::LoadedAdapters, kept::Kept};
use crate::{
    KvCache, LanguageModel,
    cache::{self, MAX_STEP_TOKENS},
    generate::{
        GenerationConfig, Sampler, TextSteps, Token, check_tokens, checked_scores, log_sum_exp, table,
    },
};

const OP: &str = "Engine";

/// The tokens of a prompt that take as long as reading the weights does: a shorter one takes no less time.
const MIN_PROMPT_COST: usize = 16;

/// A model that an engine can own.
pub type OwnedModel = Box<dyn LanguageModel + Send + Sync>;

/// Settings of an [`Engine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The greatest number of texts in a batch; 16 by default.
    pub max_sequences: usize,
    /// The number of tokens of prompts that are read in one step while other texts are written; 64 by
    /// default, and 64 at most where a text has the same bits beside others. More tokens make a prompt
    /// faster and the pauses of the others longer. A short prompt counts as 16 tokens, since the weights are
    /// read for it too.
    pub prompt_chunk: usize,
    /// The greatest number of positions, prompts and new tokens together, for which all running texts may
    /// need a cache; later requests wait. 131,072 by default.
    pub max_positions: usize,
    /// The bytes of keys and values of earlier texts that are kept, for prompts that begin with the same
    /// tokens; 256 MiB by default, and 0 keeps none.
    pub kept_bytes: usize,
    /// The form of the keys and values, which [`KvCache::packed`] describes; none by default. With one, the
    /// last digits of a text's logits depend on its company.
    pub packed: Option<PackedRows>,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            max_sequences: 16,
            prompt_chunk: 64,
            max_positions: 131_072,
            kept_bytes: 256 << 20,
            packed: None,
        }
    }
}

/// A text that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The tokens before the new ones.
    pub prompt: Vec<u32>,
    /// How many tokens follow, and how they are chosen.
    pub config: GenerationConfig,
    /// The number of most likely tokens that come with each chosen one.
    pub top_tokens: usize,
    /// The adapter by which the text is written; none for the model as it is.
    pub adapter: Option<AdapterId>,
}

impl Request {
    /// A request for at most `max_new_tokens` of the most likely tokens.
    pub fn new(prompt: Vec<u32>, max_new_tokens: usize) -> Request {
        let config = GenerationConfig { max_new_tokens, ..Default::default() };
        Request { prompt, config, top_tokens: 0, adapter: None }
    }
}

/// The number of a request, by which its events are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// News of a request.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new token.
    Token {
        /// The chosen token.
        token: Token,
        /// The most likely tokens at this place, the most likely one first, as many as were asked for.
        top: Vec<Token>,
    },
    /// The text has ended. It is the request's last event.
    Finished(FinishReason),
    /// The request failed. It is the request's last event.
    Failed(Error),
}

/// The reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// One of the request's stop tokens was chosen.
    Stop,
    /// The text has as many new tokens as the request allows.
    Length,
}

/// Counts of an engine since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Tokens of prompts that were read.
    pub read: usize,
    /// Tokens of prompts whose keys and values were kept from earlier texts.
    pub reused: usize,
    /// New tokens.
    pub written: usize,
    /// Steps of the batch, each of which gave a token to every text in it.
    pub batches: usize,
}

/// A text that is read or written.
struct Sequence {
    id: RequestId,
    request: Request,
    sampler: Sampler,
    generated: Vec<u32>,
}

/// The place of a text in the batch.
struct Writing {
    sequence: Sequence,
    /// Its row of the cache of the batch; none if it has one of its own yet.
    place: Place,
}

/// Where the keys and values of a text are.
enum Place {
    Row(usize),
    Own(Box<KvCache>),
}

/// Computes many texts at the same time by one model. See the [module](self).
pub struct Engine {
    model: OwnedModel,
    adapters: LoadedAdapters,
    config: EngineConfig,
    steps: TextSteps,
    /// The greatest number of tokens of a step that reads a prompt.
    step_tokens: usize,
    requests: u64,
    waiting: VecDeque<Sequence>,
    /// The text whose prompt is read, with what is read of it.
    reading: Option<(Sequence, KvCache)>,
    writing: Vec<Writing>,
    /// The keys and values of the batch.
    cache: KvCache,
    kept: Kept,
    counts: EngineCounts,
}

impl Engine {
    /// An engine without requests.
    ///
    /// # Errors
    /// No sequences, or no tokens in a part of a prompt.
    #[track_caller]
    pub fn new(model: OwnedModel, config: EngineConfig) -> Result<Engine> {
        if config.max_sequences == 0 || config.prompt_chunk == 0 {
            let message = format!(
                "{} sequences, parts of {} tokens: give at least one of each",
                config.max_sequences, config.prompt_chunk
            );
            return Err(Error::invalid(OP, message));
        }
        let has_same_bits = no_grad(|| cache::has_same_bits(&model.device()))?;
        Ok(Engine {
            step_tokens: if has_same_bits { MAX_STEP_TOKENS } else { usize::MAX },
            cache: model.new_cache().packed(config.packed)?,
            adapters: LoadedAdapters::new(&*model),
            model,
            kept: Kept::new(config.kept_bytes),
            config,
            steps: TextSteps::new(),
            requests: 0,
            waiting: VecDeque::new(),
            reading: None,
            writing: Vec::new(),
            counts: EngineCounts::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &(dyn LanguageModel + Send + Sync) {
        &*self.model
    }

    /// An empty cache for one of its texts.
    pub fn empty_cache(&self) -> KvCache {
        let mut cache = self.model.new_cache();
        cache.set_form(self.config.packed);
        cache
    }

    /// Takes an adapter out of the model's layers, such as one that [`weights::load_peft`] has added to
    /// [`Engine::model`]. Texts of requests with its number are written by it, in one batch with those of
    /// other adapters and of the model itself. Between the load and this call, `step` must not be called.
    ///
    /// # Errors
    /// The errors of [`RowAdapters::add`](nn::lora::RowAdapters::add), which takes adapters of linear layers
    /// by B·A alone.
    #[track_caller]
    pub fn add_adapter(&mut self, adapter: Lora) -> Result<AdapterId> {
        let id = self.adapters.add(adapter)?;
        // The noted steps have the matrices of the adapters before.
        self.steps = TextSteps::new();
        Ok(id)
    }

    /// Removes an adapter, now or with the end of the last text that has it. New requests with it are errors.
    pub fn remove_adapter(&mut self, id: AdapterId) {
        self.adapters.leave(id);
        self.kept.forget(id);
        self.remove_unused_adapters();
    }

    /// The number of adapters in memory.
    pub fn adapters(&self) -> usize {
        self.adapters.len()
    }

    fn remove_unused_adapters(&mut self) {
        let is_used = |id| {
            let reading = self.reading.iter().map(|(sequence, _)| sequence);
            let writing = self.writing.iter().map(|writing| &writing.sequence);
            self.waiting.iter().chain(reading).chain(writing).any(|text| text.request.adapter == Some(id))
        };
        if self.adapters.remove_unused(is_used) {
            self.steps = TextSteps::new();
        }
    }

    /// Takes a request, which begins when there is room for it.
    ///
    /// # Errors
    /// An empty prompt, a token that the model does not know, settings that [`Sampler::new`] refuses, a text
    /// that needs more positions than [`EngineConfig::max_positions`], and an adapter that was removed.
    #[track_caller]
    pub fn add(&mut self, request: Request) -> Result<RequestId> {
        check_tokens(OP, &*self.model, &request.prompt, 1)?;
        request.adapter.map_or(Ok(()), |id| self.adapters.check(id))?;
        let sampler = Sampler::new(&request.config.sampling)?;
        let id = RequestId(self.requests);
        let sequence = Sequence { id, request, sampler, generated: Vec::new() };
        if sequence.longest() > self.config.max_positions {
            let message = format!(
                "{} tokens and {} new ones, of at most {} positions: shorten the prompt or ask for less",
                sequence.request.prompt.len(),
                sequence.request.config.max_new_tokens,
                self.config.max_positions
            );
            return Err(Error::invalid(OP, message));
        }
        self.requests += 1;
        self.waiting.push_back(sequence);
        Ok(id)
    }

    /// Ends a request, which has no more events. One that has ended already is ignored.
    pub fn cancel(&mut self, id: RequestId) {
        self.waiting.retain(|sequence| sequence.id != id);
        self.writing.retain(|writing| writing.sequence.id != id);
        self.reading.take_if(|(sequence, _)| sequence.id == id);
    }

    /// Whether no request is open.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_none() && self.writing.is_empty()
    }

    /// The number of requests that have not begun.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of texts that are read or written.
    pub fn running(&self) -> usize {
        self.writing.len() + usize::from(self.reading.is_some())
    }

    /// The counts since the engine was made.
    pub fn counts(&self) -> EngineCounts {
        self.counts
    }

    /// Reads a part of a prompt or a few short prompts, and computes the next token of each running text. A
    /// request that fails is an event; the others go on, unless the model itself failed, which ends all
    /// running ones.
    pub fn step(&mut self) -> Vec<(RequestId, Event)> {
        let mut events = Vec::new();
        self.remove_unused_adapters();
        // Texts that join together cost one copy of the batch's tables.
        let mut room = self.config.prompt_chunk;
        while room > 0 {
            if self.reading.is_none() {
                self.begin(&mut events);
            }
            let Some(cost) = self.read(room, &mut events) else { break };
            room = room.saturating_sub(cost);
        }
        self.write(&mut events);
        events
    }

    /// Begins to read the prompt of the first waiting request, if there is room for it.
    fn begin(&mut self, events: &mut Vec<(RequestId, Event)>) {
        let Some(next) = self.waiting.front() else { return };
        let running = self.writing.iter().map(|writing| writing.sequence.longest());
        let longest = running.chain([next.longest()]).max().unwrap_or(0);
        let count = self.writing.len() + 1;
        let can_join = self.writing.is_empty() || self.cache_of_running().can_join();
        if count > self.config.max_sequences || count * longest > self.config.max_positions || !can_join {
            return;
        }
        let Some(sequence) = self.waiting.pop_front() else { return };
        if sequence.request.config.max_new_tokens == 0 {
            events.push((sequence.id, Event::Finished(FinishReason::Length)));
            return;
        }
        let cache = self.kept.beginning_of((sequence.request.adapter, &sequence.request.prompt));
        self.counts.reused += cache.as_ref().map_or(0, KvCache::len);
        self.reading = Some((sequence, cache.unwrap_or_else(|| self.empty_cache())));
    }

    /// The cache of some running text.
    fn cache_of_running(&self) -> &KvCache {
        let own = self.writing.iter().find_map(|writing| match &writing.place {
            Place::Own(cache) => Some(&**cache),
            Place::Row(_) => None,
        });
        own.unwrap_or(&self.cache)
    }

    /// Reads a part of the prompt that is read, of at most `room` tokens if other texts are written; its text
    /// is written from the next token on. Returns the cost in tokens; `None` if there is no prompt to read.
    fn read(&mut self, room: usize, events: &mut Vec<(RequestId, Event)>) -> Option<usize> {
        let (mut sequence, mut cache) = self.reading.take()?;
        let left = &sequence.request.prompt[cache.len()..];
        let room = if self.writing.is_empty() { usize::MAX } else { room };
        let part = left.len().min(room).min(self.step_tokens);
        let cost = Some(part.max(MIN_PROMPT_COST));
        let is_last = part == left.len();
        let adapters = self.adapters.rows([sequence.request.adapter].into_iter(), &*self.model);
        let logits = adapters.and_then(|adapters| {
            let step = || next_logits(&*self.model, &mut self.steps, &[&left[..part]], &mut cache);
            with_rows(adapters.as_ref(), step)
        });
        let logits = match logits {
            Ok(logits) => logits,
            Err(error) => {
                events.push((sequence.id, Event::Failed(error)));
                return cost;
            }
        };
        self.counts.read += part;
        if !is_last {
            self.reading = Some((sequence, cache));
            return cost;
        }
        self.kept.keep((sequence.request.adapter, &sequence.request.prompt), &cache);
        let ends = sequence.take(&logits, events);
        self.counts.written += sequence.generated.len();
        if !ends {
            self.writing.push(Writing { sequence, place: Place::Own(Box::new(cache)) });
        }
        cost
    }

    /// Computes the next token of each text that is written.
    fn write(&mut self, events: &mut Vec<(RequestId, Event)>) {
        if self.writing.is_empty() {
            // The last text has left: its keys and values are not needed.
            self.cache.clear();
            return;
        }
        let logits = self.gather().and_then(|()| {
            let rows: Vec<&[u32]> = self.writing.iter().map(|writing| writing.sequence.last()).collect();
            let adapters = self.writing.iter().map(|writing| writing.sequence.request.adapter);
            let adapters = self.adapters.rows(adapters, &*self.model)?;
            let step = || next_logits(&*self.model, &mut self.steps, &rows, &mut self.cache);
            with_rows(adapters.as_ref(), step)
        });
        let logits = match logits {
            Ok(logits) => logits,
            Err(error) => {
                let all = self.writing.drain(..);
                events.extend(all.map(|writing| (writing.sequence.id, Event::Failed(error.clone()))));
                self.cache.clear();
                return;
            }
        };
        self.counts.batches += 1;
        let before = events.len();
        let (kept, cache) = (&mut self.kept, &self.cache);
        let mut rows = logits.chunks_exact(self.model.vocab_size());
        self.writing.retain_mut(|writing| {
            let logits = rows.next().unwrap_or_default();
            let ends = writing.sequence.take(logits, events);
            if let (true, Place::Row(row)) = (ends, &writing.place) {
                // The token that was chosen last is not in the cache.
                let text = writing.sequence.text();
                let adapter = writing.sequence.request.adapter;
                kept.keep_row((adapter, &text[..cache.text_len(*row)]), cache, *row);
            }
            !ends
        });
        let tokens = events[before..].iter().filter(|(_, event)| matches!(event, Event::Token { .. }));
        self.counts.written += tokens.count();
    }

    /// Makes the cache of the batch have a row for each text that is written, in their order.
    fn gather(&mut self) -> Result<()> {
        let batch = self.cache.batch().unwrap_or(0);
        let in_order = self.writing.iter().enumerate().all(|(at, writing)| match writing.place {
            Place::Row(row) => row == at,
            Place::Own(_) => false,
        });
        if in_order && batch == self.writing.len() {
            return Ok(());
        }
        let only_row = [0];
        let mut rows: Vec<usize> = Vec::new();
        let mut own: Vec<&KvCache> = Vec::new();
        // Texts with a cache of their own came after those with a row.
        for writing in &self.writing {
            match &writing.place {
                Place::Row(row) => rows.push(*row),
                Place::Own(cache) => own.push(cache),
            }
        }
        if let ([cache], true) = (&own[..], rows.is_empty()) {
            self.cache = (*cache).clone();
        } else {
            let old = (!rows.is_empty()).then_some((&self.cache, &rows[..]));
            let parts: Vec<(&KvCache, &[usize])> =
                old.into_iter().chain(own.into_iter().map(|cache| (cache, &only_row[..]))).collect();
            self.cache = KvCache::regrouped(&parts)?;
        }
        for (at, writing) in self.writing.iter_mut().enumerate() {
            writing.place = Place::Row(at);
        }
        Ok(())
    }
}

/// The logits of the tokens after rows of the same length, which join the cache.
fn next_logits(
    model: &(dyn LanguageModel + Send + Sync),
    steps: &mut TextSteps,
    rows: &[&[u32]],
    cache: &mut KvCache,
) -> Result<Vec<f32>> {
    let ids = table(rows, &model.device())?;
    let logits = steps.next_logits(model, &ids, cache)?;
    cache.read(&logits)
}

impl Sequence {
    /// The number of positions of the whole text at most.
    fn longest(&self) -> usize {
        self.request.prompt.len() + self.request.config.max_new_tokens
    }

    /// The last token, as a row of a batch.
    fn last(&self) -> &[u32] {
        let text = if self.generated.is_empty() { &self.request.prompt } else { &self.generated };
        &text[text.len() - 1..]
    }

    /// The tokens so far.
    fn text(&self) -> Vec<u32> {
        [&self.request.prompt[..], &self.generated].concat()
    }

    /// Chooses the next token by its logits. Returns whether the text has ended.
    fn take(&mut self, logits: &[f32], events: &mut Vec<(RequestId, Event)>) -> bool {
        let chosen = self.chosen(logits);
        let config = &self.request.config;
        let event = match chosen {
            Ok((token, top)) if !config.stop_tokens.contains(&token.id) => {
                self.generated.push(token.id);
                events.push((self.id, Event::Token { token, top }));
                if self.generated.len() < config.max_new_tokens {
                    return false;
                }
                Event::Finished(FinishReason::Length)
            }
            Ok(_) => Event::Finished(FinishReason::Stop),
            Err(error) => Event::Failed(error),
        };
        events.push((self.id, event));
        true
    }

    /// The next token, and the most likely ones.
    fn chosen(&mut self, logits: &[f32]) -> Result<(Token, Vec<Token>)> {
        let Request { prompt, config, top_tokens, .. } = &self.request;
        let logits = config.ruled(logits, prompt, &self.generated)?;
        let (id, log_probability) = self.sampler.next(&logits, prompt, &self.generated)?;
        Ok((Token { id, log_probability }, most_likely(&logits, *top_tokens)?))
    }
}

/// The most likely tokens, the most likely one first.
fn most_likely(logits: &[f32], count: usize) -> Result<Vec<Token>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let scores = checked_scores(OP, logits)?;
    let normalizer = log_sum_exp(&scores);
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let falling = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    let count = count.min(order.len());
    if count < order.len() {
        order.select_nth_unstable_by(count, falling);
        order.truncate(count);
    }
    order.sort_unstable_by(falling);
    let of = |id: u32| Token { id, log_probability: scores[id as usize] - normalizer };
    Ok(order.into_iter().map(of).collect())
}
