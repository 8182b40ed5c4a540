//! `taper transcribe`: the text of the speech in a WAV file, by Whisper.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Args;
use serde_json::json;
use taper::{
    data::audio::{Resample, WHISPER_RATE, read_wav, resample},
    models::{
        audio::{Whisper, WhisperDecoding, log_mel_spectrogram, pad_or_trim},
        text::Tokenizer,
    },
    prelude::*,
};

use crate::{
    error::Outcome,
    model::{self, DeviceOption},
    output,
};

/// The samples at 16 kHz that one frame of a spectrogram stands for.
const FRAME_SAMPLES: usize = 160;

/// Writes down the speech in a WAV file with Whisper.
///
/// The sound may have any rate and number of channels; it is read in parts of 30 seconds. The model
/// recognizes the language of each part, unless `--language` names it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper transcribe openai/whisper-tiny speech.wav
  taper transcribe whisper-tiny speech.wav --language de --translate
  taper transcribe whisper-tiny speech.wav --json")]
pub(crate) struct Options {
    /// A folder with config.json, generation_config.json, tokenizer.json and weights, or a name such as
    /// org/name
    model: PathBuf,
    /// A WAV file
    sound: PathBuf,
    /// The language, such as en; without it, the one that the model hears in each part
    #[arg(long)]
    language: Option<String>,
    /// Writes English, whatever the language of the speech
    #[arg(long)]
    translate: bool,
    /// Prints the parts as JSON, with the seconds at which they begin
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceOption,
}

/// The sound of a file as one channel at 16 kHz, `[samples]`.
fn sound(options: &Options, device: &Device) -> Result<Tensor> {
    let (channels, rate) = read_wav(&options.sound, device)?;
    resample(&channels.mean_axis(0, false)?, rate, WHISPER_RATE, &Resample::default())
}

/// Prints the text of each part of the sound with the seconds at which it begins.
pub(crate) fn run(options: &Options) -> Outcome {
    let device = options.device.open()?;
    let path = model::find(&options.model)?;
    let model = Whisper::from_folder(&path, &device)?;
    let decoding = WhisperDecoding::from_folder(&path)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    let task = if options.translate { "translate" } else { "transcribe" };
    let sound = sound(options, &device)?;
    let (samples, part) = (sound.dims()[0], model.frames() * FRAME_SAMPLES);
    let begin = Instant::now();
    let mut parts = Vec::new();
    for start in (0..samples).step_by(part) {
        let piece = pad_or_trim(&sound.narrow(0, start, part.min(samples - start))?, part)?;
        let mels = log_mel_spectrogram(&piece, model.mel_bins())?.unsqueeze(0)?;
        let ids = no_grad(|| -> Result<Vec<i64>> {
            let language = match &options.language {
                Some(language) => Some(language.clone()),
                None => model.detect_language(&mels, &decoding)?,
            };
            model.greedy(&mels, &decoding.prompt(language.as_deref(), task)?, &decoding)
        })?;
        let ids: Vec<u32> = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        let text = tokenizer.decode(&ids, true)?;
        let seconds = start as f64 / f64::from(WHISPER_RATE);
        match options.json {
            true => parts.push(json!({"start": seconds, "text": text.trim()})),
            false => writeln!(io::stdout(), "[{seconds:7.1} s] {}", text.trim())?,
        }
    }
    let (read, taken) = (samples as f64 / f64::from(WHISPER_RATE), begin.elapsed().as_secs_f64());
    eprintln!("[{read:.1} s of sound in {taken:.1} s on {device}]");
    if options.json { output::json(&parts.into()) } else { Ok(()) }
}
