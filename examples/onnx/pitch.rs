//! Which notes are played? Basic Pitch hears a melody that this program plays, or a WAV file.
//!
//!     cargo run --release -p taper-examples-onnx --example pitch
//!     cargo run --release -p taper-examples-onnx --example pitch -- --melody "C4 E4 G4 C5:2"
//!     cargo run --release -p taper-examples-onnx --example pitch -- --wav song.wav
//!
//! Prints the notes with their times and, for a melody, how many of them were heard. Writes `pitch.svg` and
//! `pitch.png`: the probability of each key of a piano over time, and the notes.

#[path = "../basics/common/mod.rs"]
mod common;
mod drawing;
mod files;
mod notes;
#[path = "../../crates/train/src/raster.rs"]
mod raster;
mod sound;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use drawing::{Drawing, text, write_pictures};
use notes::{Activity, LOWEST, Note, PITCHES, hertz, matches, name, pitch};
use plotters::{
    coord::Shift,
    prelude::{Color, DrawingArea, DrawingBackend, RGBColor, Rectangle, Text, WHITE},
    style::text_anchor::HPos,
};
use taper::{
    data::audio::{Resample, WavFormat, read_wav, resample, write_wav},
    onnx::Model,
    prelude::*,
};

/// The sampling rate of the network, in Hz.
const RATE: u32 = 22_050;
/// The samples between two frames of its output.
const HOP: usize = 256;
/// The samples that it takes at once, a little less than two seconds.
const WINDOW: usize = 2 * RATE as usize - HOP;
/// The frames at both ends of a window that are left to its neighbours, because they see only one side.
const MARGIN: usize = 15;

/// Beethoven's Ode to Joy, and a chord.
const MELODY: &str = "E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 E4:1.5 D4:0.5 D4:2 C3+E4+G4:2";

/// Plays a melody, or reads a WAV file, and writes down its notes.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The notes to play: names with octaves, after a colon their beats; `+` makes a chord
    #[arg(long, default_value = MELODY)]
    melody: String,
    /// Beats per minute
    #[arg(long, default_value_t = 120.0)]
    tempo: f64,
    /// A WAV file, in place of the melody
    #[arg(long, value_name = "FILE")]
    wav: Option<PathBuf>,
    /// Also writes the melody as a WAV file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// The network [default: the repository's basic_pitch.onnx]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Path of the pictures, without `.svg` and `.png`
    #[arg(long, default_value = "pitch")]
    out: PathBuf,
}

/// The notes of a text such as `C4 E4:0.5 C4+E4+G4:2`, from a quarter of a second on.
fn parse(melody: &str, tempo: f64) -> Outcome<Vec<Note>> {
    if tempo.is_nan() || !(20.0..=400.0).contains(&tempo) {
        return Err(format!("--tempo {tempo}: give 20 to 400 beats per minute").into());
    }
    let (mut at, mut played) = (0.25, Vec::new());
    for word in melody.split_whitespace() {
        let (chord, beats) = word.split_once(':').unwrap_or((word, "1"));
        let beats: f64 = beats.parse().map_err(|_| format!("--melody: {word:?} has no number of beats"))?;
        if !(0.0..=64.0).contains(&beats) {
            return Err(format!("--melody: {word:?}: give at most 64 beats").into());
        }
        let end = at + beats * 60.0 / tempo;
        for key in chord.split('+') {
            let pitch =
                pitch(key).ok_or_else(|| format!("--melody: {key:?} is no key of a piano (A0 to C8)"))?;
            played.push(Note { start: at, end, pitch });
        }
        at = end;
    }
    if played.is_empty() { Err("--melody has no notes".into()) } else { Ok(played) }
}

/// The sound of notes, f32 at [`RATE`], with a little noise.
fn play(played: &[Note]) -> Vec<f32> {
    let end = played.iter().fold(0.0f64, |most, note| most.max(note.end));
    let mut samples = sound::noise(((end + 0.5) * f64::from(RATE)) as usize, 1e-3, 1);
    for note in played {
        let start = (note.start * f64::from(RATE)) as usize;
        let count = ((note.end - note.start) * 0.98 * f64::from(RATE)) as usize;
        let string = sound::pluck(count, RATE, hertz(note.pitch), 0.25);
        samples[start..].iter_mut().zip(string).for_each(|(sum, x)| *sum += x);
    }
    samples
}

/// The probabilities of all frames. Windows overlap, and of each only the middle is used.
fn hear(net: &Model, samples: &[f32], device: &Device) -> Outcome<Activity> {
    let input = net.inputs().first().ok_or("the network has no input")?.name.clone();
    let frames = samples.len().div_ceil(HOP);
    let mut activity = Activity { frames: Vec::new(), onsets: Vec::new() };
    while activity.frames.len() < frames {
        // The first window begins at the first sample, later ones `MARGIN` frames before the first frame
        // that is missing.
        let first = activity.frames.len();
        let skipped = first.min(MARGIN);
        let start = (first - skipped) * HOP;
        let mut window = samples[start.min(samples.len())..].to_vec();
        window.resize(WINDOW, 0.0);
        let window = Tensor::from_vec(window, (1, WINDOW, 1), device)?;
        let out = no_grad(|| net.run([(&input, &window)]))?;
        // The outputs are contours, notes, and onsets: [1, frames, pitches].
        for (at, list) in [(1, &mut activity.frames), (2, &mut activity.onsets)] {
            let output = out.tensor(&format!("StatefulPartitionedCall:{at}"))?;
            let rows = output.to_vec::<f32>()?;
            let rows = rows.as_chunks::<PITCHES>().0;
            list.extend_from_slice(&rows[skipped..rows.len() - MARGIN]);
        }
    }
    activity.frames.truncate(frames);
    activity.onsets.truncate(frames);
    Ok(activity)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let net =
        Model::load(options.model.clone().unwrap_or_else(|| files::model("basic_pitch.onnx")), &device)?;
    let (samples, played) = match &options.wav {
        Some(path) => {
            let (samples, rate) = read_wav(path, &taper::cpu())?;
            let mono = samples.mean_axis(0, false)?;
            (resample(&mono, rate, RATE, &Resample::default())?.to_vec::<f32>()?, Vec::new())
        }
        None => {
            let played = parse(&options.melody, options.tempo)?;
            (play(&played), played)
        }
    };
    if let Some(path) = &options.save {
        let sound = Tensor::from_slice(&samples, (1, samples.len()), &taper::cpu())?;
        write_wav(path, &sound, RATE, WavFormat::Pcm16)?;
    }

    let started = Instant::now();
    let activity = hear(&net, &samples, &device)?;
    let heard = activity.notes(HOP as f64 / f64::from(RATE));
    writeln!(
        out,
        "{:.1} s of sound on {device} in {}",
        samples.len() as f64 / f64::from(RATE),
        common::seconds(started.elapsed().as_secs_f64())
    )?;
    let pairs = matches(&played, &heard);
    for (h, note) in heard.iter().enumerate() {
        let was_played = pairs.iter().any(|&(_, found)| found == h);
        let remark = if played.is_empty() || was_played { "" } else { "  (not played)" };
        writeln!(out, "{:>4} {:6.2} s to {:5.2} s{remark}", name(note.pitch), note.start, note.end)?;
    }
    for (p, note) in played.iter().enumerate().filter(|(p, _)| !pairs.iter().any(|(found, _)| found == p)) {
        writeln!(
            out,
            "{:>4} {:6.2} s to {:5.2} s  (note {p}, not heard)",
            name(note.pitch),
            note.start,
            note.end
        )?;
    }
    let drawing = Roll { activity: &activity, heard: &heard, played: &played };
    for path in write_pictures(&drawing, &options.out)? {
        writeln!(out, "written: {}", path.display())?;
    }
    if !played.is_empty() {
        let (right, all) = (pairs.len(), played.len() + heard.len() - pairs.len());
        writeln!(
            out,
            "{right} of {} notes heard within 50 ms, {} more; accuracy {:.3}",
            played.len(),
            heard.len() - right,
            right as f64 / all as f64
        )?;
    }
    Ok(())
}

/// The probability of each key over time, with the notes that were heard (filled) and played (outlined).
struct Roll<'a> {
    activity: &'a Activity,
    heard: &'a [Note],
    played: &'a [Note],
}

const WIDTH: i32 = 760;
const LEFT: i32 = 40;
const TOP: i32 = 24;
/// The height of a key.
const KEY: i32 = 11;
const BLUE: RGBColor = RGBColor(0, 114, 178);
const RED: RGBColor = RGBColor(213, 94, 0);

impl Roll<'_> {
    /// The lowest and the highest pitch to show.
    fn range(&self) -> (usize, usize) {
        let pitches = || self.heard.iter().chain(self.played).map(|note| note.pitch);
        let low = pitches().min().unwrap_or(60).saturating_sub(3).max(LOWEST);
        (low, (pitches().max().unwrap_or(72) + 3).min(LOWEST + PITCHES - 1))
    }
}

impl Drawing for Roll<'_> {
    fn size(&self) -> (u32, u32) {
        let (low, high) = self.range();
        (WIDTH as u32, (TOP + (high - low + 1) as i32 * KEY + 24) as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Outcome
    where
        B::ErrorType: 'static,
    {
        let (low, high) = self.range();
        let seconds = self.activity.frames.len() as f64 * HOP as f64 / f64::from(RATE);
        let x = |time: f64| LEFT + (time / seconds * f64::from(WIDTH - LEFT - 8)) as i32;
        let y = |pitch: usize| TOP + (high - pitch) as i32 * KEY;
        area.fill(&WHITE)?;
        let title = "blue: probability of each key; orange: the notes heard, filled, and played, outlined";
        area.draw(&Text::new(title, (LEFT, 12), text(11, HPos::Left)))?;
        for pitch in low..=high {
            let bottom = y(pitch) + KEY;
            let line = [(LEFT, bottom), (WIDTH - 8, bottom)];
            area.draw(&Rectangle::new(line, RGBColor(235, 235, 235).filled()))?;
            if pitch % 12 == 0 || pitch == low || pitch == high {
                area.draw(&Text::new(name(pitch), (LEFT - 6, y(pitch) + KEY / 2), text(10, HPos::Right)))?;
            }
            // Runs of columns with the same shade are one rectangle.
            let shade = |column: i32| {
                let time = f64::from(column - LEFT) / f64::from(WIDTH - LEFT - 8) * seconds;
                let frame = ((time * f64::from(RATE)) as usize / HOP).min(self.activity.frames.len() - 1);
                (self.activity.frames[frame][pitch - LOWEST] * 8.0) as u8
            };
            let mut from = LEFT;
            for column in LEFT..WIDTH - 8 {
                let (here, next) = (shade(column), shade(column + 1));
                if here != next || column + 1 == WIDTH - 8 {
                    if here > 0 {
                        let corners = [(from, y(pitch)), (column + 1, bottom)];
                        area.draw(&Rectangle::new(corners, BLUE.mix(f64::from(here) / 8.0).filled()))?;
                    }
                    from = column + 1;
                }
            }
        }
        for note in self.heard {
            let corners = [(x(note.start), y(note.pitch) + 4), (x(note.end), y(note.pitch) + KEY - 4)];
            area.draw(&Rectangle::new(corners, RED.filled()))?;
        }
        for note in self.played {
            let corners = [(x(note.start), y(note.pitch)), (x(note.end), y(note.pitch) + KEY)];
            area.draw(&Rectangle::new(corners, RED.stroke_width(1)))?;
        }
        for second in 0..=seconds as usize {
            let at = (x(second as f64), y(low) + KEY + 12);
            area.draw(&Text::new(format!("{second} s"), at, text(10, HPos::Center)))?;
        }
        area.present()?;
        Ok(())
    }
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
