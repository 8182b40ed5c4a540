//! The most probable classes of a picture, by a network with weights of torchvision or timm.
//!
//!     pip install huggingface_hub
//!     hf download timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k --local-dir vit
//!     cargo run --release -p taper-examples-vision --example classify -- --model vit cat.jpg
//!
//!     wget https://download.pytorch.org/models/resnet50-11ad3fa6.pth
//!     cargo run --release -p taper-examples-vision --example classify -- \
//!         --model resnet50-11ad3fa6.pth --architecture resnet50 --labels imagenet_classes.txt cat.jpg
//!
//! The model is a folder with timm's `config.json` and weights, or a file of weights with the name of its
//! architecture; `--list` prints the names. `--labels` is a file with a label in each line.
//!
//! The tests of this repository run the program with small networks of random weights, whose classes mean
//! nothing but are always the same (`tests/pictures.rs`).

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::Parser;
use taper::{data::Image, models::vision::ImageClassifier};

/// The most probable classes of a picture.
#[derive(Parser)]
pub(crate) struct Options {
    /// PNG or JPEG files
    #[arg(required_unless_present = "list")]
    pictures: Vec<PathBuf>,
    /// A folder with timm's config.json and weights, or a file of weights
    #[arg(long, value_name = "PATH", required_unless_present = "list")]
    model: Option<PathBuf>,
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
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
}

/// Prints the probabilities and labels of each picture's classes.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    if options.list {
        for name in ImageClassifier::architectures() {
            writeln!(out, "{name}")?;
        }
        return Ok(());
    }
    let device = taper::device(&options.device)?;
    let model = options.model.as_ref().ok_or("--model is missing")?;
    let mut classifier = match &options.architecture {
        Some(name) => ImageClassifier::open(name, model, &device)?,
        None if model.is_dir() => ImageClassifier::from_folder(model, &device)?,
        None => return Err("a file of weights needs --architecture; --list prints the names".into()),
    };
    if let Some(path) = &options.labels {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        classifier.labels = text.lines().map(str::to_string).collect();
    }
    for path in &options.pictures {
        writeln!(out, "{}", path.display())?;
        let picture = Image::open(path)?.to_tensor(&device)?;
        for found in classifier.classify(&picture, options.count)? {
            writeln!(out, "  {:6.2} %  {}", 100.0 * found.probability, found.label)?;
        }
    }
    Ok(())
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<(), Box<dyn Error>> {
    taper::end_quietly_on_closed_pipe();
    match run(&Options::parse(), &mut io::stdout()) {
        Err(error) if taper::is_closed_pipe(&*error) => Ok(()),
        done => done,
    }
}
