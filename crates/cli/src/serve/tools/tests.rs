//! The formats of calls, whole and in pieces, and under the grammar of a call that is demanded.

use std::fs;

use taper::{
    Generator,
    models::{
        Llama, LlamaConfig,
        generate::{GenerationConfig, SamplingConfig, generate},
        guidance::Guide,
        text::Tokenizer,
    },
};

use super::{format::CALL_FORMATS, *};

/// Two functions, the first of which has arguments of all types.
fn definitions() -> Vec<Json> {
    let weather = json!({
        "type": "object", "required": ["city", "days"], "additionalProperties": false,
        "properties": {
            "city": {"$ref": "#/$defs/city"},
            "days": {"type": "integer", "minimum": 0, "maximum": 99},
            "metric": {"type": "boolean"},
            "places": {"type": "array", "items": {"enum": ["sea", "<b>"]}, "maxItems": 2},
            "detail": {"type": "object", "properties": {"level": {"type": "number", "enum": [1.5, 2]}},
                "additionalProperties": false},
            "note": {"anyOf": [{"enum": ["dry", "3"]}, {"type": "null"}]},
        },
        "$defs": {"city": {"type": "string", "enum": ["Oslo", "São \"Paulo\""]}},
    });
    let time = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = |name: &str, parameters: &Json| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    vec![tool("weather", &weather), tool("time", &time)]
}

fn tools(choice: Json) -> Tools {
    let found = Tools::parse(Some(definitions()), Some(choice));
    found.unwrap_or_else(|failure| panic!("{:?}", failure.body())).unwrap()
}

/// The parts of a text, whatever its pieces are.
fn split(template: &str, text: &str, is_reasoning_open: bool) -> Parts {
    let (format, tools) = (AnswerFormat::of_template(template), tools(json!("auto")));
    let parts = |size: usize| {
        let mut filter = AnswerFilter::new(format, Some(&tools), is_reasoning_open);
        let (mut whole, mut end) = (Parts::default(), 0);
        while end < text.len() {
            let begin = end;
            end = text.len().min(end + size);
            while !text.is_char_boundary(end) {
                end += 1;
            }
            let part = filter.push(&text[begin..end]);
            assert!(part.calls.is_empty());
            whole.reasoning += &part.reasoning;
            whole.content += &part.content;
        }
        let rest = filter.finish();
        whole.reasoning += &rest.reasoning;
        whole.content += &rest.content;
        Parts { calls: rest.calls, ..whole }
    };
    let whole = parts(text.len().max(1));
    for size in 1..text.len() {
        assert_eq!(parts(size), whole, "{text:?} in pieces of {size}");
    }
    whole
}

/// A template, and the calls of [`expected_calls`] as the templates of such models write them.
struct Case {
    format: &'static str,
    template: &'static str,
    text: &'static str,
}

const CASES: [Case; 12] = [
    Case {
        format: "gpt-oss",
        template: "<|start|>assistant<|channel|>final<|message|>",
        text: "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>\
            {\"city\":\"São \\\"Paulo\\\"\",\"days\":3,\"metric\":true,\"places\":[\"sea\",\"<b>\"],\
            \"detail\":{\"level\":1.5},\"note\":null}<|call|><|start|>assistant to=functions.time<|channel|>\
            commentary json<|message|>{\"city\": \"12\"}<|call|>",
    },
    Case {
        format: "Gemma 4",
        template: "{{ '<|tool_call>call:' + name }}{{ '}<tool_call|>' }}",
        text: "<|tool_call>call:weather{city:<|\"|>São \"Paulo\"<|\"|>,days:3,metric:true,\
            places:[<|\"|>sea<|\"|>,<|\"|><b><|\"|>],detail:{level:1.5},note:null}<tool_call|>\
            <|tool_call>call:time{city:<|\"|>12<|\"|>}<tool_call|>",
    },
    Case {
        format: "DeepSeek V3, R1",
        template: "<｜tool▁calls▁begin｜> ```json",
        text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n\
            {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \"metric\": true, \"places\": [\"sea\", \"<b>\"], \
            \"detail\": {\"level\": 1.5}, \"note\": null}\n```<｜tool▁call▁end｜>\n\
            <｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{\"city\": \"12\"}\n```<｜tool▁call▁end｜>\
            <｜tool▁calls▁end｜>",
    },
    Case {
        format: "DeepSeek V3.1",
        template: "<｜tool▁calls▁begin｜>",
        text: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>\
            {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \"metric\": true, \"places\": [\"sea\", \"<b>\"], \
            \"detail\": {\"level\": 1.5}, \"note\": null}<｜tool▁call▁end｜>\
            <｜tool▁call▁begin｜>time<｜tool▁sep｜>{\"city\": \"12\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    },
    Case {
        format: "LFM 2",
        template: "<|tool_call_start|>",
        text: "<|tool_call_start|>[weather(city='São \"Paulo\"', days=3, metric=True, places=[\"sea\", '<b>'], \
            detail={\"level\": 1.5}, note=None), time(city=\"12\")]<|tool_call_end|>",
    },
    Case {
        format: "Mistral, from 2025 on",
        template: "[TOOL_CALLS] [ARGS]",
        text: "[TOOL_CALLS]weather[ARGS]{\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \"metric\": true, \
            \"places\": [\"sea\", \"<b>\"], \"detail\": {\"level\": 1.5}, \"note\": null}\
            [TOOL_CALLS]time[CALL_ID]a1b2c3d4e[ARGS]{\"city\": \"12\"}",
    },
    Case {
        format: "Mistral",
        template: "[TOOL_CALLS]",
        text: "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \
            \"metric\": true, \"places\": [\"sea\", \"<b>\"], \"detail\": {\"level\": 1.5}, \"note\": null}, \
            \"id\": \"a1b2c3d4e\"}, {\"name\": \"time\", \"arguments\": {\"city\": \"12\"}}]",
    },
    Case {
        format: "GLM 4.5",
        template: "<tool_call><arg_key><arg_value>",
        text: "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>São \"Paulo\"</arg_value>\n\
            <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>metric</arg_key>\n\
            <arg_value>true</arg_value>\n<arg_key>places</arg_key>\n<arg_value>[\"sea\", \"<b>\"]</arg_value>\n\
            <arg_key>detail</arg_key>\n<arg_value>{\"level\": 1.5}</arg_value>\n<arg_key>note</arg_key>\n\
            <arg_value>null</arg_value>\n</tool_call>\n\
            <tool_call>time<arg_key>city</arg_key><arg_value>12</arg_value></tool_call>",
    },
    Case {
        format: "Qwen 3.5, Qwen 3 Coder, Nemotron 3",
        template: "<tool_call><function=f><parameter=p></think>",
        text: "<tool_call>\n<function=weather>\n<parameter=city>\nSão \"Paulo\"\n</parameter>\n<parameter=days>\n\
            3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=places>\n[\"sea\", \"<b>\"]\n\
            </parameter>\n<parameter=detail>\n{'level': 1.5}\n</parameter>\n<parameter=note>\nNone\n</parameter>\n\
            </function>\n</tool_call>\n<tool_call>\n<function=time>\n<parameter=city>\n12\n</parameter>\n\
            </function>\n</tool_call>",
    },
    Case {
        format: "Granite 3",
        template: "<|tool_call|>",
        text: "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \
            \"metric\": true, \"places\": [\"sea\", \"<b>\"], \"detail\": {\"level\": 1.5}, \"note\": null}}, \
            {\"name\": \"time\", \"arguments\": {\"city\": \"12\"}}]",
    },
    Case {
        format: "Llama 3",
        template: "<|start_header_id|> {\"name\": function name, \"parameters\": …}",
        text: "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \
            \"metric\": true, \"places\": [\"sea\", \"<b>\"], \"detail\": {\"level\": 1.5}, \"note\": null}}; \
            {\"name\": \"time\", \"parameters\": \"{\\\"city\\\":\\\"12\\\"}\"};",
    },
    Case {
        format: "Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4",
        template: "</think>",
        text: "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \
            \"metric\": true, \"places\": [\"sea\", \"<b>\"], \"detail\": {\"level\": 1.5}, \"note\": null}}\n\
            </tool_call>\n<tool_call>{\"name\": \"time\", \"arguments\": {\"city\": \"12\"}}</tool_call>",
    },
];

fn call(name: &str, arguments: &Json) -> Call {
    Call { name: name.to_string(), arguments: arguments.to_string() }
}

fn expected_calls() -> Vec<Call> {
    let weather = json!({"city": "São \"Paulo\"", "days": 3, "metric": true, "places": ["sea", "<b>"],
        "detail": {"level": 1.5}, "note": null});
    vec![call("weather", &weather), call("time", &json!({"city": "12"}))]
}

#[test]
fn calls_of_all_formats_are_found() {
    for (case, format) in CASES.iter().zip(&CALL_FORMATS) {
        assert_eq!(AnswerFormat::of_template(case.template).calls.name, case.format);
        assert_eq!(case.format, format.name);
        let parts = split(case.template, case.text, false);
        assert_eq!(parts.calls, expected_calls(), "{}", case.format);
        assert_eq!((parts.reasoning.as_str(), parts.content.as_str()), ("", ""), "{}", case.format);
        if format.name != "gpt-oss" {
            let text = format!("I look.\n{}", case.text);
            let parts = split(case.template, &text, false);
            assert_eq!((parts.content.as_str(), parts.calls.len()), ("I look.\n", 2), "{}", case.format);
        }
    }
    // Models that were taught to write bare JSON.
    let bare = "{\"name\": \"time\", \"parameters\": {\"city\": \"Rome\"}}";
    assert_eq!(split("", bare, false).calls, [call("time", &json!({"city": "Rome"}))]);
    // Text behind calls is kept.
    let more = "<|tool_call_start|>[time()]<|tool_call_end|>I wait.";
    let parts = split("<|tool_call_start|>", more, false);
    assert_eq!((parts.content.as_str(), parts.calls), ("I wait.", vec![call("time", &json!({}))]));
}

#[test]
fn other_texts_stay_texts() {
    let unknown = |case: &Case| case.text.replace("weather", "storm").replace("time", "clock");
    for case in &CASES {
        for text in
            [unknown(case), "a < b, and <tool> is no call".to_string(), "  ".to_string(), String::new()]
        {
            let parts = split(case.template, &text, false);
            assert_eq!(parts.content, text, "{}", case.format);
            assert_eq!((parts.reasoning.as_str(), parts.calls.len()), ("", 0));
        }
        // A text that ends inside of its first call.
        let first = case.text.find("level").unwrap();
        let parts = split(case.template, &case.text[..first], false);
        assert_eq!((parts.content.as_str(), parts.calls.len()), (&case.text[..first], 0), "{}", case.format);
    }
    for text in ["{\"city\": \"Oslo\"}", "[1, 2]"] {
        assert_eq!(split("", text, false).content, text);
    }
    // Without functions there are no calls.
    let mut filter = AnswerFilter::new(AnswerFormat::of_template(""), None, false);
    let mut content = filter.push(CASES[11].text).content;
    content += &filter.finish().content;
    assert_eq!(content, CASES[11].text);
}

#[test]
fn reasoning_is_a_part_of_its_own() {
    for (template, text, is_open, reasoning, content) in [
        ("</think>", "<think>\nI add.\n\n2 + 2\n</think>\n\nIt is 4.", false, "I add.\n\n2 + 2", "It is 4."),
        ("</think>", "\nI add.</think>It is 4.", true, "I add.", "It is 4."),
        ("</think>", "<think>\n\n</think>\n\nIt is <think> 4.", false, "", "It is <think> 4."),
        ("</think>", "<think> without an end ", false, "without an end", ""),
        ("</think>", "The mark <think>.", false, "", "The mark <think>."),
        ("</think>", "<thin", false, "", "<thin"),
        ("", "<think>x</think>", false, "", "<think>x</think>"),
        ("<|channel>thought", "<|channel>thought\nI add.\n<channel|>It is 4.", false, "I add.", "It is 4."),
        ("[/THINK]", "[THINK]I add.[/THINK]It is 4.", false, "I add.", "It is 4."),
        (
            "<|channel|><|message|>",
            "<|channel|>analysis<|message|>I add.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
            false,
            "I add.",
            "It is 4.",
        ),
        ("<|channel|><|message|>", "<|channel|>analysis<|message|>I ad", false, "I ad", ""),
        (
            "<|channel|><|message|>",
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assis",
            false,
            "",
            "I look.",
        ),
        ("<|channel|><|message|>", "tomorrow", false, "", "tomorrow"),
    ] {
        let parts = split(template, text, is_open);
        assert_eq!((parts.reasoning.as_str(), parts.content.as_str()), (reasoning, content), "{text}");
        assert!(parts.calls.is_empty());
    }
    let both = "<think>Which?</think>\n<tool_call>{\"name\": \"time\", \"arguments\": {}}</tool_call>";
    let parts = split("</think>", both, false);
    assert_eq!((parts.reasoning.as_str(), parts.content.as_str(), parts.calls.len()), ("Which?", "", 1));
    assert!(AnswerFormat::of_template("</think>").is_reasoning_open("Hello<think>\n"));
    assert!(!AnswerFormat::of_template("</think>").is_reasoning_open("<think>\n\n</think>\n"));
    assert!(!AnswerFormat::of_template("").is_reasoning_open("Hello<think>\n"));
}

#[test]
fn bare_texts_become_the_types_of_the_schema() {
    let function = |schema: Json| Function {
        name: "f".to_string(),
        parameters: Some(json!({"properties": {"x": schema}, "$defs": {"name": {"type": "string"}}})),
    };
    for (schema, text, value) in [
        (json!({"type": "string"}), "12", json!("12")),
        (json!({"type": "string"}), " a\n", json!(" a\n")),
        (json!({"type": "string"}), "null", json!("null")),
        (json!({"type": ["string", "null"]}), "null", json!(null)),
        (json!({"$ref": "#/$defs/name"}), "true", json!("true")),
        (json!({"anyOf": [{"$ref": "#/$defs/name"}, {"type": "null"}]}), "None", json!(null)),
        (json!({"enum": ["1", "2"]}), "1", json!("1")),
        (json!({"enum": ["1", 2]}), "2", json!(2)),
        (json!({"type": "integer"}), "-12", json!(-12)),
        (json!({"type": "integer"}), "many", json!("many")),
        (json!({"type": "number"}), "1.5e3", json!(1500.0)),
        (json!({"type": "boolean"}), "False", json!(false)),
        (json!({"type": "array"}), "['a', \"b\\n\", True, (1)]", json!("['a', \"b\\n\", True, (1)]")),
        (json!({"type": "array"}), "['a', \"b\\u00e9\\ud83d\\ude00\", True,]", json!(["a", "bé😀", true])),
        (json!({"type": "object"}), "{\"a\": {\"b\": []}}", json!({"a": {"b": []}})),
        (json!({}), "{'a': None}", json!({"a": null})),
        (json!({}), "plain", json!("plain")),
    ] {
        assert_eq!(values::converted(&function(schema.clone()), "x", text), value, "{schema} {text}");
    }
    assert_eq!(values::converted(&function(json!({})), "absent", "3"), json!(3));
    let deep = "[".repeat(100_000);
    assert_eq!(values::converted(&function(json!({})), "x", &deep), json!(deep));
    // A value that has the marks of values.
    let text = "<tool_call><function=time><parameter=city>\n<parameter=a>\nx\n</parameter>.\n</parameter>\n</function></tool_call>";
    let parts = split(CASES[8].template, text, false);
    assert_eq!(parts.calls, [call("time", &json!({"city": "<parameter=a>\nx\n</parameter>."}))]);
}

#[test]
fn earlier_calls_are_given_back_as_templates_expect_them() {
    let given = |case: &Case, mut arguments: Json| {
        AnswerFormat::of_template(case.template).earlier_arguments(&mut arguments);
        arguments
    };
    let (text, object) = (json!("{\"city\":\"Rome\"}"), json!({"city": "Rome"}));
    assert_eq!(given(&CASES[2], text.clone()), text);
    assert_eq!(given(&CASES[2], object.clone()), text);
    assert_eq!(given(&CASES[11], text), object);
    let identity =
        Identity { prefix: "chatcmpl", number: 0x18ec_b112_6981_26e1, created: 0, model: String::new() };
    let ids = |case: &Case| {
        let format = AnswerFormat::of_template(case.template);
        [(0, 0), (0, 1), (1, 0)].map(|(text, call)| format.call_id(&identity, text, call))
    };
    assert_eq!(ids(&CASES[11])[1], "call_18ecb112698126e1_0_1");
    for id in ids(&CASES[6]) {
        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    }
    assert!(ids(&CASES[6])[0] != ids(&CASES[6])[1] && ids(&CASES[6])[1] != ids(&CASES[6])[2]);
}

/// The tokenizer of bytes, which has the marks of a format as tokens, special ones or not.
fn tokenizer_with(marks: &[&str], is_special: bool) -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/language/tiny/tokenizer.json");
    let mut document: Json = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut all: Vec<String> = ["<|end|>"].iter().chain(marks).map(|mark| mark.to_string()).collect();
    all.sort();
    all.dedup();
    for (id, mark) in (259..).zip(all) {
        let token = json!({"id": id, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": is_special});
        if mark != "<|end|>" {
            document["added_tokens"].as_array_mut().unwrap().push(token);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), document.to_string()).unwrap();
    fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": "<|end|>"}"#).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

/// The functions with arguments of which a random model reaches the end.
fn demanded() -> Tools {
    tools(json!({"type": "function", "function": {"name": "weather"}}))
}

#[test]
fn a_demanded_call_is_read_back() {
    let cpu = taper::cpu();
    let config = LlamaConfig {
        vocab_size: 300,
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        ..Default::default()
    };
    let model = Llama::new(&config, &Generator::seed(4, &cpu)).unwrap();
    let tools = demanded();
    for case in &CASES {
        let format = AnswerFormat::of_template(case.template);
        let marks: Vec<&str> = format.marks().collect();
        for is_special in [false, true] {
            let tokenizer = tokenizer_with(&marks, is_special);
            let guide = Guide::new(&tokenizer).unwrap();
            let mut rules = Rules::new(&tokenizer, format);
            let part = rules.call(&tools).unwrap_or_else(|failure| panic!("{:?}", failure.body()));
            let grammar = rules.start(&part, false);
            for seed in 0..2 {
                let config = GenerationConfig {
                    max_new_tokens: 600,
                    stop_tokens: tokenizer.end_tokens().to_vec(),
                    sampling: SamplingConfig { temperature: 1.0, seed, ..Default::default() },
                    logits_rule: Some(guide.rule(&grammar).unwrap()),
                };
                let ids: Vec<u32> =
                    generate(&model, &[40], &config).unwrap().map(|token| token.unwrap().id).collect();
                let text = tokenizer.decode(&ids, false).unwrap();
                let text = text.trim_end_matches("<|end|>");
                let parts = split(case.template, text, false);
                assert_eq!(parts.content, "", "{text}");
                let [Call { name, arguments }] = &parts.calls[..] else { panic!("{} has no call", text) };
                assert_eq!(name, "weather");
                let arguments: Json = serde_json::from_str(arguments).unwrap();
                let has = |value: &Json, all: &[Json]| all.contains(value);
                assert!(has(&arguments["city"], &[json!("Oslo"), json!("São \"Paulo\"")]), "{text}");
                assert!(arguments["days"].as_u64().is_some_and(|days| days < 100), "{text}");
                assert!(has(&arguments["metric"], &[json!(true), json!(false), json!(null)]), "{text}");
                assert!(has(&arguments["note"], &[json!("dry"), json!("3"), json!(null)]), "{text}");
                assert!(arguments["places"].as_array().is_none_or(|all| all.len() < 3), "{text}");
            }
        }
    }
}

#[test]
fn a_demanded_call_may_follow_reasoning_and_have_any_text() {
    let tools = tools(json!({"type": "function", "function": {"name": "time"}}));
    for (case, call, wrong) in [
        (
            &CASES[8],
            "<tool_call>\n<function=time>\n<parameter=city>\n<b>\n\"x\"</b>\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>\n<function=weather>\n</function>\n</tool_call>",
        ),
        (
            &CASES[11],
            "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"city\": \"\"}}\n</tool_call>",
            "{\"name\": \"time\"}",
        ),
    ] {
        let format = AnswerFormat::of_template(case.template);
        for is_special in [false, true] {
            let marks: Vec<&str> = format.marks().collect();
            let tokenizer = tokenizer_with(&marks, is_special);
            let guide = Guide::new(&tokenizer).unwrap();
            let grammar = |is_open: bool| {
                let mut rules = Rules::new(&tokenizer, format);
                let part = rules.call(&tools).unwrap_or_else(|failure| panic!("{:?}", failure.body()));
                rules.start(&part, is_open)
            };
            let accepts = |is_open: bool, text: &str| {
                guide.accepts(&grammar(is_open), &tokenizer.encode(text, false).unwrap().ids).unwrap()
            };
            assert!(accepts(false, call), "{call}");
            assert!(!accepts(false, wrong) && !accepts(true, call));
            let reasoned = format!("I look < at it.\n</think>\n\n{call}");
            assert!(accepts(true, &reasoned) && !accepts(false, &reasoned));
            let parts = split(case.template, &reasoned, true);
            assert_eq!((parts.reasoning.as_str(), parts.calls.len()), ("I look < at it.", 1));
        }
    }
}

#[test]
fn a_choice_must_be_possible() {
    let parse = |choice: Json| Tools::parse(None, Some(choice));
    assert!(parse(json!("auto")).is_ok_and(|tools| tools.is_none()));
    assert!(parse(json!("required")).is_err());
    assert!(parse(json!("maybe")).is_err());
    assert!(!tools(json!("auto")).is_required() && tools(json!("required")).is_required());
    let named = tools(json!({"type": "function", "function": {"name": "time"}}));
    assert_eq!((named.functions.len(), named.definitions().len()), (1, 2));
}
