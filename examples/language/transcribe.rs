//! Writes down the speech in a WAV file with Whisper, on any device.
//!
//!     cargo run --release -p taper-examples-language --features hub --example transcribe -- \
//!         --model openai/whisper-tiny speech.wav
//!
//! The model is a folder with `config.json`, `generation_config.json`, `tokenizer.json` and weights, or a
//! name of the Hugging Face hub, as in the example `chat`. The sound may have any rate and number of
//! channels; it is read in parts of 30 seconds. The model recognizes the language, unless `--language`
//! names it; `--translate` writes English.
//!
//! The tests of this repository run the program with a small model of random weights, whose text means
//! nothing but is always the same (`tests/transcribe.rs`).

mod model;

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Parser;
use taper::{
    data::audio::{Resample, WHISPER_RATE, read_wav, resample},
    models::{
        audio::{Whisper, WhisperDecoding, log_mel_spectrogram, pad_or_trim},
        text::Tokenizer,
    },
    prelude::*,
};

/// The samples at 16 kHz that one frame of a spectrogram stands for.
const FRAME_SAMPLES: usize = 160;

/// Writes down the speech in a WAV file.
#[derive(Parser)]
pub(crate) struct Options {
    /// A WAV file
    sound: PathBuf,
    /// A folder with config.json, generation_config.json, tokenizer.json and weights, or a name such as
    /// org/name
    #[arg(long, value_name = "FOLDER")]
    model: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The language, such as en; without it, the one that the model hears in each part
    #[arg(long)]
    language: Option<String>,
    /// Writes English, whatever the language of the speech
    #[arg(long)]
    translate: bool,
}

/// The sound of a file as one channel at 16 kHz, `[samples]`.
fn sound(options: &Options, device: &Device) -> Result<Tensor> {
    let (channels, rate) = read_wav(&options.sound, device)?;
    resample(&channels.mean_axis(0, false)?, rate, WHISPER_RATE, &Resample::default())
}

/// Prints the text of each part of the sound with the seconds at which it begins.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> std::result::Result<(), Box<dyn Error>> {
    let device = taper::device(&options.device)?;
    let begin = Instant::now();
    let path = model::find(&options.model)?;
    let model = Whisper::from_folder(&path, &device)?;
    let decoding = WhisperDecoding::from_folder(&path)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    eprintln!("{} on {device}, loaded in {:.1} s", options.model.display(), begin.elapsed().as_secs_f64());
    let task = if options.translate { "translate" } else { "transcribe" };
    let sound = sound(options, &device)?;
    let (samples, part) = (sound.dims()[0], model.frames() * FRAME_SAMPLES);
    let begin = Instant::now();
    for start in (0..samples).step_by(part) {
        let piece = pad_or_trim(&sound.narrow(0, start, part.min(samples - start))?, part)?;
        let mels = log_mel_spectrogram(&piece, model.mel_bins())?.unsqueeze(0)?;
        let text = no_grad(|| -> Result<Vec<i64>> {
            let language = match &options.language {
                Some(language) => Some(language.clone()),
                None => model.detect_language(&mels, &decoding)?,
            };
            model.greedy(&mels, &decoding.prompt(language.as_deref(), task)?, &decoding)
        })?;
        let ids: Vec<u32> = text.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        let seconds = start as f64 / f64::from(WHISPER_RATE);
        writeln!(out, "[{seconds:7.1} s] {}", tokenizer.decode(&ids, true)?.trim())?;
    }
    let (read, taken) = (samples as f64 / f64::from(WHISPER_RATE), begin.elapsed().as_secs_f64());
    eprintln!("[{read:.1} s of sound in {taken:.1} s]");
    Ok(())
}

#[allow(dead_code)] // the tests call `run`
fn main() -> std::result::Result<(), Box<dyn Error>> {
    taper::end_quietly_on_closed_pipe();
    match run(&Options::parse(), &mut io::stdout()) {
        Err(error) if taper::is_closed_pipe(&*error) => Ok(()),
        done => done,
    }
}
