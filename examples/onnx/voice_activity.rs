//! Where is speech in a sound? Silero's detector listens to a stream, 32 ms at a time.
//!
//!     cargo run --release -p taper-examples-onnx --example voice_activity
//!     cargo run --release -p taper-examples-onnx --example voice_activity -- --wav speech.wav
//!
//! Without `--wav` it hears sounds that it makes (noise, a tone, chords, vowels from a formant synthesizer)
//! and two seconds of Japanese from a speech synthesizer, and says what the network takes for speech. Writes
//! `voice_activity.svg` and `voice_activity.png`.

#[path = "../basics/common/mod.rs"]
mod common;
mod drawing;
mod files;
#[path = "../../crates/train/src/raster.rs"]
mod raster;
mod silero;
mod sound;

use std::{
    io::{self, Write},
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use drawing::{Drawing, text, write_pictures};
use plotters::{
    coord::Shift,
    prelude::{Color, DrawingArea, DrawingBackend, PathElement, RGBColor, Rectangle, Text, WHITE},
    style::text_anchor::HPos,
};
use silero::{CHUNK, Detector, RATE, Segment, THRESHOLD, segments};
use taper::{
    data::audio::{Resample, WavFormat, read_wav, resample, write_wav},
    nn::load_safetensors,
    onnx::Model,
    prelude::*,
};

/// Finds speech in a sound, draws its probability over time, and prints the times.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// A WAV file, in place of the sounds that the program makes
    #[arg(long, value_name = "FILE")]
    wav: Option<PathBuf>,
    /// The network [default: the repository's silero_vad.onnx]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Also writes the sound that was heard, at 16 kHz
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Path of the pictures, without `.svg` and `.png`
    #[arg(long, default_value = "voice_activity")]
    out: PathBuf,
}

/// A stretch of the sound that was made, in samples.
struct Part {
    name: &'static str,
    samples: Range<usize>,
    /// Whether it is speech; `None` if it is only like speech.
    speech: Option<bool>,
}

/// Sounds after each other, with half a second of near silence around each.
fn made() -> Outcome<(Vec<f32>, Vec<Part>)> {
    let second = RATE as usize;
    let recorded = load_safetensors(files::model("silero_vad.safetensors"), &taper::cpu())?;
    let recorded = recorded.get("audio").ok_or("silero_vad.safetensors has no tensor \"audio\"")?;
    // The recording has silence before and after its words.
    let recorded = recorded.to_vec::<f32>()?;
    let loud = |sample: &f32| sample.abs() > 0.02;
    let start = recorded.iter().position(loud).unwrap_or(0);
    let end = recorded.iter().rposition(loud).map_or(recorded.len(), |last| last + 1);
    let words = &recorded[start..end];
    let chord = [262.0, 330.0, 392.0].map(|hertz| sound::pluck(second, RATE, hertz, 0.15));
    let chord = (0..second).map(|k| chord.iter().map(|note| note[k]).sum()).collect();
    let parts: [(&str, Option<bool>, Vec<f32>); 5] = [
        ("noise", Some(false), sound::noise(second, 0.2, 1)),
        ("tone", Some(false), sound::tone(second, RATE, 440.0, 0.3)),
        ("chord", Some(false), chord),
        ("vowels", None, sound::vowels("aioeu iaoea", RATE, 0.5)),
        ("speech", Some(true), words.to_vec()),
    ];
    let mut samples = sound::noise(second / 2, 1e-4, 2);
    let mut found = Vec::new();
    for (name, speech, part) in parts {
        found.push(Part { name, speech, samples: samples.len()..samples.len() + part.len() });
        samples.extend(part);
        samples.extend(sound::noise(second / 2, 1e-4, 3));
    }
    Ok((samples, found))
}

/// The samples of a file as one channel at 16 kHz.
fn from_file(path: &PathBuf) -> Outcome<Vec<f32>> {
    let (samples, rate) = read_wav(path, &taper::cpu())?;
    let mono = samples.mean_axis(0, false)?;
    Ok(resample(&mono, rate, RATE, &Resample::default())?.to_vec::<f32>()?)
}

fn seconds(chunk: usize) -> f64 {
    (chunk * CHUNK) as f64 / f64::from(RATE)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let path = options.model.clone().unwrap_or_else(|| files::model("silero_vad.onnx"));
    let started = Instant::now();
    let net = Model::load(&path, &device)?;
    writeln!(
        out,
        "{}: {} parameters, on {device}, loaded in {}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        net.num_parameters(),
        common::seconds(started.elapsed().as_secs_f64())
    )?;

    let (mut samples, parts) = match &options.wav {
        Some(path) => (from_file(path)?, Vec::new()),
        None => made()?,
    };
    samples.resize(samples.len().next_multiple_of(CHUNK), 0.0);
    if let Some(path) = &options.save {
        let sound = Tensor::from_slice(&samples, (1, samples.len()), &taper::cpu())?;
        write_wav(path, &sound, RATE, WavFormat::Pcm16)?;
    }

    let mut detector = Detector::new(net, &device)?;
    let started = Instant::now();
    let mut probabilities = Vec::with_capacity(samples.len() / CHUNK);
    let mut first = 0.0;
    for chunk in samples.chunks_exact(CHUNK) {
        probabilities.push(detector.listen(chunk)?.item::<f32>()?);
        if probabilities.len() == 1 {
            first = started.elapsed().as_secs_f64();
        }
    }
    let each = (started.elapsed().as_secs_f64() - first) / (probabilities.len() as f64 - 1.0).max(1.0);
    writeln!(
        out,
        "{:.1} s of sound in chunks of 32 ms: the first took {}, each other {}",
        seconds(probabilities.len()),
        common::seconds(first),
        common::seconds(each)
    )?;

    let speech = segments(&probabilities);
    for Segment { start, end } in &speech {
        let greatest = probabilities[*start..*end].iter().fold(0.0f32, |most, &p| most.max(p));
        writeln!(
            out,
            "speech from {:6.2} s to {:6.2} s, at most {greatest:.3}",
            seconds(*start),
            seconds(*end)
        )?;
    }
    if speech.is_empty() {
        writeln!(out, "no speech")?;
    }
    let drawing = Plot { samples: &samples, probabilities: &probabilities, segments: &speech, parts: &parts };
    for path in write_pictures(&drawing, &options.out)? {
        writeln!(out, "written: {}", path.display())?;
    }
    judge(&parts, &probabilities, &speech)
}

/// Prints what the network says of each part, and how many chunks of those whose nature is known it knows.
fn judge(parts: &[Part], probabilities: &[f32], speech: &[Segment]) -> Outcome {
    if parts.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout();
    let is_speech = |chunk: usize| speech.iter().any(|s| (s.start..s.end).contains(&chunk));
    writeln!(out, "{:<8} {:>9} {:>6} {:>9} {:>20}", "part", "from", "to", "greatest", "chunks of speech")?;
    let (mut right, mut known) = (0, 0);
    for Part { name, samples, speech } in parts {
        let chunks = samples.start.div_ceil(CHUNK)..samples.end / CHUNK;
        let count = chunks.len();
        let greatest = probabilities[chunks.clone()].iter().fold(0.0f32, |most, &p| most.max(p));
        let taken = chunks.filter(|&chunk| is_speech(chunk)).count();
        writeln!(
            out,
            "{name:<8} {:>7.2} s {:>4.2} s {greatest:>9.3} {:>13} of {count:>3}",
            samples.start as f64 / f64::from(RATE),
            samples.end as f64 / f64::from(RATE),
            taken
        )?;
        if let Some(speech) = speech {
            known += count;
            right += if *speech { taken } else { count - taken };
        }
    }
    let accuracy = right as f64 / known as f64;
    writeln!(out, "chunks of noise, tone, chord and speech: accuracy {accuracy:.4}")?;
    Ok(())
}

/// The sound above, the probability of speech below.
struct Plot<'a> {
    samples: &'a [f32],
    probabilities: &'a [f32],
    segments: &'a [Segment],
    parts: &'a [Part],
}

const WIDTH: u32 = 760;
const LEFT: i32 = 44;
const RIGHT: i32 = 748;
const GREY: RGBColor = RGBColor(150, 150, 150);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);

impl Drawing for Plot<'_> {
    fn size(&self) -> (u32, u32) {
        (WIDTH, 260)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Outcome
    where
        B::ErrorType: 'static,
    {
        /// The middle of the wave, and half its height.
        const WAVE: (i32, f64) = (72, 42.0);
        /// The probabilities 1 and 0.
        const TOP: i32 = 132;
        const BOTTOM: i32 = 232;
        area.fill(&WHITE)?;
        let count = self.samples.len();
        let x = |sample: usize| LEFT + (sample as f64 / count as f64 * f64::from(RIGHT - LEFT)) as i32;
        let y = |p: f32| BOTTOM - (p * (BOTTOM - TOP) as f32) as i32;

        for Segment { start, end } in self.segments {
            let corners = [(x(start * CHUNK), 28), (x(end * CHUNK), BOTTOM)];
            area.draw(&Rectangle::new(corners, GREEN.mix(0.15).filled()))?;
        }
        // A column of the wave goes from its least to its greatest sample.
        for column in LEFT..RIGHT {
            let at = |column: i32| (column - LEFT) as usize * count / (RIGHT - LEFT) as usize;
            let samples = &self.samples[at(column)..at(column + 1).max(at(column) + 1)];
            let (low, high) = samples.iter().fold((0.0f32, 0.0f32), |(l, h), &s| (l.min(s), h.max(s)));
            let level = |s: f32| WAVE.0 - (f64::from(s.clamp(-1.0, 1.0)) * WAVE.1) as i32;
            let ends = vec![(column, level(high)), (column, level(low))];
            area.draw(&PathElement::new(ends, GREY.stroke_width(1)))?;
        }
        for part in self.parts {
            let middle = (x(part.samples.start) + x(part.samples.end)) / 2;
            area.draw(&Text::new(part.name, (middle, 16), text(12, HPos::Center)))?;
        }

        for (p, label) in [(1.0, "1"), (THRESHOLD, "0.5"), (0.0, "0")] {
            area.draw(&PathElement::new(vec![(LEFT, y(p)), (RIGHT, y(p))], GREY.mix(0.6).stroke_width(1)))?;
            area.draw(&Text::new(label, (LEFT - 6, y(p)), text(11, HPos::Right)))?;
        }
        let middle = |chunk: usize| x(chunk * CHUNK + CHUNK / 2);
        let line = self.probabilities.iter().enumerate().map(|(chunk, &p)| (middle(chunk), y(p)));
        area.draw(&PathElement::new(line.collect::<Vec<_>>(), BLUE.stroke_width(2)))?;
        let length = count as f64 / f64::from(RATE);
        let step = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0].into_iter().find(|s| length / s <= 15.0);
        let step = step.unwrap_or(length / 10.0);
        for k in 0..=(length / step) as usize {
            let time = k as f64 * step;
            let at = (x((time * f64::from(RATE)) as usize), BOTTOM + 14);
            area.draw(&Text::new(format!("{time} s"), at, text(11, HPos::Center)))?;
        }
        area.present()?;
        Ok(())
    }
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
