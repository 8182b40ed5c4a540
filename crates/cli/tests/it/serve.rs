//! `taper serve` on small random models, over plain TCP.

mod fine_tuning;
mod formats;
mod memory;
mod pictures;
mod rerank;
mod speech;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{program, tiny_bert, tiny_llama};

/// How long a test waits for what happens in another thread of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, which ends with the test.
struct Server {
    child: Child,
    address: String,
    folders: Vec<TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer: its status and its body.
struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The JSON of an answer that is one.
    fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    /// The chunks of a stream, which must have its end.
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        let events: Vec<&str> = self.body.split("\n\n").filter(|event| !event.is_empty()).collect();
        let (last, events) = events.split_last().unwrap();
        assert_eq!(*last, "data: [DONE]");
        events
            .iter()
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }

    /// The error, whose shape is OpenAI's: status, type, parameter, code and message.
    fn error(&self) -> (u16, String, Value, Value, String) {
        let error = self.json()["error"].clone();
        let text = |field: &str| error[field].as_str().unwrap().to_string();
        (self.status, text("type"), error["param"].clone(), error["code"].clone(), text("message"))
    }
}

impl Server {
    /// A server with a model `tiny` that writes text, a model `bert` for vectors, and these options.
    fn start(options: &[&str]) -> Server {
        Server::named(vec![("tiny", tiny_llama()), ("bert", tiny_bert())], options)
    }

    /// A server with models of these names.
    fn named(models: Vec<(&str, TempDir)>, options: &[&str]) -> Server {
        let arguments = models.iter().map(|(name, folder)| format!("{name}={}", folder.path().display()));
        let arguments: Vec<String> = arguments.collect();
        Server::of(&arguments, options, models.into_iter().map(|(_, folder)| folder).collect())
    }

    fn of(models: &[String], options: &[&str], folders: Vec<TempDir>) -> Server {
        let mut command = program(&["serve", "--port", "0"]);
        command.args(models).args(options).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_string();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Server { address, child, folders }
    }

    /// Sends a request, and leaves the answer to the caller.
    fn send(&self, method: &str, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> TcpStream {
        let body = body.as_ref();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for header in headers {
            head += &format!("{header}\r\n");
        }
        head += &format!("Content-Length: {length}\r\n\r\n");
        // In one piece, because the server may answer before it has the whole body.
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Answer {
        let mut bytes = Vec::new();
        self.send(method, path, headers, body).read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_string() };
        Answer { status, body }
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &["Content-Type: application/json"], body.to_string())
    }

    /// A chat with the fields of `more`.
    fn chat(&self, more: Value) -> Answer {
        let messages = json!([{"role": "user", "content": "Hello"}]);
        let request = json!({"model": "tiny", "messages": messages, "seed": 1, "max_tokens": 8});
        self.post("/v1/chat/completions", &joined(request, more))
    }

    /// The most likely text after a prompt, with the fields of `more`.
    fn complete(&self, more: Value) -> Answer {
        let request = json!({"model": "tiny", "prompt": "Hello", "temperature": 0, "max_tokens": 8});
        self.post("/v1/completions", &joined(request, more))
    }

    /// Waits until the metrics have this line.
    fn await_metric(&self, line: &str) {
        let begin = Instant::now();
        loop {
            let text = self.get("/metrics").body;
            if text.lines().any(|found| found == line) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{line} is not in\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The header of a request with a form.
const FORM: &str = "Content-Type: multipart/form-data; boundary=the-end";

/// The body of a form.
fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in fields {
        let file = if *name == "file" { "; filename=\"a file\"" } else { "" };
        let head = format!("--the-end\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend([head.as_bytes(), content, b"\r\n"].concat());
    }
    body.extend(b"--the-end--\r\n");
    body
}

/// An object with the fields of another.
fn joined(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// The body of chunks.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
    whole
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn chats_come_as_a_whole_and_as_streams() {
    let server = Server::start(&[]);
    let whole = server.chat(json!({})).ok();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["model"], "tiny");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"], json!({"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15}));
    let text = content(&whole);
    assert!(!text.is_empty());

    let events = server.chat(json!({"stream": true, "stream_options": {"include_usage": true}})).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), text);
    let (usage, end) = (&events[events.len() - 1], &events[events.len() - 2]);
    assert_eq!(usage["usage"], whole["usage"]);
    assert_eq!(end["choices"][0]["finish_reason"], "length");
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));

    // Contents in parts, and roles that templates do not know.
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]);
    assert_eq!(content(&server.chat(json!({"messages": messages})).ok()), text);
    server.chat(json!({"messages": [{"role": "developer", "content": "Be short."}]})).ok();
}

#[test]
fn a_seed_gives_the_same_texts_and_n_gives_several() {
    let server = Server::start(&[]);
    let texts = |more: Value| -> Vec<String> {
        let answer = server.chat(joined(json!({"temperature": 1.5, "n": 3}), more)).ok();
        let choices = answer["choices"].as_array().unwrap().clone();
        assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 24);
        choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap().to_string()).collect()
    };
    let first = texts(json!({"seed": 5}));
    assert_eq!(first, texts(json!({"seed": 5})));
    assert!(first[0] != first[1] && first[1] != first[2]);
    assert_ne!(first, texts(json!({})));
    // A stream has the pieces of all texts.
    let events = server.chat(json!({"temperature": 1.5, "n": 3, "seed": 5, "stream": true})).events();
    for (index, text) in first.iter().enumerate() {
        let of_text = events.iter().filter(|event| event["choices"][0]["index"] == index);
        let deltas = of_text.filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        assert_eq!(deltas.collect::<String>(), *text);
    }
}

#[test]
fn completions_have_log_probabilities_and_stop_words() {
    let server = Server::start(&[]);
    let whole = server.complete(json!({"logprobs": 2})).ok();
    assert_eq!(whole["object"], "text_completion");
    let choice = &whole["choices"][0];
    let text = choice["text"].as_str().unwrap();
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 8);
    for k in 0..8 {
        let top = choice["logprobs"]["top_logprobs"][k].as_object().unwrap();
        let greatest = top.values().map(|value| value.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(choice["logprobs"]["token_logprobs"][k].as_f64().unwrap(), greatest);
        assert!(greatest < 0.0 && top.len() == 2);
    }
    // A stop word ends the text before it, in a stream too.
    let word: String = text.chars().skip(3).take(2).collect();
    let before = &text[..text.find(&word).unwrap()];
    let stopped = server.complete(json!({"stop": word})).ok();
    assert_eq!(
        (&stopped["choices"][0]["text"], &stopped["choices"][0]["finish_reason"]),
        (&json!(before), &json!("stop"))
    );
    let events = server.complete(json!({"stop": ["never", word], "stream": true})).events();
    let pieces = events.iter().filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), before);
    // Tokens in place of a text, and several prompts.
    let ids: Vec<u64> = "Hello".bytes().map(|byte| u64::from(byte) - 33 + 3).collect();
    assert_eq!(server.complete(json!({"prompt": ids})).ok()["choices"][0]["text"], text);
    let both = server.complete(json!({"prompt": ["Hello", "Once"]})).ok();
    assert_eq!(both["choices"][0]["text"], text);
    assert_eq!(both["usage"]["prompt_tokens"], 9);
    // Each token of a chat.
    let chat = server.chat(json!({"logprobs": true, "top_logprobs": 3})).ok();
    let tokens = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 8);
    for token in tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        let logprob = |entry: &Value| entry["logprob"].as_f64().unwrap();
        assert!(top.len() == 3 && logprob(token) <= logprob(&top[0]) && logprob(&top[1]) <= logprob(&top[0]));
        assert!(!token["bytes"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_text_matches_the_schema_of_its_request() {
    let server = Server::start(&[]);
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["colour", "count"],
        "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
    });
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "things", "strict": true, "schema": schema}});
    for seed in 0..4 {
        let more = json!({"response_format": format, "temperature": 1.5, "seed": seed, "max_tokens": 200});
        let answer = server.chat(more).ok();
        let value: Value = serde_json::from_str(content(&answer)).unwrap();
        assert!(value["colour"] == "red" || value["colour"] == "green", "{value}");
        assert!((1..=99).contains(&value["count"].as_u64().unwrap()), "{value}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    let answer = server.chat(json!({"response_format": {"type": "json_object"}})).ok();
    assert!(content(&answer).starts_with('{'));
    let wrong = |format: Value| server.chat(json!({"response_format": format})).error();
    for format in [
        json!({"type": "json_schema", "json_schema": {"schema": {"type": "colour"}}}),
        json!({"type": "json_schema"}),
        json!({"type": "xml"}),
    ] {
        let (status, kind, param, ..) = wrong(format);
        assert_eq!((status, kind.as_str(), param), (400, "invalid_request_error", json!("response_format")));
    }
}

#[test]
fn a_call_of_a_tool_can_be_demanded() {
    let server = Server::start(&[]);
    let parameters = json!({"type": "object", "additionalProperties": false, "required": ["city"],
        "properties": {"city": {"enum": ["Oslo", "Rome"]}}});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let tools = json!([tool("weather"), tool("time")]);
    let named = json!({"type": "function", "function": {"name": "time"}});
    for (choice, names) in [(json!("required"), &["weather", "time"][..]), (named, &["time"])] {
        let more =
            json!({"tools": tools, "tool_choice": choice, "temperature": 1, "seed": 2, "max_tokens": 200});
        let answer = server.chat(more.clone()).ok();
        let (message, finish) = (&answer["choices"][0]["message"], &answer["choices"][0]["finish_reason"]);
        let call = &message["tool_calls"][0];
        assert_eq!((finish, &message["content"]), (&json!("tool_calls"), &Value::Null));
        assert!(names.contains(&call["function"]["name"].as_str().unwrap()), "{call}");
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["city"] == "Oslo" || arguments["city"] == "Rome");
        let events = server.chat(joined(more, json!({"stream": true}))).events();
        let streamed = events.iter().find_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0));
        assert_eq!(streamed.unwrap()["function"], call["function"]);
        assert_eq!(events[events.len() - 1]["choices"][0]["finish_reason"], "tool_calls");
    }
    // Without a demand the model writes what it likes, and earlier calls are part of the conversation.
    let call = json!({"id": "1", "type": "function", "function": {"name": "time", "arguments": "{\"city\": \"Oslo\"}"}});
    let messages = json!([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"}]);
    server.chat(json!({"tools": tools, "messages": messages})).ok();
    let unknown = json!({"type": "function", "function": {"name": "absent"}});
    let (status, _, param, ..) = server.chat(json!({"tools": tools, "tool_choice": unknown})).error();
    assert_eq!((status, param), (400, json!("tool_choice")));
}

#[test]
fn a_template_gets_the_tools() {
    let server = Server::start(&[]);
    let folder = tiny_llama();
    let path = folder.path().join("tokenizer_config.json");
    let config = fs::read_to_string(&path).unwrap();
    let with_tools =
        config.replace("\"{% for", "\"{% if tools %}{{ tools[0].function.name }}{% endif %}{% for");
    fs::write(path, with_tools).unwrap();
    let name = folder.path().file_name().unwrap().to_str().unwrap().to_string();
    let path = folder.path().display().to_string();
    let other = Server::of(&[path], &[], vec![folder]);
    let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
    let tokens = |server: &Server, more: Value| {
        server.chat(joined(json!({"tools": tools}), more)).ok()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(&other, json!({"model": name})), tokens(&server, json!({})) + 7);
    assert_eq!(tokens(&other, json!({"model": name, "tool_choice": "none"})), tokens(&server, json!({})));
}

#[test]
fn texts_become_vectors_of_length_1() {
    let server = Server::start(&[]);
    let request = json!({"model": "bert", "input": ["w9 w10", "w20 w21 w22"]});
    let answer = server.post("/v1/embeddings", &request).ok();
    assert_eq!(answer["usage"], json!({"prompt_tokens": 9, "total_tokens": 9}));
    let vector = |answer: &Value, k: usize| -> Vec<f32> {
        serde_json::from_value(answer["data"][k]["embedding"].clone()).unwrap()
    };
    for k in 0..2 {
        let length: f32 = vector(&answer, k).iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(answer["data"][k]["index"], k);
    }
    // One text alone, as base64: four bytes a number, of which three are four digits.
    let alone = json!({"model": "bert", "input": "w9 w10", "encoding_format": "base64"});
    let alone = server.post("/v1/embeddings", &alone).ok();
    let text = alone["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (vector(&answer, 0).len() * 4).div_ceil(3) * 4);
    let bytes = BASE64_STANDARD.decode(text).unwrap();
    let numbers = bytes.chunks(4).map(|number| f32::from_le_bytes(number.try_into().unwrap()));
    assert!(numbers.zip(vector(&answer, 0)).all(|(alone, both)| (alone - both).abs() < 1e-6));
    // Models of the other kind.
    let (status, _, param, ..) =
        server.post("/v1/embeddings", &json!({"model": "tiny", "input": "w9"})).error();
    assert_eq!((status, param), (400, json!("model")));
    assert_eq!(server.complete(json!({"model": "bert"})).error().0, 400);
}

#[test]
fn a_wrong_request_gets_openais_error() {
    let server = Server::start(&["--max-tokens", "100", "--max-body", "2000"]);
    let check = |answer: Answer, status: u16, param: Value, code: Value| {
        let found = answer.error();
        assert_eq!((found.0, &found.2, &found.3), (status, &param, &code), "{}", found.4);
        assert!(!found.4.is_empty() && !found.4.contains("src/"), "{}", found.4);
    };
    let null = Value::Null;
    check(server.get("/v1/absent"), 404, null.clone(), null.clone());
    check(server.get("/v1/completions"), 405, null.clone(), null.clone());
    check(server.chat(json!({"model": "absent"})), 404, json!("model"), json!("model_not_found"));
    check(server.request("POST", "/v1/completions", &[], "{}"), 415, null.clone(), null.clone());
    let kind = &["Content-Type: application/json"];
    check(server.request("POST", "/v1/completions", kind, "{"), 400, null.clone(), null.clone());
    check(server.post("/v1/completions", &json!({"model": "tiny"})), 400, null.clone(), null.clone());
    let large = "x".repeat(3000);
    check(server.complete(json!({"prompt": large})), 413, null.clone(), null.clone());
    let too_long = json!("context_length_exceeded");
    check(
        server.complete(json!({"prompt": "x".repeat(101), "max_tokens": null})),
        400,
        null.clone(),
        too_long.clone(),
    );
    check(server.complete(json!({"max_tokens": 99})), 400, null.clone(), too_long);
    check(server.chat(json!({"messages": []})), 400, json!("messages"), null.clone());
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    check(server.chat(json!({"messages": image})), 400, json!("messages"), null.clone());
    for (field, value) in [
        ("temperature", json!(3)),
        ("top_p", json!(-0.1)),
        ("presence_penalty", json!(9)),
        ("n", json!(0)),
        ("max_tokens", json!(0)),
        ("logit_bias", json!({"3": 10})),
        ("top_logprobs", json!(3)),
    ] {
        check(server.chat(json!({field: value})), 400, json!(field), null.clone());
    }
    // A token that the model does not have.
    check(server.complete(json!({"prompt": [100_000]})), 400, null.clone(), null);
    // The server lives on.
    server.chat(json!({})).ok();
}

#[test]
fn a_key_is_needed_for_all_but_the_page_and_the_health() {
    let server = Server::start(&["--api-key", "secret"]);
    assert_eq!(server.get("/health").status, 200);
    assert!(server.get("/").body.contains("<!doctype html>"));
    for path in ["/v1/models", "/metrics", "/absent"] {
        let (status, _, _, code, _) = server.get(path).error();
        assert_eq!((status, code), (401, json!("invalid_api_key")), "{path}");
    }
    assert_eq!(server.chat(json!({})).status, 401);
    for (key, status) in [("Bearer secret", 200), ("Bearer secreT", 401), ("secret", 401), ("Bearer", 401)] {
        let header = format!("Authorization: {key}");
        assert_eq!(server.request("GET", "/v1/models", &[&header], "").status, status, "{key}");
    }
}

#[test]
fn models_and_counters_are_listed() {
    let server = Server::start(&[]);
    let models = server.get("/v1/models").ok();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "bert"]);
    assert_eq!(server.get("/v1/models/bert").ok(), models["data"][1]);
    assert_eq!(server.get("/v1/models/org/name").error().3, "model_not_found");
    server.chat(json!({})).ok();
    server.chat(json!({"n": 0}));
    server.await_metric("taper_requests_total{path=\"/v1/chat/completions\",status=\"200\"} 1");
    server.await_metric("taper_requests_total{path=\"/v1/chat/completions\",status=\"400\"} 1");
    server.await_metric("taper_generated_tokens_total{model=\"tiny\"} 8");
    server.await_metric("taper_requests_in_flight{model=\"tiny\"} 0");
    server.await_metric("taper_request_seconds_count{model=\"tiny\"} 1");
}

#[test]
fn requests_at_the_same_time_give_the_texts_of_requests_in_turn() {
    let server = Server::start(&[]);
    let ask = |prompt: &str| {
        let answer = server.complete(json!({"prompt": prompt, "max_tokens": 40})).ok();
        answer["choices"][0]["text"].as_str().unwrap().to_string()
    };
    let prompts = ["Hello", "Who are you?", "A long question about the sea and its ships."];
    let in_turn: Vec<String> = prompts.iter().map(|prompt| ask(prompt)).collect();
    assert!(in_turn.iter().all(|text| !text.is_empty()));
    let together: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = prompts.iter().map(|prompt| scope.spawn(|| ask(prompt))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, in_turn);
}

/// A request that would take minutes.
fn long_request(stream: bool) -> String {
    json!({"model": "tiny", "prompt": "Hello", "max_tokens": 100_000, "stream": stream, "temperature": 0})
        .to_string()
}

#[test]
fn a_client_that_goes_away_ends_its_texts() {
    let server = Server::start(&["--max-tokens", "110000", "--max-queue", "1"]);
    let kind = &["Content-Type: application/json"];
    for (count, stream) in [(1, true), (2, false)] {
        let mut client = server.send("POST", "/v1/completions", kind, long_request(stream));
        if stream {
            let mut begin = [0; 600];
            client.read_exact(&mut begin).unwrap();
        }
        server.await_metric("taper_requests_in_flight{model=\"tiny\"} 1");
        // The place is taken.
        let (status, _, _, code, _) = server.complete(json!({})).error();
        assert_eq!((status, code), (429, json!("rate_limit_exceeded")));
        drop(client);
        server.await_metric("taper_requests_in_flight{model=\"tiny\"} 0");
        server.await_metric(&format!("taper_cancelled_total{{model=\"tiny\"}} {count}"));
        server.complete(json!({})).ok();
    }
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let server = Server::start(&["--max-tokens", "110000", "--timeout", "1"]);
    let kind = &["Content-Type: application/json"];
    let answer = server.request("POST", "/v1/completions", kind, long_request(false));
    assert_eq!(answer.error().0, 504);
    let answer = server.request("POST", "/v1/completions", kind, long_request(true));
    let events = answer.events();
    assert_eq!(events[events.len() - 1]["error"]["type"], "timeout");
    server.await_metric("taper_requests_in_flight{model=\"tiny\"} 0");
}
