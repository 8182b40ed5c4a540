//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use taper::models::{generate::Token, pictures::Picture, text::TextOptions};

use super::{
    Identity, Server,
    answer::{self, Accepted, Format, Piece, TokenReport},
    failure::Failure,
    messages::Conversation,
    request::{Common, MAX_TOP_TOKENS},
    served::{Kind, Language},
    tools::{AnswerFilter, AnswerFormat, Call, Parts, Rules, Tools},
    worker::Job,
};

#[derive(Deserialize)]
pub(super) struct ChatRequest {
    #[serde(flatten)]
    common: Common,
    messages: Vec<Json>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    response_format: Option<Json>,
    tools: Option<Vec<Json>>,
    tool_choice: Option<Json>,
    /// Further variables of the chat template, such as `enable_thinking`.
    chat_template_kwargs: Option<Map<String, Json>>,
}

/// Answers a conversation.
pub(super) async fn answer(server: &Arc<Server>, mut request: ChatRequest) -> Result<Response, Failure> {
    let place = server.pool.model(&request.common.model, Kind::Language).await?;
    let language = place.language()?;
    let tools = Tools::parse(request.tools.take(), request.tool_choice.take())?;
    let top_tokens = match (request.logprobs.unwrap_or(false), request.top_logprobs) {
        (_, Some(count)) if count > MAX_TOP_TOKENS => {
            let message = format!("top_logprobs is {count}: give at most {MAX_TOP_TOKENS}");
            return Err(Failure::field("top_logprobs", message));
        }
        (false, Some(1..)) => return Err(Failure::field("top_logprobs", "it needs `logprobs: true`")),
        (_, count) => count.unwrap_or(0),
    };
    let written = AnswerFormat::of(&language.tokenizer, tools.is_some());
    let stop_words = request.common.stop_words()?;
    let options = TextOptions { stop_words, shown_tokens: written.shown_tokens(tools.is_some()) };
    // Long prompts and grammars take time: other requests go on.
    let (jobs, Prompt { tokens, pictures, is_reasoning_open }) = tokio::task::block_in_place(|| {
        let prompt = prompt(language, &mut request, tools.as_ref(), written)?;
        let seed = server.random_seed();
        let config = request.common.generation(language, prompt.tokens.len(), &server.limits, seed)?;
        let mut rules = Rules::new(&language.tokenizer, written);
        let demanded = match tools.as_ref().filter(|tools| tools.is_required()) {
            Some(tools) => Some(("tools", rules.call(tools)?)),
            None => response_rule(&mut rules, request.response_format.as_ref())?,
        };
        let grammar = demanded.map(|(param, part)| (param, rules.start(&part, prompt.is_reasoning_open)));
        let mut jobs = Vec::new();
        for choice in 0..request.common.choices()? {
            let mut config = config.clone();
            config.sampling.seed = config.sampling.seed.wrapping_add(choice as u64);
            config.logits_rule =
                grammar.as_ref().map(|(param, grammar)| language.rule(param, grammar)).transpose()?;
            jobs.push(Job { prompt: prompt.tokens.clone(), config, top_tokens });
        }
        Ok::<_, Failure>((jobs, prompt))
    })?;
    let texts = jobs.iter().map(|_| Text {
        filter: AnswerFilter::new(written, tools.as_ref(), is_reasoning_open),
        reasoning: String::new(),
        content: String::new(),
        calls: Vec::new(),
        log_probabilities: Vec::new(),
        finish: None,
    });
    let format = ChatFormat {
        identity: server.identity("chatcmpl", place.name()),
        written,
        log_probabilities: request.logprobs.unwrap_or(false),
        texts: texts.collect(),
    };
    let accepted = Accepted::submit(server, place, jobs, options, tokens.len(), pictures).await?;
    answer::respond(accepted, format, &request.common).await
}

/// The tokens of a conversation.
struct Prompt {
    tokens: Vec<u32>,
    pictures: Vec<Picture>,
    /// Whether they begin the reasoning of the answer.
    is_reasoning_open: bool,
}

/// The prompt of a conversation, by the model's chat template.
fn prompt(
    language: &Language,
    request: &mut ChatRequest,
    tools: Option<&Tools>,
    written: AnswerFormat,
) -> Result<Prompt, Failure> {
    let reader = language.pictures.as_ref();
    let conversation = Conversation::new(std::mem::take(&mut request.messages), written, reader)?;
    let Conversation { messages, pictures, .. } = conversation;
    let mut variables = request.chat_template_kwargs.take().unwrap_or_default();
    variables.insert("messages".to_string(), messages.into());
    if let Some(tools) = tools {
        variables.insert("tools".to_string(), tools.definitions().into());
    }
    let tokenizer = &language.tokenizer;
    let wrong = |error: taper::Error| Failure::field("messages", error.kind().to_string());
    let text = tokenizer.chat_with(&[], true, &variables).map_err(wrong)?;
    let (tokens, pictures) = match reader {
        Some(reader) => reader
            .prompt(tokenizer, &text, &pictures)
            .map_err(|error| Failure::field("messages", crate::error::line(&*error)))?,
        None => (tokenizer.encode(&text, false).map_err(wrong)?.ids, Vec::new()),
    };
    Ok(Prompt { tokens, pictures, is_reasoning_open: written.is_reasoning_open(&text) })
}

/// The rule of `response_format`, with its parameter.
fn response_rule(
    rules: &mut Rules<'_>,
    format: Option<&Json>,
) -> Result<Option<(&'static str, String)>, Failure> {
    let param = "response_format";
    let wrong = |message: &str| Failure::field(param, message);
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    let any = json!({"type": "object"});
    let schema = match format.get("type").and_then(Json::as_str) {
        Some("text") => return Ok(None),
        Some("json_object") => &any,
        Some("json_schema") => {
            format.pointer("/json_schema/schema").ok_or_else(|| wrong("there is no json_schema.schema"))?
        }
        _ => return Err(wrong("give the type \"text\", \"json_object\" or \"json_schema\"")),
    };
    Ok(Some((param, rules.json(param, schema)?)))
}

/// One of the texts of an answer.
struct Text {
    filter: AnswerFilter,
    reasoning: String,
    content: String,
    calls: Vec<Call>,
    log_probabilities: Vec<Json>,
    finish: Option<&'static str>,
}

/// The addition of a piece to a text.
struct Added {
    parts: Parts,
    log_probability: Option<Json>,
    finish: Option<&'static str>,
}

struct ChatFormat {
    identity: Identity,
    written: AnswerFormat,
    log_probabilities: bool,
    texts: Vec<Text>,
}

impl ChatFormat {
    fn added(&mut self, piece: Piece, language: &Language) -> Added {
        let reported = piece.token.filter(|_| self.log_probabilities);
        let filter = &mut self.texts[piece.index].filter;
        let mut added = Added {
            parts: filter.push(&piece.text),
            log_probability: reported.map(|token| log_probability(&token, language)),
            finish: piece.finish,
        };
        if added.finish.is_some() {
            let rest = filter.finish();
            added.parts.reasoning.push_str(&rest.reasoning);
            added.parts.content.push_str(&rest.content);
            added.parts.calls = rest.calls;
        }
        if !added.parts.calls.is_empty() && added.finish == Some("stop") {
            added.finish = Some("tool_calls");
        }
        added
    }

    fn chunk(&self, index: usize, delta: Json, log_probability: Option<Json>, finish: Option<&str>) -> Json {
        let log_probabilities = log_probability.map(|token| json!({"content": [token], "refusal": null}));
        let choice = json!({
            "index": index, "delta": delta, "logprobs": log_probabilities, "finish_reason": finish,
        });
        self.identity.object("chat.completion.chunk", json!([choice]))
    }

    fn call(&self, text: usize, number: usize, call: &Call) -> Json {
        let id = self.written.call_id(&self.identity, text, number);
        let function = json!({"name": call.name, "arguments": call.arguments});
        json!({"id": id, "type": "function", "function": function})
    }
}

impl Format for ChatFormat {
    fn begin(&mut self) -> Vec<Json> {
        let delta = json!({"role": "assistant", "content": ""});
        (0..self.texts.len()).map(|index| self.chunk(index, delta.clone(), None, None)).collect()
    }

    fn chunks(&mut self, piece: Piece, language: &Language) -> Vec<Json> {
        let index = piece.index;
        let Added { parts, log_probability, finish } = self.added(piece, language);
        let Parts { reasoning, content, calls } = parts;
        let mut chunks = Vec::new();
        if !reasoning.is_empty() {
            chunks.push(self.chunk(index, json!({"reasoning_content": reasoning}), None, None));
        }
        if !content.is_empty() || log_probability.is_some() {
            chunks.push(self.chunk(index, json!({"content": content}), log_probability, None));
        }
        for (number, call) in calls.iter().enumerate() {
            let mut call = self.call(index, number, call);
            call["index"] = json!(number);
            chunks.push(self.chunk(index, json!({"tool_calls": [call]}), None, None));
        }
        if finish.is_some() {
            chunks.push(self.chunk(index, json!({}), None, finish));
        }
        chunks
    }

    fn usage(&self, usage: Json) -> Json {
        let mut chunk = self.identity.object("chat.completion.chunk", json!([]));
        chunk["usage"] = usage;
        chunk
    }

    fn collect(&mut self, piece: Piece, language: &Language) {
        let index = piece.index;
        let added = self.added(piece, language);
        let text = &mut self.texts[index];
        text.reasoning.push_str(&added.parts.reasoning);
        text.content.push_str(&added.parts.content);
        text.calls.extend(added.parts.calls);
        text.log_probabilities.extend(added.log_probability);
        text.finish = added.finish;
    }

    fn whole(self, usage: Json) -> Json {
        let choices = self.texts.iter().enumerate().map(|(index, text)| {
            let mut message = json!({"role": "assistant", "content": text.content, "refusal": null});
            if !text.reasoning.is_empty() {
                message["reasoning_content"] = json!(text.reasoning);
            }
            if !text.calls.is_empty() {
                let calls = text.calls.iter().enumerate();
                message["tool_calls"] = calls.map(|(number, call)| self.call(index, number, call)).collect();
                if text.content.trim().is_empty() {
                    message["content"] = Json::Null;
                }
            }
            let tokens =
                self.log_probabilities.then(|| json!({"content": text.log_probabilities, "refusal": null}));
            json!({"index": index, "message": message, "logprobs": tokens, "finish_reason": text.finish})
        });
        let mut whole = self.identity.object("chat.completion", choices.collect());
        whole["usage"] = usage;
        whole
    }
}

/// A token with its log-probability and those of the most likely tokens.
fn log_probability((token, top): &TokenReport, language: &Language) -> Json {
    let entry = |token: &Token| {
        let (text, bytes) = language.token(token.id);
        json!({"token": text, "logprob": finite(token.log_probability), "bytes": bytes})
    };
    let mut whole = entry(token);
    whole["top_logprobs"] = top.iter().map(entry).collect();
    whole
}

/// JSON has no infinity: tokens that cannot follow have OpenAI's −9999.
pub(super) fn finite(log_probability: f64) -> f64 {
    log_probability.max(-9999.0)
}
