//! `taper transcribe` with a small Whisper of random weights, whose text means nothing but is always the
//! same.

use std::fs;

use taper::{
    data::audio::{Resample, read_wav, resample},
    models::audio::{Whisper, WhisperDecoding, log_mel_spectrogram, pad_or_trim},
    prelude::*,
};

use crate::common::{at, json, printed, refused, tiny_whisper, write_noise};

#[test]
fn every_part_of_a_recording_has_the_text_of_the_model() -> Result<()> {
    let device = taper::cpu();
    let folder = tiny_whisper();
    let path = |name: &str| folder.path().join(name);
    write_noise(path("speech.wav"));
    let model = Whisper::from_folder(folder.path(), &device)?;

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
    assert_eq!((&parts[1]["language"], &parts[1]["end"]), (&"de".into(), &1.5.into()));

    // Without a language the model chooses one of the two.
    let (heard, english) = (run(&[]), run(&["--language", "en"]));
    assert!(heard.lines().zip(english.lines().zip(text.lines())).all(|(h, (e, d))| h == e || h == d));
    let message = refused(&[&arguments[..], &["--language", "xx"]].concat());
    assert!(message.contains("no language <|xx|>; known are <|de|>, <|en|>"), "{message}");
    fs::remove_file(path("generation_config.json")).unwrap();
    assert!(refused(&arguments).contains("generation_config.json"));
    Ok(())
}
