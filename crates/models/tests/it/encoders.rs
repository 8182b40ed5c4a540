//! Encoders of texts: hidden states, classes, masked tokens.

use models::{Bert, BertClassifier, BertMaskedLm};
use nn::cross_entropy;
use tensor_core::{Device, Result, Tensor};

use crate::fixture::{Fixture, Run, parameters};

/// The tokens, their mask and the labels of a fixture.
fn inputs(fixture: &Fixture, device: &Device) -> [Tensor; 3] {
    ["ids", "mask", "labels"].map(|name| fixture.input(name, device))
}

fn classifier(name: &str) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let [ids, mask, labels] = inputs(fixture, device);
        let model = BertClassifier::from_folder(fixture.folder(), device)?;
        let logits = model.forward(&ids, Some(&mask), None)?;
        let loss = cross_entropy(&logits, &labels)?;
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

fn masked(name: &str) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let [ids, mask, labels] = inputs(fixture, device);
        let model = BertMaskedLm::from_folder(fixture.folder(), device)?;
        let logits = model.forward(&ids, Some(&mask), None)?;
        let rows = labels.numel();
        let loss = cross_entropy(&logits.reshape([rows, logits.numel() / rows])?, &labels.flatten_all())?;
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

#[test]
fn bert_classifies() {
    classifier("bert_classifier");
}

#[test]
fn roberta_classifies() {
    classifier("roberta_classifier");
}

#[test]
fn distilbert_classifies() {
    classifier("distilbert_classifier");
}

#[test]
fn bert_guesses_masked_tokens() {
    masked("bert_masked_lm");
}

#[test]
fn roberta_guesses_masked_tokens() {
    masked("roberta_masked_lm");
}

#[test]
fn distilbert_guesses_masked_tokens() {
    masked("distilbert_masked_lm");
}

#[test]
fn an_encoder_reads_the_file_of_a_classifier() -> Result<()> {
    let device = backend_cpu::cpu();
    let fixture = Fixture::open("bert_classifier");
    let [ids, mask, _] = inputs(&fixture, &device);
    let model = Bert::from_folder(fixture.folder(), &device)?;
    let hidden = model.forward(&ids, Some(&mask), None)?;
    assert_eq!(Bert::mean_pooled(&hidden, Some(&mask))?.dims(), [ids.dims()[0], 32]);
    assert_eq!(model.pooled(&hidden)?.dims(), [ids.dims()[0], 32]);
    let long = Tensor::zeros([1, 65], (device.int_dtype(), &device))?;
    let error = model.forward(&long, None, None).unwrap_err().to_string();
    assert!(error.contains("65 tokens, of at most 64"), "{error}");
    Ok(())
}
