//! `/v1/completions`: texts that continue others.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use taper::models::text::TextOptions;

use super::{
    Identity, Server,
    answer::{self, Accepted, Format, Piece},
    chat::finite,
    failure::Failure,
    request::{Common, MAX_TOP_TOKENS},
    served::{Kind, Language},
    worker::Job,
};

/// The greatest number of prompts of a request.
const MAX_PROMPTS: usize = 64;

/// A text or its tokens, or several of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Many(Vec<Vec<u32>>),
}

#[derive(Deserialize)]
pub(super) struct CompletionRequest {
    #[serde(flatten)]
    common: Common,
    prompt: Prompt,
    logprobs: Option<usize>,
}

/// Continues texts.
pub(super) async fn answer(
    server: &Arc<Server>,
    mut request: CompletionRequest,
) -> Result<Response, Failure> {
    let place = server.pool.model(&request.common.model, Kind::Language).await?;
    let language = place.language()?;
    if request.logprobs.is_some_and(|count| count > MAX_TOP_TOKENS) {
        return Err(Failure::field("logprobs", format!("give at most {MAX_TOP_TOKENS}")));
    }
    let options = TextOptions { stop_words: request.common.stop_words()?, ..Default::default() };
    let (jobs, prompt_tokens) = tokio::task::block_in_place(|| {
        let prompts = prompts(language, &mut request)?;
        let mut jobs = Vec::new();
        for prompt in &prompts {
            let seed = server.random_seed();
            let config = request.common.generation(language, prompt.len(), &server.limits, seed)?;
            for choice in 0..request.common.choices()? {
                let mut config = config.clone();
                config.sampling.seed = config.sampling.seed.wrapping_add(choice as u64);
                let top_tokens = request.logprobs.unwrap_or(0);
                jobs.push(Job { prompt: prompt.clone(), config, top_tokens });
            }
        }
        Ok::<_, Failure>((jobs, prompts.iter().map(Vec::len).sum()))
    })?;
    let format = CompletionFormat {
        identity: server.identity("cmpl", place.name()),
        log_probabilities: request.logprobs.is_some(),
        texts: jobs.iter().map(|_| Text::default()).collect(),
    };
    let accepted = Accepted::submit(server, place, jobs, options, prompt_tokens, Vec::new()).await?;
    answer::respond(accepted, format, &request.common).await
}

/// The tokens of the prompts.
fn prompts(language: &Language, request: &mut CompletionRequest) -> Result<Vec<Vec<u32>>, Failure> {
    let encoded = |text: &String| {
        let encoded = language.tokenizer.encode(text, true);
        Ok(encoded.map_err(|error| Failure::field("prompt", error.kind().to_string()))?.ids)
    };
    let prompts = match std::mem::replace(&mut request.prompt, Prompt::Texts(Vec::new())) {
        Prompt::Text(text) => vec![encoded(&text)?],
        Prompt::Tokens(tokens) => vec![tokens],
        Prompt::Texts(texts) => texts.iter().map(encoded).collect::<Result<_, Failure>>()?,
        Prompt::Many(tokens) => tokens,
    };
    match prompts.len() {
        1..=MAX_PROMPTS => Ok(prompts),
        count => Err(Failure::field("prompt", format!("{count} prompts: give from 1 to {MAX_PROMPTS}"))),
    }
}

/// One of the texts of an answer.
#[derive(Default)]
struct Text {
    content: String,
    tokens: Tokens,
    finish: Option<&'static str>,
}

/// Tokens with their log-probabilities, in the shape of `/v1/completions`.
#[derive(Default)]
struct Tokens {
    texts: Vec<String>,
    log_probabilities: Vec<f64>,
    top: Vec<Json>,
    offsets: Vec<usize>,
}

impl Tokens {
    fn json(&self) -> Json {
        json!({
            "tokens": self.texts, "token_logprobs": self.log_probabilities, "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}

struct CompletionFormat {
    identity: Identity,
    log_probabilities: bool,
    texts: Vec<Text>,
}

impl CompletionFormat {
    fn choice(&self, index: usize, text: &str, tokens: &Tokens, finish: Option<&str>) -> Json {
        let log_probabilities = self.log_probabilities.then(|| tokens.json());
        json!({"index": index, "text": text, "logprobs": log_probabilities, "finish_reason": finish})
    }

    /// Adds a piece to its text, and gives its tokens.
    fn add(&mut self, piece: &Piece, language: &Language) -> Tokens {
        let text = &mut self.texts[piece.index];
        let mut tokens = Tokens::default();
        if let Some((token, top)) = piece.token.as_ref().filter(|_| self.log_probabilities) {
            let top = top.iter().map(|top| (language.token(top.id).0, json!(finite(top.log_probability))));
            tokens.top.push(top.collect::<Map<_, _>>().into());
            tokens.texts.push(language.token(token.id).0);
            tokens.log_probabilities.push(finite(token.log_probability));
            tokens.offsets.push(text.content.chars().count());
        }
        text.content.push_str(&piece.text);
        text.finish = piece.finish;
        tokens
    }
}

impl Format for CompletionFormat {
    fn begin(&mut self) -> Vec<Json> {
        Vec::new()
    }

    fn chunks(&mut self, piece: Piece, language: &Language) -> Vec<Json> {
        let tokens = self.add(&piece, language);
        if piece.text.is_empty() && tokens.texts.is_empty() && piece.finish.is_none() {
            return Vec::new();
        }
        let choice = self.choice(piece.index, &piece.text, &tokens, piece.finish);
        vec![self.identity.object("text_completion", json!([choice]))]
    }

    fn usage(&self, usage: Json) -> Json {
        let mut chunk = self.identity.object("text_completion", json!([]));
        chunk["usage"] = usage;
        chunk
    }

    fn collect(&mut self, piece: Piece, language: &Language) {
        let Tokens { texts, log_probabilities, top, offsets } = self.add(&piece, language);
        let tokens = &mut self.texts[piece.index].tokens;
        tokens.texts.extend(texts);
        tokens.log_probabilities.extend(log_probabilities);
        tokens.top.extend(top);
        tokens.offsets.extend(offsets);
    }

    fn whole(self, usage: Json) -> Json {
        let texts = self.texts.iter().enumerate();
        let choices = texts.map(|(index, text)| self.choice(index, &text.content, &text.tokens, text.finish));
        let mut whole = self.identity.object("text_completion", choices.collect());
        whole["usage"] = usage;
        whole
    }
}
