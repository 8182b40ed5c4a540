//! `taper transcribe` with a small Whisper of random weights, whose text means nothing but is always the
//! same.

use std::fs;

use taper::{
    data::audio::{Resample, WavFormat, read_wav, resample, write_wav},
    models::audio::{Whisper, WhisperConfig, WhisperDecoding, log_mel_spectrogram, pad_or_trim},
    nn::save_safetensors,
    prelude::*,
};

use crate::common::{at, json, printed, refused, word_tokenizer};

const CONFIG: &str = r#"{"model_type": "whisper", "vocab_size": 40, "num_mel_bins": 80, "d_model": 16,
    "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_layers": 1,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 24, "max_source_positions": 50,
    "max_target_positions": 12, "activation_function": "gelu"}"#;
const GENERATION: &str = r#"{"decoder_start_token_id": 1, "eos_token_id": 2, "no_timestamps_token_id": 3,
    "lang_to_id": {"<|en|>": 4, "<|de|>": 5}, "task_to_id": {"transcribe": 6, "translate": 7},
    "suppress_tokens": [0, 1, 3, 4, 5, 6, 7], "begin_suppress_tokens": [2], "max_length": 12}"#;

/// 1.5 s of sound at 8 kHz in two channels are two parts of a model that reads one second.
#[test]
fn every_part_of_a_recording_has_the_text_of_the_model() -> Result<()> {
    let device = taper::cpu();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("config.json"), CONFIG).unwrap();
    fs::write(path("generation_config.json"), GENERATION).unwrap();
    fs::write(path("tokenizer.json"), word_tokenizer()).unwrap();
    let config: WhisperConfig = taper::models::read_config(folder.path())?;
    let model = Whisper::new(&config, &Generator::seed(5, &device))?;
    save_safetensors(path("model.safetensors"), &model.state_dict())?;
    let sound = Tensor::randn([2, 12_000], &Generator::seed(6, &device))?.mul_scalar(0.1);
    write_wav(path("speech.wav"), &sound, 8000, WavFormat::Float32)?;

    let wav = at(&folder, "speech.wav");
    let arguments = ["transcribe", folder.path().to_str().unwrap(), &wav];
    let run = |more: &[&str]| printed(&[&arguments[..], more].concat());
    let text = run(&["--language", "de"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("[    0.0 s] w") && lines[1].starts_with("[    1.0 s] w"), "{text}");

    // The first part, by the library alone.
    let (channels, rate) = read_wav(path("speech.wav"), &device)?;
    let mono = resample(&channels.mean_axis(0, false)?, rate, 16_000, &Resample::default())?;
    let mels = log_mel_spectrogram(&pad_or_trim(&mono, 16_000)?, 80)?.unsqueeze(0)?;
    let decoding = WhisperDecoding::from_folder(folder.path())?;
    let ids = model.greedy(&mels, &decoding.prompt(Some("de"), "transcribe")?, &decoding)?;
    assert!(!ids.is_empty() && ids.iter().all(|id| *id >= 8), "{ids:?}");
    let words: Vec<String> = ids.iter().map(|id| format!("w{id}")).collect();
    assert_eq!(lines[0], format!("[    0.0 s] {}", words.join(" ")));
    let parts = json(&[&arguments[..], &["--language", "de", "--json"]].concat());
    assert_eq!((&parts[0]["text"], &parts[1]["start"]), (&words.join(" ").into(), &1.0.into()));

    // Without a language the model chooses one of the two.
    let (heard, english) = (run(&[]), run(&["--language", "en"]));
    assert!(heard.lines().zip(english.lines().zip(text.lines())).all(|(h, (e, d))| h == e || h == d));
    let message = refused(&[&arguments[..], &["--language", "xx"]].concat());
    assert!(message.contains("no language <|xx|>; known are <|de|>, <|en|>"), "{message}");
    fs::remove_file(path("generation_config.json")).unwrap();
    assert!(refused(&arguments).contains("generation_config.json"));
    Ok(())
}
