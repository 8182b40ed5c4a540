//! `/v1/audio/transcriptions` and `/v1/audio/translations`: the text of the speech in a WAV file.

use std::{fmt::Write, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value as Json, json};
use taper::{data::audio::read_wav_bytes, tensor_core::lock};

use super::{
    Server,
    compute::{Tokens, Wanted, compute},
    failure::{Failure, json_response},
    form::Form,
    served::{Kind, Served},
};
use crate::speech::{self, Part, Task};

/// The lowest sampling rate, in Hz. A file of a few samples a second would become millions of samples.
const MIN_RATE: u32 = 4000;

#[derive(Clone, Copy)]
enum Format {
    Json,
    VerboseJson,
    Text,
    Srt,
    Vtt,
}

/// The names of formats for requests.
const FORMATS: [(&str, Format); 5] = [
    ("json", Format::Json),
    ("verbose_json", Format::VerboseJson),
    ("text", Format::Text),
    ("srt", Format::Srt),
    ("vtt", Format::Vtt),
];

struct SpeechRequest {
    file: Bytes,
    model: String,
    language: Option<String>,
    format: Format,
}

impl SpeechRequest {
    fn parse(mut form: Form) -> Result<SpeechRequest, Failure> {
        let temperature = form.text("temperature")?;
        if temperature.is_some_and(|number| number.parse::<f64>().ok() != Some(0.0)) {
            let message = "this server takes the most probable tokens: give temperature 0";
            return Err(Failure::field("temperature", message));
        }
        if form.text("prompt")?.is_some() {
            return Err(Failure::field("prompt", "this server does not support prompts of speech"));
        }
        if form.text("stream")?.is_some_and(|stream| stream != "false") {
            return Err(Failure::field("stream", "this server sends the text of a sound as a whole"));
        }
        if form.texts("timestamp_granularities[]").any(|kind| kind != b"segment") {
            let message = "this server knows the times of parts of 30 seconds, not of words";
            return Err(Failure::field("timestamp_granularities[]", message));
        }
        let wanted = form.text("response_format")?.unwrap_or("json");
        let format = FORMATS.iter().find(|(name, _)| *name == wanted).map(|(_, format)| *format);
        let format = format.ok_or_else(|| {
            let names = FORMATS.map(|(name, _)| name).join(", ");
            Failure::field("response_format", format!("{wanted:?} is none of {names}"))
        })?;
        let model = form.text("model")?;
        let model = model.ok_or_else(|| Failure::field("model", "the form has no field \"model\""))?;
        let (model, language) = (model.to_string(), form.text("language")?.map(str::to_string));
        Ok(SpeechRequest { file: form.take("file")?.bytes, model, language, format })
    }
}

/// The text of a sound.
struct Transcript {
    seconds: f64,
    parts: Vec<Part>,
}

/// Writes down the speech of a form's file.
pub(super) async fn answer(server: &Arc<Server>, form: Form, task: Task) -> Result<Response, Failure> {
    let SpeechRequest { file, model, language, format } = SpeechRequest::parse(form)?;
    let place = server.pool.model(&model, Kind::Speech).await?;
    let work = move |served: &Served, wanted: &Wanted| {
        transcript(served, file.into(), language.as_deref(), task, wanted)
    };
    let (transcript, _) = compute(server, place, work).await?;
    let text = transcript.text();
    let usage = json!({"type": "duration", "seconds": transcript.seconds.ceil()});
    Ok(match format {
        Format::Json => json_response(&json!({"text": text, "usage": usage})),
        Format::VerboseJson => json_response(&json!({
            "task": task.name(),
            "language": transcript.parts.first().and_then(|part| part.language.as_deref()),
            "duration": transcript.seconds,
            "text": text,
            "segments": transcript.segments(),
            "usage": usage,
        })),
        Format::Text => plain(text + "\n"),
        Format::Srt => plain(transcript.subtitles("", ',', true)),
        Format::Vtt => plain(transcript.subtitles("WEBVTT\n\n", '.', false)),
    })
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from(text)).into_response()
}

/// The text of each part of a file.
fn transcript(
    served: &Served,
    file: Vec<u8>,
    language: Option<&str>,
    task: Task,
    wanted: &Wanted,
) -> Result<(Transcript, Tokens), Failure> {
    let no_sound = |error: taper::Error| Failure::field("file", error.kind().to_string());
    let speech = served.speech()?;
    let device = {
        let speech = lock(speech);
        let known = speech.check(language, task);
        known.map_err(|error| Failure::field("language", error.kind().to_string()))?;
        speech.device()
    };
    let (channels, rate) = read_wav_bytes(file, &device).map_err(no_sound)?;
    if rate < MIN_RATE {
        return Err(Failure::field("file", format!("the sound has {rate} Hz: give {MIN_RATE} or more")));
    }
    let sound = speech::as_one_channel(&channels, rate).map_err(no_sound)?;
    let starts = lock(speech).starts(&sound);
    let (mut parts, mut tokens) = (Vec::new(), Tokens::default());
    for start in starts {
        wanted.check()?;
        let part = lock(speech).part(&sound, start, language, task);
        let part = part.map_err(|error| Failure::server(error.kind().to_string()))?;
        tokens.written += part.tokens.len();
        parts.push(part);
    }
    Ok((Transcript { seconds: speech::seconds(sound.numel()), parts }, tokens))
}

impl Transcript {
    fn text(&self) -> String {
        let texts = self.parts.iter().map(|part| part.text.as_str()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(" ")
    }

    fn segments(&self) -> Vec<Json> {
        let segments = self.parts.iter().enumerate().map(|(id, part)| {
            json!({
                "id": id, "start": part.start, "end": part.end, "text": part.text, "tokens": part.tokens,
                "temperature": 0, "language": part.language,
            })
        });
        segments.collect()
    }

    /// The parts as subtitles; SubRip's have numbers.
    fn subtitles(&self, head: &str, point: char, with_numbers: bool) -> String {
        let mut text = head.to_string();
        for (number, part) in (1..).zip(&self.parts) {
            if with_numbers {
                let _ = writeln!(text, "{number}");
            }
            let (start, end) = (clock(part.start, point), clock(part.end, point));
            let _ = writeln!(text, "{start} --> {end}\n{}\n", part.text);
        }
        text
    }
}

/// A time as hours, minutes, seconds and milliseconds.
fn clock(seconds: f64, point: char) -> String {
    let all = (seconds * 1000.0).round() as u64;
    let (hours, minutes) = (all / 3_600_000, all / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}{point}{:03}", all / 1000 % 60, all % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_have_their_formats() {
        let part = |start: f64, end: f64, text: &str| Part {
            start,
            end,
            language: None,
            tokens: Vec::new(),
            text: text.to_string(),
        };
        let parts = vec![part(0.0, 30.0, "One."), part(3690.0, 3691.251, "Two.")];
        let transcript = Transcript { seconds: 3691.251, parts };
        assert_eq!(transcript.text(), "One. Two.");
        let srt = "1\n00:00:00,000 --> 00:00:30,000\nOne.\n\n2\n01:01:30,000 --> 01:01:31,251\nTwo.\n\n";
        assert_eq!(transcript.subtitles("", ',', true), srt);
        let vtt = transcript.subtitles("WEBVTT\n\n", '.', false);
        assert!(vtt.starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:30.000\nOne.\n\n01:01:30.000"), "{vtt}");
    }
}
