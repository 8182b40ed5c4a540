//! Reads the text in a picture: a network finds the lines, another one tells those that are upside down, and
//! a third one reads them.
//!
//!     pip install --no-deps --target models rapidocr-onnxruntime==1.4.4
//!     models=models/rapidocr_onnxruntime/models
//!     cargo run --release -p taper-examples-onnx --example ocr -- --models $models
//!     cargo run --release -p taper-examples-onnx --example ocr -- --models $models --image page.png
//!
//! Without `--image` it draws a picture with text and compares what it reads with it. Writes `ocr.png`: the
//! picture with the boxes of its lines.
//!
//! Du et al.: PP-OCR: A practical ultra lightweight OCR system (2020); Liao et al.: Real-time scene text
//! detection with differentiable binarization (2019).

mod boxes;
#[path = "../../basics/common/mod.rs"]
mod common;
#[path = "../files.rs"]
mod files;
mod picture;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use taper::{data::Image, onnx::Model, prelude::*};

/// The text of the picture that the program draws.
const TEXT: &str = "Taper reads text\nlazy tensors, any GPU\nOrder 66 of 2026: $12.50\nhello@example.org";

/// Reads the text in a picture.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The folder models of the Python package rapidocr-onnxruntime==1.4.4
    #[arg(long, value_name = "FOLDER")]
    models: PathBuf,
    /// A PNG or JPEG file, in place of the picture that the program draws
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The text to draw
    #[arg(long, default_value = TEXT)]
    text: String,
    /// The size of a letter that is drawn, as a multiple of 8 pixels
    #[arg(long, default_value_t = 2)]
    scale: usize,
    /// A picture whose shorter side has fewer pixels is enlarged before lines are looked for
    #[arg(long, default_value_t = 320)]
    side: usize,
    /// The picture with boxes
    #[arg(long, default_value = "ocr.png")]
    out: PathBuf,
}

/// The pixels as the networks take them, `[1, 3, H, W]`, from −1 to 1. They were trained on BGR.
fn pixels(image: &Image, device: &Device) -> Result<Tensor> {
    image.normalized([0.5; 3], [0.5; 3], device)?.flip(0)?.unsqueeze(0)
}

/// The only output of a network.
fn only_output(net: &Model, x: Tensor) -> Outcome<Tensor> {
    let input = net.inputs().first().ok_or("the network has no input")?.name.clone();
    let mut outputs = no_grad(|| net.run([(input, x)]))?.tensors()?;
    Ok(outputs.pop().ok_or("the network has no output")?)
}

/// The boxes of the lines in a picture.
fn find_lines(net: &Model, image: &Image, side: usize, device: &Device) -> Outcome<Vec<boxes::Box>> {
    /// The greatest side that the detector gets.
    const SIDE_MAX: f64 = 2000.0;
    let (width, height) = (image.width() as f64, image.height() as f64);
    let enlarge = (side as f64 / width.min(height)).max(1.0).min(SIDE_MAX / width.max(height));
    // Its layers halve the picture five times.
    let size = |length: f64| ((length * enlarge / 32.0).round() as usize).max(1) * 32;
    let (h, w) = (size(height), size(width));
    let map = only_output(net, pixels(&image.resize((h, w))?, device)?)?.to_vec::<f32>()?;
    let factors = (width / w as f64, height / h as f64);
    let inside = (image.width(), image.height());
    Ok(boxes::boxes(&map, (h, w)).iter().map(|found| found.scaled(factors, inside)).collect())
}

/// A line of text at the height of the reading networks, at most and at least `width` pixels wide: what is
/// missing is zeros, a middle grey.
fn line_pixels(image: &Image, at_least: usize, at_most: usize, device: &Device) -> Result<Tensor> {
    const HEIGHT: usize = 48;
    let natural = (HEIGHT * image.width()).div_ceil(image.height());
    let width = natural.min(at_most).max(1);
    let x = pixels(&image.resize((HEIGHT, width))?, device)?;
    x.pad(&[(0, 0), (0, 0), (0, 0), (0, at_least.saturating_sub(width))], 0.0)
}

/// The most likely text by connectionist temporal classification (CTC): of each step the best class, equal
/// ones in a row once, without the blank. And the mean probability of its letters.
fn read_line(net: &Model, alphabet: &[String], line: &Image, device: &Device) -> Outcome<(String, f64)> {
    const BLANK: i64 = 0;
    // [1, steps, classes]
    let classes = only_output(net, line_pixels(line, 320, usize::MAX, device)?)?;
    let (greatest, best) = classes.select(0, 0)?.max_axis(-1, false)?;
    let (greatest, best) = (greatest.to_vec::<f32>()?, best.to_vec::<i64>()?);
    let (mut text, mut probabilities, mut before) = (String::new(), Vec::new(), BLANK);
    for (class, p) in best.into_iter().zip(greatest) {
        if class != BLANK && class != before {
            let letter = usize::try_from(class - 1).ok().and_then(|at| alphabet.get(at));
            text.push_str(letter.map_or(" ", |letter| letter));
            probabilities.push(f64::from(p));
        }
        before = class;
    }
    let mean = probabilities.iter().sum::<f64>() / probabilities.len().max(1) as f64;
    Ok((text, mean))
}

/// The letters of a reading network in the order of its classes, from its metadata; the blank comes before
/// them, a space after.
fn alphabet(net: &Model) -> Outcome<Vec<String>> {
    let metadata = &net.info().metadata;
    let (_, letters) =
        metadata.iter().find(|(key, _)| key == "character").ok_or("the model names no letters")?;
    Ok(letters.lines().map(str::to_string).collect())
}

/// The number of letters to insert, remove or replace in order to make one text from another (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let load = |path: &Path| Model::load(path, &device);
    let detector = load(&options.models.join("ch_PP-OCRv4_det_infer.onnx"))?;
    let direction = load(&files::model("ch_ppocr_mobile_v2.0_cls_infer.onnx"))?;
    let reader = load(&options.models.join("ch_PP-OCRv4_rec_infer.onnx"))?;
    let alphabet = alphabet(&reader)?;
    let image = match &options.image {
        Some(path) => Image::open(path)?,
        None => picture::draw(&options.text.lines().collect::<Vec<_>>(), options.scale)?,
    };

    let started = Instant::now();
    let boxes = find_lines(&detector, &image, options.side, &device)?;
    let found = started.elapsed().as_secs_f64();
    let (mut lines, mut with_text) = (Vec::new(), Vec::new());
    for at in boxes {
        let mut line = image.crop((at.top, at.left), (at.height(), at.width()))?;
        // The probabilities that it is upright, and upside down.
        let direction = only_output(&direction, line_pixels(&line, 192, 192, &device)?)?.to_vec::<f32>()?;
        if direction[1] > 0.9 {
            line = line.flip_horizontal().flip_vertical();
        }
        let (text, probability) = read_line(&reader, &alphabet, &line, &device)?;
        if text.trim().is_empty() {
            continue; // a box without text
        }
        let size = format!("{} x {} at ({}, {})", at.width(), at.height(), at.left, at.top);
        writeln!(out, "{size:<24} {probability:.3}  {text}")?;
        lines.push(text);
        with_text.push(at);
    }
    writeln!(
        out,
        "{} lines on {device}: found in {}, read in {}",
        lines.len(),
        common::seconds(found),
        common::seconds(started.elapsed().as_secs_f64() - found)
    )?;
    picture::write_boxes(&image, &with_text, &options.out)?;
    writeln!(out, "written: {}", options.out.display())?;
    if options.image.is_none() {
        // Spaces are not compared, because the network leaves out many of them.
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        let wanted = letters(&options.text);
        let wrong = distance(&wanted, &letters(&lines.concat()));
        let count = wanted.chars().count().max(1);
        let accuracy = (1.0 - wrong as f64 / count as f64).max(0.0);
        writeln!(out, "{wrong} of {count} letters differ, spaces aside; accuracy {accuracy:.3}")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
