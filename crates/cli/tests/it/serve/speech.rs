//! `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::fs;

use serde_json::{Value, json};
use taper::{
    data::audio::{WavFormat, write_wav},
    prelude::*,
};

use super::{Answer, FORM, Server, form};
use crate::common::{at, json as printed_json, tiny_llama, tiny_whisper, write_noise};

/// A server with a Whisper `ear` and a language model `tiny`.
fn server(options: &[&str]) -> Server {
    Server::named(vec![("ear", tiny_whisper()), ("tiny", tiny_llama())], options)
}

fn noise() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    write_noise(folder.path().join("noise.wav"));
    fs::read(folder.path().join("noise.wav")).unwrap()
}

impl Server {
    /// Sends the noise, with more fields.
    fn transcribe(&self, more: &[(&str, &[u8])]) -> Answer {
        let noise = noise();
        let fields = [&[("file", &noise[..]), ("model", &b"ear"[..])], more].concat();
        self.request("POST", "/v1/audio/transcriptions", &[FORM], form(&fields))
    }
}

#[test]
fn speech_has_the_text_of_the_command() {
    let server = server(&[]);
    let folder = server.folders[0].path().to_str().unwrap();
    let wav = at(&server.folders[0], "noise.wav");
    write_noise(&wav);
    let parts = printed_json(&["transcribe", folder, &wav, "--language", "de", "--json"]);
    let texts: Vec<&str> =
        parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
    let (first, second) = (texts[0], texts[1]);
    assert!(first.starts_with('w') && second.starts_with('w'));
    let text = format!("{first} {second}");

    let german = |format: &str| {
        let fields: [(&str, &[u8]); 3] =
            [("language", b"de"), ("response_format", format.as_bytes()), ("temperature", b"0")];
        server.transcribe(&fields)
    };
    let answer = german("json").ok();
    assert_eq!(answer, json!({"text": text, "usage": {"type": "duration", "seconds": 2.0}}));
    assert_eq!(german("text").body, format!("{text}\n"));
    let srt = format!(
        "1\n00:00:00,000 --> 00:00:01,000\n{first}\n\n2\n00:00:01,000 --> 00:00:01,500\n{second}\n\n"
    );
    assert_eq!(german("srt").body, srt);
    let vtt = format!(
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n{first}\n\n00:00:01.000 --> 00:00:01.500\n{second}\n\n"
    );
    assert_eq!(german("vtt").body, vtt);
    let whole = german("verbose_json").ok();
    assert_eq!((&whole["task"], &whole["language"]), (&json!("transcribe"), &json!("de")));
    assert_eq!((&whole["text"], &whole["duration"]), (&json!(text), &json!(1.5)));
    let segment = &whole["segments"][1];
    assert_eq!((&segment["start"], &segment["end"]), (&json!(1.0), &json!(1.5)));
    assert_eq!((&segment["text"], &segment["id"]), (&json!(second), &json!(1)));
    assert!(!segment["tokens"].as_array().unwrap().is_empty());

    // JSON is the default, and the model hears the language.
    let heard = server.transcribe(&[]).ok();
    let alone = printed_json(&["transcribe", folder, &wav, "--json"]);
    assert!(heard["text"].as_str().unwrap().starts_with(alone[0]["text"].as_str().unwrap()));
    // English, whatever is spoken.
    let english = printed_json(&["transcribe", folder, &wav, "--language", "de", "--translate", "--json"]);
    let noise = noise();
    let fields = [("file", &noise[..]), ("model", b"ear"), ("language", b"de")];
    let translated = server.request("POST", "/v1/audio/translations", &[FORM], form(&fields)).ok();
    let both = format!("{} {}", english[0]["text"].as_str().unwrap(), english[1]["text"].as_str().unwrap());
    assert_eq!(translated["text"], both.trim());
    server.await_metric("taper_requests_in_flight{model=\"ear\"} 0");
    server.await_metric("taper_request_seconds_count{model=\"ear\"} 7");
}

#[test]
fn a_wrong_form_gets_openais_error() {
    let server = server(&["--max-sound", "200000"]);
    let check = |answer: Answer, status: u16, param: Value| {
        let found = answer.error();
        assert_eq!((found.0, &found.2), (status, &param), "{}", found.4);
        assert!(!found.4.is_empty() && !found.4.contains("src/"), "{}", found.4);
    };
    for (field, value) in [
        ("temperature", "0.5"),
        ("temperature", "warm"),
        ("response_format", "xml"),
        ("prompt", "names: Ada"),
        ("stream", "true"),
        ("timestamp_granularities[]", "word"),
        ("language", "xx"),
    ] {
        check(server.transcribe(&[(field, value.as_bytes())]), 400, json!(field));
    }
    server
        .transcribe(&[("prompt", b""), ("stream", b"false"), ("timestamp_granularities[]", b"segment")])
        .ok();
    let path = "/v1/audio/transcriptions";
    let post = |headers: &[&str], body: &[u8]| server.request("POST", path, headers, body);
    let noise = noise();
    let (file, model) = (("file", &noise[..]), ("model", &b"ear"[..]));
    check(post(&[FORM], &form(&[file])), 400, json!("model"));
    check(post(&[FORM], &form(&[model])), 400, json!("file"));
    check(post(&[FORM], &form(&[file, ("model", b"tiny")])), 400, json!("model"));
    check(post(&[FORM], &form(&[file, ("model", b"absent")])), 404, json!("model"));
    check(server.complete(json!({"model": "ear"})), 400, json!("model"));
    for wrong in [&b"no sound"[..], b"", &noise[..noise.len() / 2]] {
        check(post(&[FORM], &form(&[("file", wrong), model])), 400, json!("file"));
    }
    // Sixteen thousand new samples for each of the file.
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow.wav");
    write_wav(&slow, &Tensor::zeros([1, 9], &taper::cpu()).unwrap(), 1, WavFormat::Pcm16).unwrap();
    check(post(&[FORM], &form(&[("file", &fs::read(slow).unwrap()), model])), 400, json!("file"));

    // Bodies that are no forms, or too large.
    let whole = form(&[file, model]);
    check(post(&[FORM], &whole[..whole.len() - 20]), 400, Value::Null);
    check(post(&["Content-Type: application/json"], b"{}"), 415, Value::Null);
    let short = form(&[model]);
    check(post(&["Content-Type: multipart/form-data"], &short), 415, Value::Null);
    check(post(&[FORM], &form(&[("file", &[0; 210_000]), model])), 413, Value::Null);
    check(server.get(path), 405, Value::Null);

    // A form of a page of another site.
    check(post(&[FORM, "Origin: http://example.org"], &short), 403, Value::Null);
    check(post(&[FORM, "Origin: null"], &short), 403, Value::Null);
    let own = format!("Origin: http://{}", server.address);
    post(&[FORM, &own], &whole).ok();
}

#[test]
fn a_sound_without_samples_has_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.wav");
    write_wav(&path, &Tensor::zeros([1, 0], &taper::cpu()).unwrap(), 16_000, WavFormat::Pcm16).unwrap();
    let empty = fs::read(path).unwrap();
    let body = form(&[("model", b"ear"), ("file", &empty)]);
    let answer = server(&[]).request("POST", "/v1/audio/transcriptions", &[FORM], body).ok();
    assert_eq!(answer["text"], "");
}
