//! Finds objects in a picture with DETR or YOLOv8, and draws their boxes.
//!
//!     pip install huggingface_hub
//!     hf download facebook/detr-resnet-50 --local-dir detr
//!     cargo run --release -p taper-examples-vision --example detect -- --model detr street.jpg
//!
//!     pip install ultralytics
//!     python -c 'import torch, ultralytics
//!     torch.save(ultralytics.YOLO("yolov8n.pt").model.state_dict(), "yolov8n_weights.pt")'
//!     cargo run --release -p taper-examples-vision --example detect -- \
//!         --model yolov8n_weights.pt --labels coco.names street.jpg
//!
//! A folder is DETR with transformers' `config.json`; a file is the weights of YOLOv8, whose size they say.
//! `--labels` is a file with a label in each line. Prints the objects and writes `detect.png`.
//!
//! The tests of this repository run the program with small networks of random weights, whose boxes mean
//! nothing but are always the same (`tests/pictures.rs`).

mod boxes;

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Parser;
use taper::{
    data::Image,
    models::{
        read_labels,
        vision::{Detection, Detr, YoloV8},
    },
    prelude::*,
};

/// Finds objects in a picture.
#[derive(Parser)]
pub(crate) struct Options {
    /// A PNG or JPEG file
    picture: PathBuf,
    /// A folder with DETR, or a file with weights of YOLOv8
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// The least probability of an object; 0.7 for DETR and 0.25 for YOLOv8 by default
    #[arg(long)]
    threshold: Option<f32>,
    /// The overlap (intersection over union) above which YOLOv8 keeps one of two boxes
    #[arg(long, default_value_t = 0.7)]
    iou: f32,
    /// The side of the picture that the network sees: DETR's shorter one (800 by default), YOLOv8's longer
    /// one (640)
    #[arg(long)]
    side: Option<usize>,
    /// A file with a label in each line
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The picture with boxes
    #[arg(long, default_value = "detect.png")]
    out: PathBuf,
}

/// The longest side that DETR sees, as a multiple of the shorter one.
const DETR_LONGEST: f64 = 1333.0 / 800.0;
/// The colours of DETR's training.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];
/// YOLOv8's sides are multiples of this, and its borders have this grey.
const STRIDE: usize = 32;
const GREY: f64 = 114.0 / 255.0;
/// The largest number of objects of YOLOv8.
const LIMIT: usize = 300;

/// The height and width scaled by the same factor, at least 1 pixel each.
fn scaled(picture: &Image, factor: f64) -> (usize, usize) {
    let side = |side: usize| ((side as f64 * factor).round() as usize).max(1);
    (side(picture.height()), side(picture.width()))
}

fn by_detr(options: &Options, picture: &Image, device: &Device) -> Result<Vec<Detection>> {
    let model = Detr::from_folder(&options.model, device)?;
    let (short, long) =
        (picture.height().min(picture.width()) as f64, picture.height().max(picture.width()) as f64);
    let side = options.side.unwrap_or(800) as f64;
    let factor = (side / short).min(DETR_LONGEST * side / long);
    let x = picture.resize(scaled(picture, factor))?.normalized(MEAN, STD, device)?.unsqueeze(0)?;
    let found = no_grad(|| model.forward(&x))?;
    let sizes = [(picture.height(), picture.width())];
    Ok(found.objects(options.threshold.unwrap_or(0.7), &sizes)?.concat())
}

fn by_yolov8(options: &Options, picture: &Image, device: &Device) -> Result<Vec<Detection>> {
    let model = YoloV8::open(&options.model, device)?;
    let factor = options.side.unwrap_or(640) as f64 / picture.height().max(picture.width()) as f64;
    let (height, width) = scaled(picture, factor);
    let border = |side: usize| {
        let missing = side.next_multiple_of(STRIDE) - side;
        (missing / 2, missing - missing / 2)
    };
    let (rows, columns) = (border(height), border(width));
    let x = picture.resize((height, width))?.to_tensor(device)?.unsqueeze(0)?;
    let x = x.pad(&[(0, 0), (0, 0), rows, columns], GREY)?;
    let found = no_grad(|| model.forward(&x))?;
    let objects = model.detections(&found, options.threshold.unwrap_or(0.25), options.iou, LIMIT)?.concat();
    // Back to the pixels of the picture.
    let (left, top) = (columns.0 as f32, rows.0 as f32);
    let (right, bottom) = (picture.width() as f32, picture.height() as f32);
    let place = |x: f32, before: f32, most: f32| ((x - before) / factor as f32).clamp(0.0, most);
    let original = |[x0, y0, x1, y1]: [f32; 4]| {
        [place(x0, left, right), place(y0, top, bottom), place(x1, left, right), place(y1, top, bottom)]
    };
    Ok(objects.into_iter().map(|one| Detection { corners: original(one.corners), ..one }).collect())
}

/// The labels of the classes: a file's lines, or those of DETR's configuration.
fn labels(options: &Options) -> std::result::Result<Vec<String>, Box<dyn Error>> {
    let Some(path) = &options.labels else {
        return Ok(if options.model.is_dir() { read_labels(&options.model)? } else { Vec::new() });
    };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().map(str::to_string).collect())
}

/// Prints the objects of a picture, and writes it with their boxes.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> std::result::Result<(), Box<dyn Error>> {
    let device = taper::device(&options.device)?;
    let picture = Image::open(&options.picture)?;
    let find: fn(&Options, &Image, &Device) -> Result<Vec<Detection>> =
        if options.model.is_dir() { by_detr } else { by_yolov8 };
    let objects = find(options, &picture, &device)?;
    let labels = labels(options)?;
    let label = |class: usize| labels.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    for object in &objects {
        let [left, top, right, bottom] = object.corners.map(f32::round);
        let (score, label) = (100.0 * object.score, label(object.class));
        writeln!(out, "{score:6.2} %  {label}  left {left} top {top} right {right} bottom {bottom}")?;
    }
    let drawn: Vec<_> = objects.iter().map(|object| (object.corners, label(object.class))).collect();
    boxes::write(&picture, &drawn, &options.out)?;
    writeln!(out, "{} objects; {}", objects.len(), Path::new(&options.out).display())?;
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
