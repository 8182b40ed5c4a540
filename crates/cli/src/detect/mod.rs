//! `taper detect`: objects in pictures, by DETR or YOLOv8, and pictures with their boxes.

mod boxes;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use taper::{
    data::Image,
    models::{
        read_labels,
        vision::{Detection, Detr, YoloV8},
    },
    prelude::*,
};

use crate::{
    error::{Outcome, at, read_lines},
    model::{self, DeviceOption},
    output,
};

/// Finds objects in pictures with DETR or YOLOv8.
///
/// A folder is DETR with transformers' config.json; a file has the weights of YOLOv8, which say its size.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper detect facebook/detr-resnet-50 street.jpg --out boxes.png
  taper detect yolov8n_weights.pt --labels coco.names street.jpg park.jpg --out boxes --json

The weights of YOLOv8 are written by Python's ultralytics:
  torch.save(ultralytics.YOLO(\"yolov8n.pt\").model.state_dict(), \"yolov8n_weights.pt\")")]
pub(crate) struct Options {
    /// A folder with DETR, a file with weights of YOLOv8, or a name such as org/name
    model: PathBuf,
    /// PNG or JPEG files
    #[arg(required = true)]
    pictures: Vec<PathBuf>,
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
    /// A PNG file for the picture with boxes; for several pictures, a folder
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceOption,
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
const MAX_OBJECTS: usize = 300;

/// The height and width scaled by the same factor, at least 1 pixel each.
fn scaled(picture: &Image, factor: f64) -> (usize, usize) {
    let side = |side: usize| ((side as f64 * factor).round() as usize).max(1);
    (side(picture.height()), side(picture.width()))
}

/// The objects that DETR finds.
fn by_detr(model: &Detr, options: &Options, picture: &Image, device: &Device) -> Result<Vec<Detection>> {
    let (short, long) =
        (picture.height().min(picture.width()) as f64, picture.height().max(picture.width()) as f64);
    let side = options.side.unwrap_or(800) as f64;
    let factor = (side / short).min(DETR_LONGEST * side / long);
    let x = picture.resize(scaled(picture, factor))?.normalized(MEAN, STD, device)?.unsqueeze(0)?;
    let found = no_grad(|| model.forward(&x))?;
    let sizes = [(picture.height(), picture.width())];
    Ok(found.objects(options.threshold.unwrap_or(0.7), &sizes)?.concat())
}

/// The objects that YOLOv8 finds.
fn by_yolov8(model: &YoloV8, options: &Options, picture: &Image, device: &Device) -> Result<Vec<Detection>> {
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
    let objects =
        model.detections(&found, options.threshold.unwrap_or(0.25), options.iou, MAX_OBJECTS)?.concat();
    // Back to the pixels of the picture.
    let (left, top) = (columns.0 as f32, rows.0 as f32);
    let (right, bottom) = (picture.width() as f32, picture.height() as f32);
    let place = |x: f32, before: f32, most: f32| ((x - before) / factor as f32).clamp(0.0, most);
    let original = |[x0, y0, x1, y1]: [f32; 4]| {
        [place(x0, left, right), place(y0, top, bottom), place(x1, left, right), place(y1, top, bottom)]
    };
    Ok(objects.into_iter().map(|one| Detection { corners: original(one.corners), ..one }).collect())
}

/// A network that finds objects.
enum Network {
    Detr(Detr),
    YoloV8(Box<YoloV8>),
}

impl Network {
    fn open(path: &Path, device: &Device) -> Result<Network> {
        match path.is_dir() {
            true => Detr::from_folder(path, device).map(Network::Detr),
            false => YoloV8::open(path, device).map(|model| Network::YoloV8(Box::new(model))),
        }
    }

    fn objects(&self, options: &Options, picture: &Image, device: &Device) -> Result<Vec<Detection>> {
        match self {
            Network::Detr(model) => by_detr(model, options, picture, device),
            Network::YoloV8(model) => by_yolov8(model, options, picture, device),
        }
    }
}

/// The file for a picture with boxes: `out`, or a file in that folder with the name of the picture.
fn drawn_path(out: &Path, picture: &Path, pictures: usize) -> Outcome<PathBuf> {
    if pictures == 1 && !out.is_dir() {
        return Ok(out.to_path_buf());
    }
    fs::create_dir_all(out).map_err(at(out))?;
    Ok(out.join(picture.with_extension("png").file_name().unwrap_or_default()))
}

/// Prints the objects of the pictures, and writes them with their boxes.
pub(crate) fn run(options: &Options) -> Outcome {
    let device = options.device.open()?;
    let path = model::find(&options.model)?;
    let network = Network::open(&path, &device)?;
    let labels = match &options.labels {
        Some(file) => read_lines(file)?,
        None if path.is_dir() => read_labels(&path)?,
        None => Vec::new(),
    };
    let label = |class: usize| labels.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    let mut out = io::stdout().lock();
    let mut pictures = Vec::new();
    for path in &options.pictures {
        let picture = Image::open(path)?;
        let objects = network.objects(options, &picture, &device)?;
        if let Some(out) = &options.out {
            let drawn: Vec<_> = objects.iter().map(|object| (object.corners, label(object.class))).collect();
            boxes::write(&picture, &drawn, &drawn_path(out, path, options.pictures.len())?)?;
        }
        if options.json {
            let object = |object: &Detection| {
                json!({"class": object.class, "label": label(object.class), "score": object.score,
                       "corners": object.corners})
            };
            let objects: Vec<_> = objects.iter().map(object).collect();
            pictures.push(json!({"picture": path.display().to_string(), "objects": objects}));
            continue;
        }
        writeln!(out, "{}: {} objects", path.display(), objects.len())?;
        for object in &objects {
            let [left, top, right, bottom] = object.corners.map(f32::round);
            let (score, label) = (100.0 * object.score, label(object.class));
            writeln!(out, "{score:6.2} %  {label}  left {left} top {top} right {right} bottom {bottom}")?;
        }
    }
    if options.json { output::json(&pictures.into()) } else { Ok(()) }
}
