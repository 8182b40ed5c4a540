//! Encoders of texts: hidden states, classes, masked tokens; encoders with decoders.

use models::{
    Bart, Bert, BertClassifier, BertMaskedLm, LanguageModel, ModernBertMaskedLm, T5,
    generate::{BeamConfig, GenerationConfig, beam_search, generate_batch, log_probabilities},
};
use nn::cross_entropy;
use tensor_core::{Device, Result, Tensor};

use crate::{
    devices,
    fixture::{Fixture, Run, floats, parameters},
};

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

#[test]
fn modernbert_guesses_masked_tokens() {
    Fixture::open("modernbert").check(1e-4, |fixture, device| {
        let [ids, mask, labels] = inputs(fixture, device);
        let model = ModernBertMaskedLm::from_folder(fixture.folder(), device)?;
        let logits = model.forward(&ids, Some(&mask))?;
        let rows = labels.numel();
        let loss = cross_entropy(&logits.reshape([rows, logits.numel() / rows])?, &labels.flatten_all())?;
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

fn text_to_text(name: &str) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let [ids, mask, labels] = inputs(fixture, device);
        let model = T5::from_folder(fixture.folder(), device)?;
        let logits = model.forward(&ids, Some(&mask), &fixture.input("decoder_ids", device))?;
        let rows = labels.numel();
        let loss = cross_entropy(&logits.reshape([rows, logits.numel() / rows])?, &labels.flatten_all())?;
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

#[test]
fn t5_turns_texts_into_texts() {
    text_to_text("t5");
    text_to_text("t5_gated");
    let (fixture, device) = (Fixture::open("t5"), backend_cpu::cpu());
    let model = T5::from_folder(fixture.folder(), &device).unwrap();
    let expected = fixture.output("generated").into_iter().map(|id| id as u32).collect::<Vec<_>>();
    assert_eq!(model.generate(&[5, 9, 30, 7], expected.len()).unwrap(), expected);
}

/// Biases by position reach the keys of both tables of a cache, which are merged twice.
#[test]
fn t5_goes_on_from_a_cache() -> Result<()> {
    for device in devices() {
        let fixture = Fixture::open("t5");
        let model = T5::from_folder(fixture.folder(), &device)?;
        let encoded = model.encode(&fixture.input("ids", &device).narrow(0, 0, 1)?, None)?;
        let decoder = model.decoder(&encoded, None)?;
        let length = if device.name() == "cpu" { 140 } else { 9 };
        let text = (0..length).map(|k| 3 + (7 * k * k + k) % 37).collect();
        let text = Tensor::from_vec(text, [1, length as usize], &device)?;
        let expected = floats(&decoder.forward(&text)?);
        let (mut cache, mut at) = (decoder.new_cache(), 0);
        for step in [3, 1, 2].into_iter().chain(std::iter::repeat_n(1, length as usize - 6)) {
            let part = text.narrow(1, at, step)?;
            at += step;
            let found = floats(&autograd::no_grad(|| decoder.next_logits(&part, &mut cache))?);
            let what = format!("the logits at {at} on {device}");
            taper_testing::assert_close(&found, &expected[(at - 1) * 40..at * 40], (1e-4, 1e-4), &what);
        }
        let config = BeamConfig { num_beams: 3, max_new_tokens: 5, ..Default::default() };
        for beam in beam_search(&decoder, &[0], &config)? {
            let text: Vec<u32> = std::iter::once(0).chain(beam.tokens).collect();
            let sum: f64 = log_probabilities(&decoder, &text)?.iter().sum();
            assert!((sum - beam.log_probability).abs() < 1e-3, "{sum} and {}", beam.log_probability);
        }
    }
    Ok(())
}

fn bart(name: &str) {
    Fixture::open(name).check(1e-4, |fixture, device| {
        let [ids, mask, labels] = inputs(fixture, device);
        let model = Bart::from_folder(fixture.folder(), device)?;
        let logits = model.forward(&ids, Some(&mask), &fixture.input("decoder_ids", device))?;
        let rows = labels.numel();
        let loss = cross_entropy(&logits.reshape([rows, logits.numel() / rows])?, &labels.flatten_all())?;
        Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(&model) })
    });
}

/// The tokens of an output, up to the one that ends a text.
fn expected(fixture: &Fixture, name: &str) -> Vec<u32> {
    fixture.output(name).into_iter().map(|id| id as u32).take_while(|id| *id != 2).collect()
}

#[test]
fn bart_turns_texts_into_texts() {
    bart("bart");
    bart("mbart");
}

/// One token and beams, with the reference's tokens.
#[test]
fn bart_generates_the_tokens_of_the_reference() -> Result<()> {
    for (name, device) in
        ["bart", "mbart"].into_iter().flat_map(|name| devices().into_iter().map(move |d| (name, d)))
    {
        let fixture = Fixture::open(name);
        let model = Bart::from_folder(fixture.folder(), &device)?;
        let asked = fixture.input("asked", &device);
        let text: Vec<u32> = asked.to_vec::<i32>()?.into_iter().map(|id| id as u32).collect();
        assert_eq!(model.generate(&text, 8)?, expected(&fixture, "generated"), "{name} on {device}");
        let settings =
            BeamConfig { num_beams: 3, max_new_tokens: 8, stop_tokens: vec![2], ..Default::default() };
        let decoder = model.decoder(&model.encode(&asked, None)?, None)?;
        let beams = beam_search(&decoder, &[2], &settings)?;
        assert_eq!(beams[0].tokens, expected(&fixture, "beam"), "{name} on {device}");
    }
    Ok(())
}

/// Row k of a batch answers to input k, whose padding is hidden, with prompts of different lengths.
#[test]
fn rows_of_a_decoder_answer_to_their_own_inputs() -> Result<()> {
    let (fixture, device) = (Fixture::open("bart"), backend_cpu::cpu());
    let model = Bart::from_folder(fixture.folder(), &device)?;
    let [ids, mask, _] = inputs(&fixture, &device);
    let config = GenerationConfig { max_new_tokens: 6, ..Default::default() };
    let prompts = [vec![2], vec![2, 7, 9]];
    let decoder = model.decoder(&model.encode(&ids, Some(&mask))?, Some(&mask))?;
    let found = generate_batch(&decoder, &prompts, &config)?;
    for (k, length) in [(0, 12), (1, 9)] {
        let alone = model.encode(&ids.narrow(0, k, 1)?.narrow(1, 0, length)?, None)?;
        let alone = generate_batch(&model.decoder(&alone, None)?, &prompts[k..k + 1], &config)?;
        assert_eq!(found[k], alone[0], "row {k}");
    }
    // Three rows of tokens for two inputs, and more tokens than there are positions.
    let error = decoder.forward(&ids.narrow(1, 0, 1)?.expand([2, 3])?.t()?).unwrap_err().to_string();
    assert!(error.contains("3 rows of tokens for the states of 2 inputs"), "{error}");
    let error = model.encode(&Tensor::zeros([1, 31], (device.int_dtype(), &device))?, None).unwrap_err();
    assert!(error.to_string().contains("31 tokens, of at most 30"), "{error}");
    Ok(())
}

#[test]
fn another_architecture_is_not_taken_for_bart() {
    let (fixture, device) = (Fixture::open("bart"), backend_cpu::cpu());
    let path = fixture.folder().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    assert!(config.contains("\"bart\""));
    for (name, message) in [("pegasus", "\"pegasus\" is none of bart, mbart"), ("mbart", "layer_norm.weight")]
    {
        std::fs::write(&path, config.replace("\"bart\"", &format!("\"{name}\""))).unwrap();
        let error = Bart::from_folder(fixture.folder(), &device).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    }
}
