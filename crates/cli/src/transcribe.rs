//! `taper transcribe`: the text of the speech in a WAV file, by Whisper.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Args;
use serde_json::json;
use taper::data::audio::read_wav;

use crate::{
    error::Outcome,
    model::{self, DeviceOption},
    output,
    speech::{self, Speech, Task},
};

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
    /// Prints the parts as JSON, with their languages and the seconds at which they begin and end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceOption,
}

/// Prints the text of each part of the sound with the seconds at which it begins.
pub(crate) fn run(options: &Options) -> Outcome {
    let device = options.device.open()?;
    let speech = Speech::from_folder(&model::find(&options.model)?, &device)?;
    let task = if options.translate { Task::Translate } else { Task::Transcribe };
    let (channels, rate) = read_wav(&options.sound, &device)?;
    let sound = speech::as_one_channel(&channels, rate)?;
    let begin = Instant::now();
    let (mut parts, mut tokens) = (Vec::new(), 0);
    for start in speech.starts(&sound) {
        let part = speech.part(&sound, start, options.language.as_deref(), task)?;
        match options.json {
            true => parts.push(json!({
                "start": part.start, "end": part.end, "language": part.language, "text": part.text,
            })),
            false => writeln!(io::stdout(), "[{:7.1} s] {}", part.start, part.text)?,
        }
        tokens += part.tokens.len();
    }
    let (read, taken) = (speech::seconds(sound.numel()), begin.elapsed().as_secs_f64());
    eprintln!("[{read:.1} s of sound, {tokens} tokens in {taken:.1} s on {device}]");
    if options.json { output::json(&parts.into()) } else { Ok(()) }
}
