//! A model that reads pictures, in `taper serve` and in `taper chat`.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::{Server, content};
use crate::common::{at, printed, refused, tiny_llama, tiny_smolvlm, write_picture};

/// A message with a picture and a text.
fn message(url: &str) -> Value {
    let picture = json!({"type": "image_url", "image_url": {"url": url}});
    json!([{"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}])
}

#[test]
fn a_chat_shows_pictures_in_both_commands() {
    let folder = tiny_smolvlm();
    let model = folder.path().display().to_string();
    let files = [at(&folder, "first.png"), at(&folder, "second.png")];
    files.iter().zip(1..).for_each(|(file, seed)| write_picture(file, seed));
    let urls = files
        .clone()
        .map(|file| format!("data:image/png;base64,{}", BASE64_STANDARD.encode(fs::read(file).unwrap())));
    let said = |file: &str| {
        let arguments = ["chat", &model, "--image", file, "--say", "What is it?", "--max-new-tokens", "8"];
        printed(&arguments).trim_end_matches('\n').to_string()
    };
    let texts = [said(&files[0]), said(&files[1])];
    let server = Server::named(vec![("eye", folder), ("tiny", tiny_llama())], &[]);
    let ask = |messages: Value| {
        let request = json!({"model": "eye", "messages": messages, "temperature": 0, "max_tokens": 8});
        server.post("/v1/chat/completions", &request)
    };
    for (url, text) in urls.iter().zip(&texts) {
        for _ in 0..2 {
            let answer = ask(message(url)).ok();
            assert_eq!(content(&answer), text);
            // "User:", five tiles of four vectors with a mark each and a token before, lines, the question.
            let marks = 5 * (4 + 2) + 1 + 3;
            let words = "User:What is it?".len() + 1 + "Assistant:".len();
            assert_eq!(answer["usage"]["prompt_tokens"], marks + words);
        }
    }
    let blank = ask(json!([{"role": "user", "content": "What is it?"}])).ok();
    assert_eq!(blank["usage"]["prompt_tokens"], "User:What is it?".len() + 1 + "Assistant:".len());
    for (messages, reason) in [
        (message("http://127.0.0.1/cat.png"), "this server fetches none"),
        (message("data:image/png,abc"), "this server fetches none"),
        (message("data:image/png;base64,?"), "not base64"),
        (message("data:image/png;base64,AAAA"), "no picture that can be read"),
        (json!([{"role": "user", "content": "a <image> b"}]), "<image>"),
        (json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "image_url"),
    ] {
        let (status, _, param, _, text) = ask(messages).error();
        assert_eq!((status, param), (400, json!("messages")));
        assert!(text.contains(reason), "{text}");
    }
    let request = json!({"model": "tiny", "messages": message(&urls[0])});
    assert!(server.post("/v1/chat/completions", &request).error().4.contains("reads no pictures"));
    // The server lives on.
    assert_eq!(content(&ask(message(&urls[0])).ok()), texts[0]);
}

#[test]
fn a_model_that_reads_no_pictures_says_so() {
    let (folder, model) = (tiny_smolvlm(), tiny_llama());
    let picture = at(&folder, "picture.png");
    write_picture(&picture, 1);
    let model = model.path().display().to_string();
    let message = refused(&["chat", &model, "--image", &picture, "--say", "Hello"]);
    assert!(message.contains("reads no pictures"), "{message}");
}
