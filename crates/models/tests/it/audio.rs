//! Networks for sound: outputs, a loss and gradients; Whisper's front end.

use models::audio::{
    WHISPER_SAMPLES, Wav2Vec2, Wav2Vec2Config, Whisper, WhisperConfig, log_mel_spectrogram, pad_or_trim,
};
use nn::Module;
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
        let model = Whisper::new(&config, &Generator::seed(0, device))?;
        model.load_state_dict(&fixture.weights(device))?;
        let ids = fixture.input("ids", device);
        let encoded = model.encode(&fixture.input("mels", device))?;
        let logits = model.decode(&ids, &encoded)?;
        let loss = next_token_loss(&logits, &ids)?;
        let outputs = vec![("logits", logits), ("encoded", encoded)];
        Ok(Run { outputs, loss, parameters: parameters(&model) })
    });
}

/// Each token of the greedy text is the most probable one after those before it.
#[test]
fn greedy_text_is_what_the_logits_say() -> Result<()> {
    let (fixture, device) = (Fixture::open("whisper"), backend_cpu::cpu());
    let config: WhisperConfig = models::read_config(fixture.folder())?;
    let model = Whisper::new(&config, &Generator::seed(0, &device))?;
    model.load_state_dict(&fixture.weights(&device))?;
    let mels = fixture.input("mels", &device).narrow(0, 0, 1)?;
    let encoded = model.encode(&mels)?;
    for start in [vec![1i64], vec![7, 9], vec![41, 30, 12]] {
        let text = model.greedy(&mels, &start, -1, 6)?;
        let ids: Vec<i32> = start.iter().chain(&text).map(|id| *id as i32).collect();
        let length = ids.len();
        let ids = tensor_core::Tensor::from_vec(ids, [1, length], &device)?;
        let best = model.decode(&ids, &encoded)?.argmax_axis(-1, false)?.to_vec::<i64>()?;
        assert_eq!(text, best[start.len() - 1..length - 1]);
        // A text ends before the token that ends it.
        let end = model.greedy(&mels, &start, text[3], 6)?;
        assert_eq!(end, text[..text.iter().position(|id| *id == text[3]).unwrap_or(6)]);
    }
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
    classifies(name, |rng| Wav2Vec2::new(&config, rng));
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
    let error = model.greedy(&mels, &[1, -3], -1, 6).unwrap_err().to_string();
    assert!(error.contains("[1, -3] is negative"), "{error}");
    let error = model.greedy(&mels, &[1], -1, 13).unwrap_err().to_string();
    assert!(error.contains("13 tokens, of at most 12"), "{error}");
    Ok(())
}
