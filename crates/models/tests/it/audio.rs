//! Networks for sound: outputs, a loss and gradients; Whisper's front end.

use models::audio::{
    WHISPER_SAMPLES, Wav2Vec2, Wav2Vec2Config, Whisper, WhisperConfig, WhisperDecoding, log_mel_spectrogram,
    pad_or_trim,
};
use tensor_core::{Generator, Result};

use crate::{
    devices,
    fixture::{Fixture, Run, classifies, floats, parameters},
    language::next_token_loss,
};

#[test]
fn whisper() {
    Fixture::open("whisper").check(1e-4, |fixture, device| {
        let config: WhisperConfig = models::read_config(fixture.folder())?;
        let model = Whisper::new(&config, fixture.source(device))?;
        let ids = fixture.input("ids", device);
        let encoded = model.encode(&fixture.input("mels", device))?;
        let logits = model.decode(&ids, &encoded)?;
        let loss = next_token_loss(&logits, &ids)?;
        let outputs = vec![("logits", logits), ("encoded", encoded)];
        Ok(Run { outputs, loss, parameters: parameters(&model) })
    });
}

/// Each token of the greedy text is the most probable one after those before it.
/// Two languages and one task, up to seven tokens.
pub(crate) fn decoding() -> WhisperDecoding {
    WhisperDecoding {
        decoder_start_token_id: 1,
        eos_token_id: -1,
        no_timestamps_token_id: None,
        lang_to_id: [("<|de|>".to_string(), 7), ("<|en|>".to_string(), 8)].into(),
        task_to_id: [("transcribe".to_string(), 9)].into(),
        suppress_tokens: None,
        begin_suppress_tokens: None,
        max_length: 7,
    }
}

#[test]
fn greedy_text_is_what_the_logits_say() -> Result<()> {
    let (fixture, device) = (Fixture::open("whisper"), backend_cpu::cpu());
    let config: WhisperConfig = models::read_config(fixture.folder())?;
    let model = Whisper::new(&config, fixture.source(&device))?;
    let mels = fixture.input("mels", &device).narrow(0, 0, 1)?;
    let decoding = decoding();
    assert_eq!(decoding.prompt(Some("de"), "transcribe")?, [1, 7, 9]);
    assert!(decoding.prompt(Some("xx"), "transcribe").unwrap_err().to_string().contains("<|de|>, <|en|>"));
    let text = model.greedy(&mels, &[1], &decoding)?;
    let ids: Vec<i32> = std::iter::once(1).chain(text.iter().map(|id| *id as i32)).collect();
    let ids = tensor_core::Tensor::from_vec(ids, [1, 7], &device)?;
    let best = model.decode(&ids, &model.encode(&mels)?)?.argmax_axis(-1, false)?.to_vec::<i64>()?;
    assert_eq!(text, best[..6]);
    // A token that is suppressed at the beginning gives way to the second best.
    let other = WhisperDecoding { begin_suppress_tokens: Some(vec![text[0]]), ..decoding.clone() };
    assert_ne!(model.greedy(&mels, &[1], &other)?[0], text[0]);
    let never = WhisperDecoding { suppress_tokens: Some(text.clone()), ..decoding.clone() };
    assert!(model.greedy(&mels, &[1], &never)?.iter().all(|id| !text.contains(id)));
    let ends = WhisperDecoding { eos_token_id: text[2], ..decoding.clone() };
    let end = text.iter().position(|id| *id == text[2]).unwrap_or(2);
    assert_eq!(model.greedy(&mels, &[1], &ends)?, text[..end]);
    let language = model.detect_language(&mels, &decoding)?;
    assert!(language.as_deref() == Some("de") || language.as_deref() == Some("en"));
    Ok(())
}

#[test]
fn spectrograms_are_those_of_whispers_front_end() {
    let fixture = Fixture::open("mel");
    for device in devices() {
        let sound = pad_or_trim(&fixture.input("x", &device), WHISPER_SAMPLES).unwrap();
        for (name, bins) in [("mel80", 80), ("mel128", 128)] {
            let found = log_mel_spectrogram(&sound, bins).unwrap();
            assert_eq!(found.dims(), [2, bins, 3000]);
            let found = floats(&found.narrow(2, 0, 40).unwrap());
            taper_testing::assert_close(
                &found,
                &fixture.output(name),
                (0.0, 2e-4),
                &format!("{name} on {device}"),
            );
        }
    }
}

fn ctc(name: &str) {
    let config: Wav2Vec2Config = models::read_config(Fixture::open(name).folder()).unwrap();
    classifies(name, |weights| Wav2Vec2::new(&config, weights));
}

#[test]
fn wav2vec2() {
    ctc("wav2vec2");
}

#[test]
fn wav2vec2_stable() {
    ctc("wav2vec2_stable");
}

#[test]
fn a_text_begins_with_tokens_that_exist() -> Result<()> {
    let (fixture, device) = (Fixture::open("whisper"), backend_cpu::cpu());
    let config: WhisperConfig = models::read_config(fixture.folder())?;
    let model = Whisper::new(&config, &Generator::seed(0, &device))?;
    let mels = fixture.input("mels", &device).narrow(0, 0, 1)?;
    for prompt in [&[1i64, -3][..], &[]] {
        let error = model.greedy(&mels, prompt, &decoding()).unwrap_err().to_string();
        assert!(error.contains("begins with tokens"), "{error}");
    }
    Ok(())
}
