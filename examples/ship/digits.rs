//! Two networks learn the digits that ship with Taper, and become a project for a microcontroller, which QEMU
//! runs:
//!
//!     cargo run --release -p taper-examples-ship --example ship_digits -- --out firmware
//!     cd firmware && cargo run --release
//!
//! `firmware` beside this file has the other files of the project, and `host` a program that times the
//! networks on the computer itself.

use std::{
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use clap::Parser;
use taper::{
    nn::functional::max_pool2d,
    prelude::*,
    ship::{Budget, Target},
};

/// Trains networks on handwritten digits, and writes a project that reads digits on a microcontroller.
#[derive(Parser)]
struct Options {
    /// The folder of the project
    #[arg(long, default_value = "firmware")]
    out: PathBuf,
    /// Passes over the training images
    #[arg(long, default_value_t = 15)]
    epochs: usize,
}

/// The images that the project contains, from those that no network learns.
const SHOWN: usize = 100;
/// The images for training.
const TRAINED: usize = 1400;
/// The images of a step.
const BATCH: usize = 50;

/// The files of the project besides the networks and the images.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("firmware/Cargo.toml.txt")),
    (".cargo/config.toml", include_str!("firmware/config.toml")),
    ("build.rs", include_str!("firmware/build.rs")),
    ("arm.x", include_str!("firmware/arm.x")),
    ("src/main.rs", include_str!("firmware/main.rs")),
    ("src/board.rs", include_str!("firmware/board.rs")),
    ("host/Cargo.toml", include_str!("host/Cargo.toml.txt")),
    ("host/src/main.rs", include_str!("host/main.rs")),
];

#[derive(Debug, Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Layer for Mlp {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward(&images.flatten(1, -1)?)?.relu())
    }
}

#[derive(Debug, Module)]
struct Cnn {
    conv1: Conv2d,
    norm: BatchNorm2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Layer for Cnn {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.norm.forward(&self.conv1.forward(images)?)?.relu();
        let x = max_pool2d(&x, [2, 2])?;
        let x = max_pool2d(&self.conv2.forward(&x)?.relu(), [2, 2])?;
        self.fc.forward(&x.flatten(1, -1)?)
    }
}

/// Trains a network, and gives it ready for use.
fn trained<M: Module + Layer>(model: M, images: &Tensor, labels: &Tensor, epochs: usize) -> Result<M> {
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 3e-3, ..Default::default() });
    for _ in 0..epochs {
        for start in (0..TRAINED).step_by(BATCH) {
            let (x, y) = (images.narrow(0, start, BATCH)?, labels.narrow(0, start, BATCH)?);
            adam.zero_grad();
            cross_entropy(&model.forward(&x)?, &y)?.backward()?;
            adam.step()?;
        }
    }
    model.eval();
    Ok(model)
}

/// Ships a network for one image, and gives its results for the shown images, as the program computes them.
fn shipped(model: &dyn Layer, name: &str, shown: &[Tensor], out: &Path) -> Result<Vec<[f32; 10]>> {
    let network = taper::compile(|image: Tensor| model.forward(&image));
    let _ = no_grad(|| network.call(shown[0].clone()))?;
    let targets = [Target::Rust, Target::C, Target::Wgsl];
    for (target, folder) in
        targets.into_iter().zip([name.to_string(), format!("{name}_c"), format!("{name}_page")])
    {
        let program = taper::ship(&network, target)?.named(name)?;
        println!("{folder}: {}", program.sizes());
        Budget { flash: Some(256 << 10), ram: Some(64 << 10) }.check(program.sizes())?;
        program.write(&out.join(folder))?;
    }
    let program = taper::ship(&network, Target::Rust)?;
    let mut all = Vec::new();
    for image in shown {
        let bytes: Vec<u8> = image.to_vec::<f32>()?.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let logits = program.interpret(&[bytes])?.remove(0);
        let mut row = [0.0; 10];
        for (x, bytes) in row.iter_mut().zip(logits.chunks_exact(4)) {
            *x = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        all.push(row);
    }
    Ok(all)
}

/// The shown images, their labels, and the bits of the networks' results, as Rust.
fn images_of(shown: &[Tensor], labels: &[i32], bits: [&[[f32; 10]]; 2]) -> Result<String> {
    let mut text = String::new();
    let mut table = |name: &str, ty: &str, rows: Vec<String>| {
        let _ = writeln!(text, "pub static {name}: [{ty}; {}] = [", rows.len());
        rows.iter().for_each(|row| text.push_str(&format!("    {row},\n")));
        text.push_str("];\n");
    };
    let pixels: Result<Vec<String>> =
        shown.iter().map(|image| Ok(format!("{:?}", image.to_vec::<f32>()?))).collect();
    table("IMAGES", "[f32; 64]", pixels?);
    table("LABELS", "usize", labels.iter().map(ToString::to_string).collect());
    for (name, bits) in ["MLP_BITS", "CNN_BITS"].into_iter().zip(bits) {
        let rows = bits.iter().map(|row| format!("{:?}", row.map(f32::to_bits)));
        table(name, "[u32; 10]", rows.collect());
    }
    Ok(text)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Options { out, epochs } = Options::parse();
    let cpu = taper::cpu();
    let digits = taper::data::Digits::load(&cpu)?;
    let (images, labels) = digits.tensors();
    let images = images.reshape((-1, 1, 8, 8))?;
    let rng = Generator::seed(7, &cpu);
    let mlp = Mlp { fc1: Linear::new(64, 32, &rng)?, fc2: Linear::new(32, 10, &rng)? };
    let cnn = Cnn {
        conv1: Conv2d::with_config(1, 8, 3, ConvConfig { padding: 1.into(), ..Default::default() }, &rng)?,
        norm: BatchNorm2d::new(8, &cpu)?,
        conv2: Conv2d::with_config(8, 16, 3, ConvConfig { padding: 1.into(), ..Default::default() }, &rng)?,
        fc: Linear::new(64, 10, &rng)?,
    };
    let mlp = trained(mlp, &images, labels, epochs)?;
    let cnn = trained(cnn, &images, labels, epochs)?;
    let shown: Vec<Tensor> =
        (0..SHOWN).map(|k| images.narrow(0, TRAINED + k, 1)?.contiguous()).collect::<Result<_>>()?;
    taper::eval_all(&shown.iter().collect::<Vec<_>>())?;
    let labels = labels.narrow(0, TRAINED, SHOWN)?.to_vec::<i32>()?;
    let bits = [shipped(&mlp, "mlp", &shown, &out)?, shipped(&cnn, "cnn", &shown, &out)?];
    for (path, text) in FILES {
        let path = out.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&out))?;
        fs::write(path, text)?;
    }
    fs::write(out.join("src/images.rs"), images_of(&shown, &labels, [&bits[0], &bits[1]])?)?;
    println!("{}: cargo run --release reads digits in QEMU", out.display());
    Ok(())
}
