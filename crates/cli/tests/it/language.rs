//! The commands that read and write text.

use std::fs;

use taper::{
    models::{
        Bert, LanguageModel, Llama,
        generate::{GenerationConfig, perplexity},
        text::{Message, TextOptions, Tokenizer, generate_text},
    },
    prelude::*,
};

use crate::common::{at, json, printed, printed_for, refused, repository, tiny_bert, tiny_llama};

/// The text that the library generates for a prompt.
fn generated(folder: &std::path::Path, prompt: &str, special: bool) -> String {
    let model = Llama::from_folder(folder, &taper::cpu()).unwrap();
    let tokenizer = Tokenizer::from_folder(folder).unwrap();
    let ids = tokenizer.encode(prompt, special).unwrap().ids;
    let config = GenerationConfig {
        max_new_tokens: 6,
        stop_tokens: tokenizer.end_tokens().to_vec(),
        ..Default::default()
    };
    let options = TextOptions::default();
    let pieces = generate_text(&model, &tokenizer, model.new_cache(), &ids, &config, &options).unwrap();
    pieces.collect::<Result<String>>().unwrap()
}

#[test]
fn chat_and_complete_write_what_the_library_generates() {
    let folder = tiny_llama();
    let model = folder.path().to_str().unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    let prompt = tokenizer.chat(&[Message::user("Hello")], true).unwrap();
    let answer = format!("{}\n", generated(folder.path(), &prompt, false));
    assert_eq!(printed(&["chat", model, "--say", "Hello", "--max-new-tokens", "6"]), answer);

    // From the input, an answer for each line; the first is the same.
    let both = printed_for("Hello\nAnd then\n", &["chat", model, "--max-new-tokens", "6"]);
    assert!(both.starts_with(&answer) && both.len() > answer.len(), "{both:?}");

    let text = generated(folder.path(), "Once", true);
    let complete = ["complete", model, "--prompt", "Once", "--max-new-tokens", "6"];
    assert_eq!(printed(&complete), format!("{text}\n"));
    let found = json(&[&complete[..], &["--json"]].concat());
    assert_eq!(found["text"], text.as_str());
    assert_eq!((&found["prompt_tokens"], &found["tokens"]), (&4.into(), &6.into()));

    let seeded = |seed| printed(&[&complete[..], &["--temperature", "2", "--seed", seed]].concat());
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));
    let message = refused(&[&complete[..], &["--top-p", "7"]].concat());
    assert!(message.contains("top_p"), "{message}");
}

#[test]
#[cfg(feature = "guidance")]
fn answers_match_a_schema() {
    let folder = tiny_llama();
    let (model, schema) = (folder.path().to_str().unwrap(), at(&folder, "schema.json"));
    fs::write(&schema, r#"{"type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": ["a", "b"]}}"#)
        .unwrap();
    let found =
        printed_for("Hello\nAgain\n", &["chat", model, "--json-schema", &schema, "--temperature", "1"]);
    let lists: Vec<Vec<String>> =
        serde_json::Deserializer::from_str(&found).into_iter().map(|x| x.unwrap()).collect();
    assert_eq!(lists.len(), 2, "{found}");
    assert!(lists.iter().all(|list| (1..=3).contains(&list.len())), "{found}");
    fs::write(&schema, r#"{"type": "colour"}"#).unwrap();
    assert!(refused(&["chat", model, "--json-schema", &schema, "--say", "Hello"]).contains("colour"));
}

#[test]
fn perplexity_is_the_librarys() {
    let folder = tiny_llama();
    let (model, text) = (folder.path().to_str().unwrap(), at(&folder, "text.txt"));
    let words = "The ship was late. The library was open. ".repeat(8);
    fs::write(&text, &words).unwrap();
    let arguments =
        ["perplexity", model, "--text", &text, "--context", "32", "--stride", "16", "--tokens", "80"];
    let found = json(&[&arguments[..], &["--json"]].concat());
    let network = Llama::from_folder(folder.path(), &taper::cpu()).unwrap();
    let mut ids = Tokenizer::from_folder(folder.path()).unwrap().encode(&words, true).unwrap().ids;
    ids.truncate(80);
    let expected = perplexity(&network, &ids, 32, 16).unwrap();
    assert!((found["perplexity"].as_f64().unwrap() / expected.perplexity - 1.0).abs() < 1e-12);
    assert_eq!(found["tokens"], expected.tokens);
    assert!(printed(&arguments).starts_with(&format!("perplexity {:.3}", expected.perplexity)));

    let rounded = |more: &[&str]| {
        json(&[&arguments[..], &["--json", "--quantize"], more].concat())["perplexity"].as_f64().unwrap()
    };
    let near = (rounded(&["q8_0"]) / expected.perplexity).ln().abs();
    let far =
        (rounded(&["q4_0", "--calibrate", &text, "--calibrate-tokens", "64"]) / expected.perplexity).ln();
    assert!(near > 0.0 && near < 0.01, "{near}");
    assert!(far != 0.0 && far.abs() < 1.0, "{far}");
    let message = refused(&[&arguments[..], &["--quantize", "q9"]].concat());
    assert!(message.contains("there is no format q9; give one of q4_0"), "{message}");
    let missing = refused(&["perplexity", model, "--text", &at(&folder, "none.txt")]);
    assert!(missing.contains("none.txt"), "{missing}");
}

#[test]
fn bench_has_the_columns_of_llama_bench() {
    let folder = tiny_llama();
    let model = folder.path().to_str().unwrap();
    let arguments = ["bench", model, "-p", "8,0", "-n", "3", "-r", "2"];
    let table = printed(&arguments);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("| model | size | params | device | test | t/s |"), "{table}");
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[2].contains("| cpu | pp8 |") && lines[3].contains("| cpu | tg3 |"), "{table}");
    assert!(lines[3].contains(" ± "));

    let rows = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!((&rows[0]["n_prompt"], &rows[1]["n_gen"]), (&8.into(), &3.into()));
    let samples: Vec<f64> =
        rows[1]["samples_ts"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
    assert_eq!(samples.len(), 2);
    let mean = rows[1]["avg_ts"].as_f64().unwrap();
    assert!((mean - (samples[0] + samples[1]) / 2.0).abs() < 1e-9 * mean);
    let deviation = rows[1]["stddev_ts"].as_f64().unwrap();
    assert!((deviation - (samples[0] - samples[1]).abs() / 2f64.sqrt()).abs() < 1e-6 * mean);
    let network = Llama::from_folder(folder.path(), &taper::cpu()).unwrap();
    assert_eq!(rows[0]["parameters"], network.num_parameters());
    assert!(refused(&["bench", model, "-r", "0"]).contains("-r 1"));
}

#[test]
fn fine_tuning_lowers_the_loss_and_writes_an_adapter() {
    let folder = tiny_llama();
    let (model, adapter) = (folder.path().to_str().unwrap(), at(&folder, "adapter"));
    let all = fs::read_to_string(repository("examples/language/ships_log.jsonl")).unwrap();
    let some: Vec<&str> = all.lines().take(4).collect();
    let data = at(&folder, "data.jsonl");
    fs::write(&data, some.join("\n")).unwrap();
    let arguments = ["fine-tune", model, "--data", &data, "--epochs", "2", "--rank", "4", "--lr", "1e-2"];
    let more = ["--save", &adapter, "--say", "Hello", "--max-new-tokens", "2"];
    let text = printed(&[&arguments[..], &more[..]].concat());
    let loss = |epoch: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(epoch)).unwrap();
        line.parse().unwrap()
    };
    assert!(loss("epoch 2: loss ") < loss("epoch 1: loss "), "{text}");
    assert!(text.starts_with("before: ") && text.contains("\nafter: "), "{text}");
    let written = taper::weights::open(at(&folder, "adapter/adapter_model.safetensors")).unwrap();
    assert!(written.names().any(|name| name.ends_with("q_proj.lora_A.weight")));

    fs::write(&data, "{\"messages\": 3}\n").unwrap();
    let message = refused(&arguments);
    assert!(message.contains("data.jsonl"), "{message}");
}

#[test]
fn embed_gives_vectors_of_length_1_and_the_nearest_sentences() {
    let folder = tiny_bert();
    let model = folder.path().to_str().unwrap();
    let sentences = ["w9 w10 w11", "w20", "w9 w10 w11 w12"];
    let found = json(&[&["embed", model, "--json"], &sentences[..]].concat());
    let vector = |k: usize| -> Vec<f64> {
        found[k]["vector"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    };
    assert_eq!(found[1]["text"], "w20");
    let product = |a: usize, b: usize| vector(a).iter().zip(vector(b)).map(|(a, b)| a * b).sum::<f64>();
    assert!((product(0, 0) - 1.0).abs() < 1e-5);

    // The library, for one sentence.
    let device = taper::cpu();
    let network = Bert::from_folder(folder.path(), &device).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    let (ids, mask) = tokenizer.encode_batch(&["w20"], 32, &device).unwrap();
    let hidden = network.forward(&ids, Some(&mask), None).unwrap();
    let mean = Bert::mean_pooled(&hidden, Some(&mask)).unwrap().to_vec::<f32>().unwrap();
    let norm = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!(mean.iter().zip(vector(1)).all(|(a, b)| (f64::from(a / norm) - b).abs() < 1e-5));

    // The nearest of the lines of the input.
    let lines = sentences.join("\n");
    let nearest = printed_for(&lines, &["embed", model, "--query", "w9 w10 w11", "--count", "2"]);
    let lines: Vec<&str> = nearest.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "1.000  w9 w10 w11"));
    let expected = if product(0, 2) > product(0, 1) { sentences[2] } else { sentences[1] };
    assert!(lines[1].ends_with(expected), "{nearest}");
    assert!(refused(&["embed", model]).contains("one a line"));
}
