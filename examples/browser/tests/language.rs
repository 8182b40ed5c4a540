//! The page's fine-tuning, outside a browser.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use browser::FineTuning;
use pollster::block_on;
use taper::{nn::Module, prelude::*};

const MODEL: &[u8] = include_bytes!("../page/tiny.gguf");
const CONVERSATIONS: &str = include_str!("../../language/ships_log.jsonl");

/// The model's own weights: blocks as bytes, others as numbers.
fn weights(tuning: &FineTuning) -> BTreeMap<String, Vec<u8>> {
    let own = tuning.model().state_dict().into_iter().filter(|(name, _)| !name.contains("lora"));
    let bytes = |tensor: Tensor| match tensor.block_format() {
        Some(_) => tensor.block_bytes().unwrap(),
        None => tensor.to_vec::<f32>().unwrap().iter().flat_map(|x| x.to_bits().to_le_bytes()).collect(),
    };
    own.map(|(name, tensor)| (name, bytes(tensor))).collect()
}

/// Tunes for two epochs; returns the losses of the steps.
fn tuned(device: &Device) -> Vec<f64> {
    let mut tuning = FineTuning::new(MODEL.to_vec(), CONVERSATIONS, 5e-3, device).unwrap();
    assert!(tuning.trained_parameters() * 4 < tuning.parameters());
    let before = weights(&tuning);
    assert!(before.keys().any(|name| name.contains("q_proj")), "{:?}", before.keys());
    let ask = |tuning: &FineTuning, adapted| {
        let mut pieces = String::new();
        let tell = async |piece: &str| pieces.push_str(piece);
        let answer = block_on(tuning.answer("How do I make tea?", adapted, tell)).unwrap();
        assert_eq!(answer, pieces);
        answer
    };
    let (base_loss, base) = (block_on(tuning.base_loss()).unwrap(), ask(&tuning, true));
    let mut losses = Vec::new();
    let mut epochs = 0;
    while epochs < 2 {
        let step = block_on(tuning.step()).unwrap();
        losses.push(step.loss);
        epochs = step.epochs;
    }
    assert_eq!(losses.len(), 2 * tuning.steps_per_epoch());
    assert_eq!(weights(&tuning), before, "a weight has changed on {device}");
    assert_eq!(block_on(tuning.base_loss()).unwrap().to_bits(), base_loss.to_bits());
    assert_eq!(ask(&tuning, false), base);
    assert_ne!(ask(&tuning, true), base);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..4]), mean(&losses[losses.len() - 4..]));
    assert!(last < 0.85 * first, "{losses:?} on {device}");
    losses
}

#[test]
fn a_model_in_blocks_learns_a_style_and_keeps_its_weights() {
    let on_cpu = tuned(&taper::cpu());
    match block_on(taper::device_async("wgpu")) {
        Ok(device) => {
            let on_gpu = tuned(&device);
            assert!((on_cpu[0] - on_gpu[0]).abs() < 1e-3, "{on_cpu:?}, {on_gpu:?}");
        }
        Err(error) => {
            let required =
                std::env::var("TAPER_TEST").is_ok_and(|settings| settings.contains("require=wgpu"));
            assert!(!required, "TAPER_TEST has require=wgpu, but {error}");
            eprintln!("skipped: {error}");
        }
    }
}

#[test]
fn bad_files_and_conversations_are_refused() {
    let refused = |gguf: &[u8], conversations: &str, expected: &str| {
        let made = FineTuning::new(gguf.to_vec(), conversations, 5e-3, &taper::cpu());
        let message = made.err().unwrap().to_string();
        assert!(message.contains(expected), "{message:?} does not have {expected:?}");
    };
    refused(b"PK\x03\x04 is a zip", CONVERSATIONS, "this is no GGUF file");
    refused(&MODEL[..MODEL.len() / 2], CONVERSATIONS, "cut off or damaged");
    refused(MODEL, "{\"messages\": 3}", "line 1");
    refused(MODEL, "", "there are no conversations");
    let question = r#"{"messages": [{"role": "user", "content": "Why?"}]}"#;
    refused(MODEL, question, "line 1: there is no answer");
}
