//! A small network classifies the arms of a spiral, which no straight line can separate, and draws its
//! decision for each point of the plane.
//!
//!     cargo run --release --example spiral -- --arms 3
//!
//! Writes `spiral.svg`.

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    f64::consts::TAU,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use plotters::prelude::{BLACK, Circle, Color, IntoDrawingArea, RGBColor, Rectangle, SVGBackend};
use taper::prelude::*;

/// Trains a three-layer network on the points of a spiral, and draws its decisions.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Arms of the spiral, at most 6
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=6))]
    arms: u32,
    /// Points per arm
    #[arg(long, default_value_t = 150)]
    points: usize,
    /// Training steps, each on all points
    #[arg(long, default_value_t = 400)]
    steps: usize,
    /// Learning rate
    #[arg(long, default_value_t = 1e-2)]
    lr: f64,
    /// Seed of the points and the weights
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The picture
    #[arg(long, default_value = "spiral.svg")]
    out: PathBuf,
}

/// Points `[arms · n, 2]` within the circle of radius 1, and the arm of each. An arm makes one turn from the
/// middle outwards.
fn spiral(arms: usize, n: usize, rng: &Generator) -> Result<(Tensor, Tensor)> {
    let arm = Tensor::arange(0, arms, 1, rng.device())?.reshape((arms, 1))?.expand((arms, n))?;
    let radius = Tensor::linspace(0.05, 1.0, n, rng.device())?;
    let noise = Tensor::randn((arms, n), rng)? * 0.12;
    let angle = arm.to_dtype(DType::F32)? * (TAU / arms as f64) + &radius * TAU * 0.75 + noise;
    let points = Tensor::stack(&[&radius * angle.cos(), &radius * angle.sin()], -1)?;
    Ok((points.flatten(0, 1)?, arm.flatten(0, 1)?))
}

const COLOURS: [(u8, u8, u8); 6] =
    [(213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233)];

fn colour(class: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[class % COLOURS.len()];
    RGBColor(red, green, blue)
}

/// Draws the model's class of each point of the plane, and on it the points in the colours of their arms.
fn draw(path: &Path, model: &Sequential, points: &Tensor, classes: &Tensor) -> Outcome {
    const CELLS: usize = 120;
    const CELL: i32 = 5;
    const EDGE: f64 = 1.15;
    let size = CELLS as i32 * CELL;

    // The middles of the cells as points [CELLS · CELLS, 2]: rows from the top down.
    let middle = EDGE - EDGE / CELLS as f64;
    let device = points.device();
    let x = Tensor::linspace(-middle, middle, CELLS, &device)?;
    let y = Tensor::linspace(middle, -middle, CELLS, &device)?.reshape((CELLS, 1))?;
    let plane = Tensor::stack(&[x.expand((CELLS, CELLS))?, y.expand((CELLS, CELLS))?], -1)?;
    let taken = no_grad(|| model.forward(&plane)?.argmax_axis(-1, false))?.to_f64_vec()?;

    let area = SVGBackend::new(path, (size as u32, size as u32)).into_drawing_area();
    for (row, classes) in taken.chunks(CELLS).enumerate() {
        let top = row as i32 * CELL;
        let mut left = 0;
        // A rectangle for each run of one class.
        for run in classes.chunk_by(|a, b| a == b) {
            let right = left + run.len() as i32 * CELL;
            let fill = colour(run[0] as usize).mix(0.35).filled();
            area.draw(&Rectangle::new([(left, top), (right, top + CELL)], fill))?;
            left = right;
        }
    }
    let place = |at: f64| ((at + EDGE) / (2.0 * EDGE) * f64::from(size)) as i32;
    for (point, class) in points.to_f64_vec()?.chunks(2).zip(classes.to_f64_vec()?) {
        let at = (place(point[0]), place(-point[1]));
        area.draw(&Circle::new(at, 3, colour(class as usize).filled()))?;
        area.draw(&Circle::new(at, 3, BLACK.mix(0.4)))?;
    }
    area.present()?;
    Ok(())
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let arms = options.arms as usize;
    let rng = Generator::seed(options.seed, &taper::cpu());
    let (points, classes) = spiral(arms, options.points, &rng)?.to(&device)?;

    let mut model = Sequential::new()
        .add(Linear::new(2, 64, &rng)?)
        .add(Relu)
        .add(Linear::new(64, 64, &rng)?)
        .add(Relu)
        .add(Linear::new(64, arms, &rng)?);
    model.to(&device)?;
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: options.lr, ..Default::default() });
    for step in 1..=options.steps {
        adam.zero_grad();
        let loss = cross_entropy(&model.forward(&points)?, &classes)?;
        loss.backward()?;
        adam.step()?;
        if step % 50 == 0 || step == options.steps {
            writeln!(out, "step {step}: loss {:.4}", loss.item::<f32>()?)?;
        }
    }

    draw(&options.out, &model, &points, &classes)?;
    writeln!(out, "drawn in {}", options.out.display())?;
    // Test points of the same spiral.
    let (points, classes) = spiral(arms, options.points, &rng)?.to(&device)?;
    let taken = no_grad(|| model.forward(&points)?.argmax_axis(1, false))?;
    let accuracy = taken.eq(&classes)?.to_dtype(DType::F32)?.mean().item::<f32>()?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
