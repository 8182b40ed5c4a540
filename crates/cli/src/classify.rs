//! `taper classify`: the most probable classes of pictures, by a network with weights of torchvision or timm.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use taper::{data::Image, models::vision::ImageClassifier};

use crate::{
    error::{Outcome, read_lines},
    model::{self, DeviceOption},
    output,
};

/// Prints the most probable classes of pictures.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper classify timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k cat.jpg
  taper classify resnet50-11ad3fa6.pth --architecture resnet50 --labels imagenet_classes.txt cat.jpg
  taper classify --list")]
pub(crate) struct Options {
    /// A folder with timm's config.json and weights, a file of weights, or a name such as org/name
    #[arg(required_unless_present = "list")]
    model: Option<PathBuf>,
    /// PNG or JPEG files
    #[arg(required_unless_present = "list")]
    pictures: Vec<PathBuf>,
    /// The architecture of a file of weights, by torchvision's or timm's name
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,
    /// Prints the names of the architectures
    #[arg(long)]
    list: bool,
    /// A file with a label in each line
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// The number of classes that are printed
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceOption,
}

/// Prints the probabilities and labels of each picture's classes.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut out = io::stdout().lock();
    let Some(model) = options.model.as_ref().filter(|_| !options.list) else {
        for name in ImageClassifier::architectures() {
            writeln!(out, "{name}")?;
        }
        return Ok(());
    };
    let device = options.device.open()?;
    let model = model::find(model)?;
    let mut classifier = match &options.architecture {
        Some(name) => ImageClassifier::open(name, &model, &device)?,
        None if model.is_dir() => ImageClassifier::from_folder(&model, &device)?,
        None => return Err("a file of weights needs --architecture; --list prints the names".into()),
    };
    if let Some(path) = &options.labels {
        classifier.labels = read_lines(path)?;
    }
    let mut pictures = Vec::new();
    for path in &options.pictures {
        let picture = Image::open(path)?.to_tensor(&device)?;
        let classes = classifier.classify(&picture, options.count)?;
        if options.json {
            let found = classes.iter().map(
                |found| json!({"class": found.class, "label": found.label, "probability": found.probability}),
            );
            pictures
                .push(json!({"picture": path.display().to_string(), "classes": found.collect::<Vec<_>>()}));
            continue;
        }
        writeln!(out, "{}", path.display())?;
        for found in classes {
            writeln!(out, "  {:6.2} %  {}", 100.0 * found.probability, found.label)?;
        }
    }
    if options.json { output::json(&pictures.into()) } else { Ok(()) }
}
