//! Texts that match a grammar: small random models, which would write anything else by themselves.

use models::{
    Llama, LlamaConfig,
    generate::{
        BeamConfig, GenerationConfig, LogitsRule, SamplingConfig, beam_search, generate, generate_batch,
        generate_speculative,
    },
    guidance::{Grammar, Guide},
    text::Tokenizer,
};
use serde_json::Value as Json;
use tensor_core::Generator;

use crate::text::gguf_tokenizer;

/// Enough for each complete text of the grammars below.
const MAX_NEW_TOKENS: usize = 400;

/// A model that knows more tokens than its tokenizer.
fn model(seed: u64) -> Llama {
    let config = LlamaConfig {
        vocab_size: 264,
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        max_position_embeddings: 512,
        ..Default::default()
    };
    Llama::new(&config, &Generator::seed(seed, &backend_cpu::cpu())).unwrap()
}

fn settings(tokenizer: &Tokenizer, rule: LogitsRule, temperature: f64, seed: u64) -> GenerationConfig {
    GenerationConfig {
        max_new_tokens: MAX_NEW_TOKENS,
        stop_tokens: tokenizer.end_tokens().to_vec(),
        sampling: SamplingConfig { temperature, seed, ..Default::default() },
        logits_rule: Some(rule),
    }
}

/// The texts of several models, seeds and temperatures; each ends before its limit.
fn texts(grammar: &Grammar) -> Vec<String> {
    let tokenizer = gguf_tokenizer("gpt-2");
    let guide = Guide::new(&tokenizer).unwrap();
    let mut texts = Vec::new();
    for (seed, temperature) in [(0, 0.0), (1, 0.0), (2, 0.7), (3, 1.0), (4, 1.5), (5, 5.0)] {
        let config = settings(&tokenizer, guide.rule(grammar).unwrap(), temperature, seed);
        let model = model(seed);
        let tokens = generate(&model, &[72, 105], &config).unwrap();
        let ids: Vec<u32> = tokens.map(|token| token.unwrap().id).collect();
        assert!(ids.len() < MAX_NEW_TOKENS, "{:?}", tokenizer.decode(&ids, false));
        texts.push(tokenizer.decode(&ids, false).unwrap());
    }
    texts
}

/// The fields of an object, in order, if it has no others.
fn fields<'j, const N: usize>(value: &'j Json, names: [&str; N]) -> Option<[&'j Json; N]> {
    let object = value.as_object()?;
    let found: Vec<&Json> = names.iter().filter_map(|name| object.get(*name)).collect();
    <[&Json; N]>::try_from(found).ok().filter(|_| object.len() == N)
}

/// A schema, and whether a value is one of it.
type Case = (&'static str, fn(&Json) -> Option<bool>);

const CASES: &[Case] = &[
    (
        r#"{"type": "object", "additionalProperties": false, "required": ["name", "age"], "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}}"#,
        |value| {
            let [name, age] = fields(value, ["name", "age"])?;
            Some(name.as_str()?.chars().count() <= 12 && age.as_u64()? <= 150)
        },
    ),
    (
        r#"{"type": "array", "minItems": 2, "maxItems": 3, "items": {"enum": ["red", "green", 3, null]}}"#,
        |value| {
            let items = value.as_array()?;
            let known = |item: &Json| item.is_null() || *item == 3 || *item == "red" || *item == "green";
            Some((2..=3).contains(&items.len()) && items.iter().all(known))
        },
    ),
    (
        r##"{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "additionalProperties": false,
            "required": ["value", "leaf"], "properties": {"value": {"type": "boolean"}, "leaf": {"$ref": "#/$defs/leaf"}}},
            "leaf": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-c]{1,4}$"}]}}}"##,
        |value| {
            let [value, leaf] = fields(value, ["value", "leaf"])?;
            let is_leaf =
                |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|c| b"abc".contains(&c));
            Some(value.is_boolean() && leaf.as_str().map_or(leaf.is_null(), is_leaf))
        },
    ),
    (r#"{"type": "string", "format": "date"}"#, |value| {
        let parts: Vec<usize> =
            value.as_str()?.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        Some(matches!(parts[..], [_, 1..=12, 1..=31]))
    }),
    (r#"{"const": {"format": "he12", "list": [1, 2.5]}}"#, |value| {
        Some(*value == serde_json::json!({"format": "he12", "list": [1, 2.5]}))
    }),
    // A format that is not known, and alternatives that a text may match both.
    (
        r#"{"type": "object", "additionalProperties": false, "required": ["format", "one"], "properties": {
            "format": {"type": "string", "format": "path", "maxLength": 3},
            "one": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 5},
                {"type": "integer", "minimum": 3, "maximum": 9}]}}}"#,
        |value| {
            let [format, one] = fields(value, ["format", "one"])?;
            Some(format.as_str()?.chars().count() <= 3 && one.as_u64()? <= 9)
        },
    ),
    // A field with the name of a keyword whose values are no schemas.
    (
        r#"{"type": "object", "additionalProperties": false, "required": ["default"], "properties": {
            "default": {"type": "string", "format": "path", "maxLength": 3}}}"#,
        |value| Some(fields(value, ["default"])?[0].as_str()?.chars().count() <= 3),
    ),
];

#[test]
fn a_text_is_json_of_its_schema() {
    for (schema, is_valid) in CASES {
        for text in texts(&Grammar::json_schema(schema).unwrap()) {
            let value: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(is_valid(&value), Some(true), "{text}\n{schema}");
        }
    }
}

#[test]
fn a_text_matches_a_regular_expression_as_a_whole() {
    for text in texts(&Grammar::regex("(he|hel)[0-9]{2,4}!?")) {
        let digits =
            text.strip_prefix("hel").or_else(|| text.strip_prefix("he")).unwrap().trim_end_matches('!');
        assert!((2..=4).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit()), "{text}");
    }
    for text in texts(&Grammar::regex("[é北]{3}")) {
        assert!(text.chars().count() == 3 && text.chars().all(|c| "é北".contains(c)), "{text}");
    }
}

#[test]
fn a_text_is_one_of_a_grammar() {
    let grammar =
        Grammar::lark("start: sum\nsum: term (\"+\" term){1,3}\nterm: /[0-9]{1,3}/ | \"(\" /[a-z]/ \")\"");
    for text in texts(&grammar) {
        let terms: Vec<&str> = text.split('+').collect();
        assert!((2..=4).contains(&terms.len()), "{text}");
        for term in terms {
            let is_number = (1..=3).contains(&term.len()) && term.bytes().all(|c| c.is_ascii_digit());
            assert!(is_number || (term.len() == 3 && term.starts_with('(') && term.ends_with(')')), "{text}");
        }
    }
}

/// Batches, beams and guesses read several texts with one rule, in turns.
#[test]
fn texts_that_take_turns_match_too() {
    let tokenizer = gguf_tokenizer("gpt-2");
    let guide = Guide::new(&tokenizer).unwrap();
    let rule = || guide.rule(&Grammar::regex("[a-f]{2,9}(,[0-9]{3}){2}")).unwrap();
    let (large, small) = (model(0), model(1));
    let prompts = [vec![72], vec![72, 105, 33], vec![65, 66]];
    let config = settings(&tokenizer, rule(), 1.0, 3);
    let alone = |prompt: &[u32]| -> Vec<u32> {
        let config = settings(&tokenizer, rule(), 0.0, 0);
        generate(&large, prompt, &config).unwrap().map(|token| token.unwrap().id).collect()
    };
    let matches = |ids: &[u32]| {
        let text = tokenizer.decode(ids, false).unwrap();
        let parts: Vec<&str> = text.split(',').collect();
        assert!(parts.len() == 3 && parts[1].len() == 3 && parts[2].len() == 3, "{text}");
    };
    for text in generate_batch(&large, &prompts, &config).unwrap() {
        matches(&text);
    }
    let greedy = settings(&tokenizer, rule(), 0.0, 0);
    for (prompt, text) in prompts.iter().zip(generate_batch(&large, &prompts, &greedy).unwrap()) {
        assert_eq!(text, alone(prompt));
    }
    let beams = BeamConfig {
        num_beams: 3,
        max_new_tokens: MAX_NEW_TOKENS,
        stop_tokens: tokenizer.end_tokens().to_vec(),
        logits_rule: Some(rule()),
        ..Default::default()
    };
    for beam in beam_search(&large, &prompts[0], &beams).unwrap() {
        matches(&beam.tokens);
    }
    for draft in [&large, &small] {
        let found = generate_speculative(&large, draft, &prompts[0], 4, &greedy).unwrap();
        assert_eq!(found.tokens, alone(&prompts[0]));
    }
}

#[test]
fn pieces_stand_for_their_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sentence_pieces.gguf");
    let tokenizer = Tokenizer::from_folder(path).unwrap();
    let bytes = tokenizer.token_bytes().unwrap();
    let of = |token: &str| bytes[tokenizer.token_to_id(token).unwrap() as usize].clone();
    assert_eq!(of("<0xE5>"), [0xe5]);
    let spaced = (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.id_to_token(id));
    let spaced = spaced.filter(|token| token.starts_with('▁')).collect::<Vec<_>>();
    assert!(!spaced.is_empty());
    for token in spaced {
        assert_eq!(of(&token), token.replace('▁', " ").as_bytes());
    }
    // All bytes of a byte-level vocabulary.
    let bytes = gguf_tokenizer("gpt-2").token_bytes().unwrap();
    let all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    assert_eq!(bytes[..256], all);
    assert_eq!(bytes[256..], ["<s>", "<|end|>", "he", "12", "hel"].map(|token| token.as_bytes().to_vec()));
}

#[test]
fn a_grammar_that_is_refused_says_why() {
    let tokenizer = gguf_tokenizer("gpt-2");
    let guide = Guide::new(&tokenizer).unwrap();
    let refused = |grammar: Grammar| guide.rule(&grammar).unwrap_err().to_string();
    let schema = |text: &str| Grammar::json_schema(text).unwrap();
    for (schema, reason) in [
        (schema(r#"{"type": "object", "uniqueItems": true, "not": {"type": "string"}}"#), "not"),
        (schema(r#"{"type": "colour"}"#), "colour"),
        (schema(r##"{"$ref": "#/$defs/absent"}"##), "absent"),
        (Grammar::regex("[a-"), "regex"),
        (Grammar::lark("start: word"), "word"),
    ] {
        let error = refused(schema);
        assert!(error.contains(reason) && !error.contains('<'), "{error}");
    }
    assert!(Grammar::json_schema("{\"type\"").unwrap_err().to_string().contains("no JSON"));
    // Tokens whose text depends on their neighbours, and a tokenizer without an end.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tokenizers/");
    for (name, reason) in [("word_pieces.json", "no bytes"), ("byte_pairs.json", "no end token")] {
        let tokenizer = Tokenizer::from_json(&std::fs::read(format!("{folder}{name}")).unwrap()).unwrap();
        let error = Guide::new(&tokenizer).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
