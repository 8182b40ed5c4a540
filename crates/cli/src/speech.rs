//! [`Speech`]: the text of a sound by Whisper, part by part. `transcribe` and `serve` share it.

use std::{iter::StepBy, ops::Range, path::Path};

use taper::{
    data::audio::{Resample, WHISPER_HOP, WHISPER_RATE, resample},
    models::{
        audio::{Whisper, WhisperDecoding, log_mel_spectrogram, pad_or_trim},
        text::Tokenizer,
    },
    prelude::*,
};

/// The text that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Text in the language of the speech.
    Transcribe,
    /// English, whatever the language of the speech.
    Translate,
}

impl Task {
    /// The name that Whisper's configuration has.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Task::Transcribe => "transcribe",
            Task::Translate => "translate",
        }
    }
}

/// A Whisper with its tokens.
pub(crate) struct Speech {
    model: Whisper,
    decoding: WhisperDecoding,
    tokenizer: Tokenizer,
}

/// The text of a part of a sound.
pub(crate) struct Part {
    /// The seconds at which the part begins and ends.
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// The language, such as `en`: the given one, or the one that the model recognized.
    pub(crate) language: Option<String>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
}

/// The seconds that some samples take.
pub(crate) fn seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(WHISPER_RATE)
}

/// Channels `[channels, samples]` at any rate as one channel `[samples]` at Whisper's.
pub(crate) fn as_one_channel(channels: &Tensor, rate: u32) -> Result<Tensor> {
    resample(&channels.mean_axis(0, false)?, rate, WHISPER_RATE, &Resample::default())
}

impl Speech {
    /// A model from a folder with `config.json`, `generation_config.json`, `tokenizer.json` and weights.
    pub(crate) fn from_folder(path: &Path, device: &Device) -> Result<Speech> {
        Ok(Speech {
            model: Whisper::from_folder(path, device)?,
            decoding: WhisperDecoding::from_folder(path)?,
            tokenizer: Tokenizer::from_folder(path)?,
        })
    }

    /// The device of the weights.
    #[cfg(feature = "serve")]
    pub(crate) fn device(&self) -> Device {
        self.model.parameters()[0].device()
    }

    /// An error if the model does not know a language or a task.
    #[cfg(feature = "serve")]
    pub(crate) fn check(&self, language: Option<&str>, task: Task) -> Result<()> {
        self.decoding.prompt(language, task.name()).map(drop)
    }

    /// The first samples of the parts of a sound, each of the length that the model reads: 30 seconds.
    pub(crate) fn starts(&self, sound: &Tensor) -> StepBy<Range<usize>> {
        (0..sound.numel()).step_by(self.part_samples())
    }

    fn part_samples(&self) -> usize {
        self.model.frames() * WHISPER_HOP
    }

    /// The text of the part of a sound `[samples]` from sample `start` on. Without a language it is the one
    /// that the model recognizes.
    pub(crate) fn part(
        &self,
        sound: &Tensor,
        start: usize,
        language: Option<&str>,
        task: Task,
    ) -> Result<Part> {
        let length = self.part_samples();
        let samples = length.min(sound.numel() - start);
        let piece = pad_or_trim(&sound.narrow(0, start, samples)?, length)?;
        let mels = log_mel_spectrogram(&piece, self.model.mel_bins())?.unsqueeze(0)?;
        let (language, ids) = no_grad(|| -> Result<_> {
            let language = match language {
                Some(language) => Some(language.to_string()),
                None => self.model.detect_language(&mels, &self.decoding)?,
            };
            let prompt = self.decoding.prompt(language.as_deref(), task.name())?;
            Ok((language, self.model.greedy(&mels, &prompt, &self.decoding)?))
        })?;
        let tokens: Vec<u32> = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        let text = self.tokenizer.decode(&tokens, true)?.trim().to_string();
        Ok(Part { start: seconds(start), end: seconds(start + samples), language, tokens, text })
    }
}
