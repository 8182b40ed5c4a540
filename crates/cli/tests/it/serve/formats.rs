//! Calls and reasoning in the formats of several families.

use serde_json::{Value, json};

use super::{Server, joined};
use crate::common::llama_with;

/// A template of messages with these texts before the answer, and a comment that shows a format.
fn template(format: &str, begin: &str) -> String {
    let format = format.replace('\'', "\\'");
    format!(
        "{{% if false %}}{{{{ '{format}' }}}}{{% endif %}}{{% for m in messages %}}{{{{ m['content'] }}}}{{% endfor %}}{begin}"
    )
}

/// The joined texts of a field in the chunks of a stream.
fn streamed(events: &[Value], field: &str) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"][field].as_str()).collect()
}

#[test]
fn a_demanded_call_has_the_format_of_the_model() {
    let parameters = json!({"type": "object", "additionalProperties": false, "required": ["city", "days"],
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}}});
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": parameters}}]);
    let cases = [
        ("lfm", &["<|tool_call_start|>", "<|tool_call_end|>"][..], "<|tool_call_start|>"),
        ("qwen", &[], "<tool_call><function=f><parameter=p>"),
        ("mistral", &["[TOOL_CALLS]", "[ARGS]"], "[TOOL_CALLS][ARGS]"),
        ("oss", &["<|channel|>", "<|message|>", "<|constrain|>"], "<|channel|><|message|>"),
    ];
    let models = cases.map(|(name, special, format)| (name, llama_with(special, &template(format, ""))));
    let server = Server::named(models.into_iter().collect(), &[]);
    for (name, ..) in cases {
        let more = json!({"model": name, "tools": tools, "tool_choice": "required", "max_tokens": 300});
        let answer = server.chat(more.clone()).ok();
        let (message, finish) = (&answer["choices"][0]["message"], &answer["choices"][0]["finish_reason"]);
        assert_eq!((finish, &message["content"]), (&json!("tool_calls"), &Value::Null), "{name}: {answer}");
        let call = &message["tool_calls"][0];
        assert_eq!(call["function"]["name"], "weather");
        assert_eq!(call["id"].as_str().unwrap().len() == 9, name == "mistral", "{call}");
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["city"] == "Oslo" || arguments["city"] == "Rome", "{name}: {arguments}");
        assert!(arguments["days"].as_u64().is_some_and(|days| days < 10), "{name}: {arguments}");
        let events = server.chat(joined(more, json!({"stream": true}))).events();
        let delta = events.iter().find_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0));
        assert_eq!(
            (streamed(&events, "content"), &delta.unwrap()["function"]),
            (String::new(), &call["function"])
        );
    }
}

#[test]
fn reasoning_is_a_field_of_its_own() {
    let format = "</think>";
    let models = [("open", "<think>\n"), ("closed", "<think>\n\n</think>\n")]
        .map(|(name, begin)| (name, llama_with(&[], &template(format, begin))));
    let server = Server::named(models.into_iter().collect(), &[]);
    let ask = |name: &str, more: Value| server.chat(joined(json!({"model": name, "temperature": 0}), more));
    let open = ask("open", json!({})).ok();
    let message = &open["choices"][0]["message"];
    assert_eq!(message["content"], "");
    let reasoning = message["reasoning_content"].as_str().unwrap();
    assert!(!reasoning.is_empty());
    let events = ask("open", json!({"stream": true})).events();
    assert_eq!(
        (streamed(&events, "reasoning_content").as_str(), streamed(&events, "content").as_str()),
        (reasoning, "")
    );
    let closed = ask("closed", json!({})).ok();
    let message = &closed["choices"][0]["message"];
    assert!(message.get("reasoning_content").is_none() && message["content"] != "");
    // JSON is asked of the answer, not of the reasoning before it.
    let format = json!({"response_format": {"type": "json_object"}});
    let content = ask("closed", format.clone()).ok();
    assert!(content["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'));
    assert_eq!(ask("open", format).ok()["choices"][0]["message"]["content"], "");
}
