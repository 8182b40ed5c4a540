//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use taper::models::{generate::Token, guidance::Grammar};

use super::{
    Identity, Server,
    answer::{self, Accepted, Format, Piece, TokenReport},
    failure::Failure,
    request::{Common, MAX_TOP_TOKENS},
    served::{Kind, Language},
    tools::{Call, CallFilter, Tools},
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
    let stop_words = request.common.stop_words()?;
    // Long prompts and grammars take time: other requests go on.
    let (jobs, prompt_tokens) = tokio::task::block_in_place(|| {
        let prompt = prompt(language, &mut request, tools.as_ref())?;
        let seed = server.random_seed();
        let config = request.common.generation(language, prompt.len(), &server.limits, seed)?;
        let call = tools.as_ref().map(Tools::grammar).transpose()?.flatten().map(|call| ("tools", call));
        let format = response_grammar(request.response_format.as_ref())?;
        let grammar = call.or(format.map(|grammar| ("response_format", grammar)));
        let mut jobs = Vec::new();
        for choice in 0..request.common.choices()? {
            let mut config = config.clone();
            config.sampling.seed = config.sampling.seed.wrapping_add(choice as u64);
            config.logits_rule =
                grammar.as_ref().map(|(param, grammar)| language.rule(param, grammar)).transpose()?;
            jobs.push(Job { prompt: prompt.clone(), config, top_tokens });
        }
        Ok::<_, Failure>((jobs, prompt.len()))
    })?;
    let texts = jobs.iter().map(|_| Text {
        filter: tools.as_ref().map(Tools::filter),
        content: String::new(),
        calls: Vec::new(),
        log_probabilities: Vec::new(),
        finish: None,
    });
    let format = ChatFormat {
        identity: server.identity("chatcmpl", &place.name),
        log_probabilities: request.logprobs.unwrap_or(false),
        texts: texts.collect(),
    };
    let accepted = Accepted::submit(server, place, jobs, stop_words, prompt_tokens).await?;
    answer::respond(accepted, format, &request.common).await
}

/// The tokens of a conversation, by the model's chat template.
fn prompt(
    language: &Language,
    request: &mut ChatRequest,
    tools: Option<&Tools>,
) -> Result<Vec<u32>, Failure> {
    if request.messages.is_empty() {
        return Err(Failure::field("messages", "there are no messages"));
    }
    let messages = std::mem::take(&mut request.messages);
    let messages = messages.into_iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let mut variables = request.chat_template_kwargs.take().unwrap_or_default();
    variables.insert("messages".to_string(), messages.into());
    if let Some(tools) = tools {
        variables.insert("tools".to_string(), tools.definitions().into());
    }
    let text = language.tokenizer.chat_with(&[], true, &variables);
    let text = text.map_err(|error| Failure::field("messages", error.kind().to_string()))?;
    let encoded = language.tokenizer.encode(&text, false);
    Ok(encoded.map_err(|error| Failure::field("messages", error.kind().to_string()))?.ids)
}

/// A message as chat templates expect it: the content is a text, and the arguments of calls are objects.
fn message(mut message: Json) -> Result<Json, Failure> {
    let wrong = |message: &str| Failure::field("messages", message);
    let fields = message.as_object_mut().ok_or_else(|| wrong("a message must be an object"))?;
    let role =
        fields.get("role").and_then(Json::as_str).ok_or_else(|| wrong("a message must have a role"))?;
    if role == "developer" {
        fields.insert("role".to_string(), json!("system"));
    }
    let content = match fields.remove("content") {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text,
        Some(Json::Array(parts)) => {
            let texts = parts.iter().map(|part| part.get("text").and_then(Json::as_str));
            let whole: Option<String> = texts.collect();
            whole.ok_or_else(|| wrong("this server reads only parts of the type \"text\""))?
        }
        Some(_) => return Err(wrong("the content of a message must be a text, or a list of parts")),
    };
    fields.insert("content".to_string(), content.into());
    for call in fields.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
        {
            *arguments = parsed;
        }
    }
    Ok(message)
}

/// The grammar of `response_format`.
fn response_grammar(format: Option<&Json>) -> Result<Option<Grammar>, Failure> {
    let wrong = |message: String| Failure::field("response_format", message);
    let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
    match format.get("type").and_then(Json::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Grammar::json_object())),
        Some("json_schema") => {
            let schema = format.pointer("/json_schema/schema");
            let schema = schema.ok_or_else(|| wrong("there is no json_schema.schema".to_string()))?;
            let grammar = Grammar::json_schema(&schema.to_string());
            grammar.map(Some).map_err(|error| wrong(error.kind().to_string()))
        }
        _ => Err(wrong("give the type \"text\", \"json_object\" or \"json_schema\"".to_string())),
    }
}

/// One of the texts of an answer.
struct Text {
    filter: Option<CallFilter>,
    content: String,
    calls: Vec<Call>,
    log_probabilities: Vec<Json>,
    finish: Option<&'static str>,
}

/// The addition of a piece to a text.
struct Added {
    content: String,
    calls: Vec<Call>,
    log_probability: Option<Json>,
    finish: Option<&'static str>,
}

struct ChatFormat {
    identity: Identity,
    log_probabilities: bool,
    texts: Vec<Text>,
}

impl ChatFormat {
    fn added(&mut self, piece: Piece, language: &Language) -> Added {
        let reported = piece.token.filter(|_| self.log_probabilities);
        let mut added = Added {
            content: piece.text,
            calls: Vec::new(),
            log_probability: reported.map(|token| log_probability(&token, language)),
            finish: piece.finish,
        };
        if let Some(filter) = &mut self.texts[piece.index].filter {
            added.content = filter.push(&added.content);
            if added.finish.is_some() {
                let (rest, calls) = filter.finish();
                added.content.push_str(&rest);
                added.calls = calls;
            }
        }
        if !added.calls.is_empty() && added.finish == Some("stop") {
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
        let id = format!("call_{}_{text}_{number}", self.identity.number());
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
        let Added { content, calls, log_probability, finish } = self.added(piece, language);
        let mut chunks = Vec::new();
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
        text.content.push_str(&added.content);
        text.calls.extend(added.calls);
        text.log_probabilities.extend(added.log_probability);
        text.finish = added.finish;
    }

    fn whole(self, usage: Json) -> Json {
        let choices = self.texts.iter().enumerate().map(|(index, text)| {
            let mut message = json!({"role": "assistant", "content": text.content, "refusal": null});
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
